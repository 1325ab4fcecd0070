//! The waste budget of `stream`, against adversarial readers.
//!
//! All readahead ever left unused is at most `waste_percent` of the pages used, plus sixteen
//! windows, plus two for each remembered stream (at most 96). The readers are random, and mutated
//! where that made the waste worse: more than a million accesses in all. Some read only marks, and
//! some stores have a high latency. The test prints the worst results (`--nocapture`).

#![expect(clippy::print_stdout, reason = "the worst results are for the reader")]

use std::collections::VecDeque;

use crate::rng::Rng;
use bowwave_core::{
    Action, Cache, Config, Decision, Event, FileId, FillId, HandleId, Instant, Observer, PageAccess,
    PageCount, PageRange, Policy, Urgency, Waiter,
};

const W: u64 = 32;
const FILE: FileId = FileId(0);
const EPISODE: u64 = 4000;
const ROUNDS: u64 = 300;
/// Latency of an object store.
const OBJECT_STORE_NS: u64 = 30_000_000;

/// How an adversary reads: weights of its actions, in percent, and sizes.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// Continues, jumps to a mark, strides, goes backward, jumps anywhere; else page 0 or the last
    /// page.
    onward: u64,
    to_mark: u64,
    even: u64,
    backward: u64,
    anew: u64,
    request: u64,
    step: u64,
    file_pages: u64,
    frames: u32,
    readers: u64,
    /// Latency of the store.
    fill_ns: u64,
}

/// The pages of marks.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Observer for Marks {
    fn filled(&mut self, _: FileId, _: PageRange, _: Urgency) {}

    fn decided(&mut self, decision: &Decision) {
        self.0.extend(decision.mark.map(|page| page.0));
    }
}

/// A cache over a store with a constant latency, or none; a reader needs 1 µs a page.
struct Store {
    cache: Cache,
    fill_ns: u64,
    now: u64,
    /// Fills in flight with their ends, in order.
    fills: VecDeque<(u64, FillId)>,
}

impl Store {
    fn new(config: Config, file_pages: u64, fill_ns: u64) -> Self {
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FILE, PageCount(file_pages));
        (0..8).for_each(|handle| cache.open_handle(HandleId(handle), FILE));
        Self { cache, fill_ns, now: 0, fills: VecDeque::new() }
    }

    fn read(&mut self, handle: HandleId, range: PageRange, marks: &mut Marks) {
        if self.fill_ns == 0 {
            self.cache
                .access_instant(Instant(0), PageAccess::read(handle, range), marks)
                .expect("the cache has frames");
            return;
        }
        let mut out = Vec::new();
        self.now += 1000 * (range.end.0 - range.start.0);
        while self.fills.front().is_some_and(|&(at, _)| at <= self.now) {
            self.end_one(&mut out);
        }
        let event = Event::Access { waiter: Waiter(0), access: PageAccess::read(handle, range) };
        self.cache.step(Instant(self.now), event, &mut out);
        loop {
            let mut read = None;
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Decided(decision) => marks.decided(&decision),
                    Action::Fill(fill) => self.fills.push_back((self.now + self.fill_ns, fill.id)),
                    Action::Wake { result, .. } => read = Some(result.expect("no fill fails")),
                    _ => {}
                }
            }
            if let Some(frames) = read {
                return self.cache.step(Instant(self.now), Event::Unpin { frames }, &mut out);
            }
            self.end_one(&mut out);
        }
    }

    fn end_one(&mut self, out: &mut Vec<Action>) {
        let (at, fill) = self.fills.pop_front().expect("a waiting read has a fill in flight");
        self.now = self.now.max(at);
        self.cache.step(Instant(self.now), Event::Filled { fill, result: Ok(()) }, out);
    }
}

