// SPDX-License-Identifier: GPL-2.0

//! A B+-tree from LBN to map entry and operation number, in memory taken at attach.
//!
//! Entries are inserted and replaced, never removed singly: an overlay is dropped as a whole.

use super::error::Result;
use super::format::entry::Entry;
use super::units::LEAF_SHIFT;
use crate::mem::{try_vec, Vec};

const LEAF_KEYS: usize = 32;
const INNER_KIDS: usize = 32;
const DEPTH_MAX: usize = 8;
/// Keys that a leaf holds on average when keys come in random order.
const LEAF_KEYS_TYPICAL: usize = 20;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Leaf {
    len: usize,
    next: u32,
    keys: [u64; LEAF_KEYS],
    entries: [Entry; LEAF_KEYS],
    ops: [u64; LEAF_KEYS],
}

#[derive(Clone, Copy)]
struct Inner {
    len: usize,
    /// Smallest key below each kid; the first is not looked at.
    keys: [u64; INNER_KIDS],
    kids: [u32; INNER_KIDS],
}

/// The tree.
///
/// # Invariants
///
/// Node numbers in use are below `leaf_count` and `inner_count`; lengths do not exceed the arrays.
pub struct PointMap {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    leaf_count: usize,
    inner_count: usize,
    /// 0: the root is a leaf.
    depth: usize,
    root: u32,
    len: usize,
    dirty_leaves: usize,
}

