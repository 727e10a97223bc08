// SPDX-License-Identifier: GPL-2.0

//! The device that a command names: what it is, and whether something uses it.

use crate::failure::{Failure, Kind, Result};
use crate::sysfs::Sysfs;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A device, or an image file.
#[derive(Debug)]
pub struct Device {
    /// As it was named; for messages.
    pub shown: String,
    /// Without symbolic links: what the module is told.
    pub path: PathBuf,
    /// The kernel's name: `sdb1`, `dm-0`.
    pub name: String,
    /// Device number, if it is a block device.
    number: Option<(u32, u32)>,
}

impl Device {
    pub fn find(path: &Path, sysfs: &Sysfs) -> Result<Device> {
        let shown = path.display().to_string();
        let real = fs::canonicalize(path).map_err(|error| {
            let failure = Failure::io(&shown, &error);
            match failure.kind {
                Kind::NotFound => failure.remedy("name an existing block device; lsblk lists them"),
                _ => failure,
            }
        })?;
        let metadata = fs::metadata(&real).map_err(|error| Failure::io(&shown, &error))?;
        let block = metadata.file_type().is_block_device();
        let number = block.then(|| (libc::major(metadata.rdev()), libc::minor(metadata.rdev())));
        let last = real.file_name().unwrap_or_default().to_string_lossy();
        let known = number.and_then(|(major, minor)| sysfs.device_name(major, minor));
        Ok(Device {
            shown,
            name: known.unwrap_or_else(|| last.into_owned()),
            path: real,
            number,
        })
    }

    /// The path as a word of a control line.
    pub fn word(&self) -> Result<&str> {
        match self.path.to_str() {
            Some(path) if !path.contains(char::is_whitespace) => Ok(path),
            _ => {
                let message = format!("{}: the path has spaces or is not UTF-8", self.shown);
                let failure = Failure::new(Kind::Refused, message);
                Err(failure.remedy("name the device by a path without, such as /dev/sdb1"))
            }
        }
    }

    /// Refuses a device that is mounted, swapped to, or held by another.
    pub fn check_unused(&self, sysfs: &Sysfs) -> Result {
        if let Some(volume) = sysfs.volume_on(&self.name) {
            let message = format!(
                "{}: carries the attached volume {}",
                self.shown, volume.name
            );
            let failure = Failure::new(Kind::Refused, message);
            return Err(failure.remedy(format!("detach it first: zbdctl detach {}", volume.name)));
        }
        let busy = |how: String, remedy: &str| {
            let failure = Failure::new(Kind::Refused, format!("{}: {how}", self.shown));
            Err(failure.remedy(remedy))
        };
        if let Some((major, minor)) = self.number {
            if let Some(place) = mounted_at(&read("/proc/self/mountinfo"), major, minor, &self.path)
            {
                return busy(format!("mounted on {place}"), "unmount it first");
            }
            if swapped_to(&read("/proc/swaps"), &self.path) {
                return busy("in use as swap".into(), "swapoff it first");
            }
            let holders = sysfs.holders(major, minor);
            if !holders.is_empty() {
                let how = format!("in use by {}", holders.join(", "));
                return busy(how, "remove what is stacked on it first; lsblk shows it");
            }
        }
        let exclusive = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(&self.path);
        match exclusive {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => busy(
                "in use, or a part of it is".into(),
                "unmount it and remove what is stacked on it; lsblk shows what uses it",
            ),
            Err(error) => Err(Failure::io(&self.shown, &error)),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn mounted_at(mountinfo: &str, major: u32, minor: u32, path: &Path) -> Option<String> {
    let number = format!("{major}:{minor}");
    mountinfo.lines().find_map(|line| {
        // Some file systems show a number of their own: compare the source, too.
        let (mount, rest) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let shown = fields.nth(2)?;
        let place = fields.nth(1)?;
        let source = rest.split(' ').nth(1)?;
        (shown == number || Path::new(source) == path).then(|| place.replace("\\040", " "))
    })
}

fn swapped_to(swaps: &str, path: &Path) -> bool {
    let mut areas = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    areas.any(|area| Path::new(area) == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let info = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime shared:1 - ext3 /dev/root rw\n\
                    40 35 0:31 / /b rw - btrfs /dev/vdb rw\n";
        let other = Path::new("/dev/vdz");
        assert_eq!(mounted_at(info, 98, 0, other), Some("/mnt 2".into()));
        assert_eq!(
            mounted_at(info, 1, 1, Path::new("/dev/vdb")),
            Some("/b".into())
        );
        assert_eq!(mounted_at(info, 1, 1, other), None);
        assert_eq!(mounted_at("garbage\n", 1, 1, other), None);
    }

    #[test]
    fn swap_areas_are_found() {
        let swaps = "Filename\tType\tSize\n/dev/vdc  partition 8 0 -2\n";
        assert!(swapped_to(swaps, Path::new("/dev/vdc")));
        assert!(!swapped_to(swaps, Path::new("Filename")));
    }
}
