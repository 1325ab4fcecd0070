//! Overlapping random reads: 8 to 128 KiB at any page of files of 500 and 2000 MB (002, 4.3 and
//! figure 5).
//!
//! The paper plots the difference in time as reads accumulate, and says where the curves end: −0.2
//! to +0.1 %, except for 128 KiB, which it calls unstable. It does not give the total read; here it
//! equals the file size. The points of a curve are not in the text; ours are in the remarks.

use bowwave_core::Policy;

use super::testbed::Testbed;
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::machine::{Access, RecordOptions};
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment =
    Experiment { id: "overlapped", what: "random reads that overlap, by size (figure 5)", run };

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let testbed = Testbed::of_2007()?;
    let mut figures = Vec::new();
    for file_mb in [500, 2000] {
        for kib in [8, 16, 32, 64, 128] {
            let run = |policy| curve(&testbed, policy, file_mb << 20, kib << 10);
            let (legacy, on_demand) = (run(bowwave_baselines::LEGACY)?, run(Policy::OnDemand)?);
            let row = format!("{kib} KB reads of a {file_mb} MB file");
            let table = ("002", "figure 5, overlapped random reads");
            let ours = Pair::new(legacy[POINTS - 1], on_demand[POINTS - 1]);
            let change: Vec<f64> =
                legacy.iter().zip(&on_demand).map(|(old, new)| (new / old - 1.0) * 100.0).collect();
            let points: Vec<String> = change.iter().map(|change| format!("{change:+.3}")).collect();
            let points = format!("after each {} MB: {} %", file_mb / POINTS as u64, points.join(", "));
            if kib == 128 {
                let figure = Figure::new(table, row, "s", Pair::default(), ours, Bar::Within(0.0));
                figures.push(figure.note("called unstable, without a figure; ours converges").note(points));
                continue;
            }
            let figure = Figure::gain(table, row.clone(), PUBLISHED, ours, NEAR);
            figures.push(figure.note("drawn as −0.2 to +0.1 % in time"));
            let end = &change[POINTS / 2..];
            let least = end.iter().copied().fold(f64::INFINITY, f64::min);
            let most = end.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (row, ours) =
                (format!("{row}, second half of the curve: least, most"), Pair::new(least, most));
            let figure = Figure::new(table, row, "%", Pair::default(), ours, Bar::Ranges(ENDS, ENDS));
            figures.push(figure.stated().note(points));
        }
    }
    Ok(Outcome { figures, ..Outcome::default() })
}

/// The middle of the range in which the curves end.
const PUBLISHED: Pair = Pair::new(1.0, 0.9995);
/// Half of that range, doubled because the curves are read off a plot.
const NEAR: f64 = 0.003;

/// The range in percent of the time, wider by half of it at each end.
const ENDS: (f64, f64) = (-0.35, 0.25);
/// Points of a curve: the paper has one each 50 MB of the small file, 200 MB of the large one.
pub(super) const POINTS: usize = 10;

/// Seconds to read each further tenth of as many bytes as the file has, at random pages.
pub(super) fn curve(
    testbed: &Testbed,
    policy: Policy,
    file_bytes: u64,
    bytes: u64,
) -> Result<[f64; POINTS], ReproduceError> {
    let reads = (file_bytes / bytes) as usize;
    let record = Some(RecordOptions { events_max: 2 * reads, ..RecordOptions::default() });
    let mut bench = Testbed { record, ..testbed.clone() }.bench(policy)?;
    let address = testbed.address(&bench);
    let file = bench.machine.add_file("sparse", file_bytes, address);
    let mut random = Random::from_state(1);
    let source = (0..reads).map(move |_| {
        let offset = random.below((file_bytes - bytes) / 4096 + 1) * 4096;
        Access::read(file, offset, bytes)
    });
    bench.phase(source, 1)?;
    let done = bench.machine.summary().reads;
    Ok(std::array::from_fn(|point| {
        let last = reads * (point + 1) / POINTS - 1;
        (done.time_ns[last] + done.latency_ns[last]) as f64 / 1e9
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_reads_take_either_algorithm_as_long() {
        let testbed = Testbed::of_2007().unwrap();
        let time = |policy| curve(&testbed, policy, 100 << 20, 16 << 10).unwrap();
        let (legacy, on_demand) = (time(bowwave_baselines::LEGACY), time(Policy::OnDemand));
        assert!(legacy.is_sorted() && legacy[0] > 0.0, "{legacy:?}");
        for (old, new) in legacy.iter().zip(on_demand) {
            assert!((new / old - 1.0).abs() < 0.01, "{on_demand:?} against {legacy:?} s");
        }
    }
}
