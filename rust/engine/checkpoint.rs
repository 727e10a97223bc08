// SPDX-License-Identifier: GPL-2.0

//! Step 5 of a write: checkpoints (crash rule 4).
//!
//! 1. *Cutting*: open segments are sealed, no slot is reserved until all reserved ones are
//!    committed. Then the overlay is frozen and the zones' counters are copied, at one operation
//!    number. Writers go on at once.
//! 2. *Settling*: the segments before the cut complete.
//! 3. *Merging*: the frozen overlay goes into the map's pages (`merge.rs`).
//! 4. *Table*: changed pages of the zone table are appended.
//! 5. *Draining*: the metadata segments complete.
//! 6. *Roots*: the root is written to both places, the first time with a flush before it.
//! 7. Commit: what died before the cut is free; the newest root's candidates may be opened.

use super::error::Result;
use super::format::entry::Entry;
use super::format::fragment::{Identity, Metadata};
use super::format::root::{EpochStart, OpenZone, Probe, Root, PROBES_MAX, REGION_BYTES};
use super::format::segment::Layout;
use super::format::zone_table::{PAGE_BYTES, RECORDS_PER_PAGE, RECORD_BYTES};
use super::format::{packed, put};
use super::io::{Action, Barrier, Buffers};
use super::limits::TOUCHES_MAX;
use super::log::SegmentState;
use super::merge::{Merge, Progress};
use super::pages::PageKey;
use super::planted::Bug;
use super::state::{Engine, Pending};
use super::stats::Notice;
use super::units::{Geometry, ZoneId, BLOCK_BYTES, ZONE_NONE};
use super::zones::{StreamKind, Zone, ZoneState, CANDIDATES_MAX};
use crate::mem::{try_push, try_vec, Vec};

/// Failed attempts in a row after which the volume is made read-only.
const ATTEMPTS_MAX: u32 = 8;

/// Where a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// None is running.
    Idle,
    /// Waiting for reserved slots.
    Cutting,
    /// Waiting for segments.
    Settling,
    /// Merging the overlay.
    Merging,
    /// Writing the zone table.
    Table,
    /// Waiting for metadata segments.
    Draining,
    /// Writing the root, to the first or second place.
    Roots,
}

/// A place for roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPlace {
    /// Its zone.
    pub zone: ZoneId,
    /// Where the next root goes, in bytes from the zone's start.
    pub cursor: u64,
}

/// The state of checkpoints.
pub struct Checkpoint {
    /// Phase.
    pub phase: Phase,
    /// Whether one should start when the running one ends.
    pub requested: bool,
    /// Whether the frozen overlay lies over the map.
    pub frozen: bool,
    /// Counts failed attempts: what was loaded during one is void after it.
    pub attempt: u64,
    pub(super) failures: u32,
    /// Whether the metadata zone must be closed before the next fragment.
    pub close_metadata: bool,
    /// Whether the volume is being detached.
    pub detaching: bool,
    /// Logical blocks with data as of the newest root, and what the running checkpoint changes.
    pub(super) mapped_blocks: u64,
    pub(super) mapped_delta: i64,
    /// Log blocks written since the last cut.
    pub logged_blocks: u64,
    pub(super) merge: Merge,
    pub(super) scratch: Vec<u8>,
    /// The newest root, and memory for the next.
    pub(super) root: Root,
    cut_op: u64,
    cut_sequence: u64,
    gc_sequence: u64,
    /// The zone table's pages, as written so far.
    pub(super) table: Vec<u64>,
    table_next: usize,
    touches: Vec<PageKey>,
    touch_count: usize,
    touches_frozen: usize,
    /// Zones that were opened behind the cut, and the user stream's zone at the cut.
    noted: Vec<Probe>,
    noted_count: usize,
    /// The zones for roots: the two in use, then the spare one.
    pub(super) places: [RootPlace; 3],
    pub(super) roots_written: u8,
    pub(super) place_failures: u8,
}

const NO_PROBE: Probe = Probe {
    zone: ZONE_NONE,
    incarnation: 0,
    cursor: 0,
    log: false,
};

