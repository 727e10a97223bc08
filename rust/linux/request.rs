// SPDX-License-Identifier: GPL-2.0

//! Requests of a block driver: what is asked for, the data, and the answer.
//!
//! | handle | meaning |
//! |---|---|
//! | [`Request`] | the request is ours, and this is the only handle; ended by [`Request::end`] |
//! | [`Part`] | several workers share the request; ended when the last handle is dropped |
//! | [`Busy`] | handed back to the block layer, which will try again |
//!
//! A handle that is dropped without an answer fails the request with `EIO`: nobody hangs.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use super::{
    bindings,
    blk_mq::Operations,
    compat,
    gendisk::DiskData, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        HasWork,
        RawWorkItem,
        Work,
        WorkItem,
        WorkItemPointer, //
    }, //
};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable every write that has been ended before this arrived.
    Flush,
    /// The data is not needed any more.
    Discard,
    /// From now on there are zeros.
    WriteZeroes,
}

/// What stands behind each `struct request`.
#[pin_data]
pub(super) struct Pdu<T: Operations> {
    /// Number of [`Part`] handles.
    parts: Atomic<i32>,
    /// First error of a part, as a negative errno.
    errno: Atomic<i32>,
    #[pin]
    data: T::RequestData,
}

impl<T: Operations> Pdu<T> {
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            parts: Atomic::new(0),
            errno: Atomic::new(0),
            data <- T::init_request(),
        }? Error)
    }
}

/// A block request that the driver owns.
///
/// # Invariants
///
/// `rq` is a started request of a disk of driver `T`, initialised by `init_request`, that has
/// neither been ended nor handed back, and its operation is one of [`Op`]. No other handle exists.
pub(crate) struct Request<T: Operations> {
    rq: NonNull<bindings::request>,
    _ops: PhantomData<T>,
}

// SAFETY: requests may be handled by any thread; the data in them is `Send`.
unsafe impl<T: Operations> Send for Request<T> {}
// SAFETY: a shared request allows reading its fixed fields, its `Sync` data, and copying to and
// from pages, which others may change at the same time anyway.
unsafe impl<T: Operations> Sync for Request<T> {}

impl<T: Operations> Request<T> {
    /// Takes over a started request; the status to answer with if the operation is unknown.
    ///
    /// # Safety
    ///
    /// `rq` must be a started request of driver `T` that the block layer gives to the driver.
    pub(super) unsafe fn from_raw(
        rq: *mut bindings::request,
    ) -> Result<Self, bindings::blk_status_t> {
        let unsupported = bindings::BLK_STS_NOTSUPP;
        let rq = NonNull::new(rq).ok_or(unsupported)?;
        // SAFETY: valid by the requirements of this function.
        op_of(unsafe { (*rq.as_ptr()).cmd_flags }).ok_or(unsupported)?;
        // INVARIANT: by the requirements of this function, and the operation is known.
        Ok(Self {
            rq,
            _ops: PhantomData,
        })
    }

    /// What is asked for.
    pub(crate) fn op(&self) -> Op {
        // The default is never used: `from_raw` checked.
        op_of(self.cmd_flags()).unwrap_or(Op::Read)
    }

    /// Whether a write must be durable when it is ended.
    pub(crate) fn is_fua(&self) -> bool {
        self.cmd_flags() & bindings::REQ_FUA != 0
    }

    /// Whether somebody is waiting for it.
    pub(crate) fn is_sync(&self) -> bool {
        let waited_for = bindings::REQ_SYNC | bindings::REQ_FUA | bindings::REQ_PREFLUSH;
        self.op() == Op::Read || self.cmd_flags() & waited_for != 0
    }

    /// Whether it is file system metadata.
    pub(crate) fn is_meta(&self) -> bool {
        self.cmd_flags() & bindings::REQ_META != 0
    }

