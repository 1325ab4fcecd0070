//! Source 003, Lustre's patch of 2021: which of its fault times one model of the device reaches
//! together.
//!
//! The source publishes four fault times. It does not publish the windows, or the number in flight,
//! the size and the times of RPCs. A grid has sets of values for these. Each set runs for half a
//! second of virtual time, before and after the patch. The nearest sets run again at full size, and
//! the times of that run count: a longer run has longer maxima.

use std::num::NonZeroUsize;

use bowwave_baselines::{CLUSTERS_BEFORE, CLUSTERS_LITERAL};
use bowwave_core::Instant;

use super::{AVERAGE, Client, MAXIMUM, NEAR, PAGE, SECOND_NS, Workload, faults};
use crate::parallel;
use crate::reproduce::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};

/// The experiment.
pub(in crate::reproduce) const EXPERIMENT: Experiment = Experiment {
    id: "lustre-sweep",
    what: "fio's randread on Lustre with each device of a grid: which fault times are reached together (003)",
    run,
};

const TABLE: (&str, &str) = ("003", "sweep of the device");
/// Threads, the same on every machine: memory for two caches, not for one a processor.
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// End of the first run of each set.
const SHORT: Instant = Instant(SECOND_NS / 2);
/// Sets that run again at full size.
const FINALISTS: usize = 3;
/// The published fault times by name, in the order of [`Run::times_us`].
const TIMES: [(&str, f64); 4] = [
    ("average before", value(AVERAGE.baseline)),
    ("average after", value(AVERAGE.improved)),
    ("maximum before", value(MAXIMUM.baseline)),
    ("maximum after", value(MAXIMUM.improved)),
];

/// Values of each parameter that the document leaves open.
#[derive(Clone, Copy, Debug)]
struct Grid {
    /// Pages by which windows grow, and the largest RPC in KiB.
    sizes: &'static [(u32, u32)],
    /// RPCs in flight.
    depths: &'static [u32],
    /// Time of an RPC without its pages, in microseconds.
    rpc_us: &'static [u32],
    /// Least and greatest time of a page, in microseconds.
    page_us: &'static [(u32, u32)],
    /// How many times as long a slow RPC takes, up to how many milliseconds.
    slow: &'static [(u32, u32)],
}

/// Windows and RPCs in flight up to those of [`super::MACHINE`], times of RPCs and pages up to
/// those of its device. RPCs are at most as large as windows. More than 64 in flight would be more
/// than two for each job.
const GRID: Grid = Grid {
    sizes: &[(256, 1024), (1024, 1024), (1024, 4096)],
    depths: &[8, 32, 64],
    rpc_us: &[125, 250, 450],
    page_us: &[(4, 18), (8, 35)],
    slow: &[(5, 37), (10, 37), (10, 30)],
};

/// One set of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    window_pages: u32,
    device: String,
}

/// A set's fault times in microseconds.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    set: Set,
    times_us: [f64; 4],
}

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let found = search(&GRID.sets(), SHORT, Workload::Random.end())?;
    Ok(outcome(&found))
}

/// All sets, and those of them that ran at full size, the nearest first.
struct Found {
    all: Vec<Run>,
    finalists: Vec<Run>,
}

/// Runs all sets until `short`, and the nearest of them until `full`.
fn search(sets: &[Set], short: Instant, full: Instant) -> Result<Found, ReproduceError> {
    let mut all = run_all(sets, short)?;
    by_distance(&mut all);
    let nearest: Vec<Set> = all.iter().take(FINALISTS).map(|run| run.set.clone()).collect();
    let mut finalists = run_all(&nearest, full)?;
    all.splice(..nearest.len(), finalists.iter().cloned());
    by_distance(&mut finalists);
    Ok(Found { all, finalists })
}

/// Both runs of each set.
fn run_all(sets: &[Set], end: Instant) -> Result<Vec<Run>, ReproduceError> {
    let cases: Vec<_> = sets
        .iter()
        .flat_map(|set| [CLUSTERS_BEFORE, CLUSTERS_LITERAL].map(|clusters| (set, clusters)))
        .collect();
    let runs = parallel::try_map(&cases, THREADS, |&(set, clusters)| {
        let client = Client { device: &set.device, window_pages: set.window_pages };
        faults(Workload::Random, clusters, &client, end)
    })?;
    let times = runs
        .chunks_exact(2)
        .map(|runs| [runs[0].average_us, runs[1].average_us, runs[0].max_us, runs[1].max_us]);
    Ok(sets.iter().cloned().zip(times).map(|(set, times_us)| Run { set, times_us }).collect())
}

/// Sorts by the largest of the four distances; equal ones stay in the order of the grid.
fn by_distance(runs: &mut [Run]) {
    runs.sort_by(|a, b| a.distance().total_cmp(&b.distance()));
}

fn outcome(found: &Found) -> Outcome {
    let mut outcome = Outcome::default();
    let sets = found.all.len();
    for times in combinations() {
        let count = found.all.iter().filter(|run| times.iter().all(|&time| run.reaches(time))).count();
        let names: Vec<&str> = times.iter().map(|&time| TIMES[time].0).collect();
        let ours = Pair { baseline: None, improved: Some(count as f64) };
        let row = names.join(", ");
        let figure = Figure::new(TABLE, row, "sets", Pair::default(), ours, Bar::Within(NEAR));
        let these = if times.len() == 1 { "it" } else { "these together" };
        outcome.figures.push(figure.fitted(&format!("how many of the {sets} sets reach {these}")));
    }
    let Some(nearest) = found.finalists.first() else { return outcome };
    let [average, average_after, max, max_after] = nearest.times_us;
    for (row, theirs, ours) in [
        ("nearest set, average", AVERAGE, Pair::new(average, average_after)),
        ("nearest set, maximum", MAXIMUM, Pair::new(max, max_after)),
    ] {
        let figure = Figure::new(TABLE, row, "us", theirs, ours, Bar::Within(NEAR));
        outcome.figures.push(figure.fitted(&format!("{}; {CHOSEN}", nearest.set.name())));
    }
    outcome.notes.push(format!(
        "lustre-sweep: {sets} sets run for 0.5 s before and after the patch, the nearest again for 10 s:"
    ));
    for run in &found.finalists {
        let [average, average_after, max, max_after] = run.times_us;
        outcome.notes.push(format!(
            "  {}: average {average:.0} -> {average_after:.0} us, most {max:.0} -> {max_after:.0} us, at most {:.0} % off",
            run.set.name(),
            run.distance() * 100.0
        ));
    }
    outcome
}

