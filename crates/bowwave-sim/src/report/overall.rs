//! Sentences about all runs.

use super::groups::{AS_FAST, Group, Groups};
use super::units::{bytes, count, counted, percent, rate, three, time};
use super::view::{Ledger, View};
use crate::record::Row;

/// Maximum groups with sentences; the table has the others.
const GROUPS_MAX: usize = 100;

/// Sentences about all runs together, and one per group in each list.
#[derive(Clone, Debug)]
pub(super) struct Overall {
    pub(super) headline: String,
    pub(super) verdict: Vec<String>,
    pub(super) over_delivered: Vec<String>,
    pub(super) over_request: Vec<String>,
    pub(super) over_busy: Vec<String>,
    pub(super) over_thrashed: Vec<String>,
}

impl Overall {
    pub(super) fn of(views: &[View], groups: &Groups) -> Self {
        let each = |phrase: fn(&[View], &Group) -> String| -> Vec<String> {
            groups.0.iter().take(GROUPS_MAX).map(|group| phrase(views, group)).collect()
        };
        Self {
            headline: headline(views, groups),
            verdict: each(verdict),
            over_delivered: each(over_delivered),
            over_request: each(over_request),
            over_busy: each(over_busy),
            over_thrashed: each(over_thrashed),
        }
    }
}

/// `a`, `a and b`, `a, b and 3 more`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, two] => format!("{one} and {two}"),
        [one, two, rest @ ..] => format!("{one}, {two} and {} more", rest.len()),
    }
}

/// Names of the other runs that are as fast as the best.
fn as_fast(views: &[View], group: &Group) -> Vec<String> {
    let ours = views[group.best].row.seconds_a_gib();
    let same = |run: &&usize| **run != group.best && views[**run].row.seconds_a_gib() <= ours * AS_FAST;
    group.runs.iter().filter(same).map(|run| called(views, group, *run)).collect()
}

/// The device and cache of a group: `On hdd with 64 MiB of cache`.
fn place(views: &[View], group: &Group) -> String {
    let row = &views[group.best].row;
    match row.cache_bytes {
        Some(cache) => format!("On {} with {} of cache", row.place(), bytes(cache as f64)),
        None => format!("On {} with an unlimited cache", row.place()),
    }
}

/// Name of a run within its group: `ondemand`, or `ondemand (32 pages, arc)` if other runs of the
/// policy differ in these settings.
pub(super) fn called(views: &[View], group: &Group, run: usize) -> String {
    let row = &views[run].row;
    let same =
        || group.runs.iter().map(|other| &views[*other].row).filter(|other| other.policy == row.policy);
    let mut parts = Vec::new();
    if same().any(|other| other.ra_pages != row.ra_pages) {
        parts.push(counted(row.ra_pages.into(), "page"));
    }
    if same().any(|other| other.eviction != row.eviction) {
        parts.push(if row.eviction.is_empty() {
            "default eviction".to_owned()
        } else {
            row.eviction.clone()
        });
    }
    if same().any(|other| other.seed != row.seed) {
        parts.push(format!("seed {}", row.seed));
    }
    if parts.is_empty() { row.policy.clone() } else { format!("{} ({})", row.policy, parts.join(", ")) }
}

/// `3.2 times as fast as none`, or the like.
fn faster(ours: f64, theirs: f64, other: &str) -> String {
    if ours <= 0.0 || theirs <= 0.0 {
        return format!("next to {} s of {other}", three(theirs));
    }
    let ratio = theirs / ours;
    if (0.995..1.005).contains(&ratio) {
        format!("as fast as {other}")
    } else if ratio >= 1.0 {
        format!("{} times as fast as {other}", three(ratio))
    } else {
        format!("{} times as slow as {other}", three(1.0 / ratio))
    }
}

/// ` at 1.8 MiB/s`: the delivered rate; empty if unknown.
fn to_readers(row: &Row) -> String {
    if row.bytes_wanted == 0 || row.seconds <= 0.0 {
        return String::new();
    }
    format!(" at {}", rate(row.bytes_wanted as f64 / row.seconds))
}

/// `1.8 bytes`, `1 byte`.
fn some_bytes(amplification: f64) -> String {
    let number = three(amplification);
    format!("{number} byte{}", if number == "1" { "" } else { "s" })
}

