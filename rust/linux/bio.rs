// SPDX-License-Identifier: GPL-2.0

//! I/O to a lower device: build a bio, submit it, be called when it is done.
//!
//! 1. [`BioSet::new`] reserves bios for one device, once.
//! 2. [`BioSet::submit`] (may sleep) or [`BioSet::try_submit`] (does not) sends an [`Io`].
//! 3. [`Complete::complete`] is called exactly once for it, with the result and the buffer.
//!
//! Nothing is allocated beyond the reserve that cannot be done without: `submit` always gets a bio
//! as long as earlier ones complete. What the driver wants to remember about an I/O is the value
//! that implements [`Complete`]; it travels in front of the bio, in the same allocation.
//!
//! C header: [`include/linux/bio.h`](srctree/include/linux/bio.h)

use super::{
    arena::ArenaIo,
    bindings,
    block_device::{
        BlockDevice,
        SECTOR_BYTES, //
    },
    iobuf::{
        IoBuf,
        RawRange,
        SharedIoBuf, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::{
        align_of,
        size_of, //
    },
    ops::{
        BitOr,
        Range, //
    },
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Completion, //
    },
    types::Opaque, //
};

/// How an I/O is to be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    /// Nothing special.
    pub(crate) const NONE: Self = Self(0);
    /// A write that is durable when it completes.
    pub(crate) const FUA: Self = Self(bindings::REQ_FUA);
    /// First make durable what completed before.
    pub(crate) const PREFLUSH: Self = Self(bindings::REQ_PREFLUSH);
    /// Somebody is waiting.
    pub(crate) const SYNC: Self = Self(bindings::REQ_SYNC);
    /// Metadata.
    pub(crate) const META: Self = Self(bindings::REQ_META);
    /// More will follow soon: write-back throttling leaves it alone together with `SYNC`.
    pub(crate) const IDLE: Self = Self(bindings::REQ_IDLE);
    /// Nobody is waiting.
    pub(crate) const BACKGROUND: Self = Self(bindings::REQ_BACKGROUND);
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The memory of an I/O.
pub(crate) enum Payload {
    /// None: flush, discard.
    None,
    /// A buffer of its own, for reading or writing; comes back in [`Done`].
    Owned(IoBuf),
    /// A sealed shared buffer, for writing.
    Shared(SharedIoBuf),
    /// A buffer of an arena, for reading or writing, as it says.
    Arena(ArenaIo),
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Read into an owned buffer.
    Read,
    /// Write from an owned or a sealed shared buffer.
    Write,
    /// Make durable what completed before. No payload, no sector.
    Flush,
    /// Tell the device that this many sectors are not needed. No payload.
    Discard {
        /// Number of sectors, at most [`BlockDevice::discard_sectors_max`].
        sectors: u32,
    },
}

/// One I/O to a lower device.
pub(crate) struct Io {
    /// What to do.
    pub(crate) op: Op,
    /// How.
    pub(crate) flags: Flags,
    /// Where, in sectors from the start of the device.
    pub(crate) sector: u64,
    /// With which memory.
    pub(crate) payload: Payload,
    /// Which bytes of it; a multiple of the device's logical block.
    pub(crate) range: Range<usize>,
}

impl Io {
    /// A read of `range` of `buf` from `sector` on.
    pub(crate) fn read(sector: u64, buf: IoBuf, range: Range<usize>) -> Self {
        Self {
            op: Op::Read,
            flags: Flags::NONE,
            sector,
            payload: Payload::Owned(buf),
            range,
        }
    }

    /// A write of `range` of `payload` to `sector` on.
    pub(crate) fn write(sector: u64, payload: Payload, range: Range<usize>, flags: Flags) -> Self {
        Self {
            op: Op::Write,
            flags,
            sector,
            payload,
            range,
        }
    }

    /// A flush of the device's cache.
    pub(crate) fn flush() -> Self {
        Self {
            op: Op::Flush,
            flags: Flags::NONE,
            sector: 0,
            payload: Payload::None,
            range: 0..0,
        }
    }

    /// A discard.
    pub(crate) fn discard(sector: u64, sectors: u32) -> Self {
        Self {
            op: Op::Discard { sectors },
            flags: Flags::NONE,
            sector,
            payload: Payload::None,
            range: 0..0,
        }
    }

    /// `REQ_OP_*` and `REQ_*` of the block layer.
    fn raw_opf(&self) -> bindings::blk_opf_t {
        let op = match self.op {
            Op::Read => bindings::req_op_REQ_OP_READ,
            Op::Write => bindings::req_op_REQ_OP_WRITE,
            // How the block layer spells a flush to a bio driver.
            Op::Flush => {
                bindings::req_op_REQ_OP_WRITE | bindings::REQ_PREFLUSH | bindings::REQ_SYNC
            }
            Op::Discard { .. } => bindings::req_op_REQ_OP_DISCARD,
        };
        op | self.flags.0
    }