impl Checkpoint {
    /// No checkpoint, and memory for all that follow.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub(super) fn new(geometry: &Geometry) -> Result<Checkpoint> {
        let pages = geometry.zones.div_ceil(RECORDS_PER_PAGE) as usize;
        Ok(Checkpoint {
            phase: Phase::Idle,
            requested: false,
            frozen: false,
            attempt: 0,
            failures: 0,
            close_metadata: false,
            detaching: false,
            mapped_blocks: 0,
            mapped_delta: 0,
            logged_blocks: 0,
            merge: Merge::START,
            scratch: try_vec(packed::BYTES_MAX, 0)?,
            root: Root::empty(geometry)?,
            cut_op: 0,
            cut_sequence: 1,
            gc_sequence: 1,
            table: try_vec(pages, 0)?,
            table_next: 0,
            touches: try_vec(TOUCHES_MAX, PageKey { level: 0, index: 0 })?,
            touch_count: 0,
            touches_frozen: 0,
            noted: try_vec(PROBES_MAX - CANDIDATES_MAX, NO_PROBE)?,
            noted_count: 0,
            places: [RootPlace {
                zone: ZONE_NONE,
                cursor: 0,
            }; 3],
            roots_written: 0,
            place_failures: 0,
        })
    }

    /// Pages that the next checkpoint is asked to rewrite.
    pub(super) fn touch_count(&self) -> usize {
        self.touch_count
    }

    /// Asks the next checkpoint to rewrite a page; answers whether there was room.
    pub(super) fn touch(&mut self, key: PageKey) -> bool {
        match self.touches.get_mut(self.touch_count) {
            Some(slot) => {
                *slot = key;
                self.touch_count += 1;
                true
            }
            None => false,
        }
    }

    pub(super) fn frozen_touch(&self, at: usize) -> Option<PageKey> {
        if at >= self.touches_frozen {
            return None;
        }
        self.touches.get(at).copied()
    }

    /// Records a zone that was opened behind the cut; answers whether there was room.
    pub(super) fn note_zone(
        &mut self,
        zone: ZoneId,
        incarnation: u32,
        cursor: u32,
        log: bool,
    ) -> bool {
        match self.noted.get_mut(self.noted_count) {
            Some(slot) => {
                *slot = Probe {
                    zone,
                    incarnation,
                    cursor,
                    log,
                };
                self.noted_count += 1;
                true
            }
            None => false,
        }
    }

    pub(super) fn zone_room(&self) -> usize {
        self.noted.len() - self.noted_count
    }
}

impl Engine {
    /// Asks for a checkpoint when enough has changed since the last.
    pub(super) fn consider_checkpoint(&mut self) {
        let points = &self.active.points;
        let due = self.checkpoint.logged_blocks >= self.config.checkpoint_blocks
            || points.room() < points.room_max() / 2
            || self.active.range_room() < self.active.range_capacity() / 2
            || self.checkpoint.zone_room() < CANDIDATES_MAX / 4;
        let fresh = self.op != self.checkpoint.root.cut_op || !self.active.is_empty();
        if due && fresh {
            self.checkpoint.requested = true;
        }
    }

    /// Advances the checkpoint for a slice; answers whether another slice would do more.
    pub(super) fn step_checkpoint<B: Buffers>(&mut self, buffers: &mut B) -> bool {
        if self.poisoned.is_some() {
            return false;
        }
        if self.checkpoint.phase == Phase::Idle {
            if !self.checkpoint.requested {
                return false;
            }
            self.checkpoint.requested = false;
            self.checkpoint.phase = Phase::Cutting;
            self.seal_open(buffers, StreamKind::User, false);
        }
        if self.checkpoint.phase == Phase::Cutting && !self.try_cut(buffers) {
            return false;
        }
        if self.checkpoint.phase == Phase::Settling && !self.settled() {
            return false;
        }
        if self.checkpoint.phase == Phase::Merging {
            match self.step_merge(buffers) {
                Progress::More => return true,
                Progress::Blocked => return false,
                Progress::Done => self.start_table(buffers),
            }
        }
        if self.checkpoint.phase == Phase::Table && !self.step_table(buffers) {
            return false;
        }
        if self.checkpoint.phase == Phase::Draining {
            if self.stream_busy(StreamKind::Metadata) {
                return false;
            }
            self.checkpoint.phase = Phase::Roots;
            self.checkpoint.roots_written = 0;
            self.checkpoint.place_failures = 0;
            self.build_root(buffers);
            self.write_root();
        }
        false
    }

