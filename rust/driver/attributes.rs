// SPDX-License-Identifier: GPL-2.0

//! `/sys/block/zbdN/zbd/`: one value per file, from one table.
//!
//! `Documentation/ABI/testing/sysfs-block-zbd` explains each.

use super::{
    control::write_uuid,
    parse,
    volume::Volume, //
};
use crate::{
    engine::{
        checkpoint::Phase,
        stats::{
            Gauges,
            Stats, //
        },
        units::BLOCK_BYTES,
        Engine, //
    },
    linux::sysfs::Attribute, //
};
use kernel::{
    fmt::Write,
    prelude::*,
    str::Formatter,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// How long waiting for a checkpoint sleeps between two looks.
const CHECKPOINT_POLL: Delta = Delta::from_millis(5);

/// Counters and gauges, at one moment.
struct Numbers {
    stats: Stats,
    gauges: Gauges,
    logical_bytes: u64,
    buffer_bytes: u64,
}

impl Numbers {
    /// Bytes written to the lower device.
    fn written_bytes(&self) -> u64 {
        let stats = &self.stats;
        stats.user_log_bytes + stats.gc_log_bytes + stats.metadata_log_bytes
    }
}

fn numbers(volume: &Volume) -> Numbers {
    volume.with_quietly(|core| Numbers {
        stats: core.engine.stats,
        gauges: core.engine.gauges(),
        logical_bytes: core.engine.logical_bytes(),
        buffer_bytes: volume.buffer_bytes as u64,
    })
}

/// `part / whole`, in hundredths; 0 where there is nothing to compare.
fn hundredths(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

/// A file that shows one number.
macro_rules! number {
    ($name:literal, $value:expr) => {
        Attribute {
            name: $name,
            mode: 0o444,
            show: Some(|volume, to| {
                let value: fn(&Numbers) -> u64 = $value;
                Ok(writeln!(to, "{}", value(&numbers(volume)))?)
            }),
            store: None,
        }
    };
}

/// The files.
pub(super) static TABLE: &[Attribute<Volume>] = &[
    Attribute {
        name: c"uuid",
        mode: 0o444,
        show: Some(|volume, to| {
            let uuid = volume.with_quietly(|core| core.engine.identity().uuid);
            write_uuid(to, &uuid)?;
            Ok(to.write_str("\n")?)
        }),
        store: None,
    },
    Attribute {
        name: c"label",
        mode: 0o444,
        show: Some(show_label),
        store: None,
    },
    Attribute {
        name: c"device",
        mode: 0o444,
        show: Some(|volume, to| {
            let name = volume.device.name().to_str().map_err(|_| EIO)?;
            Ok(writeln!(to, "{name}")?)
        }),
        store: None,
    },
    Attribute {
        name: c"codec",
        mode: 0o644,
        show: Some(|volume, to| {
            let options = volume.with_quietly(|core| *core.engine.options());
            parse::write_codec(to, &options)?;
            Ok(to.write_str("\n")?)
        }),
        store: Some(store_codec),
    },
    Attribute {
        name: c"state",
        mode: 0o444,
        show: Some(|volume, to| {
            let reason = volume.with_quietly(|core| core.engine.poisoned());
            match reason {
                None => to.write_str("ok\n")?,
                Some(reason) => writeln!(to, "read-only: {reason}")?,
            }
            Ok(())
        }),
        store: None,
    },
    Attribute {
        name: c"checkpoint",
        mode: 0o200,
        show: None,
        store: Some(checkpoint),
    },
    Attribute {
        name: c"emergency_space",
        mode: 0o644,
        show: Some(|volume, to| {
            let released = volume.with_quietly(|core| core.engine.emergency_released());
            Ok(to.write_str(if released { "released\n" } else { "kept\n" })?)
        }),
        store: Some(|volume, text| {
            let released = match text {
                "released" => true,
                "kept" => false,
                _ => return Err(EINVAL),
            };
            volume.with_quietly(|core| core.engine.release_emergency(released));
            Ok(())
        }),
    },
    Attribute {
        name: c"situation",
        mode: 0o400,
        show: Some(|volume, to| {
            let situation = volume.with_quietly(|core| core.engine.situation());
            Ok(writeln!(to, "{situation:?}")?)
        }),
        store: None,
    },
    number!(c"logical_bytes", |n| n.logical_bytes),
    number!(c"mapped_bytes", |n| n.gauges.mapped_blocks
        * BLOCK_BYTES as u64),
    number!(c"live_bytes", |n| n.gauges.live_bytes),
    number!(c"used_bytes", |n| n.gauges.used_bytes),
    number!(c"ratio", |n| hundredths(
        n.gauges.mapped_blocks * BLOCK_BYTES as u64,
        n.gauges.live_bytes
    )),
    number!(c"zero_blocks", |n| n.stats.zero_blocks),
    number!(c"raw_extents", |n| n.stats.raw_extents),
    number!(c"compressed_extents", |n| n.stats.compressed_extents),
    number!(c"user_bytes", |n| n.stats.user_bytes),
    number!(c"user_log_bytes", |n| n.stats.user_log_bytes),
    number!(c"gc_log_bytes", |n| n.stats.gc_log_bytes),
    number!(c"metadata_log_bytes", |n| n.stats.metadata_log_bytes),
    number!(c"write_amplification", |n| hundredths(
        n.written_bytes(),
        n.stats.user_bytes
    )),
    number!(c"zones", |n| n.gauges.zones),
    number!(c"free_zones", |n| n.gauges.free_zones),
    number!(c"cache_hits", |n| n.stats.cache_hits),
    number!(c"cache_misses", |n| n.stats.cache_misses),
    number!(c"cached_pages", |n| n.gauges.cached_pages),
    number!(c"memory_bytes", |n| n.gauges.memory_bytes + n.buffer_bytes),
    number!(c"checksum_errors", |n| n.stats.checksum_errors),
    number!(c"io_errors", |n| n.stats.io_errors),
    number!(c"gc_stalls", |n| n.stats.gc_stalls),
    number!(c"space_stalls", |n| n.stats.space_stalls),
    number!(c"gc_zones", |n| n.stats.gc_zones),
    number!(c"checkpoints", |n| n.stats.checkpoints),
    number!(c"flushes", |n| n.stats.flushes),
];

fn show_label(volume: &Volume, to: &mut Formatter<'_>) -> Result {
    let label = volume.with_quietly(|core| core.engine.identity().label);
    let end = label
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(label.len());
    let text = label
        .get(..end)
        .and_then(|label| core::str::from_utf8(label).ok());
    Ok(writeln!(to, "{}", text.unwrap_or("?"))?)
}

/// Makes a checkpoint and waits for it: the gauges are exact then.
fn checkpoint(volume: &Volume, _text: &str) -> Result {
    // The next tick begins it. One that is under way does not cover everything.
    let target = volume.with_quietly(|core| {
        core.engine.request_checkpoint();
        let under_way = core.engine.situation().phase != Phase::Idle;
        core.engine.stats.checkpoints + 1 + u64::from(under_way)
    });
    loop {
        let (done, alive) = volume.with_quietly(|core| {
            let done = core.engine.stats.checkpoints >= target;
            (done, core.engine.poisoned().is_none())
        });
        if done {
            return Ok(());
        }
        if !alive {
            return Err(EROFS);
        }
        if kernel::current!().signal_pending() {
            return Err(EINTR);
        }
        fsleep(CHECKPOINT_POLL);
    }
}

fn store_codec(volume: &Volume, text: &str) -> Result {
    let (codec, level) = parse::codec(text)?;
    let options = |engine: &Engine| {
        let mut options = *engine.options();
        options.codec = codec.code();
        options.level = level;
        options
    };
    // Memory first: afterwards nothing can fail.
    let wanted = volume.with_quietly(|core| options(&core.engine));
    volume.workspaces.set_options(&wanted)?;
    volume.with_quietly(|core| {
        let options = options(&core.engine);
        core.engine.set_options(options);
    });
    Ok(())
}
