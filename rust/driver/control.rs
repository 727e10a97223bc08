// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/zbd-control/`: volumes come and go.
//!
//! `Documentation/ABI/testing/sysfs-class-zbd-control` has the grammar and the errors.

use super::{
    attach::{
        self,
        Attached,
        Refusal, //
    },
    parse, //
};
use crate::linux::sysfs::{
    Class,
    ClassAttribute, //
};
use kernel::{
    fmt::Write,
    new_mutex,
    prelude::*,
    str::Formatter,
    sync::Mutex, //
};

/// Longest line that a control file takes.
const LINE_BYTES_MAX: usize = 1024;
/// Most volumes at once.
const VOLUMES_MAX: u32 = 1024;

/// The volumes in service. One operation at a time.
pub(crate) struct Control {
    volumes: Pin<KBox<Mutex<KVec<Attached>>>>,
    cache_pages: u32,
}

static TABLE: &[ClassAttribute<Control>] = &[
    ClassAttribute {
        name: c"format",
        mode: 0o200,
        show: None,
        store: Some(Control::format),
    },
    ClassAttribute {
        name: c"attach",
        mode: 0o200,
        show: None,
        store: Some(Control::attach),
    },
    ClassAttribute {
        name: c"detach",
        mode: 0o200,
        show: None,
        store: Some(Control::detach),
    },
    ClassAttribute {
        name: c"volumes",
        mode: 0o444,
        show: Some(Control::list),
        store: None,
    },
];

/// Pages of the map's cache in a MiB.
pub(crate) const PAGES_PER_MIB: u32 = 256;

/// The control files. Each volume takes up to `cache_pages` pages for the cache of its map.
pub(crate) fn new(cache_pages: u32) -> Result<Pin<KBox<Class<Control>>>> {
    let control = Control {
        volumes: KBox::pin_init(new_mutex!(KVec::new(), "zbd_volumes"), GFP_KERNEL)?,
        cache_pages,
    };
    KBox::pin_init(Class::new(c"zbd-control", TABLE, control), GFP_KERNEL)
}

/// One line in the log for what was refused.
fn refuse(subject: &str, refusal: Refusal) -> Error {
    pr_err!("{}: {}\n", subject, refusal.reason);
    refusal.errno
}

/// The first word of a line, and the others.
fn words(line: &str) -> Result<(&str, impl Iterator<Item = &str> + '_)> {
    if line.len() > LINE_BYTES_MAX {
        pr_err!("control file: the line is too long\n");
        return Err(E2BIG);
    }
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some(first) => Ok((first, words)),
        None => {
            pr_err!("control file: nothing was written\n");
            Err(EINVAL)
        }
    }
}

/// A word as it may stand in the log.
fn loggable(word: &str) -> &str {
    let fine = word.len() <= 255 && !word.chars().any(char::is_control);
    if fine {
        word
    } else {
        "control file"
    }
}

impl Control {
    fn format(&self, line: &str) -> Result {
        let (device, rest) = words(line)?;
        let subject = loggable(device);
        let bad = |errno| {
            let reason = match errno {
                ERANGE => "a size, level or option is out of range",
                _ => "cannot be understood; write: DEVICE [codec=C] [size=S] [label=L] [force]",
            };
            refuse(subject, Refusal { errno, reason })
        };
        let path = parse::path(device).map_err(bad)?;
        let volume = parse::new_volume(rest).map_err(bad)?;
        // Not while a volume comes or goes.
        let _volumes = self.volumes.lock();
        attach::format(&path, &volume).map_err(|refusal| refuse(subject, refusal))?;
        pr_info!("{}: formatted\n", subject);
        Ok(())
    }

    fn attach(&self, line: &str) -> Result {
        let (device, mut rest) = words(line)?;
        let subject = loggable(device);
        let path = parse::path(device);
        let (Ok(path), None) = (path, rest.next()) else {
            let reason = "cannot be understood; write: DEVICE";
            return Err(refuse(
                subject,
                Refusal {
                    errno: EINVAL,
                    reason,
                },
            ));
        };
        let mut volumes = self.volumes.lock();
        let taken = |index: u32| volumes.iter().any(|other| other.volume.index == index);
        let index = (0..VOLUMES_MAX)
            .find(|index| !taken(*index))
            .ok_or(EMFILE)?;
        volumes.reserve(1, GFP_KERNEL)?;
        let in_use = |uuid: &[u8; 16]| volumes.iter().any(|other| other.uuid == *uuid);
        let (attached, report) = attach::attach(&path, index, self.cache_pages, in_use)
            .map_err(|refusal| refuse(subject, refusal))?;
        if report.clean {
            pr_info!("zbd{}: attached {}\n", index, subject);
        } else {
            pr_info!(
                "zbd{}: attached {} after {} operations in {} segments were replayed\n",
                index,
                subject,
                report.operations,
                report.segments
            );
        }
        if report.damaged > 0 || report.places_lost > 0 {
            pr_warn!(
                "zbd{}: {} damaged fragments, {} places for roots without one\n",
                index,
                report.damaged,
                report.places_lost
            );
        }
        volumes.push(attached, GFP_KERNEL)?;
        Ok(())
    }

    fn detach(&self, line: &str) -> Result {
        let (name, mut rest) = words(line)?;
        let subject = loggable(name);
        let no = |errno, reason| Err(refuse(subject, Refusal { errno, reason }));
        let index = name.strip_prefix("zbd").and_then(|n| n.parse::<u32>().ok());
        let (Some(index), None) = (index, rest.next()) else {
            return no(EINVAL, "cannot be understood; write: zbdN");
        };
        let mut volumes = self.volumes.lock();
        let at = volumes.iter().position(|one| one.volume.index == index);
        let Some(attached) = at.and_then(|at| volumes.remove(at).ok()) else {
            return no(ENXIO, "no such volume");
        };
        match attached.detach() {
            Ok(true) => pr_info!("zbd{}: detached\n", index),
            Ok(false) => pr_err!(
                "zbd{}: detached, but not cleanly: attach replays the log\n",
                index
            ),
            Err((attached, errno)) => {
                // There is room: it was there.
                volumes.push(attached, GFP_KERNEL)?;
                return no(errno, "in use; unmount or close it first");
            }
        }
        Ok(())
    }

    /// One line per volume: disk, lower device, UUID.
    fn list(&self, to: &mut Formatter<'_>) -> Result {
        for one in self.volumes.lock().iter() {
            let name = one.volume.device.name().to_str().map_err(|_| EIO)?;
            write!(to, "zbd{} {} ", one.volume.index, name)?;
            write_uuid(to, &one.uuid)?;
            to.write_str("\n")?;
        }
        Ok(())
    }
}

/// Writes a UUID in the usual form.
pub(super) fn write_uuid(to: &mut Formatter<'_>, uuid: &[u8; 16]) -> Result {
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            to.write_str("-")?;
        }
        write!(to, "{byte:02x}")?;
    }
    Ok(())
}
