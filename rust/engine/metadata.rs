// SPDX-License-Identifier: GPL-2.0

//! Metadata fragments: appended to the metadata stream by a checkpoint.

use super::format::entry::Entry;
use super::format::fragment::{self, Identity};
use super::format::segment::{Item, SummaryEntry};
use super::io::Buffers;
use super::policy::{place, Origin};
use super::state::Engine;
use super::units::{Place, UNIT_BYTES};

impl Engine {
    /// Whether a metadata fragment with a payload of up to `bytes` bytes can be appended now.
    /// `false`: wait until a segment or a zone is free.
    pub(super) fn metadata_room<B: Buffers>(&mut self, buffers: &mut B, bytes: usize) -> bool {
        let kind = place(Origin::Metadata);
        if self.checkpoint.close_metadata {
            self.checkpoint.close_metadata = false;
            self.seal_open(buffers, kind, false);
            self.drop_empty_segment(kind);
            self.close_zone(kind);
        }
        let units = fragment::stored_units(bytes);
        self.segment_for(buffers, kind, units).is_ok()
    }

    /// Appends a metadata fragment and answers its entry. `None`: no room, or broken invariants.
    pub(super) fn append_metadata<B: Buffers>(
        &mut self,
        buffers: &mut B,
        identity: Identity,
        payload: &[u8],
    ) -> Option<Entry> {
        let kind = place(Origin::Metadata);
        let units = fragment::stored_units(payload.len());
        let id = self.segment_for(buffers, kind, units).ok()?;
        let segment = self.log.get_mut(id)?;
        let offset = segment.fill;
        let at = segment.entries;
        let place = Place {
            zone: segment.zone,
            offset: segment.base() + offset,
        };
        segment.fill += units;
        segment.entries += 1;
        let seed = self.seed(place);
        let start = offset as usize * UNIT_BYTES;
        let room = buffers
            .bytes_mut(id)
            .get_mut(start..start + units as usize * UNIT_BYTES)?;
        if !fragment::seal(room, seed, identity, payload) {
            self.poison("a metadata fragment does not fit its own length");
            return None;
        }
        let entry = SummaryEntry {
            item: Item::Fragment(identity),
            units,
            op_delta: 0,
        };
        self.log.set_entry(id, at, &entry);
        if let Some(zone) = self.zones.get_mut(place.zone) {
            zone.added += units;
            zone.dirty = true;
        }
        Entry::mapped(self.geometry.location(place), units, 0)
    }

    /// Counts a metadata fragment as dead once the running checkpoint is durable.
    pub(super) fn drop_metadata(&mut self, entry: Entry) {
        if !entry.is_mapped() {
            return;
        }
        let Some(place) = self.place_of(entry) else {
            return;
        };
        if let Some(zone) = self.zones.get_mut(place.zone) {
            zone.dead += entry.units();
            zone.dirty = true;
        }
    }
}
