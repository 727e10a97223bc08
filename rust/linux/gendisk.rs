// SPDX-License-Identifier: GPL-2.0

//! Disks.
//!
//! 1. [`Disk::new`]: allocate, with its name, size and [`QueueLimits`]. Nobody sees it yet.
//! 2. [`Disk::add`]: it appears, partitions are read, requests come.
//! 3. [`Disk::close_for_removal`]: refuse if it is open, else let nobody open it any more.
//! 4. Drop it: all requests are ended, and it is gone.
//!
//! While a disk exists, the module cannot be unloaded.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use super::{
    bindings,
    blk_mq::{
        Operations,
        TagSet, //
    },
    compat::{
        self,
        errno::ENAMETOOLONG, //
    },
    module::ModuleRef,
    sysfs::AttributeGroup, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi,
    fmt,
    prelude::*,
    static_lock_class,
    str::{
        CStr,
        NullTerminatedFormatter, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        LockClassKey, //
    },
    types::ForeignOwnable, //
};

/// What a disk can do. Sizes in bytes.
#[derive(Clone, Copy)]
pub(crate) struct QueueLimits {
    /// Unit of addresses and sizes of requests: a power of two, 512 to the page size.
    pub(crate) logical_block_bytes: u32,
    /// Unit that is written without reading first.
    pub(crate) physical_block_bytes: u32,
    /// Preferred smallest request.
    pub(crate) io_min_bytes: u32,
    /// Preferred request size; 0 for none.
    pub(crate) io_opt_bytes: u32,
    /// Largest request.
    pub(crate) io_bytes_max: u32,
    /// Largest discard; 0 for no discard.
    pub(crate) discard_bytes_max: u32,
    /// Unit in which discarding frees anything.
    pub(crate) discard_granularity_bytes: u32,
    /// Largest write of zeros without data; 0 for none.
    pub(crate) write_zeroes_bytes_max: u32,
    /// Whether a write may be lost in a crash before a flush.
    pub(crate) write_cache: bool,
    /// Whether single writes can be asked to be durable. Needs `write_cache`.
    pub(crate) fua: bool,
    /// Whether the disk seeks.
    pub(crate) rotational: bool,
}

impl QueueLimits {
    fn to_raw(self) -> bindings::queue_limits {
        let sectors = |bytes: u32| bytes >> bindings::SECTOR_SHIFT;
        let mut features = 0;
        for (set, feature) in [
            (self.write_cache, bindings::BLK_FEAT_WRITE_CACHE),
            (self.fua, bindings::BLK_FEAT_FUA),
            (self.rotational, bindings::BLK_FEAT_ROTATIONAL),
        ] {
            if set {
                features |= feature;
            }
        }
        bindings::queue_limits {
            features,
            logical_block_size: self.logical_block_bytes,
            physical_block_size: self.physical_block_bytes,
            io_min: self.io_min_bytes,
            io_opt: self.io_opt_bytes,
            max_hw_sectors: sectors(self.io_bytes_max),
            max_hw_discard_sectors: sectors(self.discard_bytes_max),
            discard_granularity: self.discard_granularity_bytes,
            max_write_zeroes_sectors: sectors(self.write_zeroes_bytes_max),
            // Data is copied by the CPU: pieces of any number and size do.
            max_segments: u16::MAX,
            max_segment_size: u32::MAX,
            ..pin_init::zeroed()
        }
    }
}

/// What hangs on a `struct gendisk` and on its queue.
#[pin_data]
pub(super) struct DiskData<Q> {
    queue_data: Arc<Q>,
    /// Set under the disk's `open_mutex`: nobody can open the disk any more.
    closing: Atomic<bool>,
    /// Flushes of stacked disks complete within each other, with a lock of each held.
    #[pin]
    flush_lock_class: LockClassKey,
    /// Put when the disk itself is freed: its operations are in this module.
    _module: ModuleRef,
}

