//! `bowwave replay`: replays a trace or experiment in virtual time, under every requested policy,
//! device, cache and window.

mod advice;
mod input;
mod table;
mod tasks;

use std::io::{self, BufWriter, Write};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_core::Eviction;
use bowwave_sim::fast::Writes;
use bowwave_sim::machine::{RecordOptions, Walk};
use bowwave_sim::parallel;
use bowwave_sim::record::{Row, Run, Writer};
use bowwave_sim::replay::ReplayPace;
use bowwave_sim::report::Report;
use bowwave_sim::sweep::{Axes, Case, Common, SweepError};
use clap::ValueEnum;
use clap::builder::TypedValueParser;

use super::report;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::{Failure, values};
use input::{CacheSize, Input, Oracle, Policies, Schedulers};
pub(super) use input::{Devices, devices};

/// Arguments of `bowwave replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace is of any format that `bowwave import` knows; an experiment is a TOML file with readers of its own \
(docs/guide-replay.md). \
Every combination of the lists is one run, in virtual time, with the very cache and policies of the engine; the same \
command gives the same digits. Devices: hdd, nvme, ssd, s3, s3-steady, lustre, instant, a TOML file of your own, and \
overrides, as in hdd:rpm=5400.

  --pace closed   each process reads on as soon as it can: how fast could it be?
  --pace trace    no read before its time in the trace, one at a time for each process
  --pace open     each read at its time, whatever is under way
  --pace think    each read as long after the one before it as the program took between them

regret is seconds as a multiple of the oracle's, which knows all reads in advance: 1.20 leaves a sixth to gain.

Examples:
  bowwave replay app.strace --policy all --device hdd,nvme,s3 --html app.html
  bowwave replay web.iolog --policy ondemand --ra-pages 32,128,512 --cache 64MiB,1GiB
  bowwave replay app.strace --device hdd --scheduler clook,deadline:starved=4,async_expire_ms=1000
  bowwave replay oltp.bwt --policy none --eviction lru --device instant --cache 40MiB --json
  bowwave replay experiment.toml --save run.json
  bowwave sweep app.bwt --policy all --cache 64MiB,1GiB --emit-tasks | parallel -k > rows")]
pub(crate) struct Args {
    /// The trace or experiment; - reads a trace from standard input
    #[arg(value_name = "TRACE|EXPERIMENT")]
    input: PathBuf,

    /// Readahead policies: names, oracle for the bound that no policy beats, or all; without it,
    /// stream (the default of a mount), none, ondemand and the oracle, or the experiment's policies
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = input::policies)]
    policy: Vec<Policies>,

    /// Devices
    #[arg(long, value_name = "DEVICES", value_parser = devices)]
    device: Option<Devices>,

    /// Schedulers before the device: noop, clook, anticipatory, deadline-rw, deadline,
    /// deadline-literal, each perhaps with knobs, as in deadline:starved=4; without it, the
    /// device's own
    #[arg(long, value_name = "SCHEDULERS", value_parser = input::schedulers)]
    scheduler: Option<Schedulers>,

    /// Sizes of the cache; 'unlimited' for one that never evicts
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::cache)]
    cache: Vec<CacheSize>,

    /// Largest readahead window, as a size (128KiB) or in pages of 4 KiB
    #[arg(long, value_name = "SIZE|PAGES", value_delimiter = ',', value_parser = values::window_pages)]
    ra_pages: Vec<u32>,

    /// When each read of the trace starts; by default closed
    #[arg(long, value_parser = paces())]
    pace: Option<ReplayPace>,

    /// Maximum reads in flight per process of the trace; by default 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,

    /// How to treat writes of the trace; by default left-out
    #[arg(long, value_parser = writes())]
    writes: Option<Writes>,

    /// Eviction policy: linux, linux-2.6 or lru; by default the experiment's, or linux
    #[arg(long, value_name = "EVICTION", value_parser = input::eviction)]
    eviction: Option<Eviction>,

    /// Wait at each page before processing the next, as a kernel's read does
    #[arg(long)]
    page_by_page: bool,

    /// Bytes of every file of the trace; by default each ends with its last access
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    file_size: Option<u64>,

    /// The format of the trace; by default detected from its first bytes
    #[arg(long, value_name = "FORMAT", value_parser = super::import::format())]
    format: Option<bowwave_trace::import::Format>,

    /// Bytes of a block, for formats that count in blocks; without it, what the format means by it
    #[arg(long, value_name = "SIZE", value_parser = super::import::block_size)]
    block_size: Option<NonZeroU64>,

    /// Seed of the devices' noise and of faults; without it, the plan's, or 0
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Share of requests that fail, 0 to 1; without it, the plan's, or 0
    #[arg(long, value_name = "SHARE", value_parser = input::share)]
    failing: Option<f64>,

    /// Check every invariant of the cache after every event (slow)
    #[arg(long)]
    check: bool,

    /// Parallel runs; by default one per processor
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Print one command per run instead of running them, for GNU parallel and job arrays: each
    /// prints its rows as JSON
    #[arg(long, conflicts_with_all = ["csv", "html", "save", "json"])]
    emit_tasks: bool,

    /// Print JSON: the rows, or with --json=full a recording for `bowwave report` with every
    /// recorded event: about 45 bytes each, in the worst case 27 MB a run
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "rows", conflicts_with = "csv")]
    json: Option<Json>,

    /// Print CSV
    #[arg(long)]
    csv: bool,

    /// Write the pictures of the runs into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Save the runs for `bowwave report`: rows, samples over time, and a sample of at most 90,000
    /// events of all runs
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// What `--json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Json {
    /// The rows of the table
    Rows,
    /// The rows, samples over time and every recorded event
    Full,
}

