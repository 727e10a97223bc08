// SPDX-License-Identifier: GPL-2.0

//! Segments: one sequential write to the log.
//!
//! A segment starts with a 64-byte header; its fragments follow back to back; behind them stands
//! the summary that lists them. A segment of one block ends there. A larger one repeats its
//! summary in a later block, and its header as the last 64 bytes, so that no single unreadable
//! block hides what it holds. The summaries stand behind the fragments because a fragment's place
//! is final as soon as it is reserved, long before the number of fragments is known.
//!
//! Header (and footer), little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic: `zbdS`, in the footer `zbdF` |
//! | 4 | version, 1 |
//! | 5 | kind: 1 user, 2 garbage collection, 3 metadata |
//! | 6–7 | zero |
//! | 8–15 | xxh64 of the 64 bytes with this field zero, seeded with the segment's place |
//! | 16–19 | epoch |
//! | 20–23 | incarnation of the zone |
//! | 24–31 | sequence number among the segments of this kind |
//! | 32–39 | operation number base |
//! | 40–47 | flushed: all user segments numbered below are durable |
//! | 48–55 | generation of the root that this segment follows |
//! | 56–57 | blocks |
//! | 58–59 | offset of the summary, in units |
//! | 60–61 | offset of its second copy, in units; 0: none |
//! | 62–63 | entries |
//!
//! A summary is 16 bytes per entry, then a trailer: xxh64 of the entries (8), magic `zbdY` (4),
//! number of entries (2), zero (2). An entry:
//!
//! | bits | field |
//! |---|---|
//! | 0–37 | LBN or page index |
//! | 38–40 | log2 of blocks, or page level |
//! | 41–53 | stored length in units; 0 for zeros |
//! | 54–56 | codec, or metadata type |
//! | 57–58 | kind: 0 void, 1 data, 2 metadata, 3 zeros |
//! | 64–89 | operation number, relative to the base |
//! | 90–127 | number of blocks, for zeros; else 0 |
//!
//! Fragments stand in the order of their entries, from offset 64; their places follow.

use super::fragment::Identity;
use super::{get_u16, get_u32, get_u64, put};
use crate::engine::units::{UNITS_PER_BLOCK, UNIT_BYTES};
use crate::hash::xxh64;

/// Bytes of a header or footer.
pub const HEADER_BYTES: usize = 64;
/// Units of a header or footer.
pub const HEADER_UNITS: u32 = (HEADER_BYTES / UNIT_BYTES) as u32;
/// Largest segment in blocks: 256 KiB.
pub const BLOCKS_MAX: u32 = 64;
/// Largest segment in bytes.
pub const BYTES_MAX: usize = BLOCKS_MAX as usize * 4096;
/// Most entries of a segment.
pub const ENTRIES_MAX: usize = 2048;
/// Largest operation number relative to a segment's base.
pub const OP_DELTA_MAX: u64 = (1 << 26) - 1;

const MAGIC_HEADER: u32 = u32::from_le_bytes(*b"zbdS");
const MAGIC_FOOTER: u32 = u32::from_le_bytes(*b"zbdF");
const MAGIC_SUMMARY: u32 = u32::from_le_bytes(*b"zbdY");
const VERSION: u8 = 1;
const LBN_MASK: u64 = (1 << 38) - 1;

/// Whose segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// User writes; the only kind that is replayed.
    User,
    /// Survivors of garbage collection.
    Gc,
    /// Pages of the map and the zone table.
    Metadata,
}

impl SegmentKind {
    const fn code(self) -> u8 {
        match self {
            SegmentKind::User => 1,
            SegmentKind::Gc => 2,
            SegmentKind::Metadata => 3,
        }
    }

    const fn from_code(code: u8) -> Option<SegmentKind> {
        match code {
            1 => Some(SegmentKind::User),
            2 => Some(SegmentKind::Gc),
            3 => Some(SegmentKind::Metadata),
            _ => None,
        }
    }
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose segment it is.
    pub kind: SegmentKind,
    /// Epoch in which it was written.
    pub epoch: u32,
    /// Incarnation of its zone.
    pub incarnation: u32,
    /// Sequence number among the segments of its kind.
    pub sequence: u64,
    /// Base of its operation numbers.
    pub op_base: u64,
    /// All user segments numbered below are durable.
    pub flushed: u64,
    /// Generation of the root that it follows.
    pub root_generation: u64,
    /// Where its parts stand.
    pub layout: Layout,
    /// Number of summary entries.
    pub entries: u16,
}

