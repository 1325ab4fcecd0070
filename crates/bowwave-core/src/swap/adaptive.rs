//! By streams: several a region, each read ahead by as much as its reader gets through while the store answers.
//!
//! What the policies after Linux lack: a window of more than a few pages, a stride, a lead that follows the store's speed,
//! and room for more than one reader in a region. A stream begins at a miss next to one of the last few, for readers take turns, or when most of the last
//! steps between misses were the same (after Leap, Al Maruf and Chowdhury, 2020). From then on it is not asked at misses but at its
//! **mark**, the first page of its last window: the touch of it says that this window is of use and when the reader got
//! there, and the next window is planned. So a stream that ends, or never was one, costs one window, and most misses of
//! random readers cost nothing.
//!
//! What looks things up that are a few pages long begins streams that all end at once. So a region remembers how many windows of late
//! were reached, those that began a stream apart from second ones and so on: where most are not, windows are small, and where hardly
//! any is, nothing is read and the next miss alone tells whether the stream goes on. And where many readers share a region block by
//! block, a window ends where another's block begins.

use alloc::vec::Vec;

use super::SwapReason;
use super::odds::{FIRST, Odds, STAGES, bound};
use crate::page::{PageIndex, PageRange};
use crate::time::Instant;

/// Streams of a region.
const STREAMS: usize = 64;
/// Misses of no stream that are remembered: readers that begin take turns. Of many, some are next to each other by chance.
const MISSES: usize = 16;
/// Steps between misses that are remembered.
const STEPS: usize = 4;
/// So many of them must be the same.
const MAJORITY: usize = 3;
/// Most pages of a window whose pages are not next to each other: each is a request of its own.
const STRIDED_MAX: u64 = 32;
/// A stream's miss may be so many windows past where its reader was last seen.
const REACH: u64 = 4;
/// The farthest apart that pages of a stream are.
const STRIDE_MAX: u64 = 1 << 20;
/// Misses and marks for which a stream that went on is kept longer than one that has only begun, and after which a mark's touch is
/// someone else's.
const PATIENCE: u64 = 256;

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    /// Pages from one touch to the next; not 0.
    stride: i64,
    /// Where its reader began.
    from: u64,
    /// Where its reader was last seen, and when.
    last: u64,
    last_at: Instant,
    /// The first page that is not planned yet.
    next: u64,
    /// Pages of the last window, whatever the stride.
    window: u64,
    /// Touching this page asks for the next window.
    mark: Option<u64>,
    /// Windows before the last one, at most [`STAGES`] less one.
    stage: usize,
    /// Whether the last one counts for its stage, and was not reached so far.
    awaited: bool,
    /// Nanoseconds from one page to the next, smoothed; 0 while unknown.
    pace_ns: u64,
    /// Pages of the last window whose touch was seen.
    hits: u64,
    used: u64,
}

/// What a region remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adaptive {
    /// At most [`STREAMS`].
    streams: Vec<Stream>,
    steps: [i64; STEPS],
    /// At most [`MISSES`], and which of them is the last.
    misses: Vec<u64>,
    last_miss: usize,
    clock: u64,
    odds: [Odds; STAGES],
}

/// What the size of windows goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time.
    pub now: Instant,
    /// Nanoseconds that the store takes for a window.
    pub latency_ns: u64,
    /// Most pages of a window.
    pub max: u64,
    /// Whether hits are seen page by page: then a window of which less than half was touched is followed by a smaller one.
    pub sees_hits: bool,
}

/// A window: `count` pages from `start`, `stride` apart, of those that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadPlan {
    /// Which of the region's streams: for [`Adaptive::planned`].
    pub stream: usize,
    /// The first page.
    pub start: PageIndex,
    /// How many; with none, something was left behind all the same.
    pub count: u64,
    /// How many may be looked at for those.
    pub clear: u64,
    /// How far apart.
    pub stride: i64,
    /// What its reader has left behind; empty unless its pages are next to each other.
    pub behind: PageRange,
    /// Why.
    pub reason: SwapReason,
}

impl Stream {
    /// Steps from where the reader was last seen to a page; none if the stream does not get there.
    fn steps_to(&self, page: u64) -> Option<u64> {
        let gone = if self.stride > 0 { page.checked_sub(self.last) } else { self.last.checked_sub(page) };
        // Each stream of a region is asked at each miss: no division for those, nearly all, whose pages are next to each other.
        match (gone?, self.stride.unsigned_abs()) {
            (0, _) => None,
            (gone, 1) => Some(gone),
            (gone, stride) => (gone % stride == 0).then_some(gone / stride),
        }
    }

