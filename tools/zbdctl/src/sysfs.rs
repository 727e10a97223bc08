// SPDX-License-Identifier: GPL-2.0

//! The module's files in sysfs.

use crate::errno;
use crate::failure::{Failure, Kind, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// sysfs.
pub struct Sysfs {
    root: PathBuf,
}

/// A volume in service: its name, and its attributes as text.
#[derive(Debug)]
pub struct Volume {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
}

impl Volume {
    /// An attribute; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// An attribute that is a number; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    /// An attribute that is a ratio in hundredths.
    pub fn ratio(&self, name: &str) -> f64 {
        ratio(self.get(name)).unwrap_or(0.0)
    }
}

/// A ratio: hundredths, or a decimal fraction.
pub fn ratio(text: &str) -> Option<f64> {
    if text.contains('.') {
        return text.parse().ok();
    }
    text.parse::<u64>()
        .ok()
        .map(|hundredths| hundredths as f64 / 100.0)
}

impl Sysfs {
    pub fn new(root: &Path) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// Fails unless the module is loaded.
    pub fn check_loaded(&self) -> Result {
        if self.root.join("class/zbd-control").is_dir() {
            return Ok(());
        }
        let failure = Failure::new(Kind::NotLoaded, "the zbd kernel module is not loaded");
        Err(failure
            .remedy("load it: modprobe zbd (or insmod zbd.ko in the directory where it was built)"))
    }

    /// Writes a line to one of the control files, on behalf of `subject`.
    pub fn control(&self, file: &str, subject: &str, line: &str) -> Result {
        self.check_loaded()?;
        let path = self.root.join("class/zbd-control").join(file);
        let opened = fs::OpenOptions::new().write(true).open(&path);
        let mut opened = opened.map_err(|error| Failure::io(path.display(), &error))?;
        // One write: the module takes each as a whole.
        let result = opened.write_all(format!("{line}\n").as_bytes());
        result.map_err(|error| errno::explain(subject, &error))
    }

    fn attributes_of(&self, name: &str) -> PathBuf {
        self.root.join("block").join(name).join("zbd")
    }

    /// A volume in service.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.check_loaded()?;
        let directory = self.attributes_of(name);
        let files = match fs::read_dir(&directory) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let failure =
                    Failure::new(Kind::NotFound, format!("{name}: there is no such volume"));
                return Err(failure.remedy("zbdctl list shows the volumes in service"));
            }
            Err(error) => return Err(Failure::io(directory.display(), &error)),
        };
        let mut attributes = BTreeMap::new();
        for file in files.flatten() {
            // Some can only be written, some only be read by root.
            if let (Ok(key), Ok(value)) = (
                file.file_name().into_string(),
                fs::read_to_string(file.path()),
            ) {
                attributes.insert(key, value.trim_end().to_string());
            }
        }
        Ok(Volume {
            name: name.into(),
            attributes,
        })
    }

    /// All volumes in service, by number.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        self.check_loaded()?;
        let directory = self.root.join("block");
        let disks = fs::read_dir(&directory);
        let disks = disks.map_err(|error| Failure::io(directory.display(), &error))?;
        let mut numbers: Vec<u32> = disks
            .flatten()
            .filter_map(|disk| disk.file_name().to_str()?.strip_prefix("zbd")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let volumes = numbers
            .iter()
            .map(|number| self.volume(&format!("zbd{number}")));
        // A volume may go away while we look.
        Ok(volumes.flatten().collect())
    }

    /// The volume on the device with this name (`sdb1`).
    pub fn volume_on(&self, device: &str) -> Option<Volume> {
        let volumes = self.volumes().ok()?;
        volumes
            .into_iter()
            .find(|volume| volume.get("device") == device)
    }

    /// The kernel's name of a device: `dm-0` for `/dev/mapper/x`.
    pub fn device_name(&self, major: u32, minor: u32) -> Option<String> {
        let link = fs::read_link(self.root.join(format!("dev/block/{major}:{minor}"))).ok()?;
        Some(link.file_name()?.to_str()?.to_string())
    }

    /// Names of the devices that are stacked on a device.
    pub fn holders(&self, major: u32, minor: u32) -> Vec<String> {
        let directory = self.root.join(format!("dev/block/{major}:{minor}/holders"));
        let Ok(holders) = fs::read_dir(directory) else {
            return Vec::new();
        };
        let names = holders
            .flatten()
            .filter_map(|holder| holder.file_name().into_string().ok());
        names.collect()
    }
}