impl Habit {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            onward: rng.below(101),
            to_mark: rng.below(60),
            even: rng.below(60),
            backward: rng.below(60),
            anew: rng.below(30),
            request: 1 + rng.below(40),
            step: 2 + rng.below(300),
            file_pages: 1 << (6 + rng.below(20)),
            frames: if rng.chance(70) { Config::UNLIMITED } else { 256 << rng.below(6) },
            readers: 1 + rng.below(8),
            fill_ns: [0, 100_000, OBJECT_STORE_NS][rng.below(3) as usize],
        }
    }

    /// A copy with one change.
    fn changed(self, rng: &mut Rng) -> Self {
        let other = Self::draw(rng);
        let mut habit = self;
        match rng.below(11) {
            0 => habit.onward = other.onward,
            1 => habit.to_mark = other.to_mark,
            2 => habit.even = other.even,
            3 => habit.backward = other.backward,
            4 => habit.anew = other.anew,
            5 => habit.request = other.request,
            6 => habit.step = other.step,
            7 => habit.file_pages = other.file_pages,
            8 => habit.frames = other.frames,
            9 => habit.fill_ns = other.fill_ns,
            _ => habit.readers = other.readers,
        }
        habit
    }

    /// Reads for an episode; returns the most unread pages beyond the share of used pages.
    fn run(&self, seed: u64, slow_window_pages: u64) -> u64 {
        let mut rng = Rng(seed);
        let mut config = Config { policy: Policy::Stream, frames: self.frames, ..Config::default() };
        config.stream.slow_window_pages = slow_window_pages;
        let share = u64::from(config.stream.waste_percent);
        let mut store = Store::new(config, self.file_pages, self.fill_ns);
        let mut at = [0u64; 8];
        let mut marks = Marks::default();
        let mut worst = 0;
        for _ in 0..EPISODE {
            let reader = rng.below(self.readers) as usize;
            let pages = 1 + rng.below(self.request);
            let (here, all) = (at[reader], self.file_pages);
            let dice = rng.below(self.onward + self.to_mark + self.even + self.backward + self.anew + 2);
            let limits = [self.onward, self.to_mark, self.even, self.backward, self.anew];
            let mut sum = 0;
            let choice = limits.iter().position(|&weight| {
                sum += weight;
                dice < sum
            });
            let start = match choice {
                Some(0) => here,
                Some(1) => marks.0.pop().unwrap_or(here),
                Some(2) => here.saturating_sub(pages) + self.step,
                Some(3) => here.saturating_sub(2 * pages),
                Some(4) => rng.below(all),
                _ => {
                    if rng.chance(50) {
                        0
                    } else {
                        all - 1
                    }
                }
            } % all;
            let end = (start + pages).min(all);
            let range = PageRange::new(start, end);
            store.read(HandleId(reader as u32), range, &mut marks);
            at[reader] = end % all;
            let stats = store.cache.stats();
            let unread = stats.pages_readahead - stats.pages_used;
            let used = stats.pages_filled - stats.pages_readahead + stats.pages_used;
            worst = worst.max(unread.saturating_sub(used * share / 100));
        }
        worst
    }
}

#[test]
fn no_reader_makes_stream_exceed_its_waste_budget() {
    let mut rng = Rng(7);
    let mut worst: [(u64, Option<Habit>); 2] = [(0, None); 2];
    for round in 0..ROUNDS {
        let group = (round % 2) as usize;
        let mut habit = match worst[group].1 {
            Some(habit) if rng.chance(70) => habit.changed(&mut rng),
            _ => Habit::draw(&mut rng),
        };
        if group == 0 {
            (habit.readers, habit.to_mark) = (1, 0);
        }
        let seed = round;
        let mut unread = habit.run(seed, 0);
        if habit.fill_ns == OBJECT_STORE_NS {
            // Where requests cost only time.
            unread = unread.max(habit.run(seed, W / 4));
        }
        let limit = (16 + 2 * 96) * W;
        assert!(unread <= limit, "seed {seed}: {unread} pages beyond the share, {limit} allowed; {habit:?}");
        if unread > worst[group].0 {
            worst[group] = (unread, Some(habit));
        }
    }
    for (readers, (unread, habit)) in ["one reader", "up to eight readers"].iter().zip(worst) {
        println!(
            "{readers}: {unread} pages ({:.1} windows) beyond 25 % of the pages used; {habit:?}",
            unread as f64 / W as f64
        );
    }
}
