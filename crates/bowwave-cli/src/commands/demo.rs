//! `bowwave demo`: readahead on emulated slow stores.
//!
//! Mounts emulated stores with generated data and reads files through the mount: without readahead,
//! with the kernel's, and with ours. Checks every byte and prints the results.

mod jobs;
mod place;
mod row;

use std::sync::Arc;

use bowwave_backend::Backend;
use bowwave_core::Policy;
use bowwave_engine::Options;
use bowwave_fuse::{KernelCache, MountOptions};

use crate::Failure;
use crate::interrupt::{Interrupt, Second};
use crate::output::Output;
use crate::setup::Opened;
use jobs::Job;
use place::Place;
use row::Row;

/// Arguments of `bowwave demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes about a minute and no network. The slow stores are emulated in real time: an object store with 30 ms to the first \
byte and 90 MB/s a connection, and a disk of 7200 rpm. Readahead 'off': the policy 'none', and every read of the program \
is a read of the store; 'kernel': the policy 'none' below the kernel's own readahead of 256 KiB; 'on': a mount as \
'bowwave mount' makes it.

Examples:
  bowwave demo
  bowwave demo --json")]
pub(crate) struct Args {
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

/// Which component reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readahead {
    /// None.
    Off,
    /// The kernel, as for any file system.
    Kernel,
    /// bowwave.
    On,
}

/// Runs the demo.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::watch(Second::Waits)?;
    let mounts = mounts(args.in_process);
    let mut rows = Vec::new();
    let kinds: &[Readahead] = if mounts {
        &[Readahead::Off, Readahead::Kernel, Readahead::On]
    } else {
        &[Readahead::Off, Readahead::On]
    };
    let outcome = jobs::jobs(args.quick).iter().try_for_each(|job| {
        let mut off_seconds = None;
        kinds.iter().try_for_each(|&kind| {
            let mut row = measure(job, kind, mounts, &interrupt)?;
            row.speedup = off_seconds.map(|seconds: f64| seconds / row.seconds);
            off_seconds = off_seconds.or(Some(row.seconds));
            rows.push(row);
            Ok(())
        })
    });
    let mut output = Output::stdout();
    let printed = show(&mut output, &rows, args.json, outcome.is_ok());
    output.finish(printed)?;
    outcome
}

/// Whether to mount; otherwise says why not, and what happens instead.
fn mounts(in_process: bool) -> bool {
    const TIME: &str = "this takes about a minute";
    if in_process {
        note!("reading emulated slow stores in this process; {TIME}");
        return false;
    }
    match bowwave_fuse::is_available() {
        Ok(()) => {
            note!("reading emulated slow stores through a mount; {TIME}");
            true
        }
        Err(reason) => {
            note!("no mount is possible here: {reason}. Reading in this process instead; {TIME}");
            false
        }
    }
}

/// Runs a job with its own cache and mount.
fn measure(job: &Job, kind: Readahead, mounts: bool, interrupt: &Interrupt) -> Result<Row, Failure> {
    let opened = Opened::over(store(job.store)?, kind.options(), None)?;
    let store = opened.store.clone();
    let place = if mounts { Place::mounted(store, kind.mount_options())? } else { Place::Process(store) };
    let device = opened.store.profile().kind;
    let seconds = job.run(&place, interrupt)?.as_secs_f64();
    let (options, bytes) = (opened.engine.options(), job.bytes());
    let store = opened.engine.stats().store;
    Ok(Row {
        job: job.name,
        device,
        through: if mounts { "mount" } else { "process" },
        readahead: kind.name(),
        policy: options.policy.name(),
        ra_pages: options.ra_pages,
        seconds,
        requests: store.requests,
        bytes_fetched: store.bytes_fetched,
        bytes_wanted: bytes,
        amplification: store.bytes_fetched as f64 / bytes as f64,
        bytes_checked: bytes,
        speedup: None,
    })
}

/// An emulated device with generated data.
fn store(device: &str) -> Result<Arc<dyn Backend>, Failure> {
    let options = bowwave_backend::Options::default();
    bowwave_backend::open_url(&format!("emulate:{device}:pattern:/"), &options).map_err(Failure::from)
}

impl Readahead {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Kernel => "kernel",
            Self::On => "on",
        }
    }

    fn options(self) -> Options {
        let usual = Options::default();
        let policy = if self == Self::On { usual.policy } else { Policy::None };
        Options { cache_bytes: Some(CACHE_BYTES), policy, ..usual }
    }

    /// A window of 0 would not do for [`Readahead::Off`]: the kernel then requests one page at a
    /// time.
    fn mount_options(self) -> MountOptions {
        let kernel_cache = if self == Self::Off { KernelCache::Off } else { KernelCache::On };
        MountOptions { kernel_cache, read_only: true, ..MountOptions::default() }
    }
}

fn show(output: &mut Output, rows: &[Row], json: bool, complete: bool) -> Result<(), Failure> {
    if json {
        return output.json_array(rows);
    }
    if !rows.is_empty() {
        output.table(&row::table(rows), "a wider terminal and --json have all columns")?;
    }
    if complete && let Some(sentence) = row::sentence(rows) {
        output.line("")?;
        output.line(sentence)?;
        output.line("Next: bowwave mount s3://BUCKET/PREFIX DIR (or https://HOST/DIRECTORY/, or any directory), then read the files in DIR.")?;
    }
    Ok(())
}

/// Enough for the windows of all readers, and small enough for any machine.
const CACHE_BYTES: u64 = 512 << 20;
