// SPDX-License-Identifier: GPL-2.0

//! Memory that compressing and decompressing needs, one set per CPU.
//!
//! Who holds a workspace computes and never waits for I/O, so that waiting for one is short and
//! always ends.

use crate::{
    engine::{
        format::{
            fragment::{
                self,
                Codec, //
            },
            root::Options, //
        }, //
    },
    linux::codec::{
        Lz4Compressor,
        ZstdCompressor,
        ZstdDecompressor,
        UNIT_BYTES_MAX, //
    }, //
};
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Mutex,
        MutexGuard, //
    }, //
};

/// More CPUs than this share.
const WORKSPACES_MAX: u32 = 64;

/// No fragment is larger.
const FRAGMENT_BYTES_MAX: usize = fragment::HEADER_BYTES + fragment::PAYLOAD_BYTES_MAX;

/// What one worker needs.
pub(super) struct Workspace {
    /// Fast compression, and a test whether slow compression is worth trying.
    pub(super) lz4: Lz4Compressor,
    /// Present if new data is compressed with zstd.
    pub(super) zstd: Option<ZstdCompressor>,
    /// For reading what may have been written with zstd.
    pub(super) unzstd: ZstdDecompressor,
    /// Room for a decompressed extent.
    pub(super) extent: KVVec<u8>,
    /// Room for a fragment.
    pub(super) fragment: KVVec<u8>,
    /// lz4's acceleration.
    pub(super) acceleration: u32,
}

/// A compressor for a volume's options, where they ask for more than lz4.
fn zstd_for(options: &Options) -> Result<Option<ZstdCompressor>> {
    match Codec::from_code(options.codec) {
        Some(Codec::Zstd) => ZstdCompressor::new(options.level.into()).map(Some),
        _ => Ok(None),
    }
}

fn acceleration_for(options: &Options) -> u32 {
    match Codec::from_code(options.codec) {
        Some(Codec::Lz4) => u32::from(options.level).max(1),
        _ => 1,
    }
}

impl Workspace {
    fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            lz4: Lz4Compressor::new()?,
            zstd: zstd_for(options)?,
            unzstd: ZstdDecompressor::new()?,
            extent: KVVec::from_elem(0, UNIT_BYTES_MAX, GFP_KERNEL)?,
            fragment: KVVec::from_elem(0, FRAGMENT_BYTES_MAX, GFP_KERNEL)?,
            acceleration: acceleration_for(options),
        })
    }
}

/// One for each CPU.
pub(super) struct Workspaces(KVVec<Pin<KBox<Mutex<Workspace>>>>);

impl Workspaces {
    /// Allocates them. May sleep.
    pub(super) fn new(options: &Options) -> Result<Self> {
        let mut all = KVVec::new();
        for _ in 0..nr_cpu_ids().clamp(1, WORKSPACES_MAX) {
            let one = Workspace::new(options)?;
            let one = KBox::pin_init(new_mutex!(one, "zbd_workspace"), GFP_KERNEL)?;
            all.push(one, GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// A workspace that is free, or the first to become so.
    ///
    /// `None` never happens: there is at least one.
    pub(super) fn get(&self) -> Option<MutexGuard<'_, Workspace>> {
        let cpu = CpuId::current().as_u32() as usize;
        let first = cpu.checked_rem(self.0.len())?;
        let (before, from) = self.0.split_at(first);
        for workspace in [from, before].into_iter().flatten() {
            if let Some(free) = workspace.try_lock() {
                return Some(free);
            }
        }
        self.0.get(first).map(|workspace| workspace.lock())
    }

    /// Gives new data other options. On error nothing is changed. May sleep.
    pub(super) fn set_options(&self, options: &Options) -> Result {
        let mut fresh = KVVec::with_capacity(self.0.len(), GFP_KERNEL)?;
        for _ in 0..self.0.len() {
            fresh.push(zstd_for(options)?, GFP_KERNEL)?;
        }
        for (workspace, zstd) in self.0.iter().zip(fresh.iter_mut()) {
            let mut workspace = workspace.lock();
            core::mem::swap(&mut workspace.zstd, zstd);
            workspace.acceleration = acceleration_for(options);
        }
        Ok(())
    }
}
