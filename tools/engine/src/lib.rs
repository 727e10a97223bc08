// SPDX-License-Identifier: GPL-2.0

//! The engine of zbd as a host crate: the same files as in the kernel module, with the host's
//! memory and checksums behind the same names.

#![deny(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../../rust/engine/mod.rs"]
pub mod engine;
pub mod hash;
pub mod mem;
pub mod planted;

pub use engine::*;
