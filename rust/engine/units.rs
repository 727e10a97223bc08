// SPDX-License-Identifier: GPL-2.0

//! Units of size and place, and the conversions between them.
//!
//! Sizes are counted in *bytes*, *units* (16 bytes, the grain of the log) or *blocks* (4 KiB, the
//! grain of the logical device and of lower I/O). A name without a unit is a number of things.

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a unit: fragments and summaries are multiples of it.
pub const UNIT_BYTES: usize = 16;
/// Units of a block.
pub const UNITS_PER_BLOCK: u32 = 256;
/// Words (map entries or child pointers) of a page of the map.
pub const PAGE_WORDS: usize = 512;
/// Children of a directory page: each takes two words, base and delta.
pub const FANOUT: u64 = 256;
/// log2 of [`FANOUT`].
pub const FANOUT_SHIFT: u32 = 8;
/// log2 of [`PAGE_WORDS`]: blocks covered by a map leaf.
pub const LEAF_SHIFT: u32 = 9;
/// Logical blocks of the largest volume: 1 PiB.
pub const LOGICAL_BLOCKS_MAX: u64 = 1 << 38;

/// A zone's number on its volume, counted from 0.
pub type ZoneId = u32;

/// No zone.
pub const ZONE_NONE: ZoneId = u32::MAX;

/// Rounds `bytes` up to whole units.
pub const fn units_for_bytes(bytes: usize) -> u32 {
    (bytes as u32).div_ceil(UNIT_BYTES as u32)
}

/// A place in the log: a zone and an offset inside it, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The zone.
    pub zone: ZoneId,
    /// Offset from the zone's start, in units.
    pub offset: u32,
}

/// The shape of a volume: what turns places into device addresses and checks them.
///
/// # Invariants
///
/// Validated by [`Geometry::check`]: zones fit the device, and a zone's last unit fits 46 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of a zone, as addresses advance from zone to zone.
    pub zone_blocks: u32,
    /// Writable blocks of a zone: at most `zone_blocks`, less on some zoned devices.
    pub zone_capacity_blocks: u32,
    /// Number of zones.
    pub zones: u32,
    /// Logical size in blocks.
    pub logical_blocks: u64,
    /// Physical copies of a metadata zone: 1 or 2.
    pub metadata_copies: u8,
}

/// Smallest zone: 1 MiB.
pub const ZONE_BLOCKS_MIN: u32 = 256;
/// Largest zone: 16 GiB, so that offsets in units fit 32 bits.
pub const ZONE_BLOCKS_MAX: u32 = 1 << 22;
/// Fewest zones with which garbage collection and checkpoints always have room.
pub const ZONES_MIN: u32 = 24;
/// Most zones: bounds resident memory and the zone table.
pub const ZONES_MAX: u32 = 1 << 18;

impl Geometry {
    /// Whether every derived address and offset stays in its range.
    pub fn check(&self) -> bool {
        let units =
            u64::from(self.zones) * u64::from(self.zone_blocks) * u64::from(UNITS_PER_BLOCK);
        (ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&self.zone_blocks)
            && self.zone_capacity_blocks <= self.zone_blocks
            && self.zone_capacity_blocks >= ZONE_BLOCKS_MIN / 2
            && (ZONES_MIN..=ZONES_MAX).contains(&self.zones)
            && units <= 1 << 46
            && (1..=LOGICAL_BLOCKS_MAX).contains(&self.logical_blocks)
            && (1..=2).contains(&self.metadata_copies)
    }

    /// Units of a zone's address range.
    pub fn zone_units(&self) -> u64 {
        u64::from(self.zone_blocks) * u64::from(UNITS_PER_BLOCK)
    }

    /// Writable units of a zone.
    pub fn capacity_units(&self) -> u64 {
        u64::from(self.zone_capacity_blocks) * u64::from(UNITS_PER_BLOCK)
    }

    /// The linear location (in units) of a place.
    pub fn location(&self, place: Place) -> u64 {
        u64::from(place.zone) * self.zone_units() + u64::from(place.offset)
    }

    /// The place of a linear location, if `units` units there stay inside one zone's capacity.
    pub fn place(&self, location: u64, units: u32) -> Option<Place> {
        let zone = location.checked_div(self.zone_units())?;
        let offset = location.checked_rem(self.zone_units())?;
        if zone >= u64::from(self.zones) || offset + u64::from(units) > self.capacity_units() {
            return None;
        }
        Some(Place {
            zone: zone as ZoneId,
            offset: offset as u32,
        })
    }

    /// Device address in bytes of block `block` of zone `zone`.
    pub fn byte_address(&self, zone: ZoneId, block: u32) -> u64 {
        (u64::from(zone) * u64::from(self.zone_blocks) + u64::from(block)) * BLOCK_BYTES as u64
    }

    /// Levels of the map above its leaves: the top page is at this level, index 0.
    pub fn height(&self) -> u8 {
        let leaves = self.logical_blocks.div_ceil(PAGE_WORDS as u64);
        let mut height = 1u8;
        while leaves.div_ceil(1 << (FANOUT_SHIFT * u32::from(height))) > 1 {
            height += 1;
        }
        height
    }
}

/// Mixes a volume's seed with a place, for checksums that reject stale and misplaced data.
///
/// `incarnation` is how often the zone has been opened; `offset` is in units.
pub fn place_seed(volume_seed: u64, zone: ZoneId, incarnation: u32, offset: u32) -> u64 {
    let zone_word = (u64::from(zone) << 32) | u64::from(incarnation);
    mix(mix(volume_seed ^ mix(zone_word)).wrapping_add(u64::from(offset)))
}

/// A full-avalanche 64-bit finaliser: Stafford's variant 13 of the MurmurHash3 mixer.
const fn mix(mut word: u64) -> u64 {
    word ^= word >> 30;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^= word >> 27;
    word = word.wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
