// SPDX-License-Identifier: GPL-2.0

//! Step 1 of a write: places in the log for compressed data, and entries for the map.
//!
//! The driver calls `reserve`, copies each fragment to its slot outside the engine lock
//! (`Slot::fill`), and calls `commit`. The order of commits is the order of operations: a slot is
//! invisible until then, so nobody ever waits for a copy to finish. A slot that is not committed
//! must be cancelled: its segment waits for it.

use super::checkpoint::Phase;
use super::format::entry::Entry;
use super::format::fragment::{self, Codec, Identity};
use super::format::segment::{Item, SummaryEntry, OP_DELTA_MAX};
use super::io::{BufferId, Buffers, RequestId};
use super::limits::ZERO_POINTS_MAX;
use super::log::SegmentId;
use super::overlay::ZeroRange;
use super::planted::Bug;
use super::state::Engine;
use super::units::{Place, UNITS_PER_BLOCK, UNIT_BYTES};
use super::zones::StreamKind;

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// An extent: `1 << log2` blocks from `lbn`, naturally aligned.
    Data {
        /// First block.
        lbn: u64,
        /// log2 of the number of blocks.
        log2: u8,
        /// How the payload is encoded.
        codec: Codec,
        /// Length of the payload, at most `fragment::PAYLOAD_BYTES_MAX`.
        bytes: usize,
    },
    /// `blocks` blocks become zeros: written as such, zeroed or discarded.
    Zeros {
        /// First block.
        lbn: u64,
        /// Number of blocks.
        blocks: u64,
    },
}

impl Piece {
    fn units(&self) -> u32 {
        match self {
            Piece::Data { bytes, .. } => fragment::stored_units(*bytes),
            Piece::Zeros { .. } => 0,
        }
    }

    /// Points and ranges that the piece adds to the overlay at most.
    fn overlay_need(&self) -> (usize, usize) {
        match self {
            Piece::Data { log2, .. } => (1 << log2, 0),
            Piece::Zeros { blocks, .. } if *blocks <= ZERO_POINTS_MAX => (*blocks as usize, 0),
            Piece::Zeros { .. } => (0, 1),
        }
    }
}

/// A reserved place for a piece.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    piece: Piece,
    segment: SegmentId,
    entry: u32,
    place: Place,
    offset: u32,
    units: u32,
    seed: u64,
}

impl Slot {
    /// A slot that stands for nothing, to fill arrays with.
    pub const EMPTY: Slot = Slot {
        piece: Piece::Zeros { lbn: 0, blocks: 0 },
        segment: 0,
        entry: 0,
        place: Place { zone: 0, offset: 0 },
        offset: 0,
        units: 0,
        seed: 0,
    };

    /// Where the fragment goes: buffer, and range of bytes in it; `None` for zeros.
    pub fn range(&self) -> Option<(BufferId, core::ops::Range<usize>)> {
        let start = self.offset as usize * UNIT_BYTES;
        let end = start + self.units as usize * UNIT_BYTES;
        (self.units > 0).then_some((self.segment, start..end))
    }

    /// Writes the fragment with header and checksum into `room`, the bytes of [`Slot::range`].
    ///
    /// Pure computation, to be done outside the engine lock. Answers whether `payload` has the
    /// length that was reserved.
    #[must_use]
    pub fn fill(&self, room: &mut [u8], payload: &[u8]) -> bool {
        match self.piece {
            Piece::Data {
                lbn,
                log2,
                codec,
                bytes,
            } if bytes == payload.len() => {
                let identity = Identity::Data { lbn, log2, codec };
                let sealed = fragment::seal(room, self.seed, identity, payload);
                if crate::planted::active(Bug::ChangedAfterChecksum) {
                    if let Some(byte) = room.last_mut() {
                        *byte ^= 1;
                    }
                }
                sealed
            }
            _ => false,
        }
    }
}

/// Why nothing could be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Wait for `Action::Wake` and try again.
    Wait,
    /// No space is left.
    NoSpace,
    /// The volume is read-only.
    ReadOnly,
    /// A piece is out of range.
    Range,
}

