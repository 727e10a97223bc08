// SPDX-License-Identifier: GPL-2.0

//! Fragments: an extent or a metadata page as it is stored.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | xxh64 of everything that follows, padding included, seeded with the fragment's place |
//! | 8–15 | bits 0–37 LBN or page index; 38–40 log2 of blocks, or page level; 41–58 payload bytes; 59–61 codec, or metadata type; 62–63 kind: 1 data, 2 metadata |
//! | 16– | payload, zero-padded to whole units |

use super::{get_u64, put};
use crate::engine::units::{units_for_bytes, UNIT_BYTES};
use crate::hash::xxh64;

/// Bytes of a fragment's header.
pub const HEADER_BYTES: usize = 16;
/// Largest payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = (super::entry::FRAGMENT_UNITS_MAX as usize - 1) * UNIT_BYTES;

const LBN_BITS: u32 = 38;

/// How a data fragment's payload is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As is.
    Raw,
    /// LZ4 block format.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Codec {
    /// The codec's number on disk.
    pub const fn code(self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    /// The codec of a number on disk.
    pub const fn from_code(code: u8) -> Option<Codec> {
        match code {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// What a metadata fragment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// A page of the map in full.
    PageBase,
    /// The words of a page that differ from its base.
    PageDelta,
    /// A page of the zone table.
    ZoneTable,
}

impl Metadata {
    const fn code(self) -> u8 {
        match self {
            Metadata::PageBase => 0,
            Metadata::PageDelta => 1,
            Metadata::ZoneTable => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Metadata> {
        match code {
            0 => Some(Metadata::PageBase),
            1 => Some(Metadata::PageDelta),
            2 => Some(Metadata::ZoneTable),
            _ => None,
        }
    }
}

/// What a fragment is about: the part of its header that identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// `1 << log2` logical blocks from `lbn`.
    Data {
        /// First block.
        lbn: u64,
        /// log2 of the number of blocks, 0 to 5.
        log2: u8,
        /// Encoding of the payload.
        codec: Codec,
    },
    /// A metadata page.
    Metadata {
        /// What the page is.
        kind: Metadata,
        /// Level in the map: 0 for leaves. 0 for the zone table.
        level: u8,
        /// Index among the pages of its level.
        index: u64,
    },
}

impl Identity {
    /// The identity's bits of the header word; the payload length is left out.
    pub const fn bits(self) -> u64 {
        match self {
            Identity::Data { lbn, log2, codec } => {
                lbn & ((1 << LBN_BITS) - 1)
                    | ((log2 as u64 & 7) << 38)
                    | ((codec.code() as u64) << 59)
                    | (1 << 62)
            }
            Identity::Metadata { kind, level, index } => {
                index & ((1 << LBN_BITS) - 1)
                    | ((level as u64 & 7) << 38)
                    | ((kind.code() as u64) << 59)
                    | (2 << 62)
            }
        }
    }

    /// The identity of a header word.
    pub const fn from_bits(word: u64) -> Option<Identity> {
        let number = word & ((1 << LBN_BITS) - 1);
        let log2 = (word >> 38) as u8 & 7;
        let code = (word >> 59) as u8 & 7;
        match word >> 62 {
            1 => match Codec::from_code(code) {
                Some(codec) if log2 <= super::entry::EXTENT_SHIFT_MAX => Some(Identity::Data {
                    lbn: number,
                    log2,
                    codec,
                }),
                _ => None,
            },
            2 => match Metadata::from_code(code) {
                Some(kind) => Some(Identity::Metadata {
                    kind,
                    level: log2,
                    index: number,
                }),
                None => None,
            },
            _ => None,
        }
    }
}

/// Units that a payload of `bytes` bytes takes as a fragment.
pub const fn stored_units(bytes: usize) -> u32 {
    units_for_bytes(bytes) + 1
}

/// Writes a fragment into `room` and answers whether it fitted.
///
/// `room` must be exactly `stored_units(payload.len())` units long. May run without any lock.
#[must_use]
pub fn seal(room: &mut [u8], seed: u64, identity: Identity, payload: &[u8]) -> bool {
    let Some(body) = room.get_mut(HEADER_BYTES..) else {
        return false;
    };
    let Some(padding) = body.len().checked_sub(payload.len()) else {
        return false;
    };
    if padding >= UNIT_BYTES || payload.len() > PAYLOAD_BYTES_MAX {
        return false;
    }
    let (data, rest) = body.split_at_mut(payload.len());
    data.copy_from_slice(payload);
    rest.fill(0);
    put(
        room,
        8,
        &(identity.bits() | ((payload.len() as u64) << 41)).to_le_bytes(),
    );
    reseal(room, seed)
}

/// Recomputes a fragment's checksum for another place; answers whether there was one.
#[must_use]
pub fn reseal(fragment: &mut [u8], seed: u64) -> bool {
    let Some(sum) = fragment.get(8..).map(|covered| xxh64(seed, covered)) else {
        return false;
    };
    put(fragment, 0, &sum.to_le_bytes())
}

/// Why a stored fragment was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentError {
    /// The checksum does not match: rotten, torn, stale or misplaced.
    Checksum,
    /// The checksum matches, but the header contradicts the place or itself.
    Header,
}

/// Verifies the fragment that fills `fragment` exactly and returns what it is and its payload.
///
/// # Errors
///
/// [`FragmentError`] if the bytes are not a fragment that was sealed for this seed.
pub fn open(fragment: &[u8], seed: u64) -> Result<(Identity, &[u8]), FragmentError> {
    let covered = fragment.get(8..).ok_or(FragmentError::Header)?;
    if xxh64(seed, covered) != get_u64(fragment, 0) {
        return Err(FragmentError::Checksum);
    }
    let word = get_u64(fragment, 8);
    let identity = Identity::from_bits(word).ok_or(FragmentError::Header)?;
    let bytes = (word >> 41) as usize & 0x3_ffff;
    let body = fragment.get(HEADER_BYTES..).ok_or(FragmentError::Header)?;
    let payload = body.get(..bytes).ok_or(FragmentError::Header)?;
    if body.len() - bytes >= UNIT_BYTES {
        return Err(FragmentError::Header);
    }
    Ok((identity, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: usize) -> (std::vec::Vec<u8>, Identity) {
        let payload: std::vec::Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let identity = Identity::Data {
            lbn: (1 << 38) - 1,
            log2: 5,
            codec: Codec::Zstd,
        };
        let mut room = std::vec![0xffu8; stored_units(bytes) as usize * UNIT_BYTES];
        assert!(seal(&mut room, 42, identity, &payload));
        (room, identity)
    }

    #[test]
    fn fragments_round_trip() {
        for bytes in [1, 15, 16, 17, 4096, PAYLOAD_BYTES_MAX] {
            let (room, identity) = sample(bytes);
            let (found, payload) = open(&room, 42).unwrap();
            assert_eq!(found, identity);
            assert_eq!(payload.len(), bytes);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (room, _) = sample(40);
        for bit in 0..room.len() * 8 {
            let mut bad = room.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&bad, 42), Err(FragmentError::Checksum));
        }
    }

    #[test]
    fn another_place_is_refused() {
        let (mut room, _) = sample(40);
        assert_eq!(open(&room, 43), Err(FragmentError::Checksum));
        assert!(reseal(&mut room, 43));
        assert!(open(&room, 43).is_ok());
    }

    #[test]
    fn wrong_length_is_refused_even_with_a_right_checksum() {
        let (mut room, _) = sample(40);
        room.resize(room.len() + 16, 0);
        assert!(reseal(&mut room, 1));
        assert_eq!(open(&room, 1), Err(FragmentError::Header));
    }
}
