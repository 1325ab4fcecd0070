//! What the schedulers do, one line a story.
//!
//! A script adds requests of a block each, named by their place: `r5` a demand read of block 5,
//! `a5` readahead, `s5` a write that an fsync waits for, `w5` write-back; `w5-9` has blocks 5 to 8.
//! `+3s`, `+20ms` let time pass; `!5` promotes what holds block 5, `x5` cancels it; `.` dispatches
//! one request and completes it, and the end of the script dispatches all. What comes out is each
//! request with its reason.

use bowwave_baselines::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::schedule::{
    Algorithm, Direction, Priority, Request, RequestId, Scheduler, SchedulerConfig,
};
use bowwave_core::{Instant, Urgency};

const MS: u64 = 1_000_000;

fn of(algorithm: Algorithm) -> SchedulerConfig {
    // Blocks apart do not merge, neighbours do, up to 8.
    SchedulerConfig { request_bytes_max: 8, ..SchedulerConfig::of(algorithm) }
}

struct Bench {
    scheduler: Scheduler,
    now: u64,
    names: Vec<(u64, RequestId)>,
    said: Vec<String>,
}

impl Bench {
    fn new(config: SchedulerConfig) -> Self {
        let scheduler = Scheduler::new(config).unwrap();
        Self { scheduler, now: 0, names: Vec::new(), said: Vec::new() }
    }

    fn play(&mut self, script: &str) -> &mut Self {
        for word in script.split_whitespace() {
            let (verb, rest) = word.split_at(1);
            match verb {
                "+" => {
                    let (number, unit) = rest.split_at(rest.find(char::is_alphabetic).unwrap());
                    let ns = if unit == "s" { 1000 * MS } else { MS };
                    self.now += number.parse::<u64>().unwrap() * ns;
                }
                "." => assert!(self.dispatch(), "nothing to dispatch"),
                "!" => assert!(self.scheduler.promote(Instant(self.now), self.id(rest))),
                "x" => assert!(self.scheduler.cancel(self.id(rest)).is_some()),
                _ => self.add(verb, rest, Priority::BestEffort),
            }
        }
        self
    }

    fn id(&self, block: &str) -> RequestId {
        let block: u64 = block.parse().unwrap();
        self.names.iter().rev().find(|name| name.0 == block).unwrap().1
    }

    fn add(&mut self, verb: &str, blocks: &str, priority: Priority) {
        let (first, end) = blocks.split_once('-').unwrap_or((blocks, ""));
        let start: u64 = first.parse().unwrap();
        let end = if end.is_empty() { start + 1 } else { end.parse().unwrap() };
        let direction = if matches!(verb, "r" | "a") { Direction::Read } else { Direction::Write };
        let urgency = if matches!(verb, "r" | "s") { Urgency::Demand } else { Urgency::Readahead };
        let request = Request { start, end, direction, object: 0, urgency, priority };
        let added = self.scheduler.add(Instant(self.now), request);
        self.names.push((start, added.id));
    }

    fn dispatch(&mut self) -> bool {
        let Some(dispatch) = self.scheduler.dispatch(Instant(self.now)) else { return false };
        let Request { start, end, .. } = dispatch.request;
        let blocks = if end == start + 1 { start.to_string() } else { format!("{start}-{end}") };
        self.said.push(format!("{blocks}:{}", dispatch.reason.name()));
        assert!(self.scheduler.complete(Instant(self.now), dispatch.id));
        true
    }

    fn rest(&mut self) -> String {
        while self.dispatch() {}
        self.said.join(" ")
    }
}

fn story(config: SchedulerConfig, script: &str, expected: &str) {
    assert_eq!(Bench::new(config).play(script).rest(), expected, "{script}");
}

fn stories(algorithm: Algorithm, lines: &[(&str, &str)]) {
    for (script, expected) in lines {
        story(of(algorithm), script, expected);
    }
}

#[test]
fn noop_keeps_the_order_of_arrival_and_merges() {
    let lines = [
        ("r9 w2 r5", "9:arrival 2:arrival 5:arrival"),
        ("r9 w2 r10 r8", "8-11:arrival 2:arrival"),
        ("r9 w2 x9 r5", "2:arrival 5:arrival"),
    ];
    stories(Algorithm::Noop, &lines);
}

