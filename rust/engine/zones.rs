// SPDX-License-Identifier: GPL-2.0

//! Zones: their states, what lives in them, and which may be written.
//!
//! Only *candidates* are opened: the free zones that the newest root lists, so that recovery
//! knows where to look (crash rule 6). A zone whose last live unit died before a checkpoint's cut
//! becomes free when that checkpoint's root is durable (rule 4) and no reader holds it.

use super::error::Result;
use super::format::entry::EXTENT_SHIFT_MAX;
use super::format::root::PROBES_MAX;
use super::format::zone_table::{RecordKind, RecordState, ZoneRecord};
use super::planted::Bug;
use super::units::{Geometry, ZoneId, ZONE_NONE};
use crate::mem::{try_vec, Vec};

/// Candidates that a root lists at most.
pub const CANDIDATES_MAX: usize = PROBES_MAX / 2;

/// What a zone is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Empty.
    Free,
    /// Dead by a durable root, but a reader still holds it.
    Draining,
    /// Dead, and about to be or being discarded on the lower device.
    Discarding,
    /// Set aside for roots.
    Superblock,
    /// Being filled.
    Open,
    /// Filled, or closed early.
    Full,
    /// Holds the second copy of another zone.
    Mirror,
    /// Must not be used.
    Unusable,
}

/// Which stream filled a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// User writes.
    User,
    /// Survivors of garbage collection.
    Gc,
    /// Metadata.
    Metadata,
}

impl StreamKind {
    /// Index of the stream.
    pub const fn index(self) -> usize {
        match self {
            StreamKind::User => 0,
            StreamKind::Gc => 1,
            StreamKind::Metadata => 2,
        }
    }
}

/// A zone.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// State.
    pub state: ZoneState,
    /// Which stream filled it.
    pub kind: Option<StreamKind>,
    /// How often it has been opened.
    pub incarnation: u32,
    /// The other zone of a mirrored pair.
    pub mirror: ZoneId,
    /// Units that the map and the overlays refer to.
    pub live: u32,
    /// Units of a zone of survivors that are not live, and that moving them again would not gain:
    /// headers, tails, and dead parts of extents of which other blocks live. Not stored: after an
    /// attach it is found out again.
    pub slack: u32,
    /// Units that the map refers to as of the running checkpoint's cut.
    pub cut_live: u32,
    /// Units of metadata that the running checkpoint has added.
    pub added: u32,
    /// Units that the running checkpoint has found dead.
    pub dead: u32,
    /// Number of the checkpoint cut after which it was filled.
    pub filled_cut: u64,
    /// Operation number when it was opened.
    pub opened_op: u64,
    /// Operation number when it was filled.
    pub filled_op: u64,
    /// Readers that hold it.
    pub pins: u32,
    /// Segments whose writing has not finished.
    pub writes: u16,
    /// Whether it is listed by the newest root as free.
    pub candidate: bool,
    /// Whether garbage collection has moved everything out that it could.
    pub evacuated: bool,
    /// Number of the cut up to which evacuation was complete; liveness beyond it means rot.
    pub evacuated_cut: u64,
    /// Whether it cannot be emptied.
    pub stuck: bool,
    /// Whether its record must be written with the next zone table.
    pub dirty: bool,
    /// Block at which a write failed; whatever lies behind it has to be written elsewhere.
    pub broken_at: u32,
}

impl Zone {
    const FREE: Zone = Zone {
        state: ZoneState::Free,
        kind: None,
        incarnation: 0,
        mirror: ZONE_NONE,
        live: 0,
        slack: 0,
        cut_live: 0,
        added: 0,
        dead: 0,
        filled_cut: 0,
        opened_op: 0,
        filled_op: 0,
        pins: 0,
        writes: 0,
        candidate: false,
        evacuated: false,
        evacuated_cut: 0,
        stuck: false,
        dirty: false,
        broken_at: u32::MAX,
    };

    /// Units that what lives in the zone would take elsewhere, too: an extent moves as a whole
    /// while any block of it lives. It has no more than 32 blocks, and may leave as much unused.
    pub fn held(&self) -> u32 {
        let most = self.live.saturating_mul(2 << EXTENT_SHIFT_MAX);
        self.live.saturating_add(self.slack).min(most)
    }

    /// Live units after the running checkpoint, of what is in the map.
    pub fn settled_live(&self) -> u32 {
        let at_cut = if crate::planted::active(Bug::CountersNotAtCut) {
            self.live
        } else {
            self.cut_live
        };
        (at_cut + self.added).saturating_sub(self.dead)
    }

