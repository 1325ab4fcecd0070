//! `bowwave regret`: compares `stream` with every other policy on patterns drawn from a seed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use bowwave_sim::parallel;
use bowwave_sim::regret::{Log, LogError, Memory, Outcome, Point, RegretError, Settings, Summary};
use bowwave_sim::regret::{measure_all, page, reasons};
use bowwave_trace::generate::held_out;
use clap::builder::TypedValueParser;
use serde::Serialize;

use super::replay::{Devices, devices};
use crate::interrupt::{INTERRUPTED, Interrupt, Second};
use crate::output::Output;
use crate::progress::Progress;
use crate::{Failure, values};

/// Decisions' reasons shown for a point.
const REASONS: usize = 4;

/// Arguments of `bowwave regret`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each pattern is drawn from a grammar by its seed, as `bowwave generate family --seed N` draws it. On each device and memory \
size, stream runs with --stream-window, and each other policy with each of --windows; its fastest run counts.

  99 %, 100 %  the bars: seconds at most 1.05 x the best other policy's in 99 % of the points, at most 1.25 x in all; at most
               1.02 x none's in all; bytes at most 1.5 x those wanted, or the best other policy's

Seeds below 1,000,000 are for development. With --held-out the seeds follow from a hash; take the hash of the commit that is \
measured, which does not exist before the commit.

Examples:
  bowwave regret --log regret.jsonl --html regret.html
  bowwave regret --patterns 2000 --held-out $(git rev-parse HEAD) --log held-out.jsonl
  bowwave regret --seeds 17..18 --device s3 --memory unlimited")]
pub(crate) struct Args {
    /// Seeds of the patterns, the last one excluded; by default 0..200
    #[arg(long, value_name = "FROM..TO", value_parser = seeds, conflicts_with = "held_out")]
    seeds: Option<Range<u64>>,

    /// Take the seeds that follow from this hash
    #[arg(long, value_name = "HASH", value_parser = hash)]
    held_out: Option<String>,

    /// Patterns, with --held-out; by default 200
    #[arg(long, value_name = "N", requires = "held_out")]
    patterns: Option<u64>,

    /// Devices; by default s3,hdd,nvme,lustre
    #[arg(long, value_name = "DEVICES", value_parser = devices)]
    device: Option<Devices>,

    /// Memory: unlimited, or a quarter of what the pattern touches; by default both
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = memories())]
    memory: Vec<Memory>,

    /// Largest window of stream
    #[arg(long, value_name = "SIZE|PAGES", default_value = "256", value_parser = values::window_pages)]
    stream_window: u32,

    /// Largest windows of the other policies
    #[arg(long, value_name = "SIZE|PAGES", value_delimiter = ',', default_value = "32,256,2048", value_parser = values::window_pages)]
    windows: Vec<u32>,

    /// Append each result to FILE, and continue what FILE has from an earlier, interrupted run
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Take the runs of the other policies from this log, and run only stream
    #[arg(long, value_name = "FILE")]
    others: Option<PathBuf>,

    /// Worst points to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    worst: usize,

    /// Parallel runs; by default one per processor
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Print JSON: the summaries and the worst points
    #[arg(long)]
    json: bool,

    /// Write the distributions and the worst points into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn memories() -> impl TypedValueParser<Value = Memory> {
    values::one_of(Memory::ALL.map(|memory| (memory.name(), memory)))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'a> {
    settings: &'a Settings,
    summaries: &'a [Summary],
    worst: Vec<Worst<'a>>,
}

#[derive(Serialize)]
struct Worst<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    reasons: &'a str,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "not a range of seeds; write 0..200".to_owned())
}

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_lowercase()).ok_or_else(|| "not a hash of seven or more hex digits".to_owned())
}