fn verdict(views: &[View], group: &Group) -> String {
    let (best, base) = (&views[group.best].row, &views[group.baseline].row);
    let name = called(views, group, group.best);
    let mut text = format!("{}, {name} ", place(views, group));
    text += &if group.runs.len() > 1 {
        format!("is the best of {} runs: {}{}", group.runs.len(), time(best.seconds * 1e9), to_readers(best))
    } else {
        format!("takes {}{}", time(best.seconds * 1e9), to_readers(best))
    };
    let ties = as_fast(views, group);
    if !ties.is_empty() {
        text += &format!(", as fast as {} within 1\u{a0}% and the leanest of these", listed(&ties));
    }
    if group.best != group.baseline {
        text += ", ";
        text += &faster(best.seconds_a_gib(), base.seconds_a_gib(), &called(views, group, group.baseline));
    }
    if let Some(bound) = group.bound_seconds() {
        text += &format!(" and {} times the oracle's {}", three(best.seconds / bound), time(bound * 1e9));
    }
    text += &format!("; it reads {} for each byte wanted", some_bytes(best.amplification));
    text += &format!(", in requests of {} on average", bytes(best.avg_io_bytes));
    if group.best != group.baseline {
        text += &format!(
            " ({}: {}, {})",
            called(views, group, group.baseline),
            some_bytes(base.amplification),
            bytes(base.avg_io_bytes)
        );
    }
    text + "."
}

/// The runs worth choosing between: no other run is both faster and leaner.
pub(super) fn frontier(views: &[View], group: &Group) -> String {
    let place = place(views, group);
    let point = |run: &usize| {
        let row = &views[*run].row;
        let name = called(views, group, *run);
        format!(
            "{name} ({}{}, {} a byte)",
            time(row.seconds * 1e9),
            to_readers(row),
            some_bytes(row.amplification)
        )
    };
    let left_out = group.runs.len() - group.frontier.len();
    if group.runs.len() == 1 {
        return format!("{place} there is one run: {}.", point(&group.best));
    }
    if group.frontier.len() == 1 {
        return format!(
            "{place}, {} is both fastest and leanest: there is nothing to weigh.",
            point(&group.best)
        );
    }
    let points: Vec<String> = group.frontier.iter().take(6).map(point).collect();
    let mut text = format!("{place}, the choice is between {}", points.join(", "));
    if group.frontier.len() > 6 {
        text += &format!(" and {} more", group.frontier.len() - 6);
    }
    if left_out > 0 {
        text += &format!(
            "; {left_out} of {} runs {} nothing over these",
            group.runs.len(),
            if left_out == 1 { "gains" } else { "gain" }
        );
    }
    text + "."
}

/// The runs with the shortest and the longest tail latency.
pub(super) fn latency(views: &[View], group: &Group) -> String {
    let p99 = |run: &&usize| views[**run].row.latency_ns.p99;
    let (Some(&least), Some(&most)) = (group.runs.iter().min_by_key(p99), group.runs.iter().max_by_key(p99))
    else {
        return String::new();
    };
    let phrase = |run: usize| {
        let latency = views[run].row.latency_ns;
        let name = called(views, group, run);
        format!("{name} ({}, median {})", time(latency.p99 as f64), time(latency.p50 as f64))
    };
    let place = place(views, group);
    if group.runs.len() == 1 {
        return format!("{place}, 99 of 100 reads take no longer than with {}.", phrase(least));
    }
    if p99(&&least) == p99(&&most) {
        return format!(
            "{place}, 99 of 100 reads take no longer than with {}, whatever the policy.",
            phrase(least)
        );
    }
    format!(
        "{place}, the 99th percentile is lowest with {} and highest with {}.",
        phrase(least),
        phrase(most)
    )
}

