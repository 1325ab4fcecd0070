//! Read plans: what is read ahead for them, when, and what is not.
//!
//! A driver in virtual time models a high-latency store. A fill takes a TTFB and a time for each
//! page; as many run at once as there are connections, demand first.

use std::collections::{BTreeMap, BTreeSet};

use crate::rng::{Rng, seeds};
use bowwave_core::check::Checker;
use bowwave_core::{
    Action, Advice, Cache, Config, Event, FileId, Fill, FillError, FrameId, HandleId, Instant, PageAccess,
    PageCount, PageRange, Policy, Reason, Urgency, Waiter,
};

const FILE: FileId = FileId(0);
const FILE_PAGES: u64 = 1 << 20;
const FIRST_BYTE_NS: u64 = 30_000_000;
const PAGE_NS: u64 = 45_000;
const CONNECTIONS: usize = 64;
/// Full checks after each step would take most of the time.
const CHECK_EVERY: u64 = 16;

/// A cache over a high-latency store, and its results.
struct Far {
    cache: Cache,
    checker: Checker,
    now: u64,
    /// Fills in flight, with their ends.
    sent: Vec<(u64, Fill)>,
    waiting: Vec<Fill>,
    cancelled: Vec<Fill>,
    /// Pages read, in the order of requests, and how often each was.
    asked: Vec<u64>,
    fetched: BTreeMap<u64, u32>,
    reasons: Vec<Reason>,
    woken: Option<Result<Vec<FrameId>, FillError>>,
    most_unread: u32,
    steps: u64,
}

impl Far {
    fn new(config: Config) -> Self {
        let mut far = Self {
            cache: Cache::new(config).expect("valid"),
            checker: Checker::default(),
            now: 0,
            sent: Vec::new(),
            waiting: Vec::new(),
            cancelled: Vec::new(),
            asked: Vec::new(),
            fetched: BTreeMap::new(),
            reasons: Vec::new(),
            woken: None,
            most_unread: 0,
            steps: 0,
        };
        far.step(Event::OpenFile { file: FILE, pages: PageCount(FILE_PAGES) });
        far.open(0);
        far
    }

    /// Without readahead of its own.
    fn plain(frames: u32) -> Self {
        Self::new(Config { frames, ra_pages: 32, policy: Policy::None, ..Config::default() })
    }

    fn open(&mut self, handle: u32) {
        self.step(Event::OpenHandle { handle: HandleId(handle), file: FILE });
    }

    fn plan(&mut self, handle: u32, ranges: &[(u64, u64)]) {
        let ranges = ranges.iter().map(|&(start, end)| PageRange::new(start, end)).collect();
        self.step(Event::SetReadPlan { handle: HandleId(handle), ranges });
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.cache.step(Instant(self.now), event.clone(), &mut out);
        self.checker
            .check(Instant(self.now), &event, &out, &self.cache)
            .unwrap_or_else(|broken| panic!("{broken:?}"));
        self.steps += 1;
        if self.steps.is_multiple_of(CHECK_EVERY) {
            self.cache.check().unwrap_or_else(|broken| panic!("{broken:?}"));
        }
        self.most_unread = self.most_unread.max(self.cache.frames_unread());
        for action in out {
            match action {
                Action::Decided(decided) => self.reasons.push(decided.plan.reason),
                Action::Fill(fill) => {
                    self.asked.extend(fill.range.start.0..fill.range.end.0);
                    self.waiting.push(fill);
                }
                Action::Promote { fill } => {
                    for waiting in self.waiting.iter_mut().filter(|waiting| waiting.id == fill) {
                        waiting.urgency = Urgency::Demand;
                    }
                }
                Action::Cancel { fill } => {
                    if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == fill) {
                        let fill = self.waiting.remove(at);
                        self.cancelled.push(fill);
                    }
                }
                Action::Wake { result, .. } => self.woken = Some(result),
                _ => {}
            }
        }
        while self.sent.len() < CONNECTIONS && !self.waiting.is_empty() {
            let first = self.waiting.iter().position(|fill| fill.urgency == Urgency::Demand).unwrap_or(0);
            let fill = self.waiting.remove(first);
            let ends = self.now + FIRST_BYTE_NS + PAGE_NS * fill.range.count().0;
            self.sent.push((ends, fill));
        }
        for fill in std::mem::take(&mut self.cancelled) {
            self.step(Event::Filled { fill: fill.id, result: Err(FillError::CLOSED) });
        }
    }

    /// Runs the store until `until`, or until one completion if that is none; returns whether it
    /// had anything to do.
    fn answer(&mut self, until: Option<u64>) -> bool {
        let next = (0..self.sent.len()).min_by_key(|&at| self.sent[at].0);
        let Some(at) = next.filter(|&at| until.is_none_or(|until| self.sent[at].0 <= until)) else {
            return false;
        };
        let (ends, fill) = self.sent.remove(at);
        self.now = self.now.max(ends);
        (fill.range.start.0..fill.range.end.0).for_each(|page| *self.fetched.entry(page).or_default() += 1);
        self.step(Event::Filled { fill: fill.id, result: Ok(()) });
        true
    }

    fn settle(&mut self) {
        while self.answer(None) {}
    }

    /// Pauses the reader.
    fn think(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.answer(Some(until)) {}
        self.now = until;
    }

    /// Reads pages and uses them; returns the time it waited.
    fn read(&mut self, handle: u32, start: u64, end: u64) -> u64 {
        let begun = self.now;
        let request = PageRange::new(start, end);
        self.woken = None;
        self.step(Event::Access { waiter: Waiter(0), access: PageAccess::read(HandleId(handle), request) });
        while self.woken.is_none() {
            assert!(self.answer(None), "a read waits for something");
        }
        let frames = self.woken.take().expect("woken").expect("nothing fails here");
        assert_eq!(frames.len() as u64, end.min(FILE_PAGES) - start);
        self.step(Event::Unpin { frames });
        self.now - begun
    }

    fn stats(&self) -> bowwave_core::Stats {
        self.cache.stats()
    }

    fn pages_fetched(&self) -> u64 {
        self.fetched.values().map(|&times| u64::from(times)).sum()
    }
}

