// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers around what the kernel offers in C and the `kernel` crate does not (yet).
//!
//! All `unsafe` code and all raw bindings of the driver are in this directory. Each file wraps one
//! thing, is named as the kernel would name it, and can go when the `kernel` crate has its like.
//!
//! | from above: requests | from below: I/O | between |
//! |---|---|---|
//! | [`gendisk`] the disk | [`block_device`] the lower device | [`workqueue`] threads and ticks |
//! | [`blk_mq`] queues and callbacks | [`bio`] asynchronous I/O | [`codec`] lz4, zstd |
//! | [`request`] one request and its data | [`iobuf`] memory for it | [`xxhash`] checksum |
//! | [`sysfs`] attributes and control files | [`arena`] memory under a lock | [`memalloc`] no I/O from allocations |
//! | | | [`handoff`] values between contexts, [`random`] numbers |
//!
//! [`module`] keeps the module loaded, `compat` has what depends on the version of the kernel, and
//! `bindings` what bindgen made from `rust/bindings/zbd_bindings.h`.

// What is not used yet by the driver is still tested.
#![allow(dead_code)]

mod bindings;
mod compat;

pub(crate) mod arena;
pub(crate) mod bio;
pub(crate) mod blk_mq;
pub(crate) mod block_device;
pub(crate) mod codec;
pub(crate) mod gendisk;
pub(crate) mod handoff;
pub(crate) mod iobuf;
pub(crate) mod memalloc;
pub(crate) mod module;
pub(crate) mod random;
pub(crate) mod request;
pub(crate) mod sysfs;
pub(crate) mod workqueue;
pub(crate) mod xxhash;

pub(crate) use compat::errno;

#[cfg(CONFIG_ZBD_KUNIT_TEST)]
mod tests;
