// SPDX-License-Identifier: GPL-2.0

//! `zbdctl dump`: decodes a volume without the kernel module.
//!
//! Reads only, believes nothing that it cannot verify, and goes on behind whatever is damaged. It
//! uses the engine's decoders for single structures, but finds its own way from one to the next.

mod map;
mod records;
mod roots;
mod segments;
mod volume;

use crate::cli::DumpArgs;
use crate::device::Device;
use crate::failure::{Failure, Kind, Result};
use crate::image::Image;
use crate::output::Output;
use crate::sysfs::Sysfs;
use records::Record;
use volume::Volume;
use zbd_engine::attach::find_root;
use zbd_engine::{Error, Media};

/// What is wanted, with what it implies.
struct Wanted {
    roots: bool,
    zones: bool,
    segments: bool,
    entries: bool,
    map: bool,
    words: bool,
    zone: Option<u32>,
}

impl From<&DumpArgs> for Wanted {
    fn from(args: &DumpArgs) -> Wanted {
        Wanted {
            roots: args.roots || args.all,
            zones: args.zones || args.all,
            segments: args.segments || args.entries || args.all,
            entries: args.entries || args.all,
            map: args.map || args.words || args.all,
            words: args.words || args.all,
            zone: args.zone,
        }
    }
}

/// Prints records and counts damage.
struct Printer<'a> {
    out: &'a mut Output,
    damaged: u64,
}

impl Printer<'_> {
    fn record(&mut self, record: Record) -> Result {
        self.out.record(&record, || record.text())
    }

    fn damage(&mut self, damage: String) -> Result {
        self.damaged += 1;
        self.record(Record::Damage { damage })
    }
}

pub fn run(args: &DumpArgs, sysfs: &Sysfs, out: &mut Output) -> Result {
    let device = Device::find(&args.device, sysfs)?;
    if let Some(volume) = sysfs.volume_on(&device.name) {
        out.warn(format!(
            "{} is attached as {}: what changes meanwhile may look like damage",
            device.shown, volume.name
        ));
    }
    let mut image = Image::open(&device.path)?;
    let wanted = Wanted::from(args);
    let mut printer = Printer { out, damaged: 0 };
    printer.record(Record::Image {
        path: device.shown.clone(),
        bytes: image.capacity_bytes(),
    })?;
    let found = find_root(&mut image);
    let newest = found.as_ref().ok().map(|root| root.generation);
    roots::dump(&mut image, newest, &wanted, &mut printer)?;
    let root = match found {
        Ok(root) => root,
        Err(error) => return Err(no_root(&device, error)),
    };
    let mut volume = Volume::load(&mut image, root, &mut printer)?;
    volume.describe(&wanted, &mut printer)?;
    if wanted.segments {
        segments::dump(&mut volume, &wanted, &mut printer)?;
    }
    map::dump(&mut volume, &wanted, &mut printer)?;
    let damaged = printer.damaged;
    printer.record(Record::End { damaged })?;
    if damaged == 0 {
        return Ok(());
    }
    let message = format!("{}: {damaged} structures are damaged", device.shown);
    Err(Failure::new(Kind::Damaged, message).remedy("copy what is still readable to another disk"))
}

fn no_root(device: &Device, error: Error) -> Failure {
    let message = format!("{}: {}", device.shown, error.message());
    let (kind, remedy) = match error {
        Error::NotFormatted => (
            Kind::NotFound,
            "if there was a volume, all of its three places for roots are unreadable",
        ),
        Error::NewerFormat => (Kind::Failed, "use a newer zbdctl"),
        Error::Corrupt => (
            Kind::Damaged,
            "all roots that are left contradict themselves",
        ),
        _ => (Kind::Failed, "the kernel log (dmesg) may say more"),
    };
    Failure::new(kind, message).remedy(remedy)
}

/// Zero-padded text from the medium, as it may be shown.
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A UUID in the usual form.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_printable() {
        assert_eq!(text_of(b"home\0\0"), "home");
        assert_eq!(text_of(b"\x1b[2J\xff"), "?[2J\u{fffd}");
        assert_eq!(uuid(&[0xab; 16]), "abababab-abab-abab-abab-abababababab");
    }
}
