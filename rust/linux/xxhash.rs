// SPDX-License-Identifier: GPL-2.0

//! The xxh64 checksum.
//!
//! C header: [`include/linux/xxhash.h`](srctree/include/linux/xxhash.h)

use super::bindings;

/// xxh64 of `bytes`, started with `seed`. Any context.
pub(crate) fn xxh64(bytes: &[u8], seed: u64) -> u64 {
    // SAFETY: the pointer is valid for that many bytes.
    unsafe { bindings::xxh64(bytes.as_ptr().cast(), bytes.len(), seed) }
}
