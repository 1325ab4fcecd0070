//! One pass over the jobs: threads read, time and verify.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::pattern;
use bowwave_engine::EngineStats;
use sha2::{Digest, Sha256};

use super::pattern::Job;
use super::pattern::Shape;
use super::source::{Mapped, Meter, Source};
use crate::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::requests::{Requests, Snapshot};
use crate::setup::Opened;

/// What a pass does.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    /// Shown with the progress.
    pub(crate) what: &'static str,
    pub(crate) opened: &'a Opened,
    pub(crate) source: &'a Source<'a>,
    pub(crate) jobs: &'a [Job],
    pub(crate) shape: Shape,
    pub(crate) threads: usize,
    /// Whether readers announce their reads.
    pub(crate) plan: bool,
    pub(crate) verify: &'a Verify,
    pub(crate) interrupt: &'a Interrupt,
}

/// What a pass has done.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) elapsed: Duration,
    pub(crate) bytes: u64,
    pub(super) times: Meter,
    /// Counters of regions: before, after; `None` without mappings.
    pub(super) mapped: Option<(Mapped, Mapped)>,
    /// Counters of the cache: before, after.
    pub(crate) stats: (EngineStats, EngineStats),
    pub(super) requests: Requests,
    pub(super) digest: Option<String>,
    pub(crate) interrupted: bool,
}

/// State shared by the threads of a pass.
struct Shared {
    next: AtomicUsize,
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// Result of a thread.
type ThreadResult = Result<(Meter, Option<String>), Failure>;

impl Pass<'_> {
    /// Reads it all.
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        let shared =
            Shared { next: AtomicUsize::new(0), bytes: AtomicU64::new(0), stop: AtomicBool::new(false) };
        let before = self.opened.engine.stats();
        let mapped_before = self.source.mapped();
        let requests_before = Snapshot::of(&self.opened.engine);
        let started = Instant::now();
        let results = thread::scope(|scope| {
            let (sender, results) = sync_channel(self.threads);
            let mut readers = Vec::with_capacity(self.threads);
            for number in 0..self.threads {
                let (sender, shared) = (sender.clone(), &shared);
                let reader = thread::Builder::new()
                    .name(format!("read-{number}"))
                    .spawn_scoped(scope, move || self.send(shared, &sender))
                    .map_err(|error| {
                        shared.stop.store(true, Ordering::Relaxed);
                        failed!("cannot start a thread: {error}")
                            .try_this("fewer readers; ulimit -u shows the limit")
                    })?;
                readers.push(reader);
            }
            // With this sender left, `recv_timeout` would not report that a reader panicked.
            drop(sender);
            let mut all = Vec::with_capacity(self.threads);
            let mut progress = Progress::bytes(self.what, Some(self.total()));
            while all.len() < self.threads {
                match results.recv_timeout(GLANCE) {
                    Ok(one) => all.push(one),
                    Err(RecvTimeoutError::Timeout) => progress.at(shared.bytes.load(Ordering::Relaxed)),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if self.interrupt.is_set() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            if readers.into_iter().any(|reader| reader.join().is_err()) {
                return Err(failed!("a reader thread panicked"));
            }
            Ok::<Vec<ThreadResult>, Failure>(all)
        })?;
        let elapsed = started.elapsed();
        let mut times = Meter::new();
        let mut digest = None;
        for result in results {
            let (of_thread, of_bytes) = result?;
            times.add(&of_thread);
            digest = digest.or(of_bytes);
        }
        Ok(Outcome {
            elapsed,
            bytes: shared.bytes.into_inner(),
            times,
            mapped: mapped_before.zip(self.source.mapped()),
            stats: (before, self.opened.engine.stats()),
            requests: Requests::since(&self.opened.engine, &requests_before),
            digest,
            interrupted: self.interrupt.is_set(),
        })
    }

    fn send(&self, shared: &Shared, sender: &SyncSender<ThreadResult>) {
        let outcome = self.read(shared);
        if outcome.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        // The channel has space for every thread's result, and the receiver waits for all.
        let _there_is_room = sender.send(outcome);
    }

    /// Reads jobs until none is left.
    fn read(&self, shared: &Shared) -> ThreadResult {
        let mut times = Meter::new();
        let mut checker = Checker::new(self.verify);
        while let Some(job) = self.jobs.get(shared.next.fetch_add(1, Ordering::Relaxed)) {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let mut reader = self.source.open(&job.path)?;
            checker.begin(job);
            if self.plan {
                reader.plan(self.shape.accesses(job.span, job.budget, job.seed))?;
            }
            for (offset, len) in self.shape.accesses(job.span, job.budget, job.seed) {
                if shared.stop.load(Ordering::Relaxed) {
                    break;
                }
                let bytes = reader.read(offset, len, &mut times)?;
                if (bytes.len() as u64) < len {
                    return Err(failed!(
                        "{}: {} bytes shorter than a moment ago",
                        job.path.display(),
                        len - bytes.len() as u64
                    )
                    .try_this("again"));
                }
                checker.take(job, offset, bytes)?;
                shared.bytes.fetch_add(len, Ordering::Relaxed);
            }
        }
        Ok((times, checker.digest()))
    }

    fn total(&self) -> u64 {
        self.jobs.iter().map(|job| job.budget.min(job.span.len())).fold(0, u64::saturating_add)
    }
}

/// Interval of checks for progress and Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// How a store's bytes can be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verify {
    /// Not at all.
    No,
    /// They are a function of path and offset; this is the path of the store's root.
    Pattern(PathBuf),
    /// By their SHA-256, for the user to compare.
    Digest,
}

