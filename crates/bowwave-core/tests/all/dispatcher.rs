//! The dispatcher under any order of events: no request is lost or issued twice, the depth and the
//! retries stay within their limits, and pauses grow.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core dispatcher` repeats it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::rng::{Rng, seeds};
use bowwave_core::network::{Failure, GiveUp, Hedging, Retry, RetryLimits, Verdict};
use bowwave_core::schedule::{
    CONGESTED_REQUESTS, Direction, DispatchId, Dispatcher, Expired, Priority, Request, RequestId,
    SchedulerConfig,
};
use bowwave_core::{Instant, Urgency};

const BLOCK: u64 = 4096;
const DEPTH: usize = 4;
const STEPS: u64 = 500;
const MS: u64 = 1_000_000;
const TRANSIENT: Failure = Failure { transient: true, retry_after_ns: None };

/// A request of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    number: u64,
    start: u64,
    retry: Retry,
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
        assert_eq!((dispatcher.waiting(), dispatcher.at_device(), dispatcher.next_timer()), (0, 0, None));
    }

    fn add(&mut self, reached: &mut Reached) {
        let retry = Retry::new(RetryLimits::LOCAL, self.now);
        let job = Job { number: self.added, start: self.rng.below(256), retry, due: self.now };
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
            let verdict = job.retry.failed(self.now, TRANSIENT, 0);
            if let Verdict::Again(due) = verdict
                && failed
            {
                job.due = due;
                self.dispatcher.pause(due, job);
                self.paused.insert(job.number, job);
                reached.retried += 1;
            } else {
                assert!(job.retry.attempts() <= RetryLimits::LOCAL.attempts_max);
                reached.abandoned += u32::from(failed);
                self.ended += 1;
            }
        }
    }

    fn resume(&mut self) {
        assert_eq!(self.dispatcher.next_timer(), self.paused.values().map(|job| job.due).min());
        while let Some(Expired::Retry(job)) = self.dispatcher.expire(self.now) {
            assert_eq!(self.paused.remove(&job.number), Some(job), "resumed once");
            assert!(job.due <= self.now, "not before its time");
            let before = self.dispatcher.waiting();
            let added = self.dispatcher.add_alone(self.now, request(job, Urgency::Demand), job);
            assert!(!added.merged && self.dispatcher.waiting() == before + 1);
            self.waiting.insert(job.number, added.id);
        }
        assert!(self.dispatcher.next_timer().is_none_or(|due| due > self.now));
    }
}

#[test]
fn pauses_of_a_local_store_grow_and_retries_end() {
    let now = Instant(1_000);
    let mut retry = Retry::new(RetryLimits::LOCAL, now);
    for pause_ms in [0, 2, 3, 4, 5] {
        assert_eq!(retry.failed(now, TRANSIENT, u64::MAX), Verdict::Again(Instant(now.0 + pause_ms * MS)));
    }
    assert_eq!(retry.failed(now, TRANSIENT, 0), Verdict::GiveUp(GiveUp::Attempts));
}

