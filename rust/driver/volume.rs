// SPDX-License-Identifier: GPL-2.0

//! A volume in service.

use super::{
    pool::Waiters,
    queue::{
        Driver,
        REQUESTS, //
    },
    read::ReadIo,
    submit::{
        Completions,
        EngineIo, //
    },
    workspace::Workspaces,
    write::WriteBuffers, //
};
use crate::{
    engine::{
        BufferId,
        Buffers,
        Engine, //
    },
    linux::{
        arena::{
            Arena,
            ArenaOwner, //
        },
        bio::BioSet,
        block_device::BlockDevice,
        gendisk::DiskHandle,
        iobuf::IoBufPool,
        request::Request,
        workqueue::{
            Place,
            Workqueue, //
        }, //
    },
    mem::Box, //
};
use kernel::{
    cpu::nr_cpu_ids,
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};

/// Bytes of a small read buffer: a raw block with its header always spans two.
pub(super) const SMALL_READ_BYTES: usize = 8 << 10;
/// Bytes of a large read buffer: the largest extent, or many neighbouring fragments.
pub(super) const LARGE_READ_BYTES: usize = 160 << 10;
/// Number of small read buffers.
const SMALL_READS: usize = 192;
/// Bios in reserve for the engine's I/O, and for reads.
const BIO_RESERVE: u32 = 16;

/// What user space is told beside the log.
#[derive(Clone, Copy)]
pub(super) enum News {
    /// Space is nearly used up.
    SpaceLow = 1,
    /// Space is used up.
    SpaceNone = 2,
    /// Space is plenty again.
    SpaceOk = 4,
    /// The volume is read-only from now on.
    ReadOnly = 8,
}

impl Buffers for ArenaOwner {
    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.bytes(buffer.into())
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.bytes_mut(buffer.into())
    }

    fn copy(&mut self, from: BufferId, from_at: usize, to: BufferId, to_at: usize, bytes: usize) {
        let (from, to) = ((from.into(), from_at), (to.into(), to_at));
        if self.copy(from, to, bytes).is_err() && bytes > 0 {
            pr_err!("the engine copies outside its buffers\n");
        }
    }

    fn write(&mut self, buffer: BufferId, at: usize, bytes: &[u8]) {
        if self.write(buffer.into(), at, bytes).is_err() && !bytes.is_empty() {
            pr_err!("the engine writes outside its buffers\n");
        }
    }
}

/// What the volume's lock protects.
pub(super) struct Core {
    /// The engine.
    pub(super) engine: Box<Engine>,
    /// Its buffers.
    pub(super) owner: ArenaOwner,
    /// Requests that wait for the engine, by tag.
    pub(super) parked: KVVec<Option<Request<Driver>>>,
}

impl Core {
    /// Lets `rq` wait for the engine. To be called under the same lock as the engine's method
    /// that took its number: a wake-up cannot overtake it.
    pub(super) fn park(&mut self, rq: Request<Driver>) {
        let tag = rq.tag() as usize;
        match self.parked.get_mut(tag) {
            Some(slot) if slot.is_none() => *slot = Some(rq),
            // Cannot happen: a tag belongs to one request.
            _ => rq.end(Err(EIO)),
        }
    }

    /// Takes back a request that waits.
    pub(super) fn unpark(&mut self, tag: u32) -> Option<Request<Driver>> {
        self.parked.get_mut(tag as usize)?.take()
    }
}

/// A volume.
///
/// Kept by its disk, its entry in the list of volumes, and work that is queued. Before the entry is
/// given up nothing is under way any more (`attach::detach`), so that no work item drops the last
/// reference.
#[pin_data]
pub(super) struct Volume {
    /// Number of the disk: `zbdN`.
    pub(super) index: u32,
    /// The lower device.
    pub(super) device: Arc<BlockDevice>,
    /// The engine's buffers, for those who do not hold the lock.
    pub(super) arena: Arc<Arena>,
    /// Engine and lock. Never held while anything waits for I/O; never taken in interrupts.
    #[pin]
    core: Mutex<Core>,
    /// I/O that the engine asks for.
    #[pin]
    pub(super) engine_bios: BioSet<EngineIo>,
    /// Reads of data.
    #[pin]
    pub(super) read_bios: BioSet<ReadIo>,
    /// What has completed and the engine does not know yet.
    pub(super) completions: Completions,
    /// Buffers of [`SMALL_READ_BYTES`], and of [`LARGE_READ_BYTES`].
    pub(super) small_reads: Arc<IoBufPool>,
    pub(super) large_reads: Arc<IoBufPool>,
    /// Reads that wait for one.
    #[pin]
    pub(super) read_waiters: Waiters,
    /// Buffers of writes, and writes that wait for one.
    #[pin]
    pub(super) write_buffers: WriteBuffers,
    /// Memory for the codecs.
    pub(super) workspaces: Workspaces,
    /// Where requests are worked on.
    pub(super) requests: Workqueue,
    /// Where the engine's work is done: `submit_work` and `background_work`.
    pub(super) engine_queue: Arc<Workqueue>,
    #[pin]
    submit_work: Work<Volume, 1>,
    #[pin]
    background_work: Work<Volume, 2>,
    /// Bytes of memory that the volume took at attach, beside the engine's own.
    pub(super) buffer_bytes: usize,
    /// The disk, while it exists.
    #[pin]
    disk: Mutex<Option<DiskHandle>>,
    /// What user space is to be told with the next tick: bits of [`News`].
    news: Atomic<u32>,
    /// Lines written to the log since the last tick, or left out.
    pub(super) log_lines: Atomic<i32>,
}

