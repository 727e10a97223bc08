// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;

/// Fills `bytes` with random bytes that nobody can guess. Any context.
pub(crate) fn fill(bytes: &mut [u8]) {
    // SAFETY: valid for that many bytes.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
}
