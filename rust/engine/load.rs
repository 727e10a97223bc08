// SPDX-License-Identifier: GPL-2.0

//! Map pages on demand: base and delta are read in parallel, verified, and put into the cache.

use super::format::entry::{Entry, EntryKind};
use super::format::fragment::{self, Identity, Metadata};
use super::format::packed;
use super::io::{Action, Buffers, RequestId};
use super::pages::{PageKey, SlotId};
use super::planted::Bug;
use super::state::{Engine, Pending};
use super::stats::Notice;
use super::units::{
    BLOCK_BYTES, FANOUT, FANOUT_SHIFT, PAGE_WORDS, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_NONE,
};

/// Any load at all: what a request waits for when every load slot is taken.
pub(super) const ANY_LOAD: usize = usize::MAX;

/// A page on its way into the cache.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    busy: bool,
    key: PageKey,
    parts: [Entry; 2],
    /// Reads outstanding.
    outstanding: u8,
    /// Copy that is being read, per part.
    copy: [u8; 2],
    /// Parts that are unreadable in every copy.
    failed: bool,
    /// Attempt at a checkpoint during which it started; pages of a failed one are void.
    attempt: u64,
}

impl Load {
    pub(super) const IDLE: Load = Load {
        busy: false,
        key: PageKey { level: 0, index: 0 },
        parts: [Entry::UNMAPPED; 2],
        outstanding: 0,
        copy: [0; 2],
        failed: false,
        attempt: 0,
    };
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// In the cache.
    Ready(SlotId),
    /// Nothing below it is mapped.
    Absent,
    /// On its way; the load's number, or [`ANY_LOAD`].
    Loading(usize),
}

/// What is known about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    /// Its entry.
    Known(Entry),
    /// A page has to be loaded first.
    Loading(usize),
}

impl Engine {
    /// Finds a page or starts to load it, its parents first.
    pub(super) fn page<B: Buffers>(&mut self, buffers: &mut B, key: PageKey) -> PageState {
        if let Some(slot) = self.pages.find(key) {
            self.stats.cache_hits += u64::from(key.level == 0);
            return PageState::Ready(slot);
        }
        if let Some(at) = self
            .loads
            .iter()
            .position(|load| load.busy && load.key == key)
        {
            return PageState::Loading(at);
        }
        let parts = if key.level >= self.height {
            self.top
        } else {
            let parent = PageKey {
                level: key.level + 1,
                index: key.index >> FANOUT_SHIFT,
            };
            match self.page(buffers, parent) {
                PageState::Ready(slot) => self.child(slot, key.index),
                other => return other,
            }
        };
        match parts[0].kind() {
            EntryKind::Unmapped => PageState::Absent,
            EntryKind::Lost => match self.lost_page(key) {
                Some(slot) => PageState::Ready(slot),
                None => PageState::Loading(ANY_LOAD),
            },
            EntryKind::Mapped => self.start_load(buffers, key, parts),
        }
    }

    /// Base and delta of child `index` of the directory page in `slot`.
    pub(super) fn child(&self, slot: SlotId, index: u64) -> [Entry; 2] {
        let at = (index % FANOUT) as usize * 2;
        let entry = |at| Entry::from_word(self.pages.word(slot, at)).unwrap_or(Entry::LOST);
        [entry(at), entry(at + 1)]
    }

    fn start_load<B: Buffers>(
        &mut self,
        buffers: &mut B,
        key: PageKey,
        parts: [Entry; 2],
    ) -> PageState {
        let Some(at) = self.loads.iter().position(|load| !load.busy) else {
            return PageState::Loading(ANY_LOAD);
        };
        self.stats.cache_misses += 1;
        let attempt = self.checkpoint.attempt;
        if let Some(load) = self.loads.get_mut(at) {
            *load = Load {
                busy: true,
                key,
                parts,
                attempt,
                ..Load::IDLE
            };
        }
        for (part, entry) in parts.iter().enumerate() {
            if entry.is_mapped() {
                self.read_part(buffers, at, part);
            }
        }
        if self.loads.get(at).is_some_and(|load| load.outstanding == 0) {
            return match self.finish_load(buffers, at) {
                Some(slot) => PageState::Ready(slot),
                None => PageState::Loading(ANY_LOAD),
            };
        }
        PageState::Loading(at)
    }