/// Fate of the readahead pages of the best run and of the most wasteful one.
pub(super) fn ledger(views: &[View], group: &Group) -> String {
    let place = place(views, group);
    let of = |run: usize| (run, Ledger::of(&views[run].row));
    let used = |(_, ledger): &(usize, Ledger)| (ledger.in_time + ledger.late) as f64 / ledger.pages() as f64;
    let some = || group.runs.iter().map(|&run| of(run)).filter(|(_, ledger)| ledger.pages() > 0);
    let Some(least) = some().min_by(|a, b| used(a).total_cmp(&used(b))) else {
        return format!("{place}, nothing was read ahead.");
    };
    // The best run, or the most wasteful one if the best read nothing ahead.
    let first = some().find(|(run, _)| *run == group.best).unwrap_or(least);
    let phrase = |(run, ledger): &(usize, Ledger)| {
        let part = |pages: u64| percent(pages as f64, ledger.pages() as f64);
        format!(
            "of {} pages that {} read ahead, {} were there in time, {} late, {} wasted, {} thrashed",
            count(ledger.pages()),
            called(views, group, *run),
            part(ledger.in_time),
            part(ledger.late),
            part(ledger.wasted),
            part(ledger.thrashed)
        )
    };
    if group.runs.len() == 1 {
        return format!("{place}, {}.", phrase(&first));
    }
    if first.0 == least.0 || used(&first) - used(&least) < 0.005 {
        return format!("{place}, {}; no run wastes more.", phrase(&first));
    }
    format!("{place}, {}; at the other end, {}.", phrase(&first), phrase(&least))
}

/// The best run and its baseline, or others with samples in their place.
fn pair(views: &[View], group: &Group) -> Option<(usize, Option<usize>)> {
    let with = || [group.best, group.baseline].into_iter().chain(group.runs.iter().copied());
    let mut with = with().filter(|run| !views[*run].pace.is_empty);
    let first = with.next()?;
    Some((first, with.find(|run| *run != first)))
}

/// One sentence: the text of `phrase` for each of the pair, and the ratio of their figures.
fn of_pair(
    views: &[View],
    group: &Group,
    subject: &str,
    phrase: impl Fn(&View) -> String,
    figure: impl Fn(&View) -> f64,
) -> String {
    let place = place(views, group);
    let Some((top, other)) = pair(views, group) else {
        return format!("{place}, no samples over time were recorded.");
    };
    let part = |run: usize| format!("{} with {}", phrase(&views[run]), called(views, group, run));
    let Some(other) = other else { return format!("{place}, {subject} {}.", part(top)) };
    let ratio = figure(&views[top]) / figure(&views[other]);
    let relation = match ratio {
        r if !r.is_finite() || r <= 0.0 => String::new(),
        r if (0.95..1.05).contains(&r) => ": about the same".to_owned(),
        r if r > 1.0 => format!(": {} times as much", three(r)),
        r => format!(": {} times as little", three(1.0 / r)),
    };
    format!("{place}, {subject} {} and {}{relation}.", part(top), part(other))
}

fn over_delivered(views: &[View], group: &Group) -> String {
    let most = |view: &View| view.pace.delivered_max;
    of_pair(views, group, "readers get at most", |view| rate(most(view)), most)
}

fn over_request(views: &[View], group: &Group) -> String {
    let phrase = |view: &View| {
        let least =
            view.pace.request_min.map_or_else(String::new, |least| format!(" (at worst {})", bytes(least)));
        format!("{}{least}", bytes(view.row.avg_io_bytes))
    };
    of_pair(views, group, "a request brings on average", phrase, |view| view.row.avg_io_bytes)
}

fn over_busy(views: &[View], group: &Group) -> String {
    let busy = |view: &View| view.row.utilisation;
    of_pair(
        views,
        group,
        "the device is busy for",
        |view| format!("{} of the time", percent(busy(view), 1.0)),
        busy,
    )
}

fn over_thrashed(views: &[View], group: &Group) -> String {
    let phrase = |view: &View| match view.pace.thrashing {
        Some((pages, second)) => format!("{} from {} on", counted(pages, "page"), time(second * 1e9)),
        None => "none".to_owned(),
    };
    let pages = |view: &View| view.pace.thrashing.map_or(0.0, |(pages, _)| pages as f64);
    of_pair(views, group, "thrashed are", phrase, pages)
}

/// Maximum groups the sentence names.
const NAMED_MAX: usize = 4;

/// Gains within this factor count as equal.
const AS_MUCH: f64 = 1.05;

/// The conclusion from all runs.
fn headline(views: &[View], groups: &Groups) -> String {
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
