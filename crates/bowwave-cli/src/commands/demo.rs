//! `bowwave demo`: readahead on emulated slow stores.
//!
//! Mounts emulated stores with generated data and reads files through the mount: without readahead,
//! with the kernel's, and with ours. Checks every byte and prints the results.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use bowwave_backend::{Backend, parse_size};
use bowwave_core::Policy;
use bowwave_engine::{Options, Store};
use bowwave_fuse::{KernelCache, Mount, MountOptions};
use serde::Serialize;

use crate::commands::read::pass::{Pass, Verify};
use crate::commands::read::pattern::{self, Pattern, Shape, Span};
use crate::commands::read::rate;
use crate::commands::read::source::Source;
use crate::interrupt::{Interrupt, Second};
use crate::mounted::Calls;
use crate::output::Output;
use crate::setup::Opened;
use crate::table::{Align, Keep, Table};
use crate::{Failure, logging};

/// Arguments of `bowwave demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes about 40 seconds and no network. The slow stores are emulated in real time: an object store with 30 ms to the first \
byte and 90 MB/s a connection, and a disk of 7200 rpm. Readahead 'off': the policy 'none', and every read of the program \
is a read of the store; 'kernel': the policy 'none' behind the kernel's own readahead of 256 KiB; 'on': a mount with \
the defaults of 'bowwave mount'.

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

bowwave_core::named_enum! {
    /// Which component reads ahead.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Readahead {
        /// None.
        Off = "off",
        /// The kernel, as for any file system.
        Kernel = "kernel",
        /// bowwave.
        On = "on",
    }
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
    let outcome = jobs(args.quick).iter().try_for_each(|job| {
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

/// Decides whether to mount, and tells the user.
fn mounts(in_process: bool) -> bool {
    const TIME: &str = "this takes about 40 seconds";
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
    let mounted = mounts.then(|| Mounted::new(opened.store.clone(), kind.mount_options())).transpose()?;
    let source = match &mounted {
        Some(mounted) => Source::mounted(&opened.store, &mounted.dir),
        None => Source::new(&opened.store, None, opened.store.url())?,
    };
    let files = job.files();
    let pass = Pass {
        what: job.name,
        opened: &opened,
        source: &source,
        jobs: &files,
        shape: job.shape(),
        threads: files.len(),
        plan: false,
        verify: &Verify::Pattern(PathBuf::new()),
        interrupt,
    };
    let outcome = pass.run()?;
    if outcome.interrupted {
        return Err(Failure::interrupted());
    }
    let (options, bytes, seconds) = (opened.engine.options(), outcome.bytes, outcome.elapsed.as_secs_f64());
    let store = &outcome.stats.1.store;
    Ok(Row {
        job: job.name,
        device: opened.store.profile().kind,
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
    fn options(self) -> Options {
        let usual = Options::default();
        let policy = if self == Self::On { usual.policy } else { Policy::None };
        Options { cache_bytes: Some(CACHE_BYTES), policy, ..usual }
    }

    /// [`Readahead::Off`] bypasses the kernel's page cache. A readahead window of 0 would differ:
    /// the kernel then requests one page at a time.
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
        output.table(&table(rows), "a wider terminal and --json have all columns")?;
    }
    if complete && let Some(sentence) = sentence(rows) {
        output.line("")?;
        output.line(sentence)?;
        output.line("Next: bowwave mount s3://BUCKET/PREFIX DIR (or https://HOST/DIRECTORY/, or any directory), then read the files in DIR.")?;
    }
    Ok(())
}

/// Enough for the windows of all readers, and small enough for any machine.
const CACHE_BYTES: u64 = 512 << 20;

/// A mount at a temporary directory; dropping removes both.
#[derive(Debug)]
struct Mounted {
    /// `None` only during drop.
    mount: Option<Mount>,
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `store` at a new directory.
    fn new(store: Store, options: MountOptions) -> Result<Self, Failure> {
        let dir = new_directory()?;
        logging::to_stderr();
        match Mount::with_listener(store, &dir, options, Arc::<Calls>::default().listener(None)) {
            Ok(mount) => Ok(Self { mount: Some(mount), dir }),
            Err(error) => {
                let _best_effort = fs::remove_dir(&dir);
                Err(Failure::failed(error))
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.mount.take());
        // Never recursive: if the unmount failed, the mount still has files.
        let _best_effort = fs::remove_dir(&self.dir);
    }
}

/// An empty directory of this process.
fn new_directory() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    for number in 0..1000 {
        let dir = base.join(format!("bowwave-demo-{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(failed!("cannot create {}: {error}", dir.display())
                    .try_this("TMPDIR=/some/directory bowwave demo"));
            }
        }
    }
    Err(failed!("{}: too many directories of demos", base.display()))
}

/// A job: concurrent readers, one file each.
#[derive(Debug, Clone)]
struct Job {
    /// Name in the table and in JSON.
    name: &'static str,
    /// The emulated store.
    store: &'static str,
    readers: usize,
    file_bytes: &'static str,
    pattern: Pattern,
    /// Bytes of a read.
    block: u64,
    /// Maximum bytes per reader.
    budget: u64,
}

/// The jobs, in full size or small ones for tests.
fn jobs(quick: bool) -> Vec<Job> {
    let pick = |small, full| if quick { small } else { full };
    let reads = if quick { 10 } else { 100 };
    let sequential = Job {
        name: "one file, in order",
        store: "s3",
        readers: 1,
        file_bytes: pick("2MiB", "64MiB"),
        pattern: Pattern::Seq,
        // As in `cat` of coreutils 9.1.
        block: 128 << 10,
        budget: u64::MAX,
    };
    vec![
        sequential.clone(),
        Job {
            name: "8 files at once",
            store: "hdd",
            readers: 8,
            file_bytes: pick("256KiB", "12MiB"),
            ..sequential.clone()
        },
        Job {
            name: "random 4 KiB reads",
            file_bytes: "1GiB",
            // With replacement; these reads repeat no page, which a test checks.
            pattern: Pattern::Random,
            block: 4096,
            budget: reads * 4096,
            ..sequential
        },
    ]
}

impl Job {
    fn shape(&self) -> Shape {
        Shape { pattern: self.pattern, block: self.block, stride: self.block, streams: 1 }
    }

    /// One file for each reader.
    fn files(&self) -> Vec<pattern::Job> {
        let end = parse_size(self.file_bytes).expect("the table's sizes are well-formed");
        let path = |reader| format!("{}-{reader}", self.file_bytes).into();
        let file = |reader| pattern::Job {
            path: path(reader),
            span: Span { start: 0, end },
            budget: self.budget,
            seed: 1,
        };
        (0..self.readers).map(file).collect()
    }
}

/// Results of a job with one kind of readahead.
#[derive(Debug, Clone, Serialize)]
struct Row {
    job: &'static str,
    /// The emulated device.
    device: String,
    /// `mount` or `process`.
    through: &'static str,
    /// `off`, `kernel` or `on`.
    readahead: &'static str,
    policy: &'static str,
    /// Pages.
    ra_pages: u32,
    seconds: f64,
    requests: u64,
    bytes_fetched: u64,
    bytes_wanted: u64,
    /// Bytes fetched per byte requested.
    amplification: f64,
    /// Bytes read and verified.
    bytes_checked: u64,
    /// Time without readahead, divided by this row's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    speedup: Option<f64>,
}

/// The rows as a table for the terminal.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        ("what is read", Align::Left, Keep::Always),
        ("from", Align::Left, Keep::Always),
        ("readahead", Align::Left, Keep::Always),
        ("seconds", Align::Right, Keep::Always),
        ("throughput", Align::Right, Keep::Always),
        ("speed-up", Align::Right, Keep::Always),
        ("requests", Align::Right, Keep::Rank(2)),
        ("fetched/wanted", Align::Right, Keep::Rank(1)),
    ]);
    for row in rows {
        table.row([
            row.job.to_owned(),
            row.device.clone(),
            row.readahead.to_owned(),
            format!("{:.2}", row.seconds),
            rate(row.bytes_wanted as f64 / row.seconds),
            row.speedup.map_or_else(String::new, |factor| format!("{factor:.1}x")),
            row.requests.to_string(),
            format!("{:.2}", row.amplification),
        ]);
    }
    table
}

