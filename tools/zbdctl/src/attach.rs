// SPDX-License-Identifier: GPL-2.0

//! `zbdctl attach`.

use crate::cli::AttachArgs;
use crate::device::Device;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::sysfs::{Sysfs, Volume};
use serde::Serialize;

/// What is said of a volume that was attached.
#[derive(Serialize)]
struct Attached<'a> {
    volume: &'a str,
    disk: String,
    device: &'a str,
    uuid: &'a str,
    logical_bytes: u64,
}

pub fn run(args: &AttachArgs, sysfs: &Sysfs, out: &mut Output) -> Result {
    sysfs.check_loaded()?;
    let device = Device::find(&args.device, sysfs)?;
    let volume = attach(&device, sysfs)?;
    print(&volume, &device, out)
}

/// Attaches the volume on a device.
pub fn attach(device: &Device, sysfs: &Sysfs) -> Result<Volume> {
    if let Some(volume) = attached_before(device, sysfs) {
        return Err(volume);
    }
    sysfs.control("attach", &device.shown, device.word()?)?;
    sysfs.volume_on(&device.name).ok_or_else(|| {
        let message = format!("{}: attached, but its disk does not show up", device.shown);
        Failure::new(Kind::Failed, message).remedy("zbdctl list shows the volumes in service")
    })
}

fn attached_before(device: &Device, sysfs: &Sysfs) -> Option<Failure> {
    let volume = sysfs.volume_on(&device.name)?;
    let message = format!("{}: is attached already, as {}", device.shown, volume.name);
    Some(Failure::new(Kind::Refused, message).remedy("nothing needs to be done"))
}

/// Prints where a volume is.
pub fn print(volume: &Volume, device: &Device, out: &mut Output) -> Result {
    let attached = Attached {
        volume: &volume.name,
        disk: format!("/dev/{}", volume.name),
        device: &device.shown,
        uuid: volume.get("uuid"),
        logical_bytes: volume.number("logical_bytes"),
    };
    out.record(&attached, || attached.disk.clone())
}
