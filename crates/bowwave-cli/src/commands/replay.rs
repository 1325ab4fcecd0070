//! `bowwave replay`: a trace or a plan in virtual time, under every policy, device, cache and window that is asked for.

mod advice;
mod input;
mod lists;
mod rivals;
mod table;

use std::fs::File;
use std::io::{self, Write};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowwave_core::Eviction;
use bowwave_sim::machine::{RecordOptions, Walk};
use bowwave_sim::parallel;
use bowwave_sim::record::{Recording, Row, Run};
use bowwave_sim::replay::ReplayPace;
use bowwave_sim::report::Report;
use bowwave_sim::sweep::{Axes, Case, Common, SweepError};
use clap::ValueEnum;

use super::report;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::{Failure, values};
use input::Input;
use lists::{CacheSize, Devices, Oracle, Policies, Schedulers};

/// Arguments of `bowwave replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace is of any format that `bowwave import` knows; a plan is a TOML file with readers of its own (docs/guide-replay.md). \
Every combination of the lists is one run, in virtual time, with the very cache and policies of the engine; the same \
command gives the same digits. Devices: hdd, nvme, ssd, s3, s3-steady, lustre, instant, a TOML file of your own, and \
overrides, as in hdd:rpm=5400.

  --pace closed   each process reads on as soon as it can: how fast could it be?
  --pace trace    no read before its time in the trace, one at a time for each process
  --pace open     each read at its time, whatever is under way

Examples:
  bowwave replay app.strace --policy all --device hdd,nvme,s3 --html app.html
  bowwave replay web.iolog --policy ondemand --ra-pages 32,128,512 --cache 64MiB,1GiB
  bowwave replay app.strace --device hdd --scheduler clook,deadline:starved=4,async_expire_ms=1000
  bowwave replay oltp.bwt --policy none --eviction lru --device instant --cache 40MiB --json
  bowwave replay plan.toml --save run.json")]
pub struct Args {
    /// The trace or plan; - reads a trace from standard input
    #[arg(value_name = "TRACE|PLAN")]
    input: PathBuf,

    /// Readahead policies: names, oracle for the bound that no policy beats, or all; without it, stream (the default of a
    /// mount), none, ondemand and the oracle, or the policies of the plan
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = lists::policies)]
    policy: Vec<Policies>,

    /// Devices
    #[arg(long, value_name = "DEVICES", value_parser = lists::devices)]
    device: Option<Devices>,

    /// Schedulers before the device: noop, clook, anticipatory, deadline-rw, deadline, deadline-literal, each perhaps with
    /// knobs, as in deadline:starved=4; without it, the device's own
    #[arg(long, value_name = "SCHEDULERS", value_parser = lists::schedulers)]
    scheduler: Option<Schedulers>,

    /// Sizes of the cache; 'unlimited' for one that never evicts
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = lists::cache)]
    cache: Vec<CacheSize>,

    /// Most pages of a readahead window
    #[arg(long, value_name = "PAGES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ra_pages: Vec<u32>,

    /// When each read of the trace begins; without it, closed
    #[arg(long, value_enum)]
    pace: Option<PaceName>,

    /// Reads that a process of the trace may have under way at once; without it, 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,

    /// What the writes of the trace are; without it, left-out
    #[arg(long, value_enum)]
    writes: Option<WritesName>,

    /// Which pages go first: linux, linux-2.6 or lru; without it, the plan's, or linux
    #[arg(long, value_name = "EVICTION", value_parser = lists::eviction)]
    eviction: Option<Eviction>,

    /// Wait at each page before looking at the next, as a kernel's read does
    #[arg(long)]
    page_by_page: bool,

    /// Bytes of every file of the trace; without it, each ends with its last access
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    file_size: Option<u64>,

    /// The format of the trace; without it, told from its first bytes
    #[arg(long, value_name = "FORMAT", value_parser = super::import::format())]
    format: Option<bowwave_trace::import::Format>,

    /// Bytes of a block, for formats that count in blocks; without it, what the format means by it
    #[arg(long, value_name = "SIZE", value_parser = super::import::block_size)]
    block_size: Option<NonZeroU64>,

    /// Seed of the devices' noise and of faults; without it, the plan's, or 0
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Share of requests that fail, 0 to 1; without it, the plan's, or 0
    #[arg(long, value_name = "SHARE", value_parser = lists::share)]
    failing: Option<f64>,

    /// Check every invariant of the cache after every event (slow)
    #[arg(long)]
    check: bool,

    /// Runs at once; without it, one for each processor
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print CSV
    #[arg(long)]
    csv: bool,

    /// Write the pictures of the runs into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Keep what was recorded, for `bowwave report`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PaceName {
    Closed,
    Trace,
    Open,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WritesName {
    LeftOut,
    AsReads,
}

/// Replays and prints what came of it.
///
/// # Errors
/// If the input is none, or a device or combination cannot be; if something cannot be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    let input = Input::open(args)?;
    let mut axes = input.axes();
    let oracle = args.change(&mut axes);
    input.can_have(oracle, args.file_size)?;
    let mut common = args.common(input.common());
    let recorded = args.html.is_some() || args.save.is_some();
    common.record = recorded.then(RecordOptions::default);
    let cases = axes.cases();
    let mut runs = simulate(&cases, &common, &input, args.jobs.unwrap_or_else(parallel::workers))?;
    input.notes();
    if recorded {
        let recording = Recording { title: input.title(), command: command_line(), runs, ..Recording::new() };
        args.write(&recording)?;
        runs = recording.runs;
    }
    let rows = with_bounds(runs, &input, oracle, args.file_size)?;
    let mut output = Output::stdout();
    let outcome = if args.json {
        output.json_array(&rows)
    } else if args.csv {
        table::csv(&rows).lines().try_for_each(|line| output.line(line))
    } else {
        output.line(table::text(&rows).to_string().trim_end())
    };
    output.finish(outcome)?;
    advice::advice(&rows, bowwave_engine::Options::default().policy.name())
        .into_iter()
        .for_each(output::note);
    Ok(())
}