impl<Q: Send + Sync + 'static> DiskData<Q> {
    /// Makes the data, as a pointer for C that `free` takes back.
    fn alloc(queue_data: Arc<Q>) -> Result<*mut ffi::c_void> {
        let module = ModuleRef::try_new()?;
        let this = KBox::pin_init(
            pin_init!(Self {
                queue_data,
                closing: Atomic::new(false),
                flush_lock_class <- LockClassKey::new_dynamic(),
                _module: module,
            }),
            GFP_KERNEL,
        )?;
        Ok(this.into_foreign())
    }

    /// Frees the data.
    ///
    /// # Safety
    ///
    /// `data` must come from `alloc`, and nobody may use it any more.
    unsafe fn free(data: *mut ffi::c_void) {
        // SAFETY: by the requirements of this function.
        drop(unsafe { <Pin<KBox<Self>> as ForeignOwnable>::from_foreign(data) });
    }

    /// Lock class for the flush state of hardware queues.
    pub(super) fn flush_lock_class(&self) -> &LockClassKey {
        &self.flush_lock_class
    }

    /// The data of a queue.
    ///
    /// # Safety
    ///
    /// `queue` must belong to a disk that `Disk::<T>::new` made, with `T::QueueData` being `Q`, and
    /// the disk must live for `'a`.
    pub(super) unsafe fn from_queue<'a>(queue: *mut bindings::request_queue) -> &'a Self {
        // SAFETY: `Disk::new` gave this to the queue.
        unsafe { &*(*queue).queuedata.cast::<Self>() }
    }

    /// The data of a disk.
    ///
    /// # Safety
    ///
    /// As for `from_queue`.
    pub(super) unsafe fn from_disk<'a>(disk: *mut bindings::gendisk) -> &'a Self {
        // SAFETY: `Disk::new` gave this to the disk.
        unsafe { &*(*disk).private_data.cast::<Self>() }
    }

    /// What the driver's callbacks work on.
    pub(super) fn queue_data(&self) -> &Q {
        &self.queue_data
    }

    /// The same, counted.
    pub(super) fn queue_data_arc(&self) -> Arc<Q> {
        self.queue_data.clone()
    }
}

/// The operations, as C sees them.
struct Vtable<T: Operations>(core::marker::PhantomData<T>);

impl<T: Operations> Vtable<T> {
    const OPS: &'static bindings::block_device_operations = &bindings::block_device_operations {
        open: Some(Self::open),
        free_disk: Some(Self::free_disk),
        owner: compat::this_module(),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the block layer for a disk of this driver, under its `open_mutex`.
    unsafe extern "C" fn open(
        disk: *mut bindings::gendisk,
        _mode: bindings::blk_mode_t,
    ) -> ffi::c_int {
        // SAFETY: the disk is live, so it has its data.
        let data = unsafe { DiskData::<T::QueueData>::from_disk(disk) };
        if data.closing.load(Relaxed) {
            ENXIO.to_errno()
        } else {
            0
        }
    }

    /// # Safety
    ///
    /// Called by the block layer once, when an added disk is freed.
    unsafe extern "C" fn free_disk(disk: *mut bindings::gendisk) {
        // SAFETY: `Disk::new` made it; nobody can reach it through the disk any more.
        unsafe { DiskData::<T::QueueData>::free((*disk).private_data) };
    }
}

/// Where a [`Disk`] is in its life.
#[derive(PartialEq, Eq)]
enum State {
    New,
    Added,
}

/// A disk.
///
/// # Invariants
///
/// `disk` was allocated by `Disk::new`, and this holds its reference. `private_data` of the disk
/// comes from `DiskData::alloc`; `free_disk` owns it once the state is `Added`, and this value until
/// then.
pub(crate) struct Disk<T: Operations> {
    disk: NonNull<bindings::gendisk>,
    state: State,
    /// Outlives the attributes that show it: dropped after `del_gendisk`.
    group: Option<Pin<KBox<AttributeGroup<T::QueueData>>>>,
    /// Outlives the requests in it: dropped after `put_disk`.
    _tags: Arc<TagSet<T>>,
}

// SAFETY: disks may be used and freed from any thread; what they refer to is `Send` and `Sync`.
unsafe impl<T: Operations> Send for Disk<T> {}
// SAFETY: the block layer locks what it needs.
unsafe impl<T: Operations> Sync for Disk<T> {}

