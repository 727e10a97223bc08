// SPDX-License-Identifier: GPL-2.0

//! A disk with a volatile cache and zones.
//!
//! Writes take effect when they complete; until a flush has covered them, a crash keeps or drops
//! each of their blocks at will, and of those in flight too. Inside a zone writes must be
//! sequential, as on zoned hardware: zones that hold roots may also start again at their start.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use zbd_engine::{Error, Media, Result};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

type Block = Rc<[u8; BLOCK]>;

/// The disk.
#[derive(Clone)]
pub struct Disk {
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    /// Cached writes by block, oldest first, each with its number.
    unflushed: BTreeMap<u64, Vec<(u64, Block)>>,
    next_id: u64,
    zone_blocks: u64,
    pointers: BTreeMap<u64, u64>,
    /// Blocks that cannot be read.
    pub unreadable: BTreeSet<u64>,
    /// Addresses (in blocks) at which writes fail.
    pub unwritable: BTreeSet<u64>,
    /// Writes (and flushes) that still succeed; `None`: all.
    pub budget: Option<u64>,
}

impl Disk {
    /// A disk of zeros.
    pub fn new(blocks: u64, zone_blocks: u64) -> Disk {
        Disk {
            blocks,
            durable: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            next_id: 0,
            zone_blocks,
            pointers: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            budget: None,
        }
    }

    /// Number of writes after which all that completed so far are known by a number below.
    pub fn mark(&self) -> u64 {
        self.next_id
    }

    /// Checks that a write is where its zone is being written. To be called at submission.
    pub fn check_sequential(&mut self, address: u64, bytes: usize) {
        let block = address / BLOCK as u64;
        let zone = block / self.zone_blocks;
        let offset = block % self.zone_blocks;
        // After an attach the log alone knows where a zone goes on.
        let pointer = self.pointers.entry(zone).or_insert(offset);
        assert!(
            offset == *pointer || offset == 0,
            "write at block {offset} of zone {zone}, whose pointer is at {pointer}"
        );
        *pointer = offset + (bytes / BLOCK) as u64;
        assert!(*pointer <= self.zone_blocks, "write beyond zone {zone}");
    }

    /// Puts a completed write into the cache.
    pub fn complete_write(&mut self, address: u64, bytes: &[u8], durable: bool) {
        for (at, chunk) in bytes.chunks_exact(BLOCK).enumerate() {
            let block = address / BLOCK as u64 + at as u64;
            let mut data = [0; BLOCK];
            data.copy_from_slice(chunk);
            self.put(block, Rc::new(data), durable);
        }
    }

    fn put(&mut self, block: u64, data: Block, durable: bool) {
        assert!(block < self.blocks, "write beyond the disk");
        let id = self.next_id;
        self.next_id += 1;
        if durable {
            self.unflushed.remove(&block);
            self.durable.insert(block, data);
        } else {
            self.unflushed.entry(block).or_default().push((id, data));
        }
    }

    /// Makes what completed before `mark` durable.
    pub fn complete_flush(&mut self, mark: u64) {
        let durable = &mut self.durable;
        self.unflushed.retain(|block, writes| {
            writes.retain(|(id, data)| {
                if *id < mark {
                    durable.insert(*block, data.clone());
                }
                *id >= mark
            });
            !writes.is_empty()
        });
    }

    /// Drops a zone's contents.
    pub fn discard(&mut self, address: u64, bytes: u64) {
        let first = address / BLOCK as u64;
        let zero: Block = Rc::new([0; BLOCK]);
        for block in first..first + bytes / BLOCK as u64 {
            if self.durable.contains_key(&block) || self.unflushed.contains_key(&block) {
                self.put(block, zero.clone(), false);
            }
        }
        self.pointers.insert(first / self.zone_blocks, 0);
    }

    /// Blocks whose cached writes a crash may keep or drop, one bit each for [`Disk::crash`].
    pub fn at_stake(&self) -> usize {
        self.unflushed.values().map(Vec::len).sum()
    }

    /// Power fails: cached block writes survive where `keep` says so.
    pub fn crash(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut at = 0;
        for (block, writes) in std::mem::take(&mut self.unflushed) {
            for (_, data) in writes {
                if keep(at) {
                    self.durable.insert(block, data);
                }
                at += 1;
            }
        }
        self.pointers.clear();
        self.budget = None;
    }

    /// Lets a write in flight survive a crash in part.
    pub fn tear(&mut self, address: u64, bytes: &[u8], mut keep: impl FnMut() -> bool) {
        for (at, chunk) in bytes.chunks_exact(BLOCK).enumerate() {
            if keep() {
                let mut data = [0; BLOCK];
                data.copy_from_slice(chunk);
                let block = address / BLOCK as u64 + at as u64;
                let write = (self.next_id, Rc::new(data));
                self.unflushed.entry(block).or_default().push(write);
                self.next_id += 1;
            }
        }
    }

    /// After a crash zones are written on from wherever the log says.
    pub fn forget_pointers(&mut self) {
        self.pointers.clear();
    }

    /// Flips a bit on the medium.
    pub fn flip(&mut self, block: u64, bit: usize) {
        let mut data = *self.block(block);
        data[bit / 8] ^= 1 << (bit % 8);
        self.unflushed.remove(&block);
        self.durable.insert(block, Rc::new(data));
    }

    /// Overwrites a block on the medium.
    pub fn poke(&mut self, block: u64, data: [u8; BLOCK]) {
        self.unflushed.remove(&block);
        self.durable.insert(block, Rc::new(data));
    }

    /// What a block reads as.
    pub fn block(&self, block: u64) -> Block {
        if let Some((_, data)) = self.unflushed.get(&block).and_then(|writes| writes.last()) {
            return data.clone();
        }
        match self.durable.get(&block) {
            Some(data) => data.clone(),
            None => Rc::new([0; BLOCK]),
        }
    }

    /// Numbers of the blocks that were ever written.
    pub fn written(&self) -> Vec<u64> {
        self.durable.keys().copied().collect()
    }

    fn spend(&mut self) -> Result {
        match &mut self.budget {
            None => Ok(()),
            Some(0) => Err(Error::Io),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl Media for Disk {
    fn capacity_bytes(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result {
        assert_eq!(address % BLOCK as u64, 0);
        for (at, chunk) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            let block = address / BLOCK as u64 + at as u64;
            if block >= self.blocks || self.unreadable.contains(&block) {
                return Err(Error::Io);
            }
            chunk.copy_from_slice(&*self.block(block));
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result {
        self.spend()?;
        let first = address / BLOCK as u64;
        if (first..first + (bytes.len() / BLOCK) as u64)
            .any(|block| self.unwritable.contains(&block))
        {
            return Err(Error::Io);
        }
        self.complete_write(address, bytes, false);
        Ok(())
    }

    fn flush(&mut self) -> Result {
        self.spend()?;
        let mark = self.next_id;
        self.complete_flush(mark);
        Ok(())
    }
}
