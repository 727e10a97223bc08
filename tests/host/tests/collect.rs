// SPDX-License-Identifier: GPL-2.0

//! Garbage collection while blocks are overwritten: a survivor never replaces what is newer.

use zbd_host_tests::world::{Outcome, World};

/// A zone is emptied while its blocks are overwritten and checkpoints are cut, in many orders.
#[test]
fn survivors_never_replace_newer_data() {
    for seed in 0..60 {
        let mut world = World::new(seed, 48, None);
        world.payload = 2000;
        for _ in 0..600 {
            let lbn = world.rng.below(400);
            assert_eq!(world.write(lbn), Outcome::Done);
        }
        world.engine().request_checkpoint();
        world.quiesce();
        for round in 0..12 {
            world.engine().request_collection();
            for _ in 0..20 {
                let lbn = world.rng.below(400);
                assert_eq!(world.write(lbn), Outcome::Done);
                if world.rng.one_in(20) {
                    world.engine().request_checkpoint();
                }
            }
            world.tick();
            if round % 2 == 1 {
                world.quiesce();
            }
        }
        world.quiesce();
        world.check_all();
    }
}