#[test]
fn neighbours_merge_behind_before_and_between_up_to_the_limit() {
    let lines = [
        ("r5 r6 r7", "5-8:oldest"),
        ("r7 r6 r5", "5-8:oldest"),
        ("r5 r7 r6", "5-8:oldest"),
        ("r5 w6", "5:oldest 6:oldest"),
        ("r1-8 r8 r9", "1-9:oldest 9:batch"),
        ("r5 r6 r7 x6", "5:oldest 7:batch"),
        ("r5 r6 r7 x5", "6-8:oldest"),
        ("r5 r6 r7 x7", "5-7:oldest"),
    ];
    stories(DEADLINE_RW, &lines);
    let back = SchedulerConfig { merge_front: false, ..of(DEADLINE_RW) };
    story(back, "r7 r6 r8", "7-9:oldest 6:oldest");
    let front = SchedulerConfig { merge_back: false, ..of(DEADLINE_RW) };
    story(front, "r7 r6 r8", "6-8:oldest 8:batch");
}

#[test]
fn a_merged_request_keeps_the_earlier_deadline_and_its_place() {
    // 30 is older than 9, and what closes the gap between 9 and 11 takes the place of 11, which is
    // the oldest of all.
    let line = ("r11 +10ms r30 +10ms r9 +10ms r10 +490ms", "9-12:expired 30:batch");
    stories(DEADLINE_RW, &[line]);
    stories(Algorithm::Deadline, &[line]);
}

#[test]
fn deadline_rw_serves_reads_first_and_writes_after_two_batches_of_them() {
    let one = SchedulerConfig { batch_requests: 1, ..of(DEADLINE_RW) };
    story(one.clone(), "w1 w3 r5 r7 r9 r11", "5:oldest 7:onward 1:floor 9:oldest 11:onward 3:oldest");
    story(one, "s1 r5 r7 r9", "5:oldest 7:onward 1:floor 9:oldest");
}

#[test]
fn deadline_rw_goes_upwards_in_batches_and_back_to_what_has_expired() {
    let three = SchedulerConfig { batch_requests: 3, ..of(DEADLINE_RW) };
    story(three.clone(), "r9 r1 r11 r13 r15", "9:oldest 11:batch 13:batch 15:onward 1:oldest");
    story(three, "r9 r1 r11 r13 r15 . +1s", "9:oldest 11:batch 13:batch 1:expired 15:batch");
}

#[test]
fn the_contiguous_rule_ends_a_batch_at_a_gap() {
    let old = SchedulerConfig { batch_contiguous: true, request_bytes_max: 1, ..of(DEADLINE_RW) };
    story(old, "r9 r1 r10 r12", "9:oldest 10:batch 12:onward 1:oldest");
}

#[test]
fn sync_writes_wait_behind_reads_in_one_and_before_write_back_in_the_other() {
    stories(DEADLINE_RW, &[("w1 w3 s50 r9", "9:oldest 1:oldest 3:batch 50:batch")]);
    stories(Algorithm::Deadline, &[("w1 w3 s50 r9", "50:oldest 9:oldest 1:oldest 3:batch")]);
}

#[test]
fn readahead_is_async_but_for_the_letter_of_the_patch() {
    let line = "a1 a9 r5";
    stories(Algorithm::Deadline, &[(line, "5:oldest 9:demoted 1:oldest")]);
    stories(DEADLINE_LITERAL, &[(line, "1:oldest 5:batch 9:batch")]);
}

#[test]
fn classes_do_not_merge_so_that_a_tail_does_not_make_demand_longer() {
    stories(Algorithm::Deadline, &[("r5 a6", "5:oldest 6:demoted")]);
    stories(DEADLINE_LITERAL, &[("r5 a6", "5-7:oldest")]);
}

#[test]
fn t7_a_request_found_by_the_last_step_goes_on_with_the_batch_but_for_the_letter() {
    let four = |algorithm| SchedulerConfig { batch_requests: 4, ..of(algorithm) };
    // Behind 10, the fourth step finds 18 sync.
    let script = "s10 w12 w14 w16 s18";
    story(four(Algorithm::Deadline), script, "10:oldest 18:batch 12:oldest 14:batch 16:batch");
    story(four(DEADLINE_LITERAL), script, "10:oldest 12:demoted 14:batch 16:batch 18:oldest");
    // The third step: no difference.
    let script = "s10 w12 w14 s16";
    story(four(Algorithm::Deadline), script, "10:oldest 16:batch 12:oldest 14:batch");
    story(four(DEADLINE_LITERAL), script, "10:oldest 16:batch 12:oldest 14:batch");
}

