// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for a buffer, first come, first served.
//!
//! Buffers are allocated at attach and never more: when all are in use, requests wait here without
//! keeping a thread busy, and whoever gives a buffer back queues the next one.

use super::queue::Driver;
use crate::linux::request::Request;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Mutex, //
    }, //
};

/// A first-in, first-out queue of fixed capacity.
struct Fifo<T> {
    slots: KVVec<Option<T>>,
    head: usize,
    len: usize,
}

impl<T> Fifo<T> {
    fn new(capacity: usize) -> Result<Self> {
        let mut slots = KVVec::with_capacity(capacity, GFP_KERNEL)?;
        for _ in 0..capacity {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            head: 0,
            len: 0,
        })
    }

    fn place(&self, at: usize) -> usize {
        let place = self.head + at;
        if place >= self.slots.len() {
            place - self.slots.len()
        } else {
            place
        }
    }

    fn push(&mut self, item: T) -> Result<(), T> {
        let place = self.place(self.len);
        match self.slots.get_mut(place) {
            Some(slot) if slot.is_none() => {
                *slot = Some(item);
                self.len += 1;
                Ok(())
            }
            _ => Err(item),
        }
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.slots.get_mut(self.head)?.take()?;
        self.head = self.place(1);
        self.len -= 1;
        Some(item)
    }
}

/// Requests that wait for something of which there is a fixed number.
#[pin_data]
pub(super) struct Waiters {
    /// Number of requests in `queue`, to look at without the lock.
    count: Atomic<i32>,
    #[pin]
    queue: Mutex<Fifo<Request<Driver>>>,
}

impl Waiters {
    /// Room for `requests` requests: as many as there are.
    pub(super) fn new(requests: usize) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let fifo = Fifo::new(requests)?;
            Ok(try_pin_init!(Self {
                count: Atomic::new(0),
                queue <- new_mutex!(fifo, "zbd_waiters"),
            }? Error))
        })
    }

    /// Lets `rq` wait, unless `retry` gets what it wants after all.
    pub(super) fn wait<T>(
        &self,
        rq: Request<Driver>,
        retry: impl FnOnce() -> Option<T>,
    ) -> Option<(Request<Driver>, T)> {
        let mut queue = self.queue.lock();
        // Full: counted before the last try, so that whoever gives back after it sees the count.
        self.count.fetch_add(1, Full);
        if let Some(item) = retry() {
            self.count.fetch_sub(1, Relaxed);
            return Some((rq, item));
        }
        if let Err(rq) = queue.push(rq) {
            // Cannot happen: there is room for all requests.
            self.count.fetch_sub(1, Relaxed);
            drop(queue);
            rq.end(Err(EIO));
        }
        None
    }

    /// The next request that should try again, if any waits. To be called after something was
    /// given back, and by a request that was woken but no longer wanted anything.
    pub(super) fn next(&self) -> Option<Request<Driver>> {
        // Full: what was given back is visible before the count is looked at.
        if self.count.fetch_add(0, Full) == 0 {
            return None;
        }
        let rq = self.queue.lock().pop()?;
        self.count.fetch_sub(1, Relaxed);
        Some(rq)
    }
}
