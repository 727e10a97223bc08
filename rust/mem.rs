// SPDX-License-Identifier: GPL-2.0

//! Memory as the engine asks for it: boxes and vectors that are allocated fallibly, mostly once.
//!
//! The engine is compiled for the kernel and for the host from the same files. This is the kernel's
//! side of the seam; the host has its own file with the same items.

use kernel::prelude::*;

pub(crate) use kernel::alloc::AllocError;

/// A vector that may be as large as memory is; not physically contiguous when large.
pub(crate) type Vec<T> = KVVec<T>;

/// A value in memory of its own.
pub(crate) type Box<T> = KVBox<T>;

/// Moves `value` into memory of its own. May sleep.
pub(crate) fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    Box::new(value, GFP_KERNEL)
}

/// A vector of `n` copies of `value`. May sleep.
pub(crate) fn try_vec<T: Clone>(n: usize, value: T) -> Result<Vec<T>, AllocError> {
    Vec::from_elem(value, n, GFP_KERNEL)
}

/// Appends `value`. May sleep, if the vector has to grow.
pub(crate) fn try_push<T>(vec: &mut Vec<T>, value: T) -> Result<(), AllocError> {
    vec.push(value, GFP_KERNEL)
}
