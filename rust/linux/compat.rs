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

/// How many bytes of its current vector an iterator has behind it.
pub(super) fn bvec_done(iter: &bindings::bvec_iter) -> u32 {
    #[cfg(not(zbd_kernel_before_7_3))]
    {
        iter.bi_offset
    }
    #[cfg(zbd_kernel_before_7_3)]
    {
        iter.bi_bvec_done
    }
}

/// Sets what [`bvec_done`] gets.
pub(super) fn set_bvec_done(iter: &mut bindings::bvec_iter, done: u32) {
    #[cfg(not(zbd_kernel_before_7_3))]
    {
        iter.bi_offset = done;
    }
    #[cfg(zbd_kernel_before_7_3)]
    {
        iter.bi_bvec_done = done;
    }
}

/// Error numbers that the `kernel` crate does not have in all versions.
pub(crate) mod errno {
    macro_rules! errno {
        ($($name:ident)*) => {
            #[cfg(not(zbd_kernel_before_7_3))]
            pub(crate) use kernel::error::code::{$($name),*};
            $(
                #[cfg(zbd_kernel_before_7_3)]
                #[doc = concat!("The error `", stringify!($name), "`.")]
                pub(crate) const $name: kernel::error::Error =
                    before_7_3(super::bindings::$name as i32);
            )*
        };
    }

    errno! {
        EBADMSG ENAMETOOLONG ENODATA ENOLINK ENOTUNIQ EOPNOTSUPP EPROTONOSUPPORT EUCLEAN
    }

    /// Makes an error of a positive error number.
    #[cfg(zbd_kernel_before_7_3)]
    const fn before_7_3(number: i32) -> kernel::error::Error {
        let Some(errno) = core::num::NonZeroI32::new(-number) else {
            return kernel::error::code::EINVAL;
        };
        // SAFETY: an `Error` is a struct of one such number, between `-MAX_ERRNO` and -1 as this
        // one is. A field as large as its struct (the compiler checks that) is at its start.
        unsafe { core::mem::transmute(errno) }
    }
}
