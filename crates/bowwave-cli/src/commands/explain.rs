//! `bowwave explain`: the decisions of a readahead policy on a trace, one per line.
//!
//! Drives `bowwave-core`'s cache with an instant device and unlimited memory, so that decisions do
//! not depend on a machine. With `--scheduler` it simulates a device and prints the dispatches.

mod files;
mod scheduler;
mod siblings;
mod simulated;
mod swap;

use std::path::{Path, PathBuf};

use bowwave_core::Policy;
use bowwave_trace::import::{Format, Import, Options};
use bowwave_trace::{Op, Record};

use super::trace;
use crate::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::values;
use files::{Explainer, Lines};

/// Rows between two progress updates.
const ROWS_A_REPORT: u64 = 4096;

/// Arguments of `bowwave explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The trace is CSV with the header time_ns,pid,op,file,offset,length, where offsets and lengths count bytes, or has any other \
format that `bowwave import` knows. Reads are processed page by page (4096 bytes), with one readahead state for each (pid, file). \
Each page of a 'load' or 'store' faults, as if it were not mapped. With the policy stream, a file has one state for all \
processes, and the first line of a decision has the candidates: their pages, the expected gain, and what became of them. JSON also has \
the scores of its detectors, from 0 to 15. Memory is unlimited and requests take no time: only 'evict' rows remove pages. With \
--device, the trace is replayed on a simulated device, so gains are known; a file then ends with its last access. The advice 'willneed', 'random' and 'sequential' takes effect, \
and so does 'plan', which appends a range to the reader's plan; length 0 ends the plan. Other rows only count.

cluster, vma and adaptive are swap policies. Each (pid, file) is a region of anonymous memory, and an offset is an \
address in it. The first 'load' or 'store' of a page creates it, and 'evict' rows write pages to the next free slots of a \
store. Each line is a fault on a page that is swapped out: its slot, the window (pages of the region, or slots for cluster) and \
the slots that are read. 'dontneed' drops pages.

With --across-files, each line is an open, the first read of a file by a process, and the files that are read ahead for it. \
Files with the same parent are a directory. A file ends with its last read or at --file-pages. Reasons: sequence, stride, again \
(the order of the last pass), jumps (distances that repeat), sample (no order, none twice).

With --scheduler a simulated device serves the trace, each row at its time, and each line is a dispatch: the request, the reason \
for it, how long it waited, and how many sync and async requests still wait. Reads are sync. Readahead is async until a read \
waits for it. A 'write' is written back async at once, and 'fsync' makes the file's waiting writes sync. Stores through mappings \
are read and not written back, because a trace does not say when. Files lie one after another on the device, and end with their \
last access or at --file-pages. Reasons:

  arrival   it arrived first (noop)
  batch     the batch continues with the next request of its class in disk order
  demoted   the same, but with a request of the other class, because its own has none
  onward    a batch begins where the last one ended
  oldest    a batch begins with the request whose deadline is next
  expired   a batch begins with a request past its deadline
  floor     an async batch begins, because sync was chosen as often in a row as is allowed
  aged      its priority is low, but it has waited too long

Knobs: sync_expire_ms, async_expire_ms, batch, starved, contiguous, front_merges, seeks, promotion, aging_ms, async_depth, \
async_depth_start, sync_slowdown, sync_fast_ms, sync_sample_kb (docs/guide-devices.md).

Examples:
  bowwave explain trace.csv --policy ondemand
  bowwave explain trace.csv --policy stream --json
  bowwave explain trace.csv --policy stream --device s3 --ra-pages 256
  bowwave explain memory.csv --policy vma --page-cluster 5
  bowwave explain app.strace --across-files
  bowwave explain app.strace --scheduler deadline
  bowwave explain app.strace --scheduler deadline-rw:batch=4 --policy ondemand --device hdd --device-depth 4 --json
  bowwave explain app.strace --scheduler deadline --priority 17=idle --priority 18=real-time
  bowwave explain app.strace --policy ondemand-patch --ra-pages 256 --json
  zcat trace.csv.gz | bowwave explain - --policy ondemand")]
pub(crate) struct Args {
    /// The trace; - reads standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The readahead policy; by default stream, and none with --scheduler
    #[arg(long, value_name = "POLICY", value_parser = values::explained())]
    policy: Option<values::Explained>,

    #[command(flatten)]
    swap: swap::Knobs,

    #[command(flatten)]
    dispatched: scheduler::SchedulerArgs,

    /// A simulated device, as `replay` has it: the policy measures what its requests cost. With
    /// --scheduler, hdd by default
    #[arg(long, value_name = "DEVICE", value_parser = scheduler::device)]
    device: Option<String>,

