//! Counters of a cache, as text and JSON.

use std::collections::BTreeMap;

use bowwave_engine::EngineStats;
use bowwave_engine::backend::{DiskStats, NetworkStats};
use serde::{Serialize, Serializer};

use crate::output::Output;
use crate::requests::Requests;
use crate::setup::Opened;
use crate::table::{Align, Table};
use crate::{Failure, lustre, setup};

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
            pages("accesses", "pages wanted", cache.accesses),
            pages("hits", "- there", cache.hits),
            pages("late", "- on their way", cache.late),
            pages("misses", "- missing", cache.misses),
            pages("pages_readahead", "pages read ahead", cache.pages_readahead),
            pages("pages_used", "- used", cache.pages_used),
            pages("pages_wasted", "- dropped unused", cache.pages_wasted),
            pages("pages_thrashed", "- dropped, then wanted", cache.pages_thrashed),
            pages("pages_evicted", "pages evicted", cache.pages_evicted),
            ("requests", "requests to the store", store.requests, Some(store.bytes_fetched)),
            ("requests_failed", "- failed", store.requests_failed, None),
            ("retries", "- tried again", store.retries, None),
            ("bytes_fetched", "", store.bytes_fetched, None),
            ("", "- asked for again, being late", requests.hedges, None),
            ("", "- past their deadlines", requests.late, None),
            ("", "- most at once", requests.in_flight_max, None),
            ("", "- most that waited", requests.waiting_max, None),
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
            ("retries", "- lookups, listings and uploads tried again", stats.retries, None),
            ("timeouts", "- too slow or silent", stats.timeouts, None),
            ("throttled", "- refused by an overloaded store", stats.throttled, None),
            ("gave_up", "- given up", stats.gave_up, None),
            ("verified", "- verified by checksum", stats.verified, None),
            ("corrupt", "- damaged", stats.corrupt, None),
        ])
    }

    /// Disk cache counters: requests, or bytes if named so.
    fn of_disk(stats: DiskStats) -> Self {
        Self(vec![
            ("hits", "requests met by the disk", stats.hits, Some(stats.bytes_read)),
            ("misses", "- not met, then kept", stats.misses, Some(stats.bytes_written)),
            ("timed_out", "- not answered in time", stats.timed_out, Some(0)),
            ("bypassed", "- sent past the disk for that", stats.bypassed, Some(0)),
            ("bytes_read", "", stats.bytes_read, None),
            ("bytes_written", "", stats.bytes_written, None),
            ("bytes_evicted", "", stats.bytes_evicted, None),
            ("bytes_dropped", "", stats.bytes_dropped, None),
            ("damaged", "- damaged there", stats.damaged, Some(0)),
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
            lustre: lustre::counters(opened.engine.options().policy, &stats.cache),
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
