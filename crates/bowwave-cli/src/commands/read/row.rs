//! Results of a pass.

use std::collections::BTreeMap;

use bowwave_core::Policy;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::pass::Verify;
use super::pass::{Outcome, Pass};
use super::source::Mapper;
use crate::requests;
use crate::requests::Requests;
use crate::setup;
use crate::table::{Align, Keep, Table};
use crate::values::{self, time};

/// Results of a pass. `accesses`, `hits`, `late` and `misses` count pages.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) policy: &'static str,
    pub(super) device: String,
    pub(super) pattern: String,
    pub(super) threads: usize,
    /// Whether the readers announced their reads.
    pub(super) plan: bool,
    /// Bytes of a read.
    pub(super) bs: u64,
    pub(super) page_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) ra_pages: u32,
    /// Counts from 1; later passes find a warm cache.
    pub(super) pass: u32,
    pub(super) seconds: f64,
    /// Bytes a second.
    pub(super) throughput: f64,
    pub(super) reads: u64,
    pub(super) accesses: u64,
    pub(super) hits: u64,
    pub(super) late: u64,
    pub(super) misses: u64,
    pub(super) requests: u64,
    pub(super) requests_failed: u64,
    pub(super) bytes_fetched: u64,
    pub(super) bytes_wanted: u64,
    /// Bytes fetched per byte requested.
    pub(super) amplification: f64,
    pub(super) pages_readahead: u64,
    pub(super) pages_wasted: u64,
    pub(super) pages_thrashed: u64,
    pub(super) avg_io_bytes: u64,
    pub(super) latency_ns: Latency,
    /// Counters of the policy range, by Lustre's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lustre: BTreeMap<&'static str, u64>,
    /// Results of mapped files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) map: Option<MapRow>,
    /// Whether every byte was verified.
    pub(super) verified: bool,
    /// Of the bytes in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    /// Whether it was interrupted.
    pub(super) interrupted: bool,
    /// Request statistics of the store.
    pub(super) store: Requests,
}

/// Results of mapped files. `touches` and `faults` count pages of the machine; `pages_mapped` and
/// `pages_unmapped`, pages of the cache.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MapRow {
    /// What maps the files.
    pub(super) by: String,
    /// Page touches, repeated ones included.
    pub(super) touches: u64,
    /// Touches of pages that were not mapped.
    pub(super) faults: u64,
    /// Latency of faults; `latency_ns` covers all touches.
    pub(super) fault_ns: Latency,
    pub(super) pages_mapped: u64,
    pub(super) pages_unmapped: u64,
}

