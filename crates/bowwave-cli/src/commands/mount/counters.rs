//! Counters of a cache, as text and JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_engine::EngineStats;
use bowwave_engine::backend::{DiskStats, NetworkStats};
use log::{debug, error, info, warn};
use serde::{Serialize, Serializer};

use crate::logging::{CACHE, STORE};
use crate::mounted::Calls;
use crate::output::Output;
use crate::requests::Requests;
use crate::setup::Opened;
use crate::table::{Align, Table};
use crate::{Failure, requests, setup};

/// The counters as JSON. Pages unless the name says otherwise.
#[derive(Debug, Serialize)]
pub(super) struct Counters {
    #[serde(flatten)]
    cache: Counts,
    /// Counters of the policy range, by Lustre's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    lustre: BTreeMap<&'static str, u64>,
    store: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Counts>,
}

/// A JSON member (or empty), a table row (or empty), the count, and its bytes.
type Counter = (&'static str, &'static str, u64, Option<u64>);

/// Counters in the order of JSON and table.
#[derive(Debug)]
struct Counts(Vec<Counter>);

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.0.iter().filter(|counter| !counter.0.is_empty());
        serializer.collect_map(members.map(|&(name, _, count, _)| (name, count)))
    }
}

impl Counts {
    fn of_cache(stats: &EngineStats, requests: &Requests) -> Self {
        let (cache, store) = (&stats.cache, &stats.store);
        let pages = |name, row, count| (name, row, count, Some(count * stats.page_bytes));
        Self(vec![
            ("reads", "reads", cache.reads, None),
            pages("accesses", "pages requested", cache.accesses),
            pages("hits", "- cached", cache.hits),
            pages("late", "- in flight", cache.late),
            pages("misses", "- missing", cache.misses),
            pages("pages_readahead", "pages read ahead", cache.pages_readahead),
            pages("pages_used", "- used", cache.pages_used),
            pages("pages_wasted", "- dropped unused", cache.pages_wasted),
            pages("pages_thrashed", "- dropped, then requested", cache.pages_thrashed),
            pages("pages_evicted", "pages evicted", cache.pages_evicted),
            ("requests", "requests to the store", store.requests, Some(store.bytes_fetched)),
            ("requests_failed", "- failed", store.requests_failed, None),
            ("retries", "- retried", store.retries, None),
            ("bytes_fetched", "", store.bytes_fetched, None),
            ("", "- hedged", requests.hedges, None),
            ("", "- past their deadlines", requests.late, None),
            ("", "- in flight, maximum", requests.in_flight_max, None),
            ("", "- waiting, maximum", requests.waiting_max, None),
            ("", "fills merged", requests.merged, None),
            ("", "- promoted", requests.promoted, None),
            ("", "- cancelled", requests.cancelled, None),
            pages("frames_used", "frames in use", stats.frames_used),
            pages("frames", "frames", stats.frames),
        ])
    }

    /// Network counters, including reads.
    fn of_network(stats: NetworkStats) -> Self {
        Self(vec![
            ("requests", "requests over the network", stats.requests, None),
            // After the first attempt; retries of reads are in the cache's counters.
            ("retries", "- lookups, listings and uploads retried", stats.retries, None),
            ("timeouts", "- too slow or silent", stats.timeouts, None),
            ("throttled", "- refused by an overloaded store", stats.throttled, None),
            ("gave_up", "- failed for good", stats.gave_up, None),
            ("verified", "- verified by checksum", stats.verified, None),
            ("corrupt", "- damaged", stats.corrupt, None),
        ])
    }

    /// Disk cache counters: requests, or bytes if named so.
    fn of_disk(stats: DiskStats) -> Self {
        Self(vec![
            ("hits", "requests served by the disk", stats.hits, Some(stats.bytes_read)),
            ("misses", "- not there, then stored", stats.misses, Some(stats.bytes_written)),
            ("timed_out", "- timed out", stats.timed_out, Some(0)),
            ("bypassed", "- bypassed for that", stats.bypassed, Some(0)),
            ("bytes_read", "", stats.bytes_read, None),
            ("bytes_written", "", stats.bytes_written, None),
            ("bytes_evicted", "", stats.bytes_evicted, None),
            ("bytes_dropped", "", stats.bytes_dropped, None),
            ("damaged", "- damaged", stats.damaged, Some(0)),
            ("errors", "", stats.errors, None),
        ])
    }

    fn add_to(&self, table: &mut Table, size: impl Fn(u64) -> String) {
        for &(_, row, count, bytes) in self.0.iter().filter(|counter| !counter.1.is_empty()) {
            table.row([row.to_owned(), count.to_string(), bytes.map_or_else(String::new, &size)]);
        }
    }
}

