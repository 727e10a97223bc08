// SPDX-License-Identifier: GPL-2.0

//! The command line.

use crate::size;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  failed: the kernel refused, or an I/O error; the message says why
  2  the command line cannot be understood
  3  not found: no such device or volume, or no zbd volume on the device
  4  refused: the device is in use, or holds something and --force is not given
  5  the kernel module is not loaded
  6  the volume is damaged
  7  permission denied";

const SIZES: &str = "\
Sizes are bytes, or a number with K, M, G, T or P (or KiB, MiB, ...) for powers of 1024, or with
kB, MB, GB, TB or PB for powers of 1000.";

/// Makes, lists and inspects zbd volumes.
#[derive(Debug, Parser)]
#[command(name = "zbdctl", version, about, after_help = EXIT_CODES)]
pub struct Cli {
    /// Print JSON: one object, or one object per line where there are several
    #[arg(long, global = true)]
    pub json: bool,
    /// Where sysfs is mounted
    #[arg(
        long,
        global = true,
        hide = true,
        value_name = "DIR",
        default_value = "/sys"
    )]
    pub sysfs: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume on a device and attach it
    ///
    /// What the device held is lost. A device that carries a file system, a partition table or a
    /// zbd volume is refused unless --force is given; one that is in use is always refused.
    #[command(after_help = SIZES)]
    Create(CreateArgs),
    /// Put the volume on a device into service as /dev/zbdN
    Attach(AttachArgs),
    /// Take a volume out of service
    Detach(DetachArgs),
    /// List the volumes in service
    List,
    /// Show the state and the counters of a volume in service
    ///
    /// The names are those of the files in /sys/block/zbdN/zbd.
    Stat(StatArgs),
    /// Decode the volume on a device or in an image file, without the kernel module
    ///
    /// Reads only. Without further options: the roots, the shape of the volume, a summary of its
    /// zones, and whether the map is readable. With --json, one object per line. Ends with status
    /// 6 if anything that should be readable is not.
    Dump(DumpArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The device, for example /dev/sdb1
    pub device: PathBuf,
    /// Logical size; without it, what surely fits even if nothing compresses
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub size: Option<u64>,
    /// lz4, lz4:ACCELERATION, zstd or zstd:LEVEL
    #[arg(long, value_name = "CODEC", value_parser = codec)]
    pub codec: Option<String>,
    /// A name of up to 32 bytes, without spaces
    #[arg(long, value_parser = label)]
    pub label: Option<String>,
    /// Size of a zone, a power of two; without it, about a thousandth of the device
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub zone_size: Option<u64>,
    /// Physical copies of metadata
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub metadata_copies: Option<u8>,
    /// Never let a fragment cross a 4 KiB boundary that it could stay within
    #[arg(long)]
    pub no_straddle: bool,
    /// Overwrite a file system, a partition table or a zbd volume
    #[arg(long)]
    pub force: bool,
    /// Only format, do not attach
    #[arg(long)]
    pub no_attach: bool,
}

#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The device that carries the volume
    pub device: PathBuf,
}

#[derive(Debug, Args)]
pub struct DetachArgs {
    /// The volume: zbdN or /dev/zbdN
    #[arg(value_name = "ZBDN", value_parser = volume)]
    pub volume: String,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    /// The volume: zbdN or /dev/zbdN
    #[arg(value_name = "ZBDN", value_parser = volume)]
    pub volume: String,
    /// Print a line of rates every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// With --watch: stop after so many lines
    #[arg(long, requires = "watch")]
    pub count: Option<u64>,
}

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// A device or an image file
    pub device: PathBuf,
    /// Every root that is left, not just the newest of each place, with all its lists
    #[arg(long)]
    pub roots: bool,
    /// Every zone that is not free
    #[arg(long)]
    pub zones: bool,
    /// Every segment
    #[arg(long)]
    pub segments: bool,
    /// Every entry of every segment's summary
    #[arg(long)]
    pub entries: bool,
    /// Every page of the map
    #[arg(long)]
    pub map: bool,
    /// Every word of every leaf of the map
    #[arg(long)]
    pub words: bool,
    /// All of these
    #[arg(long)]
    pub all: bool,
    /// Only this zone, for --zones, --segments and --entries
    #[arg(long, value_name = "N")]
    pub zone: Option<u32>,
}

fn codec(text: &str) -> Result<String, String> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    if !matches!(name, "lz4" | "zstd") {
        return Err("must be lz4, lz4:ACCELERATION, zstd or zstd:LEVEL".into());
    }
    match level.map(str::parse::<u8>) {
        None | Some(Ok(1..)) => Ok(text.into()),
        _ => Err("the number behind the colon must be from 1 to 255".into()),
    }
}

fn label(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 32 {
        return Err("must be 1 to 32 bytes long".into());
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("must not contain spaces or control characters".into());
    }
    Ok(text.into())
}

fn volume(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    match name.strip_prefix("zbd").map(str::parse::<u32>) {
        Some(Ok(number)) => Ok(format!("zbd{number}")),
        _ => Err("must be zbdN or /dev/zbdN, for example zbd0".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds")?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("must be from 0.01 to 86400".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(codec("zstd:3"), Ok("zstd:3".into()));
        for bad in ["gzip", "lz4:", "lz4:0", "zstd:x", "zstd:-1", ""] {
            assert!(codec(bad).is_err(), "{bad}");
        }
        assert_eq!(volume("/dev/zbd12"), Ok("zbd12".into()));
        for bad in ["zbd", "sda", "zbd1p1", "zbd-1"] {
            assert!(volume(bad).is_err(), "{bad}");
        }
        assert!(label("two words").is_err());
        assert!(label(&"x".repeat(33)).is_err());
        assert!(seconds("0").is_err());
        assert!(seconds("NaN").is_err());
    }
}