/// A sentence with the rows' figures.
fn sentence(rows: &[Row]) -> Option<String> {
    let speedups = |kind: &str| -> Vec<(&Row, f64)> {
        let rows = rows.iter().filter(|row| row.readahead == kind);
        rows.filter_map(|row| Some((row, row.speedup?))).collect()
    };
    let on = speedups("on");
    let [(_, one), (_, several), (random, small)] = on.as_slice() else { return None };
    let kernel = match speedups("kernel").as_slice() {
        [(_, kernel_one), (_, kernel_several), _] => {
            format!(" (the kernel's own readahead: {kernel_one:.1} and {kernel_several:.1} times)")
        }
        _ => String::new(),
    };
    Some(format!(
        "Readahead made one sequential reader {one:.1} times as fast and eight at once {several:.1} times{kernel}; \
         small random reads took {:.2} times as long and fetched {:.1} bytes per byte wanted. Every byte was checked.",
        1.0 / small,
        random.amplification
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_their_bytes_within_their_files() {
        for job in jobs(false).into_iter().chain(jobs(true)) {
            for file in job.files() {
                let reads: Vec<(u64, u64)> =
                    job.shape().accesses(file.span, file.budget, file.seed).collect();
                let bytes: u64 = reads.iter().map(|read| read.1).sum();
                assert_eq!(bytes, file.budget.min(file.span.len()), "{job:?}");
                assert!(reads.iter().all(|&(offset, len)| offset + len <= file.span.end), "{job:?}");
                let mut offsets: Vec<u64> = reads.iter().map(|read| read.0).collect();
                offsets.sort_unstable();
                offsets.dedup();
                assert_eq!(offsets.len(), reads.len(), "no read comes twice: {job:?}");
            }
        }
    }
}