impl Counters {
    /// The current counters of a cache.
    pub(super) fn of(opened: &Opened) -> Self {
        let (stats, store) = (opened.engine.stats(), Requests::of(&opened.engine));
        Self {
            cache: Counts::of_cache(&stats, &store),
            lustre: requests::counters(opened.engine.options().policy, &stats.cache),
            store,
            network: opened.store.backend().network().map(Counts::of_network),
            disk: opened.store.backend().disk().map(Counts::of_disk),
        }
    }
}

/// Prints them.
pub(super) fn print(output: &mut Output, opened: &Opened, json: bool) -> Result<(), Failure> {
    let counters = Counters::of(opened);
    if json {
        return output.json_line(&counters);
    }
    let mut table = Table::new([("what", Align::Left), ("count", Align::Right), ("bytes", Align::Right)]);
    counters.cache.add_to(&mut table, setup::size);
    counters.network.iter().for_each(|network| network.add_to(&mut table, setup::size));
    if let (Some(disk), Some(stats)) = (&counters.disk, opened.store.backend().disk()) {
        let size = |bytes: u64| if bytes > 0 { setup::size(bytes) } else { String::new() };
        disk.add_to(&mut table, size);
        for (what, bytes) in [("- evicted there", stats.bytes_evicted), ("- not kept", stats.bytes_dropped)] {
            table.row([what.to_owned(), String::new(), size(bytes)]);
        }
    }
    output.line(table.to_string().trim_end())?;
    if !counters.lustre.is_empty() {
        let mut table = Table::new([("Lustre's counters", Align::Left), ("count", Align::Right)]);
        for (name, count) in &counters.lustre {
            table.row([(*name).to_owned(), count.to_string()]);
        }
        output.line(format_args!("\n{}", table.to_string().trim_end()))?;
    }
    let times = counters.store.table().map(|table| table.to_string());
    times.map_or(Ok(()), |times| output.line(format_args!("\n{}", times.trim_end())))
}

/// Runs until dropped, and then logs the rest.
pub(super) struct Monitor {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    pub(super) fn start(opened: Arc<Opened>, calls: Arc<Calls>) -> Self {
        let (end, ended) = sync_channel::<()>(0);
        let thread = thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            let mut before = Sample::of(&opened);
            loop {
                let is_last = ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                calls.flush(is_last);
                let now = Sample::of(&opened);
                now.log_since(&before);
                before = now;
                if is_last {
                    return;
                }
            }
        });
        // Without the thread only these lines are missing.
        Self { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct Sample {
    engine: EngineStats,
    network: NetworkStats,
}

impl Sample {
    fn of(opened: &Opened) -> Self {
        Self { engine: opened.engine.stats(), network: opened.store.backend().network().unwrap_or_default() }
    }

    fn log_since(&self, before: &Self) {
        let (store, cache, network) = (&self.engine.store, &self.engine.cache, &self.network);
        let (store_before, cache_before) = (&before.engine.store, &before.engine.cache);
        let lost = list([
            (store.pages_lost - store_before.pages_lost, "pages"),
            (store.objects_lost - store_before.objects_lost, "objects"),
        ]);
        if let Some(lost) = lost {
            error!(target: STORE, "the store refused what was written, which is lost: {lost}");
        }
        let bad = list([
            (network.gave_up - before.network.gave_up, "requests failed for good"),
            (network.corrupt - before.network.corrupt, "responses with a wrong checksum"),
        ]);
        if let Some(bad) = bad {
            warn!(target: STORE, "{bad}");
        }
        let trouble = list([
            (store.requests_failed - store_before.requests_failed, "requests failed"),
            (store.retries - store_before.retries + network.retries - before.network.retries, "retries"),
            (network.timeouts - before.network.timeouts, "timeouts"),
            (network.throttled - before.network.throttled, "responses of an overloaded store (429, 503)"),
            (store.hedges - store_before.hedges, "late reads sent again"),
        ]);
        if let Some(trouble) = trouble {
            info!(target: STORE, "{trouble}");
        }
        let reclaim = list([
            (cache.pages_evicted - cache_before.pages_evicted, "pages evicted"),
            (cache.pages_wasted - cache_before.pages_wasted, "of them read ahead and never used"),
            (cache.pages_thrashed - cache_before.pages_thrashed, "of them read again since"),
            (cache.writes_throttled - cache_before.writes_throttled, "writes waited for dirty pages"),
        ]);
        if let Some(reclaim) = reclaim {
            debug!(target: CACHE, "{reclaim}");
        }
    }
}

/// The nonzero counts, if any.
fn list<const N: usize>(counts: [(u64, &str); N]) -> Option<String> {
    let some: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!some.is_empty()).then(|| some.join(", "))
}

/// Interval of checks.
const EVERY: Duration = Duration::from_secs(10);
