//! Guarantees of a queue: order, merging, places, congestion, cancelling, with a device of known
//! times.

use bowwave_baselines::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::schedule::{Algorithm, SchedulerConfig};
use bowwave_core::{Instant, Urgency};

use super::*;
use crate::device::{InstantDevice, Service};

/// Takes a millisecond per request and records its requests.
#[derive(Debug)]
struct Slow {
    depth: usize,
    bytes_max: u64,
    held: VecDeque<Done>,
    asked: std::sync::Arc<std::sync::Mutex<Vec<(u64, u64)>>>,
}

impl Device for Slow {
    fn depth(&self) -> usize {
        self.depth
    }

    fn request_bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn capacity_bytes(&self) -> Option<u64> {
        None
    }

    fn submit(&mut self, now: Instant, request: &Request) {
        assert!(self.held.len() < self.depth, "more than {} requests", self.depth);
        assert!(request.bytes <= self.bytes_max, "{} bytes", request.bytes);
        let started = self.held.back().map_or(now, |done| done.ended.max(now));
        self.held.push_back(Done { id: request.id, started, ended: Instant(started.0 + MS), left: 0 });
        self.asked.lock().unwrap().push((request.start, request.bytes));
    }

    fn next_event(&self) -> Option<Instant> {
        self.held.front().map(|done| done.ended)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>) {
        while let Some(done) = self.held.pop_front_if(|done| done.ended <= now) {
            ended.push(done);
        }
    }

    fn service(&self) -> Service {
        Service::default()
    }
}

const MS: u64 = 1_000_000;

struct Bench {
    queue: Queue,
    asked: std::sync::Arc<std::sync::Mutex<Vec<(u64, u64)>>>,
}

impl Bench {
    fn new(config: QueueConfig) -> Self {
        Self::with(config, 1, 64)
    }

    fn with(config: QueueConfig, depth: usize, bytes_max: u64) -> Self {
        let asked = std::sync::Arc::default();
        let device = Slow { depth, bytes_max, held: VecDeque::new(), asked: std::sync::Arc::clone(&asked) };
        Self { queue: Queue::new(Box::new(device), config).unwrap(), asked }
    }

    fn capabilities(&self) -> Vec<(u64, u64)> {
        self.asked.lock().unwrap().clone()
    }

    /// Submits reads of 8 bytes of object 0 at these addresses, numbered by address.
    fn reads(&mut self, now: u64, starts: &[u64]) {
        for &start in starts {
            self.queue.submit(Instant(now), read(start, 8));
        }
    }

    fn run(&mut self) -> Vec<Completed> {
        let mut completed = Vec::new();
        while let Some(at) = self.queue.next_event() {
            self.queue.advance(at, &mut completed);
        }
        assert!(self.queue.is_empty(), "{} left", self.queue.len());
        completed
    }
}

fn read(start: u64, bytes: u64) -> Request {
    let id = RequestId(start);
    Request { id, direction: Direction::Read, start, bytes, urgency: Urgency::Demand, owner: 0, object: 0 }
}

fn clook() -> QueueConfig {
    QueueConfig::default()
}

#[test]
fn clook_goes_upwards_from_the_last_end_and_then_back_to_the_lowest() {
    let mut bench = Bench::new(clook());
    bench.reads(0, &[500]);
    bench.queue.advance(Instant(0), &mut Vec::new());
    bench.reads(1, &[100, 900, 508, 300, 700]);
    let order: Vec<_> = bench.run().iter().map(|done| done.id.0).collect();
    assert_eq!(order, [500, 508, 700, 900, 100, 300]);
}

#[test]
fn noop_keeps_the_order_of_arrival() {
    let mut bench = Bench::new(QueueConfig { elevator: Elevator::Noop, ..clook() });
    bench.reads(0, &[500, 100, 900, 300]);
    let order: Vec<_> = bench.run().iter().map(|done| done.id.0).collect();
    assert_eq!(order, [500, 100, 900, 300]);
}

#[test]
fn neighbours_merge_at_both_ends_and_close_gaps_and_complete_together() {
    let mut bench = Bench::new(clook());
    bench.reads(0, &[100, 108, 92, 124, 116, 300]);
    let completed = bench.run();
    assert_eq!(bench.capabilities(), [(92, 40), (300, 8)]);
    assert_eq!(completed.len(), 6);
    assert!(completed[..5].iter().all(|done| done.ended == Instant(MS)), "{completed:?}");
    assert_eq!(bench.queue.stats().requests, [2, 0]);
    assert_eq!(bench.queue.stats().bytes, [48, 0]);
}

