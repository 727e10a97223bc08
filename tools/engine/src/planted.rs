// SPDX-License-Identifier: GPL-2.0

//! Bugs planted by tests, per thread. Without the `planted` feature there are none.

use crate::engine::planted::Bug;
use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static BROKEN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Whether `bug` is planted in this thread.
pub fn active(bug: Bug) -> bool {
    cfg!(feature = "planted") && PLANTED.get() == Some(bug)
}

/// Plants a bug in this thread, or none. Has no effect without the `planted` feature.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Called when the engine finds an invariant broken.
pub fn broken(reason: &'static str) {
    BROKEN.set(Some(reason));
}

/// Takes the last broken invariant of this thread.
pub fn take_broken() -> Option<&'static str> {
    BROKEN.take()
}
