// SPDX-License-Identifier: GPL-2.0

//! A first-in, first-out queue of fixed capacity.

use super::error::Result;
use crate::mem::{try_vec, Vec};

/// The queue.
///
/// # Invariants
///
/// `len` is at most the capacity, `head` below it.
pub struct Queue<T> {
    items: Vec<T>,
    head: usize,
    len: usize,
}

impl<T: Copy> Queue<T> {
    /// An empty queue; `filler` fills the memory and is never seen.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(capacity: usize, filler: T) -> Result<Queue<T>> {
        Ok(Queue {
            items: try_vec(capacity.max(1), filler)?,
            head: 0,
            len: 0,
        })
    }

    /// The index of a position at most one round ahead.
    fn wrap(&self, at: usize) -> usize {
        at.checked_sub(self.items.len()).unwrap_or(at)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an item; answers whether there was room.
    pub fn push(&mut self, item: T) -> bool {
        if self.len >= self.items.len() {
            return false;
        }
        let tail = self.wrap(self.head + self.len);
        if let Some(slot) = self.items.get_mut(tail) {
            *slot = item;
        }
        self.len += 1;
        true
    }

    /// The item `at` places behind the first.
    pub fn get(&self, at: usize) -> Option<T> {
        if at >= self.len {
            return None;
        }
        self.items.get(self.wrap(self.head + at)).copied()
    }

    /// The first item.
    pub fn front(&self) -> Option<T> {
        self.get(0)
    }

    /// Takes the first item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.get(0)?;
        self.head = self.wrap(self.head + 1);
        self.len -= 1;
        Some(item)
    }

    /// Forgets all items.
    pub fn clear(&mut self) {
        self.head = 0;
        self.len = 0;
    }
}
