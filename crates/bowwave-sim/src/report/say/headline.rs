//! The conclusion from all runs, in one sentence.

use super::super::units::{three, time};
use super::super::view::View;
use super::groups::{Group, Groups};
use super::overall::{as_fast, called, faster, listed, place};

/// Maximum groups the sentence names.
const NAMED_MAX: usize = 4;

/// Gains within this factor count as equal.
const AS_MUCH: f64 = 1.05;

/// The sentence.
pub(super) fn of(views: &[View], groups: &Groups) -> String {
    let groups = groups.0.as_slice();
    let Some(first) = groups.first() else { return String::new() };
    let policy = |group: &Group| &views[group.best].row.policy;
    if groups.iter().all(|group| group.runs.len() == 1) {
        alone(views, groups, first)
    } else if groups.len() == 1 {
        of_one(views, first)
    } else if groups.iter().all(|group| policy(group) == policy(first)) {
        of_one_policy(views, groups, first)
    } else {
        of_several_policies(views, groups)
    }
}

/// For runs without anything to compare with.
fn alone(views: &[View], groups: &[Group], first: &Group) -> String {
    let row = &views[first.best].row;
    let of_bound = |bound: f64| format!(", {} times the oracle's", three(row.seconds / bound));
    let regret = first.bound_seconds().map_or_else(String::new, of_bound);
    let more = if groups.len() > 1 { ", and others follow" } else { "" };
    format!("{} on {} takes {}{regret}{more}.", row.policy, row.place(), time(row.seconds * 1e9))
}

/// For one device and cache size.
fn of_one(views: &[View], group: &Group) -> String {
    let (best, base) = (&views[group.best].row, &views[group.baseline].row);
    // Runs stopped at the same time got different amounts.
    let stopped = group.runs.iter().any(|run| views[*run].row.bytes_wanted != best.bytes_wanted);
    let seconds = if stopped {
        format!("{} for a GiB", time(best.seconds_a_gib() * 1e9))
    } else {
        time(best.seconds * 1e9)
    };
    let ties = as_fast(views, group);
    if ties.len() + 1 == group.runs.len() {
        return format!("All {} runs take the same time: {seconds}.", group.runs.len());
    }
    let mut text = called(views, group, group.best);
    text += &match ties.as_slice() {
        [] => format!(" is the fastest of {} runs: {seconds}", group.runs.len()),
        ties => format!(" is as fast as {}: {seconds}", listed(ties)),
    };
    if group.best != group.baseline {
        let base_name = called(views, group, group.baseline);
        text += &format!(", {}", faster(best.seconds_a_gib(), base.seconds_a_gib(), &base_name));
    }
    text + "."
}

/// If one policy is the best everywhere.
fn of_one_policy(views: &[View], groups: &[Group], first: &Group) -> String {
    let policy = &views[first.best].row.policy;
    let cache = |group: &Group| views[group.best].row.cache_bytes;
    let what = if groups.iter().all(|group| cache(group) == cache(first)) {
        "devices"
    } else {
        "combinations of device and cache size"
    };
    let count = if groups.len() == 2 { "both".to_owned() } else { format!("all {}", groups.len()) };
    let mut text = format!("{policy} is the best policy on {count} {what}");
    let gain =
        |group: &Group| views[group.baseline].row.seconds_a_gib() / views[group.best].row.seconds_a_gib();
    let gains = || groups.iter().map(gain).filter(|gain| gain.is_finite() && *gain > 0.0);
    let (least, most) = (gains().fold(f64::INFINITY, f64::min), gains().fold(0.0, f64::max));
    let base = &views[first.baseline].row.policy;
    let one_base = groups.iter().all(|group| views[group.baseline].row.policy == *base);
    if one_base && base != policy && most >= AS_MUCH {
        text += &if most <= least * AS_MUCH {
            format!(", {} times as fast as {base}", three(least))
        } else if least < AS_MUCH {
            format!(", up to {} times as fast as {base}", three(most))
        } else {
            format!(", {} to {} times as fast as {base}", three(least), three(most))
        };
    }
    text + "."
}

/// If the best policy differs.
fn of_several_policies(views: &[View], groups: &[Group]) -> String {
    let best = |group: &Group| {
        let place = place(views, group).replacen("On ", "on ", 1);
        format!("{} {place}", views[group.best].row.policy)
    };
    let named: Vec<String> = groups.iter().take(NAMED_MAX).map(best).collect();
    let more = match groups.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("The best policy depends on device and cache: {}{more}.", named.join(", "))
}
