//! One HTML file that shows recorded runs in pictures: the output of `bowwave report` and
//! `replay --html`.
//!
//! ```text
//!   RUN.json ──► load ──► check ──► View of each run, of bounded size ──► page ──► HTML
//!                (one run in memory at a time)    sentences · columns · counts
//! ```
//!
//! All sentences and counts are computed here, from everything that was recorded. Scripts of the
//! page only draw, so the table and the sentences work without them. The page loads nothing from
//! elsewhere.
//!
//! ```
//! use bowwave_sim::record::{Recording, Row, Run};
//! use bowwave_sim::report::Report;
//!
//! let row = Row { policy: "none".into(), device: "hdd".into(), accesses: 8, ..Row::default() };
//! let run = Run { row, page_bytes: 4096, ..Run::default() };
//! let recording = Recording { title: "a trace".into(), runs: vec![run], ..Recording::new() };
//! let mut html = Vec::new();
//! Report::of(&recording)?.write(&mut html)?;
//! assert!(html.starts_with(b"<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod column;
mod compare;
mod groups;
mod heat;
mod load;
mod map;
mod overall;
mod pace;
mod page;
mod sentences;
mod sizes;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod thin;
mod units;
mod view;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read, Write};

use crate::record::{Reads, Recording, Row, Run};
pub(crate) use page::{escaped, style};
use view::View;

/// Maximum reads and decisions in the pictures of all runs; about 12 bytes of the page each.
const SHOWN_MAX: usize = 240_000;

/// Maximum per run.
const RUN_SHOWN_MAX: usize = 48_000;

/// Guaranteed minimum per run, however many runs there are.
const RUN_SHOWN_MIN: usize = 600;

/// A page under construction, run by run.
#[derive(Debug, Default)]
pub struct Report {
    title: String,
    command: String,
    views: Vec<View>,
    bounds: Vec<Row>,
    /// Reads and decisions in `views`.
    shown: usize,
}

impl Report {
    /// A page without runs. `title` names the input; `command` is the command line of the run.
    pub fn new(title: &str, command: &str) -> Self {
        Self { title: units::visible(title), command: units::visible(command), ..Self::default() }
    }

    /// The page of a recording.
    ///
    /// # Errors
    ///
    /// If the recording has another version, contradicts itself or is empty. The message names the
    /// place.
    pub fn of(recording: &Recording) -> Result<Self, Error> {
        if recording.version != Recording::VERSION {
            return Err(Error::version(recording.version));
        }
        let mut report = Self::new(&recording.title, &recording.command);
        for run in &recording.runs {
            report.add(run)?;
        }
        recording.bounds.iter().try_for_each(|row| report.bound(row))?;
        report.check_not_empty()?;
        Ok(report)
    }

    /// The page of a recording in JSON. Holds one run in memory at a time.
    ///
    /// # Errors
    ///
    /// As [`Report::of`], and if `json` cannot be read or is no recording. The message names the
    /// place, but not the file.
    pub fn read(json: impl Read) -> Result<Self, Error> {
        let report = load::read(json)?;
        report.check_not_empty()?;
        Ok(report)
    }

    /// Adds a run. The page retains a bounded amount of it.
    ///
    /// # Errors
    ///
    /// If the run contradicts itself or has no reads.
    pub fn add(&mut self, run: &Run) -> Result<(), Error> {
        check::run(run, self.views.len())?;
        let view = View::of(&in_order(run), RUN_SHOWN_MAX);
        self.shown += view.shown();
        self.views.push(view);
        // Twice the maximum: each run is thinned only a few times, however many are added.
        if self.shown > 2 * SHOWN_MAX {
            self.thin();
        }
        Ok(())
    }

    /// Adds a bound, to compare with the runs of its device and cache size.
    ///
    /// # Errors
    ///
    /// If its figures are invalid.
    pub fn bound(&mut self, row: &Row) -> Result<(), Error> {
        check::bound(row, self.bounds.len())?;
        self.bounds.push(view::visible(row));
        Ok(())
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        self.thin();
        page::write(&self.title, &self.command, &self.views, &self.bounds, out)
    }

    fn thin(&mut self) {
        let quota = (SHOWN_MAX / self.views.len().max(1)).clamp(RUN_SHOWN_MIN, RUN_SHOWN_MAX);
        self.views.iter_mut().for_each(|view| view.thin(quota));
        self.shown = self.views.iter().map(View::shown).sum();
    }

    fn check_not_empty(&self) -> Result<(), Error> {
        if self.views.is_empty() {
            return Err(Error::new("the recording holds no runs"));
        }
        Ok(())
    }
}

/// The run with reads in order of start: a driver records a read when it has ended.
fn in_order(run: &Run) -> Cow<'_, Run> {
    let times = &run.reads.time_ns;
    if times.is_sorted() {
        return Cow::Borrowed(run);
    }
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&index| times[index]);
    let mut run = run.clone();
    let Reads { time_ns, latency_ns, file, start, pages, outcome } = &mut run.reads;
    [time_ns, latency_ns, start].into_iter().for_each(|list| thin::select(list, &order));
    [file, pages].into_iter().for_each(|list| thin::select(list, &order));
    thin::select(outcome, &order);
    Cow::Owned(run)
}

/// Why there is no page: the defect of the recording, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl Error {
    fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }

    fn version(found: u32) -> Self {
        let known = Recording::VERSION;
        Self::new(format_args!("the recording has version {found}, and this program knows version {known}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
