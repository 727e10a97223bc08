// SPDX-License-Identifier: GPL-2.0

//! Attributes in sysfs: a directory of a disk, and the files of a class.
//!
//! One table drives each: a `static` array of [`Attribute`] says name, mode, and the functions that
//! show and store. [`AttributeGroup`] is made from it for each disk; a [`Class`] has one table of
//! [`ClassAttribute`].
//!
//! Functions run in the task that reads or writes the file; they may sleep. The removal of the
//! disk or class waits for them: they must not wait for that.
//!
//! C headers: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h),
//! [`include/linux/device.h`](srctree/include/linux/device.h)

use super::{
    bindings,
    gendisk::DiskData, //
};
use core::{
    pin::Pin,
    slice,
    str, //
};
use kernel::{
    container_of,
    error::{
        from_result,
        to_result, //
    },
    ffi,
    page::PAGE_SIZE,
    prelude::*,
    str::{
        CStr,
        Formatter, //
    },
    types::Opaque, //
};

/// Shows an attribute: writes its value and a newline. What does not fit in a page is an
/// error.
pub(crate) type Show<D> = fn(&D, &mut Formatter<'_>) -> Result;

/// Stores an attribute: gets what was written, without white space around it.
pub(crate) type Store<D> = fn(&D, &str) -> Result;

/// One file of a disk whose callbacks work on `D`.
pub(crate) struct Attribute<D> {
    /// File name.
    pub(crate) name: &'static CStr,
    /// Permissions, such as `0o444`.
    pub(crate) mode: u16,
    /// For reading.
    pub(crate) show: Option<Show<D>>,
    /// For writing.
    pub(crate) store: Option<Store<D>>,
}

/// An attribute as C sees it, and where it comes from.
#[repr(C)]
struct RawAttribute<D: 'static> {
    raw: bindings::device_attribute,
    attribute: &'static Attribute<D>,
}

/// A directory of attributes for one disk.
///
/// # Invariants
///
/// `groups[0]` points to `group`, whose attributes are `pointers`, which point to the `raw`s in
/// `attributes` and end with a null; none of them changes.
pub(crate) struct AttributeGroup<D: 'static> {
    attributes: KVec<RawAttribute<D>>,
    pointers: KVec<*mut bindings::attribute>,
    group: bindings::attribute_group,
    groups: [*const bindings::attribute_group; 2],
}

// SAFETY: everything is constant after `new`, and refers to the group's own memory.
unsafe impl<D: Send + Sync> Send for AttributeGroup<D> {}
// SAFETY: as above.
unsafe impl<D: Send + Sync> Sync for AttributeGroup<D> {}

impl<D: Send + Sync + 'static> AttributeGroup<D> {
    /// Makes a directory called `name` with the files of `table`. May sleep.
    pub(crate) fn new(
        name: &'static CStr,
        table: &'static [Attribute<D>],
    ) -> Result<Pin<KBox<Self>>> {
        let mut this = KBox::new(
            Self {
                attributes: KVec::with_capacity(table.len(), GFP_KERNEL)?,
                pointers: KVec::with_capacity(table.len() + 1, GFP_KERNEL)?,
                group: pin_init::zeroed(),
                groups: [core::ptr::null(); 2],
            },
            GFP_KERNEL,
        )?;
        for attribute in table {
            let mut raw: bindings::device_attribute = pin_init::zeroed();
            // SAFETY: `raw` is ours; the name is static, and the functions fit the place.
            unsafe {
                bindings::zbd_device_attr_init(
                    &mut raw,
                    attribute.name.as_char_ptr(),
                    attribute.mode,
                    if attribute.show.is_some() {
                        Some(Self::show)
                    } else {
                        None
                    },
                    if attribute.store.is_some() {
                        Some(Self::store)
                    } else {
                        None
                    },
                );
            }
            this.attributes
                .push(RawAttribute { raw, attribute }, GFP_KERNEL)?;
        }
        let this_mut = &mut *this;
        for attribute in &mut this_mut.attributes {
            let pointer = &raw mut attribute.raw.attr;
            this_mut.pointers.push(pointer, GFP_KERNEL)?;
        }
        this_mut.pointers.push(core::ptr::null_mut(), GFP_KERNEL)?;
        let pointers = this_mut.pointers.as_mut_ptr();
        // SAFETY: name and pointers live as long as the group.
        unsafe {
            bindings::zbd_attr_group_init(&mut this.group, name.as_char_ptr(), pointers);
        }
        // INVARIANT: all set, in memory that does not move: vectors that do not grow, and the box.
        this.groups[0] = &raw const this.group;
        Ok(Pin::from(this))
    }

    /// What `device_add_disk` takes.
    pub(super) fn as_raw_groups(&self) -> *mut *const bindings::attribute_group {
        self.groups.as_ptr().cast_mut()
    }

    /// The entry of the table, and the data of the disk.
    ///
    /// # Safety
    ///
    /// `dev` must be a disk of this module with data of type `D`, and `attr` an attribute of such a
    /// group, both in use.
    unsafe fn target<'a>(
        dev: *mut bindings::device,
        attr: *mut bindings::device_attribute,
    ) -> (&'static Attribute<D>, &'a D) {
        // SAFETY: the attribute is the first field of a `RawAttribute`; by the requirements of
        // this function the disk has data of this type.
        unsafe {
            let attribute = (*attr.cast::<RawAttribute<D>>()).attribute;
            let disk = bindings::zbd_dev_to_disk(dev);
            (attribute, DiskData::<D>::from_disk(disk).queue_data())
        }
    }

    /// # Safety
    ///
    /// Called by sysfs for an attribute of a disk that this group was added with; `buf` has a page.
    unsafe extern "C" fn show(
        dev: *mut bindings::device,
        attr: *mut bindings::device_attribute,
        buf: *mut ffi::c_char,
    ) -> isize {
        // SAFETY: `Disk::add` takes only groups for its own data, which outlives its attributes.
        let (attribute, data) = unsafe { Self::target(dev, attr) };
        // SAFETY: by the requirements of this function.
        unsafe { show_to(buf, |to| attribute.show.ok_or(EIO)?(data, to)) }
    }

    /// # Safety
    ///
    /// Called by sysfs for an attribute of a disk that this group was added with; `buf` has
    /// `count` bytes.
    unsafe extern "C" fn store(
        dev: *mut bindings::device,
        attr: *mut bindings::device_attribute,
        buf: *const ffi::c_char,
        count: usize,
    ) -> isize {
        // SAFETY: as in `show`.
        let (attribute, data) = unsafe { Self::target(dev, attr) };
        // SAFETY: by the requirements of this function.
        unsafe { store_from(buf, count, |text| attribute.store.ok_or(EIO)?(data, text)) }
    }
}

