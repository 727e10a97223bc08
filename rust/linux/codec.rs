// SPDX-License-Identifier: GPL-2.0

//! Compression: lz4 and zstd, one call per unit, with memory that is there beforehand.
//!
//! Each worker has its own compressor and decompressor; using them neither sleeps nor allocates.
//! A unit that does not shrink into the space given is simply reported as such.
//!
//! C headers: [`include/linux/lz4.h`](srctree/include/linux/lz4.h),
//! [`include/linux/zstd.h`](srctree/include/linux/zstd.h)

use super::bindings;
use core::ptr::NonNull;
use kernel::{
    ffi,
    prelude::*, //
};

/// Largest unit, in bytes.
pub(crate) const UNIT_BYTES_MAX: usize = 128 << 10;

/// Acceleration of lz4: 1 compresses best, each step is a little faster and a little worse.
pub(crate) const LZ4_ACCELERATION_DEFAULT: u32 = 1;

/// Compresses with lz4.
pub(crate) struct Lz4Compressor {
    work: KVVec<u64>,
}

impl Lz4Compressor {
    /// Allocates working memory (16 KiB). May sleep.
    pub(crate) fn new() -> Result<Self> {
        let words = (bindings::MAX_LZ4_WORK_BYTES as usize).div_ceil(8);
        Ok(Self {
            work: KVVec::from_elem(0, words, GFP_KERNEL)?,
        })
    }

    /// Compresses `src` into `dst` and returns the compressed length; `None` if that does not fit
    /// in `dst`, or `src` is empty or longer than [`UNIT_BYTES_MAX`].
    pub(crate) fn compress(
        &mut self,
        acceleration: u32,
        src: &[u8],
        dst: &mut [u8],
    ) -> Option<usize> {
        if src.is_empty() || src.len() > UNIT_BYTES_MAX {
            return None;
        }
        // SAFETY: source and destination are valid for the lengths given, the working memory is as
        // large and aligned as asked for.
        let len = unsafe {
            bindings::LZ4_compress_fast(
                src.as_ptr(),
                dst.as_mut_ptr(),
                src.len().try_into().ok()?,
                dst.len().try_into().ok()?,
                acceleration.try_into().ok()?,
                self.work.as_mut_ptr().cast(),
            )
        };
        usize::try_from(len).ok().filter(|&len| len > 0)
    }
}

/// Decompresses lz4, and returns the length of what came out.
///
/// `EINVAL` if `src` is not the output of a compressor or does not fit in `dst`; `dst` may have
/// been written to even so. Reads and writes nothing else, whatever `src` contains.
pub(crate) fn lz4_decompress(src: &[u8], dst: &mut [u8]) -> Result<usize> {
    // SAFETY: source and destination are valid for the lengths given; the callee is made for
    // untrusted input.
    let len = unsafe {
        bindings::LZ4_decompress_safe(
            src.as_ptr(),
            dst.as_mut_ptr(),
            src.len().try_into()?,
            dst.len().try_into()?,
        )
    };
    usize::try_from(len).map_err(|_| EINVAL)
}

/// Memory for a zstd context, aligned to 8 bytes.
struct Workspace(KVVec<u64>);

impl Workspace {
    fn new(bytes: usize) -> Result<Self> {
        Ok(Self(KVVec::from_elem(0, bytes.div_ceil(8), GFP_KERNEL)?))
    }

    fn as_mut_ptr(&mut self) -> *mut ffi::c_void {
        self.0.as_mut_ptr().cast()
    }

    fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// Parameters for units of up to `bytes` bytes.
fn zstd_params(level: i32, bytes: usize) -> bindings::zstd_parameters {
    // SAFETY: the callee only looks up a table.
    unsafe { bindings::zstd_get_params(level, bytes.next_power_of_two() as u64) }
}

/// Compresses with zstd at one level.
///
/// # Invariants
///
/// `context` was made in `workspace`, which is not used otherwise and large enough for all units of
/// up to [`UNIT_BYTES_MAX`] bytes at `level`.
pub(crate) struct ZstdCompressor {
    context: NonNull<bindings::zstd_cctx>,
    level: i32,
    workspace: Workspace,
}

// SAFETY: the context is a piece of memory that goes along.
unsafe impl Send for ZstdCompressor {}
// SAFETY: a shared compressor offers nothing that uses the context.
unsafe impl Sync for ZstdCompressor {}

impl ZstdCompressor {
    /// Levels that exist.
    pub(crate) fn levels() -> core::ops::RangeInclusive<i32> {
        // SAFETY: these only return a constant.
        unsafe { bindings::zstd_min_clevel()..=bindings::zstd_max_clevel() }
    }

