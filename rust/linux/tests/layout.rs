// SPDX-License-Identifier: GPL-2.0

//! Test of the bindings: clang, which bindgen uses, and the compiler of the kernel must agree.

use crate::linux::bindings;
use core::mem::size_of;
use kernel::prelude::*;

/// Sizes as Rust sees them, in the order of `zbd_sizeof` in `rust/bindings/zbd_bindings.h`.
const SIZES: [usize; 20] = [
    size_of::<bindings::attribute_group>(),
    size_of::<bindings::bio>(),
    size_of::<bindings::bio_set>(),
    size_of::<bindings::bio_vec>(),
    size_of::<bindings::blk_mq_hw_ctx>(),
    size_of::<bindings::blk_mq_ops>(),
    size_of::<bindings::blk_mq_tag_set>(),
    size_of::<bindings::block_device>(),
    size_of::<bindings::block_device_operations>(),
    size_of::<bindings::bvec_iter>(),
    size_of::<bindings::class>(),
    size_of::<bindings::class_attribute>(),
    size_of::<bindings::delayed_work>(),
    size_of::<bindings::device_attribute>(),
    size_of::<bindings::gendisk>(),
    size_of::<bindings::page>(),
    size_of::<bindings::queue_limits>(),
    size_of::<bindings::request>(),
    size_of::<bindings::request_queue>(),
    size_of::<bindings::zstd_parameters>(),
];

#[kunit_tests(zbd_layout)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (i, size) in SIZES.into_iter().enumerate() {
            // SAFETY: reads a table.
            assert_eq!(size, unsafe { bindings::zbd_sizeof(i as u32) });
        }
        // SAFETY: reads a table.
        assert_eq!(0, unsafe { bindings::zbd_sizeof(SIZES.len() as u32) });
    }
}
