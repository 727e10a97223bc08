// SPDX-License-Identifier: GPL-2.0

//! What a device carries, before it is overwritten.
//!
//! blkid knows most; where it is missing, wipefs is asked, and where both are, a handful of
//! signatures are looked for here.

use crate::device::Device;
use crate::image::Image;
use std::process::{Command, Output, Stdio};
use zbd_engine::attach::find_root;
use zbd_engine::{Error, Media};

/// What stands on the device, in words; `None`: nothing known.
pub fn find(device: &Device) -> Option<String> {
    zbd(device).or_else(|| match ask("blkid", &["-p", "-o", "export"], device) {
        Some(answer) => from_blkid(&answer),
        None => match ask("wipefs", &["-n", "-p"], device) {
            Some(answer) => from_wipefs(&answer),
            None => own(device),
        },
    })
}

/// Removes the signatures of others, now that the device is ours. Answers whether that was done.
pub fn wipe(device: &Device) -> bool {
    ask("wipefs", &["-a", "-q"], device).is_some_and(|answer| answer.status.success())
}

fn ask(program: &str, options: &[&str], device: &Device) -> Option<Output> {
    // Not every user's path has the directories where these live.
    ["", "/usr/sbin/", "/sbin/"].iter().find_map(|directory| {
        Command::new(format!("{directory}{program}"))
            .args(options)
            .arg(&device.path)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .ok()
    })
}

fn from_blkid(answer: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.stdout);
    let value = |key: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_string()))
    };
    if let Some(kind) = value("TYPE") {
        let label = value("LABEL")
            .map(|label| format!(" \"{label}\""))
            .unwrap_or_default();
        return Some(match value("USAGE").as_deref() {
            Some("filesystem") | None => format!("a file system ({kind}{label})"),
            Some(usage) => format!("something of use ({kind}{label}, {usage})"),
        });
    }
    if let Some(kind) = value("PTTYPE") {
        return Some(format!("a partition table ({kind})"));
    }
    // 8: several that contradict each other.
    (answer.status.code() == Some(8)).then(|| "several signatures".into())
}

fn from_wipefs(answer: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.stdout);
    // offset,uuid,label,type behind a comment line
    let line = text
        .lines()
        .find(|line| !line.starts_with('#') && !line.is_empty())?;
    Some(format!("a signature ({})", line.rsplit(',').next()?))
}

fn zbd(device: &Device) -> Option<String> {
    let mut image = Image::open(&device.path).ok()?;
    match find_root(&mut image) {
        Ok(root) => {
            let label = crate::dump::text_of(&root.label);
            let label = match label.as_str() {
                "" => String::new(),
                label => format!(" \"{label}\""),
            };
            Some(format!(
                "a zbd volume{label} (UUID {})",
                crate::dump::uuid(&root.uuid)
            ))
        }
        Err(Error::NewerFormat) => Some("a zbd volume of a newer format".into()),
        Err(Error::Corrupt) => Some("a damaged zbd volume".into()),
        Err(_) => None,
    }
}

fn own(device: &Device) -> Option<String> {
    const KNOWN: &[(u64, &[u8], &str)] = &[
        (0, b"XFSB", "an XFS file system"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (3, b"NTFS    ", "an NTFS file system"),
        (54, b"FAT1", "a FAT file system"),
        (82, b"FAT32", "a FAT file system"),
        (512, b"EFI PART", "a partition table (gpt)"),
        (4096, b"EFI PART", "a partition table (gpt)"),
        (512, b"LABELONE", "an LVM physical volume"),
        (536, b"LVM2 001", "an LVM physical volume"),
        (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (1080, b"\x53\xef", "an ext file system"),
        (4096, b"\xfc\x4e\x2b\xa9", "an md RAID member"),
        (4086, b"SWAPSPACE2", "swap space"),
        (65600, b"_BHRfS_M", "a btrfs file system"),
        (510, b"\x55\xaa", "a partition table or boot sector (dos)"),
    ];
    let mut image = Image::open(&device.path).ok()?;
    let bytes = image.capacity_bytes().min(68 << 10) as usize;
    let mut head = vec![0; bytes];
    image.read(0, &mut head).ok()?;
    let found = KNOWN.iter().find(|(at, magic, _)| {
        let at = *at as usize;
        head.get(at..at + magic.len()) == Some(*magic)
    });
    found.map(|(_, _, name)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::Sysfs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::ExitStatus;

    fn answer(code: i32, text: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: text.into(),
            stderr: Vec::new(),
        }
    }

    #[test]
    fn blkid_is_understood() {
        let found = |code, text| from_blkid(&answer(code, text));
        let ext4 = "DEVNAME=/dev/x\nLABEL=home\nTYPE=ext4\nUSAGE=filesystem\n";
        assert_eq!(found(0, ext4), Some("a file system (ext4 \"home\")".into()));
        assert_eq!(
            found(0, "PTTYPE=gpt\n"),
            Some("a partition table (gpt)".into())
        );
        assert_eq!(found(2, ""), None);
        assert_eq!(found(8, ""), Some("several signatures".into()));
        let luks = "TYPE=crypto_LUKS\nUSAGE=crypto\n";
        assert_eq!(
            found(0, luks),
            Some("something of use (crypto_LUKS, crypto)".into())
        );
    }

    #[test]
    fn wipefs_is_understood() {
        let text = "# offset,uuid,label,type\n0x438,1-2,,ext4\n";
        assert_eq!(
            from_wipefs(&answer(0, text)),
            Some("a signature (ext4)".into())
        );
        assert_eq!(from_wipefs(&answer(0, "")), None);
    }

    #[test]
    fn some_signatures_are_known_without_help() {
        let path = std::env::temp_dir().join(format!("zbdctl-signature-{}", std::process::id()));
        let mut bytes = vec![0u8; 128 << 10];
        std::fs::write(&path, &bytes).unwrap();
        let device = Device::find(&path, &Sysfs::new(Path::new("/nonexistent"))).unwrap();
        assert_eq!(own(&device), None);
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(own(&device), Some("an ext file system".into()));
        std::fs::remove_file(&path).unwrap();
    }
}
