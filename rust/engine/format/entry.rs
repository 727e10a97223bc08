// SPDX-License-Identifier: GPL-2.0

//! Map entries: one 64-bit word per logical block, and per child of a directory page.
//!
//! | bits | field |
//! |---|---|
//! | 0–45 | location of the fragment, in units |
//! | 46–58 | stored length, in units, header included |
//! | 59–61 | log2 of the extent's blocks, 0 to 5 |
//! | 62–63 | kind: 0 unmapped (the whole word is 0), 1 mapped, 2 lost (the rest is 0) |

/// log2 of the largest extent's blocks: 32 blocks, 128 KiB.
pub const EXTENT_SHIFT_MAX: u8 = 5;
/// Largest stored length of a fragment in units.
pub const FRAGMENT_UNITS_MAX: u32 = (1 << 13) - 1;

const LOCATION_BITS: u32 = 46;
const LENGTH_SHIFT: u32 = 46;
const LOG2_SHIFT: u32 = 59;
const KIND_SHIFT: u32 = 62;

/// What a map entry says about its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Reads as zeros.
    Unmapped,
    /// Stored as part of a fragment.
    Mapped,
    /// Lost to unreadable media: reads as an I/O error until it is rewritten.
    Lost,
}

/// A map entry.
///
/// # Invariants
///
/// The word has one of the three shapes above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entry(u64);

impl Entry {
    /// The entry of a block that reads as zeros.
    pub const UNMAPPED: Entry = Entry(0);
    /// The entry of a block whose data is lost.
    pub const LOST: Entry = Entry(2 << KIND_SHIFT);

    /// An entry for a fragment of `units` units at `location` that holds `1 << log2` blocks.
    ///
    /// `None` if a field is out of its range.
    pub const fn mapped(location: u64, units: u32, log2: u8) -> Option<Entry> {
        if location >> LOCATION_BITS != 0
            || units < 2
            || units > FRAGMENT_UNITS_MAX
            || log2 > EXTENT_SHIFT_MAX
        {
            return None;
        }
        Some(Entry(
            location
                | ((units as u64) << LENGTH_SHIFT)
                | ((log2 as u64) << LOG2_SHIFT)
                | (1 << KIND_SHIFT),
        ))
    }

    /// Checks a word read from disk.
    pub const fn from_word(word: u64) -> Option<Entry> {
        match word >> KIND_SHIFT {
            0 if word == 0 => Some(Entry::UNMAPPED),
            1 => Entry::mapped(
                word & ((1 << LOCATION_BITS) - 1),
                (word >> LENGTH_SHIFT) as u32 & FRAGMENT_UNITS_MAX,
                (word >> LOG2_SHIFT) as u8 & 7,
            ),
            2 if word == Entry::LOST.0 => Some(Entry::LOST),
            _ => None,
        }
    }

    /// The word as stored.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// What the entry says.
    pub const fn kind(self) -> EntryKind {
        match self.0 >> KIND_SHIFT {
            0 => EntryKind::Unmapped,
            1 => EntryKind::Mapped,
            _ => EntryKind::Lost,
        }
    }

    /// Whether the block is stored somewhere.
    pub const fn is_mapped(self) -> bool {
        self.0 >> KIND_SHIFT == 1
    }

    /// Location of the fragment in units; meaningful when mapped.
    pub const fn location(self) -> u64 {
        self.0 & ((1 << LOCATION_BITS) - 1)
    }

    /// Stored length in units; meaningful when mapped.
    pub const fn units(self) -> u32 {
        (self.0 >> LENGTH_SHIFT) as u32 & FRAGMENT_UNITS_MAX
    }

    /// log2 of the extent's blocks; meaningful when mapped.
    pub const fn log2(self) -> u8 {
        (self.0 >> LOG2_SHIFT) as u8 & 7
    }

    /// The units of the fragment that are charged to block `lbn`: shares of an extent add up to
    /// its length exactly.
    pub const fn share(self, lbn: u64) -> u32 {
        if !self.is_mapped() {
            return 0;
        }
        let blocks = 1u32 << self.log2();
        let index = lbn as u32 & (blocks - 1);
        self.units() / blocks + (index < self.units() % blocks) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_at_the_bounds() {
        for (location, units, log2) in [(0, 2, 0), ((1 << 46) - 1, 8191, 5), (12345, 257, 0)] {
            let entry = Entry::mapped(location, units, log2).unwrap();
            assert_eq!(Entry::from_word(entry.word()), Some(entry));
            assert_eq!(
                (entry.location(), entry.units(), entry.log2()),
                (location, units, log2)
            );
        }
        assert_eq!(Entry::mapped(1 << 46, 2, 0), None);
        assert_eq!(Entry::mapped(0, 8192, 0), None);
        assert_eq!(Entry::mapped(0, 1, 0), None);
        assert_eq!(Entry::mapped(0, 2, 6), None);
    }

    #[test]
    fn malformed_words_are_refused() {
        assert_eq!(Entry::from_word(1), None);
        assert_eq!(Entry::from_word(3 << 62), None);
        assert_eq!(Entry::from_word(Entry::LOST.word() | 1), None);
    }

    #[test]
    fn shares_add_up() {
        for units in [2, 31, 257, 8191] {
            for log2 in 0..=5 {
                let entry = Entry::mapped(7, units, log2).unwrap();
                let sum: u32 = (0..1u64 << log2).map(|lbn| entry.share(64 + lbn)).sum();
                assert_eq!(sum, units);
            }
        }
    }
}
