// SPDX-License-Identifier: GPL-2.0

//! Rolling the log forward from a root (crash rules 1, 2, 5, 6, 7, 10).
//!
//! The zones that the root lists are probed for user segments behind its cut. The longest
//! gap-free run of their sequence numbers counts; what is missing below the flushed mark is media
//! loss, what is missing above it is the end. The operations go into the overlay, newest first or
//! last as they come: the operation number decides.

use super::attach::{read_readable, Report};
use super::error::{Error, Result};
use super::format::entry::EXTENT_SHIFT_MAX;
use super::format::fragment::{self, Identity};
use super::format::root::{Probe, Root};
use super::format::segment::{Item, SegmentHeader, SegmentKind, BLOCKS_MAX, BYTES_MAX};
use super::io::Media;
use super::planted::Bug;
use super::state::Engine;
use super::units::{Place, BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES};
use super::zones::{StreamKind, ZoneState};
use crate::mem::{try_push, try_vec, Vec};

/// Points that one item adds at most: an extent's blocks.
const POINTS_PER_ITEM: usize = 1 << EXTENT_SHIFT_MAX;

/// A user segment that was found behind the cut.
#[derive(Clone, Copy, Debug)]
struct Found {
    sequence: u64,
    probe: usize,
    start: u32,
    blocks: u32,
    /// Whether its summary is readable.
    summary: bool,
    /// Fragments that do not verify.
    damaged: u32,
}

/// A replay in progress.
pub(super) struct Replay<'a, M: Media> {
    engine: &'a mut Engine,
    media: &'a mut M,
    root: &'a Root,
    found: Vec<Found>,
    /// The highest flushed mark seen.
    flushed: u64,
    segment: Vec<u8>,
    /// Blocks of the zone that is followed, read ahead; from which block on, and how many.
    window: Vec<u8>,
    window_first: u32,
    window_blocks: u32,
}

impl<'a, M: Media> Replay<'a, M> {
    /// Replays the log and answers the sequence number behind its end.
    pub(super) fn run(
        engine: &'a mut Engine,
        media: &'a mut M,
        root: &'a Root,
        report: &mut Report,
    ) -> Result<u64> {
        let none = Found {
            sequence: 0,
            probe: 0,
            start: 0,
            blocks: 0,
            summary: false,
            damaged: 0,
        };
        let mut replay = Replay {
            engine,
            media,
            root,
            found: try_vec(0, none)?,
            flushed: root.next_sequence,
            segment: try_vec(BYTES_MAX, 0u8)?,
            window: try_vec(2 * BYTES_MAX, 0u8)?,
            window_first: 0,
            window_blocks: 0,
        };
        for at in 0..root.probes.len() {
            replay.walk(at)?;
        }
        let end = replay.prefix(report)?;
        replay.apply(end, report)?;
        replay.settle_zones(end);
        Ok(end)
    }

    /// Follows the segments of one zone.
    fn walk(&mut self, at: usize) -> Result {
        let Some(probe) = self.root.probes.get(at).copied() else {
            return Ok(());
        };
        if !probe.log && self.is_blank(&probe) {
            return Ok(());
        }
        (self.window_first, self.window_blocks) = (probe.cursor, 0);
        let capacity = self.engine.geometry.zone_capacity_blocks;
        let mut block = probe.cursor;
        // How far to look behind the last segment for one whose header still reads.
        let mut horizon = block + BLOCKS_MAX;
        while block < capacity && block < horizon {
            let Some(header) = self.header_at(&probe, block) else {
                block += 1;
                continue;
            };
            self.consider(at, &probe, block, &header)?;
            block += header.layout.blocks;
            horizon = block + BLOCKS_MAX;
        }
        Ok(())
    }

    /// Whether a zone surely holds nothing. An unreadable block is no end of the log.
    fn is_blank(&mut self, probe: &Probe) -> bool {
        let address = self.engine.geometry.byte_address(probe.zone, probe.cursor);
        let Some(room) = self.window.get_mut(..BLOCK_BYTES) else {
            return false;
        };
        self.media.read(address, room).is_ok() && room.iter().all(|byte| *byte == 0)
    }

