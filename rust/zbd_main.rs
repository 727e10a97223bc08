// SPDX-License-Identifier: GPL-2.0

//! zbd: a block device that compresses what is written to it, and packs it into a log on another.
//!
//! Modules, in the order in which data passes through them:
//!
//! | module | what it does |
//! |---|---|
//! | [`driver`] | requests, threads, buffers, I/O, control files |
//! | [`engine`] | format, map, log, garbage collection, recovery: pure, also built for the host |
//! | [`linux`] | safe wrappers around C: disks and requests above, bios below, codecs, sysfs |
//! | [`mem`], [`hash`], [`planted`] | what the engine asks of its surroundings |
//!
//! Every `unsafe` of the driver is in [`linux`].

use kernel::prelude::*;

mod driver;
// The same files are a public crate on the host, where tests and tools use all of it.
#[allow(dead_code, unreachable_pub, unused_imports)]
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
    params: {
        cache_mib: u32 {
            default: 64,
            description: "Memory for the map's cache of each volume, in MiB",
        },
    },
}

/// The module.
struct Zbd {
    /// Dropped first when the module goes: no disk exists by then.
    _control: Pin<KBox<linux::sysfs::Class<driver::control::Control>>>,
}

impl kernel::Module for Zbd {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Whether this is a value or a reference differs between versions of the kernel.
        let cache_pages = module_parameters::cache_mib
            .value()
            .saturating_mul(driver::control::PAGES_PER_MIB);
        Ok(Zbd {
            _control: driver::control::new(cache_pages)?,
        })
    }
}
