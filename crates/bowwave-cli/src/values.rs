//! Parsers of option values, for clap's `value_parser`, and the texts of sizes and times.

use std::time::Duration;

use bowwave_core::Policy;
use bowwave_core::swap::SwapPolicy;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::setup;

/// A size in bytes: `4096`, `64k`, `1MiB`, `2GB`.
///
/// A lone `k`, `M`, `G` or `T` and `KiB` … `TiB` count in 1024s, `kB` … `TB` in 1000s.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    bowwave_backend::parse_size(text).ok_or_else(|| "not a size; write 4096, 64k, 1MiB or 2GB".to_owned())
}

/// A size in bytes that is not 0.
pub(crate) fn positive_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than 0 bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The largest readahead window, in pages or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// A number of pages.
    Pages(u32),
    /// A size.
    Bytes(u64),
}

impl Window {
    /// Its pages of `page_bytes`; a part of a page counts as one.
    pub(crate) fn pages(self, page_bytes: u64) -> u32 {
        match self {
            Self::Pages(pages) => pages,
            Self::Bytes(bytes) => {
                u32::try_from(bytes.div_ceil(page_bytes.max(1))).unwrap_or(WINDOW_PAGES_MAX)
            }
        }
    }
}

/// A readahead window: `256` pages or `1MiB`.
pub(crate) fn window(text: &str) -> Result<Window, String> {
    let wrong = || {
        format!(
            "not in 0..={WINDOW_PAGES_MAX} pages; write pages, as in 256, or a size up to 4GiB, as in 1MiB"
        )
    };
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let pages = text.parse().ok().filter(|&pages| pages <= WINDOW_PAGES_MAX);
        return pages.map(Window::Pages).ok_or_else(wrong);
    }
    let bytes = bowwave_backend::parse_size(text).filter(|bytes| (1..=WINDOW_BYTES_MAX).contains(bytes));
    bytes.map(Window::Bytes).ok_or_else(wrong)
}

/// As [`window`], in pages of 4 KiB, which traces and simulations have.
pub(crate) fn window_pages(text: &str) -> Result<u32, String> {
    window(text).map(|window| window.pages(4096))
}

/// Largest window in pages.
const WINDOW_PAGES_MAX: u32 = 1 << 20;
/// Largest window in bytes: [`WINDOW_PAGES_MAX`] pages of 4 KiB.
const WINDOW_BYTES_MAX: u64 = 4 << 30;

/// A time: `30ms`, `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    bowwave_backend::parse_duration(text)
        .ok_or_else(|| "not a time of at most a day; write 500us, 30ms, 2s or 12h".to_owned())
}

/// A time as [`duration`] reads it: `30s`, `1500ms`.
pub(crate) fn duration_text(time: Duration) -> String {
    match time.as_nanos() {
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

/// A size as [`size`] reads it, rounded if it is no multiple of 1 KiB: `64MiB`, `51.2MiB`.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1024 || bytes.is_multiple_of(1024) => bowwave_backend::size_text(bytes),
        bytes => setup::size(bytes).replace(' ', ""),
    }
}

/// A parser for one of these choices, by name.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (impl Into<PossibleValue>, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<(PossibleValue, T)> =
        choices.into_iter().map(|(name, value)| (name.into(), value)).collect();
    PossibleValuesParser::new(choices.iter().map(|(name, _)| name.clone())).map(move |name| {
        let known = choices.iter().find(|(known, _)| known.get_name() == name);
        known.expect("the parser takes no other name").1.clone()
    })
}

/// The name of a value on the command line.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A readahead policy, by name.
pub(crate) fn policy() -> impl TypedValueParser<Value = Policy> {
    one_of(bowwave_baselines::ALL.map(|policy| (policy.name(), policy)))
}

/// A policy that `explain` explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explained {
    /// Readahead of files.
    Files(Policy),
    /// Readahead of swapped memory.
    Swap(SwapPolicy),
}

/// A readahead policy of files or of swap, by name.
pub(crate) fn explained() -> impl TypedValueParser<Value = Explained> {
    let swap = bowwave_baselines::SWAP.into_iter().filter(|&policy| policy != SwapPolicy::None);
    let files = bowwave_baselines::ALL.into_iter().map(|policy| (policy.name(), Explained::Files(policy)));
    one_of(files.chain(swap.map(|policy| (policy.name(), Explained::Swap(policy)))))
}

/// A value of the setting `swap.policy`.
pub(crate) fn swap_policy() -> impl TypedValueParser<Value = String> {
    let names = bowwave_baselines::SWAP.map(SwapPolicy::name).into_iter().chain(["linux"]);
    one_of(names.map(|name| (name, name.to_owned())))
}

/// A time in nanoseconds, rounded to about three digits.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..100_000 => format!("{:.1} us", ns as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..100_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        100_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_digits() {
        assert_eq!(
            [999, 1_500, 150_000, 31_200_000, 2_000_000_000].map(time),
            ["999 ns", "1.5 us", "150 us", "31.2 ms", "2.00 s"]
        );
    }

    #[test]
    fn sizes_of_settings_are_rounded_and_parse_again() {
        assert_eq!([0, 1000, 64 << 20, 53_687_091].map(size_text), ["0", "1000B", "64MiB", "51.2MiB"]);
        assert_eq!(size(&size_text(53_687_091)), Ok(53_687_091));
    }

    #[test]
    fn windows_are_pages_or_sizes() {
        assert_eq!(["256", "1MiB", "4k", "5000B"].map(window_pages), [256, 256, 1, 2].map(Ok));
        // No readahead, as in Linux.
        assert_eq!(window_pages("0"), Ok(0));
        assert_eq!(window("1MiB").map(|window| window.pages(64 << 10)), Ok(16));
        for bad in ["", "0k", "1048577", "5GiB", "-1", "x"] {
            assert!(window(bad).is_err_and(|message| message.contains("1MiB")), "{bad}");
        }
    }

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(
            ["4096", "64k", "1MiB", "2GB"].map(size),
            [4096, 65_536, 1_048_576, 2_000_000_000].map(Ok)
        );
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["", "k", "12x", "-1", "1 MiB", "99999999TiB"] {
            assert!(size(bad).is_err_and(|message| message.contains("1MiB")), "{bad}");
        }
        assert!(positive_size("0k").is_err() && duration("3").is_err());
    }
}