/// Indices into [`TIMES`]: each alone, then pairs, triples and all four.
fn combinations() -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (1_u32..1 << TIMES.len())
        .map(|mask| (0..TIMES.len()).filter(|time| mask >> time & 1 == 1).collect())
        .collect();
    all.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    all
}

impl Grid {
    fn sets(&self) -> Vec<Set> {
        let mut sets = Vec::new();
        for &(window_pages, rpc_kb) in self.sizes {
            for depth in self.depths {
                for rpc_us in self.rpc_us {
                    for (low, high) in self.page_us {
                        for (factor, slow_ms_max) in self.slow {
                            let device = format!(
                                "lustre:depth={depth},request_kb_max={rpc_kb},rpc_us={rpc_us},\
                                 page_us_min={low},page_us_max={high},slow_factor={factor},slow_ms_max={slow_ms_max}"
                            );
                            sets.push(Set { window_pages, device });
                        }
                    }
                }
            }
        }
        sets
    }
}

impl Set {
    fn name(&self) -> String {
        format!("{} with windows of {} MiB", self.device, (u64::from(self.window_pages) * PAGE) >> 20)
    }
}

impl Run {
    /// Distance of a fault time from the published one, as a share of the published one.
    fn off(&self, time: usize) -> f64 {
        (self.times_us[time] / TIMES[time].1 - 1.0).abs()
    }

    fn reaches(&self, time: usize) -> bool {
        self.off(time) <= NEAR
    }

    /// The largest distance of the four.
    fn distance(&self) -> f64 {
        (0..TIMES.len()).map(|time| self.off(time)).fold(0.0, f64::max)
    }
}

/// A published fault time.
const fn value(time: Option<f64>) -> f64 {
    match time {
        Some(time) => time,
        None => panic!("each fault time is published"),
    }
}

const CHOSEN: &str =
    "chosen among the sets by all four times: four figures cannot test a model with eight free parameters";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Kind;

    fn at(times_us: [f64; 4]) -> Run {
        Run { set: Set { window_pages: 256, device: "lustre".to_owned() }, times_us }
    }

    fn counts(outcome: &Outcome) -> Vec<(&str, f64)> {
        outcome
            .figures
            .iter()
            .filter(|figure| figure.unit == "sets")
            .map(|figure| (figure.row.as_str(), figure.ours.improved.unwrap()))
            .collect()
    }

    #[test]
    fn each_combination_counts_the_sets_within_the_tolerance_of_all_its_times() {
        let exact = TIMES.map(|(_, us)| us);
        let within = exact.map(|us| us * 1.19);
        let fast_after = [exact[0], exact[1] / 2.0, exact[2], exact[3] * 0.7];
        let found = Found { all: [exact, within, fast_after].map(at).to_vec(), finalists: Vec::new() };
        let outcome = outcome(&found);
        let counts = counts(&outcome);
        assert_eq!(counts.len(), 15);
        assert_eq!(counts[..2], [("average before", 3.0), ("average after", 2.0)]);
        assert!(counts.contains(&("average before, maximum before", 3.0)), "{counts:?}");
        assert!(counts.contains(&("maximum before, maximum after", 2.0)), "{counts:?}");
        let all = "average before, average after, maximum before, maximum after";
        assert_eq!(counts[14], (all, 2.0));
    }

    #[test]
    fn the_nearest_set_is_the_one_whose_farthest_time_is_nearest() {
        let exact = TIMES.map(|(_, us)| us);
        let one_far = [exact[0], exact[1], exact[2], exact[3] * 1.5];
        let all_near = exact.map(|us| us * 0.9);
        let mut runs = [one_far, all_near].map(at);
        by_distance(&mut runs);
        assert_eq!(runs[0].times_us, all_near);
    }

    #[test]
    fn a_search_gives_the_same_digits_again_and_all_its_rows_are_fitted() {
        let grid = Grid { depths: &[8, 64], rpc_us: &[250], page_us: &[(4, 18)], ..GRID };
        let search = || search(&grid.sets(), Instant(SECOND_NS / 10), Instant(SECOND_NS / 5)).unwrap();
        let (first, again) = (search(), search());
        assert_eq!(first.all.len(), grid.sets().len());
        assert_eq!((&first.all, &first.finalists), (&again.all, &again.finalists));
        assert_eq!(first.finalists.len(), FINALISTS);
        assert!(first.finalists.iter().all(|run| first.all.contains(run)), "they count at full size");
        let figures = outcome(&first).figures;
        assert_eq!(figures.len(), 17);
        assert!(figures.iter().all(|figure| figure.kind == Kind::Fitted && !figure.holds), "{figures:?}");
    }

    #[test]
    fn sets_of_the_grid_are_all_different() {
        let sets = GRID.sets();
        assert_eq!(sets.len(), 162);
        assert!(sets.iter().enumerate().all(|(at, set)| !sets[..at].contains(set)));
    }
}