/// Separate ranges of `pages` pages, in random order.
fn scattered(seed: u64, count: u64, pages: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng(seed);
    let mut slots = BTreeSet::new();
    let mut ranges = Vec::new();
    while (ranges.len() as u64) < count {
        let slot = rng.below(FILE_PAGES / (2 * pages));
        if slots.insert(slot) {
            ranges.push((slot * 2 * pages, slot * 2 * pages + pages));
        }
    }
    ranges
}

#[test]
fn planned_records_are_read_at_the_stores_speed_and_nothing_else_is() {
    let ranges = scattered(1, 1000, 16);
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &ranges);
    let waited: u64 = ranges.iter().map(|&(start, end)| far.read(0, start, end)).sum();
    far.settle();
    let round = FIRST_BYTE_NS + 16 * PAGE_NS;
    let alone = 1000 * round;
    // 1000 requests on 64 connections are 16 rounds.
    assert!(waited < 18 * round, "{waited} ns waited, {} rounds", waited / round);
    assert!(waited * 50 < alone, "{waited} ns for {alone}");
    assert_eq!(far.pages_fetched(), 16_000);
    assert!(far.fetched.keys().all(|page| ranges.iter().any(|range| (range.0..range.1).contains(page))));
    let stats = far.stats();
    assert_eq!((stats.pages_abandoned, stats.pages_planned - stats.pages_planned_used), (0, 0), "{stats:?}");
    assert!(far.reasons.iter().all(|&reason| reason == Reason::Planned));
}

#[test]
fn one_long_range_is_read_in_many_requests_and_not_past_its_end() {
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &[(100, 40_100)]);
    let waited: u64 = (100..40_100).step_by(32).map(|page| far.read(0, page, page + 32)).sum();
    far.settle();
    let alone = 1250 * (FIRST_BYTE_NS + 32 * PAGE_NS);
    assert!(waited * 15 < alone, "{waited} ns waited, {alone} alone");
    assert_eq!(
        (far.fetched.first_key_value(), far.fetched.last_key_value()),
        (Some((&100, &1)), Some((&40_099, &1)))
    );
    assert_eq!(far.pages_fetched(), 40_000, "each page once");
}

#[test]
fn a_plan_is_read_at_once_and_clipped_at_the_end_of_the_file() {
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &[(FILE_PAGES - 8, u64::MAX >> 12), (FILE_PAGES + 5, FILE_PAGES + 9), (3, 5)]);
    far.settle();
    assert_eq!(
        far.asked,
        [
            FILE_PAGES - 8,
            FILE_PAGES - 7,
            FILE_PAGES - 6,
            FILE_PAGES - 5,
            FILE_PAGES - 4,
            FILE_PAGES - 3,
            FILE_PAGES - 2,
            FILE_PAGES - 1,
            3,
            4
        ]
    );
    assert_eq!(far.read(0, FILE_PAGES - 8, FILE_PAGES), 0);
    assert_eq!(far.read(0, 3, 5), 0);
}