    /// How long the data is expected to live, as the writer put it (`enum rw_hint`): 0 not set,
    /// 1 no opinion, 2 short to 5 extreme.
    pub(crate) fn write_hint(&self) -> u32 {
        // SAFETY: the request is valid by the type invariants, and so are its bios.
        unsafe {
            match NonNull::new((*self.rq.as_ptr()).bio) {
                Some(bio) => u32::from((*bio.as_ptr()).bi_write_hint),
                None => 0,
            }
        }
    }

    /// Where, in sectors.
    pub(crate) fn sector(&self) -> u64 {
        // SAFETY: valid by the type invariants; constant while the request is ours.
        unsafe { (*self.rq.as_ptr()).__sector }
    }

    /// How much, in bytes. 0 for a flush.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: valid by the type invariants; constant while the request is ours.
        unsafe { (*self.rq.as_ptr()).__data_len as usize }
    }

    /// Number of the request among those of its hardware queue that the driver has, below the
    /// tag set's depth.
    pub(crate) fn tag(&self) -> u32 {
        // SAFETY: valid by the type invariants; constant while the request is ours.
        // CAST: a request that the driver has, has a tag, which is not negative.
        unsafe { (*self.rq.as_ptr()).tag as u32 }
    }

    /// The driver's data of this request.
    pub(crate) fn data(&self) -> &T::RequestData {
        &self.pdu().data
    }

    /// The data of the disk.
    pub(crate) fn queue_data(&self) -> &T::QueueData {
        self.disk_data().queue_data()
    }

    /// The data of the disk, for use beyond the end of the request.
    pub(crate) fn queue_data_arc(&self) -> Arc<T::QueueData> {
        self.disk_data().queue_data_arc()
    }

    /// The request's data, from byte `offset` of it on.
    ///
    /// `EINVAL` if there is less. Requests without data (flush, discard, zeroes) have none.
    pub(crate) fn cursor(&self, offset: usize) -> Result<Cursor<'_>> {
        // SAFETY: the bios of the request are valid and stay so while it is borrowed.
        let mut cursor = unsafe { Cursor::new((*self.rq.as_ptr()).bio) };
        if !matches!(self.op(), Op::Read | Op::Write) {
            cursor.bio = None;
        }
        cursor.skip(offset)?;
        Ok(cursor)
    }

    /// Answers the request. Any context.
    pub(crate) fn end(self, result: Result) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the request is ours and this was the only handle; `ManuallyDrop` makes sure that
        // it is ended once.
        unsafe { end_raw(this.rq, result) };
    }

    /// Hands the request back, to be tried again when the driver may have room.
    ///
    /// For use as the error of [`Operations::queue_rq`] only.
    pub(crate) fn busy(self, retry: Retry) -> Busy<T> {
        Busy { rq: self, retry }
    }

    /// Lets several workers handle parts of the request.
    pub(crate) fn into_parts(self) -> Part<T> {
        let this = ManuallyDrop::new(self);
        let pdu = this.pdu();
        pdu.errno.store(0, Relaxed);
        pdu.parts.store(1, Relaxed);
        // INVARIANT: the one handle, now counted.
        Part { request: this }
    }

    fn disk_data(&self) -> &DiskData<T::QueueData> {
        // SAFETY: the queue and its data outlive the request.
        unsafe { DiskData::from_queue((*self.rq.as_ptr()).q) }
    }

    fn cmd_flags(&self) -> u32 {
        // SAFETY: valid by the type invariants; constant while the request is ours.
        unsafe { (*self.rq.as_ptr()).cmd_flags }
    }

    fn pdu(&self) -> &Pdu<T> {
        // SAFETY: initialised by `init_request`, by the type invariants.
        unsafe { &*bindings::blk_mq_rq_to_pdu(self.rq.as_ptr()).cast::<Pdu<T>>() }
    }
}

impl<T: Operations> Drop for Request<T> {
    fn drop(&mut self) {
        // SAFETY: the request is ours and this was the only handle.
        unsafe { end_raw(self.rq, Err(EIO)) };
    }
}

