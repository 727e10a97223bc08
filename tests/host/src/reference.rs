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

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    blocks: BTreeMap<u64, History>,
}

impl Reference {
    /// A write, or zeros, was committed.
    pub fn write(&mut self, lbn: u64, version: Version) {
        self.history(lbn).versions.push(version);
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

    /// The number of versions of every block: what a flush issued now makes durable.
    pub fn mark(&self) -> BTreeMap<u64, usize> {
        self.blocks
            .iter()
            .map(|(lbn, history)| (*lbn, history.versions.len() - 1))
            .collect()
    }

    /// A flush that was issued at `mark` has completed.
    pub fn flushed(&mut self, mark: &BTreeMap<u64, usize>) {
        for (lbn, at) in mark {
            let history = self.history(*lbn);
            history.durable = history.durable.max(*at);
        }
    }

    /// Blocks that were ever written.
    pub fn blocks(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }

    /// After a crash a block reads as `version`: answers whether it may, and takes it for granted
    /// from now on.
    pub fn settle(&mut self, lbn: u64, version: Version) -> Result<(), String> {
        let history = self.history(lbn);
        let allowed = &history.versions[history.durable..];
        if !allowed.contains(&version) {
            return Err(format!(
                "block {lbn} reads as version {version}, allowed are {allowed:?}"
            ));
        }
        history.versions = vec![version];
        history.durable = 0;
        Ok(())
    }
}
