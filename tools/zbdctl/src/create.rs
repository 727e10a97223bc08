// SPDX-License-Identifier: GPL-2.0

//! `zbdctl create`: formats a device through the module, and attaches it.

use crate::attach;
use crate::cli::CreateArgs;
use crate::device::Device;
use crate::failure::{Failure, Kind, Result};
use crate::image::Image;
use crate::output::Output;
use crate::signature;
use crate::sysfs::Sysfs;
use serde::Serialize;
use zbd_engine::attach::find_root;
use zbd_engine::units::{BLOCK_BYTES, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN};

#[derive(Serialize)]
struct Created<'a> {
    device: &'a str,
    uuid: Option<String>,
    logical_bytes: Option<u64>,
}

pub fn run(args: &CreateArgs, sysfs: &Sysfs, out: &mut Output) -> Result {
    sysfs.check_loaded()?;
    let device = Device::find(&args.device, sysfs)?;
    let line = line(args, device.word()?)?;
    device.check_unused(sysfs)?;
    let found = signature::find(&device);
    if let (Some(found), false) = (&found, args.force) {
        let failure = Failure::new(Kind::Refused, format!("{}: carries {found}", device.shown));
        return Err(failure.remedy("give --force to destroy it, or name another device"));
    }
    sysfs.control("format", &device.shown, &line)?;
    // Others find their signatures in places that a new volume does not write, and would take
    // the device for theirs.
    if found.is_some() && !signature::wipe(&device) {
        out.warn("wipefs could not be run: traces of what the device held may remain");
    }
    if !args.no_attach {
        let volume = attach::attach(&device, sysfs)?;
        return attach::print(&volume, &device, out);
    }
    let root = Image::open(&device.path)
        .ok()
        .and_then(|mut image| find_root(&mut image).ok());
    let created = Created {
        device: &device.shown,
        uuid: root.as_ref().map(|root| crate::dump::uuid(&root.uuid)),
        logical_bytes: root.map(|root| root.geometry.logical_blocks * BLOCK_BYTES as u64),
    };
    out.record(&created, String::new)
}

/// The line for the module's `format` file.
fn line(args: &CreateArgs, device: &str) -> Result<String> {
    let mut line = device.to_string();
    let mut add = |word: String| {
        line.push(' ');
        line.push_str(&word);
    };
    if let Some(codec) = &args.codec {
        add(format!("codec={codec}"));
    }
    if let Some(size) = args.size {
        let block = BLOCK_BYTES as u64;
        if size < block {
            let failure = Failure::new(Kind::Failed, "the logical size is below 4 KiB");
            return Err(failure.remedy("give a larger one: --size 10G"));
        }
        add(format!("size={}", size - size % block));
    }
    if let Some(size) = args.zone_size {
        let zone = size / BLOCK_BYTES as u64;
        let range = u64::from(ZONE_BLOCKS_MIN)..=u64::from(ZONE_BLOCKS_MAX);
        if !size.is_power_of_two() || !range.contains(&zone) {
            let message = "a zone's size must be a power of two from 1 MiB to 16 GiB";
            return Err(Failure::new(Kind::Failed, message).remedy("for example: --zone-size 64M"));
        }
        add(format!("zone={size}"));
    }
    if let Some(label) = &args.label {
        add(format!("label={label}"));
    }
    if let Some(copies) = args.metadata_copies {
        add(format!("copies={copies}"));
    }
    if args.no_straddle {
        add("straddle=off".into());
    }
    if args.force {
        add("force".into());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn line_of(arguments: &str) -> Result<String> {
        let words = ["zbdctl", "create", "/dev/vdb"];
        let words = words.into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words).expect("valid").command {
            Command::Create(args) => line(&args, "/dev/vdb"),
            _ => unreachable!("create was parsed"),
        }
    }

    #[test]
    fn options_become_words() {
        assert_eq!(line_of("").unwrap(), "/dev/vdb");
        let all = "--codec zstd:3 --size 1G --zone-size 1M --label home --metadata-copies 1 \
                   --no-straddle --force";
        assert_eq!(
            line_of(all).unwrap(),
            "/dev/vdb codec=zstd:3 size=1073741824 zone=1048576 label=home copies=1 \
             straddle=off force"
        );
        assert_eq!(line_of("--size 10GB").unwrap(), "/dev/vdb size=9999998976");
    }

    #[test]
    fn bad_sizes_are_refused_here() {
        assert!(line_of("--size 100").is_err());
        assert!(line_of("--zone-size 3M").is_err());
        assert!(line_of("--zone-size 512K").is_err());
    }
}