    /// The memory as the block layer sees it, after checking that everything fits together.
    fn raw_range(&self, block_bytes: u32) -> Result<Option<RawRange>> {
        let raw = match (self.op, &self.payload) {
            (Op::Read | Op::Write, Payload::Owned(buf)) => buf.raw_range(&self.range)?,
            (Op::Write, Payload::Shared(buf)) => buf.raw_range(&self.range)?,
            (Op::Read, Payload::Arena(buf)) if buf.is_read() => buf.raw_range(&self.range)?,
            (Op::Write, Payload::Arena(buf)) if !buf.is_read() => buf.raw_range(&self.range)?,
            (Op::Flush, Payload::None) => return Ok(None),
            (Op::Discard { sectors }, Payload::None) if sectors > 0 => return Ok(None),
            _ => return Err(EINVAL),
        };
        if is_aligned(self.sector, raw, block_bytes) {
            Ok(Some(raw))
        } else {
            Err(EINVAL)
        }
    }
}

/// Whether place and length of an I/O are multiples of the logical block.
fn is_aligned(sector: u64, raw: RawRange, block_bytes: u32) -> bool {
    let block_sectors = u64::from(block_bytes) / SECTOR_BYTES;
    raw.len.checked_rem(block_bytes) == Some(0) && sector.checked_rem(block_sectors) == Some(0)
}

/// What [`Complete::complete`] is given.
pub(crate) struct Done {
    /// Whether it worked, with the block layer's errors as errno: `EIO`, `ENOSPC`, `ENODATA`
    /// (medium), `EREMOTEIO`, `EOPNOTSUPP`, …; `EINVAL` or `EBUSY` for an [`Io`] that makes no
    /// sense (wrong payload, unaligned, buffer not sealed).
    pub(crate) result: Result,
    /// The memory that was sent along.
    pub(crate) payload: Payload,
}

/// What happens when an I/O is done; the value is what the driver remembers about it.
///
/// Keep it small: a pointer or two. It must not own the [`BioSet`] it was submitted to.
pub(crate) trait Complete: Send + Sized + 'static {
    /// The I/O is done.
    ///
    /// Runs in whatever context the lower device completes in, hard interrupts included: it must
    /// not sleep, and take only locks that are always taken with interrupts off. Queuing a work
    /// item is fine, and so is ending a block request.
    fn complete(self, done: Done);
}

/// What stands in front of each bio.
#[repr(C)]
struct Context<C: Complete> {
    set: NonNull<BioSet<C>>,
    io: Io,
    raw: Option<RawRange>,
    complete: C,
}

/// A reserve of bios for I/O to one device.
///
/// Dropping it waits for what is under way, and therefore may sleep.
#[pin_data(PinnedDrop)]
pub(crate) struct BioSet<C: Complete> {
    #[pin]
    inner: Opaque<bindings::bio_set>,
    device: Arc<BlockDevice>,
    /// I/Os under way, plus one as long as the set is not being dropped.
    users: Atomic<i32>,
    #[pin]
    idle: Completion,
    _complete: PhantomData<C>,
}

// SAFETY: bio sets may be used from any thread; what travels through them is `Send`.
unsafe impl<C: Complete> Send for BioSet<C> {}
// SAFETY: as above, also at the same time.
unsafe impl<C: Complete> Sync for BioSet<C> {}

impl<C: Complete> BioSet<C> {
    /// Bytes in front of each bio. The bio that follows must be aligned.
    const FRONT_BYTES: usize =
        size_of::<Context<C>>().next_multiple_of(align_of::<bindings::bio>());

