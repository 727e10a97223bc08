// SPDX-License-Identifier: GPL-2.0

//! What the map does not hold yet: the entries and zeroed ranges since a checkpoint's cut.
//!
//! Two overlays lie over the map: the *active* one takes every change, the *frozen* one is what a
//! running checkpoint merges into the map's pages. Replaying the log fills the active overlay, so
//! recovery and normal operation share one path, and a write never waits for its map page.
//!
//! Every change carries its operation number, and the newest wins: order of insertion does not
//! matter, and a range need not visit the points that it covers.

use super::error::Result;
use super::format::entry::Entry;
use super::points::PointMap;
use super::units::LEAF_SHIFT;
use crate::mem::{try_vec, Vec};

/// A range of logical blocks that became zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRange {
    /// First block.
    pub start: u64,
    /// Behind the last block.
    pub end: u64,
    /// Operation number.
    pub op: u64,
}

/// The changes since a cut.
pub struct Overlay {
    /// Single blocks.
    pub points: PointMap,
    ranges: Vec<ZeroRange>,
    range_count: usize,
}

impl Overlay {
    /// An empty overlay for about `entries` points and `ranges` ranges.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(entries: usize, ranges: usize) -> Result<Overlay> {
        let none = ZeroRange {
            start: 0,
            end: 0,
            op: 0,
        };
        Ok(Overlay {
            points: PointMap::new(entries)?,
            ranges: try_vec(ranges.max(8), none)?,
            range_count: 0,
        })
    }

    /// A copy with twice the room: replay does not know beforehand how much it will find.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn grown(&self) -> Result<Overlay> {
        let mut copy = Overlay::new(0, self.ranges.len() * 2)?;
        copy.points = self.points.grown()?;
        for (room, range) in copy.ranges.iter_mut().zip(self.ranges()) {
            *room = *range;
        }
        copy.range_count = self.range_count;
        Ok(copy)
    }

    /// Whether a piece of up to `points` points or one range surely fits, in any order of
    /// operation numbers: an old range may be cut up by every newer one.
    pub fn fits_unordered(&self, points: usize) -> bool {
        let free = self.ranges.len() - self.range_count;
        self.points.room() >= points && free > self.range_count + 2
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.points.clear();
        self.range_count = 0;
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.range_count == 0
    }

    /// The ranges, sorted and disjoint.
    pub fn ranges(&self) -> &[ZeroRange] {
        self.ranges.get(..self.range_count).unwrap_or(&[])
    }

    /// How many more ranges surely fit.
    pub fn range_room(&self) -> usize {
        (self.ranges.len() - self.range_count) / 2
    }

    /// Number of ranges that surely fit in an empty overlay.
    pub fn range_capacity(&self) -> usize {
        self.ranges.len() / 2
    }

    /// The range that covers `lbn`, or else the next one.
    fn range_at_or_after(&self, lbn: u64) -> usize {
        self.ranges().partition_point(|range| range.end <= lbn)
    }

    /// The first range that ends behind `lbn`.
    pub fn next_range(&self, lbn: u64) -> Option<ZeroRange> {
        self.ranges().get(self.range_at_or_after(lbn)).copied()
    }

    /// The entry of `lbn`, if this overlay knows it, with its operation number.
    pub fn get(&self, lbn: u64) -> Option<(Entry, u64)> {
        let zeroed = self
            .next_range(lbn)
            .filter(|range| range.start <= lbn)
            .map(|range| range.op);
        match (self.points.get(lbn), zeroed) {
            (Some((entry, op)), Some(zero_op)) if op > zero_op => Some((entry, op)),
            (_, Some(zero_op)) => Some((Entry::UNMAPPED, zero_op)),
            (point, None) => point,
        }
    }

    /// Whether anything between `start` and `end` is known.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.points
            .next_at_or_after(start)
            .is_some_and(|(lbn, _, _)| lbn < end)
            || self
                .next_range(start)
                .is_some_and(|range| range.start < end)
    }

    /// The first leaf at or after `leaf` that has anything.
    pub fn next_leaf(&self, leaf: u64) -> Option<u64> {
        let from = leaf << LEAF_SHIFT;
        let point = self
            .points
            .next_at_or_after(from)
            .map(|(lbn, _, _)| lbn >> LEAF_SHIFT);
        let range = self
            .next_range(from)
            .map(|range| (range.start >> LEAF_SHIFT).max(leaf));
        match (point, range) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        }
    }

    /// Records that a range became zeros, where no newer one says so already.
    ///
    /// The caller has checked `range_room`; answers whether it fitted.
    #[must_use]
    pub fn zero(&mut self, new: ZeroRange) -> bool {
        let mut at = new.start;
        let mut fits = true;
        while at < new.end {
            let newer = self
                .ranges()
                .iter()
                .skip(self.range_at_or_after(at))
                .take_while(|range| range.start < new.end)
                .find(|range| range.op > new.op)
                .copied();
            let (end, next) = match newer {
                Some(range) => (range.start, range.end),
                None => (new.end, new.end),
            };
            fits &= self.zero_over(ZeroRange {
                start: at,
                end,
                op: new.op,
            });
            at = next;
        }
        fits
    }

    /// Records a range that is newer than all it overlaps: they are cut back.
    fn zero_over(&mut self, new: ZeroRange) -> bool {
        if new.start >= new.end {
            return true;
        }
        let first = self
            .ranges()
            .partition_point(|range| range.end <= new.start);
        let last = self.ranges().partition_point(|range| range.start < new.end);
        let overlapped = self.ranges().get(first..last).unwrap_or(&[]);
        let left = overlapped
            .first()
            .filter(|range| range.start < new.start)
            .map(|range| ZeroRange {
                end: new.start,
                ..*range
            });
        let right = overlapped
            .last()
            .filter(|range| range.end > new.end)
            .map(|range| ZeroRange {
                start: new.end,
                ..*range
            });
        let pieces = [left, Some(new), right];
        let added = pieces.iter().flatten().count();
        let count = self.range_count - (last - first) + added;
        if count > self.ranges.len() {
            return false;
        }
        self.ranges
            .copy_within(last..self.range_count, first + added);
        for (at, piece) in pieces.iter().flatten().enumerate() {
            if let Some(room) = self.ranges.get_mut(first + at) {
                *room = *piece;
            }
        }
        self.range_count = count;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_point_and_range_wins() {
        let mut overlay = Overlay::new(100, 16).unwrap();
        let entry = Entry::mapped(100, 10, 0).unwrap();
        overlay.points.insert(5, entry, 1);
        assert!(overlay.zero(ZeroRange {
            start: 0,
            end: 10,
            op: 2
        }));
        assert_eq!(overlay.get(5), Some((Entry::UNMAPPED, 2)));
        overlay.points.insert(5, entry, 3);
        assert_eq!(overlay.get(5), Some((entry, 3)));
        assert_eq!(overlay.get(9), Some((Entry::UNMAPPED, 2)));
        assert_eq!(overlay.get(10), None);
    }

    #[test]
    fn ranges_may_come_in_any_order() {
        let mut overlay = Overlay::new(10, 400).unwrap();
        let mut model = [0u64; 200];
        let mut state = 5u64;
        for step in 1..150 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(7);
            let op = (step * 37) % 151;
            let start = (state >> 33) % 190;
            let end = (start + 1 + (state >> 50) % 40).min(200);
            assert!(overlay.zero(ZeroRange { start, end, op }));
            for slot in &mut model[start as usize..end as usize] {
                *slot = (*slot).max(op);
            }
            for (lbn, expected) in model.iter().enumerate() {
                let found = overlay.get(lbn as u64).map_or(0, |(_, op)| op);
                assert_eq!(found, *expected);
            }
        }
    }

    #[test]
    fn ranges_match_a_plain_array() {
        let mut overlay = Overlay::new(10, 400).unwrap();
        let mut model = [0u64; 200];
        let mut state = 1u64;
        for op in 1..150 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
            let start = (state >> 33) % 190;
            let end = (start + 1 + (state >> 50) % 40).min(200);
            assert!(overlay.zero(ZeroRange { start, end, op }));
            model[start as usize..end as usize].fill(op);
            for (lbn, expected) in model.iter().enumerate() {
                let found = overlay.get(lbn as u64).map_or(0, |(_, op)| op);
                assert_eq!(found, *expected);
            }
        }
    }
}
