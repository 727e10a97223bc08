// SPDX-License-Identifier: GPL-2.0

//! Space: what may still be written, what must stay in reserve, and when the volume is full.
//!
//! A write is admitted only if, with everything that is pending, the next checkpoint still fits
//! and the collector still has a zone to write to. So an acknowledged write never meets a full
//! device. Counts of live data lag behind overwrites and discards until a checkpoint merges them:
//! before a write is refused, a checkpoint makes sure of them.

use super::checkpoint::Phase;
use super::format::segment::BLOCKS_MAX;
use super::format::{fragment, packed, zone_table};
use super::limits::GC_RESERVE_ZONES;
use super::policy;
use super::state::Engine;
use super::stats::Notice;
use super::units::{
    units_for_bytes, Geometry, FANOUT_SHIFT, PAGE_WORDS, UNITS_PER_BLOCK, ZONE_NONE,
};
use super::write::Stall;
use super::zones::StreamKind;

/// Units of a page of the map at its largest, with its summary entries.
const PAGE_UNITS_MAX: u64 =
    (units_for_bytes(packed::BYTES_MAX + fragment::HEADER_BYTES) + 2) as u64;
/// One part in how many of the space is kept for emergencies.
const EMERGENCY_SHARE: u64 = 32;
/// Zones set aside for roots.
pub const SUPERBLOCK_ZONES: u64 = 3;

/// How much user data may be live, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// Units that may be live.
    pub(super) usable: u64,
    /// The same while the space for emergencies is kept.
    ordinary: u64,
    /// Whether that may be used.
    released: bool,
    /// Whether people have been told that space is scarce.
    nearly_full: bool,
    /// Operation number of the cut after which space was last found wanting.
    full_at: Option<u64>,
}

impl Space {
    pub(super) fn new(geometry: &Geometry) -> Space {
        let usable = geometry.usable_units();
        Space {
            usable,
            ordinary: usable - geometry.emergency_units(),
            released: false,
            nearly_full: false,
            full_at: None,
        }
    }

    fn limit(&self) -> u64 {
        if self.released {
            self.usable
        } else {
            self.ordinary
        }
    }
}

impl Geometry {
    /// Units of a page of the zone table, with its summary entries, times their number.
    fn table_units(&self) -> u64 {
        let pages = u64::from(self.zones.div_ceil(zone_table::RECORDS_PER_PAGE));
        pages * (zone_table::PAGE_BYTES / 16 + 3) as u64
    }

    /// Zones of metadata that a checkpoint writes at most when `leaves` leaves of the map are
    /// dirty, every copy counted.
    pub fn checkpoint_zones(&self, leaves: u64) -> u64 {
        let units = self.checkpoint_units(leaves);
        // One zone more: the table goes to one zone as a whole, and may leave another unfilled.
        (units.div_ceil(self.capacity_units().max(1)) + 1) * u64::from(self.metadata_copies)
    }

    /// Units of one copy of what such a checkpoint writes.
    fn checkpoint_units(&self, leaves: u64) -> u64 {
        let total = self.logical_blocks.div_ceil(PAGE_WORDS as u64);
        let mut pages = leaves.min(total);
        let mut below = total;
        for _ in 0..self.height() {
            below = below.div_ceil(1 << FANOUT_SHIFT);
            pages += below.min(leaves);
        }
        let units = pages * PAGE_UNITS_MAX + self.table_units();
        // A segment's header, footer and rounding take less than a sixteenth of it.
        units + units / 8 + 4096
    }

    /// Zones that user data never takes: roots, reserves, and one open zone per stream.
    fn overhead_zones(&self) -> u64 {
        let copies = u64::from(self.metadata_copies);
        SUPERBLOCK_ZONES + GC_RESERVE_ZONES as u64 + 2 + 3 * copies + self.checkpoint_zones(64)
    }

    /// Units that may be live at once, such that collecting garbage always gains something.
    pub fn usable_units(&self) -> u64 {
        let zones = u64::from(self.zones).saturating_sub(self.overhead_zones());
        zones * (self.capacity_units() / 16 * 15) / 16 * 15
    }

    /// Of these, units that are kept for whoever repairs a file system that ran into a full volume:
    /// without them it could not even replay its journal to delete something.
    pub fn emergency_units(&self) -> u64 {
        if self.logical_blocks <= self.default_logical_blocks() {
            // Such a volume does not get full.
            return 0;
        }
        self.usable_units() / EMERGENCY_SHARE
    }

    /// Blocks that surely fit even if nothing compresses, metadata included.
    pub fn default_logical_blocks(&self) -> u64 {
        let raw = u64::from(fragment::stored_units(4096));
        let page = PAGE_UNITS_MAX * u64::from(self.metadata_copies);
        // One page of the map per 512 blocks, and as much again for its directory and deltas.
        self.usable_units() * PAGE_WORDS as u64 / (raw * PAGE_WORDS as u64 + 2 * page)
    }
}

