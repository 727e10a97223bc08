// SPDX-License-Identifier: GPL-2.0

//! What people write into control files, as values.
//!
//! Words are separated by white space: first the device, then `KEY=VALUE` or plain words.

use crate::engine::{
    create::NewVolume,
    format::{
        fragment::Codec,
        root::{
            Options,
            LABEL_BYTES, //
        }, //
    },
    units::BLOCK_BYTES, //
};
use crate::linux::{
    codec::ZstdCompressor,
    random, //
};
use kernel::{
    fmt::Write,
    prelude::*,
    str::{
        CString,
        Formatter, //
    }, //
};

/// Longest path of a device.
const PATH_BYTES_MAX: usize = 255;
/// Level of zstd where none is given.
const ZSTD_LEVEL_DEFAULT: u8 = 1;
/// Largest acceleration of lz4.
const LZ4_LEVEL_MAX: u8 = 16;

/// A device path, as the kernel takes it: `EINVAL` if it cannot be one.
pub(super) fn path(word: &str) -> Result<CString> {
    if word.is_empty() || word.len() > PATH_BYTES_MAX {
        return Err(EINVAL);
    }
    CString::try_from_fmt(fmt!("{}", word))
}

/// A size in bytes: a number, and K, M, G, T or P for powers of 1024.
pub(super) fn size(word: &str) -> Result<u64> {
    let (digits, shift) = match word.as_bytes().last() {
        Some(b'K' | b'k') => (word.get(..word.len() - 1), 10),
        Some(b'M' | b'm') => (word.get(..word.len() - 1), 20),
        Some(b'G' | b'g') => (word.get(..word.len() - 1), 30),
        Some(b'T' | b't') => (word.get(..word.len() - 1), 40),
        Some(b'P' | b'p') => (word.get(..word.len() - 1), 50),
        _ => (Some(word), 0),
    };
    let number: u64 = digits.and_then(|d| d.parse().ok()).ok_or(EINVAL)?;
    number.checked_mul(1 << shift).ok_or(ERANGE)
}

/// `lz4`, `lz4:ACCELERATION`, `zstd` or `zstd:LEVEL`; `ERANGE` for a level that does not exist.
pub(super) fn codec(word: &str) -> Result<(Codec, u8)> {
    let (name, level) = match word.split_once(':') {
        Some((name, level)) => (name, Some(level.parse::<u8>().map_err(|_| EINVAL)?)),
        None => (word, None),
    };
    match name {
        "lz4" => {
            let level = level.unwrap_or(1);
            if !(1..=LZ4_LEVEL_MAX).contains(&level) {
                return Err(ERANGE);
            }
            Ok((Codec::Lz4, level))
        }
        "zstd" => {
            let level = level.unwrap_or(ZSTD_LEVEL_DEFAULT);
            if level == 0 || !ZstdCompressor::levels().contains(&i32::from(level)) {
                return Err(ERANGE);
            }
            Ok((Codec::Zstd, level))
        }
        _ => Err(EINVAL),
    }
}

/// Writes a codec as [`codec`] reads it.
pub(super) fn write_codec(to: &mut Formatter<'_>, options: &Options) -> Result {
    let written = match (Codec::from_code(options.codec), options.level) {
        (Some(Codec::Lz4), 0 | 1) => to.write_str("lz4"),
        (Some(Codec::Lz4), level) => write!(to, "lz4:{level}"),
        (Some(Codec::Zstd), level) => write!(to, "zstd:{level}"),
        _ => to.write_str("none"),
    };
    written.map_err(|_| EIO)
}

fn on_or_off(word: &str) -> Result<bool> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(EINVAL),
    }
}

/// A name of up to [`LABEL_BYTES`] bytes.
fn label(word: &str) -> Result<[u8; LABEL_BYTES]> {
    let mut label = [0; LABEL_BYTES];
    if word.chars().any(char::is_control) {
        return Err(EINVAL);
    }
    label
        .get_mut(..word.len())
        .ok_or(ERANGE)?
        .copy_from_slice(word.as_bytes());
    Ok(label)
}

/// 32 hexadecimal digits, with dashes anywhere.
fn uuid(word: &str) -> Result<[u8; 16]> {
    let mut uuid = [0u8; 16];
    let mut digits = 0;
    for byte in word.bytes().filter(|byte| *byte != b'-') {
        let digit = char::from(byte).to_digit(16).ok_or(EINVAL)? as u8;
        let place = uuid.get_mut(digits / 2).ok_or(EINVAL)?;
        *place = *place << 4 | digit;
        digits += 1;
    }
    if digits == 32 {
        Ok(uuid)
    } else {
        Err(EINVAL)
    }
}

/// A random UUID (version 4).
fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    random::fill(&mut uuid);
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut uuid;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    uuid
}

/// What a volume should be like, from the words behind the device.
///
/// `codec=`, `size=` (logical), `zone=`, `label=`, `uuid=`, `copies=` (of metadata), `straddle=on|off`,
/// `force`; each at most once, else `EINVAL`.
pub(super) fn new_volume<'a>(words: impl Iterator<Item = &'a str>) -> Result<NewVolume> {
    let mut volume = NewVolume {
        uuid: random_uuid(),
        label: [0; LABEL_BYTES],
        logical_blocks: None,
        zone_blocks: None,
        metadata_copies: 2,
        options: Options {
            straddle: true,
            codec: Codec::Lz4.code(),
            level: 1,
        },
        force: false,
    };
    let mut seen = 0u32;
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let bit = match key {
            "codec" => {
                let (codec, level) = codec(value)?;
                volume.options.codec = codec.code();
                volume.options.level = level;
                1
            }
            "size" => {
                volume.logical_blocks = Some(blocks(size(value)?)?);
                2
            }
            "zone" => {
                let blocks = blocks(size(value)?)?;
                volume.zone_blocks = Some(blocks.try_into().map_err(|_| ERANGE)?);
                4
            }
            "label" => {
                volume.label = label(value)?;
                8
            }
            "uuid" => {
                volume.uuid = uuid(value)?;
                16
            }
            "copies" => {
                volume.metadata_copies = value.parse().map_err(|_| EINVAL)?;
                if !(1..=2).contains(&volume.metadata_copies) {
                    return Err(ERANGE);
                }
                32
            }
            "straddle" => {
                volume.options.straddle = on_or_off(value)?;
                64
            }
            "force" if word == "force" => {
                volume.force = true;
                128
            }
            _ => return Err(EINVAL),
        };
        if seen & bit != 0 {
            return Err(EINVAL);
        }
        seen |= bit;
    }
    Ok(volume)
}

/// Whole blocks of `bytes` bytes, at least one, else `ERANGE`.
fn blocks(bytes: u64) -> Result<u64> {
    let blocks = bytes / BLOCK_BYTES as u64;
    if blocks == 0 || bytes % BLOCK_BYTES as u64 != 0 {
        return Err(ERANGE);
    }
    Ok(blocks)
}
