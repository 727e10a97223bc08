// SPDX-License-Identifier: GPL-2.0

//! A walk over everything in memory that must agree: for tests, tools and debug builds.

use super::state::Engine;
use super::zones::ZoneState;

impl Engine {
    /// Checks invariants between zones, streams and counters.
    ///
    /// # Errors
    ///
    /// The first one that does not hold.
    pub fn audit(&self) -> Result<(), &'static str> {
        let mut live = 0u64;
        let mut free = 0;
        for (id, zone) in self.zones.iter() {
            let copies = if zone.mirror == super::units::ZONE_NONE {
                1
            } else {
                2
            };
            live += u64::from(zone.live) * copies;
            let is_free = matches!(
                zone.state,
                ZoneState::Free | ZoneState::Draining | ZoneState::Discarding
            );
            free += usize::from(is_free);
            if is_free && zone.live != 0 {
                return Err("a free zone has live units");
            }
            if u64::from(zone.live) > self.geometry.capacity_units() {
                return Err("a zone has more live units than it holds");
            }
            if zone.state == ZoneState::Mirror
                && self
                    .zones
                    .get(zone.mirror)
                    .is_none_or(|primary| primary.mirror != id)
            {
                return Err("a mirror's primary does not know it");
            }
        }
        if live != self.zones.live_units() {
            return Err("the zones' live units do not add up");
        }
        if free != self.zones.free() {
            return Err("the free zones do not add up");
        }
        Ok(())
    }
}
