// SPDX-License-Identifier: GPL-2.0

//! What can go wrong, as values.

/// Why an operation of the engine failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No memory for the volume's fixed pools.
    NoMemory,
    /// The lower device failed a read, write or flush.
    Io,
    /// No valid zbd root was found.
    NotFormatted,
    /// The volume was written by a newer version: an unknown version or incompatible feature.
    NewerFormat,
    /// The volume can only be attached read-only: an unknown feature forbids writing.
    ReadOnlyFormat,
    /// The device is smaller than the volume's geometry, or than the smallest volume.
    TooSmall,
    /// A size or option is out of its range.
    Range,
    /// Structures contradict each other or fail their checksum; repair is needed.
    Corrupt,
    /// The log names a newer root than can be found: attaching would step back in time.
    RootLost,
    /// A durable part of the log is unreadable in every copy; what it held cannot be named.
    LogLost,
    /// The volume already holds a zbd volume.
    AlreadyFormatted,
    /// No space is left.
    NoSpace,
    /// The volume has been made read-only after a broken invariant.
    Poisoned,
}

impl From<crate::mem::AllocError> for Error {
    fn from(_: crate::mem::AllocError) -> Self {
        Error::NoMemory
    }
}

impl Error {
    /// One sentence for people: what is wrong and what to do.
    pub const fn message(self) -> &'static str {
        match self {
            Error::NoMemory => "not enough memory for the volume's buffers and caches",
            Error::Io => "the lower device reported an I/O error",
            Error::NotFormatted => "no zbd volume found; format the device first",
            Error::NewerFormat => "the volume uses a newer format; update zbd",
            Error::ReadOnlyFormat => "the volume uses features that this version can only read",
            Error::TooSmall => "the device is too small for the volume",
            Error::Range => "a size or option is out of range",
            Error::Corrupt => "the volume's structures are damaged; run zbdctl check",
            Error::RootLost => "the newest checkpoint is unreadable; run zbdctl check",
            Error::LogLost => "a durable part of the log is unreadable; run zbdctl check",
            Error::AlreadyFormatted => "the device already holds a zbd volume; force is needed",
            Error::NoSpace => "no space left on the lower device",
            Error::Poisoned => "the volume is read-only after an internal error",
        }
    }
}

/// Result of an engine operation.
pub type Result<T = ()> = core::result::Result<T, Error>;