    /// Explain readahead across files instead: what stream reads ahead when files are opened
    #[arg(long, conflicts_with_all = ["policy", "scheduler", "device"])]
    across_files: bool,

    /// Largest readahead window, as a size (128KiB) or in pages of 4 KiB
    #[arg(long, value_name = "SIZE|PAGES", default_value = "32", value_parser = values::window_pages)]
    ra_pages: u32,

    /// Pages of every file or region; without it, they have no end
    #[arg(long, value_name = "PAGES")]
    file_pages: Option<u64>,

    /// The format of the trace; by default detected from its first bytes
    #[arg(long, value_name = "FORMAT", value_parser = super::import::format())]
    format: Option<Format>,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Reads the trace and prints the decisions.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(scheduler) = &args.dispatched.scheduler {
        let left_out = scheduler::run(args, scheduler)?;
        if left_out > 0 {
            note!("{left_out} rows say that pages are not needed and were left out");
        }
        return Ok(());
    }
    if args.across_files {
        return siblings::run(args);
    }
    let policy = match args.policy {
        Some(values::Explained::Swap(policy)) => {
            if args.device.is_some() {
                return Err(Failure::usage("--device is for policies of files, and for --scheduler")
                    .try_this("bowwave replay PLAN, whose [swap] has devices"));
            }
            return swap::run(args, policy);
        }
        Some(values::Explained::Files(policy)) => policy,
        None => Policy::Stream,
    };
    if let Some(device) = &args.device {
        let left_out = simulated::run(args, policy, device)?;
        if left_out > 0 {
            note!("{left_out} rows are writes, stores or syncs and were left out");
        }
        return Ok(());
    }
    let explainer = Explainer::new(policy, args.ra_pages, args.file_pages)?;
    let mut output = Output::stdout();
    let outcome = Input::open(&args.trace, args.format).and_then(|input| {
        let lines = Lines::new(&mut output, args.json, policy);
        explain(explainer, input, lines)
    });
    output.finish(outcome).map(note_left_out)
}

fn note_left_out(rows: u64) {
    if rows > 0 {
        note!("{rows} rows are neither reads, memory accesses, advice nor evictions and were left out");
    }
}

/// Explains a trace; returns the number of skipped rows.
fn explain(mut explainer: Explainer, input: Input, mut lines: Lines<'_>) -> Result<u64, Failure> {
    lines.head()?;
    let name = input.name.clone();
    input.each("explaining", |access, record| {
        match record.op {
            Op::Write | Op::Fsync | Op::DontNeed => return Ok(false),
            Op::Done => return Ok(true),
            _ => {}
        }
        explainer.access(record).map_err(|message| failed!("{name}: row {access}: {message}"))?;
        for decision in explainer.decisions() {
            lines.decision(&decision.line(access, record))?;
        }
        Ok(true)
    })
}

/// Opens a trace, and returns its size in bytes if it is a file.
fn open(path: &Path, format: Option<Format>) -> Result<(Import, Option<u64>), Failure> {
    trace::open(path, format, &Options::default()).map_err(|failure| {
        if trace::is_stdin(path) {
            return failure;
        }
        failure.try_this("the path of a trace, or - for standard input")
    })
}

/// An open trace.
struct Input {
    /// Its name in errors.
    name: String,
    /// Its first row, read before any output: a file that is no trace has none.
    first: Option<Record>,
    /// The other rows.
    rows: Import,
    /// Its size in bytes, if it is a file.
    total: Option<u64>,
}

impl Input {
    fn open(path: &Path, format: Option<Format>) -> Result<Self, Failure> {
        let (mut rows, total) = open(path, format)?;
        let name = if trace::is_stdin(path) { trace::STDIN.to_owned() } else { path.display().to_string() };
        let mut first = Record::default();
        let first = rows.read(&mut first).map_err(Failure::failed)?.then_some(first);
        Ok(Self { name, first, rows, total })
    }

    /// Passes each row to `row` with its number, counted from 0; returns how many rows it left out.
    /// `row` returns whether it used the row.
    fn each(
        self,
        what: &'static str,
        mut row: impl FnMut(u64, &Record) -> Result<bool, Failure>,
    ) -> Result<u64, Failure> {
        let Self { first, mut rows, total, .. } = self;
        let mut progress = Progress::bytes(what, total);
        let (mut number, mut left_out) = (0, 0);
        let (mut more, mut record) = (first.is_some(), first.unwrap_or_default());
        while more {
            left_out += u64::from(!row(number, &record)?);
            number += 1;
            if number % ROWS_A_REPORT == 0 {
                progress.at(rows.bytes_read());
            }
            more = rows.read(&mut record).map_err(Failure::failed)?;
        }
        trace::note_repairs(rows.repairs().iter());
        Ok(left_out)
    }
}