#[test]
fn t7_a_batch_without_any_of_its_class_is_demoted_and_goes_on_with_the_nearest_but_for_the_letter() {
    let four = |algorithm| SchedulerConfig { batch_requests: 4, ..of(algorithm) };
    let script = "s10 w12 w14 w16 w18 w20";
    let intent = "10:oldest 12:demoted 14:batch 16:batch 18:onward 20:batch";
    story(four(Algorithm::Deadline), script, intent);
    // It skips three, and says nothing of a demotion.
    let letter = "10:oldest 18:batch 20:demoted 12:oldest 14:batch 16:batch";
    story(four(DEADLINE_LITERAL), script, letter);
}

#[test]
fn t8_async_is_served_at_its_turn_but_for_the_letter_where_a_sync_batch_goes_on() {
    let two = |algorithm| SchedulerConfig { batch_requests: 2, ..of(algorithm) };
    let script = "w90 s10 s12 s14 s16 s18 s20 s22 s24";
    let intent = "10:oldest 12:batch 14:onward 16:batch 90:floor 18:oldest 20:batch 22:onward 24:batch";
    story(two(Algorithm::Deadline), script, intent);
    let letter = "10:oldest 12:batch 14:onward 16:batch 18:onward 20:batch 22:oldest 24:batch 90:onward";
    story(two(DEADLINE_LITERAL), script, letter);
    // Its deadline is honoured even by the letter.
    let late = "w90 s10 s12 s14 s16 s18 s20 s22 s24 . . . . +6s";
    let expired = "10:oldest 12:batch 14:onward 16:batch 90:expired 18:expired 20:batch 22:expired 24:batch";
    story(two(DEADLINE_LITERAL), late, expired);
}

#[test]
fn what_is_promoted_goes_before_write_back_and_behind_demand_that_waits_longer() {
    let one = SchedulerConfig { batch_requests: 1, ..of(Algorithm::Deadline) };
    story(one.clone(), "w1 a20 a30 +1ms r10 +1ms !20", "10:oldest 20:onward 30:onward 1:oldest");
    // With its own deadline, if that is earlier.
    story(one.clone(), "a20 w1 +4900ms r10 !20", "20:oldest 10:oldest 1:oldest");
    let mut bench = Bench::new(SchedulerConfig { promotion: false, ..one });
    bench.play("w1 a20 a30 +1ms r10 +1ms");
    let id = bench.id("30");
    assert!(!bench.scheduler.promote(Instant(bench.now), id), "switched off");
    assert_eq!(bench.scheduler.promote_alone(Instant(bench.now), id), None);
    assert_eq!(bench.rest(), "10:oldest 20:onward 30:onward 1:oldest", "as without");
}

#[test]
fn a_cancelled_tail_is_never_dispatched_and_the_batch_goes_on_behind_it() {
    stories(Algorithm::Deadline, &[("a10 a12 a14 . x12", "10:oldest 14:batch"), ("a10 x10", "")]);
}

#[test]
fn a_store_without_places_is_asked_in_order_of_deadlines_with_the_same_floor() {
    let slots = SchedulerConfig { seeks: false, ..of(Algorithm::Deadline) };
    let expected = "30:oldest 10:oldest 50:floor 20:oldest 40:oldest";
    story(slots, "w50 w40 r30 r10 r20", expected);
}

#[test]
fn priorities_are_strict_until_one_has_waited_too_long() {
    let mut bench = Bench::new(SchedulerConfig { batch_requests: 1, ..of(Algorithm::Deadline) });
    bench.add("r", "1", Priority::Idle);
    bench.add("r", "3", Priority::BestEffort);
    bench.add("r", "5", Priority::RealTime);
    bench.add("r", "7", Priority::RealTime);
    bench.play(". +10s");
    assert_eq!(bench.rest(), "5:oldest 3:aged 1:aged 7:expired");
}