#[test]
fn the_distance_grows_only_while_the_reader_waits() {
    let slow_and_fast = [100_000_000, 0].map(|think| {
        let ranges = scattered(2, 2000, 8);
        let mut far = Far::plain(Config::UNLIMITED);
        far.plan(0, &ranges);
        for &(start, end) in &ranges[..1000] {
            far.read(0, start, end);
            far.think(think);
        }
        far.most_unread
    });
    let [slow, fast] = slow_and_fast;
    // Sixteen windows, and one more part at the last mark.
    assert!(slow <= 16 * 32 + 16, "{slow} pages ahead of one who takes his time");
    assert!(fast >= 2 * slow, "{fast} pages ahead of a reader that waits, {slow} of one that does not");
}

#[test]
fn a_plan_larger_than_memory_gets_its_share_and_nothing_is_read_twice() {
    let ranges = scattered(3, 4000, 4);
    let mut far = Far::plain(512);
    far.plan(0, &ranges);
    for &(start, end) in &ranges {
        far.read(0, start, end);
    }
    far.settle();
    assert_eq!(far.pages_fetched(), 16_000, "{:?}", far.stats());
    assert_eq!(far.stats().pages_thrashed, 0);
    assert!(far.most_unread <= 512 / 4 + 4, "{} of 512 frames were unread at a time", far.most_unread);
}

#[test]
fn plans_share_memory() {
    let mut far = Far::plain(1024);
    let plans: Vec<_> = (0..8).map(|reader| scattered(10 + reader, 500, 4)).collect();
    for (handle, plan) in (0..).zip(&plans) {
        if handle > 0 {
            far.open(handle);
        }
        far.plan(handle, plan);
    }
    let (mut waits, mut thrashed) = ([0u64; 8], 0);
    for at in 0..500 {
        // The first plans had more until the others came.
        thrashed = if at == 100 { far.stats().pages_thrashed } else { thrashed };
        for (handle, plan) in plans.iter().enumerate() {
            waits[handle] += u64::from(far.read(handle as u32, plan[at].0, plan[at].1) > 0);
        }
    }
    assert!(
        thrashed <= 256 - 64 && far.stats().pages_thrashed == thrashed,
        "{thrashed} pages: {:?}",
        far.stats()
    );
    assert!(waits.iter().all(|&waits| waits < 250), "some have had nothing read ahead: {waits:?}");
}

#[test]
fn a_reader_that_skips_ranges_is_followed() {
    let ranges = scattered(4, 1000, 8);
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &ranges);
    far.read(0, ranges[0].0, ranges[0].1);
    // Far beyond the readahead.
    let waited: u64 = ranges[700..900].iter().map(|&(start, end)| far.read(0, start, end)).sum();
    assert!(waited < 12 * (FIRST_BYTE_NS + 8 * PAGE_NS), "{waited}");
    far.settle();
    let passed = ranges[200..700].iter().filter(|range| far.fetched.contains_key(&range.0)).count();
    assert_eq!(passed, 0, "what was passed over is not read");
    // Sixteen windows of 32 pages were read ahead of the first range, of which one range was used.
    let abandoned = far.stats().pages_abandoned;
    assert!((400..=512).contains(&abandoned), "{abandoned} pages given up");
}

#[test]
fn a_reader_in_another_order_is_followed_and_nothing_is_read_twice() {
    let ranges = scattered(5, 1000, 8);
    let mut order: Vec<usize> = (0..1000).collect();
    let mut rng = Rng(6);
    // In groups of 20, shuffled.
    for turn in order.chunks_mut(20) {
        for at in (1..turn.len()).rev() {
            turn.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &ranges);
    let waited: u64 = order.iter().map(|&at| far.read(0, ranges[at].0, ranges[at].1)).sum();
    far.settle();
    assert!(waited < 30 * (FIRST_BYTE_NS + 8 * PAGE_NS), "{waited}");
    assert_eq!((far.pages_fetched(), far.stats().pages_abandoned), (8000, 0));

    // The second half first, then the first: cached ranges are skipped, so it continues from the
    // start.
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &ranges);
    let waited: u64 =
        ranges[500..].iter().chain(&ranges[..500]).map(|&(start, end)| far.read(0, start, end)).sum();
    far.settle();
    assert!(waited < 30 * (FIRST_BYTE_NS + 8 * PAGE_NS), "{waited}");
    assert_eq!(far.pages_fetched(), 8000);
}