#[test]
fn requests_do_not_merge_over_the_limit_nor_across_objects_or_directions() {
    let mut bench = Bench::new(clook());
    bench.queue.submit(Instant(0), read(0, 60));
    bench.queue.submit(Instant(0), read(60, 8));
    bench.queue.submit(Instant(0), Request { object: 1, ..read(68, 8) });
    bench.queue.submit(Instant(0), Request { direction: Direction::Write, ..read(76, 8) });
    assert_eq!(bench.run().len(), 4);
    assert_eq!(bench.capabilities(), [(0, 60), (60, 8), (68, 8), (76, 8)]);
}

#[test]
fn long_requests_are_cut_at_the_devices_limit_and_complete_once_with_the_last_piece() {
    let mut bench = Bench::with(QueueConfig { merge: false, ..clook() }, 1, 64);
    bench.queue.submit(Instant(5), read(10, 200));
    let completed = bench.run();
    assert_eq!(bench.capabilities(), [(10, 64), (74, 64), (138, 64), (202, 8)]);
    let expected = Completed {
        id: RequestId(10),
        queued: Instant(5),
        started: Instant(5),
        ended: Instant(5 + 4 * MS),
        direction: Direction::Read,
        urgency: Urgency::Demand,
        expired: false,
    };
    assert_eq!(completed, [expected]);
}

#[test]
fn what_finds_no_place_waits_outside_and_enters_in_order() {
    let config = QueueConfig { requests_max: 4, congested_on: 3, congested_off: 2, ..clook() };
    let mut bench = Bench::new(config);
    bench.reads(0, &[100, 200]);
    assert!(!bench.queue.is_congested(Direction::Read));
    bench.reads(0, &[300]);
    assert!(bench.queue.is_congested(Direction::Read));
    assert!(!bench.queue.is_congested(Direction::Write), "each direction has its own places");
    bench.reads(0, &[400, 50, 60]);
    assert_eq!((bench.queue.len(), bench.queue.stats().blocked), (6, 2));
    let mut completed = Vec::new();
    bench.queue.advance(Instant(2 * MS), &mut completed);
    assert!(bench.queue.is_congested(Direction::Read), "4 places are taken again");
    bench.queue.advance(Instant(4 * MS), &mut completed);
    assert!(bench.queue.is_congested(Direction::Read), "2 places: neither at 3 nor below 2");
    bench.queue.advance(Instant(5 * MS), &mut completed);
    assert!(!bench.queue.is_congested(Direction::Read));
    bench.queue.advance(Instant(6 * MS), &mut completed);
    let order: Vec<_> = completed.iter().map(|done| done.id.0).collect();
    assert_eq!(order, [100, 200, 300, 400, 50, 60]);
}

#[test]
fn cancelled_parts_leave_their_neighbours_and_begun_ones_stay() {
    let mut bench = Bench::new(clook());
    bench.reads(0, &[0]);
    bench.queue.advance(Instant(0), &mut Vec::new());
    bench.reads(1, &[100, 108, 116, 124, 132]);
    assert!(!bench.queue.cancel(Instant(2), RequestId(0)), "the device has it");
    assert!(!bench.queue.cancel(Instant(2), RequestId(7)), "unknown");
    assert!(bench.queue.cancel(Instant(2), RequestId(116)), "from the middle");
    assert!(bench.queue.cancel(Instant(2), RequestId(100)), "from the front");
    assert!(bench.queue.cancel(Instant(2), RequestId(132)), "from the end");
    assert!(!bench.queue.cancel(Instant(2), RequestId(132)), "once only");
    let ended: Vec<_> = bench.run().iter().map(|done| done.id.0).collect();
    assert_eq!((ended, bench.capabilities()), (vec![0, 108, 124], vec![(0, 8), (108, 8), (124, 8)]));
}

#[test]
fn a_cut_request_cannot_be_cancelled_once_a_piece_is_done() {
    let mut bench = Bench::with(QueueConfig { merge: false, ..clook() }, 1, 64);
    bench.queue.submit(Instant(0), read(0, 200));
    assert!(bench.queue.cancel(Instant(0), RequestId(0)));
    bench.queue.submit(Instant(0), read(0, 200));
    bench.queue.advance(Instant(MS), &mut Vec::new());
    assert!(!bench.queue.cancel(Instant(MS), RequestId(0)));
    assert_eq!(bench.run().len(), 1);
}

