// SPDX-License-Identifier: GPL-2.0

//! Discard and write-zeroes: both make blocks read as zeros.

use super::{
    errors::request_errno,
    queue::{
        self,
        Driver, //
    },
    volume::Volume, //
};
use crate::{
    engine::{
        units::BLOCK_BYTES,
        write::{
            Piece,
            Slot,
            Stall, //
        }, //
    },
    linux::request::Request, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Blocks that are handled in one go under the lock: 1 GiB.
const SLICE_BLOCKS: u64 = 1 << 18;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / 512;

/// How a slice went.
enum Outcome {
    Done,
    Wait,
    Failed(Error),
}

/// Works on a discard or write-zeroes until it is ended or has to wait.
pub(super) fn step(volume: &Arc<Volume>, rq: Request<Driver>) {
    let first = rq.sector() / BLOCK_SECTORS;
    let blocks = (rq.bytes() / BLOCK_BYTES) as u64;
    // Where it left off if it had to wait.
    let mut done = rq.data().state.lock().done as u64;
    let mut rq = Some(rq);
    while done < blocks {
        let slice = (blocks - done).min(SLICE_BLOCKS);
        let outcome = volume.with(|core| {
            let lbn = first + done;
            if core.engine.is_unmapped(lbn, slice) {
                return Outcome::Done;
            }
            let Some(tag) = rq.as_ref().map(|rq| rq.tag()) else {
                return Outcome::Wait;
            };
            let pieces = [Piece::Zeros { lbn, blocks: slice }];
            let mut slots = [Slot::EMPTY];
            match core
                .engine
                .reserve(&mut core.owner, tag, &pieces, &mut slots)
            {
                Ok(_) => {
                    core.engine.commit(&mut core.owner, &slots);
                    Outcome::Done
                }
                Err(Stall::Wait) => {
                    if let Some(rq) = rq.take() {
                        rq.data().state.lock().done = done as usize;
                        core.park(rq);
                    }
                    Outcome::Wait
                }
                Err(stall) => Outcome::Failed(request_errno(stall)),
            }
        });
        match outcome {
            Outcome::Done => done += slice,
            Outcome::Wait => return volume.kick_background(),
            Outcome::Failed(e) => {
                if let Some(rq) = rq {
                    rq.end(Err(e));
                }
                return;
            }
        }
    }
    match rq {
        Some(rq) if rq.is_fua() => queue::flush(volume, rq),
        Some(rq) => rq.end(Ok(())),
        None => {}
    }
}