    /// Takes in that the reader is at a page; the pages that lie behind it. A mark that it passed without touching it, and
    /// that is touched after all, says nothing of where it is; and a miss past all that was planned may be someone else's.
    fn seen(&mut self, page: u64, steps: u64, now: Instant) -> PageRange {
        let pace = now.0.saturating_sub(self.last_at.0) / steps.max(1);
        self.pace_ns = if self.pace_ns == 0 { pace } else { (self.pace_ns * 3 + pace) / 4 };
        let beyond = self.steps_to(self.next).is_some_and(|next| steps > next);
        let behind = match self.stride {
            1 | -1 if beyond => PageRange::new(page, page),
            1 if page >= self.last => PageRange::new(self.last, page),
            -1 if page <= self.last => PageRange::new(page + 1, self.last + 1),
            1 | -1 => return PageRange::new(page, page),
            _ => PageRange::new(page, page),
        };
        (self.last, self.last_at) = (page, now);
        behind
    }

    /// Pages of the next window: as many as the reader gets through in twice the time that the store takes, and no more than the
    /// odds are good for.
    fn resize(&mut self, pace: &Pace, odds: &mut [Odds; STAGES]) {
        if self.awaited {
            odds[self.stage].reach();
        }
        self.stage = (self.stage + 1).min(STAGES - 1);
        let max = if self.stride.unsigned_abs() == 1 { pace.max } else { pace.max.min(STRIDED_MAX) };
        let lead = match self.pace_ns {
            0 => max,
            pace_ns => (2 * pace.latency_ns).div_ceil(pace_ns),
        };
        // Long windows are as few requests as short ones are many: what is certain to be used is taken in large pieces.
        let wanted = lead.saturating_mul(4).max(FIRST).checked_next_power_of_two().unwrap_or(u64::MAX);
        let poor = pace.sees_hits && self.hits * 2 < self.window;
        let bounds =
            if poor { (1, self.window / 2) } else { (self.window / 2, (self.window * 2).max(FIRST)) };
        let wanted = wanted.clamp(bounds.0.max(1), bounds.1.max(1)).min(max.max(1));
        self.window = wanted.min(bound(odds, self.stage));
        self.hits = 0;
    }

    /// Whether there is a next window. If not, the miss of its first page tells that the stream goes on.
    fn goes_on(&mut self, odds: &mut [Odds; STAGES]) -> bool {
        self.awaited = self.window == 0;
        if self.awaited {
            self.mark = None;
            odds[self.stage].plan();
        }
        !self.awaited
    }

    /// The farthest step that is still this stream's: to the first page that was not planned. Of one that goes on, and that the odds do not
    /// hold short, some windows more: what was planned may not have been brought.
    fn reach(&self) -> u64 {
        let next = self.steps_to(self.next).unwrap_or(1);
        if self.stage > 0 && self.window >= FIRST { next.max(REACH * self.window) } else { next }
    }

    /// Pages from the first that is not planned to where another stream's reader has begun.
    fn clear_way(&self, other: &Self) -> u64 {
        let clear = match self.stride {
            1 => other.from.min(other.last).checked_sub(self.next),
            -1 => self.next.checked_sub(other.from.max(other.last)),
            _ => None,
        };
        clear.unwrap_or(u64::MAX)
    }
}

impl Adaptive {
    /// A touch found its page out. None if nothing speaks for more than that page.
    pub fn on_miss(&mut self, page: PageIndex, pace: &Pace) -> Option<AheadPlan> {
        let page = page.0;
        self.clock += 1;
        if let Some((index, steps)) = self.find(page) {
            let stream = &mut self.streams[index];
            stream.used = self.clock;
            let behind = stream.seen(page, steps, pace.now);
            stream.resize(pace, &mut self.odds);
            stream.next = page.checked_add_signed(stream.stride)?;
            return self.plan(index, behind, None);
        }
        let step = page.wrapping_sub(self.misses.get(self.last_miss).copied().unwrap_or(0)).cast_signed();
        self.steps.rotate_right(1);
        self.steps[0] = step;
        let same = self.steps.iter().filter(|&&other| other == step).count();
        let near = [1, -1]
            .into_iter()
            .find(|&step| page.checked_add_signed(-step).is_some_and(|before| self.misses.contains(&before)));
        self.remember(page);
        let step = near.unwrap_or(step);
        if near.is_none() && (same < MAJORITY || step == 0 || step.unsigned_abs() > STRIDE_MAX) {
            return None;
        }
        self.begin(page, step, 0, pace)
    }

