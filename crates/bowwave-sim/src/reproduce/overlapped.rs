//! Overlapping random reads: 8 to 128 KiB at any page of files of 500 and 2000 MB (002, 4.3 and
//! figure 5).
//!
//! The paper plots the difference in time as reads accumulate, and says where the curves end: −0.2
//! to +0.1 %, except for 128 KiB, which it calls unstable. It does not give the total read; here it
//! equals the file size.

use bowwave_core::Policy;

use super::testbed::Testbed;
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::machine::Access;
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment =
    Experiment { id: "overlapped", what: "random reads that overlap, by size (figure 5)", run };

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let testbed = Testbed::of_2007()?;
    let mut figures = Vec::new();
    for file_mb in [500, 2000] {
        for kib in [8, 16, 32, 64, 128] {
            let legacy = seconds(&testbed, bowwave_baselines::LEGACY, file_mb << 20, kib << 10)?;
            let on_demand = seconds(&testbed, Policy::OnDemand, file_mb << 20, kib << 10)?;
            let row = format!("{kib} KB reads of a {file_mb} MB file");
            let table = ("002", "figure 5, overlapped random reads");
            let ours = Pair::new(legacy, on_demand);
            figures.push(if kib == 128 {
                Figure::new(table, row, "s", Pair::default(), ours, Bar::Within(0.0))
                    .note("called unstable, without a figure; ours converges")
            } else {
                Figure::gain(table, row, PUBLISHED, ours, NEAR).note("drawn as −0.2 to +0.1 % in time")
            });
        }
    }
    Ok(Outcome { figures, ..Outcome::default() })
}

/// The middle of the range in which the curves end.
const PUBLISHED: Pair = Pair::new(1.0, 0.9995);
/// Half of that range, and as much again for the eye.
const NEAR: f64 = 0.003;

/// Seconds to read as many bytes as the file has, at random pages.
pub(super) fn seconds(
    testbed: &Testbed,
    policy: Policy,
    file_bytes: u64,
    bytes: u64,
) -> Result<f64, ReproduceError> {
    let mut bench = testbed.bench(policy)?;
    let address = testbed.address(&bench);
    let file = bench.machine.add_file("sparse", file_bytes, address);
    let mut random = Random::from_state(1);
    let source = (0..file_bytes / bytes).map(move |_| {
        let offset = random.below((file_bytes - bytes) / 4096 + 1) * 4096;
        Access::read(file, offset, bytes)
    });
    Ok(bench.phase(source, 1)?.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_reads_take_either_algorithm_as_long() {
        let testbed = Testbed::of_2007().unwrap();
        let time = |policy| seconds(&testbed, policy, 100 << 20, 16 << 10).unwrap();
        let (legacy, on_demand) = (time(bowwave_baselines::LEGACY), time(Policy::OnDemand));
        assert!((on_demand / legacy - 1.0).abs() < 0.01, "{on_demand} against {legacy} s");
    }
}
