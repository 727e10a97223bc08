// SPDX-License-Identifier: GPL-2.0

//! zbdctl: makes, lists and inspects zbd volumes.
//!
//! Volumes in service are reached through sysfs (`sysfs.rs`), others by reading their device with
//! the engine's own decoders (`image.rs`, `dump/`). One file per command.

mod attach;
mod cli;
mod create;
mod detach;
mod device;
mod dump;
mod errno;
mod failure;
mod image;
mod list;
mod output;
mod signature;
mod size;
mod stat;
mod sysfs;

use clap::Parser;
use cli::{Cli, Command};
use output::Output;
use std::process::ExitCode;
use sysfs::Sysfs;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output::new(cli.json);
    let sysfs = Sysfs::new(&cli.sysfs);
    let result = match &cli.command {
        Command::Create(args) => create::run(args, &sysfs, &mut out),
        Command::Attach(args) => attach::run(args, &sysfs, &mut out),
        Command::Detach(args) => detach::run(args, &sysfs, &mut out),
        Command::List => list::run(&sysfs, &mut out),
        Command::Stat(args) => stat::run(args, &sysfs, &mut out),
        Command::Dump(args) => dump::run(args, &sysfs, &mut out),
    };
    match result.and_then(|()| out.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failure(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
    }
}
