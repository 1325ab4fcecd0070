//! `bowwave demo`: readahead on emulated slow stores.
//!
//! Mounts emulated stores with generated data and reads files through the mount: without readahead,
//! with the kernel's, and with ours. Checks every byte and prints the results.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use bowwave_backend::{Backend, parse_size, pattern};
use bowwave_core::Policy;
use bowwave_engine::{Options, Store};
use bowwave_fuse::{KernelCache, Mount, MountOptions};
use bowwave_trace::generate::{Random, Scatter};
use serde::Serialize;

use crate::commands::read;
use crate::interrupt::{Interrupt, Second};
use crate::mounted::Calls;
use crate::output::Output;
use crate::progress::Progress;
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
    let store = opened.store.clone();
    let through =
        if mounts { Through::mounted(store, kind.mount_options())? } else { Through::Process(store) };
    let device = opened.store.profile().kind;
    let seconds = job.run(&through, interrupt)?.as_secs_f64();
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

/// Where files are opened.
#[derive(Debug)]
enum Through {
    /// Through the kernel, as any program.
    Mounted(Mounted),
    /// By engine calls.
    Process(Store),
}

/// A mount at a temporary directory; dropping removes both.
#[derive(Debug)]
struct Mounted {
    /// `None` only during drop.
    mount: Option<Mount>,
    dir: PathBuf,
}

/// An open file.
enum OpenFile<'a> {
    Mounted(fs::File, &'a Path),
    Process(bowwave_engine::File),
}

impl Through {
    /// Mounts `store` at a new directory.
    fn mounted(store: Store, options: MountOptions) -> Result<Self, Failure> {
        let dir = new_directory()?;
        logging::to_stderr();
        match Mount::with_listener(store, &dir, options, Arc::<Calls>::default().listener(None)) {
            Ok(mount) => Ok(Self::Mounted(Mounted { mount: Some(mount), dir })),
            Err(error) => {
                let _best_effort = fs::remove_dir(&dir);
                Err(Failure::failed(error))
            }
        }
    }

    /// Opens a file.
    fn open(&self, name: &Path) -> Result<OpenFile<'_>, Failure> {
        match self {
            Self::Mounted(mounted) => {
                let path = mounted.dir.join(name);
                let file = fs::File::open(&path).map_err(|error| of_system(&path, &error))?;
                Ok(OpenFile::Mounted(file, &mounted.dir))
            }
            Self::Process(store) => store.open(name).map(OpenFile::Process).map_err(Failure::from),
        }
    }
}

impl OpenFile<'_> {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        match self {
            Self::Mounted(file, dir) => file.read_at(buffer, offset).map_err(|error| of_system(dir, &error)),
            Self::Process(file) => file.read_at(offset, buffer).map_err(Failure::from),
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

fn of_system(path: &Path, error: &std::io::Error) -> Failure {
    failed!("{}: {error}", path.display())
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
    order: Order,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    /// Sequentially, in reads of `BLOCK` bytes.
    Sequential,
    /// This many random reads of 4 KiB.
    Random(u64),
}

/// The jobs, in full size or small ones for tests.
fn jobs(quick: bool) -> Vec<Job> {
    let pick = |small, full| if quick { small } else { full };
    let reads = if quick { 10 } else { 100 };
    vec![
        Job {
            name: "one file, in order",
            store: "s3",
            readers: 1,
            file_bytes: pick("2MiB", "64MiB"),
            order: Order::Sequential,
        },
        Job {
            name: "8 files at once",
            store: "hdd",
            readers: 8,
            file_bytes: pick("256KiB", "12MiB"),
            order: Order::Sequential,
        },
        Job {
            name: "random 4 KiB reads",
            store: "s3",
            readers: 1,
            file_bytes: "1GiB",
            order: Order::Random(reads),
        },
    ]
}

impl Job {
    /// Bytes that all readers request.
    fn bytes(&self) -> u64 {
        match self.order {
            Order::Sequential => self.file_size() * self.readers as u64,
            Order::Random(reads) => reads * RANDOM_BYTES * self.readers as u64,
        }
    }

