//! Readers that announce their reads, in order: how close they come to the store's limit.
//!
//! Random reads cannot be predicted, so readahead cannot help. Announced, they only need to keep
//! the store's connections busy: each separate range costs one TTFB, as many at once as there are
//! connections.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::Policy;

use super::workloads::{self, Workload};
use super::{Bar, Figure, Outcome, Pair, ReproduceError, device, measure};
use crate::device::{DeviceLimits, DeviceSpec};

/// Maximum time relative to the store's time for the requests alone: the reader consumes data and
/// announces more meanwhile.
const NEAR: f64 = 1.25;
/// Columns are large. The distance read ahead grows with waiting, which takes several TTFBs.
const HALF: f64 = 0.5;
/// Bytes per nanosecond of one connection.
const CONNECTION: f64 = 0.09;

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let told = |workload: &Workload| matches!(workload.id, "c" | "d" | "i" | "l");
    let workloads = workloads::all().into_iter().filter(told).chain([workloads::drawn()]);
    for workload in workloads {
        let least = seconds(&workload)?;
        let untold = measure(&workload, Policy::Stream, false)?;
        let told = measure(&workload, Policy::Stream, true)?;
        outcome.notes.push(format!(
            "{}: told beforehand {:.3} s, the requests alone {least:.3} s, untold {:.3} s; {} and {} requests",
            workload.id, told.seconds, untold.seconds, told.requests, untold.requests
        ));
        let place = ("beyond", "told beforehand");
        let row = format!("{}: {}", workload.id, workload.what);
        let ours = Pair::new(untold.seconds, told.seconds);
        let most = if workload.id == "i" { HALF * untold.seconds } else { NEAR * least };
        let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, most));
        outcome.figures.push(Figure::new(place, row, "s", Pair::default(), ours, bar).own());
        let row = format!("{}: bytes fetched for each wanted", workload.id);
        let ours = Pair::new(untold.amplification, told.amplification);
        // Rows share pages, and reads start and end within pages.
        let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, 1.05));
        outcome.figures.push(Figure::new(place, row, "", Pair::default(), ours, bar).own());
    }
    Ok(())
}

/// Seconds the store takes for separate ranges on all connections, at least the time for their
/// bytes.
fn seconds(workload: &Workload) -> Result<f64, ReproduceError> {
    let limits = DeviceSpec::open(&device(workload), &ALGORITHMS)?.limits();
    let DeviceLimits { request_ns_min, depth, .. } = limits.ok_or("the store has no limits")?;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &(offset, bytes) in workload.readers.iter().flat_map(|reader| reader.reads()) {
        match ranges.last_mut() {
            Some((start, len)) if *start + *len == offset => *len += bytes,
            _ => ranges.push((offset, bytes)),
        }
    }
    let bytes: u64 = ranges.iter().map(|range| range.1).sum();
    let rounds = (ranges.len() as u64).div_ceil(depth.into());
    let transfer = bytes as f64 / (CONNECTION * f64::from(depth));
    Ok((rounds as f64 * request_ns_min as f64 + transfer) / 1e9)
}
