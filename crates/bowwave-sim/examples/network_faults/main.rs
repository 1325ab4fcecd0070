//! Runs the network's state machines against faulty servers, one run a seed, until one breaks an
//! invariant.
//!
//! ```text
//! cargo run --release -p bowwave-sim --example network_faults -- --seeds 1000000
//! cargo run --release -p bowwave-sim --example network_faults -- --seed 17 --verbose
//! cargo run --release -p bowwave-sim --example network_faults -- --defects
//! ```

mod client;
mod counts;
mod run;
mod server;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bowwave_sim::parallel;

use counts::{Counts, Defect};
use run::run;

/// Options of the command line.
struct Options {
    seeds: Range<u64>,
    verbose: bool,
    defect: Option<Defect>,
    /// Tries each defect.
    defects: bool,
    workers: NonZeroUsize,
}

/// A run that broke an invariant.
#[derive(Clone)]
struct Broken {
    seed: u64,
    what: String,
}

const USAGE: &str = "network_faults [--seeds COUNT] [--from SEED] [--seed SEED [--verbose]] [--defect NAME] [--defects] \
                     [--workers COUNT]";
/// Seeds that one worker runs at a time: about 0.1 s.
const BATCH: u64 = 1000;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = options()?;
    let mut out = io::stdout().lock();
    if options.defects {
        return defects(&options, &mut out);
    }
    if options.verbose {
        let mut log = String::new();
        let result = run(options.seeds.start, options.defect, &mut Counts::default(), Some(&mut log));
        out.write_all(log.as_bytes())?;
        return match result {
            Ok(digest) => {
                writeln!(out, "seed {}: log {digest:016x}", options.seeds.start)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(what) => {
                writeln!(out, "seed {}: {what}", options.seeds.start)?;
                Ok(ExitCode::FAILURE)
            }
        };
    }
    let begun = Instant::now();
    let seeds = options.seeds.end - options.seeds.start;
    let counts = match sweep(options.seeds.clone(), options.workers, options.defect, true) {
        Ok(counts) => counts,
        Err(Broken { seed, what }) => {
            writeln!(out, "seed {seed}: {what}")?;
            let defect = options.defect.map(|defect| format!(" --defect {defect}")).unwrap_or_default();
            let command = "cargo run --release -p bowwave-sim --example network_faults --";
            writeln!(out, "replay: {command} --seed {seed} --verbose{defect}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    for (name, times) in counts.rows() {
        writeln!(out, "{times:>12}  {name}")?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(
        out,
        "{seeds} seeds from {}, each run twice: no finding in {seconds:.1} s",
        options.seeds.start
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Says which seed finds each defect first.
fn defects(options: &Options, out: &mut impl Write) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut missed = 0;
    for defect in Defect::ALL {
        match sweep(options.seeds.clone(), options.workers, Some(defect), false) {
            Err(Broken { seed, what }) => writeln!(out, "{:<22} seed {seed:>5}: {what}", defect.name())?,
            Ok(_) => {
                missed += 1;
                writeln!(out, "{:<22} not found", defect.name())?;
            }
        }
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all seeds, and each twice. Returns the first that breaks an invariant.
fn sweep(
    seeds: Range<u64>,
    workers: NonZeroUsize,
    defect: Option<Defect>,
    says: bool,
) -> Result<Counts, Broken> {
    let batches: Vec<u64> = (seeds.start..seeds.end).step_by(BATCH as usize).collect();
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    let work = |&first: &u64| {
        let mut counts = Counts::default();
        let last = seeds.end.min(first.saturating_add(BATCH));
        for seed in first..last {
            let twice = |counts: &mut Counts| run(seed, defect, counts, None);
            let digest = twice(&mut counts).map_err(|what| Broken { seed, what })?;
            if twice(&mut Counts::default()) != Ok(digest) {
                return Err(Broken { seed, what: "a second run differs".to_owned() });
            }
        }
        let done = done.fetch_add(last - first, Ordering::Relaxed) + last - first;
        if says && done / 50_000 != (done - (last - first)) / 50_000 {
            let seconds = begun.elapsed().as_secs_f64();
            // A run does not depend on where its progress is shown.
            writeln!(io::stderr(), "{done} seeds in {seconds:.1} s").ok();
        }
        Ok(counts)
    };
    let mut counts = Counts::default();
    parallel::try_map(&batches, workers, work)?.iter().for_each(|batch| counts.merge(batch));
    Ok(counts)
}

fn options() -> Result<Options, String> {
    let (mut from, mut seeds, mut one) = (0, 10_000, None);
    let (mut verbose, mut defect, mut defects, mut workers) = (false, None, false, parallel::workers());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value; {USAGE}"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}; {USAGE}"));
        match argument.as_str() {
            "--seeds" => seeds = number(value()?)?,
            "--from" => from = number(value()?)?,
            "--seed" => one = Some(number(value()?)?),
            "--verbose" => verbose = true,
            "--defects" => defects = true,
            "--workers" => {
                let count = value()?;
                workers = count.parse().map_err(|error| format!("{count}: {error}; {USAGE}"))?;
            }
            "--defect" => {
                let name = value()?;
                let found = Defect::ALL.iter().find(|defect| defect.name() == name);
                let known: Vec<_> = Defect::ALL.iter().map(|defect| defect.name()).collect();
                let unknown = || format!("{name}: no such defect; there are {}", known.join(", "));
                defect = Some(*found.ok_or_else(unknown)?);
            }
            _ => return Err(format!("{argument}: unknown; {USAGE}")),
        }
    }
    if verbose && one.is_none() {
        return Err(format!("--verbose needs --seed; {USAGE}"));
    }
    let seeds = match one {
        Some(seed) => seed..seed.saturating_add(1),
        None => from..from.saturating_add(seeds),
    };
    Ok(Options { seeds, verbose, defect, defects, workers })
}