    /// The header of the segment that starts at a block, or its footer's copy.
    fn header_at(&mut self, probe: &Probe, block: u32) -> Option<SegmentHeader> {
        let capacity = self.engine.geometry.zone_capacity_blocks;
        let most = BLOCKS_MAX.min(capacity.saturating_sub(block));
        if block + most > self.window_first + self.window_blocks {
            self.read_window(probe, block);
        }
        let seed = self.seed(probe, block);
        let start = block.checked_sub(self.window_first)? as usize * BLOCK_BYTES;
        let bytes = self.window.get(start..)?;
        if let Some(header) = SegmentHeader::decode_header(bytes, seed) {
            return Some(header);
        }
        (2..=most).find_map(|blocks| {
            let end = blocks as usize * BLOCK_BYTES;
            let last = bytes.get(end - BLOCK_BYTES..end)?;
            if SegmentHeader::footer_blocks(last) != Some(blocks) {
                return None;
            }
            SegmentHeader::decode_footer(last, seed)
        })
    }

    /// Reads ahead from a block on; what is unreadable becomes zeros.
    fn read_window(&mut self, probe: &Probe, block: u32) {
        let geometry = &self.engine.geometry;
        let blocks = (2 * BLOCKS_MAX).min(geometry.zone_capacity_blocks.saturating_sub(block));
        let address = geometry.byte_address(probe.zone, block);
        self.window_first = block;
        self.window_blocks = blocks;
        if let Some(room) = self.window.get_mut(..blocks as usize * BLOCK_BYTES) {
            if read_readable(self.media, address, room).is_err() {
                room.fill(0);
            }
        }
    }

    fn seed(&self, probe: &Probe, block: u32) -> u64 {
        self.engine.seed(Place {
            zone: probe.zone,
            offset: block * UNITS_PER_BLOCK,
        })
    }

    fn read(&mut self, probe: &Probe, block: u32, blocks: u32) -> Result {
        let address = self.engine.geometry.byte_address(probe.zone, block);
        let room = self.segment.get_mut(..blocks as usize * BLOCK_BYTES);
        read_readable(self.media, address, room.ok_or(Error::Corrupt)?)
    }

    /// Records a segment if it belongs to the log.
    fn consider(&mut self, at: usize, probe: &Probe, block: u32, header: &SegmentHeader) -> Result {
        if header.kind != SegmentKind::User || header.incarnation != probe.incarnation {
            return Ok(());
        }
        let newer = header.root_generation > self.root.generation || header.epoch > self.root.epoch;
        if newer && !crate::planted::active(Bug::FallBack) {
            return Err(Error::RootLost);
        }
        let epoch = self.root.epoch_of(header.sequence);
        let any = crate::planted::active(Bug::AnyEpoch);
        let before = header.sequence < self.root.cut_sequence;
        let forgets = before && crate::planted::active(Bug::ReplayForgetsCut);
        if (before || (epoch != Some(header.epoch) && !any)) && !forgets {
            return Ok(());
        }
        self.flushed = self.flushed.max(header.flushed);
        let mut found = Found {
            sequence: header.sequence,
            probe: at,
            start: block,
            blocks: header.layout.blocks,
            summary: false,
            damaged: 0,
        };
        if self.read(probe, block, header.layout.blocks).is_ok() {
            let bytes = self
                .segment
                .get(..header.layout.blocks as usize * BLOCK_BYTES);
            let bytes = bytes.unwrap_or(&[]);
            if let Some(summary) = header.summary(bytes, self.seed(probe, block)) {
                found.summary = true;
                for (entry, offset) in summary.iter() {
                    if let Item::Fragment(identity) = entry.item {
                        let intact = self.verify(probe, block, identity, entry.units, offset);
                        found.damaged += u32::from(!intact);
                    }
                }
            }
        }
        try_push(&mut self.found, found)?;
        // Segments come nearly in order, zone by zone: each has few to pass.
        let mut at = self.found.len() - 1;
        while let Some([before, after]) =
            at.checked_sub(1).and_then(|from| self.found.get(from..=at))
        {
            if (before.sequence, before.damaged) <= (after.sequence, after.damaged) {
                break;
            }
            self.found.swap(at - 1, at);
            at -= 1;
        }
        Ok(())
    }

    fn verify(
        &self,
        probe: &Probe,
        block: u32,
        identity: Identity,
        units: u32,
        offset: u32,
    ) -> bool {
        let seed = self.engine.seed(Place {
            zone: probe.zone,
            offset: block * UNITS_PER_BLOCK + offset,
        });
        let start = offset as usize * UNIT_BYTES;
        let bytes = self.segment.get(start..start + units as usize * UNIT_BYTES);
        bytes.is_some_and(|bytes| {
            fragment::open(bytes, seed).is_ok_and(|(found, _)| found == identity)
        })
    }