/// Ends a request.
///
/// # Safety
///
/// The caller must own the request and not use it afterwards.
unsafe fn end_raw(rq: NonNull<bindings::request>, result: Result) {
    let errno = match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    };
    // SAFETY: by the requirements of this function.
    unsafe { bindings::blk_mq_end_request(rq.as_ptr(), bindings::errno_to_blk_status(errno)) };
}

/// The operation in the flags of a request, if we know it.
fn op_of(cmd_flags: u32) -> Option<Op> {
    match cmd_flags & ((1 << bindings::REQ_OP_BITS) - 1) {
        bindings::req_op_REQ_OP_READ => Some(Op::Read),
        bindings::req_op_REQ_OP_WRITE => Some(Op::Write),
        bindings::req_op_REQ_OP_FLUSH => Some(Op::Flush),
        bindings::req_op_REQ_OP_DISCARD => Some(Op::Discard),
        bindings::req_op_REQ_OP_WRITE_ZEROES => Some(Op::WriteZeroes),
        _ => None,
    }
}

/// When the block layer tries a [`Busy`] request again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// After a few milliseconds.
    Soon,
    /// When another request of the same disk ends; there must be one.
    AfterOthers,
}

/// A request that the driver has no room for.
pub(crate) struct Busy<T: Operations> {
    rq: Request<T>,
    retry: Retry,
}

impl<T: Operations> Busy<T> {
    /// Gives up ownership.
    pub(super) fn into_status(self) -> bindings::blk_status_t {
        // With this status returned from `queue_rq` the request is the block layer's again.
        core::mem::forget(self.rq);
        match self.retry {
            Retry::Soon => bindings::BLK_STS_RESOURCE,
            Retry::AfterOthers => bindings::BLK_STS_DEV_RESOURCE,
        }
    }
}

/// One of several handles on a request. The request ends when the last one is dropped, with the
/// first error that was [reported](Self::fail), else with success.
///
/// # Invariants
///
/// As for [`Request`], but there may be more such handles: `parts` in the request counts them.
pub(crate) struct Part<T: Operations> {
    request: ManuallyDrop<Request<T>>,
}

impl<T: Operations> Part<T> {
    /// The request.
    pub(crate) fn request(&self) -> &Request<T> {
        &self.request
    }

    /// Makes the request fail with `error` when it ends, unless another error came first.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self
            .request
            .pdu()
            .errno
            .cmpxchg(0, error.to_errno(), Relaxed);
    }

    /// Gives up the handle; if it was the last one, the request is the caller's alone again, and
    /// what was [reported](Self::fail) is forgotten. Any context.
    pub(crate) fn join(self) -> Option<Request<T>> {
        let this = ManuallyDrop::new(self);
        // Full: what the other handles did happens before what the caller does.
        if this.request.pdu().parts.fetch_sub(1, Full) != 1 {
            return None;
        }
        // INVARIANT: this was the last handle, and it is not dropped.
        Some(Request {
            rq: this.request.rq,
            _ops: PhantomData,
        })
    }
}

impl<T: Operations> Clone for Part<T> {
    fn clone(&self) -> Self {
        self.request.pdu().parts.fetch_add(1, Relaxed);
        // INVARIANT: counted just now.
        Self {
            request: ManuallyDrop::new(Request {
                rq: self.request.rq,
                _ops: PhantomData,
            }),
        }
    }
}

impl<T: Operations> Drop for Part<T> {
    fn drop(&mut self) {
        // Full: what the other handles did happens before the end of the request.
        if self.request.pdu().parts.fetch_sub(1, Full) == 1 {
            let errno = self.request.pdu().errno.load(Relaxed);
            let result = kernel::error::to_result(errno);
            // SAFETY: this was the last handle, so the request is ours alone; `request` itself is
            // never dropped.
            unsafe { end_raw(self.request.rq, result) };
        }
    }
}