    /// Cuts as soon as nothing is reserved.
    fn try_cut<B: Buffers>(&mut self, buffers: &mut B) -> bool {
        let reserved = self
            .log
            .active(StreamKind::User)
            .any(|segment| segment.reserved > 0);
        if reserved {
            return false;
        }
        // Survivors that were chosen before the cut must be in the map before its overlay is
        // merged: afterwards nothing would show that they have been overwritten.
        self.seal_open(buffers, StreamKind::Gc, false);
        core::mem::swap(&mut self.active, &mut self.frozen);
        self.zones.cut();
        let stream = self.log.stream(StreamKind::User);
        let open = stream.open.and_then(|id| self.log.get(id));
        let (zone, cursor) = (stream.zone, stream.cursor);
        let sequence = open.map_or(stream.next_sequence, |segment| segment.sequence);
        let gc_sequence = self.log.stream(StreamKind::Gc).next_sequence;
        let incarnation = self.zones.get(zone).map_or(0, |zone| zone.incarnation);
        let checkpoint = &mut self.checkpoint;
        checkpoint.frozen = true;
        checkpoint.cut_op = self.op;
        checkpoint.cut_sequence = sequence;
        checkpoint.gc_sequence = gc_sequence;
        checkpoint.logged_blocks = 0;
        checkpoint.touches_frozen = checkpoint.touch_count;
        checkpoint.merge = Merge::START;
        checkpoint.noted_count = 0;
        self.log.rescue = (ZONE_NONE, 0);
        if zone != ZONE_NONE {
            checkpoint.note_zone(zone, incarnation, cursor, true);
        }
        checkpoint.phase = Phase::Settling;
        self.wake_writers();
        true
    }

    fn settled(&mut self) -> bool {
        let cut = self.checkpoint.cut_sequence;
        let gc_cut = self.checkpoint.gc_sequence;
        let user = self
            .log
            .active(StreamKind::User)
            .any(|segment| segment.sequence < cut);
        let gc = self
            .log
            .active(StreamKind::Gc)
            .any(|segment| segment.sequence < gc_cut && segment.state != SegmentState::Open);
        if (user || gc) && !crate::planted::active(Bug::RootBeforeSegments) {
            return false;
        }
        self.checkpoint.phase = Phase::Merging;
        true
    }

    /// Makes sure that the whole zone table goes to one zone: its pages describe that zone, too.
    fn start_table<B: Buffers>(&mut self, buffers: &mut B) {
        let pages = self.checkpoint.table.len() as u32;
        let blocks = pages * 2 + 8;
        let stream = self.log.stream(StreamKind::Metadata);
        let room = self
            .geometry
            .zone_capacity_blocks
            .saturating_sub(stream.cursor);
        let open = stream
            .open
            .and_then(|id| self.log.get(id))
            .map_or(0, |segment| {
                Layout::plan(segment.fill, segment.entries).blocks
            });
        if stream.zone != ZONE_NONE && room < blocks + open {
            self.seal_open(buffers, StreamKind::Metadata, false);
            self.drop_empty_segment(StreamKind::Metadata);
            self.close_zone(StreamKind::Metadata);
        }
        self.checkpoint.table_next = 0;
        self.checkpoint.phase = Phase::Table;
    }

    /// Appends the pages of the zone table that have changed; answers whether all are.
    fn step_table<B: Buffers>(&mut self, buffers: &mut B) -> bool {
        while self.checkpoint.table_next < self.checkpoint.table.len() {
            let at = self.checkpoint.table_next;
            // Room first: opening a zone changes its record.
            if !self.metadata_room(buffers, PAGE_BYTES) {
                return false;
            }
            if self.table_page_changed(at) && !self.append_table_page(buffers, at) {
                return false;
            }
            self.checkpoint.table_next = at + 1;
        }
        self.seal_open(buffers, StreamKind::Metadata, false);
        self.checkpoint.phase = Phase::Draining;
        true
    }

    fn table_page_changed(&self, at: usize) -> bool {
        let first = at as u32 * RECORDS_PER_PAGE;
        let dirty = (first..first + RECORDS_PER_PAGE)
            .any(|id| self.zones.get(id).is_some_and(|zone| zone.dirty));
        let entry = self.table_entry(at);
        let leaving = self
            .place_of(entry)
            .and_then(|place| self.zones.get(place.zone))
            .is_none_or(|zone| zone.evacuated);
        dirty || !entry.is_mapped() || leaving
    }

    fn table_entry(&self, at: usize) -> Entry {
        let word = self.checkpoint.table.get(at).copied().unwrap_or(0);
        Entry::from_word(word).unwrap_or(Entry::UNMAPPED)
    }