fn paces() -> impl TypedValueParser<Value = ReplayPace> {
    values::one_of(ReplayPace::ALL.map(|pace| (pace.name(), pace)))
}

const WRITES: [(&str, Writes); 2] = [("left-out", Writes::LeftOut), ("as-reads", Writes::AsReads)];

fn writes() -> impl TypedValueParser<Value = Writes> {
    values::one_of(WRITES)
}

/// Replays, writes the requested files, and prints rows and advice.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = Input::open(args)?;
    let mut axes = input.axes();
    let oracle = args.change(&mut axes);
    input.can_have(oracle, args.file_size)?;
    if args.emit_tasks {
        let oracle = input.oracle(oracle, args.file_size);
        let mut output = Output::stdout();
        let outcome = tasks::commands(args, &axes, oracle).iter().try_for_each(|line| output.line(line));
        return output.finish(outcome);
    }
    let mut common = args.common(input.common());
    let is_full = args.json == Some(Json::Full);
    if is_full && args.save.is_some() {
        return Err(Failure::usage("--json=full prints the recording that --save samples")
            .try_this("one of them, or --json=full > FILE"));
    }
    common.record = (args.html.is_some() || args.save.is_some() || is_full).then(RecordOptions::default);
    let sweep = Sweep { cases: axes.cases(), common, input, oracle, args };
    // Creates the file before the first run: if it cannot be written, nothing is simulated.
    let rows = match &args.save {
        Some(path) => output::into_file(path, |file| sweep.run(Some(Recording { file, place: Some(path) }))),
        None if is_full => sweep.run(Some(Recording { file: &mut io::stdout(), place: None })),
        None => sweep.run(None),
    }?;
    let mut output = Output::stdout();
    let outcome = if is_full {
        Ok(())
    } else if args.json.is_some() {
        output.json_array(&rows)
    } else if args.csv {
        table::csv(&rows).lines().try_for_each(|line| output.line(line))
    } else {
        output.table(&table::text(&rows), "a wider terminal, --csv and --json have all columns")
    };
    output.finish(outcome)?;
    let default = bowwave_engine::Options::default().policy;
    advice::advice(&rows, default.name()).into_iter().for_each(output::note);
    Ok(())
}

/// Destination of a recording.
struct Recording<'a> {
    file: &'a mut (dyn Write + Send),
    /// Its path; `None` for standard output, which gets every event.
    place: Option<&'a Path>,
}

/// Every case, and the destinations of its runs.
struct Sweep<'a> {
    cases: Vec<Case>,
    common: Common,
    input: Input,
    oracle: Oracle,
    args: &'a Args,
}

