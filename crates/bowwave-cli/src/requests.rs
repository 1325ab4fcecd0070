//! What became of the requests to a store, for people and as JSON.

use std::collections::BTreeMap;

use bowwave_core::schedule::Reason;
use bowwave_engine::{Engine, Latencies, Spread, StoreStats, Work};
use serde::Serialize;

use crate::table::{Align, Table};
use crate::values;

/// How the scheduler before a store worked, and how long its requests waited and took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Requests {
    /// The algorithm.
    pub(crate) scheduler: &'static str,
    /// Most requests at the store at once.
    pub(crate) in_flight_max: u64,
    /// Most requests that waited at once.
    pub(crate) waiting_max: u64,
    /// Requests at the store, that one included, whenever one was sent.
    pub(crate) in_flight_mean: f64,
    /// Requests that waited then.
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
    /// Requests by the reason for their turn.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// By work; only what there was.
    pub(crate) latency_ns: BTreeMap<&'static str, Times>,
}

/// Times of one kind of work.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Times {
    /// Waiting to be sent.
    pub(crate) queue: Quantiles,
    /// From then until the bytes were there, or written.
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
pub(crate) struct Look {
    store: StoreStats,
    latencies: Latencies,
}

impl Look {
    /// At an engine now.
    pub(crate) fn at(engine: &Engine) -> Self {
        Self { store: engine.stats().store, latencies: engine.latencies() }
    }
}

impl Requests {
    /// Since the engine's beginning.
    pub(crate) fn of(engine: &Engine) -> Self {
        let Look { store, latencies } = Look::at(engine);
        Self::new(engine, &store, &StoreStats::default(), &latencies)
    }

    /// Since an earlier look at the same engine; what is the most there was is of all time.
    pub(crate) fn since(engine: &Engine, before: &Look) -> Self {
        let Look { store, latencies } = Look::at(engine);
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

    /// The times for people: a row each for waiting and for taking; none if there were no requests.
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
