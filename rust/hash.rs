// SPDX-License-Identifier: GPL-2.0

//! The checksum as the engine asks for it: the kernel's side of the seam.

/// xxh64 of `bytes`, started with `seed`.
pub(crate) fn xxh64(seed: u64, bytes: &[u8]) -> u64 {
    crate::linux::xxhash::xxh64(bytes, seed)
}
