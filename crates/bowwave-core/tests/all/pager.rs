//! A driver whose memory, mappings and store are maps, with random events. Every touch compares the
//! page with what was written to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bowwave_core::swap::pager::{
    Lists, PageId, Pager, PagerAction, PagerConfig, RegionAdvice, RegionId, SwapIn, SwapOut, SwapStats,
    SwapTuning, Touch, TouchOutcome, Tracking, WriteError,
};
use bowwave_core::swap::{SwapConfig, SwapPolicy};
use bowwave_core::{Instant, PageCount, PageIndex, PageRange, Waiter};

/// Pages of each region of the random tests.
const PAGES: u64 = 300;

/// A pseudo-random sequence from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Work in flight outside of the pager.
#[derive(Debug)]
enum Job {
    Read(SwapIn),
    Write(SwapOut, Option<Vec<u64>>),
    Unmap(RegionId, PageRange),
}

/// A driver.
struct World {
    pager: Pager,
    tracking: Tracking,
    chance: Chance,
    now: u64,
    /// Expected contents of each page; absent pages hold 0.
    truth: HashMap<PageId, u64>,
    memory: HashMap<PageId, u64>,
    /// Whether it is writable, and whether it was written.
    mapped: BTreeMap<PageId, (bool, bool)>,
    store: HashMap<u64, u64>,
    jobs: VecDeque<Job>,
    waiting: HashMap<u64, (PageId, Touch)>,
    next: u64,
    retired: u64,
    broken_store: bool,
    /// Whether it changes the policy now and then.
    switches: bool,
    /// Whether it lifts protection itself, and reports written pages when it unmaps.
    tells_written: bool,
    out: Vec<PagerAction>,
}

impl World {
    fn new(config: PagerConfig, seed: u64) -> Self {
        let mut world = Self {
            tracking: config.tracking,
            pager: Pager::new(config).expect("bounds are kept"),
            chance: Chance(seed | 1),
            now: 0,
            truth: HashMap::new(),
            memory: HashMap::new(),
            mapped: BTreeMap::new(),
            store: HashMap::new(),
            jobs: VecDeque::new(),
            waiting: HashMap::new(),
            next: 0,
            retired: 0,
            broken_store: false,
            switches: false,
            tells_written: seed.is_multiple_of(2),
            out: Vec::new(),
        };
        for region in 0..3 {
            world.add(RegionId(region));
        }
        world
    }

    fn add(&mut self, region: RegionId) {
        let base = PageIndex(1000 * u64::from(region.0) + 77);
        self.pager.add_region(region, base, PageCount(PAGES)).expect("a free name");
    }

    /// A program touches a page; the page must become mapped, at once or later.
    fn touch(&mut self, id: PageId, touch: Touch) {
        let reach = self.mapped.get(&id).copied();
        let lifted = self.tells_written;
        let reached = reach.is_some_and(|(writable, _)| writable || lifted || touch == Touch::Load);
        if reached && self.tracking == Tracking::Unmap {
            return self.access(id, touch);
        }
        self.next += 1;
        let waiter = self.next;
        let mut out = std::mem::take(&mut self.out);
        let outcome = self.pager.touch(Instant(self.now), Waiter(waiter), id, touch, &mut out);
        self.out = out;
        match outcome {
            TouchOutcome::Go => {
                self.act();
                self.access(id, touch);
            }
            TouchOutcome::Wait => {
                self.waiting.insert(waiter, (id, touch));
                self.act();
            }
        }
    }

    /// The touch itself.
    fn access(&mut self, id: PageId, touch: Touch) {
        let (writable, written) =
            self.mapped.get_mut(&id).expect("a touch that may go on finds its page mapped");
        let wanted = self.truth.get(&id).copied().unwrap_or(0);
        assert_eq!(self.memory.get(&id), Some(&wanted), "{id:?} holds what was written to it");
        if touch == Touch::Store {
            assert!(*writable || self.tells_written, "a store finds its page writable");
            *written = true;
            // Zeros now and then: they are not stored.
            let value = if self.next.is_multiple_of(7) { 0 } else { self.next };
            self.truth.insert(id, value);
            self.memory.insert(id, value);
        }
    }