/// Walks over the data of a request.
///
/// Other CPUs, even user space, can change the pages at any time: copy once, then use the copy.
pub(crate) struct Cursor<'a> {
    bio: Option<NonNull<bindings::bio>>,
    iter: bindings::bvec_iter,
    _request: PhantomData<&'a ()>,
}

impl Cursor<'_> {
    /// # Safety
    ///
    /// `bio` must be null or the first of a chain of bios that stay valid for the lifetime of the
    /// cursor.
    unsafe fn new(bio: *mut bindings::bio) -> Self {
        let bio = NonNull::new(bio);
        Self {
            bio,
            iter: match bio {
                // SAFETY: valid by the requirements of this function.
                Some(bio) => unsafe { (*bio.as_ptr()).bi_iter },
                None => Default::default(),
            },
            _request: PhantomData,
        }
    }

    /// Copies the next bytes of the request to `to`.
    ///
    /// `EINVAL` if there are fewer; some may have been copied. Any context.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result {
        let ptr = to.as_mut_ptr();
        self.walk(to.len(), |at, page, len| {
            // SAFETY: `walk` calls with consecutive pieces of `to.len()` bytes, and with a page
            // that is mapped for `len` bytes. Pages of a request are not our slice.
            unsafe { core::ptr::copy_nonoverlapping(page.cast_const(), ptr.add(at), len) }
        })
    }

    /// Copies `from` to the next bytes of the request.
    ///
    /// `EINVAL` if there are fewer; some may have been copied. Any context.
    pub(crate) fn write(&mut self, from: &[u8]) -> Result {
        let ptr = from.as_ptr();
        self.walk(from.len(), |at, page, len| {
            // SAFETY: as in `read`, the other way round.
            unsafe { core::ptr::copy_nonoverlapping(ptr.add(at), page, len) }
        })
    }

    /// Zeroes the next `len` bytes of the request.
    ///
    /// `EINVAL` if there are fewer; some may have been zeroed. Any context.
    pub(crate) fn write_zeroes(&mut self, len: usize) -> Result {
        self.walk(len, |_, page, len| {
            // SAFETY: `walk` calls with a page that is mapped for `len` bytes.
            unsafe { core::ptr::write_bytes(page, 0, len) }
        })
    }

    /// Leaves out the next `len` bytes; `EINVAL` if there are fewer.
    pub(crate) fn skip(&mut self, mut len: usize) -> Result {
        while len > 0 {
            let step = len.min(self.segment_bytes()?);
            self.advance(step);
            len -= step;
        }
        Ok(())
    }

    /// Calls `each` with consecutive pieces of the next `len` bytes: position, address, length.
    fn walk(&mut self, len: usize, mut each: impl FnMut(usize, *mut u8, usize)) -> Result {
        let mut at = 0;
        while at < len {
            let segment = self.segment_bytes()?;
            let Some(bio) = self.bio else {
                return Err(EINVAL);
            };
            // SAFETY: `segment_bytes` found data at the iterator, so its vector exists.
            let vec = unsafe { *(*bio.as_ptr()).bi_io_vec.add(self.iter.bi_idx as usize) };
            let start = vec.bv_offset as usize + compat::bvec_done(&self.iter) as usize;
            let step = (len - at).min(segment).min(PAGE_SIZE - start % PAGE_SIZE);
            // SAFETY: the pages of one vector are contiguous, also as an array of `struct page`.
            // The mapping is undone below, in the order of a stack.
            unsafe {
                let page = vec.bv_page.add(start / PAGE_SIZE);
                let base = bindings::kmap_local_page(page).cast::<u8>();
                each(at, base.add(start % PAGE_SIZE), step);
                bindings::kunmap_local(base.cast());
            }
            self.advance(step);
            at += step;
        }
        Ok(())
    }

    /// Bytes left in the current vector, after going to the next bio with data if need be.
    fn segment_bytes(&mut self) -> Result<usize> {
        while let Some(bio) = self.bio {
            if self.iter.bi_size > 0 {
                // SAFETY: there is data left, so the vector at the iterator exists.
                let vec = unsafe { *(*bio.as_ptr()).bi_io_vec.add(self.iter.bi_idx as usize) };
                let left = vec.bv_len.saturating_sub(compat::bvec_done(&self.iter));
                return Ok(left.min(self.iter.bi_size) as usize);
            }
            // SAFETY: the chain of bios is valid for the lifetime of the cursor.
            *self = unsafe { Self::new((*bio.as_ptr()).bi_next) };
        }
        Err(EINVAL)
    }

    /// Moves on by `step` bytes, which lie in the current vector.
    fn advance(&mut self, step: usize) {
        let Some(bio) = self.bio else { return };
        // SAFETY: the caller found data at the iterator, so its vector exists.
        let vec_bytes =
            unsafe { (*(*bio.as_ptr()).bi_io_vec.add(self.iter.bi_idx as usize)).bv_len };
        // CAST: a step lies within a vector, whose length is a `u32`.
        let step = step as u32;
        self.iter.bi_size = self.iter.bi_size.saturating_sub(step);
        let mut done = compat::bvec_done(&self.iter).saturating_add(step);
        if done >= vec_bytes {
            done = 0;
            self.iter.bi_idx = self.iter.bi_idx.saturating_add(1);
        }
        compat::set_bvec_done(&mut self.iter, done);
    }
}

