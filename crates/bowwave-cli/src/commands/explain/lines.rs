//! Prints decisions as columns or JSON objects.

use std::collections::BTreeMap;

use bowwave_core::{Detector, Scores};
use bowwave_trace::Record;
use serde::Serialize;

use super::decisions::Explained;
use crate::Failure;
use crate::output::{Output, plain};

/// Prints decisions as they come.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    output: &'a mut Output,
    json: bool,
}

/// A decision in `--json`; its format is a public contract.
#[derive(Serialize)]
struct Line<'a> {
    access: u64,
    pid: u64,
    file: &'a str,
    page: u64,
    req_pages: u64,
    trigger: &'static str,
    reason: &'static str,
    start: u64,
    size: u64,
    async_size: u64,
    submitted: &'a [[u64; 2]],
    mark: Option<u64>,
    /// For policies with detectors: how well each has predicted the reads so far, from 0 to
    /// [`Scores::MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    detectors: Option<BTreeMap<&'static str, u8>>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(output: &'a mut Output, json: bool) -> Self {
        Self { output, json }
    }

    /// Prints the column headings.
    pub(super) fn head(&mut self) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.output.line(columns(
            ["access", "pid", "page", "req", "trigger", "reason", "start", "size", "async"],
            "submitted",
            "mark",
            "file",
        ))
    }

    /// Prints a decision caused by `record`, row number `access`.
    pub(super) fn decision(
        &mut self,
        access: u64,
        record: &Record,
        explained: &Explained,
    ) -> Result<(), Failure> {
        let decision = &explained.decision;
        let window = decision.plan.window;
        let submitted: Vec<[u64; 2]> =
            explained.submitted.iter().map(|range| [range.start.0, range.end.0]).collect();
        let line = Line {
            access,
            pid: record.pid,
            file: &record.file,
            page: decision.page.0,
            req_pages: decision.req_pages.0,
            trigger: decision.trigger.name(),
            reason: decision.plan.reason.name(),
            start: window.start.0,
            size: window.size.0,
            async_size: window.async_size.0,
            submitted: &submitted,
            mark: decision.mark.map(|page| page.0),
            detectors: decision.plan.scores().map(detectors),
        };
        if self.json { self.output.json_line(&line) } else { self.output.line(line.for_people()) }
    }
}

impl Line<'_> {
    fn for_people(&self) -> String {
        let numbers = [self.access, self.pid, self.page, self.req_pages].map(|number| number.to_string());
        let window = [self.start, self.size, self.async_size].map(|number| number.to_string());
        let [access, pid, page, req] = &numbers;
        let [start, size, ahead] = &window;
        let runs: Vec<String> = self.submitted.iter().map(|[start, end]| format!("{start}..{end}")).collect();
        let mark = self.mark.map_or_else(|| "-".to_owned(), |page| page.to_string());
        let file = plain(self.file);
        columns(
            [access, pid, page, req, self.trigger, self.reason, start, size, ahead],
            if runs.is_empty() { "-".to_owned() } else { runs.join(",") }.as_str(),
            &mark,
            &file,
        )
    }
}

/// A line of columns, wide enough for most traces; wider values shift the rest.
fn columns(cells: [&str; 9], submitted: &str, mark: &str, file: &str) -> String {
    let [access, pid, page, req, trigger, reason, start, size, ahead] = cells;
    format!(
        "{access:>7} {pid:>6} {page:>8} {req:>5} {trigger:<7} {reason:<11} {start:>8} {size:>5} {ahead:>5} {submitted:<17} {mark:>8} {file}"
    )
}

fn detectors(scores: Scores) -> BTreeMap<&'static str, u8> {
    Detector::ALL.into_iter().map(|detector| (detector.name(), scores.of(detector))).collect()
}
