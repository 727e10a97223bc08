// SPDX-License-Identifier: GPL-2.0

//! Policies: which zone to empty, and which stream a fragment goes to. Both can be replaced
//! without touching anything else.

use super::units::{Geometry, ZoneId};
use super::zones::{StreamKind, Zone, ZoneSet, ZoneState};

/// Victims keep at most this share of their units live, in 32nds: emptying others gains nothing.
const LIVE_MAX_32NDS: u64 = 31;

/// What decides where a fragment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A user's write.
    Write,
    /// A survivor of garbage collection.
    Survivor,
    /// A page of the map or the zone table.
    Metadata,
}

/// The stream for a fragment: one stream for each origin.
pub const fn place(origin: Origin) -> StreamKind {
    match origin {
        Origin::Write => StreamKind::User,
        Origin::Survivor => StreamKind::Gc,
        Origin::Metadata => StreamKind::Metadata,
    }
}

/// The zone to empty next, or `None` if emptying none would gain anything.
///
/// Greedy: the zone from which least has to be moved costs least and gains most.
pub fn choose_victim(zones: &ZoneSet, geometry: &Geometry) -> Option<ZoneId> {
    let most = geometry.capacity_units() * LIVE_MAX_32NDS / 32;
    let eligible = |zone: &Zone| {
        zone.state == ZoneState::Full
            && !zone.evacuated
            && !zone.stuck
            && zone.writes == 0
            && zone.live > 0
            && u64::from(zone.held()) <= most
    };
    zones
        .iter()
        .filter(|(_, zone)| eligible(zone))
        .min_by_key(|(_, zone)| zone.held())
        .map(|(id, _)| id)
}