/// Where the parts of a segment stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length in blocks.
    pub blocks: u32,
    /// Offset of the summary in units.
    pub summary: u32,
    /// Offset of its second copy in units.
    pub second: Option<u32>,
}

impl Layout {
    /// The layout of a segment whose header and fragments take `fill` units and that has
    /// `entries` entries. The result may exceed [`BLOCKS_MAX`]; the caller compares.
    pub fn plan(fill: u32, entries: u32) -> Layout {
        let summary_units = entries + 1;
        let end = fill + summary_units;
        if end <= UNITS_PER_BLOCK {
            return Layout {
                blocks: 1,
                summary: fill,
                second: None,
            };
        }
        let tail = (summary_units + HEADER_UNITS).div_ceil(UNITS_PER_BLOCK);
        let blocks = end.div_ceil(UNITS_PER_BLOCK) + tail;
        Layout {
            blocks,
            summary: fill,
            second: Some(blocks * UNITS_PER_BLOCK - HEADER_UNITS - summary_units),
        }
    }
}

fn header_sum(bytes: &[u8; HEADER_BYTES], seed: u64) -> u64 {
    let mut copy = *bytes;
    put(&mut copy, 8, &[0; 8]);
    xxh64(seed, &copy)
}

impl SegmentHeader {
    fn encode(&self, magic: u32, seed: u64) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &magic.to_le_bytes());
        put(&mut out, 4, &[VERSION, self.kind.code()]);
        put(&mut out, 16, &self.epoch.to_le_bytes());
        put(&mut out, 20, &self.incarnation.to_le_bytes());
        put(&mut out, 24, &self.sequence.to_le_bytes());
        put(&mut out, 32, &self.op_base.to_le_bytes());
        put(&mut out, 40, &self.flushed.to_le_bytes());
        put(&mut out, 48, &self.root_generation.to_le_bytes());
        put(&mut out, 56, &(self.layout.blocks as u16).to_le_bytes());
        put(&mut out, 58, &(self.layout.summary as u16).to_le_bytes());
        let second = self.layout.second.unwrap_or(0);
        put(&mut out, 60, &(second as u16).to_le_bytes());
        put(&mut out, 62, &self.entries.to_le_bytes());
        let sum = header_sum(&out, seed);
        put(&mut out, 8, &sum.to_le_bytes());
        out
    }

    /// The 64 bytes at the segment's start.
    pub fn encode_header(&self, seed: u64) -> [u8; HEADER_BYTES] {
        self.encode(MAGIC_HEADER, seed)
    }

    /// The 64 bytes at the end of a segment of more than one block.
    pub fn encode_footer(&self, seed: u64) -> [u8; HEADER_BYTES] {
        self.encode(MAGIC_FOOTER, seed)
    }

    fn decode(bytes: &[u8], magic: u32, seed: u64) -> Option<SegmentHeader> {
        let raw = bytes.first_chunk::<HEADER_BYTES>()?;
        if get_u32(raw, 0) != magic || raw[4] != VERSION || header_sum(raw, seed) != get_u64(raw, 8)
        {
            return None;
        }
        let layout = Layout {
            blocks: u32::from(get_u16(raw, 56)),
            summary: u32::from(get_u16(raw, 58)),
            second: match get_u16(raw, 60) {
                0 => None,
                second => Some(u32::from(second)),
            },
        };
        let entries = get_u16(raw, 62);
        let planned = Layout::plan(layout.summary, u32::from(entries));
        if planned != layout || layout.blocks > BLOCKS_MAX || usize::from(entries) > ENTRIES_MAX {
            return None;
        }
        Some(SegmentHeader {
            kind: SegmentKind::from_code(raw[5])?,
            epoch: get_u32(raw, 16),
            incarnation: get_u32(raw, 20),
            sequence: get_u64(raw, 24),
            op_base: get_u64(raw, 32),
            flushed: get_u64(raw, 40),
            root_generation: get_u64(raw, 48),
            layout,
            entries,
        })
    }

    /// Decodes a header at the start of `bytes` that was sealed with `seed`.
    pub fn decode_header(bytes: &[u8], seed: u64) -> Option<SegmentHeader> {
        Self::decode(bytes, MAGIC_HEADER, seed)
    }

    /// The length in blocks that a footer at the end of `block` claims, before its seed is known.
    pub fn footer_blocks(block: &[u8]) -> Option<u32> {
        let at = block.len().checked_sub(HEADER_BYTES)?;
        if get_u32(block, at) != MAGIC_FOOTER {
            return None;
        }
        let blocks = u32::from(get_u16(block, at + 56));
        (2..=BLOCKS_MAX).contains(&blocks).then_some(blocks)
    }

    /// Decodes the footer at the end of `block`, which was sealed with `seed`.
    pub fn decode_footer(block: &[u8], seed: u64) -> Option<SegmentHeader> {
        let at = block.len().checked_sub(HEADER_BYTES)?;
        Self::decode(block.get(at..)?, MAGIC_FOOTER, seed)
    }

    /// The summary in `segment` (the whole segment's bytes), from whichever copy is intact.
    pub fn summary<'a>(&self, segment: &'a [u8], seed: u64) -> Option<Summary<'a>> {
        let copies = [Some(self.layout.summary), self.layout.second];
        copies.iter().flatten().find_map(|offset| {
            Summary::decode(
                segment.get(*offset as usize * UNIT_BYTES..)?,
                usize::from(self.entries),
                seed,
            )
        })
    }
}