    /// Reads everything at `through`, checks every byte, and returns the time it took.
    fn run(&self, through: &Through, interrupt: &Interrupt) -> Result<Duration, Failure> {
        let done = AtomicU64::new(0);
        let mut progress = Progress::bytes(self.name, Some(self.bytes()));
        let started = Instant::now();
        thread::scope(|scope| {
            let readers: Vec<_> = (0..self.readers)
                .map(|reader| {
                    let done = &done;
                    thread::Builder::new()
                        .name(format!("reader-{reader}"))
                        .spawn_scoped(scope, move || self.read(reader, through, interrupt, done))
                        .map_err(|error| failed!("cannot start a thread: {error}"))
                })
                .collect();
            while readers.iter().any(|reader| reader.as_ref().is_ok_and(|reader| !reader.is_finished())) {
                thread::sleep(GLANCE);
                progress.at(done.load(Ordering::Relaxed));
            }
            readers.into_iter().try_for_each(|reader| {
                reader?.join().unwrap_or_else(|_| Err(Failure::failed("a reader thread panicked")))
            })
        })?;
        Ok(started.elapsed())
    }

    /// One reader's part.
    fn read(
        &self,
        reader: usize,
        through: &Through,
        interrupt: &Interrupt,
        done: &AtomicU64,
    ) -> Result<(), Failure> {
        let name = PathBuf::from(format!("{}-{reader}", self.file_bytes));
        let seed = pattern::seed(&name);
        let file = through.open(&name)?;
        let mut buffer = vec![0; BLOCK];
        let mut expected = vec![0; BLOCK];
        for (offset, len) in self.accesses() {
            if interrupt.is_set() {
                return Err(Failure::interrupted());
            }
            let (bytes, right) = (&mut buffer[..len], &mut expected[..len]);
            read_exactly(&file, offset, bytes)?;
            pattern::fill(seed, offset, right);
            if bytes != right {
                return Err(failed!(
                    "{}: wrong bytes at {offset}: this is a defect of bowwave or of this machine's memory",
                    name.display()
                ));
            }
            done.fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn accesses(&self) -> Box<dyn Iterator<Item = (u64, usize)>> {
        let size = self.file_size();
        match self.order {
            Order::Sequential => Box::new(
                (0..size.div_ceil(BLOCK as u64))
                    .map(move |block| block * BLOCK as u64)
                    .map(move |offset| (offset, BLOCK.min((size - offset) as usize))),
            ),
            // Each page at most once, in scattered order: readahead would detect a constant stride.
            Order::Random(reads) => {
                let pages = size / RANDOM_BYTES;
                let order = Scatter::new(pages, &mut Random::new(1));
                Box::new(
                    (0..reads)
                        .map(move |read| (order.of(read % pages) * RANDOM_BYTES, RANDOM_BYTES as usize)),
                )
            }
        }
    }

    fn file_size(&self) -> u64 {
        parse_size(self.file_bytes).expect("the table's sizes are well-formed")
    }
}

fn read_exactly(file: &OpenFile<'_>, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(offset + got as u64, &mut buffer[got..])? {
            0 => return Err(failed!("a file ends at {}", offset + got as u64)),
            bytes => got += bytes,
        }
    }
    Ok(())
}

/// Bytes of a sequential read, as in `cat` of coreutils 9.1.
const BLOCK: usize = 128 << 10;
const RANDOM_BYTES: u64 = 4096;
/// Interval of progress checks, and maximum error of the measured times.
const GLANCE: Duration = Duration::from_millis(5);

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
            read::rate(row.bytes_wanted as f64 / row.seconds),
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
            let reads: Vec<(u64, usize)> = job.accesses().collect();
            let bytes: u64 = reads.iter().map(|read| read.1 as u64).sum();
            assert_eq!(bytes * job.readers as u64, job.bytes(), "{job:?}");
            assert!(reads.iter().all(|&(offset, len)| offset + len as u64 <= job.file_size()), "{job:?}");
            let mut offsets: Vec<u64> = reads.iter().map(|read| read.0).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), reads.len(), "no read comes twice: {job:?}");
        }
    }
}