impl Sweep<'_> {
    /// Runs all cases and returns the rows of runs and bounds. Each run goes to `saved` and the
    /// page, and is then dropped.
    fn run(&self, saved: Option<Recording<'_>>) -> Result<Vec<Row>, Failure> {
        let place = saved.as_ref().and_then(|saved| saved.place);
        let refused = |error: io::Error| match place {
            Some(path) => failed!("cannot write {}: {error}", path.display()),
            None => output::written_error(&error),
        };
        let (title, command) = (self.input.title(), command_line());
        let sampled = place.map(|_| self.cases.len());
        let mut saved = match saved {
            Some(Recording { file, .. }) => {
                let file = BufWriter::with_capacity(1 << 20, file);
                Some(Writer::new(file, &title, &command, sampled).map_err(refused)?)
            }
            None => None,
        };
        let mut page = self.args.html.is_some().then(|| Ok(Report::new(&title, &command)));
        let mut rows = Vec::with_capacity(self.cases.len());
        self.simulate(|run| {
            rows.push(run.row.clone());
            if let Some(Ok(report)) = &mut page
                && let Err(error) = report.add(&run)
            {
                page = Some(Err(error));
            }
            saved.as_mut().map_or(Ok(()), |saved| saved.run(run)).map_err(refused)
        })?;
        self.input.notes();
        let rows = with_bounds(rows, &self.input, self.oracle, self.args.file_size)?;
        let bounds: Vec<Row> = rows.iter().filter(|row| table::is_bound(row)).cloned().collect();
        saved.map(|saved| saved.finish(&bounds)).transpose().map_err(refused)?;
        if let (Some(page), Some(path)) = (page, &self.args.html) {
            let page = page.and_then(|mut page| {
                bounds.iter().try_for_each(|row| page.bound(row))?;
                Ok(page)
            });
            let page = page.map_err(|error| failed!("no pictures: {error}"))?;
            report::save(page, path)?;
        }
        Ok(rows)
    }

    /// Runs the cases with one progress bar over all reads; `sink` receives the runs in order.
    fn simulate(&self, sink: impl FnMut(Run) -> Result<(), Failure> + Send) -> Result<(), Failure> {
        let reads = Arc::new(AtomicU64::new(0));
        let total = self.cases.iter().map(|case| self.input.reads(case)).fold(0, u64::saturating_add);
        let jobs = self.args.jobs.unwrap_or_else(parallel::workers);
        let one = |case: &Case| self.input.run(case, &self.common, &reads).map_err(refusal);
        Progress::counting("simulating", total, &reads, || {
            parallel::try_in_order(&self.cases, jobs, one, sink)
        })
    }
}

fn refusal(error: SweepError) -> Failure {
    match error {
        SweepError::Violation(_) => {
            Failure::failed(error).try_this("reporting it with the command and the trace")
        }
        SweepError::Unfit(_) => Failure::failed(error),
        error => Failure::usage(error),
    }
}

/// The rows of the runs, and the requested bounds that exist.
fn with_bounds(
    rows: Vec<Row>,
    input: &Input,
    oracle: Oracle,
    file_size: Option<u64>,
) -> Result<Vec<Row>, Failure> {
    let Input::Trace(workload, options) = input else { return Ok(rows) };
    if input.oracle(oracle, file_size) == Oracle::No {
        return Ok(rows);
    }
    table::with_bounds(rows.clone(), workload, *options).or_else(|error| {
        if oracle == Oracle::Yes {
            return Err(Failure::failed(error));
        }
        note!("no oracle: {error}");
        Ok(rows)
    })
}

impl Args {
    /// Fixed settings: `common`, overridden by the command line.
    fn common(&self, common: Common) -> Common {
        Common {
            walk: if self.page_by_page { Walk::PageByPage } else { common.walk },
            eviction: self.eviction.unwrap_or(common.eviction),
            failing: self.failing.unwrap_or(common.failing),
            check: self.check || common.check,
            ..common
        }
    }

    /// The given options that are the same for all runs, by name.
    fn fixed(&self) -> Vec<(&'static str, String)> {
        let writes = WRITES.iter().find(|(_, writes)| Some(*writes) == self.writes);
        let given = [
            ("pace", self.pace.map(|pace| pace.name().to_owned())),
            ("depth", self.depth.map(|depth| depth.to_string())),
            ("writes", writes.map(|(name, _)| (*name).to_owned())),
            ("eviction", self.eviction.map(|eviction| eviction.to_string())),
            ("file-size", self.file_size.map(|bytes| bytes.to_string())),
            ("format", self.format.map(|format| format.name().to_owned())),
            ("block-size", self.block_size.map(|bytes| bytes.to_string())),
            ("failing", self.failing.map(|share| share.to_string())),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The first given option that applies to traces only.
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

    /// Overrides an experiment's settings by the command line's. Returns whether an oracle is
    /// requested.
    fn change(&self, axes: &mut Axes) -> Oracle {
        let oracle = self.policy.iter().map(|list| list.oracle).max().unwrap_or(Oracle::IfItCan);
        if self.policy.iter().any(|list| !list.policies.is_empty()) {
            axes.policies = self.policy.iter().flat_map(|list| list.policies.iter().copied()).collect();
            // `all` with a name, or a name twice.
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
}

/// The command line, for readers of a report to repeat.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        if word.contains(' ') { format!("'{word}'") } else { word }
    });
    std::iter::once("bowwave".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