// SAFETY: `__enqueue` uses the `work_struct` in the `Work` field of the request data, found by
// `HasWork::raw_get_work`. `Work::new` demands `WorkItem`, whose pointer type is `Request<T>`, so
// that `run` below is its function.
unsafe impl<T, const ID: u64> WorkItemPointer<ID> for Request<T>
where
    T: Operations,
    T::RequestData: WorkItem<ID, Pointer = Self> + HasWork<T::RequestData, ID>,
{
    unsafe extern "C" fn run(ptr: *mut bindings::work_struct) {
        let work = ptr.cast::<Work<T::RequestData, ID>>();
        // SAFETY: `__enqueue` took the work from the data of a request, which it gave up; here it
        // is owned again. The request data follows `struct request` in memory.
        let rq = unsafe {
            let data = <T::RequestData as HasWork<_, ID>>::work_container_of(work);
            let pdu = kernel::container_of!(data, Pdu<T>, data);
            bindings::blk_mq_rq_from_pdu(pdu.cast::<ffi::c_void>().cast())
        };
        if let Some(rq) = NonNull::new(rq) {
            // INVARIANT: the only handle, given up by `__enqueue`.
            T::RequestData::run(Self {
                rq,
                _ops: PhantomData,
            });
        }
    }
}

// SAFETY: the pointer passed on is part of the request, which stays ours, and so in place, until
// `run` makes a handle of it again.
unsafe impl<T, const ID: u64> RawWorkItem<ID> for Request<T>
where
    T: Operations,
    T::RequestData: WorkItem<ID, Pointer = Self> + HasWork<T::RequestData, ID>,
{
    type EnqueueOutput = ();

    unsafe fn __enqueue<F>(self, queue_work_on: F)
    where
        F: FnOnce(*mut bindings::work_struct) -> bool,
    {
        let this = ManuallyDrop::new(self);
        let data = (&raw const this.pdu().data).cast_mut();
        // SAFETY: `data` is valid and pinned.
        let work = unsafe { Work::raw_get(<T::RequestData as HasWork<_, ID>>::raw_get_work(data)) };
        if !queue_work_on(work) {
            // Cannot happen: a queued request has no handle that could queue it again. If it did,
            // `run` would still come for the handle that was queued first.
            pr_err!("request queued twice\n");
        }
    }
}