#[test]
fn a_lower_priority_waits_for_what_a_higher_one_has_at_the_device() {
    let mut bench = Bench::new(of(Algorithm::Deadline));
    bench.add("r", "5", Priority::BestEffort);
    bench.add("r", "1", Priority::Idle);
    let first = bench.scheduler.dispatch(Instant(0)).unwrap();
    assert_eq!((first.request.start, bench.scheduler.dispatch(Instant(1))), (5, None));
    assert!(bench.scheduler.complete(Instant(2), first.id));
    assert_eq!(bench.rest(), "1:oldest");
}

#[test]
fn async_requests_at_the_device_are_fewer_while_sync_ones_take_long_there() {
    let mut bench = Bench::new(SchedulerConfig { request_bytes_max: 1, ..of(Algorithm::Deadline) });
    let reads = |bench: &mut Bench, count: u64, ms: u64| {
        for block in 0..count {
            bench.add("r", &(1000 + block).to_string(), Priority::BestEffort);
            let dispatch = bench.scheduler.dispatch(Instant(bench.now)).unwrap();
            bench.now += ms * MS;
            assert!(bench.scheduler.complete(Instant(bench.now), dispatch.id));
        }
    };
    reads(&mut bench, 60, 5);
    assert_eq!(bench.scheduler.async_depth(), 64);
    reads(&mut bench, 60, 50);
    let depth = bench.scheduler.async_depth();
    assert_eq!(depth, 1);
    bench.play("w1 w3 w5 w7");
    assert!(bench.scheduler.dispatch(Instant(bench.now)).is_some());
    assert_eq!(bench.scheduler.dispatch(Instant(bench.now)), None, "one is at the device");
    bench.play("r9 .");
    assert_eq!(bench.said.last().unwrap(), "9:oldest", "demand goes on");
}

#[test]
fn a_long_run_is_dealt_out_from_its_front_and_keeps_its_place() {
    for algorithm in ALGORITHMS {
        let mut bench = Bench::new(SchedulerConfig { seeks: false, ..of(algorithm) });
        bench.play("r1 r2-4 r4 r5 +1ms r9");
        let mut ends = Vec::new();
        while let Some(dispatch) = bench.scheduler.dispatch_up_to(Instant(bench.now), |_| 2) {
            assert!(!bench.scheduler.promote(Instant(bench.now), bench.id("1")), "it went with the first");
            ends.push((dispatch.request.start, dispatch.request.end));
        }
        assert_eq!(ends, [(1, 4), (4, 6), (9, 10)], "{algorithm}: whole parts, until there is enough");
        assert_eq!((bench.scheduler.waiting(), bench.scheduler.at_device()), (0, 3));
    }
}

#[test]
fn a_long_run_is_dealt_out_in_even_shares() {
    let share = |bytes: u64, enough| {
        let (direction, urgency, priority) = (Direction::Read, Urgency::Readahead, Priority::default());
        let request = Request { start: 1000, end: 1000 + bytes, direction, object: 0, urgency, priority };
        request.share(enough, 128)
    };
    assert_eq!(
        [share(500, 512), share(512, 512), share(500, u64::MAX)],
        [512, 512, u64::MAX],
        "one is enough"
    );
    // Two of 392; with parts of 128, three of them are nearer to that than four.
    assert_eq!(share(784, 512), 392 - 64);
    assert_eq!(share(1024, 512), 512 - 64, "four of 128");
    assert_eq!([share(700, 0), share(700, 1)], [0, 0], "a part at least goes in any case");
}

#[test]
fn what_is_promoted_alone_leaves_its_run() {
    let mut bench = Bench::new(SchedulerConfig { seeks: false, ..of(Algorithm::Deadline) });
    bench.play("a1 a2 a3 a4 +1ms a9 r20");
    let renamed = bench.scheduler.promote_alone(Instant(bench.now), bench.id("3")).unwrap();
    assert!(!bench.scheduler.promote(Instant(bench.now), bench.id("3")), "it has a new name");
    assert_eq!(bench.scheduler.promote_alone(Instant(bench.now), renamed), Some(renamed), "once is enough");
    assert_eq!(bench.rest(), "20:oldest 3:oldest 1-3:oldest 4:oldest 9:oldest");
    let stats = bench.scheduler.stats();
    assert_eq!((stats.added, stats.promoted, stats.cancelled), (6, 1, 0));
}