impl PointMap {
    /// An empty tree for about `entries` entries.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(entries: usize) -> Result<PointMap> {
        let leaf = Leaf {
            len: 0,
            next: NONE,
            keys: [0; LEAF_KEYS],
            entries: [Entry::UNMAPPED; LEAF_KEYS],
            ops: [0; LEAF_KEYS],
        };
        let inner = Inner {
            len: 0,
            keys: [0; INNER_KIDS],
            kids: [NONE; INNER_KIDS],
        };
        let leaves = entries.div_ceil(LEAF_KEYS_TYPICAL) + 8;
        let inners = leaves.div_ceil(INNER_KIDS / 2 - 1) * 2 + DEPTH_MAX;
        Ok(PointMap {
            leaves: try_vec(leaves, leaf)?,
            inners: try_vec(inners, inner)?,
            leaf_count: 1,
            inner_count: 0,
            depth: 0,
            root: 0,
            len: 0,
            dirty_leaves: 0,
        })
    }

    /// A copy with twice the room.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn grown(&self) -> Result<PointMap> {
        let mut copy = PointMap::new(2 * self.leaves.len() * LEAF_KEYS_TYPICAL)?;
        let mut at = 0;
        while let Some((key, entry, op)) = self.next_at_or_after(at) {
            copy.insert(key, entry, op);
            at = key + 1;
        }
        Ok(copy)
    }

    /// Bytes of memory that a tree for `entries` entries takes.
    pub fn memory_bytes(entries: usize) -> usize {
        let leaves = entries.div_ceil(LEAF_KEYS_TYPICAL) + 8;
        leaves * size_of::<Leaf>()
            + (leaves.div_ceil(INNER_KIDS / 2 - 1) * 2 + DEPTH_MAX) * size_of::<Inner>()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if let Some(leaf) = self.leaves.get_mut(0) {
            leaf.len = 0;
            leaf.next = NONE;
        }
        self.leaf_count = 1;
        self.inner_count = 0;
        self.depth = 0;
        self.root = 0;
        self.len = 0;
        self.dirty_leaves = 0;
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of map leaves that have entries, never too low.
    pub fn dirty_leaves(&self) -> usize {
        self.dirty_leaves
    }

    /// Number of insertions that surely fit: each takes at most one new leaf.
    pub fn room(&self) -> usize {
        self.leaves.len() - self.leaf_count
    }

    /// [`PointMap::room`] of the empty tree.
    pub fn room_max(&self) -> usize {
        self.leaves.len() - 1
    }

    fn descend(&self, key: u64, path: &mut [(u32, usize); DEPTH_MAX]) -> u32 {
        let mut node = self.root;
        for step in path.iter_mut().take(self.depth) {
            let Some(inner) = self.inners.get(node as usize) else {
                break;
            };
            let used = inner.keys.get(1..inner.len).unwrap_or(&[]);
            let at = used.partition_point(|separator| *separator <= key);
            *step = (node, at);
            node = inner.kids.get(at).copied().unwrap_or(NONE);
        }
        node
    }

    fn locate(&self, key: u64) -> Option<(&Leaf, usize)> {
        let node = self.descend(key, &mut [(0, 0); DEPTH_MAX]);
        let leaf = self.leaves.get(node as usize)?;
        let used = leaf.keys.get(..leaf.len)?;
        Some((leaf, used.partition_point(|other| *other < key)))
    }

    /// The entry of `key` and its operation number.
    pub fn get(&self, key: u64) -> Option<(Entry, u64)> {
        let (leaf, at) = self.locate(key)?;
        if at >= leaf.len || leaf.keys.get(at) != Some(&key) {
            return None;
        }
        Some((*leaf.entries.get(at)?, *leaf.ops.get(at)?))
    }

    /// The first entry whose key is at least `key`.
    pub fn next_at_or_after(&self, key: u64) -> Option<(u64, Entry, u64)> {
        let (mut leaf, mut at) = self.locate(key)?;
        if at >= leaf.len {
            leaf = self.leaves.get(leaf.next as usize)?;
            at = 0;
        }
        if at >= leaf.len {
            return None;
        }
        Some((
            *leaf.keys.get(at)?,
            *leaf.entries.get(at)?,
            *leaf.ops.get(at)?,
        ))
    }

    /// Replaces the entry of `key` if it is `old`, keeping its operation number.
    pub fn replace(&mut self, key: u64, old: Entry, new: Entry) -> bool {
        let node = self.descend(key, &mut [(0, 0); DEPTH_MAX]);
        let Some(leaf) = self.leaves.get_mut(node as usize) else {
            return false;
        };
        let at = leaf.keys.partition_point_in(leaf.len, key);
        if at >= leaf.len || leaf.keys.get(at) != Some(&key) {
            return false;
        }
        match leaf.entries.get_mut(at) {
            Some(entry) if *entry == old => {
                *entry = new;
                true
            }
            _ => false,
        }
    }

    /// Sets the entry of `key` unless a newer operation has set it; answers the entry that is out
    /// of the tree because of it: the one replaced, or `entry` itself if it was older.
    ///
    /// The caller has checked [`PointMap::room`].
    pub fn insert(&mut self, key: u64, entry: Entry, op: u64) -> Option<Entry> {
        let mut path = [(0, 0); DEPTH_MAX];
        let node = self.descend(key, &mut path);
        let leaf = self.leaves.get_mut(node as usize)?;
        let at = leaf.keys.partition_point_in(leaf.len, key);
        if at < leaf.len && leaf.keys.get(at) == Some(&key) {
            let (slot, slot_op) = (leaf.entries.get_mut(at)?, leaf.ops.get_mut(at)?);
            if *slot_op > op {
                return Some(entry);
            }
            *slot_op = op;
            return Some(core::mem::replace(slot, entry));
        }
        self.len += 1;
        let same = |other: Option<&u64>| other.is_some_and(|other| other ^ key < 1 << LEAF_SHIFT);
        let neighbour =
            (at > 0 && same(leaf.keys.get(at - 1))) || (at < leaf.len && same(leaf.keys.get(at)));
        if !neighbour {
            self.dirty_leaves += 1;
        }
        if leaf.len < LEAF_KEYS {
            leaf.put(at, key, entry, op);
            return None;
        }
        self.split(node, at, key, entry, op, &path);
        None
    }

    fn split(
        &mut self,
        node: u32,
        at: usize,
        key: u64,
        entry: Entry,
        op: u64,
        path: &[(u32, usize); DEPTH_MAX],
    ) {
        let fresh = self.leaf_count;
        let Some((old_part, new_part)) = self.leaves.split_at_mut_checked(fresh) else {
            return;
        };
        let (Some(old), Some(new)) = (old_part.get_mut(node as usize), new_part.first_mut()) else {
            return;
        };
        self.leaf_count += 1;
        // Keys that only grow fill their leaves to the brim.
        let keep = if at == LEAF_KEYS && old.next == NONE {
            LEAF_KEYS
        } else {
            LEAF_KEYS / 2
        };
        new.len = 0;
        new.next = old.next;
        for from in keep..LEAF_KEYS {
            if let (Some(key), Some(entry), Some(op)) =
                (old.keys.get(from), old.entries.get(from), old.ops.get(from))
            {
                new.put(from - keep, *key, *entry, *op);
            }
        }
        old.len = keep;
        old.next = fresh as u32;
        if at <= keep && keep < LEAF_KEYS {
            old.put(at, key, entry, op);
        } else {
            new.put(at - keep, key, entry, op);
        }
        let separator = new.keys.first().copied().unwrap_or(key);
        self.link(separator, fresh as u32, path);
    }

    /// Hangs a new node into the inner nodes of `path`, splitting them as needed.
    fn link(&mut self, separator: u64, kid: u32, path: &[(u32, usize); DEPTH_MAX]) {
        let (mut separator, mut kid) = (separator, kid);
        for level in (0..self.depth).rev() {
            let Some(&(node, at)) = path.get(level) else {
                return;
            };
            let fresh = self.inner_count;
            let Some((old_part, new_part)) = self.inners.split_at_mut_checked(fresh) else {
                return;
            };
            let Some(inner) = old_part.get_mut(node as usize) else {
                return;
            };
            if inner.len < INNER_KIDS {
                inner.put(at + 1, separator, kid);
                return;
            }
            let Some(new) = new_part.first_mut() else {
                return;
            };
            self.inner_count += 1;
            let keep = INNER_KIDS / 2;
            new.len = 0;
            for from in keep..INNER_KIDS {
                if let (Some(key), Some(kid)) = (inner.keys.get(from), inner.kids.get(from)) {
                    new.put(from - keep, *key, *kid);
                }
            }
            inner.len = keep;
            if at < keep {
                inner.put(at + 1, separator, kid);
            } else {
                new.put(at + 1 - keep, separator, kid);
            }
            separator = new.keys.first().copied().unwrap_or(separator);
            kid = fresh as u32;
        }
        let Some(inner) = self.inners.get_mut(self.inner_count) else {
            return;
        };
        inner.len = 0;
        inner.put(0, 0, self.root);
        inner.put(1, separator, kid);
        self.root = self.inner_count as u32;
        self.inner_count += 1;
        self.depth += 1;
    }
}

