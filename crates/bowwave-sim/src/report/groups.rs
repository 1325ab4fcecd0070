//! Comparable runs: the same device and cache.

use super::view::View;
use crate::record::Row;

/// Runs within this factor of the fastest count as equally fast.
pub(super) const AS_FAST: f64 = 1.01;

/// One device and cache size.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The runs, by number.
    pub(super) runs: Vec<usize>,
    /// The fastest run; among runs within 1 % of it, the one that reads least.
    pub(super) best: usize,
    /// The baseline: `none`, else `legacy`, else the slowest.
    pub(super) baseline: usize,
    /// Pareto frontier by time and bytes, the fastest first.
    pub(super) frontier: Vec<usize>,
    /// The lower bound; `None` if not requested.
    pub(super) bound: Option<Row>,
}

/// All groups, in the order of their first runs.
#[derive(Clone, Debug)]
pub(super) struct Groups(pub(super) Vec<Group>);

impl Groups {
    pub(super) fn of(views: &[View], bounds: &[Row]) -> Self {
        let mut lists: Vec<Vec<usize>> = Vec::new();
        let key = |index: usize| (views[index].row.place(), views[index].row.cache_bytes);
        for index in 0..views.len() {
            match lists.iter_mut().find(|list| key(list[0]) == key(index)) {
                Some(list) => list.push(index),
                None => lists.push(vec![index]),
            }
        }
        let row = |index: usize| &views[index].row;
        let bound = |runs: &[usize]| {
            let of = |row: &Row| (row.place(), row.cache_bytes);
            bounds.iter().find(|bound| of(bound) == key(runs[0])).cloned()
        };
        let group = |runs: Vec<usize>| Group { bound: bound(&runs), ..Group::of(runs, row) };
        Self(lists.into_iter().map(group).collect())
    }

    /// Whether the run is the best of several in its group.
    pub(super) fn is_best(&self, run: usize) -> bool {
        self.0.iter().any(|group| group.best == run && group.runs.len() > 1)
    }
}

impl Group {
    /// Seconds of the oracle; `None` without a bound on time.
    pub(super) fn bound_seconds(&self) -> Option<f64> {
        self.bound.as_ref().filter(|row| row.regret.is_some() && row.seconds > 0.0).map(|row| row.seconds)
    }

    fn of<'a>(runs: Vec<usize>, row: impl Fn(usize) -> &'a Row) -> Self {
        let seconds = |run: &usize| row(*run).seconds_a_gib();
        let amplification = |run: &usize| row(*run).amplification;
        let by = |key: &dyn Fn(&usize) -> f64, a: &usize, b: &usize| key(a).total_cmp(&key(b));
        let fastest = runs.iter().map(seconds).fold(f64::INFINITY, f64::min);
        let best = *runs
            .iter()
            .filter(|run| seconds(run) <= fastest * AS_FAST)
            .min_by(|a, b| by(&amplification, a, b).then(by(&seconds, a, b)))
            .unwrap_or(&runs[0]);
        let slowest = *runs.iter().max_by(|a, b| by(&seconds, a, b)).unwrap_or(&runs[0]);
        let named = |policy: &str| runs.iter().copied().find(|run| row(*run).policy == policy);
        let baseline = named("none").or_else(|| named("legacy")).unwrap_or(slowest);
        let mut order = runs.clone();
        order.sort_by(|a, b| by(&seconds, a, b).then(by(&amplification, a, b)));
        let mut leanest = f64::INFINITY;
        order.retain(|run| {
            let leaner = amplification(run) < leanest;
            leanest = leanest.min(amplification(run));
            leaner
        });
        Self { runs, best, baseline, frontier: order, bound: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(figures: &[(&str, f64, f64)]) -> Group {
        let rows: Vec<Row> = figures
            .iter()
            .map(|&(policy, seconds, amplification)| Row {
                policy: policy.into(),
                seconds,
                amplification,
                ..Row::default()
            })
            .collect();
        Group::of((0..rows.len()).collect(), |run| &rows[run])
    }

    #[test]
    fn among_runs_that_are_as_fast_the_best_reads_least() {
        let group = group(&[("none", 4.0, 1.0), ("linux", 1.0, 1.9), ("ondemand", 1.005, 1.2)]);
        assert_eq!((group.best, group.baseline), (2, 0));
    }

    #[test]
    fn of_runs_stopped_at_the_same_time_the_one_that_read_more_is_faster() {
        let row = |bytes_wanted| Row { seconds: 220.0, bytes_wanted, amplification: 1.0, ..Row::default() };
        let rows = [row(1 << 30), row(3 << 30)];
        assert_eq!(Group::of(vec![0, 1], |run| &rows[run]).best, 1);
    }

    #[test]
    fn the_frontier_omits_runs_that_are_slower_and_read_more() {
        let group = group(&[
            ("none", 4.0, 1.0),
            ("bad", 5.0, 1.5),
            ("a", 1.0, 1.9),
            ("b", 2.0, 1.2),
            ("c", 2.0, 1.2),
        ]);
        assert_eq!(group.frontier, [2, 3, 0]);
    }

    #[test]
    fn without_a_run_of_none_legacy_or_the_slowest_is_the_baseline() {
        assert_eq!(group(&[("linux", 4.0, 1.0), ("legacy", 3.0, 1.0)]).baseline, 1);
        assert_eq!(group(&[("a", 2.0, 1.0), ("b", 3.0, 1.0)]).baseline, 1);
    }
}