impl Engine {
    /// Reserves slots for `pieces`, at most `slots.len()` of them; answers how many, at least one.
    ///
    /// # Errors
    ///
    /// [`Stall`]; after [`Stall::Wait`], `request` will be woken.
    pub fn reserve<B: Buffers>(
        &mut self,
        buffers: &mut B,
        request: RequestId,
        pieces: &[Piece],
        slots: &mut [Slot],
    ) -> Result<usize, Stall> {
        let mut done = 0;
        for (piece, slot) in pieces.iter().zip(slots.iter_mut()) {
            match self.reserve_one(buffers, *piece) {
                Ok(reserved) => *slot = reserved,
                Err(_) if done > 0 => break,
                Err(Stall::Wait) => {
                    self.wait_to_write(request);
                    return Err(Stall::Wait);
                }
                Err(stall) => return Err(stall),
            }
            done += 1;
        }
        Ok(done)
    }

    fn reserve_one<B: Buffers>(&mut self, buffers: &mut B, piece: Piece) -> Result<Slot, Stall> {
        self.check_piece(&piece)?;
        if self.checkpoint.phase == Phase::Cutting {
            return Err(Stall::Wait);
        }
        let (points, ranges) = piece.overlay_need();
        if self.active.points.room() < self.reserved_points + points
            || self.active.range_room() < self.reserved_ranges + ranges
        {
            self.checkpoint.requested = true;
            return Err(Stall::Wait);
        }
        let units = piece.units();
        self.check_space(units)?;
        let pad = self.pad_for(units);
        let id = self.segment_for(buffers, StreamKind::User, units + pad)?;
        self.reserved_points += points;
        self.reserved_ranges += ranges;
        if pad > 0 {
            self.pad_segment(id, pad);
        }
        let Some(segment) = self.log.get_mut(id) else {
            return Err(Stall::ReadOnly);
        };
        let offset = segment.fill;
        let entry = segment.entries;
        segment.fill += units;
        segment.entries += 1;
        segment.reserved += 1;
        let place = Place {
            zone: segment.zone,
            offset: segment.base() + offset,
        };
        let void = SummaryEntry {
            units,
            ..SummaryEntry::VOID
        };
        self.log.set_entry(id, entry, &void);
        Ok(Slot {
            piece,
            segment: id,
            entry,
            place,
            offset,
            units,
            seed: self.seed(place),
        })
    }

    fn check_piece(&self, piece: &Piece) -> Result<(), Stall> {
        if self.poisoned.is_some() {
            return Err(Stall::ReadOnly);
        }
        let (lbn, blocks) = match *piece {
            Piece::Data {
                lbn, log2, bytes, ..
            } => {
                let blocks = 1u64 << log2.min(6);
                let fits = log2 <= super::format::entry::EXTENT_SHIFT_MAX
                    && lbn % blocks == 0
                    && (1..=fragment::PAYLOAD_BYTES_MAX).contains(&bytes);
                if !fits {
                    return Err(Stall::Range);
                }
                (lbn, blocks)
            }
            Piece::Zeros { lbn, blocks } => (lbn, blocks),
        };
        let end = lbn.checked_add(blocks).ok_or(Stall::Range)?;
        if blocks == 0 || end > self.geometry.logical_blocks {
            return Err(Stall::Range);
        }
        Ok(())
    }

    /// Units to skip so that a fragment does not straddle a block boundary needlessly.
    fn pad_for(&self, units: u32) -> u32 {
        if self.options.straddle || units == 0 || units > UNITS_PER_BLOCK {
            return 0;
        }
        let stream = self.log.stream(StreamKind::User);
        let Some(segment) = stream.open.and_then(|id| self.log.get(id)) else {
            return 0;
        };
        let room = UNITS_PER_BLOCK - segment.fill % UNITS_PER_BLOCK;
        if units > room {
            room
        } else {
            0
        }
    }

    fn pad_segment(&mut self, id: SegmentId, pad: u32) {
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        let fits = segment.fill % UNITS_PER_BLOCK + pad == UNITS_PER_BLOCK && segment.entries > 0;
        if !fits {
            return;
        }
        let entry = segment.entries;
        segment.fill += pad;
        segment.entries += 1;
        let void = SummaryEntry {
            units: pad,
            ..SummaryEntry::VOID
        };
        self.log.set_entry(id, entry, &void);
    }

