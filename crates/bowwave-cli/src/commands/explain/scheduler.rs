//! `explain --scheduler`: a trace in front of a device, each dispatch with its reason.

mod server;

use std::collections::HashMap;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::schedule::{Priority, Reason, SchedulerConfig, SchedulerStats};
use bowwave_core::{PageSize, Policy};
use bowwave_sim::device::DeviceSpec;
use bowwave_trace::{Op, Record};
use serde::Serialize;

use super::Input;
use crate::Failure;
use crate::output::{self, Output, plain};
use crate::progress::Progress;
use crate::values::Explained;
use server::{Dispatched, Server, Setup};

/// Options of `--scheduler`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SchedulerArgs {
    /// Explain this scheduler instead: noop, deadline-rw, deadline or deadline-literal, optionally
    /// with settings, as in deadline:starved=4
    #[arg(long, value_name = "NAME", value_parser = known)]
    pub(super) scheduler: Option<String>,

    /// Queue depth of the device; by default its own (depth or slots)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), requires = "scheduler")]
    device_depth: Option<u32>,

    /// The priority of a process: PID=real-time, best-effort or idle; may be given several times
    #[arg(long, value_name = "PID=CLASS", value_parser = priority, requires = "scheduler")]
    priority: Vec<(u64, Priority)>,
}

