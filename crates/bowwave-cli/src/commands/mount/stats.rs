//! What a cache has done, for people and as JSON.

use std::collections::BTreeMap;

use bowwave_engine::Engine;
use serde::Serialize;

use crate::lustre;
use crate::output::Output;
use crate::requests::Requests;
use crate::table::{Align, Table};
use crate::{Failure, setup};

/// The counters. Pages unless the name says otherwise.
#[derive(Debug, Serialize)]
struct Counters {
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
}

/// Prints them.
pub(super) fn print(output: &mut Output, engine: &Engine, json: bool) -> Result<(), Failure> {
    let stats = engine.stats();
    let counters = Counters {
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
    };
    if json {
        return output.json_line(&counters);
    }
    let pages = |count: u64| (count.to_string(), setup::size(count * stats.page_bytes));
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
