// SPDX-License-Identifier: GPL-2.0

//! The engine's errors as errno, for requests and for control files.

use crate::{
    engine::{
        write::Stall,
        Error as EngineError, //
    },
    linux::errno::{
        EBADMSG,
        ENODATA,
        ENOLINK,
        EOPNOTSUPP,
        EPROTONOSUPPORT,
        EUCLEAN, //
    }, //
};
use kernel::prelude::*;

/// What a control file answers. `Documentation/ABI/testing/sysfs-block-zbd` lists them.
pub(super) fn control_errno(error: EngineError) -> Error {
    match error {
        EngineError::NoMemory => ENOMEM,
        EngineError::Io => EIO,
        EngineError::NotFormatted => ENODATA,
        EngineError::NewerFormat => EPROTONOSUPPORT,
        EngineError::ReadOnlyFormat => EOPNOTSUPP,
        EngineError::TooSmall | EngineError::NoSpace => ENOSPC,
        EngineError::Range => ERANGE,
        EngineError::Corrupt => EUCLEAN,
        EngineError::RootLost => EBADMSG,
        EngineError::LogLost => ENOLINK,
        EngineError::AlreadyFormatted => EEXIST,
        EngineError::Poisoned => EROFS,
    }
}

/// How a request ends that the engine has no place for. Not for [`Stall::Wait`].
pub(super) fn request_errno(stall: Stall) -> Error {
    match stall {
        Stall::NoSpace => ENOSPC,
        Stall::Wait | Stall::ReadOnly | Stall::Range => EIO,
    }
}
