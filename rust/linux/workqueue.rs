// SPDX-License-Identifier: GPL-2.0

//! Work queues of one's own, and a regular tick.
//!
//! The kernel crate has work items and the system's queues; this adds what a block driver needs
//! beside them: a queue that makes progress when memory is short.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use super::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    prelude::*,
    static_lock_class,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies,
    types::Opaque,
    workqueue::{
        Queue,
        RawWorkItem, //
    }, //
};

/// Where the work of a queue runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the CPU that queued it.
    PerCpu,
    /// Anywhere, also while that CPU is busy.
    Unbound,
}

/// A work queue that belongs to the driver and makes progress under memory pressure.
///
/// Dropping it waits until all work is done; nothing may be queued any more by then.
///
/// # Invariants
///
/// `queue` is a work queue that we own.
pub(crate) struct Workqueue {
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: work queues may be used from any thread.
unsafe impl Send for Workqueue {}
// SAFETY: as above, also at the same time.
unsafe impl Sync for Workqueue {}

impl Workqueue {
    /// Makes a queue with at most `workers` items running at a time (per CPU for
    /// [`Place::PerCpu`]); 0 for the kernel's default. Work is done with `WQ_MEM_RECLAIM`.
    ///
    /// May sleep.
    pub(crate) fn new(name: &CStr, place: Place, workers: u32) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_MEM_RECLAIM
            | match place {
                Place::PerCpu => bindings::wq_flags_WQ_PERCPU,
                Place::Unbound => bindings::wq_flags_WQ_UNBOUND,
            };
        // SAFETY: the format asks for one string, which is given.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                workers.try_into()?,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: made just now.
        Ok(Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
        })
    }

    /// Waits until everything that was queued before the call is done.
    pub(crate) fn flush(&self) {
        // SAFETY: the queue is ours and alive.
        unsafe { bindings::__flush_workqueue(self.queue.as_ptr()) };
    }

    /// Queues `work` on a certain CPU, which should be online.
    pub(crate) fn enqueue_on<W, const ID: u64>(&self, cpu: u32, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let queue = self.queue.as_ptr();
        // SAFETY: as in `Queue::enqueue`: the work is queued at most once, and its type promises
        // that the pointer stays valid until it runs.
        unsafe { work.__enqueue(move |work| bindings::queue_work_on(cpu as i32, queue, work)) }
    }
}

impl Deref for Workqueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: the queue is ours and lives as long as `self`.
        unsafe { Queue::from_raw(self.queue.as_ptr()) }
    }
}

impl Drop for Workqueue {
    fn drop(&mut self) {
        // SAFETY: the queue is ours; this waits for what is queued.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) };
    }
}

/// What a [`Ticker`] calls.
pub(crate) trait Tick: Send + Sync + 'static {
    /// Called once per period, never twice at the same time. May sleep.
    fn tick(&self);
}

/// Calls [`Tick::tick`] regularly from a work queue.
///
/// Starts when made; dropping it waits for a tick that is running and ends it. A tick must
/// therefore not drop its own ticker.
#[pin_data(PinnedDrop)]
pub(crate) struct Ticker<T: Tick> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    period_ms: Atomic<u32>,
    target: Arc<T>,
    queue: Arc<Workqueue>,
}

// SAFETY: the delayed work is driven by the kernel's own locking; the rest is `Send`.
unsafe impl<T: Tick> Send for Ticker<T> {}
// SAFETY: as above, and the rest is `Sync`.
unsafe impl<T: Tick> Sync for Ticker<T> {}

impl<T: Tick> Ticker<T> {
    /// Makes a ticker for `target` on `queue`. [`start`](Self::start) makes it run.
    pub(crate) fn new(queue: Arc<Workqueue>, period_ms: u32, target: Arc<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot: *mut bindings::delayed_work| {
                // SAFETY: `slot` is memory for a delayed work that does not move. `run` is a work
                // function, the timer function the one that delayed works have.
                unsafe {
                    bindings::init_work_with_key(
                        &raw mut (*slot).work,
                        Some(Self::run),
                        false,
                        c"zbd_ticker".as_char_ptr(),
                        static_lock_class!().as_ptr(),
                    );
                    bindings::timer_init_key(
                        &raw mut (*slot).timer,
                        Some(bindings::delayed_work_timer_fn),
                        bindings::TIMER_IRQSAFE,
                        c"zbd_ticker_timer".as_char_ptr(),
                        static_lock_class!().as_ptr(),
                    );
                }
            }),
            period_ms: Atomic::new(period_ms),
            target,
            queue,
        })
    }

    /// Ticks from now on: at once, and then once per period. Also makes a tick come early.
    ///
    /// Any context.
    pub(crate) fn start(&self) {
        self.arm(0);
    }

    /// Changes the period, from the next tick on.
    pub(crate) fn set_period_ms(&self, period_ms: u32) {
        self.period_ms.store(period_ms, Relaxed);
    }

    fn arm(&self, delay_ms: u32) {
        // SAFETY: the work is initialised and pinned, and `drop` cancels it; the queue is alive.
        unsafe {
            bindings::mod_delayed_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
                self.queue.queue.as_ptr(),
                self.work.get(),
                msecs_to_jiffies(delay_ms),
            );
        }
    }

    /// # Safety
    ///
    /// Called by the work queue for the work of a live `Ticker<T>`.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: `work` is the one in our delayed work, in a ticker whose drop waits for us.
        let this = unsafe {
            let delayed = container_of!(work, bindings::delayed_work, work);
            &*container_of!(delayed.cast::<Opaque<bindings::delayed_work>>(), Self, work)
        };
        this.target.tick();
        this.arm(this.period_ms.load(Relaxed));
    }
}

#[pinned_drop]
impl<T: Tick> PinnedDrop for Ticker<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: initialised by `new`. Returns when the work neither runs nor will, even though
        // it queues itself.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
