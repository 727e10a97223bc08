// SPDX-License-Identifier: GPL-2.0

//! Images of format version 1, kept as text: whatever changes in the code, they attach and read as
//! they did, and a fresh volume is the same to the byte.
//!
//! `cargo test --test golden -- --ignored` writes them again: only for a new version of the format.

use std::fmt::Write;
use std::path::PathBuf;
use zbd_host_tests::disk::Disk;
use zbd_host_tests::reference::Reference;
use zbd_host_tests::world::{Outcome, World};

const ZONES: u64 = 48;
const LINE: usize = 32;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../golden")
        .join(name)
}

/// A disk as text: what every block reads as, then block, offset and bytes of what is not zero.
fn text(disk: &Disk, reference: &Reference) -> String {
    let mut out =
        String::from("# A zbd volume, format version 1. See tests/host/tests/golden.rs.\n");
    for lbn in reference.blocks() {
        writeln!(out, "reads {lbn} {}", reference.now(lbn)).unwrap();
    }
    for block in disk.written() {
        for (at, bytes) in disk.block(block).chunks(LINE).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                write!(out, "{block} {} ", at * LINE).unwrap();
                for byte in bytes {
                    write!(out, "{byte:02x}").unwrap();
                }
                out.push('\n');
            }
        }
    }
    out
}

/// The disk and what it reads as.
fn load(name: &str) -> (Disk, Reference) {
    let text = std::fs::read_to_string(path(name)).expect("the image is in tests/golden");
    let mut disk = Disk::new(ZONES * 256, 256);
    let mut reference = Reference::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        if fields[0] == "reads" {
            reference.write(number(1), 1, number(2));
            continue;
        }
        let (block, at) = (number(0), number(1) as usize);
        let mut data = *disk.block(block);
        for (byte, pair) in data[at..at + LINE]
            .iter_mut()
            .zip(fields[2].as_bytes().chunks(2))
        {
            let digits = std::str::from_utf8(pair).expect("digits");
            *byte = u8::from_str_radix(digits, 16).expect("hexadecimal");
        }
        disk.poke(block, data);
    }
    (disk, reference)
}

/// A volume as it is right after formatting.
fn fresh() -> Disk {
    let mut disk = Disk::new(ZONES * 256, 256);
    World::format(&mut disk);
    disk
}

/// A volume with everything that the format has: data of all sizes, extents, zeros, pages with
/// base and delta, several epochs, moved blocks, and a log to replay unless it is detached.
fn filled(clean: bool) -> World {
    let mut world = World::new(77, ZONES, None);
    for round in 0..3u64 {
        for at in 0..22 {
            world.payload = 20 + 7 * at as usize;
            assert_eq!(world.write(at * 7 + round * 200), Outcome::Done);
        }
        world.payload = 400;
        assert_eq!(world.write_extent(1024 + 64 * round, 5), Outcome::Done);
        assert_eq!(world.write(1024 + 64 * round + 3), Outcome::Done);
        assert_eq!(world.zero(14 + round * 200, 3), Outcome::Done);
        assert_eq!(world.zero(70 + round * 200, 50), Outcome::Done);
        world.flush().unwrap();
        if round < 2 {
            world.engine().request_checkpoint();
            world.quiesce();
            world.crash();
            world.recover().unwrap();
            world.engine().request_collection();
            world.quiesce();
        }
    }
    world.quiesce();
    if clean {
        world.detach();
    }
    world.disk.flush_all();
    world
}

#[test]
#[ignore = "writes the images again"]
fn write_images() {
    std::fs::create_dir_all(path("")).unwrap();
    let empty = text(&fresh(), &Reference::default());
    std::fs::write(path("empty.txt"), empty).unwrap();
    for (name, clean) in [("clean.txt", true), ("crashed.txt", false)] {
        let world = filled(clean);
        std::fs::write(path(name), text(&world.disk, &world.reference)).unwrap();
    }
}

#[test]
fn a_fresh_volume_is_the_same_to_the_byte() {
    let golden = std::fs::read_to_string(path("empty.txt")).unwrap();
    let found = text(&fresh(), &Reference::default());
    for (expected, found) in golden.lines().zip(found.lines()) {
        assert_eq!(expected, found);
    }
    assert_eq!(golden.len(), found.len());
}

#[test]
fn old_images_read_as_they_did() {
    for (name, clean) in [("clean.txt", true), ("crashed.txt", false)] {
        let (disk, reference) = load(name);
        assert!(reference.blocks().len() > 100);
        let mut world = World::new(1, ZONES, None).resume(disk, reference);
        let report = world
            .attach()
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(report.clean, clean);
        assert_eq!(report.segments > 0, !clean);
        assert_eq!((report.damaged, report.places_lost), (0, 0));
        world.check_all();
        // It can be written on.
        for lbn in 0..300 {
            assert_eq!(world.write(lbn), Outcome::Done);
        }
        world.detach();
        world.attach().unwrap();
        world.check_all();
    }
}

#[test]
fn an_empty_image_attaches() {
    let (disk, reference) = load("empty.txt");
    let mut world = World::new(1, ZONES, None).resume(disk, reference);
    assert!(world.attach().unwrap().clean);
    assert_eq!(world.read(0), Ok(0));
    assert_eq!(world.write(5), Outcome::Done);
    world.check(5);
}
