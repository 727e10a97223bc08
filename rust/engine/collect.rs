// SPDX-License-Identifier: GPL-2.0

//! Step 6 of a write: garbage collection empties zones so that they can be written again.
//!
//! A victim is read from its start. Each data fragment that the map still points to is verified
//! under its old seed and copied, compressed as it is, to the collector's stream under a new one;
//! once that segment is written the map follows, unless it points elsewhere by then. An unreadable
//! fragment becomes lost, so that its zone can retire. Map pages are not copied: the next
//! checkpoint is asked to rewrite them. The victim is free when a checkpoint has recorded that
//! nothing lives there.

use super::error::Result;
use super::format::entry::Entry;
use super::format::fragment::{self, Identity, Metadata};
use super::format::segment::{Item, SegmentHeader, SummaryEntry, BLOCKS_MAX};
use super::io::{Action, Buffers};
use super::limits::{GC_BATCH_ZONES, RUN_STEPS};
use super::load::Current;
use super::log::SegmentId;
use super::merge::Progress;
use super::pages::PageKey;
use super::policy::{choose_victim, place, Origin};
use super::state::{Engine, Pending};
use super::stats::Notice;
use super::units::{Place, ZoneId, BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_NONE};

/// Blocks that are read at once: two of the largest segments.
const CHUNK_BLOCKS: u32 = 2 * BLOCKS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No victim.
    Idle,
    /// The chunk has to be read.
    Fetch,
    /// The chunk is being read.
    Reading,
    /// The chunk is in the buffer.
    Scan,
}

/// The collector.
pub struct Collector {
    state: State,
    /// Whether somebody waits for space.
    pub(super) wanted: bool,
    /// Whether copies of survivors were lost to a failed write.
    pub(super) failed_moves: bool,
    victim: ZoneId,
    /// First block of the chunk, and its length.
    chunk: u32,
    chunk_blocks: u32,
    /// When a chunk is unreadable, it is read block by block: the one whose turn it is.
    single: Option<u32>,
    /// Block of the chunk at which the next segment may start.
    at: u32,
    /// Next entry of that segment.
    entry: usize,
}

impl Collector {
    pub(super) fn new() -> Collector {
        Collector {
            state: State::Idle,
            wanted: false,
            failed_moves: false,
            victim: ZONE_NONE,
            chunk: 0,
            chunk_blocks: 0,
            single: None,
            at: 0,
            entry: 0,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state != State::Idle
    }
}

impl Engine {
    /// Asks the collector to empty one zone even if space is not short.
    pub fn request_collection(&mut self) {
        self.collector.wanted = true;
    }

    /// Free zones below which the collector works without being asked.
    fn collect_below(&self) -> usize {
        self.reserve_zones() + (self.geometry.zones as usize / 64).max(2)
    }

    /// Advances garbage collection for a slice; answers whether another slice would do more.
    pub(super) fn step_collector<B: Buffers>(&mut self, buffers: &mut B) -> bool {
        if self.poisoned.is_some() {
            return false;
        }
        if self.collector.state == State::Idle && !self.pick_victim() {
            return false;
        }
        if self.collector.state == State::Fetch {
            self.fetch_chunk();
        }
        if self.collector.state != State::Scan {
            return false;
        }
        for _ in 0..RUN_STEPS {
            match self.scan(buffers) {
                Progress::More => {}
                Progress::Blocked => {
                    self.stats.gc_stalls += 1;
                    return false;
                }
                Progress::Done => {
                    self.finish_victim();
                    return true;
                }
            }
            if self.collector.state != State::Scan {
                return true;
            }
        }
        true
    }

    fn pick_victim(&mut self) -> bool {
        let low = self.zones.free() < self.collect_below();
        if self.checkpoint.detaching || !(low || self.collector.wanted) {
            return false;
        }
        let waiting = self
            .zones
            .iter()
            .filter(|(_, zone)| zone.is_waiting())
            .count();
        if waiting >= GC_BATCH_ZONES {
            // Enough is emptied for now: a root has to make it free first.
            self.checkpoint.requested = true;
            return false;
        }
        let Some(victim) = choose_victim(&self.zones, &self.geometry) else {
            if waiting > 0 {
                self.checkpoint.requested = true;
            }
            return false;
        };
        if self.log.rescue.0 == victim {
            self.log.rescue = (ZONE_NONE, 0);
        }
        self.collector.wanted = false;
        self.collector.victim = victim;
        self.collector.failed_moves = false;
        self.collector.chunk = 0;
        self.collector.single = None;
        self.collector.state = State::Fetch;
        self.zones.pin(victim);
        true
    }

