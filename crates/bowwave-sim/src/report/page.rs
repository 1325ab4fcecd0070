//! Assembles the page: replaces the template's `{{names}}`.

use std::io::{self, Write};

use serde::Serialize;

use super::groups::Groups;
use super::overall::Overall;
use super::sentences::RunSentences;
use super::units;
use super::view::View;
use super::{compare, table};
use crate::record::Row;

const TEMPLATE: &str = include_str!("assets/template.html");
const STYLE: &str = concat!(include_str!("assets/uPlot.min.css"), "\n", include_str!("assets/style.css"));
const CHARTS: &str = include_str!("assets/uPlot.iife.min.js");
/// Explains the oracle, if there is one.
const ORACLE: &str = " The oracle is a bound, not a run: with this cache, no policy beats it on this device.";
/// Titles longer than this many letters use a small font.
const TITLE_LONG: usize = 60;
/// In this order: each uses earlier ones.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("assets/base.js"),
    include_str!("assets/chart.js"),
    include_str!("assets/map.js"),
    include_str!("assets/run.js"),
    include_str!("assets/over.js"),
    include_str!("assets/start.js"),
    "})();\n"
);

/// Data for the scripts.
#[derive(Serialize)]
struct Data<'a> {
    runs: &'a [View],
    groups: Vec<DataGroup<'a>>,
}

/// Runs of one device and cache size.
#[derive(Serialize)]
struct DataGroup<'a> {
    name: String,
    runs: &'a [usize],
    best: usize,
    baseline: usize,
}

/// Writes the page.
pub(super) fn write(
    title: &str,
    command: &str,
    views: &[View],
    bounds: &[Row],
    out: &mut impl Write,
) -> io::Result<()> {
    let groups = Groups::of(views, bounds);
    let overall = Overall::of(views, &groups);
    let each = |text: fn(&RunSentences) -> &str| of_runs(views, |view| text(&view.sentences).to_owned());
    let html = |name: &str| {
        Some(match name {
            "title" => escaped(title),
            "command" => escaped(command),
            "long" => (if title.chars().count() > TITLE_LONG { " class=\"long\"" } else { "" }).to_owned(),
            "size" => size(views, &groups),
            "style" => STYLE.to_owned(),
            "charts" => CHARTS.to_owned(),
            "script" => SCRIPT.to_owned(),
            "headline" => escaped(&overall.headline),
            "overview" => compare::overview(views, &groups),
            "oracle" => {
                (if groups.0.iter().any(|group| group.bound_seconds().is_some()) { ORACLE } else { "" })
                    .to_owned()
            }
            "compared" => {
                let alone = groups.0.iter().all(|group| group.runs.len() == 1);
                (if alone { "In figures" } else { "Compared" }).to_owned()
            }
            "verdict" => of_groups(&overall.verdict),
            "figures" => compare::figures(views, &groups),
            "table" => table::html(views, &groups),
            "over_delivered" => of_groups(&overall.over_delivered),
            "over_request" => of_groups(&overall.over_request),
            "over_busy" => of_groups(&overall.over_busy),
            "over_thrashed" => of_groups(&overall.over_thrashed),
            "run_map" => each(|of| &of.map),
            "run_windows" => each(|of| &of.windows),
            "run_latency" => each(|of| &of.latency),
            "run_sizes" => each(|of| &of.sizes),
            "run_device" => each(|of| &of.device),
            "run_classes" => table::classes(views),
            "run_sampling" => of_runs(views, |view| view.map.sampling()),
            _ => return None,
        })
    };
    let mut rest = TEMPLATE;
    while let Some((text, (name, after))) =
        rest.split_once("{{").and_then(|(text, after)| Some((text, after.split_once("}}")?)))
    {
        out.write_all(text.as_bytes())?;
        match (name, html(name)) {
            ("data", _) => data(views, &groups, out)?,
            (_, Some(html)) => out.write_all(html.as_bytes())?,
            (unknown, None) => return Err(io::Error::other(format!("the template asks for {unknown}"))),
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Summary of the size: `6 runs on 2 devices, 12,000 pages read in each`.
fn size(views: &[View], groups: &Groups) -> String {
    let runs = units::counted(views.len() as u64, "run");
    let accesses: u64 = views.iter().map(|view| view.row.accesses).max().unwrap_or(0);
    let bytes = views.iter().map(|view| view.row.bytes_wanted).max().unwrap_or(0);
    format!(
        "{runs}, {} of device and cache size, {} and {} wanted",
        units::counted(groups.0.len() as u64, "combination"),
        units::counted(accesses, "page access").replace("accesss", "accesses"),
        units::bytes(bytes as f64)
    )
}

/// One sentence per group; scripts show that of the chosen group only.
fn of_groups(sentences: &[String]) -> String {
    let line = |(number, sentence): (usize, &String)| {
        format!("<li class=\"of-group\" data-group=\"{number}\">{}</li>\n", escaped(sentence))
    };
    sentences.iter().enumerate().map(line).collect()
}

/// One sentence per run; scripts show that of the chosen run only.
fn of_runs(views: &[View], text: impl Fn(&View) -> String) -> String {
    let line = |(index, view): (usize, &View)| {
        format!(
            "<li data-run=\"{index}\"><b><bdi>{}</bdi></b> {}</li>\n",
            escaped(view.name()),
            escaped(&text(view))
        )
    };
    views.iter().enumerate().map(line).collect()
}

fn data(views: &[View], groups: &Groups, out: &mut impl Write) -> io::Result<()> {
    let group = |group| DataGroup {
        name: compare::name(views, group),
        runs: &group.runs,
        best: group.best,
        baseline: group.baseline,
    };
    let groups = groups.0.iter().map(group).collect();
    serde_json::to_writer(Harmless(out), &Data { runs: views, groups }).map_err(io::Error::from)
}

/// Escapes `<` in JSON, so that nothing in it can end the enclosing script element or open a
/// comment.
///
/// JSON has `<` only in strings, where an escape is valid.
struct Harmless<'a, W>(&'a mut W);

impl<W: Write> Write for Harmless<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (index, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The styles of every page.
pub(crate) fn style() -> &'static str {
    STYLE
}

/// Escapes `text` for HTML text or an attribute value.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            letter => html.push(letter),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_its_element() {
        let mut out = Vec::new();
        serde_json::to_writer(Harmless(&mut out), "</script><!--").unwrap();
        assert_eq!(out, br#""\u003c/script>\u003c!--""#);
    }
}