    fn remember(&mut self, miss: u64) {
        if self.misses.len() < MISSES {
            self.last_miss = self.misses.len();
            self.misses.push(miss);
        } else {
            self.last_miss = (self.last_miss + 1) % MISSES;
            self.misses[self.last_miss] = miss;
        }
    }

    /// Someone said that pages from here on will be touched in order.
    pub fn on_advice(&mut self, page: PageIndex, pace: &Pace) -> Option<AheadPlan> {
        self.begin(page.0, 1, STAGES - 1, pace)
    }

    fn begin(&mut self, page: u64, stride: i64, stage: usize, pace: &Pace) -> Option<AheadPlan> {
        let next = page.checked_add_signed(stride)?;
        let stream = Stream {
            stride,
            from: page.checked_add_signed(-stride).unwrap_or(page),
            last: page,
            last_at: pace.now,
            next,
            window: FIRST.min(pace.max).min(bound(&self.odds, stage)),
            mark: None,
            stage,
            awaited: false,
            pace_ns: 0,
            hits: 0,
            used: self.clock,
        };
        let index = if self.streams.len() < STREAMS {
            self.streams.push(stream);
            self.streams.len() - 1
        } else {
            let kept = |stream: &Stream| stream.used + if stream.stage > 0 { PATIENCE } else { 0 };
            let oldest = (0..STREAMS).min_by_key(|&index| kept(&self.streams[index]))?;
            self.streams[oldest] = stream;
            oldest
        };
        self.plan(index, PageRange::new(page, page), None)
    }

    /// The next window of a stream, if there is one, or else what its reader has left behind, if anything. Where another reader has begun,
    /// what is out has just been read, or is that reader's to read: the window ends there, and the miss of who goes on all the same makes
    /// it go on.
    fn plan(&mut self, index: usize, behind: PageRange, reason: Option<SwapReason>) -> Option<AheadPlan> {
        let goes_on = self.streams[index].goes_on(&mut self.odds);
        let (stream, others) = (self.streams[index], self.streams.iter().enumerate());
        let others =
            others.filter(|&(other, of)| other != index && of.stride.unsigned_abs() == 1).map(|(_, of)| of);
        let clear = others.map(|other| stream.clear_way(other)).min().unwrap_or(u64::MAX);
        let (start, count, stride) = (PageIndex(stream.next), stream.window.min(clear), stream.stride);
        let reason = reason.unwrap_or_else(|| direction(stride));
        let some = goes_on && (count > 0 || !behind.is_empty());
        some.then_some(AheadPlan { stream: index, start, count, clear, stride, behind, reason })
    }

    /// The touch of a page that readahead had marked was seen. None if its stream has gone.
    pub fn on_mark(&mut self, page: PageIndex, pace: &Pace) -> Option<AheadPlan> {
        self.clock += 1;
        let index = self.streams.iter().position(|stream| stream.mark == Some(page.0))?;
        let stream = &mut self.streams[index];
        stream.awaited &= self.clock - stream.used <= PATIENCE;
        if !stream.awaited && stream.stage == 0 {
            stream.mark = None;
            return None;
        }
        stream.used = self.clock;
        let steps = stream.steps_to(page.0).unwrap_or(1);
        let behind = stream.seen(page.0, steps, pace.now);
        stream.resize(pace, &mut self.odds);
        stream.mark = None;
        self.plan(index, behind, Some(SwapReason::Mark))
    }

    /// The touch of a page that was read ahead was seen.
    pub fn on_hit(&mut self, page: PageIndex) {
        let near = |stream: &&mut Stream| {
            stream.steps_to(page.0).is_some_and(|steps| steps <= stream.window.saturating_mul(2))
        };
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.hits += 1;
        }
    }

    /// What became of a plan: pages are planned up to `next`, and `mark` is the first of those that are read.
    pub fn planned(&mut self, stream: usize, next: PageIndex, mark: Option<PageIndex>) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.next = next.0;
            stream.mark = mark.map(|mark| mark.0);
            // What is all in memory has no mark, and tells nothing.
            stream.awaited = mark.is_some();
            if stream.awaited {
                self.odds[stream.stage].plan();
            }
        }
    }

    /// The stream whose reader got to a page, by the fewest steps, and by how many.
    fn find(&self, page: u64) -> Option<(usize, u64)> {
        let found = self.streams.iter().enumerate().filter_map(|(index, stream)| {
            let steps = stream.steps_to(page)?;
            (steps <= stream.reach()).then_some((index, steps))
        });
        found.min_by_key(|&(_, steps)| steps)
    }
}