    /// Reads one part of a page, or copies it from a segment that is still in memory.
    fn read_part<B: Buffers>(&mut self, buffers: &mut B, at: usize, part: usize) {
        let Some(load) = self.loads.get(at).copied() else {
            return;
        };
        let entry = load.parts.get(part).copied().unwrap_or_default();
        let Some(place) = self.place_of(entry) else {
            self.fail_part(at);
            return;
        };
        if let Some(holder) = self.log.holder(place.zone, place.offset) {
            let base = self.log.get(holder).map_or(0, |segment| segment.base());
            let from = (place.offset - base) as usize * UNIT_BYTES;
            let to = (place.offset % UNITS_PER_BLOCK) as usize * UNIT_BYTES;
            let bytes = entry.units() as usize * UNIT_BYTES;
            let buffer = self.load_buffer(at, part);
            buffers.copy(holder, from, buffer, to, bytes);
            return;
        }
        let copy = load.copy.get(part).copied().unwrap_or(0);
        let zone = match copy {
            0 => place.zone,
            _ => self
                .zones
                .get(place.zone)
                .map_or(ZONE_NONE, |zone| zone.mirror),
        };
        if zone == ZONE_NONE {
            self.fail_part(at);
            return;
        }
        let first = place.offset / UNITS_PER_BLOCK;
        let last = (place.offset + entry.units() - 1) / UNITS_PER_BLOCK;
        let bytes = (last - first + 1) * BLOCK_BYTES as u32;
        let address = self.geometry.byte_address(zone, first);
        let buffer = self.load_buffer(at, part);
        let Some(token) = self.token(Pending::Page { load: at, part }) else {
            self.fail_part(at);
            return;
        };
        self.zones.pin(place.zone);
        if let Some(load) = self.loads.get_mut(at) {
            load.outstanding += 1;
        }
        self.act(Action::Read {
            token,
            buffer,
            at: 0,
            bytes,
            address,
        });
    }

    fn fail_part(&mut self, at: usize) {
        if let Some(load) = self.loads.get_mut(at) {
            load.failed = true;
        }
    }

    /// A part has been read, or could not be.
    pub(super) fn part_done<B: Buffers>(
        &mut self,
        buffers: &mut B,
        at: usize,
        part: usize,
        readable: bool,
    ) {
        let Some(load) = self.loads.get_mut(at) else {
            return;
        };
        load.outstanding = load.outstanding.saturating_sub(1);
        let entry = load.parts.get(part).copied().unwrap_or_default();
        if let Some(place) = self.place_of(entry) {
            self.unpin_zone(place.zone);
        }
        let intact = readable && self.part_payload(buffers, at, part).is_some();
        if !intact {
            if readable {
                self.stats.checksum_errors += 1;
            } else {
                self.stats.io_errors += 1;
            }
            let first = match self
                .loads
                .get_mut(at)
                .and_then(|load| load.copy.get_mut(part))
            {
                Some(copy) if *copy == 0 => {
                    *copy = 1;
                    true
                }
                _ => false,
            };
            if first {
                self.read_part(buffers, at, part);
            } else {
                self.fail_part(at);
            }
        }
        if self.loads.get(at).is_some_and(|load| load.outstanding == 0) {
            self.finish_load(buffers, at);
        }
    }

