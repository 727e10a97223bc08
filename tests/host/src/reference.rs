// SPDX-License-Identifier: GPL-2.0

//! What may be read: for each block the versions it has had, and which of them is durable.

use std::collections::BTreeMap;

/// A block's content: 0 for zeros, else a version that is never used twice.
pub type Version = u64;

#[derive(Clone, Debug)]
struct History {
    versions: Vec<Version>,
    durable: usize,
}

/// What a flush makes durable: the last version of every block, and the number of operations.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    versions: BTreeMap<u64, usize>,
    operations: usize,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    blocks: BTreeMap<u64, History>,
    /// Every operation since the last crash, in order: first block, blocks, version.
    operations: Vec<(u64, u64, Version)>,
    durable_operations: usize,
}

impl Reference {
    /// Blocks were written, or became zeros.
    pub fn write(&mut self, lbn: u64, blocks: u64, version: Version) {
        if version == 0 {
            // A block that was never written reads as zeros already.
            for (_, history) in self.blocks.range_mut(lbn..lbn + blocks) {
                history.versions.push(version);
            }
        } else {
            for block in lbn..lbn + blocks {
                self.history(block).versions.push(version);
            }
        }
        self.operations.push((lbn, blocks, version));
    }

    fn history(&mut self, lbn: u64) -> &mut History {
        self.blocks.entry(lbn).or_insert(History {
            versions: vec![0],
            durable: 0,
        })
    }

    /// What a block must read as now.
    pub fn now(&self, lbn: u64) -> Version {
        match self.blocks.get(&lbn) {
            Some(history) => *history.versions.last().unwrap(),
            None => 0,
        }
    }

    /// What a flush issued now makes durable.
    pub fn mark(&self) -> Mark {
        let last = |history: &History| history.versions.len() - 1;
        Mark {
            versions: self
                .blocks
                .iter()
                .map(|(lbn, history)| (*lbn, last(history)))
                .collect(),
            operations: self.operations.len(),
        }
    }

    /// A flush that was issued at `mark` has completed.
    pub fn flushed(&mut self, mark: &Mark) {
        for (lbn, at) in &mark.versions {
            let history = self.history(*lbn);
            history.durable = history.durable.max(*at);
        }
        self.durable_operations = self.durable_operations.max(mark.operations);
    }

    /// Blocks that were ever written.
    pub fn blocks(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }

    /// Whether a block may read as `version` after a crash.
    pub fn allows(&self, lbn: u64, version: Version) -> Result<(), String> {
        let allowed = match self.blocks.get(&lbn) {
            Some(history) => &history.versions[history.durable..],
            None => &[0],
        };
        if allowed.contains(&version) {
            Ok(())
        } else {
            Err(format!(
                "block {lbn} reads as version {version}, allowed are {allowed:?}"
            ))
        }
    }

    /// Whether the blocks read as after some number of operations in order, the durable ones
    /// included: what is promised to nobody, but what the order of the log gives.
    pub fn is_prefix(&self, found: &BTreeMap<u64, Version>) -> bool {
        let first = |lbn: &u64| {
            self.blocks
                .get(lbn)
                .map_or(0, |history| history.versions[0])
        };
        let mut now: BTreeMap<u64, Version> = found.keys().map(|lbn| (*lbn, first(lbn))).collect();
        for at in 0..=self.operations.len() {
            if at >= self.durable_operations && now == *found {
                return true;
            }
            if let Some((lbn, blocks, version)) = self.operations.get(at) {
                for (_, slot) in now.range_mut(*lbn..lbn + blocks) {
                    *slot = *version;
                }
            }
        }
        false
    }

    /// After a crash a block reads as `version`: answers whether it may, and takes it for granted
    /// from now on.
    pub fn settle(&mut self, lbn: u64, version: Version) -> Result<(), String> {
        self.allows(lbn, version)?;
        let history = self.history(lbn);
        history.versions = vec![version];
        history.durable = 0;
        self.operations.clear();
        self.durable_operations = 0;
        Ok(())
    }
}
