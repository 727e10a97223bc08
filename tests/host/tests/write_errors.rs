// SPDX-License-Identifier: GPL-2.0

//! Lower writes that fail: repeated elsewhere before anything is acknowledged, or the volume turns
//! read-only and says so. Never a hang, never a loss.

use zbd_host_tests::workload::Workload;
use zbd_host_tests::world::{Outcome, World};

#[test]
fn now_and_then() {
    for seed in 0..12 {
        let workload = Workload {
            write_errors: 8 + seed * 5,
            steps: 600,
            ..Workload::random(seed + 500)
        };
        workload.run(seed);
    }
}

#[test]
fn a_failed_write_goes_elsewhere() {
    for count in 1..=4 {
        for seed in 0..20 {
            let mut world = World::new(seed, 48, None);
            world.fail_next = count;
            for lbn in 0..40 {
                world.payload = 3000;
                assert_eq!(world.write(lbn % 13), Outcome::Done);
                if world.rng.one_in(8) {
                    world.tick();
                }
            }
            world.flush().unwrap();
            assert_eq!(world.fail_next, 0, "no write failed");
            world.crash();
            world.recover().unwrap();
            world.quiesce();
            world.check_all();
        }
    }
}

#[test]
fn a_bad_region_is_avoided() {
    for seed in 0..6 {
        let mut world = World::new(seed, 64, None);
        // Single blocks and a whole zone, roots excepted.
        for zone in 2..60 {
            if world.rng.one_in(6) {
                let block = zone * 256 + world.rng.below(256);
                world.disk.unwritable.insert(block);
            }
        }
        world.disk.unwritable.extend(9 * 256..10 * 256);
        for _ in 0..6000 {
            let lbn = world.rng.below(2000);
            world.payload = 16 + world.rng.below(4080) as usize;
            assert_eq!(world.write(lbn), Outcome::Done);
            if world.rng.one_in(300) {
                world.flush().unwrap();
            }
            if world.rng.one_in(2000) {
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

/// Both copies of a metadata segment fail: the checkpoint is tried again, and data goes on.
#[test]
fn a_checkpoint_is_tried_again() {
    for seed in 0..20 {
        let mut world = World::new(seed, 48, None);
        for lbn in 0..300 {
            assert_eq!(world.write(lbn * 5), Outcome::Done);
        }
        world.flush().unwrap();
        world.quiesce();
        let before = world.engine().stats.checkpoints;
        for attempt in 1..=3 {
            world.fail_next = 2;
            world.engine().request_checkpoint();
            while world.fail_next > 0 {
                assert!(world.step(), "the checkpoint writes nothing");
                assert_eq!(world.write(attempt), Outcome::Done);
            }
        }
        world.quiesce();
        world.check_all();
        world.engine().request_checkpoint();
        world.quiesce();
        assert!(world.engine().stats.checkpoints > before);
        world.crash();
        world.recover().unwrap();
        world.detach();
        assert!(world.attach().unwrap().clean);
        world.check_all();
    }
}

/// One copy of each metadata segment fails: nothing is lost.
#[test]
fn one_copy_fails() {
    for seed in 0..20 {
        let mut world = World::new(seed, 48, None);
        for round in 0..6 {
            for lbn in 0..100 {
                assert_eq!(world.write(lbn * 7 + round), Outcome::Done);
            }
            world.flush().unwrap();
            world.quiesce();
            world.fail_next = 1;
            world.engine().request_checkpoint();
            world.quiesce();
        }
        world.check_all();
        world.detach();
        assert!(world.attach().unwrap().clean);
        world.check_all();
    }
}

/// The whole device stops taking writes: an error for whoever asks, and reads go on.
#[test]
fn a_dead_device() {
    for seed in 0..10 {
        let mut world = World::new(seed, 48, None);
        for lbn in 0..200 {
            assert_eq!(world.write(lbn), Outcome::Done);
        }
        world.flush().unwrap();
        world.quiesce();
        let zones = world.engine().geometry().zones;
        world.disk.unwritable.extend(0..u64::from(zones) * 256);
        let mut written = 0;
        while world.write(1000 + written % 300) == Outcome::Done {
            written += 1;
            assert!(written < 100_000, "writes go on for ever");
            if written % 50 == 0 && world.flush().is_err() {
                break;
            }
        }
        assert!(world.engine().poisoned().is_some());
        assert!(world.flush().is_err(), "a flush must not succeed");
        assert_eq!(world.write(3), Outcome::ReadOnly);
        world.quiesce();
        for lbn in 0..200 {
            world.check(lbn);
        }
        world.disk.unwritable.clear();
        world.crash();
        world.recover().unwrap();
        world.quiesce();
        world.check_all();
    }
}
