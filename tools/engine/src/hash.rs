// SPDX-License-Identifier: GPL-2.0

//! The engine's checksum on the host.

/// xxh64 of `bytes` with `seed`.
pub fn xxh64(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh64::xxh64(bytes, seed)
}