/// Runs a show function on the buffer that sysfs gives.
///
/// # Safety
///
/// `buf` must be a page of memory that is ours.
unsafe fn show_to(buf: *mut ffi::c_char, show: impl FnOnce(&mut Formatter<'_>) -> Result) -> isize {
    // SAFETY: by the requirements of this function; sysfs zeroes its pages.
    let buf = unsafe { slice::from_raw_parts_mut(buf, PAGE_SIZE) };
    let mut formatter = Formatter::new(buf);
    from_result(|| {
        show(&mut formatter)?;
        Ok(formatter.bytes_written() as isize)
    })
}

/// Runs a store function on what sysfs was given.
///
/// # Safety
///
/// `buf` must be valid for reading `count` bytes.
unsafe fn store_from(
    buf: *const ffi::c_char,
    count: usize,
    store: impl FnOnce(&str) -> Result,
) -> isize {
    // SAFETY: by the requirements of this function.
    let bytes = unsafe { slice::from_raw_parts(buf, count) };
    from_result(|| {
        let text = str::from_utf8(bytes).map_err(|_| {
            pr_err!("control file: what was written is not text\n");
            EINVAL
        })?;
        store(text.trim())?;
        Ok(count as isize)
    })
}

/// One file of a class whose callbacks work on `D`.
pub(crate) struct ClassAttribute<D> {
    /// File name.
    pub(crate) name: &'static CStr,
    /// Permissions, such as `0o200`.
    pub(crate) mode: u16,
    /// For reading.
    pub(crate) show: Option<Show<D>>,
    /// For writing.
    pub(crate) store: Option<Store<D>>,
}

/// A class attribute as C sees it, and where it comes from.
#[repr(C)]
struct RawClassAttribute<D: 'static> {
    raw: bindings::class_attribute,
    attribute: &'static ClassAttribute<D>,
}

/// A directory `/sys/class/NAME/` of control files.
///
/// Dropping it waits for functions that are running, and removes the files. Drop it first when a
/// module goes: nobody can reach `data` through it after that.
///
/// # Invariants
///
/// `class` is registered, with one group of the attributes in `attributes`, as in
/// [`AttributeGroup`].
#[pin_data(PinnedDrop)]
pub(crate) struct Class<D: Send + Sync + 'static> {
    data: D,
    #[pin]
    class: Opaque<bindings::class>,
    _files: Pin<KBox<ClassFiles<D>>>,
}

// SAFETY: everything is constant once registered, and `D` is `Send`.
unsafe impl<D: Send + Sync> Send for Class<D> {}
// SAFETY: as above, and `D` is `Sync`.
unsafe impl<D: Send + Sync> Sync for Class<D> {}

/// The memory behind the files of a class.
struct ClassFiles<D: 'static> {
    attributes: KVec<RawClassAttribute<D>>,
    pointers: KVec<*mut bindings::attribute>,
    group: bindings::attribute_group,
    groups: [*const bindings::attribute_group; 2],
}

