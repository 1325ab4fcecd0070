//! `bowwave conformance`: compares our policies with the systems they follow.

mod event;
mod lab;
mod ours;
mod patterns;
mod play;
mod script;
mod sys;
mod tracing;
mod verdict;

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;

use bowwave_baselines::LinuxConfig;

use crate::Failure;
use crate::interrupt::{Interrupt, Second};
use crate::output::Output;
use crate::progress::Progress;
use crate::table::{Align, Table};
use crate::values;
use event::Event;
use lab::{Folios, Lab};
use patterns::{PATTERNS, Pattern};
use play::Player;
use script::Script;
use verdict::Verdict;

/// Base-2 logarithm of the pages of ext4's largest folio: 2 MiB.
const FOLIO_ORDER_MAX: u8 = 9;
/// Maximum attempts of a run while something else drops pages from the cache.
const ATTEMPTS: u32 = 5;

/// Arguments of `bowwave conformance`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowwave conformance kernel
  bowwave conformance kernel --ra-pages 32 --pattern sequential-1 --json")]
pub(crate) struct Args {
    #[command(subcommand)]
    peer: Peer,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
enum Peer {
    /// Compare the policy linux with the running kernel, decision by decision
    Kernel(KernelArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Plays access patterns cold to an ext4 file on a loop device of its own, reads the kernel's decisions from the tracepoints \
events/readahead, and compares each (start, size, async_size, what triggered it) with what the policy decides on the same \
script. Needs root, loop devices, mke2fs and Linux 6.18 or later; without them it says so and ends well. Nothing is left \
behind. Ends with 1 if there is a difference whose reason is not known.

Fixed for the comparison: read_ahead_kb (taken when a file is opened) from --ra-pages, max_sectors_kb 512 (io_pages 128), \
ext4 with 4096-byte blocks, noatime; 'single' folios by data=journal, 'large' ones by default options. Mapped pages are \
touched by stores to a private mapping, which the kernel serves one by one, so that fault-around plays no part.

Examples:
  bowwave conformance kernel
  bowwave conformance kernel --folios large --ra-pages 32,2048
  bowwave conformance kernel --list")]
struct KernelArgs {
    /// Windows to try, as sizes (128KiB) or in pages of 4 KiB, from 2 to 2048 pages
    #[arg(long, value_name = "SIZE|PAGES", value_delimiter = ',', default_value = "32,128,512,2048",
          value_parser = kernel_window)]
    ra_pages: Vec<u64>,

    /// Patterns to play; by default all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(PATTERNS.iter().map(|pattern| pattern.name)), hide_possible_values = true)]
    pattern: Vec<String>,

    /// Kinds of folios to try
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "single,large")]
    folios: Vec<Folios>,

    /// Where to create the 400 MiB image
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,

    /// Print the patterns and end
    #[arg(long)]
    list: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// With --json: also every decision of the kernel, by step
    #[arg(long, requires = "json")]
    decisions: bool,
}

/// Why a comparison did not finish.
#[derive(Debug)]
enum Stop {
    /// This machine cannot run it.
    Skip(String),
    Failed(Failure),
}

impl Stop {
    fn skip(why: impl fmt::Display) -> Self {
        Self::Skip(why.to_string())
    }

    fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(Failure::failed(why))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Compares and prints.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Peer::Kernel(args) = &args.peer;
    if args.list {
        let mut output = Output::stdout();
        let outcome = list(&mut output);
        return output.finish(outcome);
    }
    let interrupt = Interrupt::watch(Second::Waits)?;
    // A separate thread with its own mount namespace and processor.
    let compared = thread::scope(|scope| scope.spawn(|| compare(args, &interrupt)).join());
    let verdicts = match compared.map_err(|_| Failure::failed("the comparison panicked"))? {
        Ok(verdicts) => verdicts,
        Err(Stop::Failed(failure)) => return Err(failure),
        Err(Stop::Skip(why)) => {
            note!("skipped: {why}");
            if !args.json {
                return Ok(());
            }
            Vec::new()
        }
    };
    let mut output = Output::stdout();
    let outcome = if args.json { output.json_array(&verdicts) } else { print(&mut output, args, &verdicts) };
    output.finish(outcome)?;
    match verdicts.iter().filter(|verdict| verdict.is_unexplained()).count() {
        0 => Ok(()),
        count => Err(failed!("{count} patterns differ from the kernel without a known reason")),
    }
}

