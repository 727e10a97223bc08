// SPDX-License-Identifier: GPL-2.0

//! Page-aligned memory for block I/O.
//!
//! Two handles on the same kind of memory:
//!
//! - [`IoBuf`] owns its bytes alone and hands out plain slices. Reads from a device go here.
//! - [`SharedIoBuf`] is for a buffer that several CPUs fill at once and that goes to the device
//!   afterwards, while others still read from it. It copies in and out, and once *sealed* never
//!   changes until the last handle is gone.
//!
//! Buffers come from the allocator ([`IoBuf::new`]) or from an [`IoBufPool`], which allocates all
//! of its memory when it is made and gives a buffer back to its free list when the last handle is
//! dropped. Taking from a pool and giving back neither sleeps nor allocates, in any context.
//!
//! ```text
//!   IoBuf::new ──► IoBuf ──► slices, reads, writes
//!   pool.take ──►  IoBuf ──► share() ──► SharedIoBuf (open) ── seal() ──► sealed: writes, slices
//!                    ▲                        │                             │
//!                    └────── free list ◄──────┴──── last handle dropped ◄───┘
//! ```

use super::bindings;
use core::{
    alloc::Layout,
    mem::ManuallyDrop,
    ops::Range,
    ptr::NonNull,
    slice, //
};
use kernel::{
    alloc::{
        allocator::KVmalloc,
        Allocator,
        NumaNode, //
    },
    page::PAGE_SIZE,
    prelude::*,
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

/// Largest buffer, in bytes: what one bio can carry in pages that are scattered.
pub(crate) const BYTES_MAX: usize = bindings::BIO_VECS_MAX as usize * PAGE_SIZE;

/// Raw page-aligned memory.
///
/// # Invariants
///
/// `ptr` points to an allocation of [`KVmalloc`] that is valid for reads and writes of `len` bytes,
/// all of them initialised; `len` is a non-zero multiple of the page size and at most
/// [`BYTES_MAX`]. The allocation is owned by this value.
pub(super) struct Memory {
    pub(super) ptr: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: `Memory` is a piece of memory that it owns, of no type in particular.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` gives no access to its bytes except through raw pointers.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(len: usize) -> Result<Layout> {
        if len == 0 || len > BYTES_MAX || len % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        Layout::from_size_align(len, PAGE_SIZE).map_err(|_| EINVAL)
    }

    pub(super) fn new(len: usize) -> Result<Self> {
        let memory = KVmalloc::alloc(
            Self::layout(len)?,
            GFP_KERNEL | __GFP_ZERO,
            NumaNode::NO_NODE,
        )?;
        // INVARIANT: `alloc` gave at least `len` bytes of this alignment, zeroed and thus
        // initialised; `layout` checked `len`.
        Ok(Self {
            ptr: memory.cast(),
            len,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(layout) = Self::layout(self.len) {
            // SAFETY: by the type invariants `ptr` came from `KVmalloc` with this layout, and
            // nothing refers to it any more.
            unsafe { KVmalloc::free(self.ptr, layout) };
        }
    }
}

/// Where the memory of a handle goes when the handle is dropped.
enum Home {
    /// Back to the allocator.
    Alone(Memory),
    /// Back to the free list of a pool, as the buffer of this index and slot.
    Pool(Arc<IoBufPool>, usize, NonNull<Slot>),
}

/// A page-aligned buffer with one owner.
///
/// # Invariants
///
/// `ptr` and `len` describe memory that lives as long as `home` does and that no other handle
/// gives access to.
pub(crate) struct IoBuf {
    ptr: NonNull<u8>,
    len: usize,
    home: ManuallyDrop<Home>,
}

// SAFETY: an `IoBuf` is the only way to its bytes, like a box of bytes.
unsafe impl Send for IoBuf {}
// SAFETY: a shared `IoBuf` allows reading only.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Allocates a zeroed buffer of `len` bytes: a multiple of the page size, at most
    /// [`BYTES_MAX`], else `EINVAL`.
    ///
    /// May sleep.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let memory = Memory::new(len)?;
        // INVARIANT: the memory is new, and moves into `home`.
        Ok(Self {
            ptr: memory.ptr,
            len,
            home: ManuallyDrop::new(Home::Alone(memory)),
        })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: by the type invariants the memory is valid and initialised, and only this handle,
        // which is borrowed, could change it.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// All bytes, for writing.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the handle is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// Turns the buffer into one that several CPUs may fill.
    ///
    /// Gives the buffer back if it is not from a pool.
    pub(crate) fn share(self) -> Result<SharedIoBuf, Self> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and its `home` not used again.
        match unsafe { ManuallyDrop::take(&mut this.home) } {
            Home::Pool(pool, index, slot) => Ok(SharedIoBuf::new(pool, index, slot)),
            // INVARIANT: the parts of a valid handle that no longer exists.
            home @ Home::Alone(_) => Err(Self {
                ptr: this.ptr,
                len: this.len,
                home: ManuallyDrop::new(home),
            }),
        }
    }

    /// Address and length of `range`, for a bio; `EINVAL` if it is empty or not inside the buffer.
    pub(super) fn raw_range(&self, range: &Range<usize>) -> Result<RawRange> {
        RawRange::new(self.ptr, self.len, range)
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        // SAFETY: `home` is not used after this.
        match unsafe { ManuallyDrop::take(&mut self.home) } {
            Home::Alone(memory) => drop(memory),
            Home::Pool(pool, index, _) => pool.give_back(index),
        }
    }
}

/// A part of a buffer as the block layer sees it.
///
/// The holder keeps the buffer alive; that is why only `linux` can have one.
#[derive(Clone, Copy)]
pub(super) struct RawRange {
    /// First byte.
    pub(super) ptr: NonNull<u8>,
    /// Bytes, at most [`BYTES_MAX`].
    pub(super) len: u32,
}

impl RawRange {
    pub(super) fn new(ptr: NonNull<u8>, len: usize, range: &Range<usize>) -> Result<Self> {
        let bytes = checked_len(len, range)?;
        if bytes == 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            // SAFETY: `checked_len` made sure that the start lies inside the memory.
            ptr: unsafe { ptr.add(range.start) },
            len: bytes.try_into()?,
        })
    }

    /// Whether the pages are mapped in vmalloc space.
    pub(super) fn is_vmalloc(&self) -> bool {
        // SAFETY: only looks at the address.
        unsafe { bindings::is_vmalloc_addr(self.ptr.as_ptr().cast()) }
    }

    /// Number of pages touched.
    pub(super) fn pages(&self) -> usize {
        let start = self.ptr.as_ptr() as usize % PAGE_SIZE;
        (start + self.len as usize).div_ceil(PAGE_SIZE)
    }
}

/// Length of `range` if it lies within `0..len`, else `EINVAL`.
fn checked_len(len: usize, range: &Range<usize>) -> Result<usize> {
    if range.end > len {
        return Err(EINVAL);
    }
    range.end.checked_sub(range.start).ok_or(EINVAL)
}

/// One buffer of a pool.
struct Slot {
    memory: Memory,
    /// Number of [`SharedIoBuf`] handles.
    handles: Atomic<i32>,
    /// Number of copies into the buffer under way, or [`SEALED`].
    fill: Atomic<i32>,
}

/// In [`Slot::fill`]: nothing is written any more. Far from any number of concurrent writers.
const SEALED: i32 = 1 << 30;

/// A fixed number of buffers of one size, allocated up front.
pub(crate) struct IoBufPool {
    slots: KVVec<Slot>,
    /// One bit per slot, set while the slot is free.
    free: KVVec<Atomic<u64>>,
    free_count: Atomic<i32>,
}

impl IoBufPool {
    /// Allocates `count` buffers of `len` bytes each (a multiple of the page size, at most
    /// [`BYTES_MAX`]).
    ///
    /// May sleep.
    pub(crate) fn new(count: usize, len: usize) -> Result<Arc<Self>> {
        let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
        let mut free = KVVec::with_capacity(count.div_ceil(64), GFP_KERNEL)?;
        for index in 0..count {
            slots.push(
                Slot {
                    memory: Memory::new(len)?,
                    handles: Atomic::new(0),
                    fill: Atomic::new(0),
                },
                GFP_KERNEL,
            )?;
            if index % 64 == 0 {
                let bits = count - index;
                let word = if bits >= 64 {
                    u64::MAX
                } else {
                    (1 << bits) - 1
                };
                free.push(Atomic::new(word), GFP_KERNEL)?;
            }
        }
        Ok(Arc::new(
            Self {
                slots,
                free,
                free_count: Atomic::new(count.try_into()?),
            },
            GFP_KERNEL,
        )?)
    }

    /// Number of buffers that are free at this moment.
    pub(crate) fn free_count(&self) -> usize {
        self.free_count.load(Relaxed).max(0) as usize
    }

    /// Takes a free buffer, with whatever its last user left in it.
    ///
    /// `None` when all are in use. Neither sleeps nor allocates.
    pub(crate) fn take(self: &Arc<Self>) -> Option<IoBuf> {
        for (word_index, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                // Acquire: see what the last user wrote before `give_back` released the slot.
                match word.cmpxchg(bits, bits & (bits - 1), Acquire) {
                    Ok(_) => {
                        let index = word_index * 64 + bit;
                        let slot = self.slots.get(index)?;
                        self.free_count.fetch_sub(1, Relaxed);
                        // INVARIANT: the bit was ours to clear, so no other handle on this slot
                        // exists; the slot lives as long as the pool, which `home` keeps.
                        return Some(IoBuf {
                            ptr: slot.memory.ptr,
                            len: slot.memory.len,
                            home: ManuallyDrop::new(Home::Pool(
                                self.clone(),
                                index,
                                NonNull::from(slot),
                            )),
                        });
                    }
                    Err(now) => bits = now,
                }
            }
        }
        None
    }

    fn give_back(&self, index: usize) {
        let Some(word) = self.free.get(index / 64) else {
            return;
        };
        let bit = 1u64 << (index % 64);
        let mut bits = word.load(Relaxed);
        // Release: what was done to the buffer happens before the next user's `take`.
        while let Err(now) = word.cmpxchg(bits, bits | bit, Release) {
            bits = now;
        }
        self.free_count.fetch_add(1, Relaxed);
    }
}

/// A handle on a pool buffer that several CPUs fill and read.
///
/// Writers own disjoint ranges by agreement. Should two writers overlap in spite of that, the bytes
/// end up mixed, as with two C `memcpy()`s; no reference to bytes that may still change is ever
/// handed out.
///
/// # Invariants
///
/// `slot` points to slot `index` of `pool`, and the `handles` of that slot count this handle.
pub(crate) struct SharedIoBuf {
    pool: Arc<IoBufPool>,
    index: usize,
    slot: NonNull<Slot>,
}

// SAFETY: a handle is an `Arc` of the pool and a pointer into it; `Slot` itself is `Sync`.
unsafe impl Send for SharedIoBuf {}
// SAFETY: as above; every access through a shared handle is atomic or a copy to raw memory.
unsafe impl Sync for SharedIoBuf {}

impl SharedIoBuf {
    /// Takes over a slot of `pool` from an [`IoBuf`].
    fn new(pool: Arc<IoBufPool>, index: usize, slot: NonNull<Slot>) -> Self {
        // INVARIANT: the slot is this one handle's from now on.
        let this = Self { pool, index, slot };
        this.slot().fill.store(0, Relaxed);
        this.slot().handles.store(1, Relaxed);
        this
    }

    fn slot(&self) -> &Slot {
        // SAFETY: by the type invariants the slot belongs to `pool`, whose vector of slots never
        // changes and lives as long as this handle.
        unsafe { self.slot.as_ref() }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.slot().memory.len
    }

    /// Copies `bytes` to `offset`.
    ///
    /// `EINVAL` if they do not fit, `EBUSY` if the buffer is sealed. Any context.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) -> Result {
        let slot = self.slot();
        let end = offset.checked_add(bytes.len()).ok_or(EINVAL)?;
        checked_len(slot.memory.len, &(offset..end))?;
        // Acquire pairs with the release of a `seal` that was undone by a new life of the slot.
        if slot.fill.fetch_add(1, Acquire) & SEALED != 0 {
            slot.fill.fetch_sub(1, Relaxed);
            return Err(EBUSY);
        }
        // SAFETY: source and destination are valid for that many bytes (checked above) and do not
        // overlap: nobody has a slice of an unsealed buffer. Two of these copies at once are
        // byte copies to raw memory to which no reference exists.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                slot.memory.ptr.as_ptr().add(offset),
                bytes.len(),
            );
        }
        // Release: `seal` sees the bytes.
        slot.fill.fetch_sub(1, Release);
        Ok(())
    }

    /// Copies from `offset` into `bytes`; `EINVAL` if that is more than there is.
    ///
    /// Bytes that somebody is writing at the same time may come out mixed. Any context.
    pub(crate) fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let memory = &self.slot().memory;
        let end = offset.checked_add(bytes.len()).ok_or(EINVAL)?;
        checked_len(memory.len, &(offset..end))?;
        // SAFETY: both are valid for that many bytes (checked above); `bytes` is borrowed
        // exclusively and therefore not part of the buffer.
        unsafe {
            core::ptr::copy_nonoverlapping(
                memory.ptr.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
        Ok(())
    }

    /// Ends filling: from here on the bytes do not change while any handle exists.
    ///
    /// `EBUSY` if a [`write_at`](Self::write_at) is under way; sealing twice is fine.
    pub(crate) fn seal(&self) -> Result {
        match self.slot().fill.cmpxchg(0, SEALED, Full) {
            Ok(_) => Ok(()),
            Err(fill) if fill & SEALED != 0 => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }

    /// All bytes, once sealed.
    pub(crate) fn as_sealed(&self) -> Option<&[u8]> {
        let slot = self.slot();
        if slot.fill.load(Acquire) & SEALED == 0 {
            return None;
        }
        // SAFETY: the memory is valid and initialised; sealed, it is not written before the last
        // handle is dropped, and this one is borrowed.
        Some(unsafe { slice::from_raw_parts(slot.memory.ptr.as_ptr(), slot.memory.len) })
    }

    /// Address and length of `range` of a sealed buffer, for a bio; `EBUSY` if not sealed.
    pub(super) fn raw_range(&self, range: &Range<usize>) -> Result<RawRange> {
        if self.as_sealed().is_none() {
            return Err(EBUSY);
        }
        let memory = &self.slot().memory;
        RawRange::new(memory.ptr, memory.len, range)
    }
}

impl Clone for SharedIoBuf {
    fn clone(&self) -> Self {
        self.slot().handles.fetch_add(1, Relaxed);
        // INVARIANT: counted just now.
        Self {
            pool: self.pool.clone(),
            index: self.index,
            slot: self.slot,
        }
    }
}

impl Drop for SharedIoBuf {
    fn drop(&mut self) {
        // Full: what others did with their handles happens before the buffer is free.
        if self.slot().handles.fetch_sub(1, Full) == 1 {
            self.pool.give_back(self.index);
        }
    }
}
