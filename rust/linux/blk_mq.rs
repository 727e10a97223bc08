// SPDX-License-Identifier: GPL-2.0

//! Multi-queue block drivers.
//!
//! 1. Implement [`Operations`] for a type of the driver.
//! 2. Make a [`TagSet`]: how many requests there can be, and in how many queues.
//! 3. Build a disk on it (see [`gendisk`](super::gendisk)). From then on
//!    [`Operations::queue_rq`] is called for each [`Request`].
//! 4. End each request with [`Request::end`], from any thread and context.
//!
//! Memory for each request's driver data is allocated with the tag set; handling a request needs
//! no other.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use super::{
    bindings,
    compat,
    gendisk::DiskData,
    request::{
        Busy,
        Pdu,
        Request, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::{
        align_of,
        size_of, //
    }, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    ffi,
    prelude::*,
    types::{
        ForeignOwnable,
        Opaque, //
    }, //
};

/// What a block driver does.
pub(crate) trait Operations: Sized + 'static {
    /// What a disk's callbacks work on; one per disk.
    type QueueData: Send + Sync + 'static;

    /// What a hardware queue's callbacks work on, beside that; `()` if nothing.
    type HwData: Send + Sync + 'static;

    /// What the driver keeps in each request; `()` if nothing. It may contain a
    /// [`Work`](kernel::workqueue::Work) whose pointer type is [`Request`].
    type RequestData: Send + Sync + 'static;

    /// Makes the data of hardware queue `index`. May sleep.
    fn init_hctx(queue: &Self::QueueData, index: u32) -> Result<Self::HwData>;

    /// Makes the data of a request, once in its life, when the tag set or the queue is made.
    /// May sleep.
    fn init_request() -> impl PinInit<Self::RequestData, Error>;

    /// Takes on a request.
    ///
    /// `last` is `false` if another one follows at once. To refuse for the moment, return
    /// [`Request::busy`]. May sleep only if the tag set is [`Blocking`](QueueFlags::blocking).
    fn queue_rq(
        queue: &Self::QueueData,
        hw: &Self::HwData,
        rq: Request<Self>,
        last: bool,
    ) -> Result<(), Busy<Self>>;

    /// No more requests follow for now although the last one was not marked so.
    fn commit_rqs(_queue: &Self::QueueData, _hw: &Self::HwData) {}
}

/// The callbacks, as C sees them.
struct Vtable<T: Operations>(PhantomData<T>);

impl<T: Operations> Vtable<T> {
    const OPS: &'static bindings::blk_mq_ops = &bindings::blk_mq_ops {
        queue_rq: Some(Self::queue_rq),
        commit_rqs: Some(Self::commit_rqs),
        init_hctx: Some(Self::init_hctx),
        exit_hctx: Some(Self::exit_hctx),
        init_request: Some(Self::init_request),
        exit_request: Some(Self::exit_request),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by blk-mq for a disk of this driver: `hctx` is initialised, `bd` valid, and its
    /// request ours until ended.
    unsafe extern "C" fn queue_rq(
        hctx: *mut bindings::blk_mq_hw_ctx,
        bd: *const bindings::blk_mq_queue_data,
    ) -> bindings::blk_status_t {
        // SAFETY: by the requirements of this function.
        let (raw, last) = unsafe { ((*bd).rq, (*bd).last) };
        // SAFETY: the request is ours and idle.
        unsafe { bindings::blk_mq_start_request(raw) };
        // SAFETY: the request was initialised by `init_request` of this driver, and is ours.
        let rq = match unsafe { Request::<T>::from_raw(raw) } {
            Ok(rq) => rq,
            Err(status) => return status,
        };
        // SAFETY: by the requirements of this function.
        let (queue, hw) = unsafe { Self::data(hctx) };
        match T::queue_rq(queue, hw, rq, last) {
            Ok(()) => bindings::BLK_STS_OK as bindings::blk_status_t,
            Err(busy) => busy.into_status(),
        }
    }

    /// # Safety
    ///
    /// Called by blk-mq for a disk of this driver: `hctx` is initialised.
    unsafe extern "C" fn commit_rqs(hctx: *mut bindings::blk_mq_hw_ctx) {
        // SAFETY: by the requirements of this function.
        let (queue, hw) = unsafe { Self::data(hctx) };
        T::commit_rqs(queue, hw);
    }

