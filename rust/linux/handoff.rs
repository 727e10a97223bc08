// SPDX-License-Identifier: GPL-2.0

//! A place where one context leaves a value for another, without a lock.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};

const EMPTY: i32 = 0;
const BUSY: i32 = 1;
const FULL: i32 = 2;

/// Room for one value.
///
/// # Invariants
///
/// While `state` is `FULL` there is a value; while it is `BUSY`, whoever set that has exclusive
/// access to `value`.
pub(crate) struct Handoff<T> {
    state: Atomic<i32>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value goes from one thread to another, one at a time.
unsafe impl<T: Send> Send for Handoff<T> {}
// SAFETY: as above; there is no shared access to the value.
unsafe impl<T: Send> Sync for Handoff<T> {}

impl<T> Handoff<T> {
    /// An empty place.
    pub(crate) const fn new() -> Self {
        Self {
            state: Atomic::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Leaves a value; gives it back if there is one already. Any context.
    pub(crate) fn put(&self, value: T) -> Result<(), T> {
        // Acquire: what `take` did comes before.
        if self.state.cmpxchg(EMPTY, BUSY, Acquire).is_err() {
            return Err(value);
        }
        // SAFETY: by the invariants access is exclusive.
        unsafe { (*self.value.get()).write(value) };
        // INVARIANT: written just now. Release: `take` sees it.
        self.state.store(FULL, Release);
        Ok(())
    }

    /// Takes the value, if there is one. Any context.
    pub(crate) fn take(&self) -> Option<T> {
        self.state.cmpxchg(FULL, BUSY, Acquire).ok()?;
        // SAFETY: by the invariants there is a value, and access is exclusive; it is read once.
        let value = unsafe { (*self.value.get()).assume_init_read() };
        self.state.store(EMPTY, Release);
        Some(value)
    }

    /// Whether there is a value at this moment.
    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Relaxed) == FULL
    }
}

impl<T> Drop for Handoff<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
