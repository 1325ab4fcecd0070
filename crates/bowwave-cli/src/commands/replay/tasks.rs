//! `--emit-tasks`: the runs of a sweep as commands, for GNU parallel and job arrays.

use std::num::NonZeroUsize;

use bowwave_sim::sweep::{Axes, Case};

use super::Args;
use super::input::Oracle;

/// One command per run, in the order of the rows of a replay. The last run of each device and cache
/// has the oracle.
pub(super) fn commands(args: &Args, axes: &Axes, oracle: Oracle) -> Vec<String> {
    // No option selects a workload: a run has those of its experiment.
    let axes = Axes { workloads: vec![String::new()], ..axes.clone() };
    let cases = axes.cases();
    let place = |case: &Case| (case.device.clone(), case.scheduler.clone(), case.cache_bytes);
    let is_last = |at: usize| cases.get(at + 1).is_none_or(|next| place(next) != place(&cases[at]));
    let one = |(at, case)| command(args, case, oracle != Oracle::No && is_last(at));
    cases.iter().enumerate().map(one).collect()
}

fn command(args: &Args, case: &Case, has_oracle: bool) -> String {
    let mut words = vec!["bowwave".to_owned(), "replay".to_owned()];
    words.push(args.input.to_string_lossy().into_owned());
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    let policy = case.policy.name();
    option("policy", if has_oracle { format!("{policy},oracle") } else { policy.to_owned() });
    option("device", case.device.clone());
    if !case.scheduler.is_empty() {
        option("scheduler", case.scheduler.clone());
    }
    option("cache", case.cache_bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string()));
    option("ra-pages", case.ra_pages.to_string());
    option("seed", case.seed.to_string());
    for (name, value) in args.fixed() {
        option(name, value);
    }
    option("jobs", NonZeroUsize::MIN.to_string());
    let flags = [("--page-by-page", args.page_by_page), ("--check", args.check), ("--json", true)];
    words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,%+@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