/// What one summary entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A reserved fragment that was never filled.
    Void,
    /// A fragment.
    Fragment(Identity),
    /// `blocks` logical blocks from `lbn` became zeros: written as zeros, zeroed or discarded.
    Zeros {
        /// First block.
        lbn: u64,
        /// Number of blocks.
        blocks: u64,
    },
}

/// A summary entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    /// What happened.
    pub item: Item,
    /// Units that the entry's fragment takes; 0 for zeros.
    pub units: u32,
    /// Operation number, relative to the segment's base.
    pub op_delta: u32,
}

impl SummaryEntry {
    /// An entry for a reserved slot.
    pub const VOID: SummaryEntry = SummaryEntry {
        item: Item::Void,
        units: 0,
        op_delta: 0,
    };

    /// The entry's 16 bytes.
    pub fn encode(&self) -> [u8; UNIT_BYTES] {
        let (word, blocks) = match self.item {
            Item::Void => (0, 0),
            Item::Fragment(identity) => {
                let bits = identity.bits();
                let head = bits & ((1 << 41) - 1);
                (head | (((bits >> 59) & 7) << 54) | ((bits >> 62) << 57), 0)
            }
            Item::Zeros { lbn, blocks } => (lbn & LBN_MASK | (3 << 57), blocks),
        };
        let word = word | (u64::from(self.units) << 41);
        let second = u64::from(self.op_delta) | ((blocks & LBN_MASK) << 26);
        let mut out = [0; UNIT_BYTES];
        put(&mut out, 0, &word.to_le_bytes());
        put(&mut out, 8, &second.to_le_bytes());
        out
    }

    /// Decodes an entry's 16 bytes; `None` if they are malformed.
    pub fn decode(bytes: &[u8]) -> Option<SummaryEntry> {
        let word = get_u64(bytes, 0);
        let second = get_u64(bytes, 8);
        let units = (word >> 41) as u32 & 0x1fff;
        let blocks = second >> 26;
        let head = word & ((1 << 41) - 1) | (((word >> 54) & 7) << 59);
        let item = match word >> 57 {
            0 => Item::Void,
            kind @ (1 | 2) if units >= 2 => {
                Item::Fragment(Identity::from_bits(head | (kind << 62))?)
            }
            3 if units == 0 && blocks > 0 => {
                let lbn = word & LBN_MASK;
                if lbn + blocks > 1 << 38 {
                    return None;
                }
                Item::Zeros { lbn, blocks }
            }
            _ => return None,
        };
        Some(SummaryEntry {
            item,
            units,
            op_delta: second as u32 & ((1 << 26) - 1),
        })
    }
}

