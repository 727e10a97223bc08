// SPDX-License-Identifier: GPL-2.0

//! Step 5 of a write: a checkpoint merges the frozen overlay into the pages of the map.
//!
//! Leaves are visited in order, so that each directory page is finished once, when the walk
//! leaves it. A page that changed is appended to the metadata stream, as a delta to its base if
//! few words differ, and its parent points to the new copy. Pages change in the cache as the walk
//! goes; until the root is durable the frozen overlay lies over them, so readers see no
//! difference. If the checkpoint fails, the cache is dropped and the old pages are read again.

use super::format::entry::Entry;
use super::format::fragment::{Identity, Metadata};
use super::format::packed;
use super::io::Buffers;
use super::limits::{DELTA_WORDS_MAX, RUN_STEPS};
use super::load::PageState;
use super::pages::{PageKey, SlotId};
use super::state::Engine;
use super::units::{FANOUT, FANOUT_SHIFT, LEAF_SHIFT, PAGE_WORDS};

/// Levels of the map at most, leaves included.
pub const LEVELS_MAX: usize = 6;
/// Leaves whose loading is started ahead of the walk.
const PREFETCH: usize = 16;

/// A page of the path that the walk is on.
#[derive(Clone, Copy, Debug)]
struct Step {
    slot: SlotId,
    key: PageKey,
    changed: bool,
}

/// Where the walk is.
pub struct Merge {
    next_leaf: u64,
    touches_done: usize,
    path: [Option<Step>; LEVELS_MAX],
}

/// How a slice of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do at once.
    More,
    /// Something has to complete first.
    Blocked,
    /// All is done.
    Done,
}

impl Merge {
    pub(super) const START: Merge = Merge {
        next_leaf: 0,
        touches_done: 0,
        path: [None; LEVELS_MAX],
    };
}

impl Engine {
    /// Merges for a slice.
    pub(super) fn step_merge<B: Buffers>(&mut self, buffers: &mut B) -> Progress {
        for _ in 0..RUN_STEPS {
            let step = match self.frozen.next_leaf(self.checkpoint.merge.next_leaf) {
                Some(leaf) => self.merge_leaf(buffers, leaf),
                None => self.merge_touch(buffers),
            };
            if step != Progress::More {
                return step;
            }
        }
        Progress::More
    }

    fn merge_leaf<B: Buffers>(&mut self, buffers: &mut B, leaf: u64) -> Progress {
        let start = leaf << LEAF_SHIFT;
        if start >= self.geometry.logical_blocks {
            self.poison("the overlay holds a block behind the volume's end");
            return Progress::Blocked;
        }
        let has_points = self
            .frozen
            .points
            .next_at_or_after(start)
            .is_some_and(|(lbn, _, _)| lbn >> LEAF_SHIFT == leaf);
        if !has_points {
            // A zeroed range over nothing: skip to where there is something.
            if let Some(end) = self.empty_until(start) {
                let next = self.frozen.points.next_at_or_after(start);
                let next = next.map_or(end, |(lbn, _, _)| end.min(lbn));
                self.checkpoint.merge.next_leaf = (next >> LEAF_SHIFT).max(leaf + 1);
                return Progress::More;
            }
        }
        if !self.seek(buffers, leaf, 1) {
            self.prefetch(buffers, leaf);
            return Progress::Blocked;
        }
        let key = PageKey {
            level: 0,
            index: leaf,
        };
        let Some(slot) = self.page_for_update(buffers, key) else {
            self.prefetch(buffers, leaf);
            return Progress::Blocked;
        };
        if !self.metadata_room(buffers, packed::BYTES_MAX) {
            return Progress::Blocked;
        }
        if self.apply_frozen(slot, leaf) {
            self.pages.pin(slot);
            let written = self.write_page(buffers, key, slot, false);
            self.pages.unpin(slot);
            if !written {
                return Progress::Blocked;
            }
        }
        self.checkpoint.merge.next_leaf = leaf + 1;
        Progress::More
    }

    /// Starts loading the leaves that the walk will need next.
    fn prefetch<B: Buffers>(&mut self, buffers: &mut B, leaf: u64) {
        let mut at = leaf;
        for _ in 0..PREFETCH {
            let Some(next) = self.frozen.next_leaf(at) else {
                return;
            };
            self.page(
                buffers,
                PageKey {
                    level: 0,
                    index: next,
                },
            );
            at = next + 1;
        }
    }