    /// The verified payload of a part in its buffer.
    fn part_payload<'a, B: Buffers>(
        &self,
        buffers: &'a B,
        at: usize,
        part: usize,
    ) -> Option<&'a [u8]> {
        let load = self.loads.get(at)?;
        let entry = *load.parts.get(part)?;
        let place = self.place_of(entry)?;
        let start = (place.offset % UNITS_PER_BLOCK) as usize * UNIT_BYTES;
        let end = start + entry.units() as usize * UNIT_BYTES;
        let bytes = buffers.bytes(self.load_buffer(at, part)).get(start..end)?;
        let expected = Identity::Metadata {
            kind: if part == 0 {
                Metadata::PageBase
            } else {
                Metadata::PageDelta
            },
            level: load.key.level,
            index: load.key.index,
        };
        match fragment::open(bytes, self.seed(place)) {
            Ok((identity, payload)) if identity == expected => Some(payload),
            _ => None,
        }
    }

    /// Decodes a page whose parts are all there and puts it into the cache.
    fn finish_load<B: Buffers>(&mut self, buffers: &mut B, at: usize) -> Option<SlotId> {
        let load = self.loads.get(at).copied()?;
        if let Some(load) = self.loads.get_mut(at) {
            load.busy = false;
        }
        let current = load.attempt == self.checkpoint.attempt;
        let slot = if current {
            let slot = self.pages.insert(load.key);
            if let Some(slot) = slot {
                if self.decode_page(buffers, at, slot).is_none() {
                    self.fill_lost(slot, load.key);
                    self.notify(Notice::PageLost {
                        level: load.key.level,
                        index: load.key.index,
                    });
                }
            }
            slot
        } else {
            None
        };
        self.wake_page_waiters(at);
        slot
    }

    fn decode_page<B: Buffers>(&mut self, buffers: &B, at: usize, slot: SlotId) -> Option<()> {
        let load = self.loads.get(at).copied()?;
        if load.failed {
            return None;
        }
        let base = self.part_payload(buffers, at, 0)?;
        let delta = match load.parts[1] {
            entry if entry.is_mapped() && !crate::planted::active(Bug::DropDelta) => {
                Some(self.part_payload(buffers, at, 1)?)
            }
            _ => None,
        };
        let geometry = self.geometry;
        let (words, changed) = self.pages.page_mut(slot)?;
        packed::decode_base(base, words)?;
        if let Some(delta) = delta {
            packed::apply_delta(delta, words, changed)?;
        }
        let valid = words.iter().all(|word| {
            Entry::from_word(*word).is_some_and(|entry| {
                !entry.is_mapped() || geometry.place(entry.location(), entry.units()).is_some()
            })
        });
        if !valid {
            return None;
        }
        Some(())
    }

    fn lost_page(&mut self, key: PageKey) -> Option<SlotId> {
        let slot = self.pages.insert(key)?;
        self.fill_lost(slot, key);
        Some(slot)
    }

    /// Fills a page so that all it covers reads as an error.
    fn fill_lost(&mut self, slot: SlotId, key: PageKey) {
        let Some((words, changed)) = self.pages.page_mut(slot) else {
            return;
        };
        for (at, word) in words.iter_mut().enumerate() {
            *word = if key.level == 0 || at % 2 == 0 {
                Entry::LOST.word()
            } else {
                0
            };
        }
        // Nothing on disk says this: the page must be written in full if it is ever written.
        changed.fill(u64::MAX);
    }

    /// Wakes whoever waits for a load or for a free load slot.
    fn wake_page_waiters(&mut self, at: usize) {
        for _ in 0..self.page_waiters.len() {
            let Some((request, load)) = self.page_waiters.pop() else {
                break;
            };
            if load == at || load == ANY_LOAD {
                self.act(Action::Wake { request });
            } else {
                self.page_waiters.push((request, load));
            }
        }
    }

    pub(super) fn wait_for_page(&mut self, request: RequestId, load: usize) {
        // A page that arrived in between needs no waiting.
        let under_way = self.loads.iter().any(|load| load.busy);
        if !under_way {
            self.act(Action::Wake { request });
        } else if !self.page_waiters.push((request, load)) {
            self.poison("more readers wait than requests exist");
        }
    }

    /// What a block's entry is now.
    pub(super) fn current<B: Buffers>(&mut self, buffers: &mut B, lbn: u64) -> Current {
        if let Some(entry) = self.overlaid(lbn) {
            return Current::Known(entry);
        }
        let key = PageKey {
            level: 0,
            index: lbn / PAGE_WORDS as u64,
        };
        match self.page(buffers, key) {
            PageState::Ready(slot) => {
                let word = self.pages.word(slot, (lbn % PAGE_WORDS as u64) as usize);
                Current::Known(Entry::from_word(word).unwrap_or(Entry::LOST))
            }
            PageState::Absent => Current::Known(Entry::UNMAPPED),
            PageState::Loading(load) => Current::Loading(load),
        }
    }

    /// A block's entry, if the overlays know it.
    pub(super) fn overlaid(&self, lbn: u64) -> Option<Entry> {
        if let Some((entry, _)) = self.active.get(lbn) {
            return Some(entry);
        }
        if self.checkpoint.frozen {
            if let Some((entry, _)) = self.frozen.get(lbn) {
                return Some(entry);
            }
        }
        None
    }

    /// Whether the map is known to hold nothing from `lbn` to `end`, from pages in memory alone.
    pub(super) fn map_is_empty(&mut self, lbn: u64, end: u64) -> bool {
        let mut at = lbn;
        while at < end {
            match self.empty_until(at) {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    /// The end of the empty part of the map around `lbn`; `None` if there is or may be something.
    pub(super) fn empty_until(&mut self, lbn: u64) -> Option<u64> {
        let mut parts = self.top;
        let mut level = self.height;
        loop {
            let shift = 9 + FANOUT_SHIFT * u32::from(level);
            if parts[0] == Entry::UNMAPPED {
                return Some(((lbn >> shift) + 1) << shift);
            }
            if level == 0 {
                return None;
            }
            let slot = self.pages.find(PageKey {
                level,
                index: lbn >> shift,
            })?;
            level -= 1;
            parts = self.child(slot, lbn >> (9 + FANOUT_SHIFT * u32::from(level)));
        }
    }

    /// Lets go of a zone that was read from.
    pub(super) fn unpin_zone(&mut self, zone: u32) {
        if self.zones.unpin(zone) {
            self.discards_wanted = true;
        }
    }
}
