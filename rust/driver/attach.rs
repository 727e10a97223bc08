// SPDX-License-Identifier: GPL-2.0

//! Format, attach and detach: all or nothing.

use super::{
    attributes,
    background::{
        Clock,
        TICK_MS, //
    },
    errors::control_errno,
    queue::{
        Driver,
        QUEUE_DEPTH,
        REQUESTS,
        REQUEST_BYTES_MAX, //
    },
    volume::Volume, //
};
use crate::{
    engine::{
        attach::{
            find_root,
            Report, //
        },
        create::{
            create,
            NewVolume, //
        },
        units::{
            BLOCK_BYTES,
            PAGE_WORDS, //
        },
        Config,
        Engine,
        Error as EngineError,
        Media,
        Result as EngineResult, //
    },
    linux::{
        arena::{
            Arena,
            ArenaOwner, //
        },
        bio::Flags,
        blk_mq::{
            QueueFlags,
            TagSet, //
        },
        block_device::{
            BlockDevice,
            Mode,
            SECTOR_BYTES, //
        },
        errno::{
            ENOTUNIQ,
            EOPNOTSUPP, //
        },
        gendisk::{
            Disk,
            QueueLimits, //
        },
        iobuf::IoBuf,
        sysfs::AttributeGroup,
        workqueue::Ticker, //
    }, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Bytes of the buffer through which format and attach read and write.
const BOUNCE_BYTES: usize = 256 << 10;
/// Fewest pages of the cache.
const CACHE_PAGES_MIN: usize = 64;
/// How long detaching waits between two looks.
const DETACH_POLL: Delta = Delta::from_millis(1);

/// Why something was refused: what the caller gets, and what the log says.
pub(super) struct Refusal {
    pub(super) errno: Error,
    pub(super) reason: &'static str,
}

impl Refusal {
    const fn new(errno: Error, reason: &'static str) -> Self {
        Self { errno, reason }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self::new(control_errno(error), error.message())
    }
}

impl From<Error> for Refusal {
    fn from(errno: Error) -> Self {
        let reason = match errno {
            ENOMEM => "not enough memory",
            ENODEV => "the module is being unloaded",
            _ => "the kernel refused",
        };
        Self::new(errno, reason)
    }
}

impl From<kernel::alloc::AllocError> for Refusal {
    fn from(_: kernel::alloc::AllocError) -> Self {
        ENOMEM.into()
    }
}

/// The lower device, synchronously.
struct DeviceMedia {
    device: Arc<BlockDevice>,
    bounce: IoBuf,
}

impl DeviceMedia {
    fn new(device: &Arc<BlockDevice>) -> Result<Self, Refusal> {
        Ok(Self {
            device: device.clone(),
            bounce: IoBuf::new(BOUNCE_BYTES)?,
        })
    }
}

impl Media for DeviceMedia {
    fn capacity_bytes(&self) -> u64 {
        self.device.sectors() * SECTOR_BYTES
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> EngineResult {
        let mut sector = address / SECTOR_BYTES;
        for chunk in bytes.chunks_mut(BOUNCE_BYTES) {
            self.device
                .read_sync(sector, &mut self.bounce, 0..chunk.len())
                .map_err(|_| EngineError::Io)?;
            let read = self.bounce.as_slice().get(..chunk.len());
            chunk.copy_from_slice(read.ok_or(EngineError::Io)?);
            sector += chunk.len() as u64 / SECTOR_BYTES;
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> EngineResult {
        let mut sector = address / SECTOR_BYTES;
        for chunk in bytes.chunks(BOUNCE_BYTES) {
            let room = self.bounce.as_mut_slice().get_mut(..chunk.len());
            room.ok_or(EngineError::Io)?.copy_from_slice(chunk);
            self.device
                .write_sync(sector, &self.bounce, 0..chunk.len(), Flags::NONE)
                .map_err(|_| EngineError::Io)?;
            sector += chunk.len() as u64 / SECTOR_BYTES;
        }
        Ok(())
    }

    fn flush(&mut self) -> EngineResult {
        self.device.flush_sync().map_err(|_| EngineError::Io)
    }
}

/// Opens a lower device and checks that a volume can be on it.
fn open(path: &CStr) -> Result<Arc<BlockDevice>, Refusal> {
    let device = BlockDevice::open(path, Mode::ReadWrite).map_err(|errno| {
        let (errno, reason) = match errno {
            ENOENT => (ENOENT, "no such file; name a block device"),
            ENOTBLK => (ENOTBLK, "not a block device"),
            EBUSY => (EBUSY, "in use; unmount or detach it first"),
            EACCES | EPERM | EROFS => (EROFS, "the device is read-only"),
            ENXIO | ENODEV => (ENXIO, "there is no device behind this file"),
            ENOMEM => (ENOMEM, "not enough memory"),
            other => (other, "the device cannot be opened"),
        };
        Refusal::new(errno, reason)
    })?;
    if device.is_read_only() {
        return Err(Refusal::new(EROFS, "the device is read-only"));
    }
    if device.is_zoned() {
        let reason = "zoned devices are not supported yet";
        return Err(Refusal::new(EOPNOTSUPP, reason));
    }
    if device.logical_block_bytes() as usize > BLOCK_BYTES {
        let reason = "the device's blocks are larger than 4 KiB";
        return Err(Refusal::new(EOPNOTSUPP, reason));
    }
    Ok(Arc::new(device, GFP_KERNEL)?)
}

/// What a volume of `logical_blocks` blocks takes from memory.
fn config(device: &BlockDevice, logical_blocks: u64, cache_pages: u32) -> Config {
    // All pages of the map, with those above the leaves, and a few.
    let pages = logical_blocks.div_ceil(PAGE_WORDS as u64);
    let pages = usize::try_from(pages + pages / 64 + 64).unwrap_or(usize::MAX);
    Config {
        requests: REQUESTS,
        cache_pages: (cache_pages as usize)
            .min(pages)
            .clamp(CACHE_PAGES_MIN, 1 << 24),
        discard: device.discard_sectors_max() >= 8,
        volatile_cache: device.has_write_cache(),
        ..Config::DEFAULT
    }
}

fn buffers(config: &Config) -> Result<ArenaOwner, Refusal> {
    let sizes = (0..).map_while(|buffer| config.buffer_bytes(buffer));
    Ok(Arena::new(sizes)?)
}

/// Makes a volume on the device at `path`.
pub(super) fn format(path: &CStr, volume: &NewVolume) -> Result<(), Refusal> {
    let device = open(path)?;
    let mut media = DeviceMedia::new(&device)?;
    let config = config(&device, 1, 0);
    let mut owner = buffers(&config)?;
    create(&mut media, &mut owner, &config, volume)?;
    // Who reads the device node shall not see what was there before.
    device.invalidate_page_cache();
    Ok(())
}

/// A volume in service, with its disk.
pub(super) struct Attached {
    /// The device node disappears first.
    disk: Disk<Driver>,
    ticker: Pin<KBox<Ticker<Clock>>>,
    pub(super) volume: Arc<Volume>,
    pub(super) uuid: [u8; 16],
}

/// Puts the volume at `path` into service as disk number `index`.
///
/// `in_use` says whether a volume with this UUID is in service already.
pub(super) fn attach(
    path: &CStr,
    index: u32,
    cache_pages: u32,
    in_use: impl FnOnce(&[u8; 16]) -> bool,
) -> Result<(Attached, Report), Refusal> {
    let device = open(path)?;
    let mut media = DeviceMedia::new(&device)?;
    let root = find_root(&mut media)?;
    let uuid = root.uuid;
    if in_use(&uuid) {
        let reason = "a volume with the same UUID is attached: this is a copy of it";
        return Err(Refusal::new(ENOTUNIQ, reason));
    }
    let config = config(&device, root.geometry.logical_blocks, cache_pages);
    drop(root);
    let mut owner = buffers(&config)?;
    let (engine, report) = Engine::attach(&mut media, &mut owner, &config)?;
    drop(media);
    owner.release();
    let logical_bytes = engine.logical_bytes();
    let volume = Volume::new(index, device, engine, owner)?;
    let attached = add_disk(volume.clone(), uuid, logical_bytes);
    if attached.is_err() {
        settle(&volume);
    }
    Ok((attached?, report))
}

fn add_disk(volume: Arc<Volume>, uuid: [u8; 16], logical_bytes: u64) -> Result<Attached, Refusal> {
    let tags = Arc::pin_init(
        TagSet::new(1, QUEUE_DEPTH, QueueFlags::blocking().no_scheduler()),
        GFP_KERNEL,
    )?;
    let limits = QueueLimits {
        logical_block_bytes: BLOCK_BYTES as u32,
        physical_block_bytes: BLOCK_BYTES as u32,
        io_min_bytes: BLOCK_BYTES as u32,
        io_opt_bytes: REQUEST_BYTES_MAX as u32,
        io_bytes_max: REQUEST_BYTES_MAX as u32,
        discard_bytes_max: u32::MAX & !(REQUEST_BYTES_MAX as u32 - 1),
        discard_granularity_bytes: BLOCK_BYTES as u32,
        write_zeroes_bytes_max: u32::MAX & !(REQUEST_BYTES_MAX as u32 - 1),
        write_cache: true,
        fua: true,
        rotational: false,
    };
    let clock = Arc::new(Clock(volume.clone()), GFP_KERNEL)?;
    let ticker = KBox::pin_init(
        Ticker::new(volume.engine_queue.clone(), TICK_MS, clock),
        GFP_KERNEL,
    )?;
    let mut disk = Disk::<Driver>::new(
        fmt!("zbd{}", volume.index),
        logical_bytes / SECTOR_BYTES,
        limits,
        tags,
        volume.clone(),
    )?;
    let group = AttributeGroup::new(c"zbd", attributes::TABLE)?;
    ticker.start();
    volume.kick_background();
    disk.add(Some(group))?;
    volume.set_disk(Some(disk.handle()));
    Ok(Attached {
        disk,
        ticker,
        volume,
        uuid,
    })
}

/// Waits until nothing is under way any more.
fn settle(volume: &Arc<Volume>) {
    loop {
        volume.engine_queue.flush();
        volume.requests.flush();
        let busy = volume.lower_in_flight() > 0;
        let actions = volume.with_quietly(|core| core.engine.has_actions());
        if !busy && !actions {
            break;
        }
        fsleep(DETACH_POLL);
    }
    // What the last completions queued.
    volume.engine_queue.flush();
}

impl Attached {
    /// Takes the volume out of service; `EBUSY`, and nothing happened, if its disk is open.
    ///
    /// `true`: everything is on the device. `false`: the volume was read-only or the device
    /// failed; the log is replayed when it is attached again.
    pub(super) fn detach(self) -> Result<bool, (Self, Error)> {
        if let Err(e) = self.disk.close_for_removal() {
            return Err((self, e));
        }
        let Self {
            disk,
            ticker,
            volume,
            ..
        } = self;
        volume.set_disk(None);
        // Ends all requests.
        drop(disk);
        // The last part of it is the volume's own work.
        volume.with(|core| core.engine.begin_detach());
        loop {
            volume.kick_background();
            let done = volume.with_quietly(|core| core.engine.is_detached());
            if done && volume.lower_in_flight() == 0 {
                break;
            }
            fsleep(DETACH_POLL);
        }
        drop(ticker);
        settle(&volume);
        let clean = volume.with_quietly(|core| core.engine.poisoned().is_none());
        let flushed = volume.device.flush_sync().is_ok();
        volume.device.invalidate_page_cache();
        Ok(clean && flushed)
    }
}
