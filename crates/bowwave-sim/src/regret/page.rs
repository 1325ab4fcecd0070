//! The picture: how the ratios are distributed, and the worst points.

use std::fmt::Write as _;

use super::{Outcome, Summary};
use crate::report::{escaped, style};

/// Width and height of a chart, in its own units.
const SIZE: (f64, f64) = (640.0, 260.0);
/// Largest ratio of a chart; larger ones are drawn at its edge.
const RATIO_MAX: f64 = 10.0;
/// Most steps of a curve.
const STEPS_MAX: usize = 400;

/// A page without scripts. `worst` are points with the reasons of their decisions.
pub fn page(title: &str, command: &str, outcomes: &[Outcome], worst: &[(&Outcome, String)]) -> String {
    let summaries = Summary::of(outcomes);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{}\n</style>\
         </head>\n<body><main class=\"width\">\n<h1>{title}</h1>\n<p class=\"quiet\"><code>{}</code></p>\n",
        style(),
        escaped(command),
        title = escaped(title),
    );
    for summary in &summaries {
        let of_device: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| summary.device == "all" || outcome.point.device == summary.device)
            .collect();
        let _never_fails = write!(
            html,
            "<section><h2>{}: {} points</h2>\n<figure>{}<figcaption>Share of points (up) whose seconds are at \
             most this multiple (right, logarithmic, to {RATIO_MAX}): of the best other policy (solid), of \
             no readahead (dashed). Lines at 1 and 1.25.</figcaption></figure>\n</section>\n",
            escaped(&summary.device),
            summary.points,
            curves(&of_device),
        );
    }
    let _never_fails = writeln!(
        html,
        "<section><h2>In figures</h2><pre>{}</pre></section>",
        escaped(&Summary::table(&summaries))
    );
    html += "<section><h2>The worst points</h2><table>\n<tr><th>ratio<th>seed<th>device<th>memory<th>stream\
             <th>best other<th>pattern<th>decisions of stream</tr>\n";
    for (outcome, reasons) in worst {
        let best = outcome.best_other();
        let _never_fails = writeln!(
            html,
            "<tr><td>{:.2}<td>{}<td>{}<td>{}<td>{:.3} s<td>{} {:.3} s<td>{}<td>{}</tr>",
            outcome.to_best(),
            outcome.point.seed,
            escaped(&outcome.point.device),
            outcome.point.memory,
            outcome.stream.seconds,
            escaped(&best.policy),
            best.seconds,
            escaped(&outcome.pattern),
            escaped(reasons),
        );
    }
    html += "</table></section>\n</main></body></html>\n";
    html
}

/// Two cumulative distributions.
fn curves(outcomes: &[&Outcome]) -> String {
    let (width, height) = SIZE;
    let to_best = outcomes.iter().map(|outcome| outcome.to_best()).collect();
    let to_none = outcomes.iter().filter_map(|outcome| outcome.to_none()).collect();
    let line = |ratio: f64| {
        let x = across(ratio);
        format!("<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height}\" stroke=\"var(--grid)\"/>")
    };
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" style=\"max-width:{width}px\">{}{}<polyline \
         points=\"{}\" fill=\"none\" stroke=\"var(--accent)\" stroke-width=\"2\"/><polyline points=\"{}\" \
         fill=\"none\" stroke=\"var(--miss)\" stroke-dasharray=\"5 4\"/></svg>",
        line(1.0),
        line(1.25),
        steps(to_best),
        steps(to_none)
    )
}

/// The horizontal place of a ratio: logarithmic from 1/10 to 10.
fn across(ratio: f64) -> f64 {
    let bounded = ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX);
    (bounded.log10() / RATIO_MAX.log10() + 1.0) / 2.0 * SIZE.0
}

fn steps(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    let mut text = String::new();
    for number in 0..count.min(STEPS_MAX) {
        let index = number * (count - 1) / (count.min(STEPS_MAX) - 1).max(1);
        let up = SIZE.1 * (1.0 - (index + 1) as f64 / count as f64);
        let _never_fails = write!(text, "{:.1},{up:.1} ", across(ratios[index]));
    }
    text
}