    fn append_table_page<B: Buffers>(&mut self, buffers: &mut B, at: usize) -> bool {
        let mut scratch = core::mem::take(&mut self.checkpoint.scratch);
        let first = at as u32 * RECORDS_PER_PAGE;
        if let Some(page) = scratch.get_mut(..PAGE_BYTES) {
            page.fill(0);
            for slot in 0..RECORDS_PER_PAGE {
                let Some(zone) = self.zones.get(first + slot) else {
                    break;
                };
                let mut record = zone.record();
                record.live = record
                    .live
                    .saturating_sub(self.table_units(first + slot, zone));
                put(page, slot as usize * RECORD_BYTES, &record.encode());
                if let Some(zone) = self.zones.get_mut(first + slot) {
                    zone.dirty = false;
                }
            }
        }
        let identity = Identity::Metadata {
            kind: Metadata::ZoneTable,
            level: 0,
            index: at as u64,
        };
        let entry = match scratch.get(..PAGE_BYTES) {
            Some(page) => self.append_metadata(buffers, identity, page),
            None => None,
        };
        self.checkpoint.scratch = scratch;
        let Some(entry) = entry else {
            self.poison("a page of the zone table could not be appended though there was room");
            return false;
        };
        self.drop_metadata(self.table_entry(at));
        if let Some(word) = self.checkpoint.table.get_mut(at) {
            *word = entry.word();
        }
        true
    }

    /// Units of zone-table pages in a zone: its record leaves them out, because they are only
    /// known when all pages are written.
    fn table_units(&self, id: ZoneId, zone: &Zone) -> u32 {
        if zone.kind != Some(StreamKind::Metadata) {
            return 0;
        }
        (0..self.checkpoint.table.len())
            .map(|at| self.table_entry(at))
            .filter(|entry| self.place_of(*entry).is_some_and(|place| place.zone == id))
            .map(|entry| entry.units())
            .sum()
    }

    /// Describes the checkpoint in a root and encodes it into the root's buffer.
    fn build_root<B: Buffers>(&mut self, buffers: &mut B) {
        let streams = &self.log.streams;
        let open = |at: usize| match streams.get(at) {
            Some(stream) => OpenZone {
                zone: stream.zone,
                mirror: stream.mirror,
                cursor: stream.cursor,
            },
            None => OpenZone {
                zone: ZONE_NONE,
                mirror: ZONE_NONE,
                cursor: 0,
            },
        };
        let open = [open(0), open(1), open(2)];
        let sequence_of = |kind| self.log.stream(kind).next_sequence;
        let other = [
            sequence_of(StreamKind::Gc),
            sequence_of(StreamKind::Metadata),
        ];
        let quiet = self.checkpoint.noted_count <= 1
            && self.active.is_empty()
            && self
                .log
                .stream(StreamKind::User)
                .open
                .is_none_or(|id| self.log.get(id).is_some_and(|segment| segment.entries == 0))
            && self.log.active(StreamKind::User).count() <= 1;
        let clean = self.checkpoint.detaching && quiet && self.op == self.checkpoint.cut_op;
        let cut = self.checkpoint.cut_sequence;
        let root = &mut self.checkpoint.root;
        root.features = self.identity.features;
        root.uuid = self.identity.uuid;
        root.label = self.identity.label;
        root.generation = self.generation + 1;
        root.epoch = self.epoch;
        root.clean = clean;
        root.geometry = self.geometry;
        root.options = self.options;
        root.cut_op = self.checkpoint.cut_op;
        root.cut_sequence = cut;
        root.next_sequence = cut;
        root.last_op = self.checkpoint.cut_op;
        root.other_sequences = other;
        root.mapped_blocks = self
            .checkpoint
            .mapped_blocks
            .saturating_add_signed(self.checkpoint.mapped_delta);
        root.top = self.top;
        root.open = open;
        root.epochs.clear();
        let start = EpochStart {
            sequence: cut,
            epoch: self.epoch,
        };
        let mut fits = try_push(&mut root.epochs, start).is_ok();
        fits &= self.list_table();
        fits &= self.list_probes(false);
        let buffer = self.root_buffer();
        let encoded = self.checkpoint.root.encode(buffers.bytes_mut(buffer));
        if !fits || encoded.is_none() {
            self.poison("a root does not fit the memory set aside for it");
        }
    }

