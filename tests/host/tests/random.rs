// SPDX-License-Identifier: GPL-2.0

//! Random operations, restarts and power cuts against the reference model.

use zbd_host_tests::world::{Outcome, World};

fn run(seed: u64, zones: u64, blocks: u64, steps: u64) -> World {
    let mut world = World::new(seed, zones, None);
    for _ in 0..steps {
        let lbn = world.rng.below(blocks);
        match world.rng.below(100) {
            0..=59 => {
                world.payload = 16 + world.rng.below(4080) as usize;
                assert_eq!(world.write(lbn), Outcome::Done);
            }
            60..=69 => {
                let count = 1 + world.rng.below(30);
                assert_eq!(world.zero(lbn, count), Outcome::Done);
            }
            70..=89 => world.check(lbn),
            90..=93 => world.flush().unwrap(),
            94 => {
                world.start_flush();
            }
            95 => world.engine().request_checkpoint(),
            96 => world.quiesce(),
            97 => {
                world.detach();
                assert!(world.attach().unwrap().clean);
            }
            _ => {
                world.crash();
                if let Err(error) = world.recover() {
                    panic!("seed {seed}: {error}");
                }
            }
        }
    }
    world.quiesce();
    world.check_all();
    world
}

#[test]
fn small_volume() {
    for seed in 0..30 {
        run(seed, 48, 200, 400);
    }
}

#[test]
fn many_blocks() {
    for seed in 100..106 {
        run(seed, 64, 3000, 3000);
    }
}
