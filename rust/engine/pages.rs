// SPDX-License-Identifier: GPL-2.0

//! The cache of map pages: leaves and directory pages alike, in a fixed pool.
//!
//! Pages are found through hash chains and evicted by a clock hand that spares pinned and
//! recently used ones. A page is never dirty except while a checkpoint has it pinned, so any
//! unpinned page can be dropped at any time.

use super::error::Result;
use super::format::packed::WordSet;
use super::units::PAGE_WORDS;
use crate::mem::{try_vec, Vec};

const NONE: u32 = u32::MAX;

/// A page's level (0: leaf) and its index among the pages of that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey {
    /// Level.
    pub level: u8,
    /// Index.
    pub index: u64,
}

/// The words of a page.
pub type Words = [u64; PAGE_WORDS];
/// Number of a cache slot.
pub type SlotId = u32;

#[derive(Clone, Copy)]
struct Slot {
    key: PageKey,
    used: bool,
    referenced: bool,
    pins: u16,
    next: u32,
}

/// The cache.
///
/// # Invariants
///
/// Every used slot is in the chain of its key's hash, and in no other.
pub struct PageCache {
    /// The pages' words, back to back: a page by value would be a quarter of a kernel stack.
    words: Vec<u64>,
    changed: Vec<WordSet>,
    slots: Vec<Slot>,
    heads: Vec<u32>,
    hand: usize,
    used: usize,
}

impl PageCache {
    /// An empty cache of `pages` pages.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(pages: usize) -> Result<PageCache> {
        let slot = Slot {
            key: PageKey { level: 0, index: 0 },
            used: false,
            referenced: false,
            pins: 0,
            next: NONE,
        };
        Ok(PageCache {
            words: try_vec(pages * PAGE_WORDS, 0)?,
            changed: try_vec(pages, [0; PAGE_WORDS / 64])?,
            slots: try_vec(pages, slot)?,
            heads: try_vec(pages.next_power_of_two(), NONE)?,
            hand: 0,
            used: 0,
        })
    }

    /// Bytes of memory that a cache of `pages` pages takes.
    pub fn memory_bytes(pages: usize) -> usize {
        pages * (size_of::<Words>() + size_of::<WordSet>() + size_of::<Slot>())
            + pages.next_power_of_two() * 4
    }

    /// Number of pages held.
    pub fn used(&self) -> usize {
        self.used
    }

    fn hash(&self, key: PageKey) -> usize {
        let word = (key.index ^ (u64::from(key.level) << 48)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> 32) as usize & (self.heads.len() - 1)
    }

    /// The slot of a page.
    pub fn find(&mut self, key: PageKey) -> Option<SlotId> {
        let mut at = *self.heads.get(self.hash(key))?;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.key == key {
                slot.referenced = true;
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// A page's words.
    pub fn words(&self, slot: SlotId) -> Option<&Words> {
        let start = slot as usize * PAGE_WORDS;
        self.words.get(start..)?.first_chunk()
    }

    /// One word of a page; 0 out of range.
    pub fn word(&self, slot: SlotId, at: usize) -> u64 {
        self.words(slot)
            .and_then(|words| words.get(at))
            .copied()
            .unwrap_or(0)
    }

    /// A page's words and the set of those that differ from its base.
    pub fn page_mut(&mut self, slot: SlotId) -> Option<(&mut Words, &mut WordSet)> {
        Some((
            self.words
                .get_mut(slot as usize * PAGE_WORDS..)?
                .first_chunk_mut()?,
            self.changed.get_mut(slot as usize)?,
        ))
    }

    /// Keeps a page from being evicted.
    pub fn pin(&mut self, slot: SlotId) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.pins += 1;
        }
    }

    /// Undoes one [`PageCache::pin`].
    pub fn unpin(&mut self, slot: SlotId) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.pins = slot.pins.saturating_sub(1);
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(slot) = self.slots.get(id as usize).copied() else {
            return;
        };
        let head = self.hash(slot.key);
        if self.heads.get(head) == Some(&id) {
            if let Some(first) = self.heads.get_mut(head) {
                *first = slot.next;
            }
        } else {
            let mut at = self.heads.get(head).copied().unwrap_or(NONE);
            while let Some(other) = self.slots.get_mut(at as usize) {
                if other.next == id {
                    other.next = slot.next;
                    break;
                }
                at = other.next;
            }
        }
        if let Some(slot) = self.slots.get_mut(id as usize) {
            slot.used = false;
        }
        self.used -= 1;
    }

    fn victim(&mut self) -> Option<u32> {
        for _ in 0..2 * self.slots.len() + 1 {
            let at = self.hand;
            self.hand += 1;
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = self.slots.get_mut(at)?;
            if !slot.used {
                return Some(at as u32);
            }
            if slot.pins == 0 {
                if !slot.referenced {
                    self.unlink(at as u32);
                    return Some(at as u32);
                }
                slot.referenced = false;
            }
        }
        None
    }

    /// Makes a zeroed page for a key that is not there, evicting another if need be.
    ///
    /// `None`: every page is pinned.
    pub fn insert(&mut self, key: PageKey) -> Option<SlotId> {
        let id = self.victim()?;
        let head = self.hash(key);
        let next = self.heads.get(head).copied().unwrap_or(NONE);
        let slot = self.slots.get_mut(id as usize)?;
        *slot = Slot {
            key,
            used: true,
            referenced: true,
            pins: 0,
            next,
        };
        *self.heads.get_mut(head)? = id;
        self.used += 1;
        let (words, changed) = self.page_mut(id)?;
        words.fill(0);
        changed.fill(0);
        Some(id)
    }

    /// Drops every page, pinned or not.
    pub fn clear(&mut self) {
        for slot in self.slots.iter_mut() {
            slot.used = false;
            slot.pins = 0;
        }
        self.heads.iter_mut().for_each(|head| *head = NONE);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_it_holds_and_spares_pinned_pages() {
        let mut cache = PageCache::new(64).unwrap();
        let key = |index| PageKey { level: 0, index };
        let pinned = cache.insert(key(1 << 28)).unwrap();
        cache.pin(pinned);
        for index in 0..1000 {
            assert_eq!(cache.find(key(index)), None);
            let slot = cache.insert(key(index)).unwrap();
            cache.page_mut(slot).unwrap().0[3] = index;
            assert_eq!(cache.find(key(index)), Some(slot));
            assert_eq!(cache.find(key(1 << 28)), Some(pinned));
        }
        assert_eq!(cache.used(), 64);
        let held = (0..1000).filter(|index| cache.find(key(*index)).is_some());
        assert_eq!(held.count(), 63);
    }
}
