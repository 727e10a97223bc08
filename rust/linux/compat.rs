// SPDX-License-Identifier: GPL-2.0

//! What depends on the version of the kernel (7.2, 7.3).
//!
//! Everything else in this directory uses only what all supported versions have in the same form.

use super::bindings;
use kernel::prelude::*;

/// `THIS_MODULE`: null when built in.
///
/// Where the `module!` macro keeps it differs between versions, the symbol behind it does not.
pub(super) const fn this_module() -> *mut bindings::module {
    #[cfg(MODULE)]
    {
        extern "C" {
            static __this_module: u8;
        }
        // The symbol is in every module. Only its address is taken.
        (&raw const __this_module).cast_mut().cast()
    }
    #[cfg(not(MODULE))]
    {
        core::ptr::null_mut()
    }
}

/// Initialises memory in place.
///
/// # Safety
///
/// `slot` must be memory for a `T`, not initialised, that does not move before the value is dropped
/// in place. On error it stays uninitialised.
pub(super) unsafe fn pin_init_at<T>(slot: *mut T, init: impl PinInit<T, Error>) -> Result {
    #[cfg(not(zbd_kernel_before_7_3))]
    {
        // SAFETY: by the requirements of this function.
        unsafe { pin_init::raw_try_init(slot, init) }?;
        Ok(())
    }
    #[cfg(zbd_kernel_before_7_3)]
    {
        // SAFETY: by the requirements of this function.
        unsafe { init.__pinned_init(slot) }
    }
}
