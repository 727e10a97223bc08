// SPDX-License-Identifier: GPL-2.0

//! Media that rots: what comes back is right, or an error, and never wrong data.

use std::collections::BTreeSet;
use zbd_engine::Config;
use zbd_engine::Error;
use zbd_host_tests::disk::{Disk, BLOCK};
use zbd_host_tests::rng::Rng;
use zbd_host_tests::scan;
use zbd_host_tests::world::{volume, Outcome, World};

/// Blocks that carry data.
const BLOCKS: u64 = 1200;
/// Written last: behind it nothing records that the log was durable, so rot there looks like the
/// end of the log.
const LAST: u64 = 5000;

/// A volume with data, overwritten and zeroed in part, collected once, and a log to replay.
fn build(seed: u64, copies: u8, clean: bool) -> World {
    let mut options = volume(256, None);
    options.metadata_copies = copies;
    let mut world = World::with(seed, 48, &options, Config::SMALL);
    for round in 0..3 {
        for _ in 0..500 {
            let lbn = world.rng.below(BLOCKS);
            world.payload = 16 + world.rng.below(2000) as usize;
            assert_eq!(world.write(lbn), Outcome::Done);
        }
        assert_eq!(world.write_extent(64 * (round + 1), 4), Outcome::Done);
        assert_eq!(world.zero(300 * round, 20), Outcome::Done);
        if round < 2 {
            world.engine().request_checkpoint();
            world.quiesce();
        }
        world.engine().request_collection();
        world.quiesce();
        world.tick();
    }
    for _ in 0..3 {
        world.flush().unwrap();
        assert_eq!(world.write(LAST), Outcome::Done);
    }
    world.flush().unwrap();
    if clean {
        world.detach();
    }
    world.crash();
    world
}

/// Reads everything: right, or an error. Answers how many errors there were.
fn right_or_error(world: &mut World, what: &str) -> usize {
    let mut errors = 0;
    for lbn in world.reference.blocks() {
        match world.read(lbn) {
            Ok(version) if lbn == LAST && version != 0 => {}
            Ok(version) => assert_eq!(version, world.reference.now(lbn), "{what}: block {lbn}"),
            Err(Error::Io | Error::Corrupt) => errors += 1,
            Err(error) => panic!("{what}: block {lbn}: {error:?}"),
        }
    }
    errors
}

/// Attaches a damaged disk, reads everything, then moves everything around and reads again.
fn survive(world: &mut World, disk: Disk, what: &str) {
    let mut next = world.resume(disk, world.reference.clone());
    if next.attach().is_err() {
        return;
    }
    right_or_error(&mut next, what);
    for round in 0..12 {
        next.engine().request_collection();
        for _ in 0..20 {
            let lbn = next.rng.below(BLOCKS);
            next.payload = 3000;
            if next.write(lbn) != Outcome::Done {
                return;
            }
        }
        next.tick();
        if round % 4 == 3 {
            next.engine().request_checkpoint();
        }
        next.quiesce();
    }
    right_or_error(&mut next, what);
    assert_eq!(next.engine().poisoned(), None, "{what}");
}

#[test]
fn a_flipped_bit_anywhere() {
    for (seed, copies, clean) in [(1, 2, true), (2, 2, false), (3, 1, true), (4, 1, false)] {
        let mut world = build(seed, copies, clean);
        let mut rng = Rng::new(seed);
        for (at, block) in scan::used(&world.disk).into_iter().enumerate() {
            if at % 5 != seed as usize {
                continue;
            }
            let mut disk = world.disk.clone();
            let bit = if rng.one_in(2) {
                rng.below(8 * 64)
            } else {
                rng.below(8 * BLOCK as u64)
            } as usize;
            disk.flip(block, bit);
            let what = format!("{copies} copies, clean {clean}: bit {bit} of block {block}");
            survive(&mut world, disk, &what);
        }
    }
}

#[test]
fn an_unreadable_block_anywhere() {
    for (seed, copies, clean) in [(5, 2, true), (6, 2, false), (7, 1, true), (8, 1, false)] {
        let mut world = build(seed, copies, clean);
        for (at, block) in scan::used(&world.disk).into_iter().enumerate() {
            if at % 5 != seed as usize % 5 {
                continue;
            }
            let mut disk = world.disk.clone();
            disk.unreadable.insert(block);
            let what = format!("{copies} copies, clean {clean}: block {block} unreadable");
            survive(&mut world, disk, &what);
        }
    }
}

/// All is there and right.
fn nothing_lost(world: &mut World, disk: Disk, what: &str) {
    let mut next = world.resume(disk, world.reference.clone());
    if let Err(error) = next.attach() {
        panic!("{what}: attach: {error:?}");
    }
    for lbn in next.reference.blocks() {
        assert_eq!(next.read(lbn), Ok(next.reference.now(lbn)), "{what}");
    }
}

#[test]
fn the_start_of_the_device_is_lost() {
    for clean in [true, false] {
        let mut world = build(9, 2, clean);
        for blocks in [1, 256] {
            let mut disk = world.disk.clone();
            for block in 0..blocks {
                disk.poke(block, [0; BLOCK]);
            }
            nothing_lost(&mut world, disk, "zeroed");
            let mut disk = world.disk.clone();
            disk.unreadable.extend(0..blocks);
            nothing_lost(&mut world, disk, "unreadable");
        }
    }
}

#[test]
fn one_copy_of_all_metadata_of_a_zone_is_lost() {
    for clean in [true, false] {
        let mut world = build(10, 2, clean);
        let zones: BTreeSet<u64> = scan::segments(&world.disk)
            .into_iter()
            .filter(|segment| segment.kind == 3)
            .map(|segment| segment.block / 256)
            .collect();
        assert!(zones.len() >= 2);
        for zone in zones {
            let mut disk = world.disk.clone();
            disk.unreadable.extend(zone * 256..zone * 256 + 256);
            nothing_lost(&mut world, disk, "a metadata zone unreadable");
            let mut disk = world.disk.clone();
            for block in zone * 256..zone * 256 + 256 {
                disk.poke(block, [0xff; BLOCK]);
            }
            nothing_lost(&mut world, disk, "a metadata zone overwritten");
        }
    }
}

/// A lost block is an error until it is written again.
#[test]
fn a_lost_block_can_be_written_again() {
    let mut world = World::new(11, 48, None);
    world.payload = 4096;
    for lbn in 0..8 {
        world.write(lbn);
    }
    world.detach();
    let segment = *scan::segments(&world.disk)
        .iter()
        .find(|segment| segment.kind == 1)
        .unwrap();
    world.disk.unreadable.insert(segment.block + 3);
    assert!(world.attach().unwrap().clean);
    let lost: Vec<u64> = (0..8).filter(|lbn| world.read(*lbn).is_err()).collect();
    assert!((1..=2).contains(&lost.len()), "{lost:?}");
    // The collector gives the block up, and says so.
    for lbn in 100..400 {
        world.write(lbn);
    }
    world.engine().request_collection();
    world.quiesce();
    world.tick();
    world.engine().request_checkpoint();
    world.quiesce();
    for lbn in 0..8 {
        let found = world.read(lbn);
        if lost.contains(&lbn) {
            assert!(found.is_err());
            world.write(lbn);
        }
        world.check(lbn);
    }
    world.quiesce();
    world.check_all();
}