/// A window that the kernel accepts and that makes a difference.
fn kernel_window(text: &str) -> Result<u64, String> {
    let pages = u64::from(values::window_pages(text)?);
    if (2..=2048).contains(&pages) { Ok(pages) } else { Err(format!("{pages} pages are not in 2..=2048")) }
}

fn list(output: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new([("pattern", Align::Left), ("what it does", Align::Left)]);
    for pattern in PATTERNS {
        table.row([pattern.name, pattern.what]);
    }
    output.line(table.to_string().trim_end())
}

/// Plays every selected pattern.
fn compare(args: &KernelArgs, interrupt: &Interrupt) -> Result<Vec<Verdict>, Stop> {
    let mut lab = Lab::build(&args.dir)?;
    let mut verdicts = Vec::new();
    let chosen =
        |pattern: &&Pattern| args.pattern.is_empty() || args.pattern.iter().any(|name| name == pattern.name);
    let of = |folios| {
        PATTERNS.iter().filter(chosen).filter(move |pattern| folios == Folios::Single || !pattern.single)
    };
    let runs: usize = args.folios.iter().map(|&folios| args.ra_pages.len() * of(folios).count()).sum();
    let mut progress = Progress::runs("comparing", runs as u64);
    for &folios in &args.folios {
        lab.mount(folios)?;
        for &ra_pages in &args.ra_pages {
            let io_pages = lab.set_ra_pages(ra_pages)?;
            let linux = like_the_kernel(folios, io_pages);
            for pattern in of(folios) {
                progress.at(verdicts.len() as u64);
                let (mut verdict, events) = try_one(&mut lab, pattern, folios, ra_pages, linux, interrupt)?;
                if args.decisions {
                    verdict.kernel = Some(verdict::by_step(folios, events.iter().map(Vec::as_slice)));
                }
                verdicts.push(verdict);
            }
        }
    }
    Ok(verdicts)
}

/// The policy configured like the kernel.
fn like_the_kernel(folios: Folios, io_pages: u64) -> LinuxConfig {
    LinuxConfig {
        io_pages: u32::try_from(io_pages).unwrap_or(u32::MAX),
        align_end: true,
        folio_order_max: if folios == Folios::Large { FOLIO_ORDER_MAX } else { 0 },
        mark_at_eof: true,
    }
}

fn try_one(
    lab: &mut Lab,
    pattern: &Pattern,
    folios: Folios,
    ra_pages: u64,
    linux: LinuxConfig,
    interrupt: &Interrupt,
) -> Result<(Verdict, Vec<Vec<Event>>), Stop> {
    let mut script = Script::new(ra_pages, pattern.target);
    (pattern.write)(&mut script);
    let ours = ours::play(linux, &script, pattern.target)?;
    let path = lab.path(pattern.target);
    let mut play = || {
        let emptied = times_emptied()?;
        let mut player = Player::cold(&path, pattern.target)?;
        player.play(&script, &ours.steps, lab.tracing(), interrupt)?;
        let told = lab.tracing().told(&script.ops)?;
        if !verdict::alike(folios, &told.steps, &ours) {
            player.hurry();
        }
        let cached = player.resident(ours.cached)?;
        Ok((!told.disturbed && times_emptied()? == emptied).then_some((told.steps, cached)))
    };
    for _ in 0..ATTEMPTS {
        let played = play().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::Interrupted => Stop::failed("interrupted"),
            _ => Stop::failed(format_args!("{} with {ra_pages} pages: {error}", pattern.name)),
        })?;
        if let Some((theirs, cached)) = played {
            return Ok((Verdict::of(pattern, folios, &script, &theirs, cached, &ours), theirs));
        }
    }
    Err(Stop::failed(format_args!(
        "{} with {ra_pages} pages: the kernel dropped pages of the file in each of {ATTEMPTS} runs; is memory short?",
        pattern.name
    )))
}

