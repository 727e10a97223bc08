// SPDX-License-Identifier: GPL-2.0

//! The outside world in one page: what the engine asks for and what it is told.
//!
//! The engine never does I/O. It queues [`Action`]s; the driver takes them with
//! `Engine::next_action`, **in order**, submits them in that order, and reports each token once
//! through `Engine::io_done`. Writes to one zone are queued in the order of their addresses.

use super::error::Result;

/// Identifies an outstanding lower I/O.
pub type Token = u32;
/// Identifies one of the volume's buffers; `Engine::buffer_bytes` lists their sizes.
pub type BufferId = u16;
/// A request of the driver's that waits or is to be completed; the number is the driver's own.
pub type RequestId = u32;

/// What a write must guarantee when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// Nothing: the device may cache it.
    None,
    /// The write is durable (REQ_FUA).
    Fua,
    /// So is everything that completed before it was submitted (REQ_PREFLUSH | REQ_FUA).
    FlushFua,
}

/// Something that the driver has to do. Lengths and addresses are bytes, multiples of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read into `buffer`.
    Read {
        /// To be reported.
        token: Token,
        /// Where to.
        buffer: BufferId,
        /// Offset in the buffer.
        at: u32,
        /// How much.
        bytes: u32,
        /// Where from.
        address: u64,
    },
    /// Write from the start of `buffer`.
    Write {
        /// To be reported.
        token: Token,
        /// Where from.
        buffer: BufferId,
        /// How much.
        bytes: u32,
        /// Where to.
        address: u64,
        /// With which guarantee.
        barrier: Barrier,
    },
    /// Make everything that has completed durable (REQ_PREFLUSH).
    Flush {
        /// To be reported.
        token: Token,
    },
    /// Discard a range (or reset the zone that it is). Failure is harmless.
    Discard {
        /// To be reported.
        token: Token,
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
    },
    /// Let a request that was told to wait try again.
    Wake {
        /// The request.
        request: RequestId,
    },
    /// End a flush.
    Complete {
        /// The request.
        request: RequestId,
        /// With what.
        result: Result,
    },
}

/// The memory behind buffer numbers.
///
/// The engine writes only to buffers and ranges that nothing else uses at the time.
pub trait Buffers {
    /// The bytes of a buffer.
    fn bytes(&self, buffer: BufferId) -> &[u8];
    /// The bytes of a buffer that only the engine uses at this time.
    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8];
    /// Copies `bytes` bytes from one buffer to another that only the engine uses at this time.
    fn copy(&mut self, from: BufferId, from_at: usize, to: BufferId, to_at: usize, bytes: usize);
    /// Copies `bytes` to `at` in a segment buffer whose other ranges may be in use.
    fn write(&mut self, buffer: BufferId, at: usize, bytes: &[u8]);
}

/// The lower device as format and attach use it: synchronously, before the volume is in service.
pub trait Media {
    /// Size in bytes.
    fn capacity_bytes(&self) -> u64;
    /// Fills `bytes` from `address`; both multiples of the block size.
    ///
    /// # Errors
    ///
    /// `Error::Io` if any of it is unreadable.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result;
    /// Writes `bytes` at `address`; both multiples of the block size.
    ///
    /// # Errors
    ///
    /// `Error::Io`.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result;
    /// Makes all writes durable.
    ///
    /// # Errors
    ///
    /// `Error::Io`.
    fn flush(&mut self) -> Result;
}
