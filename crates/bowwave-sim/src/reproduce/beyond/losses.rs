//! Regressions that `stream` must not cause: the documents' experiments where readahead cannot
//! gain, with `stream` as the improved policy.

use bowwave_core::Policy;

use super::super::testbed::Testbed;
use super::super::{aio_stress, overlapped, sysbench};
use super::{Bar, Figure, Outcome, Pair, ReproduceError};

/// Ratio of seconds, less is better: at most 1 % loss.
const NO_LOSS: Bar = Bar::GainFrom(0.0, 1.01);

/// Seeds of random reads: neighbours on the disk are chance, which alone makes 1 %.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let testbed = Testbed::of_2007()?;
    let mut add = |row: String, on_demand: f64, stream: f64| {
        let ours = Pair::new(on_demand, stream);
        outcome
            .figures
            .push(Figure::new(("beyond", "losses"), row, "s", Pair::default(), ours, NO_LOSS).own());
    };
    for kib in [8, 32, 128] {
        let run = |policy| {
            overlapped::curve(&testbed, policy, 500 << 20, kib << 10)
                .map(|curve| curve[overlapped::POINTS - 1])
        };
        add(format!("overlapped, {kib} KB reads"), run(Policy::OnDemand)?, run(Policy::Stream)?);
    }
    for (row, random) in [("sequential", false), ("random", true)] {
        let run = |policy| aio_stress::stage(&testbed, policy, random).map(|phase| phase.seconds());
        add(format!("aio-stress, {row}"), run(Policy::OnDemand)?, run(Policy::Stream)?);
    }
    let threads = [1, 4, 16, 64];
    let [on_demand, stream] = [Policy::OnDemand, Policy::Stream].map(|policy| {
        let runs = SEEDS.map(|seed| sysbench::seconds(&testbed, policy, &threads, seed));
        let runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mean = |at: usize| runs.iter().map(|run| run[at]).sum::<f64>() / runs.len() as f64;
        Ok::<_, ReproduceError>((0..threads.len()).map(mean).collect::<Vec<_>>())
    });
    for (threads, (on_demand, stream)) in threads.iter().zip(on_demand?.into_iter().zip(stream?)) {
        add(format!("sysbench fileio, {threads} threads"), on_demand, stream);
    }
    Ok(())
}
