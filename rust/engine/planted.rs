// SPDX-License-Identifier: GPL-2.0

//! Bugs that tests plant to show that they would be caught.
//!
//! `crate::planted::active` is constant false in the module, so the compiler removes them.

/// A rule that can be broken on purpose. The numbers are those of the crash rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Rule 1: replay in segment order rather than operation order.
    SegmentOrder,
    /// Rule 2: replay beyond the first missing segment.
    NoPrefix,
    /// Rule 2: reuse zones emptied by garbage collection before the next root.
    EarlyReuse,
    /// Rule 3: replay segments of any epoch.
    AnyEpoch,
    /// Rule 4: write the root without waiting for the segments before the cut.
    RootBeforeSegments,
    /// Rule 4: count zone contents at the root's writing instead of at the cut.
    CountersNotAtCut,
    /// Rule 4: a reader does not keep its zone from being freed.
    ReaderNotPinned,
    /// Rules 4 and 5: call a checkpoint done when its root is in one of the two places.
    OnePlace,
    /// Rule 5: accept an older root than the log knows.
    FallBack,
    /// Rule 6: open zones that the root does not list.
    UnlistedZones,
    /// Rule 7: take a rotten durable segment for the end of the log.
    RotIsTail,
    /// Rule 7: replay segments without verifying their fragments.
    TornReplay,
    /// Rule 8: complete a flush that joined one issued before its segments completed.
    LateJoin,
    /// Rule 8: issue a FUA segment before lower-numbered segments have completed.
    FuaOvertakes,
    /// Rule 9: acknowledge a segment whose write failed.
    IgnoreWriteError,
    /// Rule 10: replay an operation over a newer one that the map already holds.
    ReplayForgetsCut,
    /// Rule 11: leave discards out of the log.
    DiscardNotLogged,
    /// Rule 12: what is written is not the copy that was checksummed.
    ChangedAfterChecksum,
    /// Drop the delta of a map page when loading it.
    DropDelta,
    /// Checksums without the place's seed.
    UnseededChecksum,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 20] = [
        Bug::SegmentOrder,
        Bug::NoPrefix,
        Bug::EarlyReuse,
        Bug::AnyEpoch,
        Bug::RootBeforeSegments,
        Bug::CountersNotAtCut,
        Bug::ReaderNotPinned,
        Bug::OnePlace,
        Bug::FallBack,
        Bug::UnlistedZones,
        Bug::RotIsTail,
        Bug::TornReplay,
        Bug::LateJoin,
        Bug::FuaOvertakes,
        Bug::IgnoreWriteError,
        Bug::ReplayForgetsCut,
        Bug::DiscardNotLogged,
        Bug::ChangedAfterChecksum,
        Bug::DropDelta,
        Bug::UnseededChecksum,
    ];
}
