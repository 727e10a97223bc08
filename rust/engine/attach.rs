// SPDX-License-Identifier: GPL-2.0

//! Attaching: find the newest root, load the zone table, replay the log, and write a root with a
//! new epoch. Until that root is durable nothing has been written (crash rule 3).

use super::checkpoint::{Phase, RootPlace};
use super::error::{Error, Result};
use super::format::entry::Entry;
use super::format::fragment::{self, Identity as FragmentIdentity, Metadata};
use super::format::root::{EpochStart, Root, EPOCHS_MAX, REGION_BYTES};
use super::format::zone_table::{ZoneRecord, RECORDS_PER_PAGE, RECORD_BYTES};
use super::io::{Buffers, Media};
use super::limits::Config;
use super::planted::Bug;
use super::replay::Replay;
use super::state::{Engine, Identity};
use super::units::{
    place_seed, BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN,
    ZONE_NONE,
};
use super::zones::{StreamKind, ZoneState};
use crate::mem::{try_push, try_vec, Box, Vec};

/// What attaching has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the volume had been detached properly.
    pub clean: bool,
    /// Segments that were replayed.
    pub segments: u64,
    /// Operations that were replayed.
    pub operations: u64,
    /// Fragments of durable segments that are damaged: their blocks read as errors.
    pub damaged: u64,
    /// Places for roots that had none to read.
    pub places_lost: u32,
}

/// Addresses at which a place for roots may start on a device of `capacity` bytes: zone sizes are
/// powers of two, and the places are the first, second and last zone.
pub fn place_candidates(capacity: u64) -> impl Iterator<Item = u64> {
    let sizes = (ZONE_BLOCKS_MIN.trailing_zeros()..=ZONE_BLOCKS_MAX.trailing_zeros())
        .map(|shift| (BLOCK_BYTES as u64) << shift)
        .filter(move |size| capacity / size >= 2);
    let second = sizes.clone();
    let last = sizes.map(move |size| (capacity / size - 1) * size);
    core::iter::once(0).chain(second).chain(last)
}

/// The newest intact root in a place, and where the next one would go.
fn newest_in_place<M: Media>(media: &mut M, address: u64, room: &mut [u8]) -> Result<(Root, u64)> {
    let bytes = REGION_BYTES.min(media.capacity_bytes().saturating_sub(address)) as usize;
    let room = room.get_mut(..bytes).ok_or(Error::NotFormatted)?;
    read_readable(media, address, room)?;
    let mut best: Option<(Root, u64)> = None;
    let mut refused = Error::NotFormatted;
    let mut at = 0;
    while let Some(rest) = room.get(at..).filter(|rest| !rest.is_empty()) {
        match Root::decode(rest) {
            Ok(root) => {
                let end = at + root.encoded_bytes();
                if best
                    .as_ref()
                    .is_none_or(|(found, _)| root.generation > found.generation)
                {
                    best = Some((root, end as u64));
                }
                at = end;
            }
            Err(error) => {
                if error != Error::NotFormatted {
                    refused = error;
                }
                at += BLOCK_BYTES;
            }
        }
    }
    best.ok_or(refused)
}

/// Reads what can be read; unreadable blocks become zeros.
pub(super) fn read_readable<M: Media>(media: &mut M, address: u64, room: &mut [u8]) -> Result {
    if media.read(address, room).is_ok() {
        return Ok(());
    }
    let mut any = false;
    for (at, block) in room.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        if media
            .read(address + (at * BLOCK_BYTES) as u64, block)
            .is_ok()
        {
            any = true;
        } else {
            block.fill(0);
        }
    }
    if any {
        Ok(())
    } else {
        Err(Error::Io)
    }
}

