//! Lower bounds as rows, and the regret of each run.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Eviction};
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::fast::Error;
use bowwave_sim::oracle::{Bound, Future};
use bowwave_sim::record::Row;
use bowwave_sim::replay::{ReplayOptions, ReplayPace, Workload};

/// Whether a row is a bound, not a run.
pub(super) fn is_bound(row: &Row) -> bool {
    row.policy == Bound::ORACLE || row.policy == Bound::BELADY
}

/// Adds a bound after the runs of each device and cache size, and sets each run's regret if time
/// limits it.
pub(super) fn beside(rows: Vec<Row>, workload: &Workload, options: ReplayOptions) -> Result<Vec<Row>, Error> {
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