impl_has_work! {
    impl HasWork<Volume, 1> for Volume { self.submit_work }
    impl HasWork<Volume, 2> for Volume { self.background_work }
}

impl Volume {
    /// A volume around an engine that has been attached. May sleep.
    pub(super) fn new(
        index: u32,
        device: Arc<BlockDevice>,
        engine: Box<Engine>,
        owner: ArenaOwner,
    ) -> Result<Arc<Self>> {
        let cpus = nr_cpu_ids().clamp(1, 64);
        let large_reads = 8 + 2 * cpus as usize;
        let write_buffers = 8 + 2 * cpus as usize;
        let small_reads = IoBufPool::new(SMALL_READS, SMALL_READ_BYTES)?;
        let large = IoBufPool::new(large_reads, LARGE_READ_BYTES)?;
        let workspaces = Workspaces::new(engine.options())?;
        let completions = Completions::new(engine.token_count())?;
        let mut parked = KVVec::with_capacity(REQUESTS, GFP_KERNEL)?;
        for _ in 0..REQUESTS {
            parked.push(None, GFP_KERNEL)?;
        }
        let arena = owner.arena().clone();
        let buffer_bytes = arena.bytes()
            + SMALL_READS * SMALL_READ_BYTES
            + large_reads * LARGE_READ_BYTES
            + WriteBuffers::memory_bytes(write_buffers);
        let core = Core {
            engine,
            owner,
            parked,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                index,
                engine_bios <- BioSet::new(device.clone(), BIO_RESERVE),
                read_bios <- BioSet::new(device.clone(), BIO_RESERVE),
                device,
                arena,
                core <- new_mutex!(core, "zbd_core"),
                completions,
                small_reads,
                large_reads: large,
                read_waiters <- Waiters::new(REQUESTS),
                write_buffers <- WriteBuffers::new(write_buffers),
                workspaces,
                requests: Workqueue::new(c"zbd_requests", Place::Unbound, 2 * cpus)?,
                engine_queue: Arc::new(
                    Workqueue::new(c"zbd_engine", Place::Unbound, 2)?,
                    GFP_KERNEL,
                )?,
                submit_work <- new_work!("zbd_submit"),
                background_work <- new_work!("zbd_background"),
                buffer_bytes,
                disk <- new_mutex!(None, "zbd_disk"),
                news: Atomic::new(0),
                log_lines: Atomic::new(0),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Does something under the lock, and has the engine's actions done afterwards.
    pub(super) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut Core) -> R) -> R {
        let (result, actions) = self.with_quietly(|core| {
            let result = work(core);
            (result, core.engine.has_actions())
        });
        if actions {
            self.kick_submit();
        }
        result
    }

    /// The same without having actions done: for who does them, or causes none.
    pub(super) fn with_quietly<R>(&self, work: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.core.lock();
        let result = work(&mut core);
        core.owner.release();
        result
    }

    /// Has completions reported and actions done. Any context.
    pub(super) fn kick_submit(self: &Arc<Self>) {
        // Already queued is as good.
        let _ = self.engine_queue.enqueue::<Arc<Self>, 1>(self.clone());
    }

    /// Has the engine do background work. Any context.
    pub(super) fn kick_background(self: &Arc<Self>) {
        let _ = self.engine_queue.enqueue::<Arc<Self>, 2>(self.clone());
    }

    /// Names the disk to tell user space about; `None` before it goes away. Sleeps.
    pub(super) fn set_disk(&self, disk: Option<DiskHandle>) {
        *self.disk.lock() = disk;
    }

    /// Has user space told with the next tick. Any context.
    pub(super) fn tell(&self, news: News) {
        let mut bits = self.news.load(Relaxed);
        while let Err(now) = self.news.cmpxchg(bits, bits | news as u32, Relaxed) {
            bits = now;
        }
    }

    /// Tells user space what there is to tell. Sleeps.
    pub(super) fn tell_all(&self) {
        let news = self.news.xchg(0, Relaxed);
        if news == 0 {
            return;
        }
        let disk = self.disk.lock();
        let Some(disk) = &*disk else { return };
        for (which, variable) in [
            (News::SpaceOk, c"ZBD_SPACE=ok"),
            (News::SpaceLow, c"ZBD_SPACE=low"),
            (News::SpaceNone, c"ZBD_SPACE=none"),
            (News::ReadOnly, c"ZBD_STATE=read-only"),
        ] {
            if news & which as u32 == 0 {
                continue;
            }
            if matches!(which, News::ReadOnly) {
                disk.set_read_only();
            }
            if disk.uevent(variable).is_err() {
                pr_warn!("zbd{}: an event could not be sent\n", self.index);
            }
        }
    }

    /// Number of lower I/Os under way, or about to be reported.
    pub(super) fn lower_in_flight(&self) -> usize {
        self.engine_bios.in_flight() + self.read_bios.in_flight()
    }
}
