//! Sizes, rates and times in text: `256MiB`, `90MB/s`, `10ms`.

use std::time::Duration;

/// Parses a size in bytes: digits, with an optional fraction (`1.5GiB`), and an optional unit. The
/// units are `B`; `kB`, `MB`, `GB`, `TB` of 1000; `KiB`, `MiB`, `GiB`, `TiB` or a lone `K`, `M`,
/// `G`, `T` of 1024. Case does not matter, and fractions of a byte are dropped. `None` if the text
/// is not a size, or the size exceeds 64 bits.
///
/// ```
/// assert_eq!(bowwave_backend::parse_size("64KiB"), Some(65536));
/// assert_eq!(bowwave_backend::parse_size("90MB"), Some(90_000_000));
/// assert_eq!(bowwave_backend::parse_size("many"), None);
/// ```
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let scale = scale_of(unit)?;
    scaled(number, scale)
}

/// Formats a size for [`parse_size`], in the largest unit of 1024 that leaves an integer: `64MiB`,
/// `1000B`.
pub fn size_text(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
    let whole = units.into_iter().find(|&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit));
    whole.map_or_else(|| "0".to_owned(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Parses a rate in bytes per second: a size above 0, with or without `/s`.
pub fn parse_rate(text: &str) -> Option<u64> {
    parse_size(text.strip_suffix("/s").unwrap_or(text)).filter(|&rate| rate > 0)
}

/// Parses a time: digits, with an optional fraction, and `ns`, `us`, `µs`, `ms`, `s`, `min` or `h`.
/// `0` needs no unit. `None` above a day.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_number(text)?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" if number == "0" => 1,
        _ => return None,
    };
    scaled(number, scale).map(Duration::from_nanos).filter(|&time| time <= Duration::from_secs(86_400))
}

/// Splits a size off the start of a file name: `64KiB-b` gives 65536. The next character must not
/// be a letter or digit, nor a point before a digit.
pub(crate) fn leading_size(name: &str) -> Option<u64> {
    let is_point =
        |at: usize| name[at..].starts_with('.') && name[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let ends = |&(at, c): &(usize, char)| !c.is_ascii_alphanumeric() && !is_point(at);
    parse_size(&name[..name.char_indices().find(ends).map_or(name.len(), |(at, _)| at)])
}

fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn scale_of(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.as_str() {
        "" | "b" => return Some(1),
        _ => match unit.strip_suffix("ib") {
            Some(prefix) => (prefix, 1024u64),
            None => unit.strip_suffix('b').map_or((unit.as_str(), 1024), |prefix| (prefix, 1000)),
        },
    };
    let power = match prefix {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    Some(base.pow(power))
}

/// `number` (digits, at most one point) times `scale`, in integers.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? }.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    // Digits after the ninth are ignored: they change the result by less than 1 part in 10^9.
    let digits = fraction.get(..fraction.len().min(9))?;
    let part = u128::from(digits.parse::<u64>().ok()?) * u128::from(scale) / 10u128.pow(digits.len() as u32);
    whole.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_times_are_read_as_people_write_them() {
        let sizes =
            [("0", 0), ("3000000000", 3_000_000_000), ("4k", 4096), ("1.5GiB", 1_610_612_736), ("7B", 7)];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for (bytes, text) in [(0, "0"), (7, "7B"), (64 << 20, "64MiB"), (3 << 29, "1536MiB"), (1025, "1025B")]
        {
            assert_eq!((size_text(bytes).as_str(), parse_size(text)), (text, Some(bytes)));
        }
        for text in [
            "",
            "B",
            "1.2.3",
            ".",
            ".GiB",
            "1.123456789.9GiB",
            "1XiB",
            "-1",
            "99999999999999999999",
            "20000000TiB",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(parse_rate("90MB/s"), Some(90_000_000));
        assert_eq!(parse_rate("0"), None);
        assert_eq!(parse_duration("0.45ms"), Some(Duration::from_micros(450)));
        assert_eq!(parse_duration("450µs"), Some(Duration::from_micros(450)));
        assert_eq!(parse_duration("1.5min"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("24h"), Some(Duration::from_secs(86_400)));
        for text in ["10", "25h", "5m", "h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(leading_size("64KiB-b.bin"), Some(65536));
        assert_eq!(leading_size("1.5GiB"), Some(3 << 29));
        assert_eq!(leading_size("2.5KiB.bin"), Some(2560));
        assert_eq!(leading_size("8."), Some(8));
        assert_eq!(leading_size("64KiBb"), None);
    }
}
