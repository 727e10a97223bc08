// SPDX-License-Identifier: GPL-2.0

//! A fixed set of buffers that one owner works on under its lock, while others copy into and out of
//! them, and devices transfer, outside it.
//!
//! [`ArenaOwner`] exists once per arena. It hands out plain slices and therefore *claims* a buffer
//! first: nobody else copies into or out of a claimed buffer, they wait for the few microseconds
//! until the owner lets go of all its claims ([`ArenaOwner::release`], when it gives up its lock).
//! [`Arena`] is for everybody else: copies of bytes, and [`ArenaIo`] for devices.
//!
//! Which ranges are whose is a matter of agreement. Should two copies overlap in spite of that, the
//! bytes end up mixed, as with two C `memcpy()`s; no reference to bytes that anybody else may
//! change is ever handed out.

use super::{
    bindings,
    iobuf::{
        Memory,
        RawRange, //
    }, //
};
use core::{
    cell::Cell,
    ops::Range,
    slice, //
};
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// In [`Buffer::copies`]: the owner has references to the bytes.
const CLAIMED: i32 = 1 << 30;

/// One buffer.
struct Buffer {
    memory: Memory,
    /// Number of copies under way outside the owner's lock, and [`CLAIMED`].
    copies: Atomic<i32>,
    /// Number of devices that write to the buffer, that is, of reads under way.
    reads: Atomic<i32>,
}

/// The buffers, as everybody may use them.
pub(crate) struct Arena {
    buffers: KVVec<Buffer>,
}

/// Waits for another task that may have been put off the CPU that we are on: it gets its turn.
fn wait_a_little() {
    cpu_relax();
    // SAFETY: task context, by the requirements of all callers.
    unsafe { bindings::zbd_cond_resched() };
}

/// Counts a copy until it is dropped.
struct Copying<'a>(&'a Buffer);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        // Release: who claims the buffer next sees the bytes.
        self.0.copies.fetch_sub(1, Release);
    }
}

impl Arena {
    /// Allocates buffers of these sizes in bytes: multiples of the page size, at most
    /// [`BYTES_MAX`](super::iobuf::BYTES_MAX). May sleep.
    #[expect(clippy::new_ret_no_self, reason = "whoever makes an arena owns it")]
    pub(crate) fn new(sizes: impl Iterator<Item = usize>) -> Result<ArenaOwner> {
        let mut buffers = KVVec::new();
        for bytes in sizes {
            let buffer = Buffer {
                memory: Memory::new(bytes)?,
                copies: Atomic::new(0),
                reads: Atomic::new(0),
            };
            buffers.push(buffer, GFP_KERNEL)?;
        }
        Ok(ArenaOwner {
            arena: Arc::new(Self { buffers }, GFP_KERNEL)?,
            any_claims: Cell::new(false),
        })
    }

