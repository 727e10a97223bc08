// SPDX-License-Identifier: GPL-2.0

//! A disk in memory for the tests, made with our own wrappers.
//!
//! Reads are answered within `queue_rq`, writes by a work item, large ones in parts.

use crate::linux::{
    blk_mq::{
        Operations,
        QueueFlags,
        TagSet, //
    },
    gendisk::{
        Disk,
        QueueLimits, //
    },
    memalloc::NoIo,
    request::{
        Busy,
        Op,
        Request,
        Retry, //
    },
    workqueue::{
        Place,
        Workqueue, //
    }, //
};
use kernel::{
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
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// Size of the disk.
pub(super) const BYTES: usize = 4 << 20;

/// I/O to this sector fails with `ENOSPC`.
pub(super) const BAD_SECTOR: u64 = 4096;

/// The driver.
pub(super) struct Ops;

/// The disk's data.
#[pin_data]
pub(super) struct RamDisk {
    #[pin]
    bytes: Mutex<KVVec<u8>>,
    work: Workqueue,
    pub(super) flushes: Atomic<i32>,
    pub(super) fua_writes: Atomic<i32>,
    pub(super) discards: Atomic<i32>,
    pub(super) refused: Atomic<i32>,
}

/// What is in each request.
#[pin_data]
pub(super) struct RequestData {
    #[pin]
    work: Work<RequestData>,
}

impl_has_work! {
    impl HasWork<Self> for RequestData { self.work }
}

impl WorkItem for RequestData {
    type Pointer = Request<Ops>;

    fn run(rq: Request<Ops>) {
        let _scope = NoIo::enter();
        let disk = rq.queue_data_arc();
        if rq.op() != Op::Write || rq.bytes() <= 8192 {
            let result = disk.transfer(&rq, 0, rq.bytes());
            rq.end(result);
            return;
        }
        // Two parts, from the far end.
        let half = rq.bytes() / 2;
        let first = rq.into_parts();
        let second = first.clone();
        for (part, range) in [(second, half..usize::MAX), (first, 0..half)] {
            let end = range.end.min(part.request().bytes());
            if let Err(e) = disk.transfer(part.request(), range.start, end) {
                part.fail(e);
            }
        }
    }
}

impl RamDisk {
    /// Does what a request asks for, for the bytes from `start` to `end` of it.
    fn transfer(&self, rq: &Request<Ops>, start: usize, end: usize) -> Result {
        if rq.op() == Op::Flush {
            self.flushes.fetch_add(1, Relaxed);
            return Ok(());
        }
        if (rq.sector()..rq.sector() + (rq.bytes() as u64 >> 9)).contains(&BAD_SECTOR) {
            return Err(ENOSPC);
        }
        let at = (rq.sector() as usize) << 9;
        let mut bytes = self.bytes.lock();
        let bytes = bytes.get_mut(at + start..at + end).ok_or(EIO)?;
        match rq.op() {
            Op::Read => rq.cursor(start)?.write(bytes),
            Op::Write => {
                if rq.is_fua() {
                    self.fua_writes.fetch_add(1, Relaxed);
                }
                rq.cursor(start)?.read(bytes)
            }
            Op::Discard | Op::WriteZeroes => {
                self.discards.fetch_add(1, Relaxed);
                bytes.fill(0);
                Ok(())
            }
            Op::Flush => Ok(()),
        }
    }
}

impl Operations for Ops {
    type QueueData = RamDisk;
    type HwData = u32;
    type RequestData = RequestData;

    fn init_hctx(_queue: &RamDisk, index: u32) -> Result<u32> {
        Ok(index)
    }

    fn init_request() -> impl PinInit<RequestData, Error> {
        try_pin_init!(RequestData { work <- new_work!("zbd_ramdisk") }? Error)
    }

    fn queue_rq(
        disk: &RamDisk,
        _hw: &u32,
        rq: Request<Self>,
        _last: bool,
    ) -> Result<(), Busy<Self>> {
        // Refuse a few.
        if disk.refused.load(Relaxed) < 3 {
            disk.refused.fetch_add(1, Relaxed);
            return Err(rq.busy(Retry::Soon));
        }
        if rq.op() == Op::Read {
            let result = disk.transfer(&rq, 0, rq.bytes());
            rq.end(result);
        } else {
            disk.work.enqueue(rq);
        }
        Ok(())
    }
}

/// Makes such a disk, with logical blocks of 512 bytes.
pub(super) fn new() -> Result<(Disk<Ops>, Arc<RamDisk>)> {
    let work = Workqueue::new(c"zbd_ramdisk", Place::Unbound, 4)?;
    let bytes = KVVec::from_elem(0, BYTES, GFP_KERNEL)?;
    let data = Arc::pin_init(
        pin_init!(RamDisk {
            bytes <- new_mutex!(bytes),
            work,
            flushes: Atomic::new(0),
            fua_writes: Atomic::new(0),
            discards: Atomic::new(0),
            refused: Atomic::new(0),
        }),
        GFP_KERNEL,
    )?;
    let tags = Arc::pin_init(
        TagSet::new(2, 8, QueueFlags::blocking().no_scheduler()),
        GFP_KERNEL,
    )?;
    let limits = QueueLimits {
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        io_min_bytes: 4096,
        io_opt_bytes: 0,
        io_bytes_max: 256 << 10,
        discard_bytes_max: 1 << 20,
        discard_granularity_bytes: 4096,
        write_zeroes_bytes_max: 0,
        write_cache: true,
        fua: true,
        rotational: false,
    };
    let mut disk = Disk::new(
        fmt!("zbdtest"),
        BYTES as u64 >> 9,
        limits,
        tags.into(),
        data.clone().into(),
    )?;
    disk.add(None)?;
    Ok((disk, data.into()))
}
