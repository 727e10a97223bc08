// SPDX-License-Identifier: GPL-2.0

//! `zbdctl detach`.

use crate::cli::DetachArgs;
use crate::failure::Result;
use crate::output::Output;
use crate::sysfs::Sysfs;
use serde::Serialize;

#[derive(Serialize)]
struct Detached<'a> {
    volume: &'a str,
    device: &'a str,
}

pub fn run(args: &DetachArgs, sysfs: &Sysfs, out: &mut Output) -> Result {
    let volume = sysfs.volume(&args.volume)?;
    sysfs.control("detach", &args.volume, &args.volume)?;
    let detached = Detached {
        volume: &args.volume,
        device: volume.get("device"),
    };
    out.record(&detached, String::new)
}
