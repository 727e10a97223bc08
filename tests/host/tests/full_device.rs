// SPDX-License-Identifier: GPL-2.0

//! A device that is full: writes fail, everything else works, and nothing acknowledged is lost.

use zbd_host_tests::world::{Outcome, World};

const LOGICAL: u64 = 1 << 20;

/// Writes blocks from `from` on until the device is full; answers the first that did not fit.
fn fill(world: &mut World, from: u64) -> u64 {
    world.payload = 4096;
    for lbn in from..LOGICAL {
        match world.write(lbn) {
            Outcome::Done => {}
            Outcome::Full => return lbn,
            other => panic!("a write ended as {other:?}"),
        }
    }
    panic!("more was written than the device holds");
}

fn check_some(world: &mut World) {
    let blocks = world.reference.blocks();
    for lbn in blocks.into_iter().step_by(37) {
        world.check(lbn);
    }
    world.check_sound();
}

#[test]
fn full_and_empty_again() {
    let mut world = World::new(1, 64, Some(LOGICAL));
    let end = fill(&mut world, 0);
    assert!(end > 60 * 256 / 2, "{end} blocks are too few");
    world.flush().unwrap();
    check_some(&mut world);
    assert_eq!(world.write(end), Outcome::Full);
    // Space comes back without a restart, and flushes and reads go on.
    assert_eq!(world.zero(0, end / 2), Outcome::Done);
    world.quiesce();
    for lbn in 0..end / 4 {
        assert_eq!(world.write(lbn), Outcome::Done);
    }
    world.flush().unwrap();
    check_some(&mut world);
    world.crash();
    world.recover().unwrap();
    world.quiesce();
    check_some(&mut world);
}

#[test]
fn nothing_acknowledged_is_lost_at_the_limit() {
    for seed in 0..3 {
        let mut world = World::new(seed, 48, Some(LOGICAL));
        let end = fill(&mut world, 0);
        // Overwriting in place of what is there may be refused, but not forgotten.
        for _ in 0..2000 {
            let lbn = world.rng.below(end);
            assert_ne!(world.write(lbn), Outcome::ReadOnly);
            if world.rng.one_in(50) {
                world.flush().unwrap();
            }
            if world.rng.one_in(500) {
                world.crash();
                world.recover().unwrap();
            }
        }
        world.quiesce();
        world.check_all();
        world.detach();
        assert!(world.attach().unwrap().clean);
        world.check_all();
    }
}

/// Most overwrites hit few blocks while nearly all space is live.
#[test]
fn skewed_overwrites_of_a_nearly_full_device() {
    for (seed, free_percent) in [(1, 5), (2, 3), (25, 2)] {
        let mut world = World::new(seed, 64, Some(LOGICAL));
        let end = fill(&mut world, 0);
        let live = end - end * free_percent / 100;
        assert_eq!(world.zero(live, end - live), Outcome::Done);
        world.quiesce();
        for round in 0..20_000u32 {
            let hot = !world.rng.one_in(5);
            let lbn = world.rng.below(if hot { live / 10 } else { live });
            let outcome = world.write(lbn);
            let engine = world.engine();
            assert_eq!(
                outcome,
                Outcome::Done,
                "round {round}, {free_percent} % free: {:?} {:?}",
                engine.situation(),
                engine.stats
            );
            if round % 400 == 0 {
                world.flush().unwrap();
            }
        }
        world.quiesce();
        check_some(&mut world);
    }
}

#[test]
fn ten_times_full_and_empty() {
    let mut world = World::new(4, 48, Some(LOGICAL));
    let mut first = 0;
    for round in 0..10 {
        let end = fill(&mut world, 0);
        if round == 0 {
            first = end;
        }
        // A little depends on what is open at the time.
        assert!(
            end + end / 20 >= first,
            "round {round}: {end} of {first} fit"
        );
        world.flush().unwrap();
        if round % 3 == 2 {
            world.crash();
            world.recover().unwrap();
        }
        assert_eq!(world.zero(0, LOGICAL), Outcome::Done);
        world.quiesce();
        world.check_sound();
    }
    world.engine().request_checkpoint();
    world.quiesce();
    assert_eq!(world.engine().gauges().mapped_blocks, 0);
}

/// A volume of the default size takes data that does not compress in every block, and overwrites
/// of all of it.
#[test]
fn the_default_size_surely_fits() {
    for zones in [48, 64, 200] {
        let mut world = World::new(zones, zones, None);
        world.payload = 4096;
        let blocks = world.engine().geometry().logical_blocks;
        for lbn in 0..blocks {
            assert_eq!(world.write(lbn), Outcome::Done, "block {lbn} of {blocks}");
        }
        for _ in 0..blocks / 2 {
            let lbn = world.rng.below(blocks);
            assert_eq!(world.write(lbn), Outcome::Done, "block {lbn} again");
        }
        world.flush().unwrap();
        check_some(&mut world);
    }
}

/// What is kept for emergencies is there when it is needed, and kept again afterwards.
#[test]
fn emergency_space() {
    let mut world = World::new(7, 64, Some(LOGICAL));
    let end = fill(&mut world, 0);
    assert!(!world.engine().emergency_released());
    world.engine().release_emergency(true);
    let last = fill(&mut world, end);
    assert!(last - end > 100, "{} blocks more are too few", last - end);
    assert_eq!(world.zero(0, end / 2), Outcome::Done);
    world.engine().request_checkpoint();
    world.quiesce();
    assert_eq!(world.write(0), Outcome::Done);
    assert!(!world.engine().emergency_released());
    check_some(&mut world);
}