impl<T: Operations> Disk<T> {
    /// Allocates a disk of `sectors` sectors. Nobody can see it yet.
    ///
    /// `EINVAL` for limits that contradict each other, `ENAMETOOLONG` for a name of more than 31
    /// bytes, `ENODEV` if the module is being unloaded. May sleep.
    pub(crate) fn new(
        name: fmt::Arguments<'_>,
        sectors: u64,
        limits: QueueLimits,
        tags: Arc<TagSet<T>>,
        queue_data: Arc<T::QueueData>,
    ) -> Result<Self> {
        let data = DiskData::alloc(queue_data)?;
        let mut limits = limits.to_raw();
        // SAFETY: the tag set is initialised and outlives the disk, which will hold a reference;
        // `data` is what callbacks expect; the lock class is static.
        let disk = from_err_ptr(unsafe {
            bindings::__blk_mq_alloc_disk(
                tags.as_raw(),
                &mut limits,
                data,
                static_lock_class!().as_ptr(),
            )
        })
        .and_then(|disk| NonNull::new(disk).ok_or(ENOMEM));
        let disk = match disk {
            Ok(disk) => disk,
            Err(e) => {
                // SAFETY: made above, and not taken by anybody.
                unsafe { DiskData::<T::QueueData>::free(data) };
                return Err(e);
            }
        };
        // SAFETY: the disk is new and ours.
        unsafe {
            (*disk.as_ptr()).private_data = data;
            (*disk.as_ptr()).fops = Vtable::<T>::OPS;
        }
        // INVARIANT: allocated above; dropping frees all of it, from here on also on errors.
        let this = Self {
            disk,
            state: State::New,
            group: None,
            _tags: tags,
        };
        // SAFETY: nobody else has seen the disk, so its name can be written.
        let buffer = unsafe { &mut (*disk.as_ptr()).disk_name };
        let mut writer = NullTerminatedFormatter::new(buffer).ok_or(EINVAL)?;
        fmt::Write::write_fmt(&mut writer, name).map_err(|_| ENAMETOOLONG)?;
        // SAFETY: the disk is valid; the callee locks.
        unsafe { bindings::set_capacity(disk.as_ptr(), sectors) };
        Ok(this)
    }

    /// Makes the disk visible, with `group` as a directory of attributes under
    /// `/sys/block/NAME/`.
    ///
    /// Requests arrive before this returns: the partition table is read. May sleep.
    pub(crate) fn add(&mut self, group: Option<Pin<KBox<AttributeGroup<T::QueueData>>>>) -> Result {
        if self.state != State::New {
            return Err(EBUSY);
        }
        self.group = group;
        let groups = match &self.group {
            Some(group) => group.as_raw_groups(),
            None => core::ptr::null_mut(),
        };
        // SAFETY: the disk is initialised and not added yet. The group lives until `del_gendisk`,
        // and its attributes are for disks with this data.
        to_result(unsafe {
            bindings::device_add_disk(core::ptr::null_mut(), self.disk.as_ptr(), groups)
        })?;
        // INVARIANT: from now on `free_disk` is called when the disk is freed.
        self.state = State::Added;
        Ok(())
    }

    /// Sees to it that nobody can open the disk any more; `EBUSY` if somebody has it open.
    ///
    /// Sleeps. Not to be called by what an open or close of the same disk waits for.
    pub(crate) fn close_for_removal(&self) -> Result {
        let disk = self.disk.as_ptr();
        // SAFETY: the disk is valid and has its data.
        let data = unsafe { DiskData::<T::QueueData>::from_disk(disk) };
        // SAFETY: the mutex is initialised, and unlocked below. `open` looks at the flag under it,
        // and the number of openers changes only under it.
        let open = unsafe {
            let mutex = &raw mut (*disk).open_mutex;
            bindings::mutex_lock(mutex);
            let open = bindings::disk_openers(disk) > 0;
            if !open {
                data.closing.store(true, Relaxed);
            }
            bindings::mutex_unlock(mutex);
            open
        };
        if open {
            Err(EBUSY)
        } else {
            Ok(())
        }
    }

