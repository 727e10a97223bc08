// SPDX-License-Identifier: GPL-2.0

//! Bindings that the kernel crate does not offer: compression, checksum, inline block functions.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub(super) use ::kernel::bindings::*;
use ::kernel::ffi;
use ::pin_init::MaybeZeroable;

include!(env!("ZBD_BINDINGS"));