trait SortedKeys {
    fn partition_point_in(&self, len: usize, key: u64) -> usize;
}

impl SortedKeys for [u64; LEAF_KEYS] {
    fn partition_point_in(&self, len: usize, key: u64) -> usize {
        self.get(..len)
            .unwrap_or(&[])
            .partition_point(|other| *other < key)
    }
}

fn shift_in<T: Copy>(array: &mut [T], len: usize, at: usize, value: T) {
    if len < array.len() && at <= len {
        array.copy_within(at..len, at + 1);
        if let Some(room) = array.get_mut(at) {
            *room = value;
        }
    }
}

impl Leaf {
    fn put(&mut self, at: usize, key: u64, entry: Entry, op: u64) {
        shift_in(&mut self.keys, self.len, at, key);
        shift_in(&mut self.entries, self.len, at, entry);
        shift_in(&mut self.ops, self.len, at, op);
        self.len += 1;
    }
}

impl Inner {
    fn put(&mut self, at: usize, key: u64, kid: u32) {
        shift_in(&mut self.keys, self.len, at, key);
        shift_in(&mut self.kids, self.len, at, kid);
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn run(keys: impl Iterator<Item = u64>) {
        let mut tree = PointMap::new(20_000).unwrap();
        let mut model = BTreeMap::new();
        for (op, key) in keys.enumerate() {
            assert!(tree.room() > 0);
            let entry = Entry::mapped(op as u64, 2, 0).unwrap();
            let old = tree.insert(key, entry, op as u64);
            assert_eq!(
                old,
                model.insert(key, (entry, op as u64)).map(|(old, _)| old)
            );
        }
        assert_eq!(tree.len(), model.len());
        let (mut at, mut found) = (0, std::vec![]);
        while let Some((key, entry, op)) = tree.next_at_or_after(at) {
            found.push((key, (entry, op)));
            at = key + 1;
        }
        assert_eq!(
            found,
            model.clone().into_iter().collect::<std::vec::Vec<_>>()
        );
        for (key, value) in &model {
            assert_eq!(tree.get(*key), Some(*value));
            assert_eq!(tree.get(key + 1).is_some(), model.contains_key(&(key + 1)));
        }
        let leaves: std::collections::BTreeSet<_> = model.keys().map(|key| key >> 9).collect();
        assert!(tree.dirty_leaves() >= leaves.len());
    }

    #[test]
    fn matches_a_model_for_keys_in_order() {
        run(0..18_000);
        run((0..9_000).rev());
    }

    #[test]
    fn matches_a_model_for_random_keys() {
        let mut state = 7u64;
        run((0..20_000).map(move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 40) % 60_000
        }));
    }

    #[test]
    fn an_older_operation_loses() {
        let mut tree = PointMap::new(10).unwrap();
        let (old, new) = (
            Entry::mapped(1, 2, 0).unwrap(),
            Entry::mapped(9, 2, 0).unwrap(),
        );
        assert_eq!(tree.insert(3, new, 5), None);
        assert_eq!(tree.insert(3, old, 4), Some(old));
        assert_eq!(tree.get(3), Some((new, 5)));
        assert!(!tree.replace(3, old, new));
        assert!(tree.replace(3, new, old));
        assert_eq!(tree.get(3), Some((old, 5)));
    }
}
