// SPDX-License-Identifier: GPL-2.0

//! Roots: the durable record of a checkpoint, and at the same time the volume's superblock.
//!
//! Three zones are set aside for roots: the first, the second and the last. Two of them are in
//! use; every root is appended to both. Each root describes the whole volume, so that any one of
//! them is enough to attach. `Documentation/format.md` has the byte table.

use super::entry::Entry;
use super::{get_u16, get_u32, get_u64, put, FORMAT_VERSION};
use crate::engine::error::{Error, Result};
use crate::engine::units::{Geometry, ZoneId};
use crate::engine::units::{BLOCK_BYTES, ZONES_MAX, ZONE_NONE};
use crate::hash::xxh64;
use crate::mem::{try_push, try_vec, Vec};

/// Largest root in bytes.
pub const BYTES_MAX: usize = 12 * BLOCK_BYTES;
/// Bytes at the start of a superblock zone that hold roots.
pub const REGION_BYTES: u64 = 1 << 20;
/// Most zones that are probed at attach.
pub const PROBES_MAX: usize = 256;
/// Most epochs between two checkpoints: crashes in a row that each left something to replay.
pub const EPOCHS_MAX: usize = 8;
/// Bytes of a label.
pub const LABEL_BYTES: usize = 32;

const MAGIC: u64 = u64::from_le_bytes(*b"zbdROOT1");
const CHECKSUM_SEED: u64 = 0x7a62_6452_4f4f_5431;
const FIXED_BYTES: usize = 320;
const TABLE_PAGES_MAX: usize = (ZONES_MAX / super::zone_table::RECORDS_PER_PAGE) as usize;
const FLAG_CLEAN: u32 = 1;

/// Compatible, read-only compatible and incompatible features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Forbid writing when unknown.
    pub read_only: u64,
    /// Forbid attaching when unknown.
    pub incompatible: u64,
}

/// Options of a volume that it carries with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a fragment may straddle a block boundary when it could avoid it.
    pub straddle: bool,
    /// Number of the codec for new data (`fragment::Codec`).
    pub codec: u8,
    /// Level of the codec.
    pub level: u8,
}

/// A zone to look at when attaching: part of the log, or a candidate for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The zone.
    pub zone: ZoneId,
    /// The incarnation in which segments after this root carry.
    pub incarnation: u32,
    /// First block to look at.
    pub cursor: u32,
    /// Whether the zone already holds part of the log, rather than being free.
    pub log: bool,
}

/// The epoch in which user segments from a sequence number on were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// First sequence number.
    pub sequence: u64,
    /// The epoch.
    pub epoch: u32,
}

/// An open zone of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// The zone, or `ZONE_NONE`.
    pub zone: ZoneId,
    /// The zone of its second copy, or `ZONE_NONE`.
    pub mirror: ZoneId,
    /// Next block to write.
    pub cursor: u32,
}

/// A root.
#[derive(Debug)]
pub struct Root {
    /// Feature flags.
    pub features: Features,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Name for people, zero-padded UTF-8.
    pub label: [u8; LABEL_BYTES],
    /// Number of this root, increasing.
    pub generation: u64,
    /// Epoch: increases with every attach.
    pub epoch: u32,
    /// Whether the volume was detached and nothing follows this root.
    pub clean: bool,
    /// Shape.
    pub geometry: Geometry,
    /// Options.
    pub options: Options,
    /// Last operation that the map includes.
    pub cut_op: u64,
    /// First user segment that the map does not include.
    pub cut_sequence: u64,
    /// First user sequence number of this root's epoch; all below are accepted.
    pub next_sequence: u64,
    /// Last operation number in use.
    pub last_op: u64,
    /// Next sequence number of the garbage collection and metadata streams.
    pub other_sequences: [u64; 2],
    /// Logical blocks that the map holds data for.
    pub mapped_blocks: u64,
    /// The map's top page: base and delta.
    pub top: [Entry; 2],
    /// Open zones of the user, garbage collection and metadata streams.
    pub open: [OpenZone; 3],
    /// The zones set aside for roots.
    pub places: [ZoneId; 3],
    /// Where the pages of the zone table are.
    pub table: Vec<u64>,
    /// Incarnation of the zone of each of them.
    pub table_incarnations: Vec<u32>,
    /// Metadata zones that hold pages of the zone table, with the zone of the second copy.
    pub mirrors: Vec<(ZoneId, ZoneId)>,
    /// Zones to probe.
    pub probes: Vec<Probe>,
    /// Epochs since the cut.
    pub epochs: Vec<EpochStart>,
}