    /// Carries out the pager's actions, except those that take time.
    fn act(&mut self) {
        for action in std::mem::take(&mut self.out) {
            let each = |region: RegionId, pages: PageRange| {
                (pages.start.0..pages.end.0).map(move |page| PageId { region, page: PageIndex(page) })
            };
            match action {
                PagerAction::Read(read) => self.jobs.push_back(Job::Read(read)),
                PagerAction::Write(write) => {
                    let early = self.chance.one_in(2);
                    let bytes = early.then(|| write.pages.iter().map(|page| self.memory[page]).collect());
                    self.jobs.push_back(Job::Write(write, bytes));
                }
                PagerAction::Unmap { region, pages } => self.jobs.push_back(Job::Unmap(region, pages)),
                PagerAction::Zero { region, pages, writable } => {
                    for id in each(region, pages) {
                        assert_eq!(self.memory.insert(id, 0), None, "memory is given once");
                        self.mapped.insert(id, (writable, false));
                    }
                }
                PagerAction::Map { region, pages, writable } => {
                    for id in each(region, pages) {
                        assert!(self.memory.contains_key(&id), "what is mapped is in memory");
                        self.mapped.entry(id).or_insert((writable, false)).0 |= writable;
                    }
                }
                PagerAction::Drop { region, pages } => {
                    for id in each(region, pages) {
                        assert!(self.memory.remove(&id).is_some(), "memory is given back once");
                        assert!(!self.mapped.contains_key(&id), "and out of reach by then");
                    }
                }
                PagerAction::Wake { waiter, result } => {
                    let (id, touch) = self.waiting.remove(&waiter.0).expect("each waiter is woken once");
                    if result.is_ok() {
                        self.access(id, touch);
                    }
                }
                PagerAction::Retired { region } => {
                    self.retired += 1;
                    assert!(!self.memory.keys().any(|id| id.region == region), "nothing of it is left");
                    self.add(region);
                }
                PagerAction::Promote { .. } | PagerAction::Decided(_) => {}
            }
        }
        let limit = self.pager.load();
        assert!(self.memory.len() as u64 <= limit.frames.max(limit.frames_used), "the budget");
    }

    /// Some work in flight ends.
    fn finish(&mut self) {
        if !self.jobs.is_empty() {
            let index = self.chance.below(self.jobs.len() as u64) as usize;
            self.finish_at(index);
        }
    }

    /// Touches a page and serves the touch; pages are unmapped only when nothing else is left.
    fn touch_and_wait(&mut self, id: PageId) {
        self.touch(id, Touch::Store);
        while !self.waiting.is_empty() {
            let index = self.jobs.iter().position(|job| !matches!(job, Job::Unmap(..)));
            match self.jobs.is_empty() {
                false => self.finish_at(index.unwrap_or(0)),
                true => {
                    // Writes pause after a failed one.
                    self.now += 10_000_000;
                    self.with(Pager::expire);
                }
            }
        }
    }

    fn finish_at(&mut self, index: usize) {
        let job = self.jobs.remove(index).expect("below the length");
        let (now, mut out) = (Instant(self.now), std::mem::take(&mut self.out));
        match job {
            Job::Read(read) => {
                let fails = self.broken_store && self.chance.one_in(3);
                for (slot, &id) in (read.slot.0..).zip(&read.pages) {
                    if !fails {
                        assert_eq!(
                            self.memory.insert(id, self.store[&slot]),
                            None,
                            "read into memory of its own"
                        );
                    }
                }
                let result = if fails { Err(5) } else { Ok(()) };
                assert!(self.pager.read_done(now, read.id, result, &mut out));
            }
            Job::Write(write, bytes) => {
                let result = match self.chance.below(if self.broken_store { 4 } else { 1000 }) {
                    0 => Err(WriteError::Full),
                    _ => Ok(()),
                };
                let bytes: Vec<u64> =
                    bytes.unwrap_or_else(|| write.pages.iter().map(|page| self.memory[page]).collect());
                let zero = |position: &usize| bytes[*position] == 0;
                let zeroes: Vec<usize> = (0..bytes.len()).filter(zero).collect();
                for (slot, &value) in (write.slot.0..).zip(&bytes) {
                    // A failed write leaves arbitrary contents.
                    self.store.insert(slot, if result.is_ok() && value != 0 { value } else { u64::MAX });
                }
                assert!(self.pager.written(now, write.id, result, &zeroes, &mut out));
            }
            Job::Unmap(region, pages) => {
                let ids = (pages.start.0..pages.end.0).map(|page| PageId { region, page: PageIndex(page) });
                let written = ids.filter(|id| self.mapped.remove(id).is_some_and(|(_, written)| written));
                let written: Vec<PageIndex> = written.map(|id| id.page).collect();
                let written = self.tells_written.then_some(&written[..]);
                self.pager.unmapped(now, region, pages, written, &mut out);
            }
        }
        self.out = out;
        self.act();
    }