    fn fetch_chunk(&mut self) {
        let collector = &mut self.collector;
        let left = self
            .geometry
            .zone_capacity_blocks
            .saturating_sub(collector.chunk);
        collector.chunk_blocks = left.min(CHUNK_BLOCKS);
        collector.at = 0;
        collector.entry = 0;
        if collector.chunk_blocks == 0 {
            collector.state = State::Scan;
            return;
        }
        let (first, blocks) = match collector.single {
            Some(at) => (at, 1),
            None => (0, collector.chunk_blocks),
        };
        collector.state = State::Reading;
        let address = self
            .geometry
            .byte_address(collector.victim, collector.chunk + first);
        let buffer = self.collect_buffer();
        let Some(token) = self.token(Pending::Collect) else {
            self.collector.state = State::Fetch;
            return;
        };
        self.act(Action::Read {
            token,
            buffer,
            at: first * BLOCK_BYTES as u32,
            bytes: blocks * BLOCK_BYTES as u32,
            address,
        });
    }

    /// The chunk, or one block of it, has been read or could not be.
    pub(super) fn chunk_read<B: Buffers>(&mut self, buffers: &mut B, result: Result) {
        let buffer = self.collect_buffer();
        if result.is_err() {
            self.stats.io_errors += 1;
        }
        match self.collector.single {
            None if result.is_err() => self.collector.single = Some(0),
            None => {
                self.collector.state = State::Scan;
                return;
            }
            Some(at) => {
                if result.is_err() {
                    // An unreadable block must not look like what was in the buffer before.
                    let start = at as usize * BLOCK_BYTES;
                    if let Some(block) = buffers
                        .bytes_mut(buffer)
                        .get_mut(start..start + BLOCK_BYTES)
                    {
                        block.fill(0);
                    }
                }
                if at + 1 < self.collector.chunk_blocks {
                    self.collector.single = Some(at + 1);
                } else {
                    self.collector.single = None;
                    self.collector.state = State::Scan;
                    return;
                }
            }
        }
        self.collector.state = State::Fetch;
    }

    /// Handles the next entry, or finds the next segment.
    fn scan<B: Buffers>(&mut self, buffers: &mut B) -> Progress {
        let blocks = self.collector.chunk_blocks;
        let at = self.collector.at;
        if at >= blocks {
            let next = self.collector.chunk + blocks.max(1);
            if next >= self.geometry.zone_capacity_blocks {
                return Progress::Done;
            }
            self.next_chunk(next);
            return Progress::More;
        }
        let Some(header) = self.header_at(buffers, at) else {
            self.collector.at += 1;
            return Progress::More;
        };
        if at + header.layout.blocks > blocks {
            // The rest of the segment is in the next chunk, which starts with it.
            if at == 0 {
                self.collector.at += 1;
            } else {
                self.next_chunk(self.collector.chunk + at);
            }
            return Progress::More;
        }
        let (bytes, seed) = self.segment_at(buffers, at, header.layout.blocks);
        let found = header.summary(bytes, seed).map(|summary| {
            let entry = summary.iter().nth(self.collector.entry);
            (entry, summary.len())
        });
        match found {
            Some((Some((entry, offset)), _)) => {
                let from = Place {
                    zone: self.collector.victim,
                    offset: (self.collector.chunk + at) * UNITS_PER_BLOCK + offset,
                };
                let progress = self.rescue(buffers, &entry, from);
                if progress == Progress::More {
                    self.collector.entry += 1;
                }
                progress
            }
            _ => {
                self.collector.at += header.layout.blocks;
                self.collector.entry = 0;
                Progress::More
            }
        }
    }

    fn next_chunk(&mut self, chunk: u32) {
        self.collector.chunk = chunk;
        self.collector.single = None;
        self.collector.state = State::Fetch;
    }

    /// The bytes of a segment in the chunk, and its seed.
    fn segment_at<'a, B: Buffers>(&self, buffers: &'a B, at: u32, blocks: u32) -> (&'a [u8], u64) {
        let start = at as usize * BLOCK_BYTES;
        let end = start + blocks as usize * BLOCK_BYTES;
        let bytes = buffers.bytes(self.collect_buffer()).get(start..end);
        let seed = self.seed(Place {
            zone: self.collector.victim,
            offset: (self.collector.chunk + at) * UNITS_PER_BLOCK,
        });
        (bytes.unwrap_or(&[]), seed)
    }

