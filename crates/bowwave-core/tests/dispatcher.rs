//! The dispatcher under any order of events: no request is lost or issued twice, the depth and the
//! retries stay within their limits, and pauses grow.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core --test dispatcher` repeats it.

mod rng;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bowwave_core::schedule::{
    Direction, DispatchId, Dispatcher, Priority, RETRIES_MAX, Request, RequestId, SchedulerConfig, retry_at,
};
use bowwave_core::{Instant, Urgency};
use rng::{Rng, seeds};

const BLOCK: u64 = 4096;
const DEPTH: usize = 4;
const STEPS: u64 = 500;

/// A request of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    number: u64,
    start: u64,
    failures: u32,
    /// Not before this.
    due: Instant,
}

#[derive(Default)]
struct Reached {
    retried: u32,
    abandoned: u32,
    cancelled: u32,
    merged: u32,
    parted: u32,
}

fn request(job: Job, urgency: Urgency) -> Request {
    let direction = if job.number.is_multiple_of(3) { Direction::Write } else { Direction::Read };
    let (start, end) = (job.start * BLOCK, (job.start + 1) * BLOCK);
    Request { start, end, direction, object: 1, urgency, priority: Priority::default() }
}

#[test]
fn every_request_ends_once_and_within_the_limits() {
    let mut reached = Reached::default();
    let seeds = seeds(300);
    let is_single = seeds.len() == 1;
    for seed in seeds {
        let run = AssertUnwindSafe(|| Run::new(seed).run(&mut reached));
        catch_unwind(run).unwrap_or_else(|_| panic!("BOWWAVE_SEED={seed}"));
    }
    let Reached { retried, abandoned, cancelled, merged, parted } = reached;
    for count in [retried, abandoned, cancelled, merged, parted] {
        assert!(is_single || count > 100, "{retried} {abandoned} {cancelled} {merged} {parted}");
    }
}

struct Run {
    rng: Rng,
    now: Instant,
    dispatcher: Dispatcher<Job>,
    waiting: BTreeMap<u64, RequestId>,
    at_device: Vec<(DispatchId, Vec<Job>)>,
    paused: BTreeMap<u64, Job>,
    added: u64,
    ended: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let seeks = rng.chance(40);
        let spread = if seeks { 0 } else { rng.below(3) * BLOCK };
        let config = SchedulerConfig { seeks, request_bytes_max: 8 * BLOCK, ..SchedulerConfig::default() };
        Self {
            rng,
            now: Instant(0),
            dispatcher: Dispatcher::new(config, DEPTH, spread).unwrap(),
            waiting: BTreeMap::new(),
            at_device: Vec::new(),
            paused: BTreeMap::new(),
            added: 0,
            ended: 0,
        }
    }

    fn run(mut self, reached: &mut Reached) {
        while self.added < STEPS || self.ended < self.added {
            self.now.0 += self.rng.below(400_000);
            match self.rng.below(100) {
                0..35 if self.added < STEPS => self.add(reached),
                35..40 => self.promote(reached),
                40..43 => self.cancel(reached),
                43..75 => self.issue(),
                75..90 => self.complete(reached),
                _ => self.resume(),
            }
        }
        let Self { dispatcher, waiting, at_device, paused, .. } = self;
        assert!(waiting.is_empty() && paused.is_empty() && at_device.is_empty());
        assert_eq!((dispatcher.waiting(), dispatcher.at_device(), dispatcher.due()), (0, 0, None));
    }

    fn add(&mut self, reached: &mut Reached) {
        let job = Job { number: self.added, start: self.rng.below(256), failures: 0, due: self.now };
        self.added += 1;
        let urgency = if self.rng.chance(50) { Urgency::Demand } else { Urgency::Readahead };
        let request = request(job, urgency);
        let merged = self.dispatcher.merge(&request, job);
        reached.merged += u32::from(merged.is_ok());
        let added = merged.unwrap_or_else(|job| self.dispatcher.add(self.now, request, job));
        assert_eq!(self.waiting.insert(job.number, added.id), None);
    }

    fn promote(&mut self, reached: &mut Reached) {
        let Some(at) = self.rng.index(self.waiting.len()) else { return };
        let Some((&number, &id)) = self.waiting.iter().nth(at) else { return };
        let (now, before) = (self.now, self.dispatcher.waiting());
        assert_eq!(self.dispatcher.payload_mut(id).map(|job| job.number), Some(number));
        let renamed = if self.rng.chance(50) {
            self.dispatcher.promote(now, id)
        } else {
            self.dispatcher.promote_alone(now, id)
        };
        reached.parted += u32::from(self.dispatcher.waiting() > before);
        self.waiting.insert(number, renamed.unwrap());
    }

    fn cancel(&mut self, reached: &mut Reached) {
        let Some((number, id)) = self.waiting.pop_last() else { return };
        assert_eq!(self.dispatcher.cancel(id).map(|(job, _)| job.number), Some(number));
        assert!(self.dispatcher.cancel(id).is_none() && self.dispatcher.payload_mut(id).is_none());
        (self.ended, reached.cancelled) = (self.ended + 1, reached.cancelled + 1);
    }

    fn issue(&mut self) {
        let mut parts = Vec::new();
        let Some(dispatch) = self.dispatcher.next(self.now, &mut parts) else {
            return assert!(parts.is_empty());
        };
        let mut at = dispatch.request.start;
        for job in &parts {
            assert_eq!(job.start * BLOCK, at, "parts are in order and without gaps");
            assert!(self.waiting.remove(&job.number).is_some(), "issued once");
            at += BLOCK;
        }
        assert_eq!(at, dispatch.request.end);
        self.at_device.push((dispatch.id, parts));
        assert!(self.at_device.len() <= DEPTH);
        assert_eq!(self.dispatcher.at_device(), self.at_device.len());
    }

    fn complete(&mut self, reached: &mut Reached) {
        let Some(at) = self.rng.index(self.at_device.len()) else { return };
        let (id, parts) = self.at_device.swap_remove(at);
        assert!(self.dispatcher.complete(self.now, id) && !self.dispatcher.complete(self.now, id));
        let failed = self.rng.chance(60);
        for mut job in parts {
            job.failures += 1;
            if let Some(due) = retry_at(self.now, job.failures).filter(|_| failed) {
                job.due = due;
                self.dispatcher.pause(due, job);
                self.paused.insert(job.number, job);
                reached.retried += 1;
            } else {
                assert!(job.failures <= RETRIES_MAX + 1);
                reached.abandoned += u32::from(failed);
                self.ended += 1;
            }
        }
    }

    fn resume(&mut self) {
        assert_eq!(self.dispatcher.due(), self.paused.values().map(|job| job.due).min());
        while let Some(job) = self.dispatcher.resume(self.now) {
            assert_eq!(self.paused.remove(&job.number), Some(job), "resumed once");
            assert!(job.due <= self.now, "not before its time");
            let before = self.dispatcher.waiting();
            let added = self.dispatcher.add_alone(self.now, request(job, Urgency::Demand), job);
            assert!(!added.merged && self.dispatcher.waiting() == before + 1);
            self.waiting.insert(job.number, added.id);
        }
        assert!(self.dispatcher.due().is_none_or(|due| due > self.now));
    }
}

#[test]
fn pauses_grow_and_retries_end() {
    let now = Instant(1_000);
    let pauses: Vec<u64> =
        (1..).map_while(|failures| retry_at(now, failures)).map(|due| due.0 - now.0).collect();
    assert_eq!(pauses, [0, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
}