impl<D: Send + Sync + 'static> ClassFiles<D> {
    fn new(table: &'static [ClassAttribute<D>]) -> Result<Pin<KBox<Self>>> {
        let mut this = KBox::new(
            Self {
                attributes: KVec::with_capacity(table.len(), GFP_KERNEL)?,
                pointers: KVec::with_capacity(table.len() + 1, GFP_KERNEL)?,
                group: pin_init::zeroed(),
                groups: [core::ptr::null(); 2],
            },
            GFP_KERNEL,
        )?;
        for attribute in table {
            let mut raw: bindings::class_attribute = pin_init::zeroed();
            // SAFETY: `raw` is ours; the name is static, and the functions fit the place.
            unsafe {
                bindings::zbd_class_attr_init(
                    &mut raw,
                    attribute.name.as_char_ptr(),
                    attribute.mode,
                    if attribute.show.is_some() {
                        Some(Class::<D>::show)
                    } else {
                        None
                    },
                    if attribute.store.is_some() {
                        Some(Class::<D>::store)
                    } else {
                        None
                    },
                );
            }
            this.attributes
                .push(RawClassAttribute { raw, attribute }, GFP_KERNEL)?;
        }
        let this_mut = &mut *this;
        for attribute in &mut this_mut.attributes {
            let pointer = &raw mut attribute.raw.attr;
            this_mut.pointers.push(pointer, GFP_KERNEL)?;
        }
        this_mut.pointers.push(core::ptr::null_mut(), GFP_KERNEL)?;
        let pointers = this_mut.pointers.as_mut_ptr();
        // SAFETY: the pointers live as long as the group; no name, for files in the class itself.
        unsafe {
            bindings::zbd_attr_group_init(&mut this.group, core::ptr::null(), pointers);
        }
        this.groups[0] = &raw const this.group;
        Ok(Pin::from(this))
    }
}

impl<D: Send + Sync + 'static> Class<D> {
    /// Registers a class with the files of `table`. The files work at once. May sleep.
    pub(crate) fn new(
        name: &'static CStr,
        table: &'static [ClassAttribute<D>],
        data: D,
    ) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let files = ClassFiles::new(table)?;
            let class = bindings::class {
                name: name.as_char_ptr(),
                class_groups: files.groups.as_ptr().cast(),
                ..pin_init::zeroed()
            };
            Ok(try_pin_init!(Self {
                data,
                // INVARIANT: registered here, or there is no class. This field comes after `data`,
                // which the files need.
                class <- Opaque::try_ffi_init(move |slot: *mut bindings::class| {
                    // SAFETY: `slot` is memory that does not move until the class is unregistered;
                    // the files live as long.
                    unsafe {
                        slot.write(class);
                        to_result(bindings::class_register(slot))
                    }
                }),
                _files: files,
            }? Error))
        })
    }

    /// What the callbacks work on.
    pub(crate) fn data(&self) -> &D {
        &self.data
    }

    /// The entry of the table, and the data of the class.
    ///
    /// # Safety
    ///
    /// `class` must be the `class` of such a value, and `attr` one of its attributes, both in use.
    unsafe fn target<'a>(
        class: *const bindings::class,
        attr: *const bindings::class_attribute,
    ) -> (&'static ClassAttribute<D>, &'a D) {
        // SAFETY: by the requirements of this function; the attribute is the first field of a
        // `RawClassAttribute`, and `Opaque` has the layout of what is in it.
        unsafe {
            let attribute = (*attr.cast::<RawClassAttribute<D>>()).attribute;
            let this = container_of!(class.cast::<Opaque<bindings::class>>(), Self, class);
            (attribute, &(*this).data)
        }
    }

    /// # Safety
    ///
    /// Called by sysfs for an attribute of such a class; `buf` has a page.
    unsafe extern "C" fn show(
        class: *const bindings::class,
        attr: *const bindings::class_attribute,
        buf: *mut ffi::c_char,
    ) -> isize {
        // SAFETY: by the requirements of this function.
        let (attribute, data) = unsafe { Self::target(class, attr) };
        // SAFETY: by the requirements of this function.
        unsafe { show_to(buf, |to| attribute.show.ok_or(EIO)?(data, to)) }
    }

    /// # Safety
    ///
    /// Called by sysfs for an attribute of such a class; `buf` has `count` bytes.
    unsafe extern "C" fn store(
        class: *const bindings::class,
        attr: *const bindings::class_attribute,
        buf: *const ffi::c_char,
        count: usize,
    ) -> isize {
        // SAFETY: by the requirements of this function.
        let (attribute, data) = unsafe { Self::target(class, attr) };
        // SAFETY: by the requirements of this function.
        unsafe { store_from(buf, count, |text| attribute.store.ok_or(EIO)?(data, text)) }
    }
}

#[pinned_drop]
impl<D: Send + Sync + 'static> PinnedDrop for Class<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: registered by `new`. Returns when no callback runs any more.
        unsafe { bindings::class_unregister(self.class.get()) };
    }
}
