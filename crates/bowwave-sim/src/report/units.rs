//! Formats figures and names for people.

use std::fmt::Write;

/// A time: `250 ns`, `1.25 ms`, `17 s`.
pub(super) fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{}\u{a0}{unit}", three(value))
}

/// A size: `512 B`, `128 KiB`, `1.5 MiB`.
pub(super) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{}\u{a0}{}", three(value), UNITS[unit])
}

/// A rate: `15.5 MB/s`, in the units of the literature.
pub(super) fn rate(bytes_a_second: f64) -> String {
    let (value, unit) = match bytes_a_second {
        b if b < 1e3 => (b, "B/s"),
        b if b < 1e6 => (b / 1e3, "kB/s"),
        b if b < 1e9 => (b / 1e6, "MB/s"),
        b => (b / 1e9, "GB/s"),
    };
    format!("{}\u{a0}{unit}", three(value))
}

/// A count with thousands separators: `1,234,567`.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun, which takes an s: `1 page`, `2 pages`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in percent: `0 %`, `0.3 %`, `42 %`. Never 0 or 100 for a share that is only close.
pub(super) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    match share {
        s if s <= 0.0 => "0\u{a0}%".to_owned(),
        s if s < 0.1 => "under 0.1\u{a0}%".to_owned(),
        s if s < 9.95 => format!("{s:.1}\u{a0}%"),
        s if s > 99.95 && s < 100.0 => "over 99.9\u{a0}%".to_owned(),
        s if s > 99.0 && s < 99.95 => format!("{s:.1}\u{a0}%"),
        s => format!("{s:.0}\u{a0}%"),
    }
}

/// Three significant digits, without useless zeros: `0.125`, `3.2`, `17`, `1230`.
pub(super) fn three(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 99.95 => return format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.0995 => format!("{value:.3}"),
        v if v >= 1e-4 => format!("{value:.4}"),
        _ => return "0".to_owned(),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Makes invisible characters of `text` visible: controls and bidirectional marks.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let hidden = letter.is_control()
            || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if hidden {
            let _never_fails = write!(shown, "{}", letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces no-break spaces, for assertions.
    fn plain(text: String) -> String {
        text.replace('\u{a0}', " ")
    }

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!([250.0, 1_250_000.0, 17e9].map(time).map(plain), ["250 ns", "1.25 ms", "17 s"]);
        assert_eq!([512.0, 131_072.0, 1_572_864.0].map(bytes).map(plain), ["512 B", "128 KiB", "1.5 MiB"]);
        assert_eq!(plain(rate(15.5e6)), "15.5 MB/s");
        assert_eq!([7, 1000, 1_234_567].map(count), ["7", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 1.0, 42.0, 99.99].map(|part| plain(percent(part, 100.0))),
            ["0 %", "1.0 %", "42 %", "over 99.9 %"]
        );
        assert_eq!(three(0.0001), "0.0001");
    }

    #[test]
    fn nothing_in_a_name_stays_hidden() {
        assert_eq!(visible("a\u{202e}b\nשלום"), "a\\u{202e}b\\u{a}שלום");
    }
}
