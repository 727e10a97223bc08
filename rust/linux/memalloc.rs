// SPDX-License-Identifier: GPL-2.0

//! Allocations that do not wait for I/O.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use super::bindings;
use kernel::types::NotThreadSafe;

/// While this exists, no allocation of the current task starts I/O or waits for it.
///
/// For everything that I/O on our own disks may have to wait for: reclaim must not come back to us.
pub(crate) struct NoIo {
    saved: u32,
    // The flag belongs to the task.
    _not_send: NotThreadSafe,
}

impl NoIo {
    /// Begins. May be nested.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: changes a flag of the current task; `drop`, in the same task, restores it.
            saved: unsafe { bindings::memalloc_noio_save() },
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for NoIo {
    fn drop(&mut self) {
        // SAFETY: what `enter` saved in the same task.
        unsafe { bindings::memalloc_noio_restore(self.saved) };
    }
}