/// The rows of the runs, and the bounds that are wanted and can be had.
fn with_bounds(
    runs: Vec<Run>,
    input: &Input,
    oracle: Oracle,
    file_size: Option<u64>,
) -> Result<Vec<Row>, Failure> {
    let rows: Vec<Row> = runs.into_iter().map(|run| run.row).collect();
    let Input::Trace(workload, options) = input else { return Ok(rows) };
    if oracle == Oracle::No || file_size.is_some() {
        return Ok(rows);
    }
    rivals::beside(rows.clone(), workload, *options).or_else(|error| {
        if oracle == Oracle::Yes {
            return Err(Failure::failed(error));
        }
        output::note(format_args!("no oracle: {error}"));
        Ok(rows)
    })
}

/// Runs the cases with a progress bar over all reads of all runs.
fn simulate(cases: &[Case], common: &Common, input: &Input, jobs: NonZeroUsize) -> Result<Vec<Run>, Failure> {
    let reads = Arc::new(AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let total = cases.iter().map(|case| input.reads(case)).fold(0, u64::saturating_add);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut progress = Progress::rows("simulating", total);
            while !done.load(Ordering::Relaxed) {
                progress.at(reads.load(Ordering::Relaxed));
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        // Also if a run panics: the scope waits for the thread above.
        let _done = Done(&done);
        parallel::try_map(cases, jobs, |case| input.run(case, common, &reads))
    });
    outcome.map_err(|error| match error {
        SweepError::Violation(_) => {
            Failure::failed(error).try_this("reporting it with the command and the trace")
        }
        SweepError::Unfit(_) => Failure::failed(error),
        error => Failure::usage(error),
    })
}

/// Says, in its end, that something is done.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Args {
    /// What is not varied: `common`, but for what the command line says.
    fn common(&self, common: Common) -> Common {
        Common {
            walk: if self.page_by_page { Walk::PageByPage } else { common.walk },
            eviction: self.eviction.unwrap_or(common.eviction),
            failing: self.failing.unwrap_or(common.failing),
            check: self.check || common.check,
            ..common
        }
    }

    /// The option given, if any, that says something of a trace only.
    fn of_traces_only(&self) -> Option<&'static str> {
        let given = [
            ("--pace", self.pace.is_some()),
            ("--depth", self.depth.is_some()),
            ("--writes", self.writes.is_some()),
            ("--file-size", self.file_size.is_some()),
            ("--format", self.format.is_some()),
            ("--block-size", self.block_size.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// What the command line says goes before what a plan says. Tells whether an oracle is wanted.
    fn change(&self, axes: &mut Axes) -> Oracle {
        let oracle = self.policy.iter().map(|list| list.oracle).max().unwrap_or(Oracle::IfItCan);
        if self.policy.iter().any(|list| !list.policies.is_empty()) {
            axes.policies = self.policy.iter().flat_map(|list| list.policies.iter().copied()).collect();
            // `all` beside a name, or a name twice.
            let mut seen = Vec::new();
            axes.policies.retain(|policy| {
                !seen.contains(policy) && {
                    seen.push(*policy);
                    true
                }
            });
        }
        if let Some(Devices(devices)) = &self.device {
            axes.devices.clone_from(devices);
        }
        if let Some(Schedulers(schedulers)) = &self.scheduler {
            axes.schedulers.clone_from(schedulers);
        }
        if !self.cache.is_empty() {
            axes.cache_bytes = self.cache.iter().map(|size| size.0).collect();
        }
        if !self.ra_pages.is_empty() {
            axes.ra_pages.clone_from(&self.ra_pages);
        }
        if let Some(seed) = self.seed {
            axes.seeds = vec![seed];
        }
        oracle
    }

    fn pace(&self) -> ReplayPace {
        match self.pace {
            None | Some(PaceName::Closed) => ReplayPace::Closed,
            Some(PaceName::Trace) => ReplayPace::Trace,
            Some(PaceName::Open) => ReplayPace::Open,
        }
    }

    /// Writes the files that were asked for.
    fn write(&self, recording: &Recording) -> Result<(), Failure> {
        if let Some(path) = &self.save {
            output::into_file(path, |file: &mut File| {
                let mut file = io::BufWriter::with_capacity(1 << 20, file);
                let written = serde_json::to_writer(&mut file, recording).map_err(io::Error::from);
                written.and_then(|()| file.flush()).map_err(|error| {
                    Failure::failed(format_args!("cannot write {}: {error}", path.display()))
                })
            })?;
        }
        if let Some(path) = &self.html {
            let page = Report::of(recording)
                .map_err(|error| Failure::failed(format_args!("no pictures: {error}")))?;
            report::save(page, path)?;
        }
        Ok(())
    }
}

/// The command, for the reader of a report to repeat.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        if word.contains(' ') { format!("'{word}'") } else { word }
    });
    std::iter::once("bowwave".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
