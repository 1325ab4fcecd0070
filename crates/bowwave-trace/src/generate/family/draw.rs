//! Draws that the grammar shares, and amounts in words.

use super::super::Random;

/// True once in `times`, on average.
pub(super) fn one_in(random: &mut Random, times: u64) -> bool {
    random.below(times) == 0
}

/// From `least` to `most`, each power of two as likely as another.
pub(super) fn log_uniform(random: &mut Random, least: u64, most: u64) -> u64 {
    let power = least.ilog2() + random.below(u64::from(most.ilog2() - least.ilog2()) + 1) as u32;
    let low = (1u64 << power).max(least);
    low + random.below((1u64 << power << 1).min(most + 1) - low)
}

/// From `least` to `most`.
pub(super) fn between(random: &mut Random, least: u64, most: u64) -> u64 {
    least + random.below(most - least + 1)
}

/// One of `items`.
pub(super) fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    items[random.below(items.len() as u64) as usize]
}

/// Puts items in random order (Fisher and Yates).
pub(super) fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Bytes of a request: mostly powers of two, sometimes records of an odd size.
pub(super) fn request(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => log_uniform(random, 512, 128 << 10),
        1 | 2 => 4 << 10,
        _ => 4 << 10 << random.below(6),
    }
}

/// Bytes in words.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit));
    whole.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// `1 file`, `2 files`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Nanoseconds in words.
pub(super) fn time(ns: u64) -> String {
    if ns < 1_000_000 { format!("{} us", ns / 1000) } else { format!("{} ms", ns / 1_000_000) }
}
