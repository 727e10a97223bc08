// SPDX-License-Identifier: GPL-2.0

//! The driver's twin: performs the engine's actions on the model disk, in a random order that the
//! seed decides, and checks what is read against the reference model.

use crate::disk::{blocks_of, Block, Disk, BLOCK};
use crate::reference::{Mark, Reference, Version};
use crate::rng::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use zbd_engine::attach::Report;
use zbd_engine::create::{create, NewVolume};
use zbd_engine::format::fragment::Codec;
use zbd_engine::format::root::Options;
use zbd_engine::read::{Lookup, ReadPiece, Source};
use zbd_engine::write::{Piece, Slot, Stall};
use zbd_engine::{
    Action, Barrier, BufferId, Buffers, Config, Engine, Error, Media, RequestId, Result, Token,
};

/// The volume's buffers.
pub struct Memory(Vec<Vec<u8>>);

thread_local! {
    /// Buffers of worlds that are gone: attaches are many, and filling megabytes is slow.
    static SPARE: RefCell<Vec<Vec<Vec<u8>>>> = const { RefCell::new(Vec::new()) };
}

impl Memory {
    /// Buffers for a configuration.
    pub fn new(config: &Config) -> Memory {
        let sizes = || (0..).map_while(|at| config.buffer_bytes(at));
        let spare = SPARE.with_borrow_mut(|spare| {
            let fits = |buffers: &Vec<Vec<u8>>| buffers.iter().map(Vec::len).eq(sizes());
            let at = spare.iter().position(fits)?;
            Some(spare.swap_remove(at))
        });
        // Garbage, so that whatever the engine forgets to clear shows.
        Memory(spare.unwrap_or_else(|| sizes().map(|bytes| vec![0xa5; bytes]).collect()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| spare.push(std::mem::take(&mut self.0)));
    }
}

impl Buffers for Memory {
    fn bytes(&self, buffer: BufferId) -> &[u8] {
        &self.0[usize::from(buffer)]
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        &mut self.0[usize::from(buffer)]
    }

    fn copy(&mut self, from: BufferId, from_at: usize, to: BufferId, to_at: usize, bytes: usize) {
        let source = self.0[usize::from(from)][from_at..from_at + bytes].to_vec();
        self.0[usize::from(to)][to_at..to_at + bytes].copy_from_slice(&source);
    }