    /// Whether the zone will hold nothing once the root of cut number `cuts` is durable.
    pub fn dies(&self, cuts: u64) -> bool {
        self.state == ZoneState::Full
            && self.filled_cut < cuts
            && self.writes == 0
            && self.settled_live() == 0
            && (self.live + self.added).saturating_sub(self.dead) == 0
    }

    /// Whether a root is all that it takes to make the zone free.
    pub fn is_waiting(&self) -> bool {
        self.state == ZoneState::Full && !self.stuck && (self.evacuated || self.live == 0)
    }

    /// The record to be stored.
    pub fn record(&self) -> ZoneRecord {
        ZoneRecord {
            incarnation: self.incarnation,
            live: self.settled_live(),
            mirror: self.mirror,
            state: match self.state {
                ZoneState::Free | ZoneState::Draining | ZoneState::Discarding => RecordState::Free,
                ZoneState::Superblock => RecordState::Superblock,
                ZoneState::Open => RecordState::Open,
                ZoneState::Full => RecordState::Full,
                ZoneState::Mirror => RecordState::Mirror,
                ZoneState::Unusable => RecordState::Unusable,
            },
            kind: match self.kind {
                None => RecordKind::None,
                Some(StreamKind::User) => RecordKind::User,
                Some(StreamKind::Gc) => RecordKind::Gc,
                Some(StreamKind::Metadata) => RecordKind::Metadata,
            },
            opened_op: self.opened_op,
            filled_op: self.filled_op,
        }
    }

    /// A zone as recorded. Open zones count as full: whoever continues one says so.
    pub fn from_record(record: &ZoneRecord) -> Zone {
        Zone {
            state: match record.state {
                RecordState::Free => ZoneState::Free,
                RecordState::Superblock => ZoneState::Superblock,
                RecordState::Open | RecordState::Full => ZoneState::Full,
                RecordState::Mirror => ZoneState::Mirror,
                RecordState::Unusable => ZoneState::Unusable,
            },
            kind: match record.kind {
                RecordKind::None => None,
                RecordKind::User => Some(StreamKind::User),
                RecordKind::Gc => Some(StreamKind::Gc),
                RecordKind::Metadata => Some(StreamKind::Metadata),
            },
            incarnation: record.incarnation,
            mirror: record.mirror,
            live: record.live,
            cut_live: record.live,
            opened_op: record.opened_op,
            filled_op: record.filled_op,
            ..Zone::FREE
        }
    }
}

/// All zones of a volume.
pub struct ZoneSet {
    zones: Vec<Zone>,
    queue: Vec<ZoneId>,
    queue_head: usize,
    queue_len: usize,
    free: usize,
    /// Live units, second copies counted, of all zones.
    live_units: u64,
    rotor: ZoneId,
    /// Number of checkpoint cuts so far.
    pub cuts: u64,
}

