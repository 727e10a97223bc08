// SPDX-License-Identifier: GPL-2.0

//! What things cost: bytes on the device, work, memory.

use zbd_engine::units::LOGICAL_BLOCKS_MAX;
use zbd_engine::{Config, Engine};
use zbd_host_tests::world::{volume, Outcome, World};

/// What LZ4 makes of a block with 200 random bytes in zeros: literals, their length, a match.
const LITTLE: usize = 216;

#[test]
fn little_payload_costs_little() {
    let mut world = World::new(1, 64, None);
    world.payload = LITTLE;
    let count = 8000;
    for lbn in 0..count {
        assert_eq!(world.write(lbn), Outcome::Done);
    }
    world.engine().request_checkpoint();
    world.quiesce();
    let stats = world.engine().stats;
    let log = stats.user_log_bytes / count;
    let all = (stats.user_log_bytes + stats.metadata_log_bytes) / count;
    let live = world.engine().gauges().live_bytes / count;
    assert!(live <= 256 + 20, "{live} bytes live for each block");
    assert!(log <= 280, "{log} bytes of log for each block");
    assert!(all <= 300, "{all} bytes for each block");
}

#[test]
fn stored_sizes() {
    for (payload, units) in [(16, 2), (17, 3), (240, 16), (241, 17), (4096, 257)] {
        let mut world = World::new(2, 48, None);
        world.payload = payload;
        world.engine().request_checkpoint();
        world.quiesce();
        let before = world.engine().gauges().live_bytes;
        assert_eq!(world.write(7), Outcome::Done);
        let found = world.engine().gauges().live_bytes - before;
        assert_eq!(found, units * 16, "payload of {payload} bytes");
    }
}

/// A small compressible write that is flushed costs one block of log.
#[test]
fn a_small_flushed_write_costs_one_block() {
    let mut world = World::new(3, 48, None);
    world.payload = 1500;
    world.quiesce();
    let before = world.engine().stats;
    for lbn in 0..20 {
        assert_eq!(world.write(lbn), Outcome::Done);
        world.flush().unwrap();
    }
    let stats = world.engine().stats;
    assert_eq!(stats.user_log_bytes - before.user_log_bytes, 20 * 4096);
}

/// Steps and lower blocks of a volume's life with a handful of blocks spread over all of it.
fn life(logical_blocks: u64) -> [u64; 5] {
    let mut world = World::with(4, 96, &volume(256, Some(logical_blocks)), Config::SMALL);
    let mut costs = [0; 5];
    let steps = |world: &mut World| {
        let mut count = 0;
        while world.step() {
            count += 1;
            assert!(count < 10_000);
        }
        count
    };
    let spread = logical_blocks / 5;
    for at in 0..5 {
        assert_eq!(world.write(at * spread), Outcome::Done);
    }
    world.engine().request_checkpoint();
    costs[0] = steps(&mut world);
    world.check_all();
    world.detach();
    world.disk.traffic = 0;
    world.attach().unwrap();
    costs[1] = world.disk.traffic;
    for at in 0..5 {
        assert_eq!(world.write(at * spread + 1), Outcome::Done);
    }
    world.flush().unwrap();
    world.crash();
    world.disk.traffic = 0;
    world.attach().unwrap();
    costs[2] = world.disk.traffic;
    // Everything is discarded, over what is mapped and then over nothing.
    for cost in &mut costs[3..] {
        assert_eq!(world.zero_unseen(0, logical_blocks), Outcome::Done);
        world.engine().request_checkpoint();
        *cost = steps(&mut world);
    }
    for at in 0..5 {
        assert_eq!(world.read(at * spread), Ok(0));
    }
    world.check_sound();
    costs
}

#[test]
fn work_does_not_grow_with_the_logical_size() {
    let small = life(1 << 20);
    let large = life(LOGICAL_BLOCKS_MAX);
    for (at, (small, large)) in small.iter().zip(large).enumerate() {
        // A taller map has more levels, but not more of anything else.
        assert!(
            large <= small * 4 + 64,
            "cost {at}: {small} blocks or steps, then {large}"
        );
    }
    assert_eq!(small[1], large[1], "a clean attach reads the same");
    assert_eq!(small[2], large[2], "a recovery reads the same");
}

#[test]
fn memory_does_not_grow() {
    let memory = |logical_blocks| {
        let mut world = World::with(5, 96, &volume(256, Some(logical_blocks)), Config::SMALL);
        let before = world.engine().gauges();
        for at in 0..3000 {
            let lbn = world.rng.below(logical_blocks);
            assert_eq!(world.write(lbn), Outcome::Done);
            if at % 100 == 0 {
                world.flush().unwrap();
            }
        }
        world.quiesce();
        let after = world.engine().gauges();
        assert_eq!(before.memory_bytes, after.memory_bytes);
        assert!(after.cached_pages <= Config::SMALL.cache_pages as u64);
        after.memory_bytes
    };
    assert_eq!(memory(1 << 16), memory(LOGICAL_BLOCKS_MAX));
    assert!(memory(1 << 16) < 3 << 20);
    assert!(Engine::buffers_bytes(&Config::SMALL) < 5 << 20);
}

/// The default configuration is what the documentation says.
#[test]
fn memory_of_the_default() {
    let world = World::with(6, 48, &volume(256, None), Config::DEFAULT);
    let gauges = world.engine.as_ref().unwrap().gauges();
    assert!(gauges.memory_bytes < 100 << 20, "{}", gauges.memory_bytes);
    assert!(Engine::buffers_bytes(&Config::DEFAULT) < 10 << 20);
}
