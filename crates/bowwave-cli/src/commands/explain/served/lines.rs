//! Prints dispatches as columns or JSON objects.

use bowwave_core::schedule::{Class, Direction};
use serde::Serialize;

use super::PRIORITIES;
use super::layout::Layout;
use super::server::Dispatched;
use crate::Failure;
use crate::output::{Output, plain};

/// Prints dispatches as they come.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    output: &'a mut Output,
    json: bool,
    layout: &'a Layout,
}

/// A dispatch in `--json`; its format is a public contract.
#[derive(Serialize)]
struct Line<'a> {
    time_ns: u64,
    rows: &'a [u64],
    file: &'a str,
    offset: u64,
    length: u64,
    direction: &'static str,
    class: &'static str,
    priority: &'static str,
    reason: &'static str,
    waited_ns: u64,
    expired: bool,
    merged: bool,
    promoted: bool,
    waiting: Waiting,
    at_device: usize,
}

#[derive(Serialize)]
struct Waiting {
    sync: u64,
    #[serde(rename = "async")]
    background: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(output: &'a mut Output, json: bool, layout: &'a Layout) -> Self {
        Self { output, json, layout }
    }

    /// Prints the column headings.
    pub(super) fn head(&mut self) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.output.line(columns(
            ["ms", "dir", "class", "reason", "waited", "offset", "KiB", "sync", "async", "device"],
            "flags",
            "rows",
            "file",
        ))
    }

    pub(super) fn dispatch(&mut self, dispatch: &Dispatched) -> Result<(), Failure> {
        let priority = PRIORITIES.iter().find(|(_, priority)| *priority == dispatch.priority);
        let line = Line {
            time_ns: dispatch.at.0,
            rows: &dispatch.rows,
            file: &self.layout.files[dispatch.file as usize].name,
            offset: dispatch.offset,
            length: dispatch.length,
            direction: match dispatch.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            class: match dispatch.class {
                Class::Sync => "sync",
                Class::Async => "async",
            },
            priority: priority.map_or("", |(name, _)| name),
            reason: dispatch.reason.name(),
            waited_ns: dispatch.waited_ns,
            expired: dispatch.expired,
            merged: dispatch.parts > 1,
            promoted: dispatch.promoted,
            waiting: Waiting { sync: dispatch.waiting[0], background: dispatch.waiting[1] },
            at_device: dispatch.at_device,
        };
        if self.json { self.output.json_line(&line) } else { self.output.line(line.for_people()) }
    }
}

impl Line<'_> {
    fn for_people(&self) -> String {
        let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        let marks = [("expired", self.expired), ("merged", self.merged), ("promoted", self.promoted)];
        let mut flags: Vec<&str> = marks.iter().filter(|mark| mark.1).map(|mark| mark.0).collect();
        if self.priority != PRIORITIES[1].0 {
            flags.push(self.priority);
        }
        let file = plain(self.file);
        columns(
            [
                &ms(self.time_ns),
                self.direction,
                self.class,
                self.reason,
                &ms(self.waited_ns),
                &self.offset.to_string(),
                &(self.length / 1024).to_string(),
                &self.waiting.sync.to_string(),
                &self.waiting.background.to_string(),
                &self.at_device.to_string(),
            ],
            &if flags.is_empty() { "-".to_owned() } else { flags.join(",") },
            &spans(self.rows),
            &file,
        )
    }
}

/// Numbers with runs joined: `3,5..8`, inclusive.
fn spans(rows: &[u64]) -> String {
    let runs = rows.chunk_by(|one, next| next.checked_sub(*one) == Some(1));
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}..{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// A line of columns, wide enough for most traces; wider values shift the rest.
fn columns(cells: [&str; 10], flags: &str, rows: &str, file: &str) -> String {
    let [ms, direction, class, reason, waited, offset, kib, sync, background, device] = cells;
    format!(
        "{ms:>12} {direction:<5} {class:<5} {reason:<8} {waited:>10} {offset:>12} {kib:>5} {sync:>5} {background:>5} {device:>6} {flags:<14} {rows:<9} {file}"
    )
}