/// Measures all points that the log does not have, and prints the distributions.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.settings();
    let points = settings.points(&args.seeds());
    let interrupt = Interrupt::watch(Second::Kills)?;
    let known = match &args.others {
        Some(path) => Log::others(path, &settings).map_err(|error| refused(&error))?,
        None => BTreeMap::new(),
    };
    let mut log = match &args.log {
        Some(path) => Some(Log::open(path, &program(), &settings).map_err(|error| refused(&error))?),
        None => None,
    };
    let mut outcomes: BTreeMap<Point, Outcome> = BTreeMap::new();
    for point in &points {
        if let Some(outcome) = log.as_ref().and_then(|log| log.outcome(point)) {
            outcomes.insert(point.clone(), outcome.clone());
        }
    }
    let missing: Vec<Point> = points.iter().filter(|point| !outcomes.contains_key(point)).cloned().collect();
    let mut progress = Progress::rows("measuring", points.len() as u64);
    let jobs = args.jobs.unwrap_or_else(parallel::workers);
    let measured = measure_all(&missing, &settings, &known, jobs, &|| interrupt.is_set(), |outcome| {
        if let Some(log) = &mut log {
            log.append(outcome.clone())?;
        }
        outcomes.insert(outcome.point.clone(), outcome);
        progress.at(outcomes.len() as u64);
        Ok(())
    });
    drop(progress);
    let is_stopped = match measured {
        Ok(()) => false,
        Err(RegretError::Stopped) => true,
        Err(error) => return Err(Failure::failed(error)),
    };
    // In the order of the points, not of the log.
    let outcomes: Vec<Outcome> = points.iter().filter_map(|point| outcomes.remove(point)).collect();
    if !outcomes.is_empty() {
        args.print(&settings, &outcomes)?;
    }
    if is_stopped {
        let done = outcomes.len();
        let message = format!("stopped after {done} of {} points", points.len());
        let failure = Failure::failed(message).with_code(INTERRUPTED);
        return Err(match &args.log {
            Some(_) => failure.try_this("the same command, which continues the log"),
            None => failure.try_this("--log FILE, which the same command continues"),
        });
    }
    Ok(())
}

/// The program whose decisions a log holds.
fn program() -> String {
    format!("bowwave {} ({})", env!("CARGO_PKG_VERSION"), env!("BOWWAVE_COMMIT"))
}

fn refused(error: &LogError) -> Failure {
    Failure::failed(error).try_this("another file for --log")
}

impl Args {
    fn seeds(&self) -> Vec<u64> {
        match &self.held_out {
            Some(hash) => (0..self.patterns.unwrap_or(200)).map(|number| held_out(hash, number)).collect(),
            None => self.seeds.clone().unwrap_or(0..200).collect(),
        }
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings {
            stream_window: self.stream_window,
            windows: self.windows.clone(),
            ..Settings::default()
        };
        if let Some(Devices(devices)) = &self.device {
            settings.devices.clone_from(devices);
        }
        if !self.memory.is_empty() {
            settings.memory.clone_from(&self.memory);
        }
        settings
    }

    fn print(&self, settings: &Settings, outcomes: &[Outcome]) -> Result<(), Failure> {
        let summaries = Summary::of(outcomes);
        let worst = Summary::worst(outcomes, self.worst);
        let worst = worst.into_iter().map(|outcome| {
            let counts = reasons(&outcome.point, settings).map_err(Failure::failed)?;
            let counts: Vec<String> =
                counts.iter().take(REASONS).map(|(reason, count)| format!("{reason} {count}")).collect();
            Ok((outcome, counts.join(", ")))
        });
        let worst = worst.collect::<Result<Vec<(&Outcome, String)>, Failure>>()?;
        if let Some(path) = &self.html {
            let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
            let html = page("Regret of stream", &format!("bowwave {command}"), outcomes, &worst);
            std::fs::write(path, html)
                .map_err(|error| failed!("cannot write {}: {error}", path.display()))?;
        }
        let mut output = Output::stdout();
        let outcome = if self.json {
            let worst = worst.iter().map(|(outcome, reasons)| Worst { outcome, reasons }).collect();
            output.json_line(&Json { settings, summaries: &summaries, worst })
        } else {
            text(&summaries, &worst).lines().try_for_each(|line| output.line(line))
        };
        output.finish(outcome)
    }
}

/// The table, and a paragraph for each of the worst points.
fn text(summaries: &[Summary], worst: &[(&Outcome, String)]) -> String {
    let mut text = Summary::table(summaries);
    if !worst.is_empty() {
        text += "\nworst, seconds as a multiple of the best other policy:\n";
    }
    for (outcome, reasons) in worst {
        let (Point { seed, device, memory }, best) = (&outcome.point, outcome.best_other());
        text += &format!(
            "{:>7.2}  seed {seed} on {device}, memory {memory}: {:.3} s at {:.2} x bytes; {} {:.3} s at {:.2} x\n\
             {:9}{}\n{:9}{reasons}\n",
            outcome.to_best(),
            outcome.stream.seconds,
            outcome.amplification(),
            best.policy,
            best.seconds,
            best.bytes as f64 / outcome.bytes_wanted.max(1) as f64,
            "",
            outcome.pattern,
            "",
        );
    }
    text
}
