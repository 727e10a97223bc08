// SPDX-License-Identifier: GPL-2.0

//! Writing: copy once, compress the copy, let the engine reserve places, fill them, commit.
//!
//! Only reserving and committing happen under the lock. A write that finds no place keeps its
//! compressed data in its buffer and waits without a thread.

use super::{
    compress,
    errors::request_errno,
    pool::Waiters,
    queue::{
        self,
        Driver,
        REQUESTS,
        REQUEST_BLOCKS_MAX,
        REQUEST_BYTES_MAX, //
    },
    volume::Volume, //
};
use crate::{
    engine::{
        format::fragment,
        units::BLOCK_BYTES,
        write::{
            Piece,
            Slot,
            Stall, //
        }, //
    },
    linux::{
        arena::Arena,
        request::Request, //
    }, //
};
use core::ops::Range;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Sectors of a block.
const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / 512;
/// Largest fragment of a single block: stored as it is, with its header.
const ROOM_BYTES: usize = BLOCK_BYTES + fragment::HEADER_BYTES;

/// Where the payload of a piece is.
#[derive(Clone, Copy)]
pub(super) enum Payload {
    /// There is none: zeros.
    None,
    /// In `copy`, as it came, from this byte on: one block.
    Raw(usize),
    /// In `packed`.
    Packed(usize, usize),
}

/// What a write needs from its beginning to its end.
pub(super) struct WriteBuffer {
    /// The request's data as it was when we looked.
    pub(super) copy: KVVec<u8>,
    /// The same, compressed.
    pub(super) packed: KVVec<u8>,
    /// What is to be written, in order, and where its payload is; as many as each other.
    pub(super) pieces: KVVec<Piece>,
    pub(super) payloads: KVVec<Payload>,
    slots: KVVec<Slot>,
    /// Room for one fragment.
    room: KVVec<u8>,
    /// Pieces that are committed.
    next: usize,
    /// Pieces after these for which slots are reserved and filled.
    filled: usize,
}

impl WriteBuffer {
    const BYTES: usize = 2 * REQUEST_BYTES_MAX + ROOM_BYTES;

    fn new() -> Result<Self> {
        Ok(Self {
            copy: KVVec::from_elem(0, REQUEST_BYTES_MAX, GFP_KERNEL)?,
            packed: KVVec::from_elem(0, REQUEST_BYTES_MAX, GFP_KERNEL)?,
            pieces: KVVec::with_capacity(REQUEST_BLOCKS_MAX, GFP_KERNEL)?,
            payloads: KVVec::with_capacity(REQUEST_BLOCKS_MAX, GFP_KERNEL)?,
            slots: KVVec::from_elem(Slot::EMPTY, REQUEST_BLOCKS_MAX, GFP_KERNEL)?,
            room: KVVec::from_elem(0, ROOM_BYTES, GFP_KERNEL)?,
            next: 0,
            filled: 0,
        })
    }

    /// Appends a piece. There is room for one per block.
    pub(super) fn push(&mut self, piece: Piece, payload: Payload) -> Result {
        self.pieces.push_within_capacity(piece)?;
        self.payloads.push_within_capacity(payload)?;
        Ok(())
    }

    /// Copies the request's data and compresses it.
    fn prepare(&mut self, volume: &Volume, rq: &Request<Driver>) -> Result {
        self.pieces.clear();
        self.payloads.clear();
        self.next = 0;
        self.filled = 0;
        let bytes = rq.bytes();
        let copy = self.copy.get_mut(..bytes).ok_or(EIO)?;
        rq.cursor(0)?.read(copy)?;
        let mut workspace = volume.workspaces.get().ok_or(EIO)?;
        compress::pack(&mut workspace, self, rq.sector() / BLOCK_SECTORS, bytes)
    }

    /// Copies fragments to the slots that are reserved.
    fn fill(&mut self, arena: &Arena) -> Result {
        let slots = self.slots.get(..self.filled).ok_or(EIO)?;
        let payloads = self.payloads.get(self.next..).ok_or(EIO)?;
        for (slot, payload) in slots.iter().zip(payloads) {
            let bytes = match *payload {
                Payload::None => continue,
                Payload::Raw(at) => self.copy.get(at..at + BLOCK_BYTES),
                Payload::Packed(at, len) => self.packed.get(at..at + len),
            };
            let (bytes, (buffer, range)) = bytes.zip(slot.range()).ok_or(EIO)?;
            let room = self.room.get_mut(..range.len()).ok_or(EIO)?;
            if !slot.fill(room, bytes) {
                return Err(EIO);
            }
            arena.write_at(buffer.into(), range.start, room)?;
        }
        Ok(())
    }

