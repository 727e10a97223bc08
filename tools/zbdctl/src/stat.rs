// SPDX-License-Identifier: GPL-2.0

//! `zbdctl stat`: every attribute of a volume, or rates.

use crate::cli::StatArgs;
use crate::failure::Result;
use crate::output::Output;
use crate::size::human;
use crate::sysfs::{ratio, Sysfs, Volume};
use serde::Serialize;
use serde_json::{Map, Value};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Attributes that are ratios in hundredths.
const RATIOS: [&str; 2] = ["ratio", "write_amplification"];

pub fn run(args: &StatArgs, sysfs: &Sysfs, out: &mut Output) -> Result {
    let volume = sysfs.volume(&args.volume)?;
    match args.watch {
        Some(interval) => watch(&volume, interval, args.count, sysfs, out),
        None => out.record(&values(&volume), || text(&volume)),
    }
}

fn values(volume: &Volume) -> Map<String, Value> {
    let mut values = Map::new();
    values.insert("volume".into(), volume.name.as_str().into());
    for (name, value) in &volume.attributes {
        let value = if RATIOS.contains(&name.as_str()) {
            ratio(value).map_or(Value::Null, Value::from)
        } else {
            value
                .parse::<u64>()
                .map_or_else(|_| value.as_str().into(), Value::from)
        };
        values.insert(name.clone(), value);
    }
    values
}

fn text(volume: &Volume) -> String {
    let width = volume
        .attributes
        .keys()
        .map(String::len)
        .max()
        .unwrap_or(0)
        .max(6);
    let mut lines = vec![format!("{:width$}  {}", "volume", volume.name)];
    // `situation` is one long line for people who debug.
    for (name, value) in volume
        .attributes
        .iter()
        .filter(|(name, _)| *name != "situation")
    {
        let shown = match value.parse::<u64>() {
            _ if RATIOS.contains(&name.as_str()) => format!("{:.2}", ratio(value).unwrap_or(0.0)),
            Ok(bytes) if name.ends_with("_bytes") => format!("{value} ({})", human(bytes)),
            _ => value.clone(),
        };
        lines.push(format!("{name:width$}  {shown}").trim_end().to_string());
    }
    lines.join("\n")
}

/// What happened in an interval.
#[derive(Debug, PartialEq, Serialize)]
struct Rates {
    seconds: f64,
    user_bytes_per_second: u64,
    log_bytes_per_second: u64,
    gc_bytes_per_second: u64,
    metadata_bytes_per_second: u64,
    flushes_per_second: u64,
    /// Of map look-ups; null: there were none.
    cache_hit_percent: Option<f64>,
    ratio: f64,
    used_bytes: u64,
    free_zones: u64,
}

fn rates(old: &Volume, new: &Volume, elapsed: Duration) -> Rates {
    let seconds = elapsed.as_secs_f64();
    // A volume of that name may have been attached anew.
    let grown = |name: &str| new.number(name).saturating_sub(old.number(name)) as f64;
    let per_second = |name: &str| (grown(name) / seconds) as u64;
    let lookups = grown("cache_hits") + grown("cache_misses");
    Rates {
        seconds,
        user_bytes_per_second: per_second("user_bytes"),
        log_bytes_per_second: per_second("user_log_bytes"),
        gc_bytes_per_second: per_second("gc_log_bytes"),
        metadata_bytes_per_second: per_second("metadata_log_bytes"),
        flushes_per_second: per_second("flushes"),
        cache_hit_percent: (lookups > 0.0).then(|| 100.0 * grown("cache_hits") / lookups),
        ratio: new.ratio("ratio"),
        used_bytes: new.number("used_bytes"),
        free_zones: new.number("free_zones"),
    }
}

const HEAD: &str =
    "   user/s     log/s      gc/s    meta/s  flush/s  hits%  ratio       used  free-zones";

impl Rates {
    fn line(&self) -> String {
        let hits = self
            .cache_hit_percent
            .map_or("-".into(), |percent| format!("{percent:.0}"));
        format!(
            "{:>9} {:>9} {:>9} {:>9} {:>8} {:>6} {:>6.2} {:>10} {:>11}",
            human(self.user_bytes_per_second),
            human(self.log_bytes_per_second),
            human(self.gc_bytes_per_second),
            human(self.metadata_bytes_per_second),
            self.flushes_per_second,
            hits,
            self.ratio,
            human(self.used_bytes),
            self.free_zones
        )
    }
}

fn watch(
    first: &Volume,
    interval: Duration,
    count: Option<u64>,
    sysfs: &Sysfs,
    out: &mut Output,
) -> Result {
    let mut old = sysfs.volume(&first.name)?;
    let mut then = Instant::now();
    let mut lines = 0;
    while count.is_none_or(|count| lines < count) {
        sleep(interval);
        let new = sysfs.volume(&old.name)?;
        let now = Instant::now();
        let rates = rates(&old, &new, now - then);
        out.record(&rates, || match lines % 20 {
            0 => format!("{HEAD}\n{}", rates.line()),
            _ => rates.line(),
        })?;
        out.finish()?;
        (old, then) = (new, now);
        lines += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(attributes: &[(&str, &str)]) -> Volume {
        let attributes = attributes
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Volume {
            name: "zbd0".into(),
            attributes: attributes.collect(),
        }
    }

    #[test]
    fn values_keep_their_types() {
        let volume = volume(&[("ratio", "184"), ("label", "x"), ("used_bytes", "4096")]);
        let values = Value::Object(values(&volume));
        assert_eq!(values["ratio"], 1.84);
        assert_eq!(values["label"], "x");
        assert_eq!(values["used_bytes"], 4096);
        assert!(text(&volume).contains("used_bytes  4096 (4.00 KiB)"));
    }

    #[test]
    fn rates_are_differences() {
        let old = volume(&[
            ("user_bytes", "1000"),
            ("cache_hits", "5"),
            ("cache_misses", "1"),
        ]);
        let new = volume(&[
            ("user_bytes", "5000"),
            ("cache_hits", "8"),
            ("cache_misses", "2"),
        ]);
        let rates = rates(&old, &new, Duration::from_secs(2));
        assert_eq!(rates.user_bytes_per_second, 2000);
        assert_eq!(rates.cache_hit_percent, Some(75.0));
        assert_eq!(
            super::rates(&new, &old, Duration::from_secs(1)).user_bytes_per_second,
            0
        );
    }
}
