//! Times the reads of table 5 on this machine: the only part of `reproduce` that uses a clock.

use std::time::Instant;

use bowwave_core::Policy;
use bowwave_sim::reproduce::overheads::{Drive, TABLE, Workload};
use bowwave_sim::reproduce::{Figure, Outcome, Pair, ReproduceError};

/// The experiment it extends.
pub(super) const OF: &str = "overheads";

/// Rounds; the median counts. Odd, so that there is one.
const ROUNDS: usize = 41;

/// Adds a row per workload: nanoseconds per page for each algorithm.
pub(super) fn add(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for workload in Workload::ALL {
        let ours = nanoseconds(workload)?;
        let row = format!("{}: measured", workload.name());
        let bar = workload.bar();
        let figure = Figure::new(TABLE, row, "s; ns/page", workload.published(), ours, bar);
        outcome
            .figures
            .push(figure.note("this machine's, without a copy of the data; differs from run to run"));
    }
    outcome.notes.push(format!(
        "overheads, measured: the cache's own work a page, nothing copied, median of {ROUNDS} rounds of both in turn"
    ));
    Ok(())
}

/// Nanoseconds per page with the old algorithm and the new. They alternate in changing order, so
/// that other load affects both.
fn nanoseconds(workload: Workload) -> Result<Pair, ReproduceError> {
    let mut drives =
        [Drive::new(bowwave_baselines::LEGACY, workload)?, Drive::new(Policy::OnDemand, workload)?];
    let mut times = [Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS)];
    for round in 0..ROUNDS {
        for place in [round % 2, 1 - round % 2] {
            let started = Instant::now();
            let pages = drives[place].pass();
            times[place].push(started.elapsed().as_nanos() as f64 / pages as f64);
        }
    }
    let [old, new] = times.map(median);
    Ok(Pair::new(old, new))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn each_row_of_the_table_gets_a_time() {
        let mut outcome = Outcome::default();
        add(&mut outcome).unwrap();
        assert_eq!(outcome.figures.len(), 5);
        for figure in outcome.figures {
            assert!(figure.ours.baseline > Some(0.0) && figure.ours.improved > Some(0.0), "{figure:?}");
        }
    }
}