impl Engine {
    /// Leaves of the map that the next checkpoint writes at most, with `extra` more than now.
    fn dirty_leaves(&self, extra: usize) -> u64 {
        let mut leaves = self.active.points.dirty_leaves() + self.reserved_points + extra;
        leaves += self.active.ranges().len() * 2;
        if self.checkpoint.frozen {
            leaves += self.frozen.points.dirty_leaves() + self.frozen.ranges().len() * 2;
        }
        (leaves + self.checkpoint.touch_count()) as u64
    }

    /// Zones that the next checkpoint surely leaves enough of, whatever is open now.
    fn checkpoint_zones(&self, extra: usize) -> usize {
        self.geometry.checkpoint_zones(self.dirty_leaves(extra)) as usize
    }

    /// Zones that the next checkpoint takes at most beyond the one that is open.
    pub(super) fn checkpoint_zones_now(&self, extra: usize) -> usize {
        let leaves = self.dirty_leaves(extra);
        let stream = self.log.stream(StreamKind::Metadata);
        let room = match stream.zone {
            ZONE_NONE => 0,
            _ => self
                .geometry
                .zone_capacity_blocks
                .saturating_sub(stream.cursor + BLOCKS_MAX),
        };
        if self.geometry.checkpoint_units(leaves) <= u64::from(room) * u64::from(UNITS_PER_BLOCK) {
            0
        } else {
            self.geometry.checkpoint_zones(leaves) as usize
        }
    }

    /// Candidates that user data must leave.
    pub(super) fn reserve_zones(&self) -> usize {
        self.checkpoint_zones(1) + GC_RESERVE_ZONES
    }

    /// Whether a piece of `units` units may be taken on.
    pub(super) fn check_space(&mut self, units: u32) -> Result<(), Stall> {
        if units == 0 {
            // Zeros and discards take no space to speak of and bring some back.
            return Ok(());
        }
        let live = self.zones.live_units() + u64::from(units);
        self.watch_space(live);
        if live > self.space.limit() {
            return Err(self.no_room());
        }
        if self.zones.candidates() < self.reserve_zones() {
            return Err(self.out_of_space());
        }
        Ok(())
    }

    /// Says when space becomes scarce, and when it is plenty again.
    fn watch_space(&mut self, live: u64) {
        let scarce = self.space.ordinary / 16 * 15;
        let plenty = self.space.ordinary / 8 * 7;
        if live > scarce && !self.space.nearly_full {
            self.space.nearly_full = true;
            self.notify(Notice::NearlyFull);
        } else if live <= plenty && self.space.nearly_full {
            self.space.nearly_full = false;
            self.space.released = false;
            self.notify(Notice::SpaceAgain);
        }
    }

    /// Whether writes may use the space that is kept for emergencies.
    pub fn emergency_released(&self) -> bool {
        self.space.released
    }

    /// Lets writes use the space that is kept for emergencies, or no longer. Ends by itself when
    /// space is plenty again.
    pub fn release_emergency(&mut self, released: bool) {
        self.space.released = released;
        self.space.full_at = None;
        if released {
            // Otherwise there would be no end to it.
            self.space.nearly_full = true;
            self.wake_writers();
        }
    }

    /// Too much is live, unless pending overwrites, discards and moves say otherwise: what they
    /// replace is counted until a checkpoint merges them.
    fn no_room(&mut self) -> Stall {
        let settled = self.checkpoint.phase == Phase::Idle
            && self.op == self.checkpoint.root.cut_op
            && self.active.is_empty();
        if settled {
            self.report_full();
            return Stall::NoSpace;
        }
        self.checkpoint.requested = true;
        self.stats.space_stalls += 1;
        Stall::Wait
    }

    fn report_full(&mut self) {
        if self.space.full_at != Some(self.op) {
            self.space.full_at = Some(self.op);
            self.notify(Notice::Full);
        }
    }

    /// No zone may be opened now: starts whatever brings one, or says that nothing can.
    pub(super) fn out_of_space(&mut self) -> Stall {
        self.stats.space_stalls += 1;
        self.collector.wanted = true;
        // The collector asks for a checkpoint when it has emptied enough for one to be worth it.
        if self.collector.is_busy() || policy::choose_victim(&self.zones, &self.geometry).is_some()
        {
            return Stall::Wait;
        }
        let pending = self.checkpoint.phase != Phase::Idle
            || self.discards > 0
            || self.zones.free() > self.zones.candidates()
            || self.zones.iter().any(|(_, zone)| zone.is_waiting())
            || self.op != self.checkpoint.root.cut_op
            || !self.active.is_empty();
        if pending {
            self.checkpoint.requested = true;
            return Stall::Wait;
        }
        self.report_full();
        Stall::NoSpace
    }
}