    /// Rewrites pages whose zones are being emptied, then finishes the path.
    fn merge_touch<B: Buffers>(&mut self, buffers: &mut B) -> Progress {
        let Some(key) = self
            .checkpoint
            .frozen_touch(self.checkpoint.merge.touches_done)
        else {
            return self.finish_path(buffers);
        };
        let leaf = key.index << (FANOUT_SHIFT * u32::from(key.level));
        if leaf << LEAF_SHIFT < self.geometry.logical_blocks {
            if !self.seek(buffers, leaf, key.level.max(1)) {
                return Progress::Blocked;
            }
            if key.level == 0 {
                match self.page(buffers, key) {
                    PageState::Ready(slot) => {
                        if !self.metadata_room(buffers, packed::BYTES_MAX) {
                            return Progress::Blocked;
                        }
                        self.pages.pin(slot);
                        let written = self.write_page(buffers, key, slot, true);
                        self.pages.unpin(slot);
                        if !written {
                            return Progress::Blocked;
                        }
                    }
                    PageState::Absent => {}
                    PageState::Loading(_) => return Progress::Blocked,
                }
            } else if let Some(Some(step)) =
                self.checkpoint.merge.path.get_mut(usize::from(key.level))
            {
                step.changed = true;
            }
        }
        self.checkpoint.merge.touches_done += 1;
        Progress::More
    }

    /// Brings the path to the directory pages above `leaf`, from the top down to level `down_to`.
    /// Answers whether all are there.
    fn seek<B: Buffers>(&mut self, buffers: &mut B, leaf: u64, down_to: u8) -> bool {
        let key_at = |level: u8| PageKey {
            level,
            index: leaf >> (FANOUT_SHIFT * u32::from(level)),
        };
        for level in 1..=self.height {
            let other = (level..=self.height).any(|upper| {
                self.step(upper)
                    .is_some_and(|step| step.key != key_at(upper))
            });
            if other && !self.finish_level(buffers, level) {
                return false;
            }
        }
        for level in (down_to..=self.height).rev() {
            if self.step(level).is_some() {
                continue;
            }
            let key = key_at(level);
            let Some(slot) = self.page_for_update(buffers, key) else {
                return false;
            };
            self.pages.pin(slot);
            if let Some(step) = self.checkpoint.merge.path.get_mut(usize::from(level)) {
                *step = Some(Step {
                    slot,
                    key,
                    changed: false,
                });
            }
        }
        true
    }

    fn step(&self, level: u8) -> Option<Step> {
        self.checkpoint
            .merge
            .path
            .get(usize::from(level))
            .copied()
            .flatten()
    }

    /// A page to be changed, made if there is none. `None`: it is being loaded.
    fn page_for_update<B: Buffers>(&mut self, buffers: &mut B, key: PageKey) -> Option<SlotId> {
        match self.page(buffers, key) {
            PageState::Ready(slot) => Some(slot),
            PageState::Absent => self.pages.insert(key),
            PageState::Loading(_) => None,
        }
    }

    /// Writes the path's page of one level if it has changed, and leaves it.
    fn finish_level<B: Buffers>(&mut self, buffers: &mut B, level: u8) -> bool {
        let Some(step) = self.step(level) else {
            return true;
        };
        if step.changed {
            if !self.metadata_room(buffers, packed::BYTES_MAX) {
                return false;
            }
            if !self.write_page(buffers, step.key, step.slot, false) {
                return false;
            }
        }
        self.pages.unpin(step.slot);
        if let Some(step) = self.checkpoint.merge.path.get_mut(usize::from(level)) {
            *step = None;
        }
        true
    }

    fn finish_path<B: Buffers>(&mut self, buffers: &mut B) -> Progress {
        for level in 1..=self.height {
            if !self.finish_level(buffers, level) {
                return Progress::Blocked;
            }
        }
        Progress::Done
    }

    /// Applies the frozen overlay to a leaf and counts what dies; answers whether it changed.
    fn apply_frozen(&mut self, slot: SlotId, leaf: u64) -> bool {
        let start = leaf << LEAF_SHIFT;
        let end = start + PAGE_WORDS as u64;
        let has_range = self
            .frozen
            .next_range(start)
            .is_some_and(|range| range.start < end);
        let mut changed = false;
        let mut lbn = start;
        while lbn < end {
            let point = self.frozen.points.next_at_or_after(lbn);
            if !has_range {
                match point {
                    Some((next, _, _)) if next < end => lbn = next,
                    _ => break,
                }
            }
            if let Some((entry, _)) = self.frozen.get(lbn) {
                if let Some((at, hidden, _)) = point {
                    if at == lbn && hidden != entry {
                        // A newer range covers the point: its data dies unseen.
                        self.stage_dead(lbn, hidden);
                    }
                }
                changed |= self.set_word(slot, lbn, entry);
            }
            lbn += 1;
        }
        changed
    }