impl Verify {
    /// How to verify the store at `url`.
    pub(super) fn of(url: &str) -> Self {
        let mut rest = url;
        while let Some((_, inner)) = rest.strip_prefix("emulate:").and_then(|rest| rest.split_once(':')) {
            rest = inner;
        }
        match rest.strip_prefix("pattern:/") {
            Some(base) => Self::Pattern(PathBuf::from(base)),
            None => Self::Digest,
        }
    }
}

/// Verifies the bytes of one thread.
#[derive(Debug)]
pub(super) enum Checker {
    Nothing,
    Pattern { base: PathBuf, seed: u64, expected: Vec<u8> },
    Digest(Box<Sha256>),
}

impl Checker {
    pub(super) fn new(verify: &Verify) -> Self {
        match verify {
            Verify::No => Self::Nothing,
            Verify::Pattern(base) => Self::Pattern { base: base.clone(), seed: 0, expected: Vec::new() },
            Verify::Digest => Self::Digest(Box::default()),
        }
    }

    /// Starts verifying the bytes of this job.
    pub(super) fn begin(&mut self, job: &Job) {
        if let Self::Pattern { base, seed, .. } = self {
            *seed = pattern::seed(&joined(base, &job.path));
        }
    }

    /// Verifies bytes from `offset` on.
    pub(super) fn take(&mut self, job: &Job, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Nothing => Ok(()),
            Self::Digest(digest) => {
                digest.update(bytes);
                Ok(())
            }
            Self::Pattern { seed, expected, .. } => {
                expected.resize(bytes.len(), 0);
                pattern::fill(*seed, offset, expected);
                if bytes == expected.as_slice() {
                    return Ok(());
                }
                let wrong =
                    bytes.iter().zip(expected.iter()).position(|(got, want)| got != want).unwrap_or(0);
                Err(failed!(
                    "{}: the byte at {} is wrong: this is a defect of bowwave or of this machine's memory",
                    job.path.display(),
                    offset + wrong as u64
                ))
            }
        }
    }

    /// The digest, in hexadecimal digits.
    pub(super) fn digest(self) -> Option<String> {
        let Self::Digest(digest) = self else { return None };
        Some(digest.finalize().iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        }))
    }
}

/// Joining an empty path would add a slash, and with it another seed.
fn joined(base: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { base.to_owned() } else { base.join(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::read::pattern::Span;

    fn job() -> Job {
        Job { path: PathBuf::new(), span: Span { start: 0, end: 64 }, budget: 64, seed: 0 }
    }

    #[test]
    fn synthetic_data_is_recognised_behind_emulated_devices() {
        for url in ["pattern:/1KiB", "emulate:s3:pattern:/1KiB", "emulate:s3:emulate:hdd:pattern:/1KiB"] {
            assert_eq!(Verify::of(url), Verify::Pattern("1KiB".into()), "{url}");
        }
        for url in ["file:///pattern:/1KiB", "emulate:s3:file:///pattern:/1KiB"] {
            assert_eq!(Verify::of(url), Verify::Digest, "{url}");
        }
    }

    #[test]
    fn a_wrong_byte_is_reported_with_its_offset() {
        let mut checker = Checker::new(&Verify::of("pattern:/1KiB"));
        checker.begin(&job());
        let mut bytes = [0; 32];
        pattern::fill(pattern::seed("1KiB".as_ref()), 8, &mut bytes);
        assert_eq!(checker.take(&job(), 8, &bytes), Ok(()));
        bytes[5] ^= 1;
        let failure = checker.take(&job(), 8, &bytes).expect_err("one bit is wrong");
        assert!(failure.to_string().contains("the byte at 13 is wrong"), "{failure}");
    }

    #[test]
    fn the_digest_is_that_of_the_bytes_in_order() {
        let mut checker = Checker::new(&Verify::Digest);
        for part in [&b"a"[..], b"bc"] {
            assert_eq!(checker.take(&job(), 0, part), Ok(()));
        }
        assert_eq!(
            checker.digest().as_deref(),
            Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        );
    }
}