    /// Lists the zone table's pages and the mirrors of their zones in the root.
    pub(super) fn list_table(&mut self) -> bool {
        let mut fits = true;
        let root = &mut self.checkpoint.root;
        root.table.clear();
        root.mirrors.clear();
        root.places = self.checkpoint.places.map(|place| place.zone);
        for at in 0..self.checkpoint.table.len() {
            let entry = self.table_entry(at);
            let root = &mut self.checkpoint.root;
            fits &= try_push(&mut root.table, entry.word()).is_ok();
            let Some(zone) = self.geometry.place(entry.location(), entry.units()) else {
                continue;
            };
            let mirror = self
                .zones
                .get(zone.zone)
                .map_or(ZONE_NONE, |zone| zone.mirror);
            let listed = root
                .mirrors
                .iter()
                .any(|(primary, _)| *primary == zone.zone);
            if mirror != ZONE_NONE && !listed {
                fits &= try_push(&mut root.mirrors, (zone.zone, mirror)).is_ok();
            }
        }
        let kept = self.zones_incarnations();
        fits && kept
    }

    /// Zone-table pages are sealed with their zone's incarnation, which only the table knows: the
    /// root repeats it for those zones.
    fn zones_incarnations(&mut self) -> bool {
        let root = &mut self.checkpoint.root;
        root.table_incarnations.clear();
        for word in root.table.iter() {
            let entry = Entry::from_word(*word).unwrap_or(Entry::UNMAPPED);
            let place = self.geometry.place(entry.location(), entry.units());
            let incarnation = place
                .and_then(|place| self.zones.get(place.zone))
                .map_or(0, |zone| zone.incarnation);
            if try_push(&mut root.table_incarnations, incarnation).is_err() {
                return false;
            }
        }
        true
    }

    /// Lists the zones of the log and the candidates for it in the root.
    ///
    /// With `listed_only`, candidates are chosen among those of the root before: only it has their
    /// incarnations.
    pub(super) fn list_probes(&mut self, listed_only: bool) -> bool {
        let root = &mut self.checkpoint.root;
        root.probes.clear();
        let mut fits = true;
        let listed = self.checkpoint.noted.get(..self.checkpoint.noted_count);
        for probe in listed.unwrap_or(&[]) {
            fits &= try_push(&mut root.probes, *probe).is_ok();
        }
        let probes = &mut root.probes;
        self.zones.choose_candidates(listed_only, |zone, state| {
            let probe = Probe {
                zone,
                incarnation: state.incarnation.wrapping_add(1),
                cursor: 0,
                log: false,
            };
            fits &= try_push(probes, probe).is_ok();
        });
        fits
    }

    /// Appends the encoded root to the place whose turn it is.
    pub(super) fn write_root(&mut self) {
        let bytes = self.checkpoint.root.encoded_bytes();
        let turn = usize::from(self.checkpoint.roots_written);
        let region =
            REGION_BYTES.min(u64::from(self.geometry.zone_capacity_blocks) * BLOCK_BYTES as u64);
        let [first, second, spare] = &mut self.checkpoint.places;
        let place = if turn == 0 { first } else { second };
        if place.cursor + bytes as u64 > region {
            // The spare place takes over from its start. What it held is older than what the
            // other place in use holds, or the first copy of this very root is durable already.
            core::mem::swap(place, spare);
            place.cursor = 0;
        }
        let address = self.geometry.byte_address(place.zone, 0) + place.cursor;
        place.cursor += bytes as u64;
        self.stats.metadata_log_bytes += bytes as u64;
        let buffer = self.root_buffer();
        let Some(token) = self.token(Pending::Root) else {
            self.poison("more I/O is outstanding than the token table holds");
            return;
        };
        self.act(Action::Write {
            token,
            buffer,
            bytes: bytes as u32,
            address,
            barrier: if turn == 0 {
                Barrier::FlushFua
            } else {
                Barrier::Fua
            },
        });
    }

    /// A root has been written, or not.
    pub(super) fn root_done<B: Buffers>(&mut self, _buffers: &mut B, result: Result) {
        if let Err(error) = result {
            self.io_error(error);
            self.checkpoint.place_failures += 1;
            if self.checkpoint.place_failures > 1 {
                self.poison("the root could not be written");
                return;
            }
            let [first, second, spare] = &mut self.checkpoint.places;
            let place = if self.checkpoint.roots_written == 0 {
                first
            } else {
                second
            };
            core::mem::swap(place, spare);
            place.cursor = 0;
            self.write_root();
            return;
        }
        self.checkpoint.roots_written += 1;
        if self.checkpoint.roots_written < 2 && !crate::planted::active(Bug::OnePlace) {
            self.write_root();
        } else {
            self.commit_checkpoint();
        }
    }