    fn write(&mut self, buffer: BufferId, at: usize, bytes: &[u8]) {
        self.0[usize::from(buffer)][at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// A lower I/O in flight.
#[derive(Clone)]
pub struct InFlight {
    /// What it does.
    pub action: Action,
    /// What is written.
    pub data: Vec<Block>,
    /// A flush makes durable what completed before this number.
    pub mark: u64,
}

/// A moment at which power may fail.
#[derive(Clone)]
pub struct CrashPoint {
    /// The disk.
    pub disk: Disk,
    /// What is in flight.
    pub in_flight: Vec<InFlight>,
    /// What is known.
    pub reference: Reference,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Done,
    /// No space.
    Full,
    /// The volume is read-only.
    ReadOnly,
}

/// A volume under test.
pub struct World {
    /// The engine; `None` between crash and attach.
    pub engine: Option<Box<Engine>>,
    /// The disk.
    pub disk: Disk,
    /// What may be read.
    pub reference: Reference,
    /// The configuration.
    pub config: Config,
    /// Decides orders.
    pub rng: Rng,
    memory: Memory,
    in_flight: Vec<InFlight>,
    woken: BTreeSet<RequestId>,
    completed: BTreeMap<RequestId, Result>,
    flushes: BTreeMap<RequestId, Mark>,
    next_request: RequestId,
    next_version: Version,
    /// Payload bytes of data blocks: at least 16.
    pub payload: usize,
    /// One in this many lower writes fails; 0: none.
    pub write_errors: u64,
    /// So many of the next lower writes fail, roots excepted.
    pub fail_next: u32,
    /// Where the moments before each completion are recorded, if wanted.
    pub crash_points: Option<Vec<CrashPoint>>,
}

/// A volume's options in tests.
pub fn volume(zone_blocks: u32, logical_blocks: Option<u64>) -> NewVolume {
    NewVolume {
        uuid: *b"zbd-test-volume!",
        label: [0; 32],
        logical_blocks,
        zone_blocks: Some(zone_blocks),
        metadata_copies: 2,
        options: Options {
            straddle: true,
            codec: 1,
            level: 1,
        },
        force: false,
    }
}

impl World {
    /// A fresh volume on a disk of `zones` zones of 1 MiB.
    pub fn new(seed: u64, zones: u64, logical_blocks: Option<u64>) -> World {
        World::with(seed, zones, &volume(256, logical_blocks), Config::SMALL)
    }

    /// Formats a disk with zones of 1 MiB as [`World::new`] does.
    pub fn format(disk: &mut Disk) {
        let config = Config::SMALL;
        let mut memory = Memory::new(&config);
        create(disk, &mut memory, &config, &volume(256, None)).expect("format");
    }

    /// A fresh volume as described.
    pub fn with(seed: u64, zones: u64, volume: &NewVolume, config: Config) -> World {
        let zone_blocks = u64::from(volume.zone_blocks.unwrap_or(256));
        let mut disk = Disk::new(zones * zone_blocks, zone_blocks);
        let mut memory = Memory::new(&config);
        create(&mut disk, &mut memory, &config, volume).expect("format");
        let mut world = World {
            engine: None,
            disk,
            reference: Reference::default(),
            config,
            rng: Rng::new(seed),
            memory,
            in_flight: Vec::new(),
            woken: BTreeSet::new(),
            completed: BTreeMap::new(),
            flushes: BTreeMap::new(),
            next_request: 0,
            next_version: 1,
            payload: 600,
            write_errors: 0,
            fail_next: 0,
            crash_points: None,
        };
        world.attach().expect("attach");
        world
    }

    /// A world without engine around a disk that was left by a crash of this one.
    pub fn resume(&mut self, disk: Disk, reference: Reference) -> World {
        World {
            engine: None,
            disk,
            reference,
            config: self.config,
            rng: Rng::new(self.rng.next()),
            memory: Memory::new(&self.config),
            in_flight: Vec::new(),
            woken: BTreeSet::new(),
            completed: BTreeMap::new(),
            flushes: BTreeMap::new(),
            next_request: 0,
            next_version: self.next_version,
            payload: self.payload,
            write_errors: 0,
            fail_next: 0,
            crash_points: None,
        }
    }

    /// The present moment.
    pub fn crash_point(&self) -> CrashPoint {
        CrashPoint {
            disk: self.disk.clone(),
            in_flight: self.in_flight.clone(),
            reference: self.reference.clone(),
        }
    }

    /// The engine, which must be attached.
    pub fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("attached")
    }

    /// Attaches the volume.
    pub fn attach(&mut self) -> Result<Report> {
        self.in_flight.clear();
        self.woken.clear();
        self.completed.clear();
        self.flushes.clear();
        let (engine, report) = Engine::attach(&mut self.disk, &mut self.memory, &self.config)?;
        self.engine = Some(engine);
        self.disk.forget_pointers();
        Ok(report)
    }

    /// Detaches properly.
    pub fn detach(&mut self) {
        self.engine().begin_detach();
        let mut rounds = 0;
        while !self.engine().is_detached() || !self.in_flight.is_empty() {
            self.step();
            rounds += 1;
            assert!(rounds < 4_000, "detach hangs");
        }
        self.disk.flush().expect("flush");
        self.check_sound();
        self.engine = None;
    }

    /// Power fails: everything that is not durable survives as the seed says.
    pub fn crash(&mut self) {
        let mut rng = self.rng.clone();
        for io in std::mem::take(&mut self.in_flight) {
            if let Action::Write {
                address, barrier, ..
            } = io.action
            {
                // The device flushes first: what is behind the flush survives only with it.
                if barrier == Barrier::FlushFua {
                    if rng.one_in(2) {
                        continue;
                    }
                    self.disk.complete_flush(io.mark);
                }
                let bias = 1 + rng.below(4);
                self.disk.tear(address, &io.data, || rng.below(4) < bias);
            }
        }
        let bias = rng.below(5);
        self.disk.crash(|_, _| rng.below(4) < bias);
        self.rng = rng;
        self.engine = None;
    }

    /// Takes the engine's actions as the driver would submit them.
    pub fn submit(&mut self) {
        let Some(engine) = self.engine.as_mut() else {
            return;
        };
        while let Some(action) = engine.next_action() {
            let mut data = Vec::new();
            match action {
                Action::Wake { request } => {
                    self.woken.insert(request);
                    continue;
                }
                Action::Complete { request, result } => {
                    if let Some(mark) = self.flushes.remove(&request) {
                        if result.is_ok() {
                            self.reference.flushed(&mark);
                        }
                    }
                    self.completed.insert(request, result);
                    continue;
                }
                Action::Write {
                    buffer,
                    bytes,
                    address,
                    ..
                } => {
                    self.disk.check_sequential(address, bytes as usize);
                    data = blocks_of(&self.memory.bytes(buffer)[..bytes as usize]);
                }
                _ => {}
            }
            let mark = self.disk.mark();
            self.in_flight.push(InFlight { action, data, mark });
        }
    }

    /// Completes one lower I/O, or lets the engine work; answers whether anything happened.
    pub fn step(&mut self) -> bool {
        self.submit();
        let run = self.rng.one_in(3) || self.in_flight.is_empty();
        if run {
            let Some(engine) = self.engine.as_mut() else {
                return false;
            };
            let more = engine.run(&mut self.memory);
            self.submit();
            if more {
                return true;
            }
        }
        if self.in_flight.is_empty() {
            return false;
        }
        if let Some(mut points) = self.crash_points.take() {
            points.push(self.crash_point());
            self.crash_points = Some(points);
        }
        let at = self.rng.below(self.in_flight.len() as u64) as usize;
        let io = self.in_flight.swap_remove(at);
        let (token, result) = self.perform(io);
        let engine = self.engine.as_mut().expect("attached");
        engine.io_done(&mut self.memory, token, result);
        self.submit();
        true
    }

    fn perform(&mut self, io: InFlight) -> (Token, Result) {
        match io.action {
            Action::Read {
                token,
                buffer,
                at,
                bytes,
                address,
            } => {
                let room = &mut self.memory.bytes_mut(buffer)[at as usize..][..bytes as usize];
                (token, self.disk.read(address, room))
            }
            Action::Write {
                token,
                address,
                barrier,
                ..
            } => {
                let first = address / BLOCK as u64;
                let bad = (first..first + io.data.len() as u64)
                    .any(|block| self.disk.unwritable.contains(&block));
                let mut bad = bad || (self.write_errors > 0 && self.rng.one_in(self.write_errors));
                if self.fail_next > 0 && !bad && !io.data[0].starts_with(b"zbdROOT") {
                    self.fail_next -= 1;
                    bad = true;
                }
                if bad {
                    return (token, Err(Error::Io));
                }
                if barrier == Barrier::FlushFua {
                    self.disk.complete_flush(io.mark);
                }
                let durable = barrier != Barrier::None;
                self.disk.complete_write(address, &io.data, durable);
                (token, Ok(()))
            }
            Action::Flush { token } => {
                self.disk.complete_flush(io.mark);
                (token, Ok(()))
            }
            Action::Discard {
                token,
                address,
                bytes,
            } => {
                self.disk.discard(address, bytes);
                (token, Ok(()))
            }
            Action::Wake { .. } | Action::Complete { .. } => unreachable!(),
        }
    }

    /// Runs until nothing is left to do.
    pub fn quiesce(&mut self) {
        let mut rounds = 0;
        while self.step() {
            rounds += 1;
            self.give_up_after(rounds, "the engine never rests");
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request = (self.next_request + 1) % self.config.requests as u32;
        self.next_request
    }

    /// Waits until a request is woken.
    fn wait(&mut self, request: RequestId) {
        let mut rounds = 0;
        let mut idle = 0;
        while !self.woken.remove(&request) {
            if self.step() {
                idle = 0;
            } else {
                idle += 1;
                self.give_up_after(idle * 40, "a request waits for ever");
            }
            rounds += 1;
            self.give_up_after(rounds, "a request is starved");
        }
    }

    /// Fails the test when something has taken so many rounds that it will never end.
    fn give_up_after(&self, rounds: u32, what: &str) {
        if rounds >= 4_000 {
            let engine = self.engine.as_ref().expect("attached");
            panic!("{what}: {:?} {:?}", engine.situation(), engine.stats);
        }
    }

    fn payload_for(&self, lbn: u64, version: Version) -> Vec<u8> {
        let mut bytes = vec![0x5a; self.payload.max(16)];
        bytes[..8].copy_from_slice(&lbn.to_le_bytes());
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// Writes a block of a new version.
    pub fn write(&mut self, lbn: u64) -> Outcome {
        let version = self.next_version;
        self.next_version += 1;
        let payload = self.payload_for(lbn, version);
        let piece = Piece::Data {
            lbn,
            log2: 0,
            codec: Codec::Lz4,
            bytes: payload.len(),
        };
        let outcome = self.place(piece, &payload);
        if outcome == Outcome::Done {
            self.reference.write(lbn, 1, version);
        }
        outcome
    }

    /// Writes an extent of `1 << log2` blocks as one fragment that all its blocks share.
    pub fn write_extent(&mut self, lbn: u64, log2: u8) -> Outcome {
        let version = self.next_version;
        self.next_version += 1;
        let payload = self.payload_for(lbn, version);
        let piece = Piece::Data {
            lbn,
            log2,
            codec: Codec::Lz4,
            bytes: payload.len(),
        };
        let outcome = self.place(piece, &payload);
        if outcome == Outcome::Done {
            self.reference.write(lbn, 1 << log2, version);
        }
        outcome
    }

    /// Zeroes or discards blocks.
    pub fn zero(&mut self, lbn: u64, blocks: u64) -> Outcome {
        let outcome = self.place(Piece::Zeros { lbn, blocks }, &[]);
        if outcome == Outcome::Done {
            self.reference.write(lbn, blocks, 0);
        }
        outcome
    }

    /// Discards blocks without telling the reference: it would list every one of them.
    pub fn zero_unseen(&mut self, lbn: u64, blocks: u64) -> Outcome {
        self.place(Piece::Zeros { lbn, blocks }, &[])
    }

    fn place(&mut self, piece: Piece, payload: &[u8]) -> Outcome {
        let request = self.request();
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.give_up_after(2 * attempts, "a write never finds a place");
            let mut slots = [Slot::EMPTY];
            let engine = self.engine.as_mut().expect("attached");
            match engine.reserve(&mut self.memory, request, &[piece], &mut slots) {
                Ok(count) => {
                    assert_eq!(count, 1);
                    // Let other things happen between reservation and commit.
                    for _ in 0..self.rng.below(3) {
                        self.step();
                    }
                    if let Some((buffer, range)) = slots[0].range() {
                        let room = &mut self.memory.bytes_mut(buffer)[range];
                        assert!(slots[0].fill(room, payload));
                    }
                    let engine = self.engine.as_mut().expect("attached");
                    engine.commit(&mut self.memory, &slots);
                    self.submit();
                    return Outcome::Done;
                }
                Err(Stall::Wait) => self.wait(request),
                Err(Stall::NoSpace) => return Outcome::Full,
                Err(Stall::ReadOnly) => return Outcome::ReadOnly,
                Err(Stall::Range) => panic!("range refused: {piece:?}"),
            }
        }
    }

    /// Writes a block twice: the slot that is reserved first is committed last and wins.
    pub fn write_crossed(&mut self, lbn: u64) {
        let request = self.request();
        let versions = [self.next_version + 1, self.next_version];
        self.next_version += 2;
        let payloads = versions.map(|version| self.payload_for(lbn, version));
        let piece = Piece::Data {
            lbn,
            log2: 0,
            codec: Codec::Lz4,
            bytes: payloads[0].len(),
        };
        let mut slots = [Slot::EMPTY; 2];
        let engine = self.engine.as_mut().expect("attached");
        let found = engine.reserve(&mut self.memory, request, &[piece; 2], &mut slots);
        assert_eq!(found, Ok(2), "a fresh segment takes two small fragments");
        for (slot, payload) in slots.iter().zip(&payloads) {
            let (buffer, range) = slot.range().expect("data");
            assert!(slot.fill(&mut self.memory.bytes_mut(buffer)[range], payload));
        }
        let engine = self.engine.as_mut().expect("attached");
        engine.commit(&mut self.memory, &slots[1..]);
        engine.commit(&mut self.memory, &slots[..1]);
        self.reference.write(lbn, 1, versions[1]);
        self.reference.write(lbn, 1, versions[0]);
        self.submit();
    }

    /// Seals what waits in open segments.
    pub fn tick(&mut self) {
        let engine = self.engine.as_mut().expect("attached");
        engine.tick(&mut self.memory);
        self.submit();
    }

    /// Starts a flush; answers its request.
    pub fn start_flush(&mut self) -> RequestId {
        let request = self.request();
        self.flushes.insert(request, self.reference.mark());
        let engine = self.engine.as_mut().expect("attached");
        engine.flush(&mut self.memory, request);
        self.submit();
        request
    }

    /// Flushes.
    pub fn flush(&mut self) -> Result {
        let request = self.start_flush();
        let mut rounds = 0;
        loop {
            if let Some(result) = self.completed.remove(&request) {
                return result;
            }
            let busy = self.step();
            rounds += 1;
            assert!(busy || rounds < 1000, "a flush hangs");
            assert!(rounds < 4_000, "a flush is starved");
        }
    }

    /// Reads a block: its version, or the error.
    pub fn read(&mut self, lbn: u64) -> std::result::Result<Version, Error> {
        for _ in 0..100 {
            let piece = self.start_read(lbn);
            // Let the engine move and free things while the read is under way.
            for _ in 0..self.rng.below(4) {
                self.step();
            }
            let found = self.fetch(&piece);
            let engine = self.engine.as_mut().expect("attached");
            let again = found.is_err()
                && piece.source != Source::Lost
                && engine.read_failed(&mut self.memory, &piece);
            engine.release(&piece);
            self.submit();
            if !again {
                return found;
            }
        }
        panic!("block {lbn} is looked up for ever");
    }

    fn fetch(&mut self, piece: &ReadPiece) -> std::result::Result<Version, Error> {
        let mut room;
        let bytes = match piece.source {
            Source::Zeros => return Ok(0),
            Source::Lost => return Err(Error::Io),
            Source::Memory { buffer, at } => &self.memory.bytes(buffer)[at..at + piece.bytes],
            Source::Device { .. } => {
                let (address, bytes, skip) = piece.device_range().expect("on the device");
                room = vec![0; bytes];
                self.disk.read(address, &mut room)?;
                &room[skip..skip + piece.bytes]
            }
        };
        let (_, payload) = piece.open(bytes).ok_or(Error::Corrupt)?;
        let stamp = u64::from_le_bytes(payload[..8].try_into().unwrap());
        let first = piece.lbn & !(piece.extent_blocks() as u64 - 1);
        assert_eq!(
            stamp, first,
            "block {} holds another block's data",
            piece.lbn
        );
        Ok(u64::from_le_bytes(payload[8..16].try_into().unwrap()))
    }

    /// Compares a block with the reference.
    pub fn check(&mut self, lbn: u64) {
        let found = self.read(lbn);
        assert_eq!(found, Ok(self.reference.now(lbn)), "block {lbn}");
    }

    /// Compares every block that was ever written.
    pub fn check_all(&mut self) {
        for lbn in self.reference.blocks() {
            self.check(lbn);
        }
        self.check_sound();
    }

    /// The engine's own invariants hold.
    pub fn check_sound(&mut self) {
        let engine = self.engine();
        assert_eq!(engine.poisoned(), None);
        assert_eq!(engine.audit(), Ok(()));
    }

    /// After a crash: attaches and takes stock; what may not be read is an error.
    pub fn recover(&mut self) -> std::result::Result<Report, String> {
        let report = self
            .attach()
            .map_err(|error| format!("attach failed: {error:?}"))?;
        for lbn in self.reference.blocks() {
            let version = self
                .read(lbn)
                .map_err(|error| format!("block {lbn} is unreadable: {error:?}"))?;
            self.reference.settle(lbn, version)?;
        }
        Ok(report)
    }

    /// Looks a block up and keeps it from being moved away until [`World::finish_read`].
    pub fn start_read(&mut self, lbn: u64) -> ReadPiece {
        let request = self.request();
        let mut pieces = [ReadPiece::EMPTY];
        loop {
            let engine = self.engine.as_mut().expect("attached");
            match engine.lookup(&mut self.memory, request, lbn, &mut pieces) {
                Lookup::Found(_) => return pieces[0],
                Lookup::Wait => {
                    self.submit();
                    self.wait(request);
                }
            }
        }
    }

    /// Reads what was looked up; a held zone keeps it as it was, so that it verifies at once.
    pub fn finish_read(&mut self, piece: &ReadPiece) -> std::result::Result<Version, Error> {
        let found = self.fetch(piece);
        let engine = self.engine.as_mut().expect("attached");
        engine.release(piece);
        self.submit();
        found
    }
}
