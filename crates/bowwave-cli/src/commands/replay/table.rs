//! The rows of a replay, as text and CSV.

use std::fmt::Write;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Eviction};
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::oracle::{Bound, Future};
use bowwave_sim::record::Row;
use bowwave_sim::replay::{ReplayOptions, ReplayPace, Workload};
use bowwave_trace::Error;

use crate::table::{Align, Keep, Table};

/// For people.
pub(super) fn text(rows: &[Row]) -> Table {
    let regret = rows.iter().any(|row| row.regret.is_some());
    let columns = [
        ("device", Align::Left, Keep::Always),
        ("cache", Align::Right, Keep::Varying),
        ("ra_pages", Align::Right, Keep::Varying),
        ("policy", Align::Left, Keep::Always),
        ("seconds", Align::Right, Keep::Always),
        ("regret", Align::Right, Keep::Rank(1)),
        ("hits", Align::Right, Keep::Rank(5)),
        ("late", Align::Right, Keep::Rank(4)),
        ("misses", Align::Right, Keep::Always),
        ("miss ratio", Align::Right, Keep::Rank(10)),
        ("requests", Align::Right, Keep::Rank(2)),
        ("avg KiB", Align::Right, Keep::Rank(8)),
        ("fetched/wanted", Align::Right, Keep::Always),
        ("wasted", Align::Right, Keep::Rank(7)),
        ("thrashed", Align::Right, Keep::Rank(6)),
        ("busy", Align::Right, Keep::Rank(11)),
        ("p50", Align::Right, Keep::Rank(12)),
        ("p99", Align::Right, Keep::Rank(3)),
        ("max", Align::Right, Keep::Rank(9)),
    ];
    let shown = |column: &&(&str, Align, Keep)| regret || column.0 != "regret";
    let mut table = Table::new(columns.iter().filter(shown).copied());
    for row in rows {
        let cells = cells(row);
        table.row(columns.iter().zip(cells).filter(|(column, _)| shown(column)).map(|(_, cell)| cell));
    }
    table
}

/// The cells of a row; a bound leaves out what only runs have.
fn cells(row: &Row) -> [String; 19] {
    let ran = |cell: String| if is_bound(row) { "-".to_owned() } else { cell };
    let policy = match eviction(row) {
        Some(eviction) => format!("{}, {eviction}", row.policy),
        None => row.policy.clone(),
    };
    [
        row.place(),
        row.cache_bytes.map_or_else(|| "unlimited".to_owned(), size),
        ran(row.ra_pages.to_string()),
        policy,
        format!("{:.4}", row.seconds),
        row.regret.map_or_else(|| "-".to_owned(), |regret| format!("{regret:.2}")),
        row.hits.to_string(),
        ran(row.late.to_string()),
        row.misses.to_string(),
        format!("{:.4}", if row.accesses == 0 { 0.0 } else { row.misses as f64 / row.accesses as f64 }),
        row.requests.to_string(),
        format!("{:.1}", row.avg_io_bytes / 1024.0),
        format!("{:.3}", row.amplification),
        ran(row.pages_wasted.to_string()),
        ran(row.pages_thrashed.to_string()),
        ran(format!("{:.0} %", row.utilisation * 100.0)),
        ran(time(row.latency_ns.p50)),
        ran(time(row.latency_ns.p99)),
        ran(time(row.latency_ns.max)),
    ]
}

/// As CSV: a heading and one line per row.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = "policy,eviction,device,scheduler,workload,cache_bytes,ra_pages,seed,seconds,accesses,hits,late,misses,requests,\
                    bytes_fetched,bytes_wanted,amplification,pages_used,pages_wasted,pages_thrashed,avg_io_bytes,\
                    utilisation,latency_ns_p50,latency_ns_p90,latency_ns_p99,latency_ns_max,regret\n"
        .to_owned();
    for row in rows {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let cache = row.cache_bytes.map_or_else(String::new, |bytes| bytes.to_string());
        let latency = row.latency_ns;
        let line = [
            row.policy.clone(),
            row.eviction.clone(),
            quoted(&row.device),
            quoted(&row.scheduler),
            quoted(&row.workload),
            cache,
            row.ra_pages.to_string(),
            row.seed.to_string(),
            row.seconds.to_string(),
            row.accesses.to_string(),
            row.hits.to_string(),
            row.late.to_string(),
            row.misses.to_string(),
            row.requests.to_string(),
            row.bytes_fetched.to_string(),
            row.bytes_wanted.to_string(),
            row.amplification.to_string(),
            row.pages_used.to_string(),
            row.pages_wasted.to_string(),
            row.pages_thrashed.to_string(),
            row.avg_io_bytes.to_string(),
            row.utilisation.to_string(),
            latency.p50.to_string(),
            latency.p90.to_string(),
            latency.p99.to_string(),
            latency.max.to_string(),
            row.regret.map_or_else(String::new, |regret| regret.to_string()),
        ];
        // Writing to a string does not fail.
        let _never_fails = writeln!(text, "{}", line.join(","));
    }
    text
}

/// Bytes in the largest unit that leaves a whole number.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit));
    whole.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// Nanoseconds in a unit with few digits.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

/// Whether a row is a bound, not a run.
pub(super) fn is_bound(row: &Row) -> bool {
    row.policy == Bound::ORACLE || row.policy == Bound::BELADY
}

/// Adds a bound after the runs of each device and cache size, and sets each run's regret if time
/// limits it.
pub(super) fn with_bounds(
    rows: Vec<Row>,
    workload: &Workload,
    options: ReplayOptions,
) -> Result<Vec<Row>, Error> {
    let page_size = Config::default().page_size;
    let future = Future::of(workload.trace(), page_size, options.writes)?;
    let mut all: Vec<Row> = Vec::new();
    let mut rows = rows.into_iter().peekable();
    while let Some(first) = rows.next() {
        let same = |row: &Row| (row.place(), row.cache_bytes);
        let place = same(&first);
        let mut group = vec![first];
        while let Some(row) = rows.next_if(|row| same(row) == place) {
            group.push(row);
        }
        let bytes = place.1.unwrap_or(u64::MAX) / page_size.bytes();
        let frames = u32::try_from(bytes).unwrap_or(Config::UNLIMITED).clamp(1, Config::UNLIMITED);
        let bound = future.bound(frames);
        // The devices were opened before the runs were.
        let limits = DeviceSpec::open(&group[0].device, &ALGORITHMS).ok().and_then(|device| device.limits());
        let mut best = limits.map_or_else(|| bound.belady(), |limits| bound.oracle(&limits));
        best.cache_bytes = place.1;
        if let Some(row) = group.first() {
            best.device.clone_from(&row.device);
            best.scheduler.clone_from(&row.scheduler);
            best.bytes_wanted = row.bytes_wanted;
            best.amplification =
                if row.bytes_wanted == 0 { 0.0 } else { best.bytes_fetched as f64 / row.bytes_wanted as f64 };
        }
        // At the trace's own pace, the trace sets the duration.
        if limits.is_some() && options.pace == ReplayPace::Closed && best.seconds > 0.0 {
            for row in &mut group {
                row.regret = Some(row.seconds / best.seconds);
            }
            best.regret = Some(1.0);
        }
        all.append(&mut group);
        all.push(best);
    }
    Ok(all)
}

/// Name of an eviction in a table; `None` for the default.
pub(super) fn eviction(row: &Row) -> Option<&str> {
    Some(row.eviction.as_str()).filter(|name| *name != Eviction::TwoList.name() && !is_bound(row))
}