#[test]
fn the_last_slots_are_for_sync_requests_but_at_the_turn_and_the_deadline_of_async_ones() {
    let config = SchedulerConfig { seeks: false, async_beside_max: 3, ..of(Algorithm::Deadline) };
    let mut bench = Bench::new(config);
    let go = |bench: &mut Bench, script: &str| {
        bench.play(script);
        std::iter::from_fn(|| bench.scheduler.dispatch(Instant(bench.now)).map(|it| it.request.start))
            .collect::<Vec<_>>()
    };
    assert_eq!(go(&mut bench, "r1 r3 a11 a13 a15"), [1, 3, 11]);
    assert_eq!(go(&mut bench, "r5"), [5], "it waits for nobody");
    assert_eq!(go(&mut bench, "r7 r9 r21"), [7, 13, 9, 21], "the third choice is theirs");
    assert_eq!(go(&mut bench, "w17"), []);
    assert_eq!(go(&mut bench, "+6s"), [15, 17]);
}

#[test]
fn names_that_have_ended_are_refused() {
    let mut bench = Bench::new(of(Algorithm::Deadline));
    bench.play("a1 w5");
    let (read, write) = (bench.id("1"), bench.id("5"));
    let dispatch = bench.scheduler.dispatch(Instant(0)).unwrap();
    assert_eq!(bench.scheduler.parts(dispatch.id).collect::<Vec<_>>(), [read]);
    assert!(!bench.scheduler.promote(Instant(0), read), "the device has it");
    assert_eq!(bench.scheduler.cancel(read), None);
    assert!(bench.scheduler.complete(Instant(1), dispatch.id));
    assert!(!bench.scheduler.complete(Instant(1), dispatch.id));
    assert_eq!(bench.scheduler.parts(dispatch.id).count(), 0);
    assert!(!bench.scheduler.promote(Instant(1), read));
    assert!(bench.scheduler.promote(Instant(1), write));
    assert_eq!((bench.scheduler.waiting(), bench.scheduler.at_device()), (1, 0));
}

#[test]
fn impossible_knobs_and_names_are_refused_with_their_bounds() {
    let none = SchedulerConfig { batch_requests: 0, ..SchedulerConfig::default() };
    let error = Scheduler::new(none).unwrap_err();
    assert_eq!(error.to_string(), "batch_requests is 0, but must be at least 1");
    for algorithm in ALGORITHMS {
        assert_eq!(bowwave_baselines::algorithm(algorithm.name()), Some(algorithm));
    }
    let error = bowwave_baselines::scheduler("cfq").unwrap_err();
    assert!(error.to_string().contains("deadline-rw"));
}

#[test]
fn write_back_does_not_join_who_waits_at_a_device_with_an_order_of_its_own_but_for_its_turn() {
    let config =
        SchedulerConfig { write_back_waits: true, sync_slowdown_max: u32::MAX, ..of(Algorithm::Deadline) };
    let mut bench = Bench::new(config);
    let mut at_device = Vec::new();
    let mut go = |bench: &mut Bench, script: &str| {
        bench.play(script);
        let sent = std::iter::from_fn(|| bench.scheduler.dispatch(Instant(bench.now)));
        let sent: Vec<_> = sent.map(|it| (it.request.start, it.id)).collect();
        at_device.extend(sent.iter().copied());
        sent.into_iter().map(|(start, _)| start).collect::<Vec<_>>()
    };
    assert_eq!(go(&mut bench, "w10 w20"), [10, 20], "nobody waits");
    assert_eq!(go(&mut bench, "s1 w30 w40"), [1], "it would go before in the order of places");
    assert_eq!(go(&mut bench, "r3"), [3, 30], "after two it is its turn, once");
    assert_eq!(go(&mut bench, "s5"), [5]);
    assert_eq!(go(&mut bench, "+6s"), [40], "past its deadline it goes before all others");
    assert_eq!(go(&mut bench, "w60"), []);
    for (_, id) in at_device {
        assert!(bench.scheduler.complete(Instant(bench.now), id));
    }
    let next = bench.scheduler.dispatch(Instant(bench.now)).map(|it| it.request.start);
    assert_eq!(next, Some(60), "who waited is served");
}