/// A verified summary.
#[derive(Clone, Copy)]
pub struct Summary<'a> {
    entries: &'a [u8],
}

impl<'a> Summary<'a> {
    fn decode(bytes: &'a [u8], count: usize, seed: u64) -> Option<Summary<'a>> {
        let entries = bytes.get(..count * UNIT_BYTES)?;
        let trailer = bytes.get(count * UNIT_BYTES..)?.get(..UNIT_BYTES)?;
        if get_u32(trailer, 8) != MAGIC_SUMMARY
            || usize::from(get_u16(trailer, 12)) != count
            || get_u64(trailer, 0) != xxh64(seed, entries)
        {
            return None;
        }
        Some(Summary { entries })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() / UNIT_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries with the offset of each fragment in the segment, in units.
    ///
    /// Ends early at an entry that is malformed in spite of the checksum.
    pub fn iter(&self) -> impl Iterator<Item = (SummaryEntry, u32)> + 'a {
        let mut offset = HEADER_UNITS;
        self.entries.chunks_exact(UNIT_BYTES).map_while(move |raw| {
            let entry = SummaryEntry::decode(raw)?;
            let at = offset;
            offset = offset.checked_add(entry.units)?;
            Some((entry, at))
        })
    }
}

/// The trailer of a summary whose encoded entries are `entries`.
pub fn summary_trailer(entries: &[u8], seed: u64) -> [u8; UNIT_BYTES] {
    let mut out = [0; UNIT_BYTES];
    put(&mut out, 0, &xxh64(seed, entries).to_le_bytes());
    put(&mut out, 8, &MAGIC_SUMMARY.to_le_bytes());
    let count = (entries.len() / UNIT_BYTES) as u16;
    put(&mut out, 12, &count.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::super::fragment::Codec;
    use super::*;

    #[test]
    fn layouts_keep_the_copies_apart() {
        for fill in 4..16_000 {
            for entries in [0, 1, 60, 250, 600] {
                let layout = Layout::plan(fill, entries);
                let Some(second) = layout.second else {
                    assert!(fill + entries < 256);
                    continue;
                };
                let first_end = layout.summary + entries + 1;
                assert!(second / 256 > (first_end - 1) / 256);
                assert_eq!(second + entries + 1 + 4, layout.blocks * 256);
            }
        }
    }

    #[test]
    fn headers_round_trip_and_reject_other_places() {
        let header = SegmentHeader {
            kind: SegmentKind::Gc,
            epoch: 3,
            incarnation: 9,
            sequence: 1 << 40,
            op_base: 77,
            flushed: 5,
            root_generation: 6,
            layout: Layout::plan(1000, 20),
            entries: 20,
        };
        let bytes = header.encode_header(1);
        assert_eq!(SegmentHeader::decode_header(&bytes, 1), Some(header));
        assert_eq!(SegmentHeader::decode_header(&bytes, 2), None);
        assert_eq!(SegmentHeader::decode_footer(&bytes, 1), None);
        for bit in 0..512 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode_header(&bad, 1), None);
        }
    }

    #[test]
    fn entries_round_trip() {
        for entry in [
            SummaryEntry {
                item: Item::Fragment(Identity::Data {
                    lbn: LBN_MASK,
                    log2: 5,
                    codec: Codec::Zstd,
                }),
                units: 8191,
                op_delta: (1 << 26) - 1,
            },
            SummaryEntry {
                item: Item::Zeros {
                    lbn: 1,
                    blocks: LBN_MASK,
                },
                units: 0,
                op_delta: 1,
            },
            SummaryEntry {
                item: Item::Void,
                units: 17,
                op_delta: 0,
            },
        ] {
            assert_eq!(SummaryEntry::decode(&entry.encode()), Some(entry));
        }
    }
}
