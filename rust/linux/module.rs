// SPDX-License-Identifier: GPL-2.0

//! This module's own `struct module`.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use super::{
    bindings,
    compat, //
};
use kernel::prelude::*;

/// Keeps this module from being unloaded.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference; `ENODEV` when the module is already on its way out.
    pub(crate) fn try_new() -> Result<Self> {
        // SAFETY: our own module, or null when built in, which is fine.
        if unsafe { bindings::try_module_get(compat::this_module()) } {
            Ok(Self(()))
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: the reference was taken in `try_new`.
        unsafe { bindings::module_put(compat::this_module()) };
    }
}