    /// The end of the longest gap-free run behind the cut.
    fn prefix(&mut self, report: &mut Report) -> Result<u64> {
        let mut next = self.root.cut_sequence;
        for found in self.found.iter() {
            if found.sequence < next {
                continue;
            }
            if crate::planted::active(Bug::NoPrefix) {
                next = found.sequence;
            }
            if found.sequence > next {
                break;
            }
            let torn = found.damaged > 0 && !crate::planted::active(Bug::TornReplay);
            if next >= self.flushed && (torn || !found.summary) {
                break;
            }
            if !found.summary {
                return Err(Error::LogLost);
            }
            report.damaged += u64::from(found.damaged);
            next += 1;
        }
        if next < self.flushed && !crate::planted::active(Bug::RotIsTail) {
            return Err(Error::LogLost);
        }
        Ok(next)
    }

    fn apply(&mut self, end: u64, report: &mut Report) -> Result {
        let count = self.found.len();
        let mut order = 0;
        let mut last = None;
        for at in 0..count {
            let Some(found) = self.found.get(at).copied() else {
                break;
            };
            if last == Some(found.sequence) || found.sequence >= end {
                continue;
            }
            last = Some(found.sequence);
            self.apply_segment(&found, &mut order, report)?;
        }
        Ok(())
    }

    fn apply_segment(&mut self, found: &Found, order: &mut u64, report: &mut Report) -> Result {
        let Some(probe) = self.root.probes.get(found.probe).copied() else {
            return Err(Error::Corrupt);
        };
        self.read(&probe, found.start, found.blocks)?;
        let seed = self.seed(&probe, found.start);
        let segment = core::mem::take(&mut self.segment);
        let bytes = segment
            .get(..found.blocks as usize * BLOCK_BYTES)
            .unwrap_or(&[]);
        let header = match SegmentHeader::decode_header(bytes, seed) {
            Some(header) => Some(header),
            None => SegmentHeader::decode_footer(bytes, seed),
        };
        let header = header.ok_or(Error::Io)?;
        let summary = header.summary(bytes, seed).ok_or(Error::Io)?;
        report.segments += 1;
        for (entry, offset) in summary.iter() {
            let mut op = header.op_base.saturating_add(u64::from(entry.op_delta));
            self.engine.op = self.engine.op.max(op);
            if crate::planted::active(Bug::SegmentOrder) {
                *order += 1;
                op = self.root.cut_op + *order;
            }
            let place = Place {
                zone: probe.zone,
                offset: found.start * UNITS_PER_BLOCK + offset,
            };
            self.apply_item(entry.item, entry.units, place, op)?;
            report.operations += 1;
        }
        self.segment = segment;
        Ok(())
    }

    fn apply_item(&mut self, item: Item, units: u32, place: Place, op: u64) -> Result {
        let (lbn, blocks) = match item {
            Item::Fragment(Identity::Data { lbn, log2, .. }) => (lbn, 1 << log2),
            Item::Zeros { lbn, blocks } => (lbn, blocks),
            _ => return Ok(()),
        };
        let end = lbn.saturating_add(blocks);
        if end > self.engine.geometry.logical_blocks || op >= 1 << 60 {
            return Err(Error::Corrupt);
        }
        if !self.engine.active.fits_unordered(POINTS_PER_ITEM) {
            // A crash during a checkpoint leaves what two overlays held, and whoever wrote it may
            // have had larger ones.
            self.engine.active = self.engine.active.grown()?;
        }
        match item {
            Item::Fragment(Identity::Data { lbn, log2, .. }) => {
                self.engine.apply_data(lbn, log2, place, units, op);
            }
            _ => self.engine.apply_zeros(lbn, blocks, op),
        }
        Ok(())
    }

    /// Zones that hold accepted segments are part of the log; the other candidates are free, in a
    /// new incarnation.
    fn settle_zones(&mut self, end: u64) {
        for (at, probe) in self.root.probes.iter().enumerate() {
            let holds = self
                .found
                .iter()
                .any(|found| found.probe == at && found.sequence < end);
            if !holds && !probe.log {
                continue;
            }
            let cuts = self.engine.zones.cuts;
            self.engine.zones.set_state(probe.zone, ZoneState::Full);
            if let Some(zone) = self.engine.zones.get_mut(probe.zone) {
                zone.kind = Some(StreamKind::User);
                zone.incarnation = probe.incarnation;
                zone.filled_cut = cuts;
            }
            let incarnation = probe.incarnation;
            self.engine
                .checkpoint
                .note_zone(probe.zone, incarnation, probe.cursor, true);
        }
    }
}
