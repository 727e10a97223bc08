// SPDX-License-Identifier: GPL-2.0

//! Bugs that tests plant in the engine: there are none in the kernel.

use crate::engine::planted::Bug;
use kernel::prelude::*;

/// Whether a bug is planted: never here, so that the compiler removes it.
pub(crate) const fn active(_bug: Bug) -> bool {
    false
}

/// An invariant does not hold; the volume will be read-only.
pub(crate) fn broken(reason: &'static str) {
    pr_err!("broken invariant: {}\n", reason);
}
