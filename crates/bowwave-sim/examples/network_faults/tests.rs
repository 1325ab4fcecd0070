//! The state machines of the network keep their invariants with faulty servers, and the checks find
//! planted defects.

use bowwave_sim::parallel;

use crate::Broken;
use crate::counts::{Counter, Counts, Defect};
use crate::run::run;
use crate::server::Fault;

/// Runs the seeds below `seeds`; returns the first that breaks an invariant.
fn sweep(seeds: u64, defect: Option<Defect>) -> Result<Counts, String> {
    crate::sweep(0..seeds, parallel::workers(), defect, false)
        .map_err(|Broken { seed, what }| format!("seed {seed}: {what}"))
}

#[test]
fn invariants_hold_against_faulty_servers_and_every_counter_is_reached() {
    let counts = sweep(20_000, None).unwrap_or_else(|what| panic!("{what}"));
    // A run without a fault shows nothing about it.
    for (name, times) in counts.rows() {
        assert!(times >= 50, "{name}: {times} times");
    }
    assert!(counts.of(Counter::ReadDone) > 3 * counts.of(Counter::ReadFailed), "{counts:?}");
    assert!(counts.of_fault(Fault::ResetInBody) > 1000, "{counts:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "the first seed that finds each defect, shown with --nocapture")]
fn every_planted_defect_is_found_within_ten_thousand_seeds() {
    for defect in Defect::ALL {
        let found = sweep(10_000, Some(defect)).expect_err(defect.name());
        println!("{}: {found}", defect.name());
    }
    // The same seeds are clean without one: the defect is what breaks.
    sweep(10_000, None).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let logged = |seed| {
        let mut log = String::new();
        let digest = run(seed, None, &mut Counts::default(), Some(&mut log));
        (digest.expect("holds"), log)
    };
    let mut digests = Vec::new();
    for seed in 0..300 {
        let (digest, log) = logged(seed);
        assert_eq!(logged(seed), (digest, log), "seed {seed}");
        assert_eq!(run(seed, None, &mut Counts::default(), None), Ok(digest), "seed {seed} without a log");
        digests.push(digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 300, "seeds differ, and so do their logs");
}