impl Root {
    /// A root of nothing, with memory for all that a root of this shape can list.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn empty(geometry: &Geometry) -> Result<Root> {
        let pages = geometry.zones.div_ceil(super::zone_table::RECORDS_PER_PAGE) as usize;
        let none = OpenZone {
            zone: ZONE_NONE,
            mirror: ZONE_NONE,
            cursor: 0,
        };
        let probe = Probe {
            zone: 0,
            incarnation: 0,
            cursor: 0,
            log: false,
        };
        let start = EpochStart {
            sequence: 0,
            epoch: 0,
        };
        let mut root = Root {
            features: Features::default(),
            uuid: [0; 16],
            label: [0; LABEL_BYTES],
            generation: 0,
            epoch: 0,
            clean: false,
            geometry: *geometry,
            options: Options {
                straddle: true,
                codec: 0,
                level: 0,
            },
            cut_op: 0,
            cut_sequence: 1,
            next_sequence: 1,
            last_op: 0,
            other_sequences: [1; 2],
            mapped_blocks: 0,
            top: [Entry::UNMAPPED; 2],
            open: [none; 3],
            places: [0; 3],
            table: try_vec(pages, 0)?,
            table_incarnations: try_vec(pages, 0)?,
            mirrors: try_vec(pages, (0, 0))?,
            probes: try_vec(PROBES_MAX, probe)?,
            epochs: try_vec(EPOCHS_MAX, start)?,
        };
        root.table.clear();
        root.table_incarnations.clear();
        root.mirrors.clear();
        root.probes.clear();
        root.epochs.clear();
        Ok(root)
    }

    /// Bytes of the encoded root, a multiple of the block size.
    pub fn encoded_bytes(&self) -> usize {
        let bytes = FIXED_BYTES
            + self.table.len() * 12
            + self.mirrors.len() * 8
            + self.probes.len() * 16
            + self.epochs.len() * 16;
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Encodes the root into `out`; answers its length, `None` if it does not fit.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let total = self.encoded_bytes();
        let out = out.get_mut(..total)?;
        out.fill(0);
        self.encode_fixed(out, total);
        let mut at = FIXED_BYTES;
        for word in self.table.iter() {
            put(out, at, &word.to_le_bytes());
            at += 8;
        }
        for incarnation in self.table_incarnations.iter() {
            put(out, at, &incarnation.to_le_bytes());
            at += 4;
        }
        for (zone, mirror) in self.mirrors.iter() {
            put(out, at, &zone.to_le_bytes());
            put(out, at + 4, &mirror.to_le_bytes());
            at += 8;
        }
        for probe in self.probes.iter() {
            put(out, at, &probe.zone.to_le_bytes());
            put(out, at + 4, &probe.incarnation.to_le_bytes());
            put(out, at + 8, &probe.cursor.to_le_bytes());
            put(out, at + 12, &u32::from(probe.log).to_le_bytes());
            at += 16;
        }
        for start in self.epochs.iter() {
            put(out, at, &start.sequence.to_le_bytes());
            put(out, at + 8, &start.epoch.to_le_bytes());
            at += 16;
        }
        let sum = root_sum(out);
        put(out, 8, &sum.to_le_bytes());
        Some(total)
    }

    fn encode_fixed(&self, out: &mut [u8], total: usize) {
        put(out, 0, &MAGIC.to_le_bytes());
        put(out, 16, &(total as u32).to_le_bytes());
        put(out, 20, &FORMAT_VERSION.to_le_bytes());
        put(out, 24, &self.features.compatible.to_le_bytes());
        put(out, 32, &self.features.read_only.to_le_bytes());
        put(out, 40, &self.features.incompatible.to_le_bytes());
        put(out, 48, &self.uuid);
        put(out, 64, &self.label);
        put(out, 96, &self.generation.to_le_bytes());
        put(out, 104, &self.epoch.to_le_bytes());
        let flags = if self.clean { FLAG_CLEAN } else { 0 };
        put(out, 108, &flags.to_le_bytes());
        put(out, 112, &self.geometry.logical_blocks.to_le_bytes());
        put(out, 120, &self.geometry.zone_blocks.to_le_bytes());
        put(out, 124, &self.geometry.zone_capacity_blocks.to_le_bytes());
        put(out, 128, &self.geometry.zones.to_le_bytes());
        let options = [
            self.geometry.metadata_copies,
            self.options.straddle.into(),
            self.options.codec,
            self.options.level,
        ];
        put(out, 132, &options);
        put(out, 136, &self.cut_op.to_le_bytes());
        put(out, 144, &self.cut_sequence.to_le_bytes());
        put(out, 152, &self.next_sequence.to_le_bytes());
        put(out, 160, &self.last_op.to_le_bytes());
        put(out, 168, &self.other_sequences[0].to_le_bytes());
        put(out, 176, &self.other_sequences[1].to_le_bytes());
        put(out, 184, &self.top[0].word().to_le_bytes());
        put(out, 192, &self.top[1].word().to_le_bytes());
        for (at, open) in self.open.iter().enumerate() {
            put(out, 200 + at * 12, &open.zone.to_le_bytes());
            put(out, 204 + at * 12, &open.mirror.to_le_bytes());
            put(out, 208 + at * 12, &open.cursor.to_le_bytes());
        }
        for (at, zone) in self.places.iter().enumerate() {
            put(out, 236 + at * 4, &zone.to_le_bytes());
        }
        put(out, 248, &(self.table.len() as u32).to_le_bytes());
        put(out, 252, &(self.mirrors.len() as u32).to_le_bytes());
        put(out, 256, &(self.probes.len() as u16).to_le_bytes());
        put(out, 258, &(self.epochs.len() as u16).to_le_bytes());
        put(out, 264, &self.mapped_blocks.to_le_bytes());
    }

    /// Length in bytes of a root that seems to start here, before anything is verified.
    pub fn claimed_bytes(bytes: &[u8]) -> Option<usize> {
        let length = get_u32(bytes, 16) as usize;
        let plausible = get_u64(bytes, 0) == MAGIC
            && (FIXED_BYTES..=BYTES_MAX).contains(&length)
            && length % BLOCK_BYTES == 0;
        plausible.then_some(length)
    }

    /// Decodes and verifies the root at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFormatted`]: no intact root here. [`Error::NewerFormat`]: written by a newer
    /// version. [`Error::Corrupt`]: intact, but contradicting itself.
    pub fn decode(bytes: &[u8]) -> Result<Root> {
        let total = Self::claimed_bytes(bytes).ok_or(Error::NotFormatted)?;
        let raw = bytes.get(..total).ok_or(Error::NotFormatted)?;
        if root_sum(raw) != get_u64(raw, 8) {
            return Err(Error::NotFormatted);
        }
        if get_u32(raw, 20) != FORMAT_VERSION || get_u64(raw, 40) != 0 {
            return Err(Error::NewerFormat);
        }
        let mut root = Self::decode_fixed(raw)?;
        let counts = [
            get_u32(raw, 248) as usize,
            get_u32(raw, 252) as usize,
            usize::from(get_u16(raw, 256)),
            usize::from(get_u16(raw, 258)),
        ];
        let limits = [TABLE_PAGES_MAX, TABLE_PAGES_MAX, PROBES_MAX, EPOCHS_MAX];
        if counts
            .iter()
            .zip(limits)
            .any(|(count, limit)| *count > limit)
        {
            return Err(Error::Corrupt);
        }
        let mut at = FIXED_BYTES;
        for _ in 0..counts[0] {
            try_push(&mut root.table, get_u64(raw, at))?;
            at += 8;
        }
        for _ in 0..counts[0] {
            try_push(&mut root.table_incarnations, get_u32(raw, at))?;
            at += 4;
        }
        for _ in 0..counts[1] {
            try_push(&mut root.mirrors, (get_u32(raw, at), get_u32(raw, at + 4)))?;
            at += 8;
        }
        for _ in 0..counts[2] {
            let probe = Probe {
                zone: get_u32(raw, at),
                incarnation: get_u32(raw, at + 4),
                cursor: get_u32(raw, at + 8),
                log: get_u32(raw, at + 12) & 1 != 0,
            };
            try_push(&mut root.probes, probe)?;
            at += 16;
        }
        for _ in 0..counts[3] {
            let start = EpochStart {
                sequence: get_u64(raw, at),
                epoch: get_u32(raw, at + 8),
            };
            try_push(&mut root.epochs, start)?;
            at += 16;
        }
        root.check(at <= total)?;
        Ok(root)
    }

    fn decode_fixed(raw: &[u8]) -> Result<Root> {
        let fixed = raw
            .first_chunk::<FIXED_BYTES>()
            .ok_or(Error::NotFormatted)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&fixed[48..64]);
        let mut label = [0; LABEL_BYTES];
        label.copy_from_slice(&fixed[64..96]);
        let open = |at: usize| OpenZone {
            zone: get_u32(fixed, 200 + at * 12),
            mirror: get_u32(fixed, 204 + at * 12),
            cursor: get_u32(fixed, 208 + at * 12),
        };
        let top = |at: usize| Entry::from_word(get_u64(fixed, at)).ok_or(Error::Corrupt);
        let geometry = Geometry {
            zone_blocks: get_u32(fixed, 120),
            zone_capacity_blocks: get_u32(fixed, 124),
            zones: get_u32(fixed, 128),
            logical_blocks: get_u64(fixed, 112),
            metadata_copies: fixed[132],
        };
        if !geometry.check() {
            return Err(Error::Corrupt);
        }
        Ok(Root {
            features: Features {
                compatible: get_u64(fixed, 24),
                read_only: get_u64(fixed, 32),
                incompatible: get_u64(fixed, 40),
            },
            uuid,
            label,
            generation: get_u64(fixed, 96),
            epoch: get_u32(fixed, 104),
            clean: get_u32(fixed, 108) & FLAG_CLEAN != 0,
            geometry,
            options: Options {
                straddle: fixed[133] != 0,
                codec: fixed[134],
                level: fixed[135],
            },
            cut_op: get_u64(fixed, 136),
            cut_sequence: get_u64(fixed, 144),
            next_sequence: get_u64(fixed, 152),
            last_op: get_u64(fixed, 160),
            other_sequences: [get_u64(fixed, 168), get_u64(fixed, 176)],
            mapped_blocks: get_u64(fixed, 264),
            top: [top(184)?, top(192)?],
            open: [open(0), open(1), open(2)],
            places: [
                get_u32(fixed, 236),
                get_u32(fixed, 240),
                get_u32(fixed, 244),
            ],
            ..Root::empty(&geometry)?
        })
    }

    fn check(&self, fits: bool) -> Result {
        let geometry = &self.geometry;
        let zone_ok = |zone: ZoneId| zone < geometry.zones;
        let pages = geometry.zones.div_ceil(super::zone_table::RECORDS_PER_PAGE) as usize;
        let entry_ok = |entry: Entry| {
            !entry.is_mapped() || geometry.place(entry.location(), entry.units()).is_some()
        };
        let ordered = self.epochs.windows(2).all(|pair| match pair {
            [first, second] => first.sequence <= second.sequence && first.epoch < second.epoch,
            _ => true,
        });
        let sane = fits
            && self.table.len() == pages
            && self.places.iter().all(|zone| zone_ok(*zone))
            && self.probes.iter().all(|probe| {
                zone_ok(probe.zone) && probe.cursor <= geometry.zone_capacity_blocks
            })
            && self
                .mirrors
                .iter()
                .all(|(zone, mirror)| zone_ok(*zone) && zone_ok(*mirror))
            && self.top.iter().all(|entry| entry_ok(*entry))
            && self.table.iter().all(|word| {
                Entry::from_word(*word).is_some_and(|entry| entry.is_mapped() && entry_ok(entry))
            })
            && ordered
            && self.cut_sequence <= self.next_sequence
            && self.cut_op <= self.last_op
            // Numbers only grow by one: what is near the end of the range was not counted.
            && self.mapped_blocks <= geometry.logical_blocks
            && self.last_op < 1 << 60
            && self.next_sequence < 1 << 60
            && self.generation < 1 << 60
            && self.epoch < u32::MAX - 1;
        if sane {
            Ok(())
        } else {
            Err(Error::Corrupt)
        }
    }

    /// The epoch of the user segment with number `sequence`, if it belongs to the log.
    pub fn epoch_of(&self, sequence: u64) -> Option<u32> {
        self.epochs
            .iter()
            .rev()
            .find(|start| start.sequence <= sequence)
            .map(|start| start.epoch)
    }
}

fn root_sum(raw: &[u8]) -> u64 {
    // All but the checksum's own field; chaining two hashes saves a patched copy.
    let head = raw.get(..8).unwrap_or(&[]);
    let tail = raw.get(16..).unwrap_or(&[]);
    xxh64(xxh64(CHECKSUM_SEED, head), tail)
}
