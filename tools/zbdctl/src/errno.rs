// SPDX-License-Identifier: GPL-2.0

//! What the module's answers mean: `Documentation/ABI/testing/sysfs-class-zbd-control` in words.

use crate::failure::{Failure, Kind};
use std::io;

/// Why the module refused, and what to do. `subject` is the device or volume.
pub fn explain(subject: &str, error: &io::Error) -> Failure {
    let errno = error.raw_os_error();
    let Some((kind, cause, remedy)) = errno.and_then(meaning) else {
        let failure = Failure::io(subject, error);
        return match failure.remedy {
            Some(_) => failure,
            None => failure.remedy("the kernel log (dmesg) says more"),
        };
    };
    Failure {
        kind,
        message: format!("{subject}: {cause}"),
        remedy: Some(remedy.into()),
        errno,
    }
}

fn meaning(errno: i32) -> Option<(Kind, &'static str, &'static str)> {
    let meaning = match errno {
        libc::ENOENT => (
            Kind::NotFound,
            "there is no such file",
            "name an existing block device; lsblk lists them",
        ),
        libc::ENOTBLK => (
            Kind::Refused,
            "not a block device",
            "for an image file, make a loop device first: losetup --find --show FILE",
        ),
        libc::ENXIO => (
            Kind::NotFound,
            "there is no such volume, or no device behind the file",
            "zbdctl list shows the volumes, lsblk the devices",
        ),
        libc::EBUSY => (
            Kind::Refused,
            "in use",
            "unmount it, swap it off, or remove what is stacked on it; lsblk shows what uses it",
        ),
        libc::EROFS => (
            Kind::Refused,
            "the device is read-only",
            "make it writable (blockdev --setrw), or use another device",
        ),
        libc::EEXIST => (
            Kind::Refused,
            "the device already holds a zbd volume",
            "attach it, or give --force to destroy it",
        ),
        libc::ENODATA => (
            Kind::NotFound,
            "no zbd volume found on the device",
            "zbdctl create makes one; zbdctl dump shows what is left of a damaged one",
        ),
        libc::EPROTONOSUPPORT => (
            Kind::Failed,
            "the volume has a newer format than the module knows",
            "update zbd",
        ),
        libc::EOPNOTSUPP => (
            Kind::Failed,
            "the device or a feature of the volume is not supported",
            "the kernel log (dmesg) says which: a zoned device, blocks larger than 4 KiB, or a \
             volume that this version can only read",
        ),
        libc::ENOSPC => (
            Kind::Failed,
            "the device is too small",
            "the smallest device is 48 MiB; an existing volume needs a device of its old size",
        ),
        libc::ERANGE => (
            Kind::Failed,
            "a size, level or option is out of range",
            "the kernel log (dmesg) says more; sizes are whole 4 KiB blocks, zones powers of two",
        ),
        libc::EINVAL | libc::E2BIG => (
            Kind::Failed,
            "the module does not understand the request",
            "use a zbdctl and a module of the same version",
        ),
        libc::EUCLEAN => (
            Kind::Damaged,
            "structures of the volume are damaged",
            "nothing was changed; zbdctl dump shows what is readable",
        ),
        libc::EBADMSG => (
            Kind::Damaged,
            "the newest checkpoint is unreadable; an older one would step back in time",
            "nothing was changed; zbdctl dump shows what is readable",
        ),
        libc::ENOLINK => (
            Kind::Damaged,
            "a durable part of the log is unreadable",
            "nothing was changed; zbdctl dump --segments shows what is readable",
        ),
        libc::EIO => (
            Kind::Failed,
            "the device reported an I/O error",
            "the kernel log (dmesg) says where; check the device and its cables",
        ),
        libc::ENOTUNIQ => (
            Kind::Refused,
            "a volume with the same UUID is attached already",
            "this device is a copy of it; detach the other one first",
        ),
        libc::EMFILE => (
            Kind::Failed,
            "too many volumes are attached",
            "detach one that is not needed",
        ),
        libc::ENOMEM => (
            Kind::Failed,
            "not enough memory",
            "free some, or load the module with a smaller cache (cache_mib=16)",
        ),
        libc::ENODEV => (
            Kind::NotLoaded,
            "the module is being unloaded",
            "load it again: modprobe zbd",
        ),
        _ => return None,
    };
    Some(meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_module_has_a_cause_and_a_remedy() {
        for errno in [
            libc::ENOMEM,
            libc::EIO,
            libc::ENODATA,
            libc::EPROTONOSUPPORT,
            libc::EOPNOTSUPP,
            libc::ENOSPC,
            libc::ERANGE,
            libc::EUCLEAN,
            libc::EBADMSG,
            libc::ENOLINK,
            libc::EEXIST,
            libc::EROFS,
            libc::EBUSY,
            libc::ENOTBLK,
            libc::ENOTUNIQ,
        ] {
            let failure = explain("x", &io::Error::from_raw_os_error(errno));
            assert!(failure.remedy.is_some());
            assert_eq!(failure.errno, Some(errno));
            assert!(failure.message.starts_with("x: "));
        }
        let failure = explain("x", &io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(failure.kind, Kind::Permission);
    }
}