/// Finds the newest root of the volume on a device.
///
/// # Errors
///
/// `Error::NotFormatted`, `Error::NewerFormat`, `Error::Corrupt`, `Error::Io`.
pub fn find_root<M: Media>(media: &mut M) -> Result<Root> {
    let mut room = try_vec(REGION_BYTES as usize, 0u8)?;
    let mut best: Option<Root> = None;
    let mut refused = Error::NotFormatted;
    for address in place_candidates(media.capacity_bytes()) {
        // Once a root has been found its places are known.
        if best.as_ref().is_some_and(|root| !is_place(root, address)) {
            continue;
        }
        match newest_in_place(media, address, &mut room) {
            Ok((root, _)) if is_place(&root, address) => {
                let newer = best.as_ref().is_none_or(|found| {
                    root.generation > found.generation || root.uuid != found.uuid
                });
                if newer && best.as_ref().is_none_or(|found| root.uuid == found.uuid) {
                    best = Some(root);
                }
            }
            Ok(_) => {}
            Err(Error::NotFormatted) => {}
            Err(Error::Io) if address != 0 => {}
            Err(error) => refused = error,
        }
    }
    best.ok_or(refused)
}

fn is_place(root: &Root, address: u64) -> bool {
    let zone = root.geometry.byte_address(1, 0);
    root.places
        .iter()
        .any(|place| u64::from(*place) * zone == address)
}

impl Engine {
    /// Attaches the volume on `media`: the engine and what was found.
    ///
    /// # Errors
    ///
    /// As [`find_root`]; `Error::TooSmall` if the device has shrunk, `Error::RootLost` and
    /// `Error::LogLost` if something durable is missing, `Error::NoMemory`.
    pub fn attach<M: Media, B: Buffers>(
        media: &mut M,
        buffers: &mut B,
        config: &Config,
    ) -> Result<(Box<Engine>, Report)> {
        let root = find_root(media)?;
        if root.features.read_only != 0 {
            return Err(Error::ReadOnlyFormat);
        }
        let geometry = root.geometry;
        if geometry.byte_address(geometry.zones, 0) > media.capacity_bytes() {
            return Err(Error::TooSmall);
        }
        let identity = Identity {
            uuid: root.uuid,
            label: root.label,
            features: root.features,
        };
        let mut engine = Engine::new(config, &geometry, identity, root.options)?;
        let mut report = Report {
            clean: root.clean,
            ..Report::default()
        };
        engine.load_places(media, &root, &mut report)?;
        engine.load_zones(media, &root)?;
        engine.adopt_root(&root);
        let end = if root.clean {
            engine.continue_streams(&root);
            root.next_sequence
        } else {
            Replay::run(&mut engine, media, &root, &mut report)?
        };
        engine.start_epoch(media, buffers, root, end)?;
        Ok((engine, report))
    }

    fn load_places<M: Media>(&mut self, media: &mut M, root: &Root, report: &mut Report) -> Result {
        let mut room = try_vec(REGION_BYTES as usize, 0u8)?;
        let mut found = [(0u64, 0u64); 3];
        for (zone, slot) in root.places.iter().zip(found.iter_mut()) {
            let address = self.geometry.byte_address(*zone, 0);
            match newest_in_place(media, address, &mut room) {
                Ok((other, end)) if other.uuid == root.uuid => *slot = (other.generation, end),
                _ => {}
            }
        }
        // The two places with the newest roots are in use.
        let generation = |at: usize| found.get(at).map_or(0, |found| found.0);
        let newer_first = |a: usize, b: usize| {
            if generation(b) > generation(a) {
                (b, a)
            } else {
                (a, b)
            }
        };
        let (a, b) = newer_first(0, 1);
        let (b, c) = newer_first(b, 2);
        let (a, b) = newer_first(a, b);
        for (place, at) in self.checkpoint.places.iter_mut().zip([a, b, c]) {
            let zone = root.places.get(at).copied().unwrap_or(ZONE_NONE);
            let (generation, cursor) = found.get(at).copied().unwrap_or_default();
            *place = RootPlace { zone, cursor };
            report.places_lost += u32::from(generation == 0 && at < 2);
        }
        Ok(())
    }

