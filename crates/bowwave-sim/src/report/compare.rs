//! Compares the runs of each device and cache size as HTML bars: they need no script, wrap on a
//! phone and print.

use std::fmt::Write;

use super::groups::{Group, Groups};
use super::overall;
use super::page::escaped;
use super::units::{bytes, count, three, time};
use super::view::{Ledger, View};
use crate::record::Row;

/// Ratio below which two runs count as equal.
const THE_SAME: f64 = 1.01;

/// Ratio of bytes read below which bars look the same; the table tells them apart.
const AS_LEAN: f64 = 1.05;

/// Latencies up to this, in nanoseconds, are drawn as this: cache hits.
const FLOOR_NS: f64 = 100.0;

/// Quantity of the first picture's bars.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Seconds.
    Seconds,
    /// Seconds per GiB delivered: stopped runs have read different amounts.
    SecondsAGib,
    /// 99th percentile of read latency, where the trace sets the duration.
    Latency,
}

/// A bar: a name, a share of the longest one, and the figure in words.
struct Bar {
    class: &'static str,
    name: String,
    /// HTML of the bar.
    drawn: String,
    /// The figure, as HTML.
    value: String,
}

/// A block of bars for each device and cache size: duration of each run, and the oracle.
pub(super) fn overview(views: &[View], groups: &Groups) -> String {
    let mut html = String::new();
    for (number, group) in groups.0.iter().enumerate() {
        let measure = Measure::of(views, group);
        let mut entries: Vec<(f64, Option<usize>)> =
            group.runs.iter().map(|&run| (measure.value(&views[run].row), Some(run))).collect();
        if measure == Measure::Seconds {
            entries.extend(group.bound_seconds().map(|seconds| (seconds, None)));
        }
        // One bar is as long as itself.
        if entries.len() < 2 {
            continue;
        }
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let longest = entries.iter().map(|entry| entry.0).fold(0.0, f64::max);
        // The best by latency is not the best by time.
        let best_run = Some(group.best).filter(|_| group.runs.len() > 1 && measure != Measure::Latency);
        let runs = entries.iter().filter(|entry| entry.1.is_some());
        let best = runs.map(|entry| entry.0).fold(f64::INFINITY, f64::min);
        let bar = |&(value, run): &(f64, Option<usize>)| {
            let ratio = value / best;
            let times = if run.is_some() && ratio >= THE_SAME && ratio.is_finite() {
                format!(" <small>{}×</small>", three(ratio))
            } else {
                String::new()
            };
            let best = run.is_some() && run == best_run;
            Bar {
                class: if run.is_none() {
                    "bound"
                } else if best {
                    "best"
                } else {
                    ""
                },
                name: match run {
                    Some(run) if best => format!("★ {}", named(views, group, run)),
                    Some(run) => named(views, group, run),
                    None => "oracle".to_owned(),
                },
                drawn: length(value / longest, run.map_or("bound", |_| "run")),
                value: format!("{}{times}", time(measure.nanoseconds(value))),
            }
        };
        let bars: Vec<Bar> = entries.iter().map(bar).collect();
        let _never_fails = writeln!(
            html,
            "<section class=\"block\" data-block=\"{number}\"><h3><bdi>{}</bdi></h3>{}{}</section>",
            escaped(&name(views, group)),
            measure.remark(),
            list(&bars)
        );
    }
    html
}