#[test]
fn a_reader_that_leaves_its_plan_gets_the_policy_and_the_plan_again_on_return() {
    let config = Config { ra_pages: 32, policy: Policy::OnDemand, ..Config::default() };
    let ranges = scattered(7, 1000, 8);
    let mut far = Far::new(config);
    far.plan(0, &ranges);
    far.read(0, ranges[0].0, ranges[0].1);
    let before = far.stats();
    // Sequential reads outside of the plan: windows, after enough misses there.
    let elsewhere =
        (0..).find(|&start| ranges.iter().all(|range| range.1 <= start || range.0 >= start + 64)).unwrap();
    let reads = (elsewhere..elsewhere + 64)
        .map(|page| far.read(0, page, page + 1))
        .filter(|&waited| waited > 0)
        .count();
    assert!(reads < 20, "{reads} reads of 64 in order had to wait");
    assert!(far.stats().decided(Reason::Lookahead) > before.decided(Reason::Lookahead));
    let mut rng = Rng(8);
    for _ in 0..40 {
        let page = rng.below(FILE_PAGES / 16) * 16 + 8;
        far.read(0, page, page + 1);
    }
    far.settle();
    let asked = far.asked.len();
    assert!(far.stats().pages_abandoned > 400, "{:?}", far.stats());
    far.read(0, ranges[100].0, ranges[100].1);
    assert!(far.asked.len() > asked + 8, "it is read ahead of again");
    let waited: u64 = ranges[100..300].iter().map(|&(start, end)| far.read(0, start, end)).sum();
    assert!(waited < 12 * (FIRST_BYTE_NS + 8 * PAGE_NS), "{waited}");
}

#[test]
fn readahead_in_flight_for_an_ended_plan_is_cancelled_and_counted() {
    let ranges = scattered(9, 1000, 2);
    let mut far = Far::plain(Config::UNLIMITED);
    far.plan(0, &ranges);
    let planned = far.stats().pages_planned;
    assert_eq!(planned, 512, "sixteen windows");
    far.plan(0, &[]);
    assert!(!far.cache.has_plan(HandleId(0)));
    far.settle();
    // 64 were sent, the others not.
    assert_eq!(far.pages_fetched(), 128);
    assert_eq!(far.stats().pages_abandoned, planned);
    assert_eq!((far.cache.frames_used(), far.cache.frames_unread()), (128, 128));
    // The handle works as a new one.
    far.plan(0, &ranges[500..502]);
    far.settle();
    assert_eq!(far.read(0, ranges[501].0, ranges[501].1), 0);
}