    fn set_word(&mut self, slot: SlotId, lbn: u64, entry: Entry) -> bool {
        let at = (lbn % PAGE_WORDS as u64) as usize;
        let Some((words, set)) = self.pages.page_mut(slot) else {
            return false;
        };
        let Some(word) = words.get_mut(at) else {
            return false;
        };
        if *word == entry.word() {
            return false;
        }
        let old = Entry::from_word(*word).unwrap_or(Entry::LOST);
        *word = entry.word();
        packed::insert(set, at);
        self.checkpoint.mapped_delta += i64::from(entry.is_mapped()) - i64::from(old.is_mapped());
        self.stage_dead(lbn, old);
        true
    }

    /// Counts a block's share as dead once the running checkpoint is durable.
    fn stage_dead(&mut self, lbn: u64, entry: Entry) {
        if !entry.is_mapped() {
            return;
        }
        let Some(place) = self.place_of(entry) else {
            return;
        };
        if let Some(zone) = self.zones.get_mut(place.zone) {
            zone.dead += entry.share(lbn);
            zone.dirty = true;
        }
    }

    /// Appends a changed page and points its parent to it. The caller has made sure of the room.
    fn write_page<B: Buffers>(
        &mut self,
        buffers: &mut B,
        key: PageKey,
        slot: SlotId,
        whole: bool,
    ) -> bool {
        let parent = self.step(key.level + 1);
        let old = match parent {
            Some(parent) => self.child(parent.slot, key.index),
            None => self.top,
        };
        let Some(new) = self.append_page(buffers, key, slot, old, whole) else {
            self.poison("a page of the map could not be appended though there was room");
            return false;
        };
        for (old, new) in old.iter().zip(new) {
            if *old != new {
                self.drop_metadata(*old);
            }
        }
        let Some(parent) = parent else {
            self.top = new;
            return true;
        };
        let at = (key.index % FANOUT) as usize * 2;
        if let Some((words, set)) = self.pages.page_mut(parent.slot) {
            for (at, entry) in (at..).zip(new) {
                if let Some(word) = words.get_mut(at) {
                    *word = entry.word();
                    packed::insert(set, at);
                }
            }
        }
        if let Some(Some(step)) = self
            .checkpoint
            .merge
            .path
            .get_mut(usize::from(key.level) + 1)
        {
            step.changed = true;
        }
        true
    }

    /// Appends a page as a delta or as a new base; answers base and delta as they are now.
    fn append_page<B: Buffers>(
        &mut self,
        buffers: &mut B,
        key: PageKey,
        slot: SlotId,
        old: [Entry; 2],
        whole: bool,
    ) -> Option<[Entry; 2]> {
        let (words, set) = self.pages.page_mut(slot)?;
        if words.iter().all(|word| *word == 0) {
            return Some([Entry::UNMAPPED; 2]);
        }
        let differing: u32 = set.iter().map(|word| word.count_ones()).sum();
        let leaving = old.iter().any(|entry| {
            entry.is_mapped()
                && self
                    .geometry
                    .place(entry.location(), entry.units())
                    .is_some_and(|place| {
                        self.zones
                            .get(place.zone)
                            .is_some_and(|zone| zone.evacuated)
                    })
        });
        let as_delta = !whole && !leaving && old[0].is_mapped() && differing <= DELTA_WORDS_MAX;
        let mut scratch = core::mem::take(&mut self.checkpoint.scratch);
        let (words, set) = self.pages.page_mut(slot)?;
        let (kind, bytes) = if as_delta {
            (
                Metadata::PageDelta,
                packed::encode_delta(&mut scratch, words, set),
            )
        } else {
            set.fill(0);
            (Metadata::PageBase, packed::encode_base(&mut scratch, words))
        };
        let identity = Identity::Metadata {
            kind,
            level: key.level,
            index: key.index,
        };
        let payload = bytes.and_then(|bytes| scratch.get(..bytes));
        let entry = match payload {
            Some(payload) => self.append_metadata(buffers, identity, payload),
            None => None,
        };
        self.checkpoint.scratch = scratch;
        let entry = entry?;
        Some(if as_delta {
            [old[0], entry]
        } else {
            [entry, Entry::UNMAPPED]
        })
    }
}
