//! What a cache has done, for people and as JSON.

use std::collections::BTreeMap;

use bowwave_engine::backend::{DiskStats, NetworkStats};
use serde::Serialize;

use crate::lustre;
use crate::output::Output;
use crate::requests::Requests;
use crate::setup::Opened;
use crate::table::{Align, Table};
use crate::{Failure, setup};

/// The counters. Pages unless the name says otherwise.
#[derive(Debug, Serialize)]
pub(super) struct Counters {
    reads: u64,
    accesses: u64,
    hits: u64,
    late: u64,
    misses: u64,
    pages_readahead: u64,
    pages_used: u64,
    pages_wasted: u64,
    pages_thrashed: u64,
    pages_evicted: u64,
    requests: u64,
    requests_failed: u64,
    retries: u64,
    bytes_fetched: u64,
    frames_used: u64,
    frames: u64,
    /// What the policy range counts, by Lustre's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    lustre: BTreeMap<&'static str, u64>,
    store: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskCounters>,
}

/// What went over the network, reads included.
#[derive(Debug, Serialize)]
struct NetworkCounters {
    requests: u64,
    /// Attempts at lookups, listings and uploads after the first; those at reads are in `retries` above.
    retries: u64,
    timeouts: u64,
    throttled: u64,
    gave_up: u64,
    verified: u64,
    corrupt: u64,
}

impl NetworkCounters {
    fn add_to(&self, table: &mut Table) {
        for (what, count) in [
            ("requests over the network", self.requests),
            ("- lookups, listings and uploads tried again", self.retries),
            ("- too slow or silent", self.timeouts),
            ("- refused by an overloaded store", self.throttled),
            ("- given up", self.gave_up),
            ("- verified by checksum", self.verified),
            ("- damaged", self.corrupt),
        ] {
            table.row([what.to_owned(), count.to_string(), String::new()]);
        }
    }
}

impl From<NetworkStats> for NetworkCounters {
    fn from(stats: NetworkStats) -> Self {
        let NetworkStats { requests, retries, timeouts, throttled, gave_up, verified, corrupt, .. } = stats;
        Self { requests, retries, timeouts, throttled, gave_up, verified, corrupt }
    }
}

/// What the disk cache did; bytes where the name says so, else requests.
#[derive(Debug, Serialize)]
struct DiskCounters {
    hits: u64,
    misses: u64,
    timed_out: u64,
    bypassed: u64,
    bytes_read: u64,
    bytes_written: u64,
    bytes_evicted: u64,
    bytes_dropped: u64,
    damaged: u64,
    errors: u64,
}

impl From<DiskStats> for DiskCounters {
    fn from(stats: DiskStats) -> Self {
        let DiskStats {
            hits,
            misses,
            timed_out,
            bypassed,
            bytes_read,
            bytes_written,
            bytes_evicted,
            bytes_dropped,
            damaged,
            errors,
            ..
        } = stats;
        Self {
            hits,
            misses,
            timed_out,
            bypassed,
            bytes_read,
            bytes_written,
            bytes_evicted,
            bytes_dropped,
            damaged,
            errors,
        }
    }
}

impl DiskCounters {
    fn add_to(&self, table: &mut Table) {
        let size = |bytes: u64| if bytes > 0 { setup::size(bytes) } else { String::new() };
        for (what, requests, bytes) in [
            ("requests met by the disk", self.hits, self.bytes_read),
            ("- not met, then kept", self.misses, self.bytes_written),
            ("- not answered in time", self.timed_out, 0),
            ("- sent past the disk for that", self.bypassed, 0),
            ("- damaged there", self.damaged, 0),
        ] {
            table.row([what.to_owned(), requests.to_string(), size(bytes)]);
        }
        for (what, bytes) in [("- evicted there", self.bytes_evicted), ("- not kept", self.bytes_dropped)] {
            table.row([what.to_owned(), String::new(), size(bytes)]);
        }
    }
}

impl Counters {
    /// What a cache has done so far.
    pub(super) fn of(opened: &Opened) -> Self {
        let engine = &opened.engine;
        let stats = engine.stats();
        Self {
            reads: stats.cache.reads,
            accesses: stats.cache.accesses,
            hits: stats.cache.hits,
            late: stats.cache.late,
            misses: stats.cache.misses,
            pages_readahead: stats.cache.pages_readahead,
            pages_used: stats.cache.pages_used,
            pages_wasted: stats.cache.pages_wasted,
            pages_thrashed: stats.cache.pages_thrashed,
            pages_evicted: stats.cache.pages_evicted,
            requests: stats.store.requests,
            requests_failed: stats.store.requests_failed,
            retries: stats.store.retries,
            bytes_fetched: stats.store.bytes_fetched,
            frames_used: stats.frames_used,
            frames: stats.frames,
            lustre: lustre::counters(&stats.cache),
            store: Requests::of(engine),
            network: opened.store.network().map(NetworkCounters::from),
            disk: opened.store.disk().map(DiskCounters::from),
        }
    }
}

/// Prints them.
pub(super) fn print(output: &mut Output, opened: &Opened, json: bool) -> Result<(), Failure> {
    let counters = Counters::of(opened);
    let page_bytes = opened.engine.options().page_bytes;
    if json {
        return output.json_line(&counters);
    }
    let pages = |count: u64| (count.to_string(), setup::size(count * page_bytes));
    let count = |count: u64| (count.to_string(), String::new());
    let mut table = Table::new([("what", Align::Left), ("count", Align::Right), ("bytes", Align::Right)]);
    for (what, (count, bytes)) in [
        ("reads", count(counters.reads)),
        ("pages wanted", pages(counters.accesses)),
        ("- there", pages(counters.hits)),
        ("- on their way", pages(counters.late)),
        ("- missing", pages(counters.misses)),
        ("pages read ahead", pages(counters.pages_readahead)),
        ("- used", pages(counters.pages_used)),
        ("- dropped unused", pages(counters.pages_wasted)),
        ("- dropped, then wanted", pages(counters.pages_thrashed)),
        ("pages evicted", pages(counters.pages_evicted)),
        ("requests to the store", (counters.requests.to_string(), setup::size(counters.bytes_fetched))),
        ("- failed", count(counters.requests_failed)),
        ("- tried again", count(counters.retries)),
        ("- asked for again, being late", count(counters.store.hedges)),
        ("- past their deadlines", count(counters.store.late)),
        ("- most at once", count(counters.store.in_flight_max)),
        ("- most that waited", count(counters.store.waiting_max)),
        ("fills merged", count(counters.store.merged)),
        ("- promoted", count(counters.store.promoted)),
        ("- cancelled", count(counters.store.cancelled)),
        ("frames in use", pages(counters.frames_used)),
        ("frames", pages(counters.frames)),
    ] {
        table.row([what.to_owned(), count, bytes]);
    }
    counters.network.iter().for_each(|network| network.add_to(&mut table));
    counters.disk.iter().for_each(|disk| disk.add_to(&mut table));
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
