//! One pass over the jobs: threads read, time and verify.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::check::{Checker, Verify};
use super::jobs::Job;
use super::pattern::Shape;
use super::source::{Mapped, Meter, Source};
use crate::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::requests::{Look, Requests};
use crate::setup::Opened;
use bowwave_engine::EngineStats;

/// What a pass does.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) opened: &'a Opened,
    pub(super) source: &'a Source<'a>,
    pub(super) jobs: &'a [Job],
    pub(super) shape: Shape,
    pub(super) threads: usize,
    /// Whether readers announce their reads.
    pub(super) plan: bool,
    pub(super) verify: &'a Verify,
    pub(super) interrupt: &'a Interrupt,
}

/// What a pass has done.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) elapsed: Duration,
    pub(super) bytes: u64,
    pub(super) times: Meter,
    /// Counters of regions: before, after; `None` without mappings.
    pub(super) mapped: Option<(Mapped, Mapped)>,
    /// Counters of the cache: before, after.
    pub(super) stats: (EngineStats, EngineStats),
    pub(super) requests: Requests,
    pub(super) digest: Option<String>,
    pub(super) interrupted: bool,
}

/// State shared by the threads of a pass.
struct Shared {
    next: AtomicUsize,
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// Result of a thread.
type Told = Result<(Meter, Option<String>), Failure>;

impl Pass<'_> {
    /// Reads it all.
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let shared =
            Shared { next: AtomicUsize::new(0), bytes: AtomicU64::new(0), stop: AtomicBool::new(false) };
        let before = self.opened.engine.stats();
        let mapped_before = self.source.mapped();
        let look = Look::at(&self.opened.engine);
        let started = Instant::now();
        let told = thread::scope(|scope| {
            let (tell, told) = sync_channel(self.threads);
            for number in 0..self.threads {
                let (tell, shared) = (tell.clone(), &shared);
                thread::Builder::new()
                    .name(format!("read-{number}"))
                    .spawn_scoped(scope, move || self.tell(shared, &tell))
                    .map_err(|error| {
                        shared.stop.store(true, Ordering::Relaxed);
                        failed!("cannot start a thread: {error}").try_this("fewer --threads")
                    })?;
            }
            let mut all = Vec::with_capacity(self.threads);
            let mut progress = Progress::bytes("reading", Some(self.total()));
            while all.len() < self.threads {
                match told.recv_timeout(GLANCE) {
                    Ok(one) => all.push(one),
                    Err(RecvTimeoutError::Timeout) => progress.at(shared.bytes.load(Ordering::Relaxed)),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if self.interrupt.is_set() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            Ok::<Vec<Told>, Failure>(all)
        })?;
        let elapsed = started.elapsed();
        let mut times = Meter::new();
        let mut digest = None;
        for told in told {
            let (of_thread, of_bytes) = told?;
            times.add(&of_thread);
            digest = digest.or(of_bytes);
        }
        Ok(Outcome {
            elapsed,
            bytes: shared.bytes.into_inner(),
            times,
            mapped: mapped_before.zip(self.source.mapped()),
            stats: (before, self.opened.engine.stats()),
            requests: Requests::since(&self.opened.engine, &look),
            digest,
            interrupted: self.interrupt.is_set(),
        })
    }

    fn tell(&self, shared: &Shared, tell: &SyncSender<Told>) {
        let outcome = self.read(shared);
        if outcome.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        // The channel has space for every thread's result, and the receiver waits for all.
        let _there_is_room = tell.send(outcome);
    }

    /// Reads jobs until none is left.
    fn read(&self, shared: &Shared) -> Told {
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
