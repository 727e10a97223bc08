// SPDX-License-Identifier: GPL-2.0

//! Why a command failed, what to do about it, and with which status it ends.

use serde::Serialize;
use std::fmt;
use std::io;

/// What kind of failure; `cli.rs` lists the statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Failed,
    NotFound,
    Refused,
    NotLoaded,
    Damaged,
    Permission,
    /// Whoever reads our output has gone away.
    Pipe,
}

impl Kind {
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Pipe => 0,
            Kind::Failed => 1,
            Kind::NotFound => 3,
            Kind::Refused => 4,
            Kind::NotLoaded => 5,
            Kind::Damaged => 6,
            Kind::Permission => 7,
        }
    }
}

/// A failure.
#[derive(Debug, Serialize)]
pub struct Failure {
    pub kind: Kind,
    /// What is wrong with what.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The kernel's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            remedy: None,
            errno: None,
        }
    }

    pub fn remedy(self, remedy: impl Into<String>) -> Failure {
        Failure {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// A failed operation on a file.
    pub fn io(subject: impl fmt::Display, error: &io::Error) -> Failure {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::PermissionDenied => Kind::Permission,
            io::ErrorKind::BrokenPipe => Kind::Pipe,
            _ => Kind::Failed,
        };
        let failure = Failure {
            errno: error.raw_os_error(),
            ..Failure::new(kind, format!("{subject}: {error}"))
        };
        match kind {
            Kind::Permission => failure.remedy("run zbdctl as root"),
            _ => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  {remedy}"),
            None => Ok(()),
        }
    }
}
