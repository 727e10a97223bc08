// SPDX-License-Identifier: GPL-2.0

//! Every bound of the engine, and what a volume takes at attach.

use super::format::{fragment, packed, root, segment};
use super::units::BLOCK_BYTES;

/// Pieces that one call of `reserve` takes at most.
pub const PIECES_MAX: usize = 32;
/// Page loads under way at once.
pub const LOADS_MAX: usize = 32;
/// Bytes of a page-load buffer: a page at any offset in its first block.
pub const PAGE_BUFFER_BYTES: usize =
    (packed::BYTES_MAX + fragment::HEADER_BYTES + BLOCK_BYTES).next_multiple_of(BLOCK_BYTES);
/// Segments of garbage collection and of metadata that are in memory at once, each.
pub const OTHER_SEGMENTS: usize = 4;
/// Metadata pages of a collected zone that the next checkpoint rewrites, at most.
pub const TOUCHES_MAX: usize = 4096;
/// Discards of freed zones under way at once.
pub const DISCARDS_MAX: usize = 4;
/// A zeroed range of up to this many blocks is kept block by block.
pub const ZERO_POINTS_MAX: u64 = 8;
/// Zones that only garbage collection and checkpoints may open.
pub const GC_RESERVE_ZONES: usize = 2;
/// Zones that are emptied before a checkpoint is asked for: it takes zones itself.
pub const GC_BATCH_ZONES: usize = 8;
/// Lower writes of one segment that may fail before the volume is made read-only.
pub const REISSUES_MAX: u8 = 4;
/// A page's delta holds at most this many words; beyond, a new base is written.
pub const DELTA_WORDS_MAX: u32 = 64;
/// Steps that one call of `run` takes at most, each a page or a fragment.
pub const RUN_STEPS: usize = 32;

/// What a volume takes from memory and when it makes checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Requests of the driver that may wait at once.
    pub requests: usize,
    /// Pages in the map's cache, 4 KiB each.
    pub cache_pages: usize,
    /// Changed blocks between two checkpoints.
    pub overlay_entries: usize,
    /// Zeroed ranges between two checkpoints.
    pub overlay_ranges: usize,
    /// User segments in memory at once.
    pub user_segments: usize,
    /// Log blocks between two checkpoints.
    pub checkpoint_blocks: u64,
    /// Whether the lower device takes discards.
    pub discard: bool,
    /// Whether the lower device has a volatile write cache.
    pub volatile_cache: bool,
}

impl Config {
    /// The default: 64 MiB of page cache.
    pub const DEFAULT: Config = Config {
        requests: 256,
        cache_pages: 16384,
        overlay_entries: 1 << 18,
        overlay_ranges: 4096,
        user_segments: 16,
        checkpoint_blocks: 1 << 18,
        discard: true,
        volatile_cache: true,
    };

    /// Every pool at its smallest, for tests.
    pub const SMALL: Config = Config {
        requests: 64,
        cache_pages: 64,
        overlay_entries: 2048,
        overlay_ranges: 64,
        user_segments: 4,
        checkpoint_blocks: 2048,
        discard: true,
        volatile_cache: true,
    };

    /// Whether all values are in their ranges.
    pub fn check(&self) -> bool {
        (1..=4096).contains(&self.requests)
            && (64..=1 << 24).contains(&self.cache_pages)
            && (512..=1 << 24).contains(&self.overlay_entries)
            && (16..=1 << 16).contains(&self.overlay_ranges)
            && (2..=256).contains(&self.user_segments)
            && self.checkpoint_blocks >= 64
    }

    /// Number of segment buffers: user, garbage collection, metadata.
    pub fn segments(&self) -> usize {
        self.user_segments + 2 * OTHER_SEGMENTS
    }

    /// Bytes of buffer number `buffer`; `None` past the last.
    ///
    /// Segment buffers come first, then two per page load, then the collector's, then the root's.
    pub fn buffer_bytes(&self, buffer: usize) -> Option<usize> {
        let segments = self.segments();
        let loads = segments + 2 * LOADS_MAX;
        match buffer {
            _ if buffer < segments => Some(segment::BYTES_MAX),
            _ if buffer < loads => Some(PAGE_BUFFER_BYTES),
            _ if buffer == loads => Some(2 * segment::BYTES_MAX),
            _ if buffer == loads + 1 => Some(root::BYTES_MAX),
            _ => None,
        }
    }
}