    /// The data of a queue and of a hardware queue.
    ///
    /// # Safety
    ///
    /// `hctx` must be a hardware queue of this driver, between `init_hctx` and `exit_hctx`.
    unsafe fn data<'a>(hctx: *mut bindings::blk_mq_hw_ctx) -> (&'a T::QueueData, &'a T::HwData) {
        // SAFETY: `init_hctx` stored a box of this type. The disk's data is set before the first
        // hardware queue is and goes after the last one has gone.
        unsafe {
            let queue = DiskData::<T::QueueData>::from_queue((*hctx).queue);
            let hw = <KBox<T::HwData> as ForeignOwnable>::borrow((*hctx).driver_data);
            (queue.queue_data(), hw)
        }
    }

    /// # Safety
    ///
    /// Called by blk-mq for a new `hctx` of a disk of this driver.
    unsafe extern "C" fn init_hctx(
        hctx: *mut bindings::blk_mq_hw_ctx,
        _set_data: *mut ffi::c_void,
        index: ffi::c_uint,
    ) -> ffi::c_int {
        from_result(|| {
            // SAFETY: the queue exists and its data was given when it was allocated.
            let queue = unsafe { DiskData::<T::QueueData>::from_queue((*hctx).queue) };
            let hw = KBox::new(T::init_hctx(queue.queue_data(), index)?, GFP_KERNEL)?;
            // SAFETY: `hctx` is ours to set up; the class outlives all requests.
            unsafe {
                (*hctx).driver_data = hw.into_foreign();
                let class = queue.flush_lock_class().as_ptr();
                bindings::blk_mq_hctx_set_fq_lock_class(hctx, class);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by blk-mq once for an `hctx` that `init_hctx` succeeded for.
    unsafe extern "C" fn exit_hctx(hctx: *mut bindings::blk_mq_hw_ctx, _index: ffi::c_uint) {
        // SAFETY: stored by `init_hctx`; not borrowed any more.
        drop(unsafe { <KBox<T::HwData> as ForeignOwnable>::from_foreign((*hctx).driver_data) });
    }

    /// # Safety
    ///
    /// Called by blk-mq for a new request with `cmd_size` bytes behind it.
    unsafe extern "C" fn init_request(
        _set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx: ffi::c_uint,
        _node: ffi::c_int,
    ) -> ffi::c_int {
        // SAFETY: the memory behind the request is large enough (`TagSet::new`), aligned (below),
        // and never moves.
        from_result(|| unsafe {
            let pdu = bindings::blk_mq_rq_to_pdu(rq).cast::<Pdu<T>>();
            compat::pin_init_at(pdu, Pdu::<T>::new())?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by blk-mq once for a request that `init_request` succeeded for.
    unsafe extern "C" fn exit_request(
        _set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx: ffi::c_uint,
    ) {
        // SAFETY: initialised by `init_request`, and not used after this.
        unsafe {
            bindings::blk_mq_rq_to_pdu(rq)
                .cast::<Pdu<T>>()
                .drop_in_place()
        };
    }
}

/// How the queues of a tag set behave.
#[derive(Clone, Copy)]
pub(crate) struct QueueFlags(u32);

impl QueueFlags {
    /// [`Operations::queue_rq`] does not sleep.
    pub(crate) const fn nonblocking() -> Self {
        Self(0)
    }

    /// [`Operations::queue_rq`] may sleep.
    pub(crate) const fn blocking() -> Self {
        Self(bindings::BLK_MQ_F_BLOCKING)
    }

    /// Use no I/O scheduler unless the user asks for one.
    pub(crate) const fn no_scheduler(self) -> Self {
        Self(self.0 | bindings::BLK_MQ_F_NO_SCHED_BY_DEFAULT)
    }
}

/// The requests that a disk (or several) can have.
///
/// # Invariants
///
/// `inner` was initialised by `blk_mq_alloc_tag_set` for driver `T`.
#[pin_data(PinnedDrop)]
pub(crate) struct TagSet<T: Operations> {
    #[pin]
    inner: Opaque<bindings::blk_mq_tag_set>,
    _ops: PhantomData<T>,
}

// SAFETY: tag sets may be used from any thread; the request data in them is `Send`.
unsafe impl<T: Operations> Send for TagSet<T> {}
// SAFETY: the block layer locks what it needs; the request data is `Sync`.
unsafe impl<T: Operations> Sync for TagSet<T> {}

impl<T: Operations> TagSet<T> {
    /// Makes a tag set of `queues` hardware queues with `depth` requests each.
    ///
    /// The block layer may settle for fewer of both. May sleep.
    pub(crate) fn new(queues: u32, depth: u32, flags: QueueFlags) -> impl PinInit<Self, Error> {
        const {
            // Request data follows `struct request`, at that alignment.
            assert!(align_of::<Pdu<T>>() <= align_of::<bindings::request>());
            assert!(size_of::<bindings::request>() % align_of::<Pdu<T>>() == 0);
        }
        let set = bindings::blk_mq_tag_set {
            ops: Vtable::<T>::OPS,
            nr_hw_queues: queues,
            queue_depth: depth,
            cmd_size: size_of::<Pdu<T>>() as u32,
            numa_node: bindings::NUMA_NO_NODE,
            flags: flags.0,
            nr_maps: 1,
            ..pin_init::zeroed()
        };
        try_pin_init!(Self {
            // INVARIANT: allocated here, or there is no tag set.
            inner <- Opaque::try_ffi_init(|slot: *mut bindings::blk_mq_tag_set| {
                // SAFETY: `slot` is memory for a tag set that does not move.
                unsafe {
                    slot.write(set);
                    to_result(bindings::blk_mq_alloc_tag_set(slot))
                }
            }),
            _ops: PhantomData,
        }? Error)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::blk_mq_tag_set {
        self.inner.get()
    }
}

#[pinned_drop]
impl<T: Operations> PinnedDrop for TagSet<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: allocated by `new`; disks hold a reference to their tag set, so none is left.
        unsafe { bindings::blk_mq_free_tag_set(self.inner.get()) };
    }
}