fn known(text: &str) -> Result<String, String> {
    bowwave_baselines::scheduler(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn device(text: &str) -> Result<String, String> {
    DeviceSpec::open(text, &ALGORITHMS).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn priority(text: &str) -> Result<(u64, Priority), String> {
    let parsed = text.split_once('=').and_then(|(pid, name)| {
        let known = Priority::ALL.into_iter().find(|known| known.name() == name)?;
        Some((pid.parse().ok()?, known))
    });
    parsed.ok_or_else(|| "not of the form PID=CLASS; there are real-time, best-effort, idle".to_owned())
}

impl SchedulerArgs {
    /// The device and its scheduler, fully configured.
    fn setup(&self, scheduler: &str, device: &str) -> Result<(DeviceSpec, SchedulerConfig), Failure> {
        let spec = DeviceSpec::open(device, &ALGORITHMS).map_err(Failure::usage)?;
        let spec = match self.device_depth {
            None => spec,
            Some(depth) => spec.with_depth(depth).map_err(Failure::usage)?,
        };
        let (name, knobs) =
            scheduler.split_once(':').map_or((scheduler, None), |(name, knobs)| (name, Some(knobs)));
        let queue = spec.queue();
        let mut config = SchedulerConfig {
            algorithm: bowwave_baselines::scheduler(name).map_err(Failure::usage)?.algorithm,
            request_bytes_max: spec.build(0).request_bytes_max(),
            merge_back: queue.merge,
            ..queue.scheduler.clone()
        };
        if let Some(knobs) = knobs {
            config.turn(knobs).map_err(Failure::usage)?;
        }
        config.merge_front &= queue.merge;
        Ok((spec, config))
    }
}

/// Serves the trace and prints the dispatches; returns the number of skipped rows.
pub(super) fn run(args: &super::Args, scheduler: &str) -> Result<u64, Failure> {
    let (spec, scheduler) = args.dispatched.setup(scheduler, args.device.as_deref().unwrap_or("hdd"))?;
    let layout = Layout::read(Input::open(&args.trace, args.format)?, args.file_pages)?;
    let mut server = Server::new(Setup {
        policy: match args.policy {
            Some(Explained::Files(policy)) => policy,
            Some(Explained::Swap(policy)) => {
                let wrong = format!("--policy {} is of swap, and --scheduler serves files", policy.name());
                return Err(Failure::usage(wrong));
            }
            None => Policy::None,
        },
        ra_pages: args.ra_pages,
        device: spec.build(0),
        scheduler,
        priorities: args.dispatched.priority.iter().copied().collect(),
        layout: &layout,
    })
    .map_err(Failure::usage)?;
    let mut output = Output::stdout();
    let outcome = serve(&mut server, &layout, Lines::new(&mut output, args.json, &layout));
    output.finish(outcome)?;
    output::note(summary(server.stats()));
    Ok(layout.left_out)
}

fn serve(server: &mut Server<'_>, layout: &Layout, mut lines: Lines<'_>) -> Result<(), Failure> {
    let mut progress = Progress::rows("serving", layout.rows.len() as u64);
    lines.head()?;
    for rows in layout.rows.chunk_by(|one, other| one.time_ns == other.time_ns) {
        server.at(rows);
        progress.at(rows.last().map_or(0, |row| row.number));
        server.dispatched().try_for_each(|dispatch| lines.dispatch(&dispatch))?;
    }
    server.finish();
    server.dispatched().try_for_each(|dispatch| lines.dispatch(&dispatch))
}

/// The counters in one line.
fn summary(stats: &SchedulerStats) -> String {
    let reasons = Reason::ALL.into_iter().filter(|&reason| stats.dispatched_for(reason) > 0);
    let reasons: Vec<String> =
        reasons.map(|reason| format!("{} {}", stats.dispatched_for(reason), reason.name())).collect();
    format!(
        "{} requests, {} merged, {} promoted, {} dropped; {} dispatches ({}), {} past their deadline",
        stats.added,
        stats.merged + stats.closed,
        stats.promoted,
        stats.cancelled,
        stats.dispatches(),
        reasons.join(", "),
        stats.late,
    )
}

/// Bytes of a page, as the trace format defines it.
const PAGE: PageSize = PageSize::KIB_4;
/// Maximum pages of a row, as without a scheduler.
const ROW_PAGES_MAX: u64 = 1 << 20;
/// Alignment of files in pages, as in a replay.
const FILE_PAGES_ALIGNMENT: u64 = 256;
/// Maximum pages of all files: 2^62 bytes, so that addresses do not overflow.
const DEVICE_PAGES_MAX: u64 = 1 << (62 - PAGE.shift());

/// A trace, laid out.
#[derive(Debug)]
struct Layout {
    /// In order of time.
    rows: Vec<Row>,
    files: Vec<File>,
    /// Skipped rows.
    left_out: u64,
}

/// A row; its pages lie within its file.
#[derive(Clone, Copy, Debug)]
struct Row {
    number: u64,
    time_ns: u64,
    pid: u64,
    op: Op,
    file: u32,
    start: u64,
    end: u64,
    /// Whether it ends inside its last page.
    ends_inside: bool,
}

#[derive(Debug)]
struct File {
    name: String,
    /// Its first page on the device.
    at: u64,
    pages: u64,
}

impl Layout {
    /// Reads a whole trace. Files have `file_pages`, or end with their last access.
    fn read(input: Input, file_pages: Option<u64>) -> Result<Self, Failure> {
        let mut layout = Self { rows: Vec::new(), files: Vec::new(), left_out: 0 };
        let (mut names, mut now, name) = (HashMap::new(), 0, input.name.clone());
        input.each("reading", |number, record| {
            // Rows of several processes may be out of order.
            now = record.time_ns.max(now);
            layout
                .row(&mut names, record, (number, now), file_pages)
                .map_err(|what| failed!("{name}: row {number}: {what}"))?;
            Ok(true)
        })?;
        let mut at = 0u64;
        for file in &mut layout.files {
            file.at = at;
            at = at.saturating_add(file.pages).next_multiple_of(FILE_PAGES_ALIGNMENT);
            if at > DEVICE_PAGES_MAX {
                let what = "all files together take more than 2^62 bytes, the largest device";
                return Err(failed!("{name}: {what}"));
            }
        }
        Ok(layout)
    }

    fn row(
        &mut self,
        names: &mut HashMap<String, u32>,
        record: &Record,
        (number, time_ns): (u64, u64),
        file_pages: Option<u64>,
    ) -> Result<(), String> {
        if matches!(record.op, Op::DontNeed | Op::Done) {
            self.left_out += u64::from(record.op == Op::DontNeed);
            return Ok(());
        }
        let file = match names.get(&record.file) {
            Some(&file) => file,
            None => {
                let file = u32::try_from(self.files.len()).map_err(|_| "more than 2^32 files".to_owned())?;
                names.insert(record.file.clone(), file);
                let pages = file_pages.unwrap_or(0);
                self.files.push(File { name: record.file.clone(), at: 0, pages });
                file
            }
        };
        let request = PAGE.request_of(record.offset, record.length);
        let range = request.range;
        let end = file_pages.map_or(range.end.0, |pages| range.end.0.min(pages));
        let start = range.start.0.min(end);
        let Record { pid, op, .. } = *record;
        if op != Op::Evict && op != Op::Fsync {
            if op.is_access() && end - start > ROW_PAGES_MAX {
                return Err(format!(
                    "{} pages at once; a row may touch {ROW_PAGES_MAX} at most",
                    end - start
                ));
            }
            let pages = &mut self.files[file as usize].pages;
            // Advice may reach past the end of the file.
            *pages = if op.is_access() && start < end { end.max(*pages) } else { *pages };
        }
        self.rows.push(Row { number, time_ns, pid, op, file, start, end, ends_inside: request.ends_inside });
        Ok(())
    }
}

/// Prints dispatches as they come.
#[derive(Debug)]
struct Lines<'a> {
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
    fn new(output: &'a mut Output, json: bool, layout: &'a Layout) -> Self {
        Self { output, json, layout }
    }

    /// Prints the column headings.
    fn head(&mut self) -> Result<(), Failure> {
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

    fn dispatch(&mut self, dispatch: &Dispatched) -> Result<(), Failure> {
        let line = Line {
            time_ns: dispatch.at.0,
            rows: &dispatch.rows,
            file: &self.layout.files[dispatch.file as usize].name,
            offset: dispatch.offset,
            length: dispatch.length,
            direction: dispatch.direction.name(),
            class: dispatch.class.name(),
            priority: dispatch.priority.name(),
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
        if self.priority != Priority::default().name() {
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
