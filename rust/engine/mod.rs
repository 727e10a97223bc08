// SPDX-License-Identifier: GPL-2.0

//! The engine: zbd's format, map, log, checkpoints, garbage collection and recovery, without any
//! I/O, clock, thread or kernel type. `Documentation/design.md` gives the reasons.
//!
//! A write goes through these files in order:
//!
//! 1. `write.rs`: the driver has compressed the data; `reserve` gives it places in open segments,
//!    it copies the fragments there outside the lock, and `commit` gives each an operation number
//!    and puts its entry into the overlay (`overlay.rs`, `points.rs`).
//! 2. `issue.rs`: a full segment is sealed and written; `log.rs` keeps the streams' state.
//! 3. `flush.rs`: FLUSH and FUA.
//! 4. `complete.rs`: what happens when lower I/O completes or fails.
//! 5. `checkpoint.rs`, `merge.rs`, `metadata.rs`: the overlay becomes pages of the map, and a root
//!    records it.
//! 6. `collect.rs`: zones are emptied; `zones.rs` keeps their state, `policy.rs` chooses.
//!
//! A read: `read.rs`, with `load.rs` and `pages.rs` for pages that are not in memory.
//! Attaching: `attach.rs` finds the root, `replay.rs` rolls the log forward. `create.rs` formats.
//! `format/` has the bytes on disk, `io.rs` the whole outside world in one page.

pub mod attach;
pub mod audit;
pub mod checkpoint;
pub mod collect;
pub mod complete;
pub mod create;
pub mod error;
pub mod flush;
pub mod format;
pub mod io;
pub mod issue;
pub mod limits;
pub mod load;
pub mod log;
pub mod merge;
pub mod metadata;
pub mod overlay;
pub mod pages;
pub mod planted;
pub mod points;
pub mod policy;
pub mod queue;
pub mod read;
pub mod replay;
pub mod space;
pub mod state;
pub mod stats;
pub mod sync;
pub mod units;
pub mod write;
pub mod zones;

pub use error::{Error, Result};
pub use io::{Action, Barrier, BufferId, Buffers, Media, RequestId, Token};
pub use limits::Config;
pub use state::Engine;
