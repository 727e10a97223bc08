// SPDX-License-Identifier: GPL-2.0

//! Garbage collection while blocks are overwritten: a survivor never replaces what is newer.

use zbd_host_tests::world::{Outcome, World};

/// Zones are emptied while their blocks are overwritten and checkpoints are cut, in many orders.
#[test]
fn survivors_never_replace_newer_data() {
    for seed in 0..12 {
        let mut world = World::new(seed, 48, None);
        world.payload = 4096;
        for round in 0..4000 {
            if world.rng.one_in(3) {
                world.engine().request_collection();
            }
            if world.rng.one_in(4) {
                world.engine().request_checkpoint();
            }
            let lbn = world.rng.below(40);
            assert_eq!(world.write(lbn), Outcome::Done);
            if round % 40 == 0 {
                world.tick();
                world.quiesce();
                world.check_all();
            }
        }
    }
}