    /// Reserves `reserve` bios for I/O to `device`: that many are always to be had, and as many
    /// more as memory allows. May sleep.
    pub(crate) fn new(device: Arc<BlockDevice>, reserve: u32) -> impl PinInit<Self, Error> {
        const {
            // The slab gives no more than this.
            assert!(align_of::<Context<C>>() <= align_of::<u64>());
        }
        try_pin_init!(Self {
            inner <- Opaque::try_ffi_init(|slot: *mut bindings::bio_set| {
                // SAFETY: `slot` is memory for a bio set that does not move, and that `drop`
                // gives to `bioset_exit`. The callee leaves alone what it does not need.
                to_result(unsafe {
                    slot.write(pin_init::zeroed());
                    bindings::bioset_init(
                        slot,
                        reserve,
                        Self::FRONT_BYTES as u32,
                        bindings::BIOSET_NEED_BVECS as i32,
                    )
                })
            }),
            device,
            users: Atomic::new(1),
            idle <- Completion::new(),
            _complete: PhantomData,
        }? Error)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<BlockDevice> {
        &self.device
    }

    /// Number of I/Os under way.
    pub(crate) fn in_flight(&self) -> usize {
        (self.users.load(Relaxed) - 1).max(0) as usize
    }

    /// Sends `io`.
    ///
    /// Sleeps until there is a bio for it, so not from an interrupt, not under a spinlock, and not
    /// from `queue_rq` either: while a task is inside `submit_bio()` the block layer holds back
    /// what it submits, and it could wait for itself. Use [`try_submit`](Self::try_submit) there.
    ///
    /// Every outcome is reported through `complete`, possibly before this returns.
    pub(crate) fn submit(&self, io: Io, complete: C) {
        // A sleeping allocation does not fail: only an `io` that makes no sense comes back.
        if let Err((e, io, complete)) = self.start(io, complete, bindings::GFP_NOIO) {
            complete.complete(Done {
                result: Err(e),
                payload: io.payload,
            });
        }
    }

    /// Sends `io` unless that would have to wait for memory; then it comes back.
    ///
    /// For task context: it does not wait for a bio, but the lower device may make it wait. Every
    /// other outcome is reported through `complete`, possibly before this returns.
    pub(crate) fn try_submit(&self, io: Io, complete: C) -> Result<(), (Io, C)> {
        match self.start(io, complete, bindings::GFP_NOWAIT | bindings::__GFP_NOWARN) {
            Ok(()) => Ok(()),
            Err((e, io, complete)) if e == ENOMEM => Err((io, complete)),
            Err((e, io, complete)) => {
                complete.complete(Done {
                    result: Err(e),
                    payload: io.payload,
                });
                Ok(())
            }
        }
    }

    fn start(&self, io: Io, complete: C, gfp: u32) -> Result<(), (Error, Io, C)> {
        let raw = match io.raw_range(self.device.logical_block_bytes()) {
            Ok(raw) => raw,
            Err(e) => return Err((e, io, complete)),
        };
        // SAFETY: the device is open as long as `self.device` is, and the set is initialised and
        // lives until all bios are back (`drop`).
        let bio = unsafe {
            bindings::bio_alloc_bioset(
                self.device.as_raw(),
                vecs(raw),
                io.raw_opf(),
                gfp,
                self.inner.get(),
            )
        };
        let Some(bio) = NonNull::new(bio) else {
            return Err((ENOMEM, io, complete));
        };
        // SAFETY: the bio is ours, and has as many vectors as the range needs; the buffer stays
        // alive in the context until `end_io`.
        if let Err(e) = unsafe { fill(bio, &io, raw) } {
            // SAFETY: the bio is ours and was not submitted.
            unsafe { bindings::bio_put(bio.as_ptr()) };
            return Err((e, io, complete));
        }
        self.users.fetch_add(1, Relaxed);
        // SAFETY: the bio is ours until submitted. The context in front of it is memory of the
        // right size and alignment, which is ours with the bio.
        unsafe {
            let b = bio.as_ptr();
            (*b).bi_end_io = Some(Self::end_io);
            Self::context(bio).write(Context {
                set: NonNull::from(self),
                io,
                raw,
                complete,
            });
            bindings::submit_bio(b);
        }
        Ok(())
    }

    /// The context of a bio of such a set.
    ///
    /// # Safety
    ///
    /// `bio` must come from a `BioSet<C>`.
    unsafe fn context(bio: NonNull<bindings::bio>) -> NonNull<Context<C>> {
        // SAFETY: the set was made with this many bytes in front of each bio.
        unsafe { bio.byte_sub(Self::FRONT_BYTES).cast() }
    }

    /// Called by the block layer when a bio is done.
    ///
    /// # Safety
    ///
    /// `bio` must have been submitted by `start` of a `BioSet<C>`, and be done.
    unsafe extern "C" fn end_io(bio: *mut bindings::bio) {
        let Some(bio) = NonNull::new(bio) else {
            return;
        };
        // SAFETY: `start` wrote a context, which is moved out here once; the bio is ours again and
        // not used after `bio_put`.
        let (context, status) = unsafe {
            let context = Self::context(bio).read();
            let status = (*bio.as_ptr()).bi_status;
            bindings::bio_put(bio.as_ptr());
            (context, status)
        };
        // SAFETY: plain conversion of a number.
        let result = to_result(unsafe { bindings::blk_status_to_errno(status) });
        if let (Op::Read, Some(raw)) = (context.io.op, context.raw) {
            // SAFETY: the memory belongs to `context.io.payload`.
            unsafe { finish_read(raw) };
        }
        context.complete.complete(Done {
            result,
            payload: context.io.payload,
        });
        // SAFETY: this I/O still counts as a user of the set, so the set exists.
        unsafe { context.set.as_ref() }.put();
    }

    fn put(&self) {
        // Full: everything that was done with the set happens before it is torn down.
        if self.users.fetch_sub(1, Full) == 1 {
            self.idle.complete_all();
        }
    }
}

#[pinned_drop]
impl<C: Complete> PinnedDrop for BioSet<C> {
    fn drop(self: Pin<&mut Self>) {
        self.put();
        self.idle.wait_for_completion();
        // SAFETY: initialised by `new`; all bios are back.
        unsafe { bindings::bioset_exit(self.inner.get()) };
    }
}

/// Number of bio vectors for a range, in the worst case.
fn vecs(raw: Option<RawRange>) -> u16 {
    match raw {
        None => 0,
        Some(raw) if raw.is_vmalloc() => raw.pages() as u16,
        Some(_) => 1,
    }
}

/// Says where a bio goes, and with which memory.
///
/// # Safety
///
/// `bio` must be ours and have room for [`vecs`] of `raw`, and `raw` must stay valid until the bio
/// is done.
unsafe fn fill(bio: NonNull<bindings::bio>, io: &Io, raw: Option<RawRange>) -> Result {
    // SAFETY: by the requirements of this function.
    unsafe {
        (*bio.as_ptr()).bi_iter.bi_sector = io.sector;
        if let Op::Discard { sectors } = io.op {
            let bytes = u64::from(sectors) * SECTOR_BYTES;
            (*bio.as_ptr()).bi_iter.bi_size = bytes.try_into()?;
        }
        match raw {
            Some(raw) => add_range(bio, raw),
            None => Ok(()),
        }
    }
}

/// Adds memory to a bio.
///
/// # Safety
///
/// As for [`fill`].
unsafe fn add_range(bio: NonNull<bindings::bio>, raw: RawRange) -> Result {
    // SAFETY: the memory is valid, and there is room for it.
    unsafe {
        if !raw.is_vmalloc() {
            bindings::bio_add_virt_nofail(bio.as_ptr(), raw.ptr.as_ptr().cast(), raw.len);
        } else if !bindings::bio_add_vmalloc(bio.as_ptr(), raw.ptr.as_ptr().cast(), raw.len) {
            return Err(EIO);
        }
    }
    Ok(())
}

/// Makes what a device read visible through the address that we use.
///
/// # Safety
///
/// `raw` must be valid memory that was read into.
unsafe fn finish_read(raw: RawRange) {
    if raw.is_vmalloc() {
        // SAFETY: by the requirements of this function. A no-op but for aliasing caches.
        unsafe {
            bindings::invalidate_kernel_vmap_range(raw.ptr.as_ptr().cast(), raw.len as i32);
        }
    }
}

impl BlockDevice {
    /// Reads into `range` of `buf` from `sector` on, and waits. For use at attach time.
    ///
    /// `EINVAL` for a range that is empty, outside the buffer or not aligned to the logical block.
    pub(crate) fn read_sync(&self, sector: u64, buf: &mut IoBuf, range: Range<usize>) -> Result {
        let raw = buf.raw_range(&range)?;
        self.rw_sync(bindings::req_op_REQ_OP_READ, sector, raw)?;
        // SAFETY: `buf` is borrowed, so its memory is valid.
        unsafe { finish_read(raw) };
        Ok(())
    }

