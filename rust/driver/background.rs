// SPDX-License-Identifier: GPL-2.0

//! The engine's background work: checkpoints, garbage collection, discards.

use super::volume::Volume;
use crate::linux::{
    memalloc::NoIo,
    workqueue::Tick, //
};
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};

/// Slices of work after which the work item goes to the end of the queue.
const SLICES: usize = 16;

/// How often time passes, in milliseconds.
pub(super) const TICK_MS: u32 = 1000;

impl WorkItem<2> for Volume {
    type Pointer = Arc<Volume>;

    fn run(volume: Arc<Volume>) {
        let _scope = NoIo::enter();
        for _ in 0..SLICES {
            // The lock is free between two slices: requests go on.
            if !volume.with(|core| core.engine.run(&mut core.owner)) {
                return;
            }
        }
        volume.kick_background();
    }
}

/// Gives the engine time to pass.
pub(super) struct Clock(pub(super) Arc<Volume>);

impl Tick for Clock {
    fn tick(&self) {
        let _scope = NoIo::enter();
        self.0.renew_log_lines();
        self.0.tell_all();
        self.0.with(|core| core.engine.tick(&mut core.owner));
        self.0.kick_background();
    }
}
