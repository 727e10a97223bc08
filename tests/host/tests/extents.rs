// SPDX-License-Identifier: GPL-2.0

//! Extents of up to 32 blocks that share one fragment: partly overwritten, collected, recovered.

use zbd_engine::Config;
use zbd_host_tests::workload::Workload;
use zbd_host_tests::world::{volume, Outcome, World};

#[test]
fn every_size_reads_back() {
    let mut world = World::new(1, 48, None);
    for log2 in 0..=5 {
        for at in 0..8 {
            world.payload = 100 << log2;
            assert_eq!(
                world.write_extent((at * 8 + log2) << 5, log2 as u8),
                Outcome::Done
            );
        }
    }
    world.check_all();
    world.detach();
    world.attach().unwrap();
    world.check_all();
}

#[test]
fn partly_overwritten() {
    for seed in 0..8 {
        let mut world = World::new(seed, 48, None);
        for at in 0..60 {
            world.payload = 20_000;
            assert_eq!(world.write_extent(at * 32, 5), Outcome::Done);
        }
        world.flush().unwrap();
        for _ in 0..2000 {
            let lbn = world.rng.below(60 * 32);
            world.payload = 500;
            let outcome = match world.rng.below(4) {
                0 => world.write_extent(lbn >> 2 << 2, 2),
                1 => world.zero(lbn, 1),
                _ => world.write(lbn),
            };
            assert_eq!(outcome, Outcome::Done);
            if world.rng.one_in(100) {
                world.engine().request_collection();
            }
            if world.rng.one_in(300) {
                world.crash();
                world.recover().unwrap();
            }
        }
        world.quiesce();
        world.check_all();
    }
}

/// One block of each large extent stays, and its whole fragment with it, because the collector
/// does not split extents: the device is full at some time, and says so instead of moving the
/// same bytes for ever.
#[test]
fn one_block_of_each_lives() {
    let mut world = World::new(5, 64, Some(1 << 20));
    let mut extents = 0;
    let mut full = false;
    while !full && extents < 2000 {
        world.payload = 120_000;
        full = world.write_extent(extents * 32, 5) == Outcome::Full;
        if !full {
            assert_eq!(world.zero(extents * 32 + 1, 31), Outcome::Done);
            extents += 1;
        }
    }
    assert!(full && extents > 300, "{extents} extents");
    world.quiesce();
    world.check_all();
    let stats = world.engine().stats;
    assert!(stats.gc_log_bytes < 8 * stats.user_log_bytes, "{stats:?}");
    // All of it can be had back.
    assert_eq!(world.zero(0, extents * 32), Outcome::Done);
    world.quiesce();
    for extent in 0..200 {
        assert_eq!(world.write_extent(extent * 32, 5), Outcome::Done);
    }
    world.quiesce();
    world.check_all();
}

#[test]
fn random_mixes() {
    for seed in 0..10 {
        let workload = Workload {
            chances: [500, 50, 150, 20, 5, 10],
            payload_max: 64 << (seed % 6),
            blocks: 2000,
            steps: 1000,
            zones: 64,
            config: Config::SMALL,
            ..Workload::random(seed + 900)
        };
        workload.run(seed);
    }
}

/// A log of extents holds many more blocks than entries, and whoever attaches may have smaller
/// pools than whoever wrote it.
#[test]
fn a_log_larger_than_the_pools() {
    let mut world = World::with(6, 48, &volume(256, None), Config::DEFAULT);
    for at in 0..120 {
        world.payload = 2000;
        assert_eq!(world.write_extent(at * 32, 5), Outcome::Done);
        assert_eq!(world.zero(at * 32 + 3, 12), Outcome::Done);
    }
    world.flush().unwrap();
    world.crash();
    world.config = Config {
        overlay_entries: 512,
        overlay_ranges: 16,
        ..Config::SMALL
    };
    let reference = world.reference.clone();
    let disk = world.disk.clone();
    let mut world = world.resume(disk, reference);
    world.recover().unwrap();
    world.quiesce();
    world.check_all();
    assert_eq!(world.write(1), Outcome::Done);
    world.detach();
    world.attach().unwrap();
    world.check_all();
}
