// SPDX-License-Identifier: GPL-2.0

//! Pages of the map, packed field by field.
//!
//! A page is 512 words, each a map entry (`entry.rs`). A base lists its non-zero words behind a
//! bitmap; a delta lists index and word of those that differ from the base. Locations and lengths
//! are stored as differences from the smallest one, in as many bits as the largest needs: entries
//! written together lie together, so both are short.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | form: 0 base, 1 delta |
//! | 2–3 | number of words listed |
//! | 4 | bits of a location, 0 to 46 |
//! | 5 | bits of a length, 0 to 13 |
//! | 6 | bits of log2, 0 or 3 |
//! | 7 | bits of kind, 0 (all mapped) or 2 |
//! | 8–15 | smallest location |
//! | 16–17 | smallest length |
//! | 18–19 | zero |
//! | 20– | base: 64 bytes of bitmap; then the bit stream, least significant bit first |
//!
//! In the bit stream each word is: index (9 bits, delta only), kind, and for mapped words log2,
//! length, location. Where log2 has no bits it is 0.

use super::entry::{Entry, EntryKind};
use super::{get_u16, get_u64, put};
use crate::engine::units::PAGE_WORDS;

/// Largest encoded page in bytes.
pub const BYTES_MAX: usize = HEADER_BYTES + BITMAP_BYTES + PAGE_WORDS * 8;

const HEADER_BYTES: usize = 20;
const BITMAP_BYTES: usize = PAGE_WORDS / 8;
const VERSION: u8 = 1;

/// Words of a page that an encoding lists: one bit each.
pub type WordSet = [u64; PAGE_WORDS / 64];

/// Whether `index` is in `set`.
pub fn contains(set: &WordSet, index: usize) -> bool {
    set.get(index / 64)
        .is_some_and(|word| (word >> (index % 64)) & 1 != 0)
}

/// Adds `index` to `set`.
pub fn insert(set: &mut WordSet, index: usize) {
    if let Some(word) = set.get_mut(index / 64) {
        *word |= 1 << (index % 64);
    }
}

struct Shape {
    count: u16,
    location_bits: u32,
    length_bits: u32,
    log2_bits: u32,
    kind_bits: u32,
    location_min: u64,
    length_min: u32,
}

impl Shape {
    fn word_bits(&self) -> u32 {
        self.kind_bits + self.log2_bits + self.length_bits + self.location_bits
    }

    fn measure(words: impl Iterator<Item = Entry>) -> Shape {
        let (mut count, mut mapped, mut log2_max) = (0u16, 0u16, 0);
        let (mut location_min, mut location_max) = (u64::MAX, 0);
        let (mut length_min, mut length_max) = (u32::MAX, 0);
        for entry in words {
            count += 1;
            if entry.is_mapped() {
                mapped += 1;
                location_min = location_min.min(entry.location());
                location_max = location_max.max(entry.location());
                length_min = length_min.min(entry.units());
                length_max = length_max.max(entry.units());
                log2_max = log2_max.max(entry.log2());
            }
        }
        if mapped == 0 {
            (location_min, location_max, length_min, length_max) = (0, 0, 0, 0);
        }
        Shape {
            count,
            location_bits: u64::BITS - (location_max - location_min).leading_zeros(),
            length_bits: u32::BITS - (length_max - length_min).leading_zeros(),
            log2_bits: if log2_max > 0 { 3 } else { 0 },
            kind_bits: if mapped < count { 2 } else { 0 },
            location_min,
            length_min,
        }
    }

    fn put(&self, out: &mut [u8], form: u8) {
        put(out, 0, &[VERSION, form]);
        put(out, 2, &self.count.to_le_bytes());
        let bits = [
            self.location_bits as u8,
            self.length_bits as u8,
            self.log2_bits as u8,
            self.kind_bits as u8,
        ];
        put(out, 4, &bits);
        put(out, 8, &self.location_min.to_le_bytes());
        put(out, 16, &(self.length_min as u16).to_le_bytes());
        put(out, 18, &[0; 2]);
    }

    fn get(bytes: &[u8]) -> Option<(Shape, bool)> {
        let head = bytes.first_chunk::<HEADER_BYTES>()?;
        let shape = Shape {
            count: get_u16(head, 2),
            location_bits: u32::from(head[4]),
            length_bits: u32::from(head[5]),
            log2_bits: u32::from(head[6]),
            kind_bits: u32::from(head[7]),
            location_min: get_u64(head, 8),
            length_min: u32::from(get_u16(head, 16)),
        };
        let valid = head[0] == VERSION
            && head[1] <= 1
            && usize::from(shape.count) <= PAGE_WORDS
            && shape.location_bits <= 46
            && shape.length_bits <= 13
            && matches!(shape.log2_bits, 0 | 3)
            && matches!(shape.kind_bits, 0 | 2)
            && shape.location_min >> 46 == 0;
        valid.then_some((shape, head[1] == 1))
    }
}