/// Pictures of each device and cache size except the first; scripts show those of the chosen one.
pub(super) fn figures(views: &[View], groups: &Groups) -> String {
    let mut html = String::new();
    for (number, group) in groups.0.iter().enumerate() {
        let mut figure = |title: &str, sentence: &str, picture: &str, caption: &str| {
            let sentence = escaped(sentence);
            let _never_fails = writeln!(
                html,
                "<figure class=\"of-group\" data-group=\"{number}\"><h3>{title}</h3><p class=\"says\">{sentence}</p>{picture}\
                 <figcaption>{caption}</figcaption></figure>"
            );
        };
        if let Some(picture) = latency(views, group) {
            let caption = "● median, ▲ 99th percentile, ┃ slowest read. Each step of the axis is ten times the one before it.";
            figure("How long reads take", &overall::latency(views, group), &picture, caption);
        }
        if let Some(picture) = waste(views, group) {
            let caption = "1 is no waste. Below 1, bytes were read once and used again.";
            figure("Bytes read for each byte wanted", &overall::frontier(views, group), &picture, caption);
        }
        if let Some(picture) = ledger(views, group) {
            let caption = "In time: there when wanted. Late: wanted while in flight. Wasted: never wanted. Thrashed: evicted unused, \
                           then wanted.";
            figure("Pages read ahead", &overall::ledger(views, group), &picture, caption);
        }
    }
    html
}

/// `nvme, cache 64 MiB`.
pub(super) fn name(views: &[View], group: &Group) -> String {
    let row = &views[group.best].row;
    let cache = row.cache_bytes.map_or_else(|| "unlimited".to_owned(), |size| bytes(size as f64));
    format!("{}, cache {cache}", row.place())
}

impl Measure {
    fn of(views: &[View], group: &Group) -> Self {
        let differs = |value: &dyn Fn(&Row) -> f64| {
            let values = || group.runs.iter().map(|&run| value(&views[run].row));
            values().fold(0.0, f64::max) > values().fold(f64::INFINITY, f64::min) * THE_SAME
        };
        if differs(&|row| row.bytes_wanted as f64) {
            Self::SecondsAGib
        } else if group.bound_seconds().is_none()
            && !differs(&|row| row.seconds)
            && differs(&|row| row.latency_ns.p99 as f64)
        {
            Self::Latency
        } else {
            Self::Seconds
        }
    }

    fn value(self, row: &Row) -> f64 {
        match self {
            Self::Seconds => row.seconds,
            Self::SecondsAGib => row.seconds_a_gib(),
            Self::Latency => row.latency_ns.p99 as f64,
        }
    }

    fn nanoseconds(self, value: f64) -> f64 {
        if self == Self::Latency { value } else { value * 1e9 }
    }

    /// Names the quantity, if it is not that of the heading.
    fn remark(self) -> &'static str {
        match self {
            Self::Seconds => "",
            Self::SecondsAGib => "<p class=\"quiet\">Time for a GiB that readers got.</p>",
            Self::Latency => "<p class=\"quiet\">99th percentile of reads: all runs take the same time.</p>",
        }
    }
}

/// Median, 99th percentile and maximum of each run on a logarithmic axis; `None` if all reads took
/// the same time.
fn latency(views: &[View], group: &Group) -> Option<String> {
    let of = |run: &usize| views[*run].row.latency_ns;
    let log = |ns: u64| (ns as f64).max(FLOOR_NS).log10();
    let most = group.runs.iter().map(|run| of(run).max).max().filter(|most| *most > 0)?;
    let least = group.runs.iter().map(|run| of(run).p50).min()?;
    if most as f64 <= least as f64 * THE_SAME {
        return None;
    }
    let low = group.runs.iter().map(|run| log(of(run).p50)).fold(f64::INFINITY, f64::min).floor();
    let high = log(most).max(low + 1.0).ceil();
    let at = |ns: u64| 100.0 * (log(ns) - low) / (high - low);
    let bar = |run: &usize| {
        let latency = of(run);
        let (median, tail, slowest) = (at(latency.p50), at(latency.p99), at(latency.max));
        Bar {
            class: "",
            name: named(views, group, *run),
            drawn: format!(
                "<span class=\"range\"><i class=\"line\" style=\"left:{median:.2}%;width:{:.2}%\"></i>\
                 <i class=\"slowest\" style=\"left:{slowest:.2}%\"></i><i class=\"tail\" style=\"left:{tail:.2}%\">▲</i>\
                 <i class=\"median\" style=\"left:{median:.2}%\"></i></span>",
                slowest - median
            ),
            value: format!("{} <small>median {}</small>", time(latency.p99 as f64), time(latency.p50 as f64)),
        }
    };
    let bars: Vec<Bar> = group.runs.iter().map(bar).collect();
    // At most five labels, so that they stand apart on a phone.
    let step = ((high - low) / 4.0).ceil().max(1.0);
    let mut labels = String::new();
    let mut power = low;
    while power <= high {
        let left = 100.0 * (power - low) / (high - low);
        let _never_fails = write!(labels, "<i style=\"left:{left:.2}%\">{}</i>", time(10_f64.powf(power)));
        power += step;
    }
    let axis =
        format!("<li class=\"axis\" aria-hidden=\"true\"><span class=\"range\">{labels}</span></li></ul>");
    Some(list(&bars).replace("</ul>", &axis))
}