#[test]
fn anticipation_holds_the_device_for_the_owner_that_reads_on() {
    for (elevator, expected) in
        [(Elevator::Clook, [0, 10_000_000, 8]), (Elevator::Anticipatory, [0, 8, 10_000_000])]
    {
        let mut bench = Bench::new(QueueConfig { elevator, ..clook() });
        let mut completed = Vec::new();
        bench.reads(0, &[0]);
        bench.queue.submit(Instant(0), Request { owner: 1, ..read(10_000_000, 8) });
        bench.queue.advance(Instant(MS + MS / 2), &mut completed);
        bench.reads(MS + MS / 2, &[8]);
        completed.extend(bench.run());
        let order: Vec<_> = completed.iter().map(|done| done.id.0).collect();
        assert_eq!(order, expected, "{elevator}");
    }
}

#[test]
fn anticipation_ends_after_its_time_and_learns_who_is_slow() {
    let mut bench = Bench::new(QueueConfig { elevator: Elevator::Anticipatory, ..clook() });
    let mut completed = Vec::new();
    bench.reads(0, &[0]);
    bench.queue.submit(Instant(0), Request { owner: 1, ..read(10_000_000, 8) });
    bench.queue.advance(Instant(100 * MS), &mut completed);
    assert_eq!(completed[1].started, Instant(7 * MS), "6 ms after the end of the first");
    // Owner 0 repeatedly takes 99 ms: finally the queue stops waiting for it. One pause alone is
    // forgiven.
    let mut waits = Vec::new();
    for round in 1..8 {
        let at = round * 100 * MS;
        completed.clear();
        bench.reads(at, &[round * 100]);
        bench.queue.submit(Instant(at), Request { owner: 1, ..read(10_000_000 * (round + 1), 8) });
        bench.queue.advance(Instant(at + 100 * MS), &mut completed);
        waits.push((completed[1].started.0 - completed[0].ended.0) / MS);
    }
    assert_eq!((waits.first(), waits.last()), (Some(&6), Some(&0)), "{waits:?}");
}

#[test]
fn busy_time_and_depth_are_counted() {
    let mut bench = Bench::new(clook());
    bench.reads(0, &[0, 100]);
    bench.queue.advance(Instant(10 * MS), &mut Vec::new());
    let stats = bench.queue.stats();
    assert_eq!((stats.busy_ns, stats.depth_ns, stats.depth_max), (2 * MS, u128::from(3 * MS), 2));
}