    fn load_zones<M: Media>(&mut self, media: &mut M, root: &Root) -> Result {
        let mut page = try_vec(3 * BLOCK_BYTES, 0u8)?;
        for (at, word) in root.table.iter().enumerate() {
            let entry = Entry::from_word(*word).ok_or(Error::Corrupt)?;
            let incarnation = root.table_incarnations.get(at).copied().unwrap_or(0);
            let payload = self.read_table_page(media, root, &mut page, entry, at, incarnation)?;
            let first = at as u32 * RECORDS_PER_PAGE;
            for (slot, raw) in payload.chunks_exact(RECORD_BYTES).enumerate() {
                let id = first + slot as u32;
                if id >= self.geometry.zones {
                    break;
                }
                let record = ZoneRecord::decode(raw).ok_or(Error::Corrupt)?;
                let mirror_ok = record.mirror == ZONE_NONE || record.mirror < self.geometry.zones;
                if !mirror_ok || u64::from(record.live) > self.geometry.capacity_units() {
                    return Err(Error::Corrupt);
                }
                self.zones.load(id, &record);
            }
            if let Some(slot) = self.checkpoint.table.get_mut(at) {
                *slot = *word;
            }
        }
        for word in root.table.iter() {
            let entry = Entry::from_word(*word).ok_or(Error::Corrupt)?;
            if let Some(place) = self.place_of(entry) {
                self.zones.add_live(place.zone, entry.units());
                if let Some(zone) = self.zones.get_mut(place.zone) {
                    zone.cut_live = zone.live;
                }
            }
        }
        Ok(())
    }