    /// A random event.
    fn step(&mut self) {
        self.now += self.chance.below(2_000_000);
        let region = RegionId(self.chance.below(3) as u32);
        let start = self.chance.below(PAGES);
        let id = PageId { region, page: PageIndex(start) };
        if self.switches && self.chance.one_in(500) {
            let policy = bowwave_baselines::SWAP[self.chance.below(4) as usize];
            let window = SwapConfig { page_cluster: self.chance.below(6) as u32, ..SwapConfig::default() };
            let ahead_max = 8 + self.chance.below(100);
            self.pager.tune(SwapTuning { policy, window, ahead_max }).expect("bounds are kept");
        }
        match self.chance.below(1000) {
            0..300 => self.touch(id, Touch::Load),
            300..500 => self.touch(id, Touch::Store),
            500..560 => {
                let (end, touch) =
                    (PAGES.min(start + 20), [Touch::Load, Touch::Store][self.chance.below(2) as usize]);
                for page in (start..end).map(PageIndex) {
                    self.touch(PageId { region, page }, touch);
                    (0..4).for_each(|_| self.finish());
                }
            }
            560..980 => self.finish(),
            980..996 => self.advise(id),
            996 => self.broken_store = self.chance.one_in(3),
            997..999 => {
                let frames = 40 + self.chance.below(60);
                self.with(|pager, now, out| pager.set_frames(now, frames, out));
            }
            _ => {
                self.truth.retain(|id, _| id.region != region);
                self.mapped.retain(|id, _| id.region != region);
                self.with(|pager, now, out| pager.remove_region(now, region, out));
            }
        }
        if self.pager.next_deadline().is_some_and(|at| at.0 <= self.now) {
            self.with(Pager::expire);
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut Pager, Instant, &mut Vec<PagerAction>)) {
        let mut out = std::mem::take(&mut self.out);
        change(&mut self.pager, Instant(self.now), &mut out);
        self.out = out;
        self.act();
    }

    fn advise(&mut self, id: PageId) {
        let range = PageRange::new(id.page.0, id.page.0 + 1 + self.chance.below(40));
        let all = [
            RegionAdvice::Normal,
            RegionAdvice::Sequential,
            RegionAdvice::Random,
            RegionAdvice::WillNeed,
            RegionAdvice::DontNeed,
            RegionAdvice::PageOut,
        ];
        let advice = all[self.chance.below(6) as usize];
        if advice == RegionAdvice::DontNeed {
            // The driver unmaps discarded pages itself.
            let inside = |other: &PageId| other.region == id.region && range.contains(other.page);
            self.mapped.retain(|other, _| !inside(other));
            self.truth.retain(|other, _| !inside(other));
        }
        self.with(|pager, now, out| pager.advise(now, id.region, range, advice, out));
    }

    /// Completes all work in flight; no touch may be left waiting.
    fn come_to_rest(&mut self) {
        self.broken_store = false;
        let mut turns = 0;
        while !self.jobs.is_empty() || !self.waiting.is_empty() {
            self.finish();
            self.now += 10_000_000;
            self.with(Pager::expire);
            turns += 1;
            assert!(turns < 100_000, "touches wait forever: {:?}", self.pager.load());
            if turns % 1000 == 0 && self.jobs.is_empty() {
                // More pages than memory and store hold: all touches wait until pages are
                // discarded.
                let load = self.pager.load();
                assert_eq!(
                    (load.slots_used, load.blocked),
                    (load.slots, true),
                    "only a full store stops everything"
                );
                let region = RegionId(self.chance.below(3) as u32);
                self.mapped.retain(|id, _| id.region != region);
                self.truth.retain(|id, _| id.region != region);
                let all = PageRange::new(0, PAGES);
                self.with(|pager, now, out| pager.advise(now, region, all, RegionAdvice::DontNeed, out));
            }
        }
    }
}

fn run(name: &str, config: PagerConfig, seed: u64, steps: u64) -> Pager {
    run_in(name, World::new(config, seed), seed, steps)
}

fn run_in(name: &str, mut world: World, seed: u64, steps: u64) -> Pager {
    for step in 0..steps {
        world.step();
        if step % 32 == 0
            && let Err(fault) = world.pager.check()
        {
            panic!("{name}, seed {seed}, step {step}: {fault:?}");
        }
    }
    world.come_to_rest();
    assert_eq!(world.pager.check(), Ok(()));
    for region in 0..3 {
        for page in 0..PAGES {
            world.touch(PageId { region: RegionId(region), page: PageIndex(page) }, Touch::Load);
            world.come_to_rest();
        }
    }
    world.pager
}

