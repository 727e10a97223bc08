// SPDX-License-Identifier: GPL-2.0

//! Reading: look up, read neighbouring fragments together, verify and decompress.
//!
//! A read goes through batches of blocks. Each is looked up under the lock, which pins what was
//! found; read from the lower device without it; and let go of under it. What has been moved or
//! overwritten meanwhile is looked up again.

use super::{
    decompress::Decoder,
    queue::{
        self,
        Context,
        Driver,
        State,
        REQUEST_BLOCKS_MAX, //
    },
    volume::{
        Volume,
        LARGE_READ_BYTES,
        SMALL_READ_BYTES, //
    }, //
};
use crate::{
    engine::{
        read::{
            Lookup,
            ReadPiece,
            Source, //
        },
        units::BLOCK_BYTES, //
    },
    linux::{
        bio::{
            Complete,
            Done,
            Flags,
            Io,
            Payload, //
        },
        block_device::SECTOR_BYTES,
        handoff::Handoff,
        iobuf::IoBuf,
        request::{
            Part,
            Request, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Blocks that are looked up at once, and lower reads that there are at once, for one request.
const BATCH: usize = REQUEST_BLOCKS_MAX;
/// Bytes between two fragments that are read along rather than read twice.
const GAP_BYTES: u64 = 8 << 10;
/// Times that blocks of a request may have moved while it was reading them.
const RETRIES_MAX: u32 = 1000;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / 512;
/// Not in any group: not on the device.
const NO_GROUP: u8 = u8::MAX;

/// A lower read.
#[derive(Clone, Copy)]
struct Group {
    address: u64,
    bytes: usize,
}

/// A read between two steps.
pub(super) struct ReadState {
    /// Pieces that have been looked up and are held.
    batch: usize,
    retries: u32,
    /// Each fragment is read by itself: a larger read failed.
    apart: bool,
    pieces: [ReadPiece; BATCH],
    /// Which lower read holds the piece.
    group_of: [u8; BATCH],
    groups: [Group; BATCH],
    group_count: usize,
}

impl ReadState {
    /// Nothing done yet.
    pub(super) const NONE: ReadState = ReadState {
        batch: 0,
        retries: 0,
        apart: false,
        pieces: [ReadPiece::EMPTY; BATCH],
        group_of: [NO_GROUP; BATCH],
        groups: [Group {
            address: 0,
            bytes: 0,
        }; BATCH],
        group_count: 0,
    };

    /// Begins a request.
    pub(super) fn reset(&mut self) {
        self.batch = 0;
        self.retries = 0;
        self.apart = false;
        self.group_count = 0;
    }

    /// Puts the pieces' places on the device into as few reads as is sensible.
    fn plan(&mut self) {
        let mut count = 0usize;
        let pieces = self.pieces.iter().take(self.batch);
        for (piece, group_of) in pieces.zip(self.group_of.iter_mut()) {
            *group_of = NO_GROUP;
            let Some((address, bytes, _)) = piece.device_range() else {
                continue;
            };
            let end = address + bytes as u64;
            let last = count.checked_sub(1);
            if let Some(group) = last.and_then(|last| self.groups.get_mut(last)) {
                let group_end = group.address + group.bytes as u64;
                let joined = end.max(group_end).saturating_sub(group.address);
                if !self.apart
                    && address >= group.address
                    && address <= group_end + GAP_BYTES
                    && joined <= LARGE_READ_BYTES as u64
                {
                    group.bytes = joined as usize;
                    *group_of = (count - 1) as u8;
                    continue;
                }
            }
            if let Some(group) = self.groups.get_mut(count) {
                *group = Group { address, bytes };
                *group_of = count as u8;
                count += 1;
            }
        }
        self.group_count = count;
    }
}

/// Why a lower read brought nothing.
enum Miss {
    /// The device failed.
    Failed,
    /// There was no memory for it where it was tried, or it is to be tried by itself.
    NotTried,
}

/// What a lower read has brought.
struct Arrival(Result<IoBuf, Miss>);

/// Where lower reads leave what they have brought.
pub(super) struct Arrivals([Handoff<Arrival>; BATCH]);

impl Arrivals {
    pub(super) const fn new() -> Self {
        Self([const { Handoff::new() }; BATCH])
    }

    fn put(&self, group: usize, arrival: Arrival) {
        if let Some(place) = self.0.get(group) {
            // Empty: a group is read once per batch.
            let _ = place.put(arrival);
        }
    }

    fn take(&self, group: usize) -> Option<Arrival> {
        self.0.get(group)?.take()
    }
}

/// What is remembered about a lower read.
pub(super) struct ReadIo {
    part: Part<Driver>,
    group: u32,
}

impl Complete for ReadIo {
    fn complete(self, done: Done) {
        let arrival = match (done.result, done.payload) {
            (Ok(()), Payload::Owned(buf)) => Arrival(Ok(buf)),
            _ => Arrival(Err(Miss::Failed)),
        };
        let arrivals = &self.part.request().data().arrivals;
        arrivals.put(self.group as usize, arrival);
        if let Some(rq) = self.part.join() {
            queue::again(rq);
        }
    }
}

/// Works on a read until it is ended or has to wait.
pub(super) fn step(volume: &Arc<Volume>, mut rq: Request<Driver>, context: Context) {
    loop {
        if rq.data().state.lock().read.batch > 0 {
            if let Some(result) = finish(volume, &rq) {
                rq.end(result);
                return wake_waiters(volume);
            }
        }
        match look_up(volume, rq) {
            Some(back) => rq = back,
            None => return volume.kick_background(),
        }
        match fetch(volume, rq, context) {
            Fetch::Arrived(back) => rq = back,
            Fetch::Later => return,
            Fetch::Elsewhere(back) => return queue::again(back),
        }
    }
}

/// Looks up the next blocks; `None` if that has to wait.
fn look_up(volume: &Arc<Volume>, rq: Request<Driver>) -> Option<Request<Driver>> {
    volume.with(|core| {
        let tag = rq.tag();
        let first = rq.sector() / BLOCK_SECTORS;
        let blocks = rq.bytes() / BLOCK_BYTES;
        let mut state = rq.data().state.lock();
        let State { done, read, .. } = &mut *state;
        let count = blocks.saturating_sub(*done).min(BATCH);
        let found = match read.pieces.get_mut(..count) {
            Some(pieces) => {
                let lbn = first + *done as u64;
                core.engine.lookup(&mut core.owner, tag, lbn, pieces)
            }
            None => Lookup::Found(0),
        };
        match found {
            Lookup::Found(count) => {
                read.batch = count;
                read.plan();
                drop(state);
                Some(rq)
            }
            Lookup::Wait => {
                drop(state);
                core.park(rq);
                None
            }
        }
    })
}

/// How reading from the lower device went.
enum Fetch {
    /// All is there.
    Arrived(Request<Driver>),
    /// Somebody else goes on when it is there.
    Later,
    /// To be done again by a worker.
    Elsewhere(Request<Driver>),
}

/// Reads what the batch needs from the lower device.
fn fetch(volume: &Arc<Volume>, rq: Request<Driver>, context: Context) -> Fetch {
    let groups = rq.data().state.lock().read.group_count;
    if groups == 0 {
        return Fetch::Arrived(rq);
    }
    let part = rq.into_parts();
    let mut missed = false;
    for group in 0..groups {
        let wanted = part
            .request()
            .data()
            .state
            .lock()
            .read
            .groups
            .get(group)
            .copied();
        let Some(wanted) = wanted else { break };
        let Some(buf) = take_buffer(volume, wanted.bytes) else {
            if group == 0 {
                let Some(rq) = part.join() else {
                    return Fetch::Later;
                };
                return wait_for_buffer(volume, rq, wanted.bytes);
            }
            shorten(volume, part.request(), group);
            break;
        };
        let io = Io {
            flags: Flags::SYNC,
            ..Io::read(wanted.address / SECTOR_BYTES, buf, 0..wanted.bytes)
        };
        let ticket = ReadIo {
            part: part.clone(),
            group: group as u32,
        };
        if context == Context::Worker {
            volume.read_bios.submit(io, ticket);
        } else if let Err((_, ticket)) = volume.read_bios.try_submit(io, ticket) {
            missed = true;
            let arrivals = &ticket.part.request().data().arrivals;
            arrivals.put(group, Arrival(Err(Miss::NotTried)));
            // Not the last handle: `part` is ours.
            let _ = ticket.part.join();
        }
    }
    match part.join() {
        Some(rq) if missed => Fetch::Elsewhere(rq),
        Some(rq) => Fetch::Arrived(rq),
        None => Fetch::Later,
    }
}

fn take_buffer(volume: &Volume, bytes: usize) -> Option<IoBuf> {
    if bytes <= SMALL_READ_BYTES {
        if let Some(buf) = volume.small_reads.take() {
            return Some(buf);
        }
    }
    volume.large_reads.take()
}

/// Lets go of the batch and waits for a buffer of `bytes` bytes.
fn wait_for_buffer(volume: &Arc<Volume>, rq: Request<Driver>, bytes: usize) -> Fetch {
    shorten(volume, &rq, 0);
    let pool = if bytes <= SMALL_READ_BYTES {
        &volume.small_reads
    } else {
        &volume.large_reads
    };
    let free = || (pool.free_count() > 0).then_some(());
    match volume.read_waiters.wait(rq, free) {
        Some((rq, ())) => Fetch::Elsewhere(rq),
        None => Fetch::Later,
    }
}

/// Leaves out the pieces from lower read `group` on.
fn shorten(volume: &Arc<Volume>, rq: &Request<Driver>, group: usize) {
    volume.with(|core| {
        let mut state = rq.data().state.lock();
        let read = &mut state.read;
        let groups = read.group_of.iter().take(read.batch);
        let keep = groups
            .take_while(|of| **of == NO_GROUP || usize::from(**of) < group)
            .count();
        for piece in read.pieces.iter().take(read.batch).skip(keep) {
            core.engine.release(piece);
        }
        read.batch = keep;
        read.group_count = group;
    });
}

/// Has reads that wait for buffers try again, as far as there are buffers.
fn wake_waiters(volume: &Volume) {
    // The next one wakes the one after it.
    if volume.small_reads.free_count() > 0 && volume.large_reads.free_count() > 0 {
        if let Some(rq) = volume.read_waiters.next() {
            queue::again(rq);
        }
    }
}

/// Hands a batch to the request, and lets go of it; the result, if that was all.
fn finish(volume: &Arc<Volume>, rq: &Request<Driver>) -> Option<Result> {
    // A part of the request that is missing: let go and fail.
    let Decoded { bad, again, apart } = decode(volume, rq).unwrap_or(Decoded {
        bad: u32::MAX,
        again: 0,
        apart: false,
    });
    let blocks = rq.bytes() / BLOCK_BYTES;
    volume.with(|core| {
        // The volume's lock comes first wherever both are held.
        let mut state = rq.data().state.lock();
        let State { done, read, .. } = &mut *state;
        let batch = core::mem::take(&mut read.batch);
        let mut lost = false;
        let mut again = again;
        for (at, piece) in read.pieces.iter().take(batch).enumerate() {
            let bit = 1u32 << (at % BATCH);
            if bad & bit == 0 {
                continue;
            }
            let moved =
                piece.source != Source::Lost && core.engine.read_failed(&mut core.owner, piece);
            if moved {
                again |= bit;
            } else {
                lost = true;
            }
        }
        for piece in read.pieces.iter().take(batch) {
            core.engine.release(piece);
        }
        *done += batch.min(again.trailing_zeros() as usize);
        if again != 0 {
            read.retries += 1;
        }
        read.apart |= apart;
        if lost || read.retries > RETRIES_MAX {
            return Some(Err(EIO));
        }
        (*done >= blocks).then_some(Ok(()))
    })
}

/// How decoding a batch went: one bit per piece.
struct Decoded {
    /// Neither read nor verified.
    bad: u32,
    /// To be looked up and tried again.
    again: u32,
    /// Each by itself.
    apart: bool,
}

/// Decodes a batch into the request.
fn decode(volume: &Volume, rq: &Request<Driver>) -> Result<Decoded> {
    let state = rq.data().state.lock();
    let result = decode_batch(volume, rq, &state);
    // Also what was not looked at: the places must be empty for the next batch.
    for group in 0..state.read.group_count {
        drop(rq.data().arrivals.take(group));
    }
    result
}

fn decode_batch(volume: &Volume, rq: &Request<Driver>, state: &State) -> Result<Decoded> {
    let read = &state.read;
    let mut bad = 0;
    let mut again = 0;
    let mut apart = false;
    let arrivals = &rq.data().arrivals;
    let mut current: Option<(usize, Result<IoBuf, Miss>)> = None;
    let mut workspace = volume.workspaces.get().ok_or(EIO)?;
    let mut decoder = Decoder::new(&mut workspace, &volume.arena);
    let mut cursor = rq.cursor(state.done * BLOCK_BYTES)?;
    let pieces = read.pieces.iter().zip(&read.group_of).take(read.batch);
    for (at, (piece, group)) in pieces.enumerate() {
        let group = usize::from(*group);
        let data = match piece.source {
            Source::Zeros => {
                cursor.write_zeroes(BLOCK_BYTES)?;
                continue;
            }
            Source::Lost => Err(Miss::Failed),
            Source::Memory { buffer, at } => {
                decoder.in_memory(piece, buffer, at).ok_or(Miss::Failed)
            }
            Source::Device { .. } => {
                if current.as_ref().is_none_or(|(of, _)| *of != group) {
                    let Arrival(arrival) =
                        arrivals.take(group).unwrap_or(Arrival(Err(Miss::NotTried)));
                    current = Some((group, arrival));
                }
                let start = read.groups.get(group).map_or(0, |group| group.address);
                match &current {
                    Some((_, Ok(buf))) => decoder
                        .on_device(piece, buf.as_slice(), start)
                        .ok_or(Miss::Failed),
                    Some((_, Err(Miss::Failed))) if read.apart => Err(Miss::Failed),
                    // One bad block must not take its neighbours with it.
                    Some((_, Err(Miss::Failed))) => {
                        apart = true;
                        Err(Miss::NotTried)
                    }
                    _ => Err(Miss::NotTried),
                }
            }
        };
        match data {
            Ok(bytes) => cursor.write(bytes)?,
            Err(miss) => {
                cursor.skip(BLOCK_BYTES)?;
                let bits = match miss {
                    Miss::Failed => &mut bad,
                    Miss::NotTried => &mut again,
                };
                *bits |= 1u32 << (at % BATCH);
            }
        }
    }
    Ok(Decoded { bad, again, apart })
}
