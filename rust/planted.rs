// SPDX-License-Identifier: GPL-2.0

//! Bugs that tests plant in the engine: there are none in the kernel.

use crate::engine::planted::Bug;

/// Whether a bug is planted: never here, so that the compiler removes it.
pub(crate) const fn active(_bug: Bug) -> bool {
    false
}

/// An invariant does not hold. The volume says so itself, with its name, and becomes read-only.
pub(crate) const fn broken(_reason: &'static str) {}
