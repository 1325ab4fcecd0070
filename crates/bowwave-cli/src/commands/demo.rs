//! `bowwave demo`: the main job on what comes with the program.
//!
//! Mounts emulated slow stores over made-up data, reads files through the mount with readahead off and on, checks
//! every byte, and prints what that did.

mod jobs;
mod place;
mod row;

use std::sync::Arc;

use bowwave_backend::Backend;
use bowwave_core::Policy;
use bowwave_engine::Options;

use crate::Failure;
use crate::interrupt::{Interrupt, Second};
use crate::output::{self, Output};
use crate::setup::{self, Opened};
use jobs::Job;
use place::Place;
use row::Row;

/// Arguments of `bowwave demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes about a minute and no network. The slow stores are emulated in real time: an object store with 30 ms to the first \
byte and 90 MB/s a connection, and a disk of 7200 rpm. 'off' is the policy 'none': the same cache and mount, but nothing \
is read ahead.

Examples:
  bowwave demo
  bowwave demo --json")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Read in this process, without a mount
    #[arg(long)]
    in_process: bool,

    /// Small sizes, for tests: the figures then mean nothing
    #[arg(long, hide = true)]
    quick: bool,
}

/// Runs the demo.
///
/// # Errors
/// If something cannot be read, or if a byte is wrong.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::watch(Second::Waits)?;
    let mounts = mounts(args.in_process);
    let mut rows = Vec::new();
    let outcome = jobs::jobs(args.quick).iter().try_for_each(|job| {
        let off = measure(job, Policy::None, mounts, &interrupt)?;
        let seconds = off.seconds;
        rows.push(off);
        let mut on = measure(job, Policy::OnDemand, mounts, &interrupt)?;
        on.speedup = Some(seconds / on.seconds);
        rows.push(on);
        Ok(())
    });
    let mut output = Output::stdout();
    let printed = show(&mut output, &rows, args.json, outcome.is_ok());
    output.finish(printed)?;
    outcome
}

/// Whether to mount; says why not, and what is done instead.
fn mounts(in_process: bool) -> bool {
    const TIME: &str = "this takes about a minute";
    if in_process {
        output::note(format_args!("reading emulated slow stores in this process; {TIME}"));
        return false;
    }
    match bowwave_fuse::is_available() {
        Ok(()) => {
            output::note(format_args!("reading emulated slow stores through a mount; {TIME}"));
            true
        }
        Err(reason) => {
            output::note(format_args!(
                "no mount is possible here: {reason}. Reading in this process instead; {TIME}"
            ));
            false
        }
    }
}

/// Reads a job with one policy, with a cache and a mount of its own.
fn measure(job: &Job, policy: Policy, mounts: bool, interrupt: &Interrupt) -> Result<Row, Failure> {
    let opened = Opened::over(store(job.store)?, options(policy), None)?;
    let place =
        if mounts { Place::mounted(opened.store.clone())? } else { Place::Process(opened.store.clone()) };
    let row = Row {
        job: job.name,
        device: opened.store.profile().kind,
        through: if mounts { "mount" } else { "process" },
        readahead: policy != Policy::None,
        policy: policy.name(),
        ra_pages: opened.engine.options().ra_pages,
        seconds: 0.0,
        requests: 0,
        bytes_fetched: 0,
        bytes_wanted: 0,
        amplification: 0.0,
        bytes_checked: 0,
        speedup: None,
    };
    let elapsed = job.run(&place, interrupt)?;
    Ok(row.measured(job, elapsed.as_secs_f64(), &opened.engine.stats()))
}

/// An emulated device over made-up data.
fn store(device: &str) -> Result<Arc<dyn Backend>, Failure> {
    let options = bowwave_backend::Options::default();
    bowwave_backend::open_url(&format!("emulate:{device}:pattern:/"), &options)
        .map_err(|error| setup::of_store(&error))
}

fn options(policy: Policy) -> Options {
    Options { cache_bytes: Some(CACHE_BYTES), policy, ..Options::default() }
}

fn show(output: &mut Output, rows: &[Row], json: bool, complete: bool) -> Result<(), Failure> {
    if json {
        return output.json_array(rows);
    }
    if !rows.is_empty() {
        output.line(row::table(rows).to_string().trim_end())?;
    }
    if complete && let Some(sentence) = row::sentence(rows) {
        output.line("")?;
        output.line(sentence)?;
        output.line("Next: bowwave mount s3://BUCKET/PREFIX DIR (or https://HOST/FOLDER/, or any folder), then read the files in DIR.")?;
    }
    Ok(())
}

/// Enough for the windows of all readers.
const CACHE_BYTES: u64 = 256 << 20;