    /// Allocates working memory for `level`: from 0.5 MiB at level 1 to many MiB. `EINVAL` for a
    /// level that does not exist. May sleep.
    pub(crate) fn new(level: i32) -> Result<Self> {
        if !Self::levels().contains(&level) {
            return Err(EINVAL);
        }
        // Parameters, and so sizes, depend on the size of the unit, not always in step with it.
        let mut bytes = 0;
        let mut unit = 1;
        while unit <= UNIT_BYTES_MAX {
            let params = zstd_params(level, unit);
            // SAFETY: the parameters are valid.
            let bound = unsafe { bindings::zstd_cctx_workspace_bound(&params.cParams) };
            bytes = bytes.max(bound);
            unit *= 2;
        }
        let mut workspace = Workspace::new(bytes)?;
        // SAFETY: the workspace is valid, aligned, and of that size.
        let context =
            unsafe { bindings::zstd_init_cctx(workspace.as_mut_ptr(), workspace.bytes()) };
        // INVARIANT: made in the workspace, whose memory does not move with this value.
        Ok(Self {
            context: NonNull::new(context).ok_or(ENOMEM)?,
            level,
            workspace,
        })
    }

    /// The level.
    pub(crate) fn level(&self) -> i32 {
        self.level
    }

    /// Size of the working memory in bytes.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace.bytes()
    }

    /// Compresses `src` into `dst` and returns the compressed length; `None` if that does not fit
    /// in `dst`, or `src` is empty or longer than [`UNIT_BYTES_MAX`].
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        if src.is_empty() || src.len() > UNIT_BYTES_MAX {
            return None;
        }
        let params = zstd_params(self.level, src.len());
        // SAFETY: the context is valid by the type invariants and borrowed exclusively; source and
        // destination are valid for the lengths given.
        let len = unsafe {
            bindings::zstd_compress_cctx(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
                &params,
            )
        };
        // SAFETY: plain test of a number.
        if unsafe { bindings::zstd_is_error(len) } != 0 {
            return None;
        }
        Some(len)
    }
}

/// Decompresses zstd.
///
/// # Invariants
///
/// `context` was made in `_workspace`, which is not used otherwise.
pub(crate) struct ZstdDecompressor {
    context: NonNull<bindings::zstd_dctx>,
    _workspace: Workspace,
}

// SAFETY: the context is a piece of memory that goes along.
unsafe impl Send for ZstdDecompressor {}
// SAFETY: a shared decompressor offers nothing that uses the context.
unsafe impl Sync for ZstdDecompressor {}

impl ZstdDecompressor {
    /// Allocates working memory (about 96 KiB). May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: returns a constant.
        let mut workspace = Workspace::new(unsafe { bindings::zstd_dctx_workspace_bound() })?;
        // SAFETY: the workspace is valid, aligned, and of that size.
        let context =
            unsafe { bindings::zstd_init_dctx(workspace.as_mut_ptr(), workspace.bytes()) };
        // INVARIANT: made in the workspace, whose memory does not move with this value.
        Ok(Self {
            context: NonNull::new(context).ok_or(ENOMEM)?,
            _workspace: workspace,
        })
    }

    /// Decompresses `src` into `dst`, and returns the length of what came out.
    ///
    /// `EINVAL` if `src` is not the output of a compressor or does not fit in `dst`; `dst` may have
    /// been written to even so. Reads and writes nothing else, whatever `src` contains.
    pub(crate) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize> {
        // SAFETY: the context is valid by the type invariants and borrowed exclusively; source and
        // destination are valid for the lengths given.
        let len = unsafe {
            bindings::zstd_decompress_dctx(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
            )
        };
        // SAFETY: plain test of a number.
        if unsafe { bindings::zstd_is_error(len) } != 0 {
            return Err(EINVAL);
        }
        Ok(len)
    }
}
