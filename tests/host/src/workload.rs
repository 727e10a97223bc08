// SPDX-License-Identifier: GPL-2.0

//! Random operations, restarts and power cuts on a volume whose shape is random, too.

use crate::rng::Rng;
use crate::world::{volume, Outcome, World};
use zbd_engine::create::NewVolume;
use zbd_engine::Config;

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Zones of 1 MiB.
    pub zones: u64,
    /// The volume.
    pub volume: NewVolume,
    /// The configuration.
    pub config: Config,
    /// Blocks that are used, from the first on.
    pub blocks: u64,
    /// Operations.
    pub steps: u64,
    /// Largest payload of a block in bytes.
    pub payload_max: u64,
    /// Whether more may be written than the device holds.
    pub may_fill: bool,
    /// One in this many lower writes fails; 0: none.
    pub write_errors: u64,
    /// Chances in 1000: extents, zeroed ranges, reads, flushes, restarts, power cuts.
    pub chances: [u64; 6],
}

impl Workload {
    /// A workload whose every parameter the seed decides.
    pub fn random(seed: u64) -> Workload {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let rng = &mut rng;
        let zones = 48 + rng.below(60);
        let mut volume = volume(256, None);
        volume.metadata_copies = 1 + rng.below(2) as u8;
        volume.options.straddle = rng.one_in(2);
        let config = Config {
            cache_pages: 64,
            overlay_entries: 512 << rng.below(3),
            overlay_ranges: 16 << rng.below(4),
            user_segments: 2 + rng.below(5) as usize,
            checkpoint_blocks: 64 << rng.below(6),
            discard: rng.one_in(2),
            ..Config::SMALL
        };
        let may_fill = rng.one_in(4);
        let surely = volume
            .geometry(zones << 20)
            .expect("geometry")
            .logical_blocks;
        let logical = if may_fill { 4 * surely } else { surely };
        volume.logical_blocks = Some(logical);
        Workload {
            zones,
            volume,
            config,
            blocks: (50 << rng.below(10)).min(logical),
            may_fill,
            steps: 300 + rng.below(2000),
            payload_max: 16 << (1 + rng.below(8)),
            write_errors: if rng.one_in(3) {
                20 + rng.below(200)
            } else {
                0
            },
            chances: [
                rng.below(200),
                rng.below(100),
                rng.below(300),
                rng.below(80),
                rng.below(15),
                rng.below(25),
            ],
        }
    }

    /// Runs it; panics if anything is wrong.
    pub fn run(&self, seed: u64) -> World {
        let mut world = World::with(seed, self.zones, &self.volume, self.config);
        if self.may_fill && world.rng.one_in(2) {
            self.fill(&mut world);
        }
        world.write_errors = self.write_errors;
        for _ in 0..self.steps {
            if world.engine().poisoned().is_some() && self.write_errors > 0 {
                self.power_cut(&mut world);
            }
            let mut dice = world.rng.below(1000);
            let mut choice = 0;
            for chance in self.chances {
                if dice < chance {
                    break;
                }
                dice -= chance;
                choice += 1;
            }
            self.step(&mut world, choice);
        }
        world.write_errors = 0;
        if world.engine().poisoned().is_some() {
            self.power_cut(&mut world);
        }
        world.quiesce();
        world.check_all();
        world
    }

    /// Writes until nothing fits.
    fn fill(&self, world: &mut World) {
        world.payload = 4096;
        for lbn in 0..self.volume.logical_blocks.unwrap_or(0) {
            if world.write(lbn) != Outcome::Done {
                break;
            }
        }
    }

    fn step(&self, world: &mut World, choice: usize) {
        let lbn = world.rng.below(self.blocks);
        world.payload = 16 + world.rng.below(self.payload_max) as usize;
        match choice {
            0 => {
                let log2 = world.rng.below(6) as u8;
                let lbn = lbn >> log2 << log2;
                if lbn + (1 << log2) <= self.blocks {
                    world.payload = (world.payload << log2).min(4096 << log2).min(131_000);
                    self.accept(world, |world| world.write_extent(lbn, log2));
                }
            }
            1 => {
                let most = if world.rng.one_in(20) {
                    self.blocks
                } else {
                    30
                };
                let count = (1 + world.rng.below(most)).min(self.blocks - lbn);
                self.accept(world, |world| world.zero(lbn, count));
            }
            2 => self.read(world, lbn),
            3 => match world.rng.below(12) {
                0..=4 => {
                    let result = world.flush();
                    assert!(result.is_ok() || world.engine().poisoned().is_some());
                }
                5 | 6 => {
                    world.start_flush();
                }
                7 => world.engine().request_checkpoint(),
                8 => world.tick(),
                9 | 10 => world.engine().request_collection(),
                _ => world.quiesce(),
            },
            4 if self.write_errors == 0 => {
                world.detach();
                assert!(world.attach().unwrap().clean);
            }
            4 | 5 => self.power_cut(world),
            _ => self.accept(world, |world| world.write(lbn)),
        }
    }

    fn power_cut(&self, world: &mut World) {
        world.crash();
        if let Err(error) = world.recover() {
            panic!("{error}");
        }
    }

    fn accept(&self, world: &mut World, write: impl Fn(&mut World) -> Outcome) {
        let outcome = write(world);
        let accepted = match outcome {
            Outcome::Done => true,
            Outcome::Full => self.may_fill,
            Outcome::ReadOnly => self.write_errors > 0,
        };
        assert!(accepted, "{outcome:?}");
    }

    fn read(&self, world: &mut World, lbn: u64) {
        if world.engine().poisoned().is_none() {
            world.check(lbn);
        }
    }
}
