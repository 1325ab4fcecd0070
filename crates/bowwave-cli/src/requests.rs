//! Counters and times of the requests to a store, as a table and as JSON.

use std::collections::BTreeMap;

use bowwave_core::schedule::Reason;
use bowwave_core::{Policy, Stats};
use bowwave_engine::{Engine, Latencies, Spread, StoreStats, Work};
use serde::Serialize;

use crate::table::{Align, Table};
use crate::values;

/// How the scheduler before a store worked, and how long its requests waited and took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Requests {
    /// The algorithm.
    pub(crate) scheduler: &'static str,
    /// Maximum requests in flight.
    pub(crate) in_flight_max: u64,
    /// Maximum requests that waited.
    pub(crate) waiting_max: u64,
    /// Mean requests in flight when one was sent, including that one.
    pub(crate) in_flight_mean: f64,
    /// Mean requests that waited when one was sent.
    pub(crate) waiting_mean: f64,
    /// Fills and write-outs that became part of a request that waited.
    pub(crate) merged: u64,
    /// Speculative requests that became demand requests before they were sent.
    pub(crate) promoted: u64,
    /// Fills that were dropped before they were sent.
    pub(crate) cancelled: u64,
    /// Requests sent past their deadlines.
    pub(crate) late: u64,
    /// Late reads that were sent a second time, and how many second responses came first.
    pub(crate) hedges: u64,
    /// See `hedges`.
    pub(crate) hedges_won: u64,
    /// Requests by the reason for their dispatch.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// By kind of work; kinds without requests are left out.
    pub(crate) latency_ns: BTreeMap<&'static str, Times>,
}

/// Times of one kind of work.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Times {
    /// Waiting to be sent.
    pub(crate) queue: Quantiles,
    /// From then until the bytes had arrived, or were written.
    pub(crate) device: Quantiles,
}

/// A distribution, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Quantiles {
    count: u64,
    mean: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// Counters and times at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    store: StoreStats,
    latencies: Latencies,
}

impl Snapshot {
    /// Of an engine, now.
    pub(crate) fn of(engine: &Engine) -> Self {
        Self { store: engine.stats().store, latencies: engine.latencies() }
    }
}

impl Requests {
    /// Since the engine's beginning.
    pub(crate) fn of(engine: &Engine) -> Self {
        let Snapshot { store, latencies } = Snapshot::of(engine);
        Self::new(engine, &store, &StoreStats::default(), &latencies)
    }

    /// Since an earlier snapshot of the same engine; maxima are of all time.
    pub(crate) fn since(engine: &Engine, before: &Snapshot) -> Self {
        let Snapshot { store, latencies } = Snapshot::of(engine);
        Self::new(engine, &store, &before.store, &latencies.since(&before.latencies))
    }

    fn new(engine: &Engine, store: &StoreStats, before: &StoreStats, latencies: &Latencies) -> Self {
        let now = &store.scheduler;
        let sent = now.dispatches() - before.scheduler.dispatches();
        let mean = |total: u64| if sent > 0 { total as f64 / sent as f64 } else { 0.0 };
        let reasons = Reason::ALL.map(|reason| {
            (reason.name(), now.dispatched_for(reason) - before.scheduler.dispatched_for(reason))
        });
        let times = Work::ALL.map(|work| {
            let times = Times {
                queue: Quantiles::of(latencies.queue(work)),
                device: Quantiles::of(latencies.device(work)),
            };
            (work.name(), times)
        });
        Self {
            scheduler: engine.options().scheduler.name(),
            in_flight_max: store.in_flight_max,
            waiting_max: store.waiting_max,
            in_flight_mean: mean(store.in_flight_total - before.in_flight_total),
            waiting_mean: mean(store.waiting_total - before.waiting_total),
            merged: now.merged - before.scheduler.merged,
            promoted: now.promoted - before.scheduler.promoted,
            cancelled: now.cancelled - before.scheduler.cancelled,
            late: now.late - before.scheduler.late,
            hedges: store.hedges - before.hedges,
            hedges_won: store.hedges_won - before.hedges_won,
            reasons: reasons.into_iter().filter(|reason| reason.1 > 0).collect(),
            latency_ns: times.into_iter().filter(|(_, times)| times.queue.count > 0).collect(),
        }
    }

    /// The times as a table: a row for waiting and one for service; none without requests.
    pub(crate) fn table(&self) -> Option<Table> {
        let columns = ["mean", "p50", "p90", "p99", "p99.9", "max"].map(|name| (name, Align::Right));
        let head = [("requests", Align::Left), ("count", Align::Right)];
        let mut table = Table::new(head.into_iter().chain(columns));
        for (name, times) in &self.latency_ns {
            for (phase, it) in [("waited", times.queue), ("took", times.device)] {
                let figures = [it.mean, it.p50, it.p90, it.p99, it.p999, it.max].map(values::time);
                let name = format!("{} {phase}", name.replace('_', " "));
                table.row([name, it.count.to_string()].into_iter().chain(figures));
            }
        }
        (!self.latency_ns.is_empty()).then_some(table)
    }
}

impl Quantiles {
    fn of(spread: Spread) -> Self {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Spread { count, mean, p50, p90, p99, p999, max } = spread;
        let [mean, p50, p90, p99, p999, max] = [mean, p50, p90, p99, p999, max].map(ns);
        Self { count, mean, p50, p90, p99, p999, max }
    }
}

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
