// SPDX-License-Identifier: GPL-2.0

//! zbd: a block device that compresses what is written to it, and packs it into a log on another.
//!
//! Modules, in the order in which data passes through them:
//!
//! | module | what it does |
//! |---|---|
//! | [`linux`] | safe wrappers around C: disks and requests above, bios below, codecs, sysfs |
//! | [`mem`], [`hash`] | the two things that the engine asks of its surroundings |
//!
//! Every `unsafe` of the driver is in [`linux`].

use kernel::prelude::*;

// The same files are a public crate on the host, where tests and tools use all of it.
#[allow(dead_code, unreachable_pub)]
mod engine;
mod hash;
mod linux;
mod mem;
mod planted;

module! {
    type: Zbd,
    name: "zbd",
    authors: ["The zbd developers"],
    description: "Compressing log-structured block device",
    license: "GPL",
}

/// The module.
struct Zbd;

impl kernel::Module for Zbd {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Zbd)
    }
}
