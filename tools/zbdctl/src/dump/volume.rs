// SPDX-License-Identifier: GPL-2.0

//! The volume that a root describes: its zone table, and fragments at given places.

use super::records::{self, Record};
use super::roots::zone;
use super::{text_of, uuid, Printer, Wanted};
use crate::failure::Result;
use crate::image::Image;
use zbd_engine::format::entry::Entry;
use zbd_engine::format::fragment::{self, Codec, Identity, Metadata};
use zbd_engine::format::root::Root;
use zbd_engine::format::zone_table::{
    RecordKind, RecordState, ZoneRecord, PAGE_BYTES, RECORDS_PER_PAGE, RECORD_BYTES,
};
use zbd_engine::state::volume_seed;
use zbd_engine::units::{place_seed, Place, BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_NONE};
use zbd_engine::Media;

/// A volume.
pub struct Volume<'a> {
    pub image: &'a mut Image,
    pub root: Root,
    /// By zone; `None` where the zone table is unreadable.
    pub zones: Vec<Option<ZoneRecord>>,
    seed: u64,
}

impl<'a> Volume<'a> {
    /// Loads the zone table as far as it is readable.
    pub fn load(image: &'a mut Image, root: Root, printer: &mut Printer<'_>) -> Result<Volume<'a>> {
        let seed = volume_seed(&root.uuid);
        let mut volume = Volume {
            zones: vec![None; root.geometry.zones as usize],
            image,
            root,
            seed,
        };
        let geometry = volume.root.geometry;
        let needed = geometry.byte_address(geometry.zones, 0);
        if needed > volume.image.capacity_bytes() {
            printer.damage(format!(
                "the device is smaller than the volume, which takes {needed} bytes"
            ))?;
        }
        for at in 0..volume.root.table.len() {
            volume.load_table_page(at, printer)?;
        }
        for probe in &volume.root.probes {
            // The log behind the root uses these incarnations, whatever the table says.
            if let Some(Some(record)) = volume.zones.get_mut(probe.zone as usize) {
                record.incarnation = probe.incarnation;
            }
        }
        Ok(volume)
    }

    fn load_table_page(&mut self, at: usize, printer: &mut Printer<'_>) -> Result {
        let entry = Entry::from_word(self.root.table[at]).unwrap_or(Entry::LOST);
        let Some(place) = self.place(entry) else {
            return printer.damage(format!("page {at} of the zone table is nowhere"));
        };
        let incarnation = self.root.table_incarnations.get(at).copied().unwrap_or(0);
        let seed = place_seed(self.seed, place.zone, incarnation, place.offset);
        let mirrors = self.root.mirrors.iter();
        let mirror = mirrors
            .copied()
            .find(|(zone, _)| *zone == place.zone)
            .map(|(_, mirror)| mirror);
        let expected = Identity::Metadata {
            kind: Metadata::ZoneTable,
            level: 0,
            index: at as u64,
        };
        let (page, bad) = self.read_copies(place, entry.units(), seed, mirror, expected);
        if bad > 0 {
            printer.damage(format!(
                "{bad} copies of page {at} of the zone table are unreadable"
            ))?;
        }
        let Some(page) = page.filter(|page| page.len() == PAGE_BYTES) else {
            return printer.damage(format!(
                "page {at} of the zone table is unreadable in every copy"
            ));
        };
        let first = at * RECORDS_PER_PAGE as usize;
        let records = page.chunks_exact(RECORD_BYTES).map(ZoneRecord::decode);
        for (slot, record) in self.zones.iter_mut().skip(first).zip(records) {
            *slot = record;
        }
        Ok(())
    }

    /// Where a mapped entry points.
    pub fn place(&self, entry: Entry) -> Option<Place> {
        let mapped = entry.is_mapped().then_some(entry)?;
        self.root.geometry.place(mapped.location(), mapped.units())
    }

    /// The zone under whose name the bytes in `zone` were sealed, and its incarnation: a mirror
    /// holds the bytes of the zone that it mirrors.
    pub fn sealed_as(&self, zone: u32) -> Option<(u32, u32)> {
        let record = self.zones.get(zone as usize)?.as_ref()?;
        if record.state == RecordState::Mirror {
            let primary = self.zones.get(record.mirror as usize)?.as_ref()?;
            return Some((record.mirror, primary.incarnation));
        }
        Some((zone, record.incarnation))
    }

    /// The checksum seed of a place.
    pub fn seed(&self, zone: u32, incarnation: u32, offset: u32) -> u64 {
        place_seed(self.seed, zone, incarnation, offset)
    }

    /// The payload of a metadata fragment, and how many of its copies are bad.
    pub fn metadata(&mut self, entry: Entry, expected: Identity) -> (Option<Vec<u8>>, u32) {
        let Some(place) = self.place(entry) else {
            return (None, 1);
        };
        let Some((_, incarnation)) = self.sealed_as(place.zone) else {
            return (None, 1);
        };
        let record = self.zones[place.zone as usize];
        let mirror = record.and_then(|record| zone(record.mirror));
        let seed = self.seed(place.zone, incarnation, place.offset);
        self.read_copies(place, entry.units(), seed, mirror, expected)
    }

    /// Tries every copy, so that a bad one shows though another will do.
    fn read_copies(
        &mut self,
        place: Place,
        units: u32,
        seed: u64,
        mirror: Option<u32>,
        expected: Identity,
    ) -> (Option<Vec<u8>>, u32) {
        let mut payload = None;
        let mut bad = 0;
        for zone in [Some(place.zone), mirror].into_iter().flatten() {
            match self.read_fragment(zone, place.offset, units, seed, expected) {
                Some(found) => payload = payload.or(Some(found)),
                None => bad += 1,
            }
        }
        (payload, bad)
    }

    fn read_fragment(
        &mut self,
        zone: u32,
        offset: u32,
        units: u32,
        seed: u64,
        expected: Identity,
    ) -> Option<Vec<u8>> {
        let first = offset / UNITS_PER_BLOCK;
        let last = (offset + units - 1) / UNITS_PER_BLOCK;
        // At most 8191 units: 33 blocks.
        let mut blocks = vec![0; (last - first + 1) as usize * BLOCK_BYTES];
        let address = self.root.geometry.byte_address(zone, first);
        self.image.read(address, &mut blocks).ok()?;
        let start = (offset % UNITS_PER_BLOCK) as usize * UNIT_BYTES;
        let bytes = blocks.get(start..start + units as usize * UNIT_BYTES)?;
        let (identity, payload) = fragment::open(bytes, seed).ok()?;
        (identity == expected).then(|| payload.to_vec())
    }

    /// Prints the volume's shape and its zones.
    pub fn describe(&self, wanted: &Wanted, printer: &mut Printer<'_>) -> Result {
        printer.record(Record::Volume(Box::new(self.shape())))?;
        printer.record(Record::Zones(self.count()))?;
        if !wanted.zones {
            return Ok(());
        }
        for (id, record) in (0u32..).zip(&self.zones) {
            let Some(record) = record else {
                continue;
            };
            let probed = self.root.probes.iter().any(|probe| probe.zone == id);
            let shown = record.state != RecordState::Free || probed || wanted.zone.is_some();
            if shown && wanted.zone.is_none_or(|zone| zone == id) {
                printer.record(Record::Zone(records::Zone {
                    zone: id,
                    address: self.root.geometry.byte_address(id, 0),
                    state: state_name(record.state),
                    kind: match record.kind {
                        RecordKind::None => "-",
                        RecordKind::User => "user",
                        RecordKind::Gc => "gc",
                        RecordKind::Metadata => "metadata",
                    },
                    incarnation: record.incarnation,
                    live_bytes: u64::from(record.live) * UNIT_BYTES as u64,
                    mirror: zone(record.mirror),
                    opened_op: record.opened_op,
                    filled_op: record.filled_op,
                    probed,
                }))?;
            }
        }
        Ok(())
    }

    fn shape(&self) -> records::Volume {
        let root = &self.root;
        let block = BLOCK_BYTES as u64;
        let codec = Codec::from_code(root.options.codec).map_or("unknown", codec_name);
        records::Volume {
            uuid: uuid(&root.uuid),
            label: text_of(&root.label),
            generation: root.generation,
            clean: root.clean,
            logical_bytes: root.geometry.logical_blocks * block,
            zone_bytes: u64::from(root.geometry.zone_blocks) * block,
            zone_capacity_bytes: u64::from(root.geometry.zone_capacity_blocks) * block,
            zones: root.geometry.zones,
            metadata_copies: root.geometry.metadata_copies,
            codec: format!("{codec}:{}", root.options.level),
            straddle: root.options.straddle,
            mapped_bytes: root.mapped_blocks * block,
            map_levels: root.geometry.height(),
            features_compatible: root.features.compatible,
            features_read_only: root.features.read_only,
            features_incompatible: root.features.incompatible,
        }
    }

    fn count(&self) -> records::Zones {
        let mut count = records::Zones::default();
        for record in &self.zones {
            let Some(record) = record else {
                count.unknown += 1;
                continue;
            };
            match record.state {
                RecordState::Free => count.free += 1,
                RecordState::Superblock => count.superblock += 1,
                RecordState::Open => count.open += 1,
                RecordState::Full => count.full += 1,
                RecordState::Mirror => count.mirror += 1,
                RecordState::Unusable => count.unusable += 1,
            }
            let copies = if record.mirror == ZONE_NONE { 1 } else { 2 };
            count.live_bytes += u64::from(record.live) * UNIT_BYTES as u64 * copies;
        }
        count
    }
}

/// A state in a word.
pub fn state_name(state: RecordState) -> &'static str {
    match state {
        RecordState::Free => "free",
        RecordState::Superblock => "superblock",
        RecordState::Open => "open",
        RecordState::Full => "full",
        RecordState::Mirror => "mirror",
        RecordState::Unusable => "unusable",
    }
}

/// A codec in a word.
pub fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::Raw => "raw",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}