/// Writes bit fields into a zeroed buffer; fields that do not fit are dropped.
struct BitWriter<'a> {
    out: &'a mut [u8],
    bit: usize,
}

impl BitWriter<'_> {
    fn put(&mut self, field: u64, bits: u32) {
        let mut left = bits;
        let mut field = field;
        while left > 0 {
            let shift = (self.bit % 8) as u32;
            let take = left.min(8 - shift);
            if let Some(byte) = self.out.get_mut(self.bit / 8) {
                *byte |= ((field & ((1 << take) - 1)) << shift) as u8;
            }
            field >>= take;
            left -= take;
            self.bit += take as usize;
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    bit: usize,
}

impl BitReader<'_> {
    fn get(&mut self, bits: u32) -> Option<u64> {
        let mut field = 0;
        let mut done = 0;
        while done < bits {
            let shift = (self.bit % 8) as u32;
            let take = (bits - done).min(8 - shift);
            let byte = u64::from(*self.bytes.get(self.bit / 8)?);
            field |= ((byte >> shift) & ((1 << take) - 1)) << done;
            done += take;
            self.bit += take as usize;
        }
        Some(field)
    }
}

fn entry_of(word: u64) -> Entry {
    Entry::from_word(word).unwrap_or(Entry::LOST)
}

fn encode(
    out: &mut [u8],
    words: &[u64; PAGE_WORDS],
    listed: impl Fn(usize, u64) -> bool,
    delta: bool,
) -> Option<usize> {
    let picked = || {
        words
            .iter()
            .enumerate()
            .filter(|(at, word)| listed(*at, **word))
    };
    let shape = Shape::measure(picked().map(|(_, word)| entry_of(*word)));
    let start = HEADER_BYTES + if delta { 0 } else { BITMAP_BYTES };
    let index_bits = if delta { 9 } else { 0 };
    let bits = usize::from(shape.count) * (shape.word_bits() + index_bits) as usize;
    let total = start + bits.div_ceil(8);
    let out = out.get_mut(..total)?;
    out.fill(0);
    shape.put(out, delta.into());
    let (head, stream) = out.split_at_mut(start);
    let mut writer = BitWriter {
        out: stream,
        bit: 0,
    };
    for (at, word) in picked() {
        if delta {
            writer.put(at as u64, 9);
        } else if let Some(byte) = head.get_mut(HEADER_BYTES + at / 8) {
            *byte |= 1 << (at % 8);
        }
        let entry = entry_of(*word);
        let kind = match entry.kind() {
            EntryKind::Unmapped => 0,
            EntryKind::Mapped => 1,
            EntryKind::Lost => 2,
        };
        writer.put(kind, shape.kind_bits);
        if entry.is_mapped() {
            writer.put(entry.log2().into(), shape.log2_bits);
            writer.put((entry.units() - shape.length_min).into(), shape.length_bits);
            writer.put(entry.location() - shape.location_min, shape.location_bits);
        }
    }
    let used = start + writer.bit.div_ceil(8);
    Some(used)
}

/// Encodes a whole page; answers the number of bytes, `None` if `out` is too small.
pub fn encode_base(out: &mut [u8], words: &[u64; PAGE_WORDS]) -> Option<usize> {
    encode(out, words, |_, word| word != 0, false)
}

/// Encodes the words of `changed`; answers the number of bytes, `None` if `out` is too small.
pub fn encode_delta(out: &mut [u8], words: &[u64; PAGE_WORDS], changed: &WordSet) -> Option<usize> {
    encode(out, words, |at, _| contains(changed, at), true)
}

fn decode_entry(reader: &mut BitReader<'_>, shape: &Shape) -> Option<Entry> {
    let kind = match shape.kind_bits {
        0 => 1,
        bits => reader.get(bits)?,
    };
    match kind {
        0 => Some(Entry::UNMAPPED),
        1 => {
            let log2 = reader.get(shape.log2_bits)? as u8;
            let units = shape.length_min + reader.get(shape.length_bits)? as u32;
            let location = shape.location_min + reader.get(shape.location_bits)?;
            Entry::mapped(location, units, log2)
        }
        2 => Some(Entry::LOST),
        _ => None,
    }
}

