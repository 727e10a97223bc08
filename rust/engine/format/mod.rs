// SPDX-License-Identifier: GPL-2.0

//! The bytes on the lower device, and nothing else: encoding, decoding, validation.
//!
//! Format version 1; `Documentation/format.md` describes it field by field. Everything is
//! little-endian. Decoders take any bytes: they answer with an error, never panic, loop or
//! allocate by an unchecked field.

pub mod entry;
pub mod fragment;
pub mod packed;
pub mod root;
pub mod segment;
pub mod zone_table;

/// Version of the format that this code writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Reads a little-endian `u16`; 0 past the end.
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        Some(raw) => u16::from_le_bytes(*raw),
        None => 0,
    }
}

/// Reads a little-endian `u32`; 0 past the end.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(raw) => u32::from_le_bytes(*raw),
        None => 0,
    }
}

/// Reads a little-endian `u64`; 0 past the end.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(raw) => u64::from_le_bytes(*raw),
        None => 0,
    }
}

/// Writes `field` at `at`; answers whether it fitted.
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) -> bool {
    match bytes
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..field.len()))
    {
        Some(room) => {
            room.copy_from_slice(field);
            true
        }
        None => false,
    }
}
