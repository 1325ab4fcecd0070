//! Parses numbers and fields of foreign logs.

use super::batch::Fault;
use crate::error::quoted;
use crate::reader::whole_number;

/// Sector size in bytes: the address unit of block layers and SCSI.
pub(super) const SECTOR: u64 = 512;

/// The first `N` fields of a line, and the total number of fields.
pub(super) fn fields<'a, const N: usize>(parts: impl Iterator<Item = &'a [u8]>) -> ([&'a [u8]; N], usize) {
    let mut values: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    for part in parts {
        if let Some(place) = values.get_mut(count) {
            *place = part;
        }
        count += 1;
    }
    (values, count)
}

/// The parts of a line, separated by blanks and tabs.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// The parts of a line, separated by commas, without surrounding blanks.
pub(super) fn columns(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a whole number in `column`; errors name its `unit`.
pub(super) fn number(column: &'static str, text: &[u8], unit: &str) -> Result<u64, Fault> {
    whole_number(text, unit).map_err(|message| Fault::column(column, message))
}

/// Parses a whole number of units of `size` bytes (or nanoseconds), and returns bytes (or
/// nanoseconds).
pub(super) fn scaled(column: &'static str, text: &[u8], unit: &str, size: u64) -> Result<u64, Fault> {
    let count = number(column, text, unit)?;
    count.checked_mul(size).ok_or_else(|| {
        let message = format!("{count} {unit}, {size} times each, pass {}", u64::MAX);
        Fault::column(column, message)
    })
}

/// Parses seconds, with an optional fraction, as nanoseconds; digits after the ninth are dropped.
pub(super) fn seconds(column: &'static str, text: &[u8]) -> Result<u64, Fault> {
    seconds_ns(text).ok_or_else(|| {
        let message = match text {
            [b'-', ..] => format!("{} is a time before the log began", quoted(text)),
            _ => format!("{} is not a time in seconds, such as 1.000250", quoted(text)),
        };
        Fault::column(column, message)
    })
}

/// As [`seconds`]; `None` for an invalid time or more than 584 years.
pub(super) fn seconds_ns(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let whole = decimal(&text[..point])?;
    let digits = text.get(point + 1..).unwrap_or(b"");
    let mut fraction = 0;
    for place in 0..9 {
        let digit = digits.get(place).map_or(Some(0), |&byte| byte.is_ascii_digit().then(|| byte - b'0'))?;
        fraction = fraction * 10 + u64::from(digit);
    }
    if !digits.iter().all(u8::is_ascii_digit) || point + 1 == text.len() {
        return None;
    }
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Parses decimal digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    based(text, 10)
}

/// Parses hexadecimal digits, with or without `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    based(text.strip_prefix(b"0x").unwrap_or(text), 16)
}

fn based(text: &[u8], base: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = char::from(byte).to_digit(base)?;
        value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_nanoseconds_without_rounding() {
        for (text, ns) in [
            ("0", 0),
            ("1.5", 1_500_000_000),
            ("0.000000001", 1),
            ("0.0000000019", 1),
            ("18446744073.709551615", u64::MAX),
        ] {
            assert_eq!(seconds_ns(text.as_bytes()), Some(ns), "{text}");
        }
        for bad in ["", ".", "1.", ".5", "1.x", "-1", "1e3", "1.0000000000x", "18446744073.709551616"] {
            assert_eq!(seconds_ns(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn numbers_accept_only_digits_of_their_base() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(hexadecimal(b"0x9b4172"), Some(0x9b_4172));
        assert_eq!((hexadecimal(b"0x"), hexadecimal(b"g"), decimal(b"+1")), (None, None, None));
    }

    #[test]
    fn fields_beyond_the_limit_are_counted() {
        let (values, count) = fields::<2>(words(b"  a \t b c "));
        assert_eq!((values, count), ([&b"a"[..], b"b"], 3));
        assert_eq!(fields::<3>(columns(b"a, b,")).1, 3);
    }
}
