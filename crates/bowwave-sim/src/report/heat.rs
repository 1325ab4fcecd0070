//! Latency over time: reads by start time and latency.

use serde::Serialize;

use super::column::Column;
use crate::record::Run;

/// Columns of the time axis.
const STEPS: usize = 96;

/// Latency bands per factor of ten.
const BANDS_A_DECADE: f64 = 8.0;

/// Latencies up to this, in nanoseconds, are one band: cache hits.
const FLOOR_NS: f64 = 100.0;

/// Counts of reads by time and latency; rows from the fastest band up.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Heat {
    /// Nanoseconds of a step.
    step: f64,
    /// First nanosecond.
    from: u64,
    steps: usize,
    bands: usize,
    /// Lower ends of the bands are `floor * 10^(band / bands_a_decade)`.
    floor: f64,
    bands_a_decade: f64,
    /// Band by band.
    counts: Column,
}

impl Heat {
    /// Over all recorded reads.
    pub(super) fn of(run: &Run) -> Self {
        let reads = &run.reads;
        let (Some(&from), Some(&to)) = (reads.time_ns.first(), reads.time_ns.last()) else {
            return Self::default();
        };
        let step = ((to - from) as f64 / STEPS as f64).max(1.0);
        let bands = 1 + reads.latency_ns.iter().map(|&latency| band(latency)).max().unwrap_or(0);
        let mut counts = vec![0; STEPS * bands];
        for (&time, &latency) in reads.time_ns.iter().zip(&reads.latency_ns) {
            let column = (((time - from) as f64 / step) as usize).min(STEPS - 1);
            counts[band(latency) * STEPS + column] += 1;
        }
        Self {
            step,
            from,
            steps: STEPS,
            bands,
            floor: FLOOR_NS,
            bands_a_decade: BANDS_A_DECADE,
            counts: Column(counts),
        }
    }
}

fn band(latency_ns: u64) -> usize {
    ((latency_ns as f64 / FLOOR_NS).log10() * BANDS_A_DECADE).max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_grow_by_an_eighth_of_a_decade() {
        assert_eq!([0, 100, 1000, 1_000_000].map(band), [0, 0, 8, 32]);
    }
}