/// Latency of single reads or page touches, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) mean: u64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl Row {
    /// The results of pass `number`.
    pub(super) fn of(policy: Policy, pass: &Pass<'_>, number: u32, outcome: Outcome) -> Self {
        let (before, after) = outcome.stats;
        let requests = after.store.requests - before.store.requests;
        let bytes_fetched = after.store.bytes_fetched - before.store.bytes_fetched;
        let seconds = outcome.elapsed.as_secs_f64();
        let options = pass.opened.engine.options();
        let mapper = pass.source.mapper;
        Self {
            policy: if mapper == Some(Mapper::Kernel) { "kernel" } else { policy.name() },
            device: pass.opened.store.profile().kind,
            pattern: values::name(&pass.shape.pattern),
            threads: pass.threads,
            plan: pass.plan,
            bs: pass.shape.block,
            page_bytes: options.page_bytes,
            cache_bytes: options.cache_bytes.expect("set when it was opened"),
            ra_pages: options.ra_pages,
            pass: number,
            seconds,
            throughput: ratio(outcome.bytes as f64, seconds),
            reads: after.cache.reads - before.cache.reads,
            accesses: after.cache.accesses - before.cache.accesses,
            hits: after.cache.hits - before.cache.hits,
            late: after.cache.late - before.cache.late,
            misses: after.cache.misses - before.cache.misses,
            requests,
            requests_failed: after.store.requests_failed - before.store.requests_failed,
            bytes_fetched,
            bytes_wanted: outcome.bytes,
            amplification: ratio(bytes_fetched as f64, outcome.bytes as f64),
            pages_readahead: after.cache.pages_readahead - before.cache.pages_readahead,
            pages_wasted: after.cache.pages_wasted - before.cache.pages_wasted,
            pages_thrashed: after.cache.pages_thrashed - before.cache.pages_thrashed,
            avg_io_bytes: bytes_fetched.checked_div(requests).unwrap_or(0),
            latency_ns: Latency::of(&outcome.times.waits),
            lustre: requests::moved(policy, &before.cache, &after.cache),
            map: outcome.mapped.map(|(before, after)| MapRow {
                by: mapper.as_ref().map(values::name).unwrap_or_default(),
                touches: outcome.times.waits.len(),
                faults: outcome.times.faults.len(),
                fault_ns: Latency::of(&outcome.times.faults),
                pages_mapped: after.pages_mapped - before.pages_mapped,
                pages_unmapped: after.pages_unmapped - before.pages_unmapped,
            }),
            verified: *pass.verify != Verify::No,
            sha256: outcome.digest,
            interrupted: outcome.interrupted,
            store: outcome.requests,
        }
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            mean: histogram.mean().round() as u64,
            p50: histogram.value_at_quantile(0.50),
            p90: histogram.value_at_quantile(0.90),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        }
    }
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mapped = rows.iter().any(|row| row.map.is_some());
    let mut columns = vec![
        ("policy", Align::Left, Keep::Always),
        ("pass", Align::Left, Keep::Varying),
        ("seconds", Align::Right, Keep::Always),
        ("throughput", Align::Right, Keep::Always),
        ("hits", Align::Right, Keep::Rank(5)),
        ("late", Align::Right, Keep::Rank(4)),
        ("misses", Align::Right, Keep::Rank(1)),
        ("requests", Align::Right, Keep::Rank(2)),
        ("avg request", Align::Right, Keep::Rank(7)),
        ("fetched/wanted", Align::Right, Keep::Always),
        (if mapped { "a touch" } else { "mean" }, Align::Right, Keep::Rank(6)),
    ];
    if mapped {
        columns.extend([("faults", Align::Right, Keep::Rank(3)), ("a fault", Align::Right, Keep::Rank(6))]);
    }
    columns.extend([
        ("p50", Align::Right, Keep::Rank(8)),
        ("p99", Align::Right, Keep::Rank(3)),
        ("max", Align::Right, Keep::Rank(6)),
    ]);
    let mut table = Table::new(columns);
    for row in rows {
        let share = |pages: u64| format!("{:.1} %", 100.0 * ratio(pages as f64, row.accesses as f64));
        let mut cells = vec![
            row.policy.to_owned(),
            if row.pass == 1 { "cold".to_owned() } else { format!("warm {}", row.pass) },
            format!("{:.3}", row.seconds),
            rate(row.throughput),
            share(row.hits),
            share(row.late),
            share(row.misses),
            row.requests.to_string(),
            setup::size(row.avg_io_bytes),
            format!("{:.2}", row.amplification),
            time(row.latency_ns.mean),
        ];
        let mut of = row.latency_ns;
        if let Some(map) = &row.map {
            cells.extend([map.faults.to_string(), time(map.fault_ns.mean)]);
            of = map.fault_ns;
        }
        cells.extend([of.p50, of.p99, of.max].map(time));
        table.row(cells);
    }
    table
}

/// Bytes per second in powers of ten, as disks and networks are sold.
pub(crate) fn rate(bytes_a_second: f64) -> String {
    if bytes_a_second >= 999.5e6 {
        format!("{:.2} GB/s", bytes_a_second / 1e9)
    } else if bytes_a_second >= 9.95e6 {
        format!("{:.0} MB/s", bytes_a_second / 1e6)
    } else {
        format!("{:.2} MB/s", bytes_a_second / 1e6)
    }
}

/// 0 if the divisor is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_their_digits() {
        assert_eq!([4.2e6, 85e6, 2.5e9].map(rate), ["4.20 MB/s", "85 MB/s", "2.50 GB/s"]);
    }
}
