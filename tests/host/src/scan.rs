// SPDX-License-Identifier: GPL-2.0

//! Finds what is where on a disk by its magic numbers alone, without the engine.

use crate::disk::{Disk, BLOCK};

/// A segment, or what is left of an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First block on the disk.
    pub block: u64,
    /// Blocks.
    pub blocks: u64,
    /// 1 user, 2 garbage collection, 3 metadata.
    pub kind: u8,
}

/// The segments on a disk.
pub fn segments(disk: &Disk) -> Vec<Segment> {
    let mut found = Vec::new();
    for block in disk.written() {
        let data = disk.block(block);
        if data.starts_with(b"zbdS") {
            found.push(Segment {
                block,
                blocks: u64::from(u16::from_le_bytes([data[56], data[57]])),
                kind: data[5],
            });
        }
    }
    found
}

/// Blocks that are not zeros.
pub fn used(disk: &Disk) -> Vec<u64> {
    let blocks = disk.written().into_iter();
    blocks
        .filter(|block| *disk.block(*block) != [0; BLOCK])
        .collect()
}