/// Decodes a base into `words`, overwriting all of them. `None`: malformed.
pub fn decode_base(bytes: &[u8], words: &mut [u64; PAGE_WORDS]) -> Option<()> {
    let (shape, delta) = Shape::get(bytes)?;
    if delta {
        return None;
    }
    let bitmap = bytes.get(HEADER_BYTES..)?.first_chunk::<BITMAP_BYTES>()?;
    let listed: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
    if listed != u32::from(shape.count) {
        return None;
    }
    let mut reader = BitReader {
        bytes: bytes.get(HEADER_BYTES + BITMAP_BYTES..)?,
        bit: 0,
    };
    for (at, word) in words.iter_mut().enumerate() {
        let present = bitmap
            .get(at / 8)
            .is_some_and(|byte| (byte >> (at % 8)) & 1 != 0);
        *word = if present {
            decode_entry(&mut reader, &shape)?.word()
        } else {
            0
        };
    }
    Some(())
}

/// Applies a delta to `words` and adds the indices it lists to `changed`. `None`: malformed.
pub fn apply_delta(
    bytes: &[u8],
    words: &mut [u64; PAGE_WORDS],
    changed: &mut WordSet,
) -> Option<()> {
    let (shape, delta) = Shape::get(bytes)?;
    if !delta {
        return None;
    }
    let mut reader = BitReader {
        bytes: bytes.get(HEADER_BYTES..)?,
        bit: 0,
    };
    for _ in 0..shape.count {
        let index = reader.get(9)? as usize;
        let entry = decode_entry(&mut reader, &shape)?;
        *words.get_mut(index)? = entry.word();
        insert(changed, index);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u64) -> [u64; PAGE_WORDS] {
        let mut state = seed | 1;
        let mut words = [0; PAGE_WORDS];
        for word in &mut words {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(seed | 3);
            *word = match state >> 60 {
                0 => 0,
                1 if seed % 2 == 0 => Entry::LOST.word(),
                _ => Entry::mapped(
                    (state >> 20) & ((1 << (seed % 47)) - 1),
                    2 + (state >> 8) as u32 % 256,
                    if seed % 3 == 0 {
                        (state >> 50) as u8 % 6
                    } else {
                        0
                    },
                )
                .unwrap()
                .word(),
            };
        }
        words
    }

    #[test]
    fn bases_round_trip() {
        let mut out = [0; BYTES_MAX];
        for seed in 0..200 {
            let words = page(seed);
            let bytes = encode_base(&mut out, &words).unwrap();
            let mut back = [1; PAGE_WORDS];
            decode_base(&out[..bytes], &mut back).unwrap();
            assert_eq!(words, back);
        }
    }

    #[test]
    fn deltas_round_trip() {
        let mut out = [0; BYTES_MAX];
        for seed in 0..200u64 {
            let (old, new) = (page(seed), page(seed + 1000));
            let mut set = [0; 8];
            let mut expected = old;
            for at in (0..PAGE_WORDS).step_by(2 + seed as usize % 40) {
                insert(&mut set, at);
                expected[at] = new[at];
            }
            let bytes = encode_delta(&mut out, &new, &set).unwrap();
            let (mut words, mut found) = (old, [0; 8]);
            apply_delta(&out[..bytes], &mut words, &mut found).unwrap();
            assert_eq!((words, found), (expected, set));
        }
    }

    #[test]
    fn entries_written_together_are_short() {
        let mut words = [0; PAGE_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = Entry::mapped((5 << 30) + at as u64 * 128, 128 + at as u32 % 8, 0)
                .unwrap()
                .word();
        }
        let mut out = [0; BYTES_MAX];
        assert!(encode_base(&mut out, &words).unwrap() < 1400);
    }

    #[test]
    fn garbage_is_refused_or_decoded_without_panic() {
        let mut out = [0; BYTES_MAX];
        let bytes = encode_base(&mut out, &page(6)).unwrap();
        for bit in 0..bytes * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            let mut words = [0; PAGE_WORDS];
            let _ = decode_base(&out[..bytes], &mut words);
            let _ = apply_delta(&out[..bytes], &mut words, &mut [0; 8]);
            assert!(words.iter().all(|word| Entry::from_word(*word).is_some()));
            out[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(decode_base(&out[..30], &mut [0; PAGE_WORDS]), None);
    }
}