/// How often the page cache of this machine has been dropped.
fn times_emptied() -> io::Result<u64> {
    let counters = fs::read_to_string("/proc/vmstat")?;
    let count = counters.lines().find_map(|line| line.strip_prefix("drop_pagecache ")?.parse().ok());
    Ok(count.unwrap_or_default())
}

/// One row per pattern, one column per window size: decisions, and how many of them differ.
fn print(output: &mut Output, args: &KernelArgs, verdicts: &[Verdict]) -> Result<(), Failure> {
    let names: Vec<String> = args.ra_pages.iter().map(|pages| format!("ra {pages}")).collect();
    let columns = [("folios", Align::Left), ("pattern", Align::Left)];
    let mut table =
        Table::new(columns.into_iter().chain(names.iter().map(|name| (name.as_str(), Align::Right))));
    for &folios in &args.folios {
        for pattern in PATTERNS {
            let of = |verdict: &&Verdict| verdict.folios == folios.name() && verdict.pattern == pattern.name;
            let cells: Vec<String> = verdicts.iter().filter(of).map(cell).collect();
            if !cells.is_empty() {
                let head = [folios.name().to_owned(), pattern.name.to_owned()];
                table.row(head.into_iter().chain(cells));
            }
        }
    }
    output.line(table.to_string().trim_end())?;
    let sum = |count: fn(&Verdict) -> usize| verdicts.iter().map(count).sum::<usize>();
    output.line(format_args!(
        "\n{} decisions of the kernel in {} runs; {} differ",
        sum(|verdict| verdict.decisions),
        verdicts.len(),
        sum(|verdict| verdict.differences),
    ))?;
    for verdict in verdicts {
        let Some(first) = &verdict.first else { continue };
        let why = verdict.reason.unwrap_or("no known reason");
        let Verdict { folios, pattern, ra_pages, .. } = verdict;
        output.line(format_args!("{folios} {pattern} ra {ra_pages}: {first}: {why}"))?;
    }
    Ok(())
}

fn cell(verdict: &Verdict) -> String {
    let (decisions, differences) = (verdict.decisions, verdict.differences);
    match (&verdict.first, verdict.reason) {
        (None, _) => decisions.to_string(),
        (Some(_), Some(_)) => format!("{decisions} ({differences} named)"),
        (Some(_), None) => format!("{decisions} ({differences} differ)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decisions of Linux 6.18.44, recorded by `conformance kernel --folios single --ra-pages 32
    /// --json --decisions`, for machines that cannot run the comparison.
    const RECORDED: &str = include_str!("conformance/linux-6.18-single-32.json");

    #[test]
    fn decisions_recorded_from_linux_are_met_without_it() {
        let rows: serde_json::Value = serde_json::from_str(RECORDED).expect("JSON");
        let rows = rows.as_array().expect("an array");
        assert!(rows.len() >= 30);
        for row in rows {
            let name = row["pattern"].as_str().expect("a name");
            let pattern = PATTERNS.iter().find(|pattern| pattern.name == name).expect("known");
            let ra_pages = row["ra_pages"].as_u64().expect("a number");
            let mut script = Script::new(ra_pages, pattern.target);
            (pattern.write)(&mut script);
            let ours =
                ours::play(like_the_kernel(Folios::Single, 128), &script, pattern.target).expect("valid");
            let told = verdict::by_step(Folios::Single, ours.steps.iter().map(|step| step.events.as_slice()));
            assert_eq!(serde_json::json!(told), row["kernel"], "{name}");
            assert_eq!(ours.cached, row["cached"], "{name}");
        }
    }
}
