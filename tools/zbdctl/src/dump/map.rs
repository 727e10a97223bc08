// SPDX-License-Identifier: GPL-2.0

//! The map, from its top page down.

use super::records::{self, Record};
use super::roots::location;
use super::volume::Volume;
use super::{Printer, Wanted};
use crate::failure::Result;
use zbd_engine::format::entry::{Entry, EntryKind};
use zbd_engine::format::fragment::{Identity, Metadata};
use zbd_engine::format::packed::{apply_delta, decode_base, WordSet};
use zbd_engine::units::{FANOUT, FANOUT_SHIFT, LEAF_SHIFT, PAGE_WORDS};

/// Reads every page of the map, and prints what is wanted of it.
pub fn dump(volume: &mut Volume<'_>, wanted: &Wanted, printer: &mut Printer<'_>) -> Result {
    let mut walk = Walk {
        volume,
        wanted,
        printer,
        map: records::Map::default(),
    };
    let (top, height) = (walk.volume.root.top, walk.volume.root.geometry.height());
    walk.page(top, height, 0)?;
    let map = walk.map;
    let expected = volume.root.mapped_blocks;
    if map.unreadable_pages == 0 && map.mapped_blocks != expected {
        let found = map.mapped_blocks;
        printer.damage(format!(
            "the map has {found} blocks, the root counts {expected}"
        ))?;
    }
    printer.record(Record::Map(map))
}

struct Walk<'a, 'b, 'c> {
    volume: &'a mut Volume<'b>,
    wanted: &'a Wanted,
    printer: &'a mut Printer<'c>,
    map: records::Map,
}

impl Walk<'_, '_, '_> {
    /// Reads the page with these parts, and all below it. A page names its level and index, so
    /// that no page is reached twice; levels only fall.
    fn page(&mut self, parts: [Entry; 2], level: u8, index: u64) -> Result {
        match parts[0].kind() {
            EntryKind::Unmapped if parts[1] == Entry::UNMAPPED => return Ok(()),
            EntryKind::Lost => return self.lost(level, index, "is marked as lost"),
            _ => {}
        }
        let mut words = Box::new([0; PAGE_WORDS]);
        let mut changed: WordSet = Default::default();
        let Some(bad_copies) = self.read(parts, level, index, &mut words, &mut changed)? else {
            return self.lost(level, index, "is unreadable in every copy");
        };
        self.map.pages += 1;
        self.describe(parts, level, index, &words, &changed, bad_copies)?;
        if level == 0 {
            return self.leaf(index, &words);
        }
        for (at, pair) in (0u64..).zip(words.chunks_exact(2)) {
            let entry = |word: u64| Entry::from_word(word).unwrap_or(Entry::LOST);
            self.page(
                [entry(pair[0]), entry(pair[1])],
                level - 1,
                index * FANOUT + at,
            )?;
        }
        Ok(())
    }

    fn lost(&mut self, level: u8, index: u64, how: &str) -> Result {
        self.map.unreadable_pages += 1;
        let first = first_lbn(level, index);
        let message =
            format!("the map page of level {level}, index {index} (from block {first}) {how}");
        self.printer.damage(message)
    }

    /// Reads base and delta; answers how many copies are bad, `None` if one is bad in every copy.
    fn read(
        &mut self,
        parts: [Entry; 2],
        level: u8,
        index: u64,
        words: &mut [u64; PAGE_WORDS],
        changed: &mut WordSet,
    ) -> Result<Option<u32>> {
        let identity = |kind| Identity::Metadata { kind, level, index };
        let (base, mut bad) = self.volume.metadata(parts[0], identity(Metadata::PageBase));
        let based = base.and_then(|base| decode_base(&base, words)).is_some();
        let mut changes = true;
        if parts[1] != Entry::UNMAPPED {
            let (delta, more) = self
                .volume
                .metadata(parts[1], identity(Metadata::PageDelta));
            bad += more;
            changes = delta
                .and_then(|delta| apply_delta(&delta, words, changed))
                .is_some();
        }
        if !(based && changes) {
            return Ok(None);
        }
        if bad > 0 {
            let message = format!(
                "{bad} copies of the map page of level {level}, index {index} are unreadable"
            );
            self.printer.damage(message)?;
        }
        Ok(Some(bad))
    }

    fn describe(
        &mut self,
        parts: [Entry; 2],
        level: u8,
        index: u64,
        words: &[u64; PAGE_WORDS],
        changed: &WordSet,
        bad_copies: u32,
    ) -> Result {
        let geometry = &self.volume.root.geometry;
        let Some(base) = location(geometry, parts[0]).filter(|_| self.wanted.map) else {
            return Ok(());
        };
        let count = |kind| {
            let kinds = words
                .iter()
                .filter_map(|word| Some(Entry::from_word(*word)?.kind()));
            kinds.filter(|found| *found == kind).count() as u32
        };
        self.printer.record(Record::Page(records::Page {
            level,
            index,
            first_lbn: first_lbn(level, index),
            base,
            delta: location(geometry, parts[1]),
            mapped: count(EntryKind::Mapped),
            lost: count(EntryKind::Lost),
            changed: changed.iter().map(|bits| bits.count_ones()).sum(),
            bad_copies,
        }))
    }

    fn leaf(&mut self, index: u64, words: &[u64; PAGE_WORDS]) -> Result {
        for (lbn, word) in (index << LEAF_SHIFT..).zip(words) {
            let entry = Entry::from_word(*word).unwrap_or(Entry::LOST);
            match entry.kind() {
                EntryKind::Unmapped => continue,
                EntryKind::Mapped => self.map.mapped_blocks += 1,
                EntryKind::Lost => self.map.lost_blocks += 1,
            }
            let location = location(&self.volume.root.geometry, entry);
            if entry.is_mapped() && location.is_none() {
                self.printer.damage(format!(
                    "block {lbn} is mapped to a place outside the volume"
                ))?;
            }
            if self.wanted.words {
                self.printer.record(Record::Word(records::Word {
                    lbn,
                    location,
                    extent_blocks: 1 << entry.log2(),
                }))?;
            }
        }
        Ok(())
    }
}

/// First block below a page.
fn first_lbn(level: u8, index: u64) -> u64 {
    index << (LEAF_SHIFT + FANOUT_SHIFT * u32::from(level))
}
