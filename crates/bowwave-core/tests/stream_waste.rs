//! The promise of `stream` about waste, against readers that try to break it.
//!
//! `unread` is what was ever read ahead and not used. It may be at most so many percent of what was used, two windows for
//! each stream that is remembered (96 of them), and sixteen; with one stream at a time that is eighteen windows. The readers
//! are drawn at random and changed where that made it worse, a million accesses in all; some see the marks and touch nothing
//! else. What the worst found is, the test prints (`--nocapture`).

#![expect(clippy::print_stdout, reason = "the worst found is what one wants to know")]

mod rng;

use bowwave_core::{
    Cache, Config, Decision, FileId, HandleId, Instant, Observer, PageCount, PageRange, Policy, Urgency,
};
use rng::Rng;

const W: u64 = 32;
const FILE: FileId = FileId(0);
const EPISODE: u64 = 4000;

/// How an adversary reads: weights of what it does, in percent, and sizes.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// Goes on, jumps to a mark, steps evenly, goes backward, begins anew; the rest is page 0 and the file's end.
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
}

/// Remembers where marks were set.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Observer for Marks {
    fn filled(&mut self, _: FileId, _: PageRange, _: Urgency) {}

    fn decided(&mut self, decision: &Decision) {
        self.0.extend(decision.mark.map(|page| page.0));
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
        }
    }

    /// The same, with one thing changed.
    fn changed(self, rng: &mut Rng) -> Self {
        let other = Self::draw(rng);
        let mut habit = self;
        match rng.below(10) {
            0 => habit.onward = other.onward,
            1 => habit.to_mark = other.to_mark,
            2 => habit.even = other.even,
            3 => habit.backward = other.backward,
            4 => habit.anew = other.anew,
            5 => habit.request = other.request,
            6 => habit.step = other.step,
            7 => habit.file_pages = other.file_pages,
            8 => habit.frames = other.frames,
            _ => habit.readers = other.readers,
        }
        habit
    }

    /// Reads for an episode; the most pages unread beyond the share of what was used.
    fn run(&self, seed: u64) -> u64 {
        let mut rng = Rng(seed);
        let config = Config { policy: Policy::Stream, frames: self.frames, ..Config::default() };
        let share = u64::from(config.stream.waste_percent);
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FILE, PageCount(self.file_pages));
        (0..8).for_each(|handle| cache.open_handle(HandleId(handle), FILE));
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
            cache.read_instant(Instant(0), HandleId(reader as u32), range, &mut marks).expect("room for it");
            at[reader] = end % all;
            let stats = cache.stats();
            let unread = stats.pages_readahead - stats.pages_used;
            let used = stats.pages_filled - stats.pages_readahead + stats.pages_used;
            worst = worst.max(unread.saturating_sub(used * share / 100));
        }
        worst
    }
}

#[test]
fn nobody_makes_it_waste_more_than_promised() {
    let mut rng = Rng(7);
    let mut worst: [(u64, Option<Habit>); 2] = [(0, None); 2];
    for round in 0..250u64 {
        let group = (round % 2) as usize;
        let mut habit = match worst[group].1 {
            Some(habit) if rng.chance(70) => habit.changed(&mut rng),
            _ => Habit::draw(&mut rng),
        };
        if group == 0 {
            (habit.readers, habit.to_mark) = (1, 0);
        }
        let seed = round;
        let unread = habit.run(seed);
        let limit = (16 + 2 * 96) * W;
        assert!(unread <= limit, "seed {seed}: {unread} pages too many, {limit} allowed; {habit:?}");
        if unread > worst[group].0 {
            worst[group] = (unread, Some(habit));
        }
    }
    for (who, (unread, habit)) in ["one reader", "up to eight readers"].iter().zip(worst) {
        println!(
            "{who}: {unread} pages ({:.1} windows) beyond 25 % of what was used; {habit:?}",
            unread as f64 / W as f64
        );
    }
}