    /// Reads a page of the zone table from whichever copy is intact.
    fn read_table_page<'a, M: Media>(
        &self,
        media: &mut M,
        root: &Root,
        room: &'a mut [u8],
        entry: Entry,
        at: usize,
        incarnation: u32,
    ) -> Result<&'a [u8]> {
        let place = self.place_of(entry).ok_or(Error::Corrupt)?;
        let mirror = root
            .mirrors
            .iter()
            .find(|(zone, _)| *zone == place.zone)
            .map(|(_, mirror)| *mirror);
        let first = place.offset / UNITS_PER_BLOCK;
        let last = (place.offset + entry.units() - 1) / UNITS_PER_BLOCK;
        let blocks = (last - first + 1) as usize;
        let skip = (place.offset % UNITS_PER_BLOCK) as usize * UNIT_BYTES;
        let range = skip..skip + entry.units() as usize * UNIT_BYTES;
        let seed = if crate::planted::active(Bug::UnseededChecksum) {
            0
        } else {
            place_seed(self.volume_seed, place.zone, incarnation, place.offset)
        };
        let expected = FragmentIdentity::Metadata {
            kind: Metadata::ZoneTable,
            level: 0,
            index: at as u64,
        };
        let window = room.get_mut(..blocks * BLOCK_BYTES).ok_or(Error::Corrupt)?;
        for zone in [Some(place.zone), mirror].into_iter().flatten() {
            let address = self.geometry.byte_address(zone, first);
            if media.read(address, window).is_err() {
                continue;
            }
            let intact = window.get(range.clone()).is_some_and(|bytes| {
                fragment::open(bytes, seed).is_ok_and(|(identity, _)| identity == expected)
            });
            if intact {
                let bytes = window.get(range.clone()).ok_or(Error::Corrupt)?;
                return fragment::open(bytes, seed)
                    .map(|(_, payload)| payload)
                    .map_err(|_| Error::Corrupt);
            }
        }
        Err(Error::Corrupt)
    }

    /// Takes over what the root says about zones, numbers and the map.
    fn adopt_root(&mut self, root: &Root) {
        for place in root.places {
            self.zones.set_state(place, ZoneState::Superblock);
        }
        for probe in root.probes.iter() {
            if let Some(zone) = self.zones.get_mut(probe.zone) {
                zone.incarnation = probe.incarnation;
                zone.candidate = !probe.log;
                if !probe.log {
                    zone.mirror = ZONE_NONE;
                    zone.kind = None;
                    zone.live = 0;
                    zone.cut_live = 0;
                }
            }
            if !probe.log {
                self.zones.set_state(probe.zone, ZoneState::Free);
            }
        }
        // A mirror whose other half is gone holds nothing.
        for id in 0..self.geometry.zones {
            let orphan = self.zones.get(id).is_some_and(|zone| {
                zone.state == ZoneState::Mirror
                    && self.zones.get(zone.mirror).is_none_or(|primary| {
                        primary.state != ZoneState::Full || primary.mirror != id
                    })
            });
            if orphan {
                self.zones.set_state(id, ZoneState::Full);
                if let Some(zone) = self.zones.get_mut(id) {
                    zone.mirror = ZONE_NONE;
                }
            }
        }
        self.checkpoint.mapped_blocks = root.mapped_blocks;
        self.top = root.top;
        self.root_top = root.top;
        self.generation = root.generation;
        self.epoch = root.epoch.saturating_add(1);
        self.op = root.last_op;
        let [gc, metadata] = root.other_sequences;
        self.log.stream_mut(StreamKind::Gc).next_sequence = gc;
        self.log.stream_mut(StreamKind::Metadata).next_sequence = metadata;
    }

    /// After a clean detach the open zones are filled further.
    fn continue_streams(&mut self, root: &Root) {
        let kinds = [StreamKind::User, StreamKind::Gc, StreamKind::Metadata];
        for (kind, open) in kinds.into_iter().zip(root.open) {
            let usable = self.zones.get(open.zone).is_some_and(|zone| {
                zone.state == ZoneState::Full
                    && zone.kind == Some(kind)
                    && zone.mirror == open.mirror
                    && open.cursor < self.geometry.zone_capacity_blocks
            });
            if usable {
                self.zones.set_state(open.zone, ZoneState::Open);
                let stream = self.log.stream_mut(kind);
                stream.zone = open.zone;
                stream.mirror = open.mirror;
                stream.cursor = open.cursor;
            }
        }
        let stream = self.log.stream(StreamKind::User);
        let (zone, cursor) = (stream.zone, stream.cursor);
        if let Some(state) = self.zones.get(zone) {
            let incarnation = state.incarnation;
            self.checkpoint.note_zone(zone, incarnation, cursor, true);
        }
    }

    /// Writes a root that starts a new epoch behind user segment number `end`.
    fn start_epoch<M: Media, B: Buffers>(
        &mut self,
        media: &mut M,
        buffers: &mut B,
        old: Root,
        end: u64,
    ) -> Result {
        self.log.stream_mut(StreamKind::User).next_sequence = end;
        self.durable = end;
        let mut epochs: Vec<EpochStart> = try_vec(
            0,
            EpochStart {
                sequence: 0,
                epoch: 0,
            },
        )?;
        for start in old.epochs.iter().filter(|start| start.sequence < end) {
            try_push(&mut epochs, *start)?;
        }
        let full = epochs.len() >= EPOCHS_MAX;
        let start = EpochStart {
            sequence: end,
            epoch: self.epoch,
        };
        try_push(&mut epochs, start)?;
        let options = self.options;
        let root = &mut self.checkpoint.root;
        root.features = old.features;
        root.uuid = old.uuid;
        root.label = old.label;
        root.generation = old.generation + 1;
        root.epoch = self.epoch;
        root.clean = false;
        root.options = options;
        root.cut_op = old.cut_op;
        root.cut_sequence = old.cut_sequence;
        root.next_sequence = end;
        root.last_op = self.op;
        root.other_sequences = old.other_sequences;
        root.mapped_blocks = old.mapped_blocks;
        root.top = old.top;
        root.open = old.open;
        if full {
            // Too many crashes in a row to list: this checkpoint makes a fresh start. Only its
            // root makes anything of it count, so the rule of reading first is kept in spirit:
            // a crash before that root leaves everything as it was found.
            self.zones.choose_candidates(true, |_, _| {});
            self.zones.publish_candidates();
            self.checkpoint.requested = true;
            let generation = old.generation;
            return self.run_until(media, buffers, |engine| engine.generation > generation);
        }
        root.epochs.clear();
        for start in epochs.iter() {
            try_push(&mut root.epochs, *start)?;
        }
        let fits = self.list_table() && self.list_probes(true);
        let buffer = self.root_buffer();
        let encoded = self.checkpoint.root.encode(buffers.bytes_mut(buffer));
        if !fits || encoded.is_none() {
            return Err(Error::Corrupt);
        }
        let generation = old.generation;
        self.checkpoint.phase = Phase::Roots;
        self.checkpoint.roots_written = 0;
        self.checkpoint.place_failures = 0;
        self.write_root();
        let discard = core::mem::replace(&mut self.config.discard, false);
        let result = self.run_until(media, buffers, |engine| {
            engine.generation > generation && engine.checkpoint.phase == Phase::Idle
        });
        self.config.discard = discard;
        result
    }
}