impl ZoneSet {
    /// All zones free.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(geometry: &Geometry) -> Result<ZoneSet> {
        Ok(ZoneSet {
            zones: try_vec(geometry.zones as usize, Zone::FREE)?,
            queue: try_vec(PROBES_MAX, ZONE_NONE)?,
            queue_head: 0,
            queue_len: 0,
            free: geometry.zones as usize,
            live_units: 0,
            rotor: 0,
            cuts: 1,
        })
    }

    /// A zone.
    pub fn get(&self, zone: ZoneId) -> Option<&Zone> {
        self.zones.get(zone as usize)
    }

    /// A zone, to change anything but its state and its live units.
    pub fn get_mut(&mut self, zone: ZoneId) -> Option<&mut Zone> {
        self.zones.get_mut(zone as usize)
    }

    /// All zones in order.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        self.zones
            .iter()
            .enumerate()
            .map(|(at, zone)| (at as ZoneId, zone))
    }

    /// Number of free zones, whether or not they may be opened yet.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Number of zones that may be opened now or as soon as their discard completes.
    pub fn candidates(&self) -> usize {
        self.queue_len
    }

    /// Live units of all zones, second copies counted.
    pub fn live_units(&self) -> u64 {
        self.live_units
    }

    fn is_free(state: ZoneState) -> bool {
        matches!(
            state,
            ZoneState::Free | ZoneState::Draining | ZoneState::Discarding
        )
    }

    /// Changes a zone's state.
    pub fn set_state(&mut self, id: ZoneId, state: ZoneState) {
        let Some(zone) = self.zones.get_mut(id as usize) else {
            return;
        };
        let (was, is) = (Self::is_free(zone.state), Self::is_free(state));
        zone.state = state;
        zone.dirty = true;
        match (was, is) {
            (true, false) => self.free -= 1,
            (false, true) => self.free += 1,
            _ => {}
        }
    }

    /// Replaces a zone by what was recorded.
    pub fn load(&mut self, id: ZoneId, record: &ZoneRecord) {
        if let Some(slot) = self.zones.get_mut(id as usize) {
            let was = Self::is_free(slot.state);
            *slot = Zone::from_record(record);
            let is = Self::is_free(slot.state);
            match (was, is) {
                (true, false) => self.free -= 1,
                (false, true) => self.free += 1,
                _ => {}
            }
            self.live_units += u64::from(record.live) * copies(slot);
        }
    }

    /// Counts `units` more as live in a zone.
    pub fn add_live(&mut self, id: ZoneId, units: u32) {
        if let Some(zone) = self.zones.get_mut(id as usize) {
            zone.live += units;
            zone.dirty = true;
            self.live_units += u64::from(units) * copies(zone);
        }
    }

    /// Counts `units` as dead in a zone; answers whether they were live.
    #[must_use]
    pub fn remove_live(&mut self, id: ZoneId, units: u32) -> bool {
        let Some(zone) = self.zones.get_mut(id as usize) else {
            return false;
        };
        let Some(live) = zone.live.checked_sub(units) else {
            return false;
        };
        zone.live = live;
        zone.dirty = true;
        self.live_units = self
            .live_units
            .saturating_sub(u64::from(units) * copies(zone));
        true
    }

    /// Copies the live counts at a checkpoint's cut.
    pub fn cut(&mut self) {
        self.cuts += 1;
        for zone in self.zones.iter_mut() {
            zone.cut_live = zone.live;
            zone.added = 0;
            zone.dead = 0;
        }
    }

    /// Forgets what a failed checkpoint had found.
    pub fn abort(&mut self) {
        for zone in self.zones.iter_mut() {
            zone.added = 0;
            zone.dead = 0;
        }
    }

    /// Chooses the candidates that the next root lists, still open ones first, and calls `list`.
    ///
    /// At most [`CANDIDATES_MAX`]. With `listed_only`, only zones that are candidates already.
    pub fn choose_candidates(&mut self, listed_only: bool, mut list: impl FnMut(ZoneId, &Zone)) {
        let cuts = self.cuts;
        let mut chosen = 0;
        let total = self.zones.len();
        let start = self.rotor as usize;
        for step in 0..total {
            let at = wrap(start + step, total);
            let dies = self.zones.get(at).is_some_and(|zone| zone.dies(cuts));
            let mirror_dies = self.zones.get(at).is_some_and(|zone| {
                zone.state == ZoneState::Mirror
                    && self
                        .zones
                        .get(zone.mirror as usize)
                        .is_some_and(|primary| primary.dies(cuts))
            });
            let Some(zone) = self.zones.get_mut(at) else {
                continue;
            };
            let fits = chosen < CANDIDATES_MAX && (zone.candidate || !listed_only);
            zone.candidate = fits && (Self::is_free(zone.state) || dies || mirror_dies);
            if zone.candidate {
                chosen += 1;
                list(at as ZoneId, zone);
            }
        }
    }

    /// Makes the chosen candidates available: their root is durable.
    pub fn publish_candidates(&mut self) {
        self.queue_head = 0;
        self.queue_len = 0;
        let total = self.zones.len();
        for step in 0..total {
            let at = wrap(self.rotor as usize + step, total);
            if self.zones.get(at).is_some_and(|zone| zone.candidate) {
                if let Some(slot) = self.queue.get_mut(self.queue_len) {
                    *slot = at as ZoneId;
                    self.queue_len += 1;
                }
            }
        }
    }

    /// Takes the next candidate that is ready, or any free zone if `unlisted`.
    pub fn take(&mut self, unlisted: bool) -> Option<ZoneId> {
        if unlisted {
            let found = self
                .iter()
                .find(|(_, zone)| zone.state == ZoneState::Free && !zone.candidate)
                .map(|(id, _)| id);
            if found.is_some() {
                return found;
            }
        }
        if crate::planted::active(Bug::EarlyReuse) {
            let emptied = |zone: &Zone| zone.state == ZoneState::Full && zone.evacuated;
            let found = self
                .iter()
                .find(|(_, zone)| emptied(zone))
                .map(|(id, _)| id);
            if let Some(id) = found {
                self.set_state(id, ZoneState::Free);
                return found;
            }
        }
        for _ in 0..self.queue_len {
            let id = self.queue.get(self.queue_head).copied()?;
            self.queue_head = wrap(self.queue_head + 1, self.queue.len());
            self.queue_len -= 1;
            if self
                .get(id)
                .is_some_and(|zone| zone.state == ZoneState::Free)
            {
                if let Some(zone) = self.get_mut(id) {
                    zone.candidate = false;
                }
                self.rotor = wrap(id as usize + 1, self.zones.len()) as ZoneId;
                return Some(id);
            }
            let tail = wrap(self.queue_head + self.queue_len, self.queue.len());
            if let Some(slot) = self.queue.get_mut(tail) {
                *slot = id;
                self.queue_len += 1;
            }
        }
        None
    }

    /// Opens a zone that was taken.
    pub fn open(&mut self, id: ZoneId, kind: StreamKind, op: u64) {
        self.set_state(id, ZoneState::Open);
        if let Some(zone) = self.get_mut(id) {
            zone.kind = Some(kind);
            zone.incarnation = zone.incarnation.wrapping_add(1);
            zone.mirror = ZONE_NONE;
            zone.opened_op = op;
            zone.filled_op = op;
            zone.evacuated = false;
            zone.stuck = false;
            zone.broken_at = u32::MAX;
            zone.slack = 0;
        }
    }

    /// Makes `mirror`, which was taken, the second copy of `primary`.
    pub fn pair(&mut self, primary: ZoneId, mirror: ZoneId, op: u64) {
        self.open(mirror, StreamKind::Metadata, op);
        self.set_state(mirror, ZoneState::Mirror);
        if let Some(zone) = self.get_mut(mirror) {
            zone.mirror = primary;
        }
        if let Some(zone) = self.get_mut(primary) {
            zone.mirror = mirror;
        }
    }

    /// Closes a zone that takes no more segments.
    pub fn fill(&mut self, id: ZoneId, op: u64) {
        if self
            .get(id)
            .is_some_and(|zone| zone.state == ZoneState::Open)
        {
            let cuts = self.cuts;
            self.set_state(id, ZoneState::Full);
            if let Some(zone) = self.get_mut(id) {
                zone.filled_op = op;
                zone.filled_cut = cuts;
            }
        }
    }

    /// Empties a dead zone; it is free once nobody holds it and it has been discarded.
    pub fn retire(&mut self, id: ZoneId) {
        let Some(zone) = self.get_mut(id) else {
            return;
        };
        let mirror = zone.mirror;
        let next = if zone.pins > 0 {
            ZoneState::Draining
        } else {
            ZoneState::Discarding
        };
        zone.mirror = ZONE_NONE;
        zone.kind = None;
        self.set_state(id, next);
        if self
            .get(mirror)
            .is_some_and(|zone| zone.state == ZoneState::Mirror)
        {
            if let Some(zone) = self.get_mut(mirror) {
                zone.mirror = ZONE_NONE;
                zone.kind = None;
            }
            self.set_state(mirror, ZoneState::Discarding);
        }
    }

    /// Applies what the running checkpoint has found, at its commit.
    pub fn settle(&mut self) {
        let mut delta_added = 0;
        let mut delta_dead = 0;
        for zone in self.zones.iter_mut() {
            if zone.added != 0 || zone.dead != 0 {
                let copies = copies(zone);
                delta_added += u64::from(zone.added) * copies;
                delta_dead += u64::from(zone.dead) * copies;
                zone.live = (zone.live + zone.added).saturating_sub(zone.dead);
                zone.cut_live = zone.settled_live();
                zone.added = 0;
                zone.dead = 0;
            }
        }
        self.live_units = (self.live_units + delta_added).saturating_sub(delta_dead);
    }

    /// Lets a reader hold a zone.
    pub fn pin(&mut self, id: ZoneId) {
        if let Some(zone) = self.get_mut(id) {
            zone.pins += 1;
        }
    }

    /// Lets go of a zone; answers whether it can now be discarded.
    pub fn unpin(&mut self, id: ZoneId) -> bool {
        let Some(zone) = self.get_mut(id) else {
            return false;
        };
        zone.pins = zone.pins.saturating_sub(1);
        if zone.pins == 0 && zone.state == ZoneState::Draining {
            self.set_state(id, ZoneState::Discarding);
            return true;
        }
        false
    }
}

/// The index of a position at most one round ahead.
fn wrap(at: usize, len: usize) -> usize {
    at.checked_sub(len).unwrap_or(at)
}

fn copies(zone: &Zone) -> u64 {
    if zone.mirror == ZONE_NONE {
        1
    } else {
        2
    }
}