/// Promotion, cancel, back-off and a hedged read in one dispatcher, as a driver in virtual time has
/// them.
#[test]
fn one_virtual_clock_drives_retries_hedges_promotion_and_cancel() {
    let config = SchedulerConfig { seeks: false, request_bytes_max: BLOCK, ..SchedulerConfig::default() };
    let hedging = Hedging::for_store(10 * MS, 50).unwrap();
    let mut dispatcher = Dispatcher::new(config, 1, 0).unwrap().with_hedging(hedging);
    let read = |start: u64, urgency| Request {
        start: start * BLOCK,
        end: (start + 1) * BLOCK,
        direction: Direction::Read,
        object: 1,
        urgency,
        priority: Priority::default(),
    };
    let mut parts = Vec::new();
    let start = Instant(0);
    let first = dispatcher.add(start, read(0, Urgency::Demand), 'a');
    let cancelled = dispatcher.add(start, read(2, Urgency::Readahead), 'b');
    dispatcher.add(start, read(4, Urgency::Readahead), 'c');
    let promoted = dispatcher.add(start, read(6, Urgency::Readahead), 'd');
    assert!(!first.merged && dispatcher.next_timer().is_none());
    let mut issue = |dispatcher: &mut Dispatcher<char>, now| {
        parts.clear();
        let dispatch = dispatcher.next(now, &mut parts)?;
        Some((dispatch.id, parts[0]))
    };

    // The demand read goes first, and is late after three times the latency.
    let (id, name) = issue(&mut dispatcher, start).unwrap();
    assert_eq!((name, dispatcher.sent(start, id, BLOCK)), ('a', true));
    assert!(!dispatcher.sent(start, id, 1 << 20), "long reads are not hedged");
    assert_eq!(issue(&mut dispatcher, start), None, "one slot");
    assert_eq!(dispatcher.cancel(cancelled.id).map(|(name, _)| name), Some('b'));
    assert!(dispatcher.promote(start, promoted.id).is_some());
    let late = Instant(30 * MS);
    assert_eq!((dispatcher.next_timer(), dispatcher.expire(start)), (Some(late), None));
    // One read of one is more than half of the reads.
    assert_eq!((dispatcher.expire(late), dispatcher.next_timer()), (None, None));

    // It fails for good at the first failure of its only request, and pauses.
    let mut retry = Retry::new(RetryLimits::default(), start);
    assert!(dispatcher.failed(id) && !dispatcher.failed(id));
    assert!(dispatcher.complete(late, id));
    let Verdict::Again(due) = retry.failed(late, TRANSIENT, 0) else { panic!("it has attempts left") };
    dispatcher.pause(due, name);
    assert_eq!((due, dispatcher.next_timer()), (Instant(40 * MS), Some(due)));

    // Meanwhile the promoted read precedes the speculative one. It may be hedged: one of two.
    let (id, name) = issue(&mut dispatcher, late).unwrap();
    assert_eq!((name, dispatcher.sent(late, id, BLOCK)), ('d', true));
    assert_eq!(dispatcher.expire(due), Some(Expired::Retry('a')));
    dispatcher.add_alone(due, read(0, Urgency::Demand), 'a');
    let late = dispatcher.next_timer().unwrap();
    assert_eq!(late, Instant(60 * MS));
    assert_eq!(dispatcher.expire(late), Some(Expired::Hedge(id)));
    assert_eq!(dispatcher.expire(late), None, "one hedge");
    // The first request fails, the second one responds, and a response after that is too late.
    assert!(!dispatcher.failed(id), "the second one may succeed");
    let now = Instant(65 * MS);
    assert!(dispatcher.answered(now, id, true) && !dispatcher.answered(now, id, false));
    assert!(dispatcher.complete(now, id) && !dispatcher.failed(id));

    // The rest: async has waited for two sync requests. No timer is left.
    let mut order = Vec::new();
    while let Some((id, name)) = issue(&mut dispatcher, now) {
        order.push(name);
        assert!(dispatcher.complete(now, id));
    }
    assert_eq!((order, dispatcher.next_timer()), (vec!['c', 'a'], None));
}

#[test]
fn reads_that_wait_congest_a_queue_and_writes_do_not() {
    let config = SchedulerConfig { request_bytes_max: BLOCK, ..SchedulerConfig::default() };
    let mut dispatcher = Dispatcher::new(config, 1, 0).unwrap();
    let mut request = Request {
        start: 0,
        end: BLOCK,
        direction: Direction::Write,
        object: 1,
        urgency: Urgency::Readahead,
        priority: Priority::default(),
    };
    let mut ids = Vec::new();
    for direction in [Direction::Write, Direction::Read] {
        request.direction = direction;
        for number in 0..CONGESTED_REQUESTS as u64 {
            assert!(!dispatcher.is_congested());
            (request.start, request.end) = (2 * number * BLOCK, (2 * number + 1) * BLOCK);
            ids.push(dispatcher.add(Instant(0), request, ()).id);
        }
    }
    assert!(dispatcher.is_congested());
    assert!(dispatcher.cancel(ids[0]).is_some() && dispatcher.is_congested());
    assert!(dispatcher.cancel(ids[CONGESTED_REQUESTS]).is_some() && !dispatcher.is_congested());
}
