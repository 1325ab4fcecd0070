//! Counters of the policy `range`, by Lustre's names.

use std::collections::BTreeMap;

use bowwave_core::{Policy, Stats};

/// Lustre's counters, as in `llite.*.read_ahead_stats`; empty under a policy without counters, or
/// before the first event.
pub(crate) fn counters(policy: Policy, stats: &Stats) -> BTreeMap<&'static str, u64> {
    let names = policy.counters().iter().copied();
    let mut counters: BTreeMap<_, _> = names.zip((0..).map(|number| stats.counter(number))).collect();
    if counters.values().all(|&count| count == 0) {
        return BTreeMap::new();
    }
    counters.insert("read but discarded", stats.pages_wasted + stats.pages_thrashed);
    counters.insert("readahead pages", stats.pages_readahead);
    counters
}

/// The difference of the counters.
pub(crate) fn moved(policy: Policy, before: &Stats, after: &Stats) -> BTreeMap<&'static str, u64> {
    let before = counters(policy, before);
    let mut moved = counters(policy, after);
    for (name, count) in &mut moved {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    moved
}

#[cfg(test)]
mod tests {
    use bowwave_core::{Cache, Config, FileId, HandleId, Instant, PageAccess, PageCount, PageRange};

    use super::*;

    #[test]
    fn range_counts_by_lustres_names_and_other_policies_count_nothing() {
        let count = |policy| {
            let mut cache = Cache::new(Config { policy, ..Config::default() }).unwrap();
            cache.open_file(FileId(0), PageCount(5000));
            cache.open_handle(HandleId(0), FileId(0));
            let mut read = |page| {
                let page = PageRange::new(page, page + 1);
                cache.access_instant(Instant(0), PageAccess::read(HandleId(0), page), &mut ()).unwrap();
                cache.stats()
            };
            let (nothing, before) = (Stats::default(), read(0));
            let after = (1..100).map(&mut read).last().unwrap();
            let total = counters(policy, &after);
            assert_eq!(total, moved(policy, &nothing, &after));
            let moved = moved(policy, &before, &after);
            (moved, total, after)
        };
        let (moved, total, stats) = count(Policy::Range);
        assert_eq!((moved["misses"], total["misses"]), (stats.misses - 1, stats.misses));
        assert!(moved["hits"] > 0 && total["readahead pages"] == stats.pages_readahead);
        let (moved, total, _) = count(Policy::Stream);
        assert!(moved.is_empty() && total.is_empty());
    }
}
