//! The effect of each constant and each detector of the policy `stream`.
//!
//! Changes one of them at a time. Runs the twelve workloads on an object store, and again on a disk
//! under memory pressure. Then replays patterns of the family, and the traces.

use std::path::Path;

use bowwave_core::{Detector, Policy, Tuning, set_tuning};

use super::{RA_PAGES, ReproduceError, STORE, machine, measure, workloads};
use crate::parallel;
use crate::record::Row;
use crate::regret;
use crate::replay::{self, ReplayOptions};

/// The second device, and its cache in bytes: 64 windows, for 1 to 64 readers.
const DISK: (&str, u64) = ("hdd", 64 << 20);

/// Patterns of the family, on the devices and in the memory sizes of `regret`.
const SEEDS: std::ops::Range<u64> = 0..200;

/// One workload under a variant.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Letter of the workload and device, `family` for the geometric means over its points, or name
    /// of the trace.
    pub workload: String,
    /// Simulated seconds.
    pub seconds: f64,
    /// Bytes fetched per byte read.
    pub amplification: f64,
}

/// All workloads under one variant.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The changed constant and its value, the disabled detector, or "as it is".
    pub name: String,
    /// In the order of the workloads.
    pub measured: Vec<Measured>,
}

/// Measures all workloads with the default constants, with each constant halved and doubled, and
/// with each detector off. Calls `report` after each variant, the baseline first.
///
/// # Errors
///
/// An unreadable trace, and as [`run`](super::run).
pub fn ablate(traces: &[&Path], mut report: impl FnMut(Variant)) -> Result<(), ReproduceError> {
    let traces = traces.iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, replay::Workload::open(path, None)?))
    });
    let traces = traces.collect::<Result<Vec<_>, ReproduceError>>()?;
    let mut variant = |name: String, tuning: Tuning| -> Result<(), ReproduceError> {
        set_tuning(tuning);
        let of = |name: &str, row: &Row| Measured {
            workload: name.to_owned(),
            seconds: row.seconds,
            amplification: row.amplification,
        };
        let mut measured = Vec::new();
        for on_disk in [false, true] {
            for mut workload in workloads::all() {
                let mut name = workload.id.to_owned();
                if on_disk {
                    (workload.device, workload.cache_bytes) = DISK;
                    name += "-hdd";
                }
                let mut row = measure(&workload, Policy::Stream, false)?;
                if workload.id == "k" {
                    // Players are paced, so the slowest read counts.
                    row.seconds = row.latency_ns.max as f64 / 1e9;
                }
                measured.push(of(&name, &row));
            }
        }
        measured.push(family()?);
        for (name, workload) in &traces {
            let mut machine = machine(Policy::Stream, STORE, 0, RA_PAGES)?;
            workload.add_to(&mut machine, ReplayOptions::default());
            machine.run(None)?;
            measured.push(of(name, &machine.summary().row));
        }
        report(Variant { name, measured });
        Ok(())
    };
    variant("as it is".to_owned(), Tuning::DEFAULT)?;
    let mut unchanged = Tuning::DEFAULT;
    for at in 0..unchanged.fields().len() {
        for double in [false, true] {
            let mut tuning = Tuning::DEFAULT;
            let mut fields = tuning.fields();
            let (name, value) = &mut fields[at];
            if *name == "disabled" {
                continue;
            }
            let before = **value;
            **value = if double { before * 2 } else { before / 2 };
            let name = format!("{name} {before} -> {value}");
            variant(name, tuning)?;
        }
    }
    for detector in Detector::ALL {
        let disabled = 1 << detector as u64;
        variant(format!("{detector} off"), Tuning { disabled, ..Tuning::DEFAULT })?;
    }
    set_tuning(Tuning::DEFAULT);
    Ok(())
}

/// The family's points under the constants in use.
fn family() -> Result<Measured, ReproduceError> {
    let settings = regret::Settings::default();
    let points = settings.points(&SEEDS.collect::<Vec<_>>());
    let (mut seconds, mut amplification) = (0.0, 0.0);
    let jobs = std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN);
    let one = |point: &regret::Point| regret::measure(point, &settings, Some(&[]));
    parallel::try_in_order(&points, jobs, one, |outcome| {
        seconds += outcome.stream.seconds.ln();
        amplification += outcome.amplification().ln();
        Ok(())
    })?;
    let mean = |sum: f64| (sum / points.len() as f64).exp();
    let (seconds, amplification) = (mean(seconds), mean(amplification));
    Ok(Measured { workload: "family".to_owned(), seconds, amplification })
}
