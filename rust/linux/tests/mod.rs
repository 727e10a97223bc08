// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the wrappers. They run when the module is loaded.
//!
//! | file | what is tested |
//! |---|---|
//! | `arena` | buffers with one owner: claims, copies, devices; and hand-over of values |
//! | `codec` | lz4, zstd and xxh64: every unit size, known values, damaged input |
//! | `iobuf` | buffers and pools: bounds, sharing, sealing |
//! | `layout` | that structs have the same size in C and in Rust |
//! | `ramdisk` | not a test: a disk in memory, made with our own wrappers |
//! | `disk` | requests and bios against each other: the disk in memory is the lower device |

mod arena;
mod codec;
mod disk;
mod iobuf;
mod layout;
mod ramdisk;

/// Numbers that look random, always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() as usize).checked_rem(end).unwrap_or(0)
    }

    /// Fills `bytes` with data of which about `percent` is zeros, in runs of 64.
    fn fill(&mut self, bytes: &mut [u8], percent: u64) {
        for run in bytes.chunks_mut(64) {
            if self.next() % 100 < percent {
                run.fill(0);
            } else {
                for byte in run {
                    *byte = self.next() as u8;
                }
            }
        }
    }
}