const fn direction(stride: i64) -> SwapReason {
    match stride {
        1 => SwapReason::Forward,
        -1 => SwapReason::Backward,
        _ => SwapReason::Strided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn pace(now: u64) -> Pace {
        Pace { now: Instant(now), latency_ns: 100_000, max: 256, sees_hits: false }
    }

    #[test]
    fn two_neighbours_begin_a_stream_and_marks_keep_it_going() {
        let mut adaptive = Adaptive::default();
        assert_eq!(adaptive.on_miss(PageIndex(100), &pace(0)), None);
        let first = adaptive.on_miss(PageIndex(101), &pace(100_000)).expect("a stream");
        assert_eq!((first.start.0, first.count, first.reason), (102, 8, SwapReason::Forward));
        adaptive.planned(first.stream, PageIndex(110), Some(PageIndex(102)));
        // A microsecond a page and a store that takes a hundred: windows double up to what that needs.
        let (mut at, mut time) = (102, 101_000);
        for count in [16, 32, 64, 128, 256, 256] {
            let plan = adaptive.on_mark(PageIndex(at), &pace(time)).expect("the mark of a stream");
            assert_eq!((plan.count, plan.reason), (count, SwapReason::Mark));
            (at, time) = (plan.start.0, time + 1000 * (plan.start.0 - at));
            adaptive.planned(plan.stream, PageIndex(at + count), Some(PageIndex(at)));
        }
    }

    #[test]
    fn a_slow_reader_is_not_run_away_from() {
        let mut adaptive = Adaptive::default();
        adaptive.on_miss(PageIndex(100), &pace(0));
        let mut plan = adaptive.on_miss(PageIndex(101), &pace(10_000_000)).expect("a stream");
        for turn in 2..20 {
            let mark = plan.start;
            adaptive.planned(plan.stream, mark + crate::page::PageCount(plan.count), Some(mark));
            plan = adaptive.on_mark(mark, &pace(turn * 100_000_000)).expect("the mark of a stream");
            assert_eq!(plan.count, 8, "10 ms a page and a store that takes 0.1 ms");
        }
    }

    #[test]
    fn a_mark_that_was_passed_by_may_be_touched_later() {
        for (first, second, third, passed) in [(100, 101, 105, 102), (100, 99, 95, 98)] {
            let mut adaptive = Adaptive::default();
            adaptive.on_miss(PageIndex(first), &pace(0));
            let plan = adaptive.on_miss(PageIndex(second), &pace(100)).expect("a stream");
            let end = plan.start.0.strict_add_signed(plan.stride * plan.count.cast_signed());
            adaptive.planned(plan.stream, PageIndex(end), Some(PageIndex(passed)));
            adaptive.on_miss(PageIndex(third), &pace(200)).expect("the same stream, further on");
            let plan = adaptive.on_mark(PageIndex(passed), &pace(300)).expect("the mark of a stream");
            assert!(plan.behind.is_empty(), "{plan:?}");
        }
    }

    #[test]
    fn strides_and_steps_down_are_followed_and_chance_is_not() {
        let plan_of = |pages: &[u64]| {
            let mut adaptive = Adaptive::default();
            let plans = pages.iter().map(|&page| adaptive.on_miss(PageIndex(page), &pace(page)));
            plans.last().flatten().map(|plan| (plan.start.0, plan.stride, plan.reason))
        };
        assert_eq!(plan_of(&[1000, 1017, 1034, 1051]), Some((1068, 17, SwapReason::Strided)));
        assert_eq!(plan_of(&[1000, 999]), Some((998, -1, SwapReason::Backward)));
        assert_eq!(plan_of(&[1000, 993, 986, 979]), Some((972, -7, SwapReason::Strided)));
        assert_eq!(plan_of(&[1000, 5000, 200, 90_000, 7, 7000]), None);
    }

    /// Touches `count` pages in order from `start` on, of which none is in memory but those that were planned; pages that were.
    fn look_up(adaptive: &mut Adaptive, start: u64, count: u64) -> u64 {
        let (mut planned, mut mark) = (Vec::new(), None);
        for page in start..start + count {
            let plan = match (mark == Some(page), planned.contains(&page)) {
                (true, _) => adaptive.on_mark(PageIndex(page), &pace(page * 1000)),
                (false, true) => continue,
                (false, false) => adaptive.on_miss(PageIndex(page), &pace(page * 1000)),
            };
            if let Some(plan) = plan {
                mark = Some(plan.start.0);
                planned.extend(plan.start.0..plan.start.0 + plan.count);
                adaptive.planned(plan.stream, PageIndex(plan.start.0 + plan.count), Some(plan.start));
            }
        }
        planned.len() as u64
    }

    #[test]
    fn windows_that_nobody_gets_to_shrink_to_nothing_and_streams_that_go_on_have_them_again() {
        for length in [2, 3, 12] {
            let mut adaptive = Adaptive::default();
            let mut planned = |turns: core::ops::Range<u64>, length| -> u64 {
                turns.map(|turn| look_up(&mut adaptive, turn * 7919 % 4099 * 1000, length)).sum()
            };
            let (first, later) = (planned(0..20, length), planned(20..520, length));
            assert!(
                first >= 20,
                "{length} pages in order are a stream until it is known that it ends: {first}"
            );
            assert!(
                later <= 500 * length,
                "not more than a page for each that is of use: {later} for {length}"
            );
            assert!(length > 2 || later < 100, "two pages have no third: {later}");
            // Whoever goes on is noticed by its misses.
            let scan = planned(5000..5001, 4000);
            assert!(scan > 3900, "{scan}");
        }
    }

    /// Many begin to read at the same time, by turns, blocks that lie side by side.
    #[test]
    fn readers_who_take_turns_have_streams_of_their_own_and_read_no_block_of_another() {
        let (mut adaptive, readers, block) = (Adaptive::default(), 8, 100);
        let (mut planned, mut marks) = (vec![0; (readers * block) as usize], Vec::new());
        let mut misses = 0;
        for turn in 0..block {
            // In an order without a step of its own.
            for page in (0..readers).map(|at| (at * (at + 1) / 2 + turn) % readers * block + turn) {
                let plan = if marks.contains(&page) {
                    adaptive.on_mark(PageIndex(page), &pace(page * 100))
                } else if planned[page as usize] == 0 {
                    misses += 1;
                    adaptive.on_miss(PageIndex(page), &pace(page * 100))
                } else {
                    None
                };
                let Some(plan) = plan.filter(|plan| plan.count > 0) else { continue };
                let end = (plan.start.0 + plan.count).min(readers * block);
                (plan.start.0..end).for_each(|page| planned[page as usize] += 1);
                marks.push(plan.start.0);
                adaptive.planned(plan.stream, PageIndex(end), Some(plan.start));
            }
        }
        assert!(misses <= 3 * readers, "{misses} misses of {readers} readers");
        let twice = planned.iter().filter(|&&times| times > 1).count();
        assert_eq!(twice, 0, "pages are planned by two");
    }

    #[test]
    fn a_stream_outlives_others_that_only_begin() {
        let mut adaptive = Adaptive::default();
        adaptive.on_miss(PageIndex(100), &pace(0));
        let plan = adaptive.on_miss(PageIndex(101), &pace(1)).expect("a stream");
        adaptive.planned(plan.stream, PageIndex(110), Some(PageIndex(102)));
        let plan = adaptive.on_mark(PageIndex(102), &pace(2)).expect("it goes on");
        adaptive.planned(plan.stream, PageIndex(126), Some(PageIndex(110)));
        (1..=100).for_each(|turn| _ = look_up(&mut adaptive, turn * 10_000, 2));
        assert!(adaptive.on_mark(PageIndex(110), &pace(3)).is_some());
    }

    #[test]
    fn windows_of_little_use_shrink_where_hits_are_seen() {
        let (mut adaptive, pace) = (Adaptive::default(), Pace { sees_hits: true, ..pace(0) });
        adaptive.on_miss(PageIndex(100), &pace);
        let mut plan = adaptive.on_miss(PageIndex(101), &pace).expect("a stream");
        for count in [4, 2, 1, 1] {
            let mark = plan.start;
            adaptive.planned(plan.stream, PageIndex(mark.0 + plan.count), Some(mark));
            plan = adaptive.on_mark(mark, &pace).expect("the mark of a stream");
            assert_eq!(plan.count, count);
        }
    }
}
