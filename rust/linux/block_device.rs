// SPDX-License-Identifier: GPL-2.0

//! A lower block device, opened exclusively.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::bindings;
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi,
    prelude::*,
    str::CStr, //
};

/// Bytes per sector, the unit of addresses in the block layer whatever the device's block size.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// What a device is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reading only.
    Read,
    /// Reading and writing; fails with `EACCES` on a read-only device.
    ReadWrite,
}

impl Mode {
    fn to_raw(self) -> bindings::blk_mode_t {
        match self {
            Self::Read => bindings::BLK_OPEN_READ,
            Self::ReadWrite => bindings::BLK_OPEN_READ | bindings::BLK_OPEN_WRITE,
        }
    }
}

/// An open block device (or partition) that nobody else can claim.
///
/// Other exclusive users (mounts, `mkfs`, device mapper, another volume) get `EBUSY` until this is
/// dropped. Dropping may sleep.
///
/// # Invariants
///
/// `file` is an open file of a block device that was claimed with `holder`, and `bdev` is that
/// device.
pub(crate) struct BlockDevice {
    file: NonNull<bindings::file>,
    bdev: NonNull<bindings::block_device>,
    /// Nothing but an address that no other opener has; the kernel compares it and never looks
    /// behind it.
    _holder: KBox<u8>,
}

// SAFETY: the block layer allows all of the calls below from any thread.
unsafe impl Send for BlockDevice {}
// SAFETY: as above, also at the same time.
unsafe impl Sync for BlockDevice {}

impl BlockDevice {
    /// Opens the device at `path` and claims it.
    ///
    /// Errors: `ENOENT`; `ENOTBLK` when it is something else; `EBUSY` when it is in use; `EACCES`
    /// when it is read-only and `mode` asks for writing; `ENXIO` when there is no driver.
    ///
    /// May sleep. Follows symbolic links, in the mount namespace of the caller.
    pub(crate) fn open(path: &CStr, mode: Mode) -> Result<Self> {
        // SAFETY: `path` is a NUL-terminated string; the holder is only an address to the callee;
        // holder operations are optional.
        Self::open_with(|holder| unsafe {
            let none = core::ptr::null();
            bindings::bdev_file_open_by_path(path.as_char_ptr(), mode.to_raw(), holder, none)
        })
    }

    /// Opens the device with this [number](Self::dev_number) and claims it, as [`open`](Self::open)
    /// does, but without looking at read-only.
    ///
    /// May sleep.
    pub(crate) fn open_number(number: u32, mode: Mode) -> Result<Self> {
        // SAFETY: the holder is only an address to the callee; holder operations are optional.
        Self::open_with(|holder| unsafe {
            bindings::bdev_file_open_by_dev(number, mode.to_raw(), holder, core::ptr::null())
        })
    }

    /// Opens a device with a function that takes the holder and returns a file or an error.
    fn open_with(open: impl FnOnce(*mut ffi::c_void) -> *mut bindings::file) -> Result<Self> {
        let holder = KBox::new(0u8, GFP_KERNEL)?;
        let token: *const u8 = &*holder;
        let file = from_err_ptr(open(token.cast_mut().cast()))?;
        // SAFETY: `file` is the open block device file from above.
        let bdev = unsafe { bindings::file_bdev(file) };
        match (NonNull::new(file), NonNull::new(bdev)) {
            // INVARIANT: opened and claimed above.
            (Some(file), Some(bdev)) => Ok(Self {
                file,
                bdev,
                _holder: holder,
            }),
            _ => Err(ENXIO),
        }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::block_device {
        self.bdev.as_ptr()
    }

    /// Size in sectors; 0 once the device has gone.
    pub(crate) fn sectors(&self) -> u64 {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_nr_sectors(self.as_raw()) }
    }

    /// Smallest unit the device can read or write, in bytes: a power of two, 512 or more.
    pub(crate) fn logical_block_bytes(&self) -> u32 {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_logical_block_size(self.as_raw()) }
    }

    /// Smallest unit the device writes without reading first, in bytes.
    pub(crate) fn physical_block_bytes(&self) -> u32 {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_physical_block_size(self.as_raw()) }
    }

    /// Whether the device refuses writes at this moment.
    pub(crate) fn is_read_only(&self) -> bool {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_read_only(self.as_raw()) }
    }

    /// Whether the device has zones that must be written sequentially.
    pub(crate) fn is_zoned(&self) -> bool {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_is_zoned(self.as_raw()) }
    }

    /// Largest discard in one request, in sectors; 0 when the device cannot discard.
    pub(crate) fn discard_sectors_max(&self) -> u32 {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_max_discard_sectors(self.as_raw()) }
    }

    /// Unit in which discarding frees anything, in bytes.
    pub(crate) fn discard_granularity_bytes(&self) -> u32 {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_discard_granularity(self.as_raw()) }
    }

    /// Whether the device has a volatile cache, that is, whether flushes do anything.
    pub(crate) fn has_write_cache(&self) -> bool {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::bdev_write_cache(self.as_raw()) }
    }

    /// Whether the device seeks.
    pub(crate) fn is_rotational(&self) -> bool {
        // SAFETY: `bdev` is open, so that it has a queue for as long.
        let features = unsafe { (*(*self.as_raw()).bd_queue).limits.features };
        features & bindings::BLK_FEAT_ROTATIONAL != 0
    }

    /// Whether the device has been removed or declared dead; everything fails from then on.
    pub(crate) fn is_dead(&self) -> bool {
        // SAFETY: `bdev` is open, which keeps its disk; a flag word may be read at any time.
        let state =
            unsafe { core::ptr::read_volatile(&raw const (*(*self.as_raw()).bd_disk).state) };
        state & (1 << bindings::GD_DEAD) != 0
    }

    /// The kernel's name for the device, such as `nvme0n1p2`.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: `bdev` is open and registered, so that its device has a name, which does not
        // change; it is NUL-terminated.
        unsafe { CStr::from_char_ptr(bindings::dev_name(&raw const (*self.as_raw()).bd_device)) }
    }

    /// Device number as the kernel keeps it: equal for equal devices.
    pub(crate) fn dev_number(&self) -> u32 {
        // SAFETY: `bdev` is open; the number never changes.
        unsafe { (*self.as_raw()).bd_dev }
    }

    /// Makes everything written so far durable. Sleeps.
    pub(crate) fn flush_sync(&self) -> Result {
        // SAFETY: `bdev` is open, by the type invariants.
        to_result(unsafe { bindings::blkdev_issue_flush(self.as_raw()) })
    }

    /// Discards `sectors` from `sector` on. Sleeps; `EOPNOTSUPP` where the device cannot.
    pub(crate) fn discard_sync(&self, sector: u64, sectors: u64) -> Result {
        // SAFETY: `bdev` is open; the callee checks the range.
        to_result(unsafe {
            bindings::blkdev_issue_discard(self.as_raw(), sector, sectors, bindings::GFP_NOIO)
        })
    }

    /// Drops what the page cache of this device node holds.
    ///
    /// We write around that cache: whoever reads the device node afterwards shall not see what was
    /// there before. Sleeps.
    pub(crate) fn invalidate_page_cache(&self) {
        // SAFETY: `bdev` is open, by the type invariants.
        unsafe { bindings::invalidate_bdev(self.as_raw()) };
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        // SAFETY: `file` was opened by us and is closed once. The claim ends in this call, before
        // the holder is freed.
        unsafe { bindings::bdev_fput(self.file.as_ptr()) };
    }
}