/// Bytes read per byte requested; `None` if all runs have the same.
fn waste(views: &[View], group: &Group) -> Option<String> {
    let of = |run: &usize| views[*run].row.amplification;
    let longest = group.runs.iter().map(of).fold(0.0, f64::max);
    let least = group.runs.iter().map(of).fold(f64::INFINITY, f64::min);
    if longest <= least * AS_LEAN {
        return None;
    }
    let bar = |run: &usize| Bar {
        class: if *run == group.best { "best" } else { "" },
        name: named(views, group, *run),
        drawn: length(of(run) / longest, "run"),
        value: three(of(run)),
    };
    Some(list(&group.runs.iter().map(bar).collect::<Vec<_>>()))
}

/// Fate of readahead pages; `None` without readahead.
fn ledger(views: &[View], group: &Group) -> Option<String> {
    let runs: Vec<(usize, Ledger)> =
        group.runs.iter().map(|&run| (run, Ledger::of(&views[run].row))).collect();
    let longest = runs.iter().map(|(_, ledger)| ledger.pages()).max().filter(|most| *most > 0)?;
    let bar = |(run, ledger): &(usize, Ledger)| {
        let parts = [
            ("in-time", "in time", ledger.in_time),
            ("late", "late", ledger.late),
            ("wasted", "wasted", ledger.wasted),
            ("thrashed", "thrashed", ledger.thrashed),
        ];
        let mut drawn = String::from("<span class=\"stack\">");
        for (class, what, pages) in parts.into_iter().filter(|part| part.2 > 0) {
            let share = 100.0 * pages as f64 / longest as f64;
            let _never_fails = write!(
                drawn,
                "<i class=\"{class}\" style=\"width:{share:.2}%\" title=\"{} {what}\"></i>",
                count(pages)
            );
        }
        Bar {
            class: "",
            name: named(views, group, *run),
            drawn: drawn + "</span>",
            value: count(ledger.pages()),
        }
    };
    let legend = "<ul class=\"legend\"><li><span class=\"key in-time\"></span>in time</li><li><span class=\"key late\"></span>late</li>\
                  <li><span class=\"key wasted\"></span>wasted</li><li><span class=\"key thrashed\"></span>thrashed</li></ul>";
    Some(format!("{}{legend}", list(&runs.iter().map(bar).collect::<Vec<_>>())))
}

fn named(views: &[View], group: &Group, run: usize) -> String {
    overall::called(views, group, run)
}

/// A bar for a share of the full width.
fn length(share: f64, class: &str) -> String {
    let share = if share.is_finite() { 100.0 * share } else { 0.0 };
    format!("<span class=\"stack\"><i class=\"{class}\" style=\"width:{share:.2}%\"></i></span>")
}

fn list(bars: &[Bar]) -> String {
    let mut html = String::from("<ul class=\"bars\">");
    for Bar { class, name, drawn, value } in bars {
        let name = escaped(name);
        let _never_fails = write!(
            html,
            "<li class=\"{class}\"><span class=\"name\" title=\"{name}\"><bdi>{name}</bdi></span>{drawn}\
             <span class=\"value\">{value}</span></li>"
        );
    }
    html + "</ul>"
}