    /// Makes filled slots part of the volume, in order, each with a new operation number.
    pub fn commit<B: Buffers>(&mut self, buffers: &mut B, slots: &[Slot]) {
        for slot in slots {
            self.release_reservation(slot);
            self.op += 1;
            let op = self.op;
            let base = self
                .log
                .get(slot.segment)
                .map_or(op, |segment| segment.op_base);
            let delta = op - base;
            if delta > OP_DELTA_MAX {
                self.poison("a segment stayed open for too many operations");
            }
            let item = match slot.piece {
                Piece::Data {
                    lbn, log2, codec, ..
                } => {
                    self.apply_data(lbn, log2, slot.place, slot.units, op);
                    self.stats.user_bytes += 4096 << log2;
                    if codec == Codec::Raw {
                        self.stats.raw_extents += 1;
                    } else {
                        self.stats.compressed_extents += 1;
                    }
                    Item::Fragment(Identity::Data { lbn, log2, codec })
                }
                Piece::Zeros { lbn, blocks } => {
                    self.apply_zeros(lbn, blocks, op);
                    self.stats.zero_blocks += blocks;
                    if crate::planted::active(Bug::DiscardNotLogged) {
                        Item::Void
                    } else {
                        Item::Zeros { lbn, blocks }
                    }
                }
            };
            let entry = SummaryEntry {
                item,
                units: slot.units,
                op_delta: delta.min(OP_DELTA_MAX) as u32,
            };
            self.log.set_entry(slot.segment, slot.entry, &entry);
        }
        self.after_slots(buffers, slots);
    }

    /// Gives up reserved slots.
    pub fn cancel<B: Buffers>(&mut self, buffers: &mut B, slots: &[Slot]) {
        for slot in slots {
            self.release_reservation(slot);
            if let Some((buffer, range)) = slot.range() {
                // What an earlier segment left in the buffer must not look like a fragment.
                for at in range.step_by(UNIT_BYTES) {
                    buffers.write(buffer, at, &[0; UNIT_BYTES]);
                }
            }
        }
        self.after_slots(buffers, slots);
    }

    fn after_slots<B: Buffers>(&mut self, buffers: &mut B, slots: &[Slot]) {
        self.pump_stream(buffers, StreamKind::User);
        if slots.is_empty() {
            return;
        }
        if self.checkpoint.phase == Phase::Cutting {
            self.step_checkpoint(buffers);
        }
        self.consider_checkpoint();
    }

    fn release_reservation(&mut self, slot: &Slot) {
        let (points, ranges) = slot.piece.overlay_need();
        self.reserved_points = self.reserved_points.saturating_sub(points);
        self.reserved_ranges = self.reserved_ranges.saturating_sub(ranges);
        let known = match self.log.get_mut(slot.segment) {
            Some(segment) if segment.reserved > 0 => {
                segment.reserved -= 1;
                true
            }
            _ => false,
        };
        if !known {
            self.poison("a slot was committed twice");
        }
    }

    /// Enters an extent's blocks into the overlay and accounts for them.
    pub(super) fn apply_data(&mut self, lbn: u64, log2: u8, place: Place, units: u32, op: u64) {
        let Some(entry) = Entry::mapped(self.geometry.location(place), units, log2) else {
            self.poison("a fragment has no valid entry");
            return;
        };
        for block in lbn..lbn + (1 << log2) {
            self.zones.add_live(place.zone, entry.share(block));
            self.set_point(block, entry, op);
        }
    }

    /// Enters zeroed blocks into the overlay and accounts for them.
    pub(super) fn apply_zeros(&mut self, lbn: u64, blocks: u64, op: u64) {
        if blocks <= ZERO_POINTS_MAX {
            for block in lbn..lbn + blocks {
                self.set_point(block, Entry::UNMAPPED, op);
            }
            return;
        }
        let range = ZeroRange {
            start: lbn,
            end: lbn + blocks,
            op,
        };
        if !self.active.zero(range) {
            self.poison("no room for a zeroed range that was reserved");
        }
    }

    pub(super) fn set_point(&mut self, lbn: u64, entry: Entry, op: u64) {
        if let Some(old) = self.active.points.insert(lbn, entry, op) {
            self.kill(lbn, old);
        }
    }

    /// Whether the blocks are known to be unmapped without loading anything: a discard of them
    /// has nothing to do.
    pub fn is_unmapped(&mut self, lbn: u64, blocks: u64) -> bool {
        let Some(end) = lbn.checked_add(blocks) else {
            return false;
        };
        let frozen = self.checkpoint.frozen && self.frozen.touches(lbn, end);
        !frozen && !self.active.touches(lbn, end) && self.map_is_empty(lbn, end)
    }
}