    fn commit_checkpoint(&mut self) {
        self.generation = self.checkpoint.root.generation;
        self.stats.checkpoints += 1;
        self.frozen.clear();
        self.root_top = self.top;
        let checkpoint = &mut self.checkpoint;
        checkpoint.frozen = false;
        checkpoint.mapped_blocks = checkpoint.root.mapped_blocks;
        checkpoint.mapped_delta = 0;
        checkpoint.failures = 0;
        checkpoint
            .touches
            .copy_within(checkpoint.touches_frozen..checkpoint.touch_count, 0);
        checkpoint.touch_count -= checkpoint.touches_frozen;
        checkpoint.touches_frozen = 0;
        checkpoint.phase = Phase::Idle;
        self.zones.settle();
        let cuts = self.zones.cuts;
        for id in 0..self.geometry.zones {
            let Some(zone) = self.zones.get(id) else {
                break;
            };
            if zone.dies(cuts) {
                self.zones.retire(id);
            }
        }
        self.check_evacuated(cuts);
        self.zones.publish_candidates();
        self.discards_wanted = true;
        self.pump_discards();
        if self.checkpoint.detaching && !self.checkpoint.root.clean {
            self.checkpoint.requested = true;
        }
        self.wake_writers();
    }

    /// A zone that was emptied before the cut and is not dead holds something unreadable.
    fn check_evacuated(&mut self, cuts: u64) {
        for id in 0..self.geometry.zones {
            let Some(zone) = self.zones.get_mut(id) else {
                break;
            };
            let stays = zone.state == ZoneState::Full
                && zone.evacuated
                && !zone.stuck
                && zone.evacuated_cut < cuts
                && zone.live > 0;
            if stays {
                zone.stuck = true;
                self.notify(Notice::ZoneStuck { zone: id });
            }
        }
    }

    /// Gives up the attempt: a metadata segment could not be written. The next one starts from
    /// the newest root's pages with the same frozen overlay.
    pub(super) fn abort_checkpoint(&mut self) {
        self.checkpoint.attempt += 1;
        self.checkpoint.failures += 1;
        self.notify(Notice::CheckpointFailed);
        if self.checkpoint.failures > ATTEMPTS_MAX {
            self.poison("no checkpoint could be written");
            return;
        }
        self.checkpoint.close_metadata = true;
        if !self.checkpoint.frozen {
            return;
        }
        self.pages.clear();
        self.top = self.root_top;
        for at in 0..self.checkpoint.table.len() {
            let word = self.checkpoint.root.table.get(at).copied().unwrap_or(0);
            if let Some(slot) = self.checkpoint.table.get_mut(at) {
                if *slot != word {
                    *slot = word;
                    // The records of that page were written to a page that is void.
                    let first = at as u32 * RECORDS_PER_PAGE;
                    for id in first..first + RECORDS_PER_PAGE {
                        if let Some(zone) = self.zones.get_mut(id) {
                            zone.dirty = true;
                        }
                    }
                }
            }
        }
        self.zones.abort();
        self.checkpoint.mapped_delta = 0;
        self.checkpoint.merge = Merge::START;
        self.checkpoint.phase = Phase::Settling;
    }

    /// Starts to detach: the next checkpoints bring everything into the map, until one is clean.
    /// The driver has stopped all requests.
    pub fn begin_detach(&mut self) {
        self.checkpoint.detaching = true;
        self.checkpoint.requested = true;
    }

    /// Asks for a checkpoint.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.requested = true;
    }

    /// Whether the volume may be let go: its newest root is clean, or it is read-only.
    pub fn is_detached(&self) -> bool {
        let idle = self.checkpoint.phase == Phase::Idle && self.discards == 0;
        self.poisoned.is_some() || (idle && self.checkpoint.detaching && self.checkpoint.root.clean)
    }

    /// Lets go of a stream's open segment that nothing was put into.
    pub(super) fn drop_empty_segment(&mut self, kind: StreamKind) {
        let stream = self.log.stream_mut(kind);
        let Some(id) = stream.open else {
            return;
        };
        stream.open = None;
        let zone = stream.zone;
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.writes = zone.writes.saturating_sub(1);
        }
        self.log.release(id);
    }
}