#[test]
fn any_submissions_promotions_and_cancels_end_each_request_once() {
    let elevators: Vec<Elevator> = Elevator::all(&ALGORITHMS).collect();
    for seed in 0..200u64 {
        let mut state = seed;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let elevator = elevators[draw(elevators.len() as u64) as usize];
        let config = QueueConfig { elevator, requests_max: 5, congested_on: 4, congested_off: 2, ..clook() };
        let mut bench = Bench::with(config, 1 + draw(3) as usize, 64);
        let (mut now, mut open, mut completed, mut submitted) = (0, Vec::new(), Vec::new(), 0);
        let mut cancelled = 0;
        for id in 0..400 {
            now += draw(MS);
            bench.queue.advance(Instant(now), &mut completed);
            match draw(4) {
                0 if !open.is_empty() => {
                    let id = open[draw(open.len() as u64) as usize];
                    cancelled += usize::from(bench.queue.cancel(Instant(now), RequestId(id)));
                }
                1 => bench.queue.promote(RequestId(draw(id + 1))),
                _ => {
                    let direction = if draw(4) == 0 { Direction::Write } else { Direction::Read };
                    let request = read(draw(40) * 8, (1 + draw(20)) * 8);
                    let owner = draw(3) as u32;
                    bench
                        .queue
                        .submit(Instant(now), Request { id: RequestId(id), direction, owner, ..request });
                    open.push(id);
                    submitted += 1;
                }
            }
        }
        completed.extend(bench.run());
        assert!(completed.is_sorted_by_key(|done| done.ended), "seed {seed}");
        assert!(completed.iter().all(|done| done.queued <= done.started && done.started < done.ended));
        let mut ids: Vec<_> = completed.iter().map(|done| done.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(
            (ids.len(), completed.len()),
            (submitted - cancelled, submitted - cancelled),
            "seed {seed}"
        );
    }
}

#[test]
fn the_schedulers_of_the_core_put_demand_and_fsync_before_write_back() {
    let orders = [
        (Elevator::Scheduler(DEADLINE_RW), [500, 700, 100, 300]),
        (Elevator::Scheduler(Algorithm::Deadline), [500, 300, 700, 100]),
        (Elevator::Scheduler(DEADLINE_LITERAL), [500, 300, 700, 100]),
    ];
    for (elevator, expected) in orders {
        let mut bench = Bench::new(QueueConfig { elevator, ..clook() });
        let write = |start, urgency| Request { direction: Direction::Write, urgency, ..read(start, 8) };
        bench.reads(0, &[500]);
        bench.queue.advance(Instant(0), &mut Vec::new());
        bench.queue.submit(Instant(1), write(100, Urgency::Readahead));
        bench.queue.submit(Instant(1), write(300, Urgency::Demand));
        bench.reads(1, &[700]);
        let order: Vec<_> = bench.run().iter().map(|done| done.id.0).collect();
        assert_eq!(order, expected, "{elevator}");
        assert_eq!(bench.queue.scheduler_stats().unwrap().dispatches(), 4);
    }
}

#[test]
fn a_promoted_readahead_overtakes_write_back_in_the_core() {
    let mut bench = Bench::new(QueueConfig { elevator: Elevator::Scheduler(Algorithm::Deadline), ..clook() });
    bench.reads(0, &[0]);
    bench.queue.advance(Instant(0), &mut Vec::new());
    let ahead = |start, direction| Request { direction, urgency: Urgency::Readahead, ..read(start, 8) };
    bench.queue.submit(Instant(1), ahead(100, Direction::Write));
    bench.queue.submit(Instant(1), ahead(300, Direction::Read));
    bench.queue.promote(RequestId(300));
    let order: Vec<_> = bench.run().iter().map(|done| done.id.0).collect();
    assert_eq!(order, [0, 300, 100]);
}

#[test]
fn what_is_promoted_goes_alone_where_no_head_comes_by_the_rest() {
    let order = |seeks| {
        let scheduler = SchedulerConfig { seeks, ..SchedulerConfig::default() };
        let mut bench = Bench::new(QueueConfig {
            elevator: Elevator::Scheduler(Algorithm::Deadline),
            scheduler,
            ..clook()
        });
        bench.reads(0, &[0]);
        bench.queue.advance(Instant(0), &mut Vec::new());
        for start in [100, 108, 116] {
            bench.queue.submit(Instant(1), Request { urgency: Urgency::Readahead, ..read(start, 8) });
        }
        bench.queue.promote(RequestId(108));
        assert_eq!(bench.queue.len(), if seeks { 2 } else { 4 }, "with the one at the device");
        bench.run().iter().map(|done| done.id.0).collect::<Vec<_>>()
    };
    assert_eq!(order(true), [0, 100, 108, 116], "all in one go");
    assert_eq!(order(false), [0, 108, 100, 116]);
}

#[test]
fn an_open_queue_before_an_instant_device_ends_everything_at_once() {
    let mut queue = Queue::new(Box::new(InstantDevice::default()), QueueConfig::open()).unwrap();
    for start in 0..1000 {
        queue.submit(Instant(7), read(start * 8, 8));
    }
    let mut completed = Vec::new();
    queue.advance(Instant(7), &mut completed);
    assert_eq!(completed.len(), 1000);
    assert_eq!(queue.next_event(), None);
}

#[test]
fn impossible_knobs_are_named_with_their_bounds() {
    let errors = [
        (QueueConfig { requests_max: 0, ..clook() }, "requests_max is 0, but must be at least 1"),
        (
            QueueConfig { congested_on: 129, ..clook() },
            "congested_on is 129, but must be from 1 to requests_max",
        ),
        (
            QueueConfig { congested_off: 113, ..clook() },
            "congested_off is 113, but must be from 1 to congested_on",
        ),
    ];
    for (config, expected) in errors {
        assert_eq!(config.validate().unwrap_err().to_string(), expected);
    }
    assert!(Elevator::parse("cfq", &ALGORITHMS).unwrap_err().contains("noop, clook, anticipatory"));
}

#[test]
fn what_was_merged_is_dealt_out_over_the_slots() {
    let asked = |spread_bytes_min| {
        let config =
            QueueConfig { elevator: Elevator::Scheduler(Algorithm::Deadline), spread_bytes_min, ..clook() };
        let mut bench = Bench::with(config, 4, 64);
        bench.reads(0, &[0, 8, 16, 24, 32, 40, 48, 56]);
        assert_eq!(bench.run().len(), 8);
        bench.capabilities()
    };
    assert_eq!(asked(0), [(0, 64)]);
    assert_eq!(asked(8), [(0, 16), (16, 16), (32, 16), (48, 16)]);
    assert_eq!(asked(24), [(0, 24), (24, 24), (48, 16)]);
}