    /// Takes back [`close_for_removal`](Self::close_for_removal).
    pub(crate) fn reopen(&self) {
        // SAFETY: the disk is valid and has its data.
        let data = unsafe { DiskData::<T::QueueData>::from_disk(self.disk.as_ptr()) };
        data.closing.store(false, Relaxed);
    }

    /// Changes the size and tells user space. Sleeps.
    pub(crate) fn set_capacity(&self, sectors: u64) {
        // SAFETY: the disk is valid.
        unsafe { bindings::set_capacity_and_notify(self.disk.as_ptr(), sectors) };
    }

    /// A reference to the disk, once added.
    pub(crate) fn handle(&self) -> DiskHandle {
        // SAFETY: the disk is valid and has a device. INVARIANT: the reference is taken here.
        unsafe {
            bindings::get_device(bindings::zbd_disk_to_dev(self.disk.as_ptr()));
        }
        DiskHandle(self.disk)
    }

    /// The disk's device number, once added, as
    /// [`BlockDevice::open_number`](super::block_device::BlockDevice::open_number) takes it.
    pub(crate) fn dev_number(&self) -> u32 {
        // SAFETY: the disk is valid, and always has its first "partition", the whole.
        unsafe { (*(*self.disk.as_ptr()).part0).bd_dev }
    }

    /// What the driver's callbacks work on.
    pub(crate) fn queue_data(&self) -> &T::QueueData {
        // SAFETY: the disk is valid and has its data.
        unsafe { DiskData::<T::QueueData>::from_disk(self.disk.as_ptr()) }.queue_data()
    }
}

impl<T: Operations> Drop for Disk<T> {
    /// Sleeps until all requests are ended and no attribute is being shown or stored.
    fn drop(&mut self) {
        let disk = self.disk.as_ptr();
        match self.state {
            // SAFETY: the disk was never added, so that nobody but us refers to its data, and
            // `free_disk` is not called. The data goes last: tearing down the queue needs it.
            State::New => unsafe {
                let data = (*disk).private_data;
                bindings::put_disk(disk);
                DiskData::<T::QueueData>::free(data);
            },
            // SAFETY: the disk was added; this is our reference.
            State::Added => unsafe {
                bindings::del_gendisk(disk);
                bindings::put_disk(disk);
            },
        }
    }
}

/// A reference to a disk, for what its driver has to tell user space on its own account.
///
/// # Invariants
///
/// Holds a reference to the disk's device, and so to the disk.
pub(crate) struct DiskHandle(NonNull<bindings::gendisk>);

// SAFETY: the reference may be used and put by any thread.
unsafe impl Send for DiskHandle {}
// SAFETY: the block layer locks what it needs.
unsafe impl Sync for DiskHandle {}

impl DiskHandle {
    /// Sends a "change" event to user space with one more variable, such as `c"ZBD_SPACE=low"`.
    /// Sleeps; allocates.
    pub(crate) fn uevent(&self, variable: &CStr) -> Result {
        let mut env = [variable.as_char_ptr().cast_mut(), core::ptr::null_mut()];
        // SAFETY: the disk has a device; `env` is a null-terminated array of strings that the
        // callee copies.
        to_result(unsafe {
            let device = bindings::zbd_disk_to_dev(self.0.as_ptr());
            bindings::kobject_uevent_env(
                &raw mut (*device).kobj,
                bindings::kobject_action_KOBJ_CHANGE,
                env.as_mut_ptr(),
            )
        })
    }

    /// Makes the disk read-only for everybody, and tells user space. Sleeps; allocates.
    pub(crate) fn set_read_only(&self) {
        // SAFETY: the disk is valid.
        unsafe { bindings::set_disk_ro(self.0.as_ptr(), true) };
    }
}

impl Drop for DiskHandle {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants.
        unsafe { bindings::put_device(bindings::zbd_disk_to_dev(self.0.as_ptr())) };
    }
}