    /// The header of the segment that starts at a block of the chunk, or its footer's copy.
    fn header_at<B: Buffers>(&self, buffers: &B, at: u32) -> Option<SegmentHeader> {
        let (first, seed) = self.segment_at(buffers, at, 1);
        if let Some(header) = SegmentHeader::decode_header(first, seed) {
            return Some(header);
        }
        let most = (self.collector.chunk_blocks - at).min(BLOCKS_MAX);
        (2..=most).find_map(|blocks| {
            let (block, _) = self.segment_at(buffers, at + blocks - 1, 1);
            if SegmentHeader::footer_blocks(block) != Some(blocks) {
                return None;
            }
            SegmentHeader::decode_footer(block, seed)
        })
    }

    /// Brings what lives of one entry to safety.
    fn rescue<B: Buffers>(
        &mut self,
        buffers: &mut B,
        entry: &SummaryEntry,
        from: Place,
    ) -> Progress {
        match entry.item {
            Item::Fragment(Identity::Data { lbn, log2, .. }) => {
                self.rescue_data(buffers, entry, lbn, log2, from)
            }
            Item::Fragment(Identity::Metadata { kind, level, index }) => {
                self.rescue_page(buffers, kind, PageKey { level, index }, entry.units, from)
            }
            Item::Void | Item::Zeros { .. } => Progress::More,
        }
    }

    /// Asks the next checkpoint to rewrite a page, if the map still points here.
    fn rescue_page<B: Buffers>(
        &mut self,
        buffers: &mut B,
        kind: Metadata,
        key: PageKey,
        units: u32,
        from: Place,
    ) -> Progress {
        if kind == Metadata::ZoneTable || key.level > self.height {
            // The zone table is rewritten whenever it lies in a zone that is being emptied.
            return Progress::More;
        }
        if self.checkpoint.frozen {
            // The map's pages are on the move themselves.
            return Progress::Blocked;
        }
        let here = Entry::mapped(self.geometry.location(from), units, 0);
        let parts = if key.level == self.height {
            self.top
        } else {
            let parent = PageKey {
                level: key.level + 1,
                index: key.index >> super::units::FANOUT_SHIFT,
            };
            match self.page(buffers, parent) {
                super::load::PageState::Ready(slot) => self.child(slot, key.index),
                super::load::PageState::Absent => return Progress::More,
                super::load::PageState::Loading(_) => return Progress::Blocked,
            }
        };
        if !parts.iter().any(|part| Some(*part) == here) || self.checkpoint.touch(key) {
            return Progress::More;
        }
        self.checkpoint.requested = true;
        Progress::Blocked
    }

    fn rescue_data<B: Buffers>(
        &mut self,
        buffers: &mut B,
        entry: &SummaryEntry,
        lbn: u64,
        log2: u8,
        from: Place,
    ) -> Progress {
        let Some(old) = Entry::mapped(self.geometry.location(from), entry.units, log2) else {
            return Progress::More;
        };
        let mut alive = 0u32;
        for (at, block) in (lbn..lbn + (1 << log2)).enumerate() {
            if block >= self.geometry.logical_blocks {
                break;
            }
            match self.current(buffers, block) {
                Current::Known(current) if current == old => alive |= 1 << at,
                Current::Known(_) => {}
                Current::Loading(_) => return Progress::Blocked,
            }
        }
        if alive == 0 {
            return Progress::More;
        }
        let points = alive.count_ones() as usize;
        if self.active.points.room() < self.reserved_points + points
            || self.checkpoint_zones_now(2) > self.zones.candidates()
        {
            self.checkpoint.requested = true;
            return Progress::Blocked;
        }
        let start = (from.offset - self.collector.chunk * UNITS_PER_BLOCK) as usize * UNIT_BYTES;
        let end = start + entry.units as usize * UNIT_BYTES;
        let source = buffers.bytes(self.collect_buffer()).get(start..end);
        let intact = source.is_some_and(|bytes| {
            fragment::open(bytes, self.seed(from))
                .is_ok_and(|(identity, _)| Item::Fragment(identity) == entry.item)
        });
        if !intact {
            self.lose(lbn, alive);
            return Progress::More;
        }
        let kind = place(Origin::Survivor);
        let Ok(id) = self.segment_for(buffers, kind, entry.units) else {
            return Progress::Blocked;
        };
        self.copy_survivor(buffers, id, entry, start..end, old, alive);
        self.reserved_points += points;
        Progress::More
    }

