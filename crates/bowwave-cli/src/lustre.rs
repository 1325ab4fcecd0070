//! What the policy `range` counts, by Lustre's names.

use std::collections::BTreeMap;

use bowwave_core::{LustreStat, Stats};

/// Lustre's counters, as in `llite.*.read_ahead_stats`; nothing if none has counted, as under any other policy.
pub(crate) fn counters(stats: &Stats) -> BTreeMap<&'static str, u64> {
    let mut counters: BTreeMap<_, _> =
        LustreStat::ALL.into_iter().map(|stat| (stat.name(), stat.of(stats))).collect();
    if counters.values().all(|&count| count == 0) {
        return BTreeMap::new();
    }
    counters.insert("read but discarded", stats.pages_wasted + stats.pages_thrashed);
    counters.insert("readahead pages", stats.pages_readahead);
    counters
}

/// How they moved.
pub(crate) fn moved(before: &Stats, after: &Stats) -> BTreeMap<&'static str, u64> {
    let before = counters(before);
    let mut moved = counters(after);
    for (name, count) in &mut moved {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_bear_lustres_names_and_other_policies_have_none() {
        let mut stats = Stats::default();
        (stats.pages_wasted, stats.pages_thrashed) = (2, 1);
        assert!(counters(&stats).is_empty());
        stats.events[LustreStat::MmapRangeRead as usize] = 5;
        let before = stats;
        stats.events[LustreStat::MmapRangeRead as usize] = 7;
        assert_eq!(counters(&stats)["mmap range read"], 7);
        assert_eq!(counters(&stats)["read but discarded"], 3);
        assert_eq!((moved(&before, &stats)["mmap range read"], moved(&before, &stats)["misses"]), (2, 0));
    }
}