    /// Pieces to reserve, and where their slots go.
    fn rest(&mut self) -> Option<(&[Piece], &mut [Slot])> {
        let pieces = self.pieces.get(self.next..)?;
        let slots = self.slots.get_mut(..pieces.len())?;
        Some((pieces, slots))
    }

    fn reserved(&self) -> Range<usize> {
        0..self.filled
    }
}

/// The buffers of writes.
#[pin_data]
pub(super) struct WriteBuffers {
    #[pin]
    free: Mutex<KVVec<KBox<WriteBuffer>>>,
    #[pin]
    waiters: Waiters,
}

impl WriteBuffers {
    /// Allocates `count` buffers. May sleep.
    pub(super) fn new(count: usize) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let mut free = KVVec::with_capacity(count, GFP_KERNEL)?;
            for _ in 0..count {
                let buffer = KBox::new(WriteBuffer::new()?, GFP_KERNEL)?;
                free.push(buffer, GFP_KERNEL)?;
            }
            Ok(try_pin_init!(Self {
                free <- new_mutex!(free, "zbd_write_buffers"),
                waiters <- Waiters::new(REQUESTS),
            }? Error))
        })
    }

    /// Bytes that `count` buffers take.
    pub(super) fn memory_bytes(count: usize) -> usize {
        count * WriteBuffer::BYTES
    }

    /// A buffer for `rq`, or `None`: then it waits for one.
    fn take(&self, rq: Request<Driver>) -> Option<(Request<Driver>, KBox<WriteBuffer>)> {
        let free = self.free.lock().pop();
        match free {
            Some(buffer) => Some((rq, buffer)),
            None => self.waiters.wait(rq, || self.free.lock().pop()),
        }
    }

    fn give_back(&self, buffer: KBox<WriteBuffer>) {
        // There is room: it came from there.
        let _ = self.free.lock().push_within_capacity(buffer);
        if let Some(rq) = self.waiters.next() {
            queue::again(rq);
        }
    }
}

/// How far a write got under the lock.
enum Outcome {
    /// Slots are to be filled.
    Fill(Request<Driver>, KBox<WriteBuffer>),
    /// It is parked.
    Wait,
    /// It is done, or has failed.
    End(Request<Driver>, KBox<WriteBuffer>, Result),
}

/// Works on a write until it is ended or has to wait.
pub(super) fn step(volume: &Arc<Volume>, rq: Request<Driver>) {
    let kept = rq.data().state.lock().write.take();
    let (mut rq, mut buffer) = match kept {
        Some(buffer) => (rq, buffer),
        None => {
            let Some((rq, mut buffer)) = volume.write_buffers.take(rq) else {
                return;
            };
            if let Err(e) = buffer.prepare(volume, &rq) {
                return end(volume, rq, buffer, Err(e));
            }
            (rq, buffer)
        }
    };
    loop {
        match place(volume, rq, buffer) {
            Outcome::Fill(r, b) => (rq, buffer) = (r, b),
            Outcome::Wait => return volume.kick_background(),
            Outcome::End(rq, buffer, result) => return end(volume, rq, buffer, result),
        }
        if let Err(e) = buffer.fill(&volume.arena) {
            volume.with(|core| {
                let slots = buffer.slots.get(buffer.reserved()).unwrap_or(&[]);
                core.engine.cancel(&mut core.owner, slots);
            });
            return end(volume, rq, buffer, Err(e));
        }
    }
}

/// Commits what is filled, and reserves more.
fn place(volume: &Arc<Volume>, rq: Request<Driver>, mut buffer: KBox<WriteBuffer>) -> Outcome {
    volume.with(|core| {
        if buffer.filled > 0 {
            let slots = buffer.slots.get(buffer.reserved()).unwrap_or(&[]);
            core.engine.commit(&mut core.owner, slots);
            buffer.next += buffer.filled;
            buffer.filled = 0;
        }
        let reserved = match buffer.rest() {
            None | Some(([], _)) => return Outcome::End(rq, buffer, Ok(())),
            Some((pieces, slots)) => core
                .engine
                .reserve(&mut core.owner, rq.tag(), pieces, slots),
        };
        match reserved {
            Ok(count) => {
                buffer.filled = count;
                Outcome::Fill(rq, buffer)
            }
            Err(Stall::Wait) => {
                rq.data().state.lock().write = Some(buffer);
                core.park(rq);
                Outcome::Wait
            }
            Err(stall) => Outcome::End(rq, buffer, Err(request_errno(stall))),
        }
    })
}

fn end(volume: &Arc<Volume>, rq: Request<Driver>, buffer: KBox<WriteBuffer>, result: Result) {
    match result {
        Ok(()) if rq.is_fua() => queue::flush(volume, rq),
        result => rq.end(result),
    }
    volume.write_buffers.give_back(buffer);
}
