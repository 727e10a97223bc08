// SPDX-License-Identifier: GPL-2.0

//! Counters of a volume, and what it tells the log.

/// Counters since attach. Bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Logical bytes written by requests, zeros included.
    pub user_bytes: u64,
    /// Bytes of user segments written to the lower device.
    pub user_log_bytes: u64,
    /// Bytes of garbage collection segments written to the lower device.
    pub gc_log_bytes: u64,
    /// Bytes of metadata written to the lower device, every copy and root counted.
    pub metadata_log_bytes: u64,
    /// Blocks written as zeros or discarded.
    pub zero_blocks: u64,
    /// Extents stored as they are.
    pub raw_extents: u64,
    /// Extents stored compressed.
    pub compressed_extents: u64,
    /// Map pages found in the cache.
    pub cache_hits: u64,
    /// Map pages loaded.
    pub cache_misses: u64,
    /// Fragments or pages that failed their checksum.
    pub checksum_errors: u64,
    /// Lower I/Os that failed.
    pub io_errors: u64,
    /// Times that writes had to wait for space.
    pub space_stalls: u64,
    /// Times that garbage collection could not go on.
    pub gc_stalls: u64,
    /// Zones emptied by garbage collection.
    pub gc_zones: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Flushes asked for.
    pub flushes: u64,
}

/// The volume's state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Logical blocks that hold data, as of the newest checkpoint.
    pub mapped_blocks: u64,
    /// Bytes that live fragments and metadata take, second copies included.
    pub live_bytes: u64,
    /// Bytes of the lower device that are taken: zones that are not free, but for what is still
    /// unwritten of open ones.
    pub used_bytes: u64,
    /// Number of zones.
    pub zones: u64,
    /// Zones that are free.
    pub free_zones: u64,
    /// Pages in the cache.
    pub cached_pages: u64,
    /// Bytes of memory that the engine has taken: caches, overlays, tables.
    pub memory_bytes: u64,
}

/// Something that people should read in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A lower write failed and was repeated elsewhere.
    WriteReissued {
        /// The zone where it failed.
        zone: u32,
    },
    /// One copy of a metadata segment could not be written.
    CopyLost {
        /// The zone where it failed.
        zone: u32,
    },
    /// A fragment failed its checksum.
    BadFragment {
        /// Its block.
        lbn: u64,
    },
    /// A page of the map is unreadable in every copy: what it covers reads as errors.
    PageLost {
        /// Its level.
        level: u8,
        /// Its index.
        index: u64,
    },
    /// A zone cannot be emptied.
    ZoneStuck {
        /// The zone.
        zone: u32,
    },
    /// Space is nearly used up.
    NearlyFull,
    /// Space is used up: writes fail.
    Full,
    /// Space is plenty again.
    SpaceAgain,
    /// A checkpoint failed and is tried again.
    CheckpointFailed,
    /// An invariant is broken: the volume is read-only from now on.
    Poisoned {
        /// Which one.
        reason: &'static str,
    },
}