    /// Writes `range` of `buf` to `sector` on, and waits. For use at attach time.
    ///
    /// Errors as for [`read_sync`](Self::read_sync).
    pub(crate) fn write_sync(
        &self,
        sector: u64,
        buf: &IoBuf,
        range: Range<usize>,
        flags: Flags,
    ) -> Result {
        let raw = buf.raw_range(&range)?;
        self.rw_sync(bindings::req_op_REQ_OP_WRITE | flags.0, sector, raw)
    }

    fn rw_sync(&self, opf: bindings::blk_opf_t, sector: u64, raw: RawRange) -> Result {
        if !is_aligned(sector, raw, self.logical_block_bytes()) {
            return Err(EINVAL);
        }
        // SAFETY: the device is open; the system's bio set always exists.
        let bio = unsafe {
            bindings::bio_alloc_bioset(
                self.as_raw(),
                vecs(Some(raw)),
                opf | bindings::REQ_SYNC,
                bindings::GFP_NOIO,
                &raw mut bindings::fs_bio_set,
            )
        };
        let bio = NonNull::new(bio).ok_or(ENOMEM)?;
        // SAFETY: the bio is ours, and again after waiting; the callers keep the memory borrowed.
        unsafe {
            (*bio.as_ptr()).bi_iter.bi_sector = sector;
            let result = add_range(bio, raw)
                .and_then(|()| to_result(bindings::submit_bio_wait(bio.as_ptr())));
            bindings::bio_put(bio.as_ptr());
            result
        }
    }
}
