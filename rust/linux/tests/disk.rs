// SPDX-License-Identifier: GPL-2.0

//! Tests of I/O: bios go down to a disk in memory, whose driver gets them as requests.

use super::{
    ramdisk,
    Random, //
};
use crate::linux::{
    bio::{
        BioSet,
        Complete,
        Done,
        Flags,
        Io,
        Payload, //
    },
    block_device::{
        BlockDevice,
        Mode, //
    },
    handoff::Handoff,
    iobuf::{
        IoBuf,
        IoBufPool, //
    },
    workqueue::{
        Place,
        Tick,
        Ticker,
        Workqueue, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Completion, //
    }, //
};

/// Collects the outcome of one or more I/Os.
#[pin_data]
struct Waiter {
    left: Atomic<i32>,
    failed: Atomic<i32>,
    #[pin]
    all_done: Completion,
    last: Handoff<Payload>,
}

struct Ticket(Arc<Waiter>);

impl Complete for Ticket {
    fn complete(self, done: Done) {
        if let Err(e) = done.result {
            self.0.failed.store(e.to_errno(), Relaxed);
        }
        drop(self.0.last.put(done.payload));
        if self.0.left.fetch_sub(1, Full) == 1 {
            self.0.all_done.complete_all();
        }
    }
}

impl Waiter {
    fn new(count: i32) -> Result<Arc<Self>> {
        let waiter = Arc::pin_init(
            pin_init!(Self {
                left: Atomic::new(count),
                failed: Atomic::new(0),
                all_done <- Completion::new(),
                last: Handoff::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(waiter.into())
    }

    fn wait(&self) -> Result {
        self.all_done.wait_for_completion();
        kernel::error::to_result(self.failed.load(Relaxed))
    }
}

/// Sends one I/O and waits; gives its memory back.
fn run(set: &BioSet<Ticket>, io: Io) -> Result<Payload> {
    let waiter = Waiter::new(1)?;
    set.submit(io, Ticket(waiter.clone()));
    waiter.wait()?;
    waiter.last.take().ok_or(EIO)
}

fn read(set: &BioSet<Ticket>, sector: u64, len: usize) -> Result<IoBuf> {
    let buf = IoBuf::new(len)?;
    match run(set, Io::read(sector, buf, 0..len))? {
        Payload::Owned(buf) => Ok(buf),
        _ => Err(EIO),
    }
}

fn open(number: u32) -> Result<Arc<BlockDevice>> {
    Ok(Arc::new(
        BlockDevice::open_number(number, Mode::ReadWrite)?,
        GFP_KERNEL,
    )?)
}

/// Counts ticks up to three.
#[pin_data]
struct Ticks {
    count: Atomic<i32>,
    #[pin]
    enough: Completion,
}

impl Tick for Ticks {
    fn tick(&self) {
        if self.count.fetch_add(1, Relaxed) == 2 {
            self.enough.complete_all();
        }
    }
}

#[kunit_tests(zbd_disk)]
mod tests {
    use super::*;

    #[test]
    fn attributes() -> Result {
        let (disk, _data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        assert_eq!(device.sectors(), ramdisk::BYTES as u64 / 512);
        assert_eq!(device.logical_block_bytes(), 512);
        assert_eq!(device.physical_block_bytes(), 4096);
        assert_eq!(device.name(), c"zbdtest");
        assert_eq!(device.dev_number(), disk.dev_number());
        assert_eq!(device.discard_sectors_max(), 2048);
        assert_eq!(device.discard_granularity_bytes(), 4096);
        assert!(device.has_write_cache());
        assert!(!device.is_zoned() && !device.is_read_only());
        assert!(!device.is_rotational() && !device.is_dead());
        disk.set_capacity(8);
        assert_eq!(device.sectors(), 8);
        Ok(())
    }

    #[test]
    fn exclusive() -> Result {
        let (disk, _data) = ramdisk::new()?;
        let number = disk.dev_number();
        let device = open(number)?;
        assert!(matches!(open(number), Err(e) if e == EBUSY));
        assert_eq!(disk.close_for_removal(), Err(EBUSY));
        assert!(BlockDevice::open(c"/proc/self/status", Mode::Read).is_err());
        drop(device);
        // Opens again at once: the claim ends with the drop, even if the file lives on.
        drop(open(number)?);
        Ok(())
    }

    /// Owned and shared memory, contiguous and scattered, aligned to pages or not.
    #[test]
    fn write_and_read_back() -> Result {
        let (disk, _data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        let set = KBox::pin_init(BioSet::new(device, 2), GFP_KERNEL)?;
        let pool = IoBufPool::new(2, 512 << 10)?;
        let mut random = Random(5);
        for (len, sector) in [
            (4096, 0),
            (8192, 7),
            (64 << 10, 100),
            (512 << 10, 1024),
            (512, 5001),
        ] {
            let mut expected = KVVec::from_elem(0u8, len, GFP_KERNEL)?;
            random.fill(&mut expected, 0);

            let mut buf = IoBuf::new(len.max(4096))?;
            buf.as_mut_slice()
                .get_mut(..len)
                .ok_or(EIO)?
                .copy_from_slice(&expected);
            let io = Io::write(sector, Payload::Owned(buf), 0..len, Flags::NONE);
            run(&set, io)?;
            let back = read(&set, sector, len.max(4096))?;
            assert!(back.as_slice().get(..len) == Some(&expected[..]));

            // The same through a shared buffer, from the middle of it where there is room.
            let Ok(shared) = pool.take().ok_or(ENOMEM)?.share() else {
                return Err(EIO);
            };
            let start = if len < 256 << 10 { 1536 } else { 0 };
            random.fill(&mut expected, 0);
            for (i, piece) in expected.chunks(999).enumerate() {
                shared.write_at(start + i * 999, piece)?;
            }
            shared.seal()?;
            let io = Io::write(
                sector,
                Payload::Shared(shared.clone()),
                start..start + len,
                Flags::SYNC,
            );
            run(&set, io)?;
            let back = read(&set, sector, len.max(4096))?;
            assert!(back.as_slice().get(..len) == Some(&expected[..]));
        }
        assert_eq!(pool.free_count(), 2);
        assert_eq!(set.in_flight(), 0);
        Ok(())
    }

    #[test]
    fn sync_io() -> Result {
        let (disk, data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        let mut buf = IoBuf::new(16 << 10)?;
        Random(6).fill(buf.as_mut_slice(), 0);
        device.write_sync(8, &buf, 4096..16 << 10, Flags::FUA)?;
        assert_eq!(data.fua_writes.load(Relaxed), 2);
        device.flush_sync()?;
        let mut back = IoBuf::new(16 << 10)?;
        device.read_sync(8, &mut back, 0..12 << 10)?;
        assert!(back.as_slice().get(..12 << 10) == buf.as_slice().get(4096..));
        device.discard_sync(8, 8)?;
        device.read_sync(8, &mut back, 0..4096)?;
        assert!(back.as_slice().iter().take(4096).all(|&byte| byte == 0));
        for (sector, range) in [(0, 0..0), (0, 0..1), (0, 0..20 << 10)] {
            assert_eq!(device.read_sync(sector, &mut back, range), Err(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn flush_fua_discard() -> Result {
        let (disk, data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        let set = KBox::pin_init(BioSet::new(device, 2), GFP_KERNEL)?;
        let before = data.flushes.load(Relaxed);
        run(&set, Io::flush())?;
        assert_eq!(data.flushes.load(Relaxed), before + 1);

        let mut buf = IoBuf::new(4096)?;
        buf.as_mut_slice().fill(9);
        let flags = Flags::FUA | Flags::PREFLUSH | Flags::META;
        run(&set, Io::write(16, Payload::Owned(buf), 0..4096, flags))?;
        assert_eq!(data.flushes.load(Relaxed), before + 2);
        assert_eq!(data.fua_writes.load(Relaxed), 1);

        run(&set, Io::discard(16, 8))?;
        assert_eq!(data.discards.load(Relaxed), 1);
        assert!(read(&set, 16, 4096)?.as_slice().iter().all(|&b| b == 0));
        Ok(())
    }

    #[test]
    fn errors() -> Result {
        let (disk, _data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        let set = KBox::pin_init(BioSet::new(device, 2), GFP_KERNEL)?;
        let pool = IoBufPool::new(1, 4096)?;
        let check = |io: Io, error: Error| run(&set, io).is_err_and(|e| e == error);

        // From the driver below: in one piece, and in two parts.
        for len in [4096, 16 << 10] {
            let buf = IoBuf::new(len)?;
            let sector = ramdisk::BAD_SECTOR;
            let io = Io::write(sector, Payload::Owned(buf), 0..len, Flags::NONE);
            assert!(check(io, ENOSPC));
        }
        assert!(check(
            Io::read(ramdisk::BAD_SECTOR, IoBuf::new(4096)?, 0..4096),
            ENOSPC
        ));
        // Beyond the end.
        let end = ramdisk::BYTES as u64 / 512;
        assert!(check(Io::read(end, IoBuf::new(4096)?, 0..4096), EIO));
        // What makes no sense.
        for range in [0..0, 0..100, 0..8192] {
            assert!(check(Io::read(0, IoBuf::new(4096)?, range), EINVAL));
        }
        assert!(check(Io::discard(0, 0), EINVAL));
        let Ok(shared) = pool.take().ok_or(ENOMEM)?.share() else {
            return Err(EIO);
        };
        let io = Io::write(0, Payload::Shared(shared), 0..4096, Flags::NONE);
        assert!(check(io, EBUSY));
        assert_eq!(pool.free_count(), 1);
        Ok(())
    }

    /// Many more I/Os than are reserved, and the set dropped while they run.
    #[test]
    fn many() -> Result {
        const COUNT: i32 = 200;
        let (disk, _data) = ramdisk::new()?;
        let device = open(disk.dev_number())?;
        let set = KBox::pin_init(BioSet::new(device, 1), GFP_KERNEL)?;
        let waiter = Waiter::new(COUNT)?;
        for i in 0..COUNT {
            let io = Io::read(i as u64 * 8, IoBuf::new(4096)?, 0..4096);
            if i % 2 == 0 {
                set.submit(io, Ticket(waiter.clone()));
            } else if let Err((io, ticket)) = set.try_submit(io, Ticket(waiter.clone())) {
                set.submit(io, ticket);
            }
        }
        drop(set);
        assert_eq!(waiter.left.load(Relaxed), 0);
        waiter.wait()
    }

    #[test]
    fn ticker() -> Result {
        let ticks: Arc<Ticks> = Arc::pin_init(
            pin_init!(Ticks {
                count: Atomic::new(0),
                enough <- Completion::new(),
            }),
            GFP_KERNEL,
        )?
        .into();
        let queue = Arc::new(Workqueue::new(c"zbd_test", Place::PerCpu, 1)?, GFP_KERNEL)?;
        let ticker = KBox::pin_init(Ticker::new(queue.clone(), 10, ticks.clone()), GFP_KERNEL)?;
        assert_eq!(ticks.count.load(Relaxed), 0);
        ticker.start();
        ticks.enough.wait_for_completion();
        drop(ticker);
        let count = ticks.count.load(Relaxed);
        queue.flush();
        assert_eq!(ticks.count.load(Relaxed), count);
        Ok(())
    }
}
