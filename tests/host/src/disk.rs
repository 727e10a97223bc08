// SPDX-License-Identifier: GPL-2.0

//! A disk with a volatile cache and zones.
//!
//! Writes take effect when they complete; until a flush has covered them, a crash keeps or drops
//! each of their blocks at will, and of those in flight too. Inside a zone writes must be
//! sequential, as on zoned hardware: zones that hold roots may also start again at their start.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use zbd_engine::{Error, Media, Result};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// A block's content, shared by all copies of a disk.
pub type Block = Rc<[u8; BLOCK]>;

/// Bytes as blocks.
pub fn blocks_of(bytes: &[u8]) -> Vec<Block> {
    let block = |chunk: &[u8]| Rc::new(chunk.try_into().expect("whole blocks"));
    bytes.chunks(BLOCK).map(block).collect()
}

/// A block in the cache.
#[derive(Clone)]
struct Cached {
    id: u64,
    /// The write or discard that it is part of.
    io: u64,
    data: Block,
}

/// The disk.
#[derive(Clone)]
pub struct Disk {
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    /// Cached writes by block, oldest first.
    unflushed: BTreeMap<u64, Vec<Cached>>,
    next_id: u64,
    next_io: u64,
    zero: Block,
    zone_blocks: u64,
    pointers: BTreeMap<u64, u64>,
    /// Blocks that cannot be read.
    pub unreadable: BTreeSet<u64>,
    /// Addresses (in blocks) at which writes fail.
    pub unwritable: BTreeSet<u64>,
    /// Writes (and flushes) that still succeed; `None`: all.
    pub budget: Option<u64>,
    /// Blocks that were read and written through [`Media`].
    pub traffic: u64,
}

impl Disk {
    /// A disk of zeros.
    pub fn new(blocks: u64, zone_blocks: u64) -> Disk {
        Disk {
            blocks,
            durable: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            next_id: 0,
            next_io: 0,
            zero: Rc::new([0; BLOCK]),
            zone_blocks,
            pointers: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            budget: None,
            traffic: 0,
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
    pub fn complete_write(&mut self, address: u64, blocks: &[Block], durable: bool) {
        self.next_io += 1;
        for (block, data) in (address / BLOCK as u64..).zip(blocks) {
            self.put(block, data.clone(), durable);
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
            self.cache(block, id, data);
        }
    }

    fn cache(&mut self, block: u64, id: u64, data: Block) {
        let io = self.next_io;
        let writes = self.unflushed.entry(block).or_default();
        writes.push(Cached { id, io, data });
    }

    /// Makes all that has completed durable.
    pub fn flush_all(&mut self) {
        self.complete_flush(self.next_id);
    }

    /// Makes what completed before `mark` durable.
    pub fn complete_flush(&mut self, mark: u64) {
        let durable = &mut self.durable;
        self.unflushed.retain(|block, writes| {
            writes.retain(|write| {
                if write.id < mark {
                    durable.insert(*block, write.data.clone());
                }
                write.id >= mark
            });
            !writes.is_empty()
        });
    }

    /// Drops a zone's contents.
    pub fn discard(&mut self, address: u64, bytes: u64) {
        self.next_io += 1;
        let first = address / BLOCK as u64;
        let zero = self.zero.clone();
        for block in first..first + bytes / BLOCK as u64 {
            if self.durable.contains_key(&block) || self.unflushed.contains_key(&block) {
                self.put(block, zero.clone(), false);
            }
        }
        self.pointers.insert(first / self.zone_blocks, 0);
    }

    /// The writes that a crash may keep or drop, with their blocks in the cache.
    pub fn at_stake(&self) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for write in self.unflushed.values().flatten() {
            *counts.entry(write.io).or_insert(0) += 1;
        }
        counts
    }

    /// Power fails: a cached block survives where `keep` says so, told its write and its number.
    pub fn crash(&mut self, mut keep: impl FnMut(u64, u64) -> bool) {
        for (block, writes) in std::mem::take(&mut self.unflushed) {
            for write in writes {
                if keep(write.io, write.id) {
                    self.durable.insert(block, write.data);
                }
            }
        }
        self.pointers.clear();
        self.budget = None;
    }

    /// A number that two disks of one run share if they hold the same on the medium.
    ///
    /// Holds while all blocks of both are alive: it is made of where they are in memory.
    pub fn image(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        for (block, data) in &self.durable {
            (block, Rc::as_ptr(data) as usize).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Lets a write in flight survive a crash in part.
    pub fn tear(&mut self, address: u64, blocks: &[Block], mut keep: impl FnMut() -> bool) {
        self.next_io += 1;
        for (block, data) in (address / BLOCK as u64..).zip(blocks) {
            if keep() {
                self.put(block, data.clone(), false);
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
        if let Some(write) = self.unflushed.get(&block).and_then(|writes| writes.last()) {
            return write.data.clone();
        }
        match self.durable.get(&block) {
            Some(data) => data.clone(),
            None => self.zero.clone(),
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
        let first = address / BLOCK as u64;
        let end = first + (bytes.len() / BLOCK) as u64;
        self.traffic += end - first;
        if end > self.blocks || self.unreadable.range(first..end).next().is_some() {
            return Err(Error::Io);
        }
        bytes.fill(0);
        let mut copy = |block: u64, data: &Block| {
            let at = (block - first) as usize * BLOCK;
            bytes[at..at + BLOCK].copy_from_slice(&**data);
        };
        for (block, data) in self.durable.range(first..end) {
            copy(*block, data);
        }
        for (block, writes) in self.unflushed.range(first..end) {
            if let Some(write) = writes.last() {
                copy(*block, &write.data);
            }
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result {
        self.spend()?;
        self.traffic += (bytes.len() / BLOCK) as u64;
        let first = address / BLOCK as u64;
        if (first..first + (bytes.len() / BLOCK) as u64)
            .any(|block| self.unwritable.contains(&block))
        {
            return Err(Error::Io);
        }
        self.complete_write(address, &blocks_of(bytes), false);
        Ok(())
    }

    fn flush(&mut self) -> Result {
        self.spend()?;
        let mark = self.next_id;
        self.complete_flush(mark);
        Ok(())
    }
}