/// Random events with bowwave's settings and with Linux's, for this policy.
fn random_events(policy: SwapPolicy) {
    for seed in 1..=2 {
        let small = PagerConfig { low: 8, high: 16, write_pages: 8, ..PagerConfig::own(64, 4000) };
        let own = run("own", PagerConfig { policy, ..small }, seed, 62_500);
        // Slots are scarce: 900 pages, and memory for a tenth of them.
        let tight = PagerConfig { slots: 700, low: 8, high: 16, ..PagerConfig::linux(64, 4000, policy) };
        let linux = run("linux", tight, seed, 62_500);
        // As regions have it when they are compared with Linux.
        let lists = run("lists", PagerConfig { policy, lists: Lists::Global, ..small }, seed, 62_500);
        for pager in [own, linux, lists] {
            let stats = pager.stats();
            assert!(stats.swap_in > 1000 && stats.swap_out > 1000 && stats.zero_out > 10, "{stats:?}");
            assert!(stats.write_errors > 0 && stats.read_errors > 0, "{stats:?}");
            assert!(policy == SwapPolicy::None || stats.swap_ra_hit > 0, "{policy:?} {stats:?}");
        }
    }
}

#[test]
fn a_million_random_events_lose_no_page_and_keep_the_budget() {
    std::thread::scope(|scope| {
        for policy in bowwave_baselines::SWAP {
            scope.spawn(move || random_events(policy));
        }
    });
}

#[test]
fn policies_that_change_at_run_time_lose_no_page() {
    for seed in 1..=2 {
        let small = PagerConfig { low: 8, high: 16, write_pages: 8, ..PagerConfig::own(64, 4000) };
        let world = World { switches: true, ..World::new(small, seed) };
        let stats = *run_in("switches", world, seed, 62_500).stats();
        assert!(stats.swap_ra_hit > 100 && stats.mapped_ahead > 100, "{stats:?}");
    }
}

#[test]
fn a_policy_that_plans_by_slots_knows_the_owners_of_earlier_writes() {
    let config = PagerConfig { low: 8, high: 16, ..PagerConfig::own(64, 4000) };
    let mut world = World::new(PagerConfig { policy: SwapPolicy::None, ..config }, 1);
    let page = |page| PageId { region: RegionId(0), page: PageIndex(page) };
    (0..PAGES).for_each(|at| {
        world.touch(page(at), Touch::Store);
        world.come_to_rest();
    });
    assert_eq!(world.pager.stats().swap_ra, 0);
    let tuning = SwapTuning { policy: bowwave_baselines::CLUSTER, ..world.pager.tuning() };
    world.pager.tune(tuning).expect("bounds are kept");
    world.touch(page(0), Touch::Load);
    world.come_to_rest();
    assert!(world.pager.stats().swap_ra >= 5, "a block of eight slots: {:?}", world.pager.stats());
    let wrong = SwapTuning { ahead_max: 7, ..tuning };
    assert_eq!(world.pager.tune(wrong).map_err(|error| error.field), Err("ahead_max"));
    assert_eq!(world.pager.tuning(), tuning, "nothing has changed");
}

/// Touches region 0 in order twice, and `neighbours` random pages of the others after each touch.
/// Returns the counters of region 0 in the second pass.
fn in_order_beside(neighbours: usize) -> [u64; 3] {
    let small = PagerConfig { low: 8, high: 16, ..PagerConfig::own(128, 4000) };
    let mut world = World::new(PagerConfig { policy: SwapPolicy::Vma, ..small }, 1);
    let mut first = SwapStats::default();
    for pass in 0..2 {
        if pass == 1 {
            first = *world.pager.region_stats(RegionId(0)).expect("a region");
        }
        for page in (0..PAGES).map(PageIndex) {
            world.touch_and_wait(PageId { region: RegionId(0), page });
            for _ in 0..neighbours {
                let region = RegionId(1 + world.chance.below(2) as u32);
                let page = PageIndex(world.chance.below(PAGES));
                world.touch(PageId { region, page }, Touch::Store);
                world.come_to_rest();
            }
        }
    }
    let stats = world.pager.region_stats(RegionId(0)).expect("a region");
    [stats.swap_ra - first.swap_ra, stats.swap_ra_hit - first.swap_ra_hit, stats.wasted - first.wasted]
}

#[test]
fn readahead_is_evicted_after_older_pages_that_are_still_being_unmapped() {
    let [ahead, hits, wasted] = in_order_beside(0);
    assert!(ahead > PAGES / 3, "{ahead} pages read ahead");
    assert!(wasted == 0 && hits + 8 >= ahead, "{ahead} pages read ahead, {hits} used, {wasted} wasted");
}

#[test]
fn random_neighbours_do_not_evict_the_window_of_a_reader_in_order() {
    let [ahead, hits, wasted] = in_order_beside(20);
    assert!(ahead > PAGES / 3, "{ahead} pages read ahead");
    assert!(wasted == 0 && hits + 8 >= ahead, "{ahead} pages read ahead, {hits} used, {wasted} wasted");
}