    fn copy_survivor<B: Buffers>(
        &mut self,
        buffers: &mut B,
        id: SegmentId,
        entry: &SummaryEntry,
        range: core::ops::Range<usize>,
        old: Entry,
        alive: u32,
    ) {
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        let (offset, at) = (segment.fill, segment.entries);
        segment.fill += entry.units;
        segment.entries += 1;
        let to = Place {
            zone: segment.zone,
            offset: segment.base() + offset,
        };
        let seed = self.seed(to);
        let start = offset as usize * UNIT_BYTES;
        buffers.copy(self.collect_buffer(), range.start, id, start, range.len());
        let copied = buffers.bytes_mut(id).get_mut(start..start + range.len());
        if !copied.is_some_and(|bytes| fragment::reseal(bytes, seed)) {
            self.poison("a survivor does not fit its segment");
        }
        let moved = SummaryEntry {
            op_delta: 0,
            ..*entry
        };
        self.log.set_entry(id, at, &moved);
        let source = self.log.source_index(id, at);
        if let Some(slot) = self.log.sources.get_mut(source) {
            *slot = (old, alive);
        }
    }

    /// Marks blocks as lost: their fragment is unreadable.
    fn lose(&mut self, lbn: u64, alive: u32) {
        self.stats.checksum_errors += 1;
        self.notify(Notice::BadFragment { lbn });
        let op = self.op;
        for at in 0..u64::from(u32::BITS) {
            if (alive >> at) & 1 != 0 {
                self.set_point(lbn + at, Entry::LOST, op);
            }
        }
    }

    /// A segment of survivors is written, or has failed: the map follows, or does not.
    pub(super) fn apply_moves(&mut self, id: SegmentId, written: bool) {
        let Some(segment) = self.log.get(id).copied() else {
            return;
        };
        let mut offset = super::format::segment::HEADER_UNITS;
        let mut gained = 0;
        for at in 0..segment.entries {
            let Some((item, units)) = self.log.entry(id, at) else {
                return;
            };
            let source = self.log.source_index(id, at);
            let (old, alive) = self.log.sources.get(source).copied().unwrap_or_default();
            let to = Place {
                zone: segment.zone,
                offset: segment.base() + offset,
            };
            offset += units;
            let Item::Fragment(Identity::Data { lbn, log2, .. }) = item else {
                continue;
            };
            self.reserved_points = self
                .reserved_points
                .saturating_sub(alive.count_ones() as usize);
            if written {
                self.apply_move(lbn, log2, units, to, old, alive);
                gained += (units >> log2) * alive.count_ones();
            }
        }
        if let Some(zone) = self.zones.get_mut(segment.zone).filter(|_| written) {
            zone.slack += (segment.blocks * UNITS_PER_BLOCK).saturating_sub(gained);
        }
    }

    fn apply_move(&mut self, lbn: u64, log2: u8, units: u32, to: Place, old: Entry, alive: u32) {
        let Some(new) = Entry::mapped(self.geometry.location(to), units, log2) else {
            return;
        };
        let op = self.op;
        for at in 0..1u64 << log2 {
            // What the overlays do not know is in the map's pages, where nothing has changed
            // since the survivor was chosen: a checkpoint would have waited for this segment.
            let stays = self.overlaid(lbn + at).is_none_or(|current| current == old);
            if (alive >> at) & 1 != 0 && stays {
                self.zones.add_live(to.zone, new.share(lbn + at));
                self.set_point(lbn + at, new, op);
            }
        }
    }

    fn finish_victim(&mut self) {
        let cuts = self.zones.cuts;
        let failed = self.collector.failed_moves;
        let victim = self.collector.victim;
        if let Some(zone) = self.zones.get_mut(victim) {
            zone.evacuated = !failed;
            zone.evacuated_cut = cuts;
        }
        self.stats.gc_zones += 1;
        self.collector.state = State::Idle;
        self.collector.victim = ZONE_NONE;
        self.unpin_zone(victim);
    }
}