    /// Total size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.memory.len).sum()
    }

    /// Begins a copy; waits while the owner has the buffer claimed.
    fn begin(&self, index: usize) -> Result<Copying<'_>> {
        let buffer = self.buffers.get(index).ok_or(EINVAL)?;
        // Acquire: see what the owner did before it released the claim.
        while buffer.copies.fetch_add(1, Acquire) & CLAIMED != 0 {
            buffer.copies.fetch_sub(1, Relaxed);
            while buffer.copies.load(Relaxed) & CLAIMED != 0 {
                wait_a_little();
            }
        }
        Ok(Copying(buffer))
    }

    /// Copies `bytes` to `offset` in buffer `index`; `EINVAL` if they do not fit.
    ///
    /// Task context, not by whoever holds the owner's lock.
    pub(crate) fn write_at(&self, index: usize, offset: usize, bytes: &[u8]) -> Result {
        let copying = self.begin(index)?;
        let range = copying.0.range(offset, bytes.len())?;
        // SAFETY: `range` lies in the buffer, and `bytes` is as long and not part of it, as nobody
        // has references into it (no claim exists while `copying` does).
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), range.ptr.as_ptr(), bytes.len());
        }
        Ok(())
    }

    /// Copies from `offset` in buffer `index` to `bytes`; `EINVAL` if that is more than there is.
    ///
    /// Context as for [`write_at`](Self::write_at).
    pub(crate) fn read_at(&self, index: usize, offset: usize, bytes: &mut [u8]) -> Result {
        let copying = self.begin(index)?;
        let range = copying.0.range(offset, bytes.len())?;
        // SAFETY: as in `write_at`, the other way round.
        unsafe {
            core::ptr::copy_nonoverlapping(range.ptr.as_ptr(), bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    /// Buffer `index` for a device to write to (a read) or to read from.
    ///
    /// `EBUSY` for a read while the owner has the buffer claimed.
    pub(crate) fn io(self: &Arc<Self>, index: usize, read: bool) -> Result<ArenaIo> {
        let buffer = self.buffers.get(index).ok_or(EINVAL)?;
        if read {
            buffer.reads.fetch_add(1, Full);
        }
        // From here on dropping it takes back the count.
        let io = ArenaIo {
            arena: self.clone(),
            index,
            read,
        };
        if read && buffer.copies.load(Acquire) & CLAIMED != 0 {
            return Err(EBUSY);
        }
        Ok(io)
    }
}

impl Buffer {
    fn range(&self, offset: usize, bytes: usize) -> Result<RawRange> {
        let end = offset.checked_add(bytes).ok_or(EINVAL)?;
        RawRange::new(self.memory.ptr, self.memory.len, &(offset..end))
    }
}

/// A buffer of an arena as the memory of an I/O.
pub(crate) struct ArenaIo {
    arena: Arc<Arena>,
    index: usize,
    read: bool,
}

impl ArenaIo {
    /// Whether the device may write to it.
    pub(super) fn is_read(&self) -> bool {
        self.read
    }

    /// Address and length of `range`, for a bio; `EINVAL` if it is empty or not in the buffer.
    pub(super) fn raw_range(&self, range: &Range<usize>) -> Result<RawRange> {
        let buffer = self.arena.buffers.get(self.index).ok_or(EINVAL)?;
        RawRange::new(buffer.memory.ptr, buffer.memory.len, range)
    }
}

impl Drop for ArenaIo {
    fn drop(&mut self) {
        if let (true, Some(buffer)) = (self.read, self.arena.buffers.get(self.index)) {
            // Full: the owner sees what the device wrote.
            buffer.reads.fetch_sub(1, Full);
        }
    }
}

/// The owner's handle: the only one that gives slices. For task context; its lock must be one that
/// allows sleeping.
pub(crate) struct ArenaOwner {
    arena: Arc<Arena>,
    any_claims: Cell<bool>,
}

impl ArenaOwner {
    /// The buffers for everybody.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Keeps everybody else away from buffer `index` until [`release`](Self::release).
    ///
    /// `None` if there is no such buffer, or a device writes to it.
    fn claim(&self, index: usize) -> Option<&Buffer> {
        let buffer = self.arena.buffers.get(index)?;
        if buffer.copies.load(Relaxed) & CLAIMED == 0 {
            self.any_claims.set(true);
            buffer.copies.fetch_add(CLAIMED, Full);
            while buffer.copies.load(Acquire) != CLAIMED {
                wait_a_little();
            }
        }
        // Full, above: a read that we do not see here sees the claim.
        (buffer.reads.load(Acquire) == 0).then_some(buffer)
    }

    /// Lets go of all claims. To be called before the lock is given up.
    pub(crate) fn release(&mut self) {
        if !self.any_claims.replace(false) {
            return;
        }
        for buffer in &self.arena.buffers {
            if buffer.copies.load(Relaxed) & CLAIMED != 0 {
                // Release: pairs with `begin`.
                buffer.copies.fetch_sub(CLAIMED, Release);
            }
        }
    }

    /// The bytes of a buffer; empty if there is none, or a device writes to it.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        match self.claim(index) {
            // SAFETY: the memory is valid and initialised. Claimed, it is changed by nobody but
            // this owner, through methods that borrow it exclusively.
            Some(buffer) => unsafe {
                slice::from_raw_parts(buffer.memory.ptr.as_ptr(), buffer.memory.len)
            },
            None => &[],
        }
    }

    /// The bytes of a buffer for writing; empty as for [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        match self.claim(index) {
            // SAFETY: as in `bytes`, and this owner is borrowed exclusively.
            Some(buffer) => unsafe {
                slice::from_raw_parts_mut(buffer.memory.ptr.as_ptr(), buffer.memory.len)
            },
            None => &mut [],
        }
    }

    /// Copies `bytes` to `offset` in a buffer whose other ranges may be in use; `EINVAL` if they do
    /// not fit.
    pub(crate) fn write(&mut self, index: usize, offset: usize, bytes: &[u8]) -> Result {
        let buffer = self.arena.buffers.get(index).ok_or(EINVAL)?;
        let range = buffer.range(offset, bytes.len())?;
        // SAFETY: the range is valid; no reference to it exists, as those of this owner would
        // borrow it, and `bytes` is not part of it for the same reason.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), range.ptr.as_ptr(), bytes.len());
        }
        Ok(())
    }

    /// Copies `bytes` bytes from one buffer to another, or within one; `EINVAL` if that is not
    /// inside.
    pub(crate) fn copy(
        &mut self,
        from: (usize, usize),
        to: (usize, usize),
        bytes: usize,
    ) -> Result {
        let source = self.arena.buffers.get(from.0).ok_or(EINVAL)?;
        let target = self.arena.buffers.get(to.0).ok_or(EINVAL)?;
        let source = source.range(from.1, bytes)?;
        let target = target.range(to.1, bytes)?;
        // SAFETY: both ranges are valid, and may overlap; no reference to them exists, as in
        // `write`.
        unsafe { core::ptr::copy(source.ptr.as_ptr(), target.ptr.as_ptr(), bytes) };
        Ok(())
    }
}
