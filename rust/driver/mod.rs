// SPDX-License-Identifier: GPL-2.0

//! The driver: what runs where, with which memory. It never knows the format.
//!
//! A request comes to `queue.rs`, which calls the file for its operation. None of them ever waits:
//! a request that cannot go on is *parked* and its work queued again when it can.
//!
//! | file | job |
//! |---|---|
//! | [`volume`] | a volume in service: engine, lock, buffers, queues |
//! | [`queue`] | requests arrive, go to the file for their operation, are parked and woken |
//! | [`write`], [`compress`] | copy, compress, reserve, fill, commit |
//! | [`read`], [`decompress`] | look up, read neighbours together, verify, decompress |
//! | [`discard`] | discard and write-zeroes |
//! | [`submit`] | does what the engine asks for, in order, and tells it when it is done |
//! | [`background`] | checkpoints, garbage collection, the tick |
//! | [`pool`], [`workspace`] | buffers that requests share and wait for |
//! | [`attach`] | format, attach and detach |
//! | [`control`], [`parse`] | `/sys/class/zbd-control/` |
//! | [`attributes`] | `/sys/block/zbdN/zbd/` |
//! | [`errors`] | the engine's errors as errno |

mod attach;
mod attributes;
mod background;
mod compress;
pub(crate) mod control;
mod decompress;
mod discard;
mod errors;
mod parse;
mod pool;
mod queue;
mod read;
mod submit;
mod volume;
mod workspace;
mod write;