#[test]
fn a_plan_costs_other_readers_of_the_file_no_readahead() {
    // `stream` has a waste budget; planned pages do not count in it.
    let config = Config { ra_pages: 32, policy: Policy::Stream, ..Config::default() };
    let run = |planned: bool| {
        let mut far = Far::new(config.clone());
        far.open(1);
        if planned {
            far.plan(1, &scattered(11, 1000, 8));
            far.settle();
        }
        let misses = far.stats().misses;
        let first = FILE_PAGES - 4096;
        for page in first..first + 2048 {
            far.read(0, page, page + 1);
        }
        far.stats().misses - misses
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_policy_that_runs_on_every_access_is_not_called_within_the_plan() {
    for policy in [bowwave_baselines::LEGACY, Policy::Range] {
        let mut far = Far::new(Config { ra_pages: 32, policy, ..Config::default() });
        let ranges = scattered(12, 300, 8);
        far.plan(0, &ranges);
        for &(start, end) in &ranges {
            far.read(0, start, end);
        }
        far.settle();
        assert_eq!(far.pages_fetched(), 2400, "{policy}");
        let elsewhere = FILE_PAGES - 128;
        for page in elsewhere..elsewhere + 64 {
            far.read(0, page, page + 1);
        }
        assert!(far.pages_fetched() > 2400, "{policy}");
        assert!(
            far.reasons.iter().any(|&reason| reason != Reason::Planned && reason != Reason::Demand),
            "{policy}"
        );
    }
}

#[test]
fn too_many_ranges_are_refused_and_change_nothing() {
    use bowwave_core::TooManyRanges;
    let mut cache =
        Cache::new(Config { frames: 64, policy: Policy::None, ..Config::default() }).expect("valid");
    cache.open_file(FILE, PageCount(u64::MAX >> 13));
    cache.open_handle(HandleId(0), FILE);
    let ranges: Vec<_> = (0..=TooManyRanges::MAX as u64).map(|n| PageRange::new(2 * n, 2 * n + 1)).collect();
    let mut out = Vec::new();
    assert_eq!(cache.set_read_plan(Instant(0), HandleId(0), &ranges, &mut out), Err(TooManyRanges));
    assert!(out.is_empty() && !cache.has_plan(HandleId(0)));
    assert_eq!(cache.set_read_plan(Instant(0), HandleId(0), &ranges[1..], &mut out), Ok(()));
    assert_eq!(cache.set_read_plan(Instant(0), HandleId(0), &ranges[..1], &mut out), Err(TooManyRanges));
    assert!(cache.has_plan(HandleId(0)) && TooManyRanges.to_string().contains("1048576"));
}

/// Two readers with arbitrary plans and reads.
struct Anyone {
    rng: Rng,
    far: Far,
    /// Pages named by a plan or a read.
    named: BTreeSet<u64>,
    plans: [Vec<(u64, u64)>; 2],
    /// Ranges of their plans that they have finished.
    done: [usize; 2],
}

impl Anyone {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let frames = if rng.chance(20) { Config::UNLIMITED } else { 40 + rng.below(2000) as u32 };
        let config = Config {
            frames,
            reserve_frames: rng.below(16) as u32,
            ra_pages: 1 << rng.below(7),
            fill_pages_max: if rng.chance(50) { u32::MAX } else { 1 + rng.below(64) as u32 },
            policy: Policy::None,
            ..Config::default()
        };
        let mut far = Far::new(config);
        far.open(1);
        Self { rng, far, named: BTreeSet::new(), plans: Default::default(), done: [0; 2] }
    }

    fn step(&mut self) {
        let handle = self.rng.below(2) as usize;
        match self.rng.below(100) {
            0..6 => self.plan(handle),
            6..9 => self.far.think(self.rng.below(100_000_000)),
            9..12 => {
                let start = self.rng.below(4000);
                self.far.step(Event::Invalidate { file: FILE, range: PageRange::new(start, start + 50) });
            }
            12..14 => {
                let advice = if self.rng.chance(50) { Advice::Random } else { Advice::Normal };
                let range = PageRange::new(0, 1);
                self.far.step(Event::Advise { handle: HandleId(handle as u32), range, advice });
            }
            14..16 => self.far.step(Event::Congestion { congested: self.rng.chance(40) }),
            16..20 => {
                let start = self.rng.below(4000);
                let end = start + 1 + self.rng.below(20);
                self.named.extend(start..end);
                self.far.read(handle as u32, start, end);
            }
            // A few skipped, some in another order, most as planned.
            20..24 => {
                let skip = self.rng.below(20) as usize;
                self.read(handle, skip, skip + 1);
            }
            24..28 => {
                let skip = self.rng.below(3) as usize;
                self.read(handle, skip, 0);
            }
            _ => self.read(handle, 0, 1),
        }
    }

    fn plan(&mut self, handle: usize) {
        let ranges: Vec<(u64, u64)> = (0..self.rng.below(60))
            .map(|_| {
                let start = self.rng.below(4000);
                (start, start + self.rng.below(30))
            })
            .collect();
        ranges.iter().for_each(|range| self.named.extend(range.0..range.1));
        if ranges.is_empty() {
            self.done[handle] = self.plans[handle].len();
        }
        self.far.plan(handle as u32, &ranges);
        self.plans[handle].extend(ranges.into_iter().filter(|range| range.0 < range.1));
    }

    /// Reads a range of its plan, and finishes `done` ranges.
    fn read(&mut self, handle: usize, skip: usize, done: usize) {
        let Some(&(start, end)) = self.plans[handle].get(self.done[handle] + skip) else { return };
        self.done[handle] += done;
        self.far.read(handle as u32, start, end);
    }
}

/// Every read gets its pages, only named pages are read, and memory stays within its limit.
#[test]
fn any_plan_with_any_reader() {
    for seed in seeds(200) {
        let mut anyone = Anyone::new(seed);
        (0..400).for_each(|_| anyone.step());
        let Anyone { mut far, named, .. } = anyone;
        far.settle();
        assert!(far.fetched.keys().all(|page| named.contains(page)), "BOWWAVE_SEED={seed}");
        let stats = far.stats();
        let counted =
            stats.pages_planned_used <= stats.pages_planned && stats.pages_abandoned <= stats.pages_planned;
        assert!(counted, "BOWWAVE_SEED={seed}: {stats:?}");
        for handle in 0..2 {
            far.step(Event::CloseHandle { handle: HandleId(handle) });
        }
        far.settle();
        far.step(Event::CloseFile { file: FILE });
        assert_eq!((far.cache.frames_used(), far.cache.frames_unread()), (0, 0), "BOWWAVE_SEED={seed}");
    }
}
