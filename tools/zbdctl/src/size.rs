// SPDX-License-Identifier: GPL-2.0

//! Sizes with units, as people write and read them.

/// Parses a size: bytes, or a number (with a fraction, if it comes out even) and a unit.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let scale = scale(unit.trim_start()).ok_or_else(|| format!("unknown unit \"{unit}\""))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let bad = || "must be a number, with a unit such as G or GiB behind it".to_string();
    if fraction.len() > 6 || fraction.contains('.') || (number.contains('.') && fraction.is_empty())
    {
        return Err(bad());
    }
    let tens = 10u64.pow(fraction.len() as u32);
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let part: u64 = match fraction {
        "" => 0,
        digits => digits.parse().map_err(|_| bad())?,
    };
    let bytes = u128::from(whole) * u128::from(scale)
        + u128::from(part) * u128::from(scale) / u128::from(tens);
    u64::try_from(bytes).map_err(|_| "is too large".into())
}

fn scale(unit: &str) -> Option<u64> {
    const LETTERS: &str = "KMGTPE";
    if matches!(unit, "" | "B") {
        return Some(1);
    }
    let mut chars = unit.chars();
    let letter = chars.next()?.to_ascii_uppercase();
    let power = LETTERS.find(letter)? as u32 + 1;
    match chars.as_str() {
        "" | "iB" | "ib" => Some(1024u64.pow(power)),
        "B" | "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// A size for people: three digits or so.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("10 GiB", 10 << 30),
            ("7B", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "G",
            "1X",
            "1..5G",
            "1.G",
            "-1",
            "1Kx",
            "99999999999T",
            "1.2.3",
            "0x10",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.50 KiB");
        assert_eq!(human(64 << 20), "64.0 MiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}
