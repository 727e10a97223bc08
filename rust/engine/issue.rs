// SPDX-License-Identifier: GPL-2.0

//! Step 2 of a write: segments are opened, sealed and issued, in the order of their addresses.

use super::format::segment::BLOCKS_MAX;
use super::format::segment::{
    summary_trailer, Layout, SegmentHeader, SegmentKind, HEADER_BYTES, HEADER_UNITS,
};
use super::io::{Action, Barrier, Buffers};
use super::log::{Log, Segment, SegmentId, SegmentState};
use super::planted::Bug;
use super::state::{Engine, Pending};
use super::units::{Place, ZoneId, BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_NONE};
use super::write::Stall;
use super::zones::StreamKind;

/// A zone with less room than this many blocks is closed.
const TAIL_BLOCKS: u32 = 4;
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Engine {
    /// The open segment of a stream with room for `units` more, opened if need be.
    ///
    /// # Errors
    ///
    /// `Stall::Wait`: no buffer is free, or no zone may be opened now; `Stall::NoSpace`.
    pub(super) fn segment_for<B: Buffers>(
        &mut self,
        buffers: &mut B,
        kind: StreamKind,
        units: u32,
    ) -> Result<SegmentId, Stall> {
        if let Some(id) = self.log.stream(kind).open {
            if self
                .log
                .get(id)
                .is_some_and(|segment| segment.fits(units, 2))
            {
                return Ok(id);
            }
            // Sealing must not leave the stream without a segment that a flush could wait for:
            // a segment always has a number before anything is reserved in it.
            self.seal_open(buffers, kind, false);
        }
        self.open_segment(kind, units)
    }

    fn open_segment(&mut self, kind: StreamKind, units: u32) -> Result<SegmentId, Stall> {
        let id = self.log.free(kind).ok_or(Stall::Wait)?;
        let needed = Layout::plan(HEADER_UNITS + units, 2)
            .blocks
            .max(TAIL_BLOCKS);
        let capacity = self.geometry.zone_capacity_blocks;
        let stream = self.log.stream(kind);
        if stream.zone == ZONE_NONE || stream.cursor + needed > capacity {
            self.roll_zone(kind)?;
        }
        let op_base = self.op + 1;
        let stream = self.log.stream_mut(kind);
        let limit = BLOCKS_MAX.min(capacity - stream.cursor);
        let mut fresh = Log::fresh(kind, stream.zone, stream.cursor, limit);
        fresh.sequence = stream.next_sequence;
        fresh.op_base = op_base;
        stream.next_sequence += 1;
        stream.open = Some(id);
        let zone = stream.zone;
        self.log.start(id, fresh);
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.writes += 1;
        }
        Ok(id)
    }

    /// Closes the stream's zone and opens another.
    fn roll_zone(&mut self, kind: StreamKind) -> Result<(), Stall> {
        let copies = match kind {
            StreamKind::Metadata => usize::from(self.geometry.metadata_copies),
            _ => 1,
        };
        self.may_open(kind, copies)?;
        let unlisted = crate::planted::active(Bug::UnlistedZones) && kind == StreamKind::User;
        let zone = self.zones.take(unlisted).ok_or(Stall::Wait)?;
        // A checkpoint must never fail for want of a second zone: it is what brings zones back.
        let mirror = if copies == 2 {
            self.zones.take(false).unwrap_or(ZONE_NONE)
        } else {
            ZONE_NONE
        };
        let stream = self.log.stream(kind);
        let tail = self
            .geometry
            .zone_capacity_blocks
            .saturating_sub(stream.cursor);
        if let Some(full) = self
            .zones
            .get_mut(stream.zone)
            .filter(|_| kind == StreamKind::Gc)
        {
            full.slack += tail * UNITS_PER_BLOCK;
        }
        self.close_zone(kind);
        let op = self.op;
        self.zones.open(zone, kind, op);
        if mirror != ZONE_NONE {
            self.zones.pair(zone, mirror, op);
        }
        self.note_zone(zone, kind);
        let stream = self.log.stream_mut(kind);
        stream.zone = zone;
        stream.mirror = mirror;
        stream.cursor = 0;
        Ok(())
    }

    /// Remembers a zone opened behind the cut, for the next root: part of the log, or, if only
    /// survivors go there, free after a crash.
    fn note_zone(&mut self, zone: ZoneId, kind: StreamKind) {
        let incarnation = self.zones.get(zone).map_or(0, |zone| zone.incarnation);
        let log = kind == StreamKind::User;
        if kind != StreamKind::Metadata && !self.checkpoint.note_zone(zone, incarnation, 0, log) {
            self.poison("more zones were opened behind the cut than a root can list");
        }
    }

    /// Closes the stream's zone: nothing more is appended to it.
    pub(super) fn close_zone(&mut self, kind: StreamKind) {
        let op = self.op;
        let stream = self.log.stream_mut(kind);
        let zone = stream.zone;
        stream.zone = ZONE_NONE;
        stream.mirror = ZONE_NONE;
        if zone != ZONE_NONE {
            self.zones.fill(zone, op);
        }
    }

    /// Seals the stream's open segment. An empty one stays open, unless something is reserved.
    pub(super) fn seal_open<B: Buffers>(
        &mut self,
        buffers: &mut B,
        kind: StreamKind,
        durable: bool,
    ) {
        let Some(id) = self.log.stream(kind).open else {
            return;
        };
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        if segment.entries == 0 {
            return;
        }
        let layout = Layout::plan(segment.fill, segment.entries);
        segment.blocks = layout.blocks;
        segment.state = SegmentState::Sealed;
        segment.durable = durable;
        let end = segment.start + layout.blocks;
        let stream = self.log.stream_mut(kind);
        stream.open = None;
        stream.cursor = end;
        if !stream.queue.push(id) {
            self.poison("more segments are sealed than exist");
        }
        self.pump_stream(buffers, kind);
    }

    /// Issues the stream's sealed segments as far as their turn has come.
    pub(super) fn pump_stream<B: Buffers>(&mut self, buffers: &mut B, kind: StreamKind) {
        while let Some(id) = self.log.stream(kind).queue.front() {
            let Some(segment) = self.log.get(id).copied() else {
                return;
            };
            if segment.reserved > 0 {
                return;
            }
            let overtakes = segment.durable
                && self.log.completed() < segment.sequence
                && !crate::planted::active(Bug::FuaOvertakes);
            if kind == StreamKind::User && overtakes {
                return;
            }
            self.log.stream_mut(kind).queue.pop();
            self.issue(buffers, id);
        }
    }

    /// Writes a sealed segment.
    pub(super) fn issue<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) {
        self.finish_segment(buffers, id);
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        segment.state = SegmentState::Writing;
        segment.failed = 0;
        segment.writes = 0;
        let segment = *segment;
        let barrier = if segment.durable {
            Barrier::FlushFua
        } else {
            Barrier::None
        };
        self.write_copy(id, segment.zone, barrier);
        let mirror = self
            .zones
            .get(segment.zone)
            .map_or(ZONE_NONE, |zone| zone.mirror);
        if segment.kind == StreamKind::Metadata && mirror != ZONE_NONE {
            self.write_copy(id, mirror, barrier);
        }
    }

    fn write_copy(&mut self, id: SegmentId, zone: ZoneId, barrier: Barrier) {
        let Some(token) = self.token(Pending::Segment { id, zone }) else {
            self.poison("more I/O is outstanding than the token table holds");
            return;
        };
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        segment.writes += 1;
        let (start, blocks, kind) = (segment.start, segment.blocks, segment.kind);
        let bytes = blocks * BLOCK_BYTES as u32;
        let counter = match kind {
            StreamKind::User => &mut self.stats.user_log_bytes,
            StreamKind::Gc => &mut self.stats.gc_log_bytes,
            StreamKind::Metadata => &mut self.stats.metadata_log_bytes,
        };
        *counter += u64::from(bytes);
        self.checkpoint.logged_blocks += u64::from(blocks);
        let address = self.geometry.byte_address(zone, start);
        self.act(Action::Write {
            token,
            buffer: id,
            bytes,
            address,
            barrier,
        });
    }

    /// Completes a segment's bytes: header, summaries, footer, and zeros between them.
    fn finish_segment<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) {
        let Some(segment) = self.log.get(id).copied() else {
            return;
        };
        let seed = self.seed(Place {
            zone: segment.zone,
            offset: segment.base(),
        });
        let layout = Layout::plan(segment.fill, segment.entries);
        let header = SegmentHeader {
            kind: match segment.kind {
                StreamKind::User => SegmentKind::User,
                StreamKind::Gc => SegmentKind::Gc,
                StreamKind::Metadata => SegmentKind::Metadata,
            },
            epoch: self.epoch,
            incarnation: self
                .zones
                .get(segment.zone)
                .map_or(0, |zone| zone.incarnation),
            sequence: segment.sequence,
            op_base: segment.op_base,
            flushed: self.durable,
            root_generation: self.generation,
            layout,
            entries: segment.entries as u16,
        };
        buffers.write(id, 0, &header.encode_header(seed));
        let entries = self.log.summary(id).as_flattened();
        let trailer = summary_trailer(entries, seed);
        let mut at = layout.summary as usize * UNIT_BYTES;
        buffers.write(id, at, entries);
        buffers.write(id, at + entries.len(), &trailer);
        at += entries.len() + UNIT_BYTES;
        let end = (layout.blocks * UNITS_PER_BLOCK) as usize * UNIT_BYTES;
        let gap_end = match layout.second {
            Some(second) => second as usize * UNIT_BYTES,
            None => end,
        };
        zero(buffers, id, at, gap_end);
        if let Some(second) = layout.second {
            let at = second as usize * UNIT_BYTES;
            buffers.write(id, at, entries);
            buffers.write(id, at + entries.len(), &trailer);
            buffers.write(id, end - HEADER_BYTES, &header.encode_footer(seed));
        }
    }

    /// Whether the zones left after what must stay in reserve allow `kind` to open `copies` more.
    fn may_open(&mut self, kind: StreamKind, copies: usize) -> Result<(), Stall> {
        let reserve = match kind {
            StreamKind::User => self.reserve_zones(),
            StreamKind::Gc => self.checkpoint_zones_now(0),
            StreamKind::Metadata => 0,
        };
        let listable = kind == StreamKind::Metadata || self.checkpoint.zone_room() > 8;
        let wanted = if kind == StreamKind::Metadata {
            1
        } else {
            reserve + copies
        };
        if listable && self.zones.candidates() >= wanted {
            return Ok(());
        }
        match kind {
            StreamKind::User => Err(self.out_of_space()),
            _ => {
                self.checkpoint.requested = true;
                Err(Stall::Wait)
            }
        }
    }

    /// Moves a segment whose write failed to another zone, under the same numbers (crash rule 9),
    /// and issues it again.
    pub(super) fn reissue<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) -> bool {
        let Some(old) = self.log.get(id).copied() else {
            return false;
        };
        if self.log.stream(old.kind).zone == old.zone {
            self.abandon_zone(buffers, old.kind);
        }
        let Some((zone, start)) = self.rescue_place(&old) else {
            return false;
        };
        if let Some(former) = self.zones.get_mut(old.zone) {
            former.writes = former.writes.saturating_sub(1);
        }
        if let Some(next) = self.zones.get_mut(zone) {
            next.writes += 1;
        }
        self.move_fragments(buffers, id, zone, start);
        let Some(segment) = self.log.get_mut(id) else {
            return false;
        };
        segment.zone = zone;
        segment.start = start;
        segment.state = SegmentState::Sealed;
        self.issue(buffers, id);
        true
    }

    /// A place for a segment whose write failed: in the zone that took the one before, or in a
    /// new one. Such a zone is given up at a checkpoint's cut, where the next root stops naming it.
    fn rescue_place(&mut self, segment: &Segment) -> Option<(ZoneId, u32)> {
        let (zone, cursor) = self.log.rescue;
        let room = self.geometry.zone_capacity_blocks.saturating_sub(cursor);
        let usable = zone != ZONE_NONE && zone != segment.zone && room >= segment.blocks;
        if usable {
            self.log.rescue = (zone, cursor + segment.blocks);
            return Some((zone, cursor));
        }
        let zone = self.zones.take(false)?;
        let op = self.op;
        self.zones.open(zone, segment.kind, op);
        self.zones.fill(zone, op);
        self.note_zone(zone, segment.kind);
        self.log.rescue = (zone, segment.blocks);
        Some((zone, 0))
    }

    /// Closes the zone that a stream fills; what its open segment holds stays where it is.
    fn abandon_zone<B: Buffers>(&mut self, buffers: &mut B, kind: StreamKind) {
        self.seal_open(buffers, kind, false);
        let empty = self.log.stream(kind).open;
        if let Some(id) = empty {
            // An empty open segment has a number that recovery would miss: it is sealed as is.
            if let Some(segment) = self.log.get_mut(id) {
                segment.entries = 1;
            }
            let void = super::format::segment::SummaryEntry::VOID;
            self.log.set_entry(id, 0, &void);
            self.seal_open(buffers, kind, false);
        }
        self.close_zone(kind);
    }

    /// Seals a segment's fragments for their new zone and redirects their entries.
    fn move_fragments<B: Buffers>(
        &mut self,
        buffers: &mut B,
        id: SegmentId,
        zone: ZoneId,
        start: u32,
    ) {
        let Some(segment) = self.log.get(id).copied() else {
            return;
        };
        let mut offset = HEADER_UNITS;
        for at in 0..segment.entries {
            let Some((item, units)) = self.log.entry(id, at) else {
                return;
            };
            let from = Place {
                zone: segment.zone,
                offset: segment.base() + offset,
            };
            let to = Place {
                zone,
                offset: start * UNITS_PER_BLOCK + offset,
            };
            if units > 0 {
                let seed = self.seed(to);
                let start = offset as usize * UNIT_BYTES;
                let end = start + units as usize * UNIT_BYTES;
                let bytes = buffers.bytes_mut(id).get_mut(start..end);
                let sealed =
                    bytes.is_some_and(|bytes| super::format::fragment::reseal(bytes, seed));
                if sealed {
                    self.redirect(item, units, from, to);
                }
            }
            offset += units;
        }
    }
}

fn zero<B: Buffers>(buffers: &mut B, id: SegmentId, from: usize, to: usize) {
    let mut at = from;
    while at < to {
        let take = (to - at).min(BLOCK_BYTES);
        if let Some(zeros) = ZEROS.get(..take) {
            buffers.write(id, at, zeros);
        }
        at += take;
    }
}
