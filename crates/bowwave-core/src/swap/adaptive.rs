//! By streams: several a region. Each is read ahead by as many pages as its reader touches while
//! the store responds.
//!
//! Unlike Linux's policies, it has windows of more than a few pages, strides, a distance that
//! follows the store's latency, and several readers a region. A stream begins at a miss next to a
//! recent miss, since readers alternate, or when most of the last steps between misses are equal
//! (after Leap, Al Maruf and Chowdhury, 2020). From then on the stream acts at its **mark**, the
//! first page of its last window. A touch of the mark shows that the window is used and how fast
//! the reader is; it plans the next window. So a stream that ends, or a false one, costs one
//! window, and most misses of random readers cost nothing.
//!
//! Lookups of a few pages begin streams that all end at once. So a region counts how many recent
//! windows were reached, separately for first windows, second windows and so on. Where most are not
//! reached, windows are small; where hardly any is, nothing is read, and the next miss alone shows
//! that the stream continues. Where readers share a region block by block, a window ends where
//! another reader's block begins.
//!
//! # Rules
//!
//! `tools/model_adaptive.py` follows these rules, and is compared with `bowwave explain`. The clock
//! of a region counts its misses and its touches of marked pages.
//!
//! **A miss continues a stream** that it is a whole number of strides ahead of: as far as the first
//! unplanned page. From its second window on, and if its window has 8 pages or more, the limit is
//! four windows past the reader if that is farther. The stream with the fewest strides wins, then
//! the first of the table. The window begins one stride after the page.
//!
//! **A miss outside of all streams begins one** if the page before it (upward) or after it
//! (downward) is among the last 16 such misses; or if the step from the last such miss equals at
//! least three of the last four steps, itself included, and is at most 2^20 pages. The step of a
//! region's first miss counts from page 0. The misses that begin a stream are remembered, too. No
//! stream begins if one stride after the page lies before the region.
//!
//! **The table has 64 streams.** A new stream takes the place of the one used longest ago. A stream
//! with a second window counts as used 256 later on the clock.
//!
//! **The touch of a mark**, the first page that was read of a window, plans the next window, from
//! the first unplanned page on. A stream with one window that was last used more than 256 before on
//! the clock only loses its mark. A later window touched so late does not count as reached. The
//! reader's position does not move back.
//!
//! **Hits** are first touches of pages read ahead, marks included. A hit belongs to the first
//! stream of the table whose reader is at most two windows behind it.
//!
//! **A window's size.** The first one has 8 pages. The next one has twice as many, at least 8, if
//! since the last plan at least half as many hits came as the last window has pages; else half as
//! many, at least 1. A window that had 0 pages is followed by one of 8. It has at most 32 pages if
//! they are not adjacent, and at most `ahead_max` of the pager's settings.
//!
//! **Odds.** Each of eight stages counts its windows and those that were reached, by a mark or a
//! miss. Both counts begin at 4, and are halved when there are 64 windows. If fewer than half are
//! reached, a window of the stage has at most 16 times the share of reached windows, rounded down.
//! The next stage limits it likewise, but to no fewer than 1. Windows of 0 pages by odds count,
//! too: a miss shows that they were reached. Windows in which no page was swapped out do not count.
//!
//! **Room.** A window of adjacent pages ends before the first miss of another stream of adjacent
//! pages; of a stream towards this one, before its reader. A window without room is not planned,
//! and does not count.
//!
//! **Pages.** The window takes the first swapped-out pages from its start on, at most 16 pages
//! examined for each. The next window begins after the last page examined.
//!
//! **Time.** Where touches have different times, the window is also bounded by the pages that the
//! reader touches in twice the store's latency, rounded to a power of two, 8 or more.

use alloc::vec::Vec;

use super::SwapReason;
use crate::page::{PageIndex, PageRange};
use crate::time::Instant;

/// Streams of a region.
const STREAMS: usize = 64;
/// Misses outside of streams that are remembered: new readers alternate. More entries would match
/// adjacent misses by chance.
const MISSES: usize = 16;
/// Steps between misses that are remembered.
const STEPS: usize = 4;
/// Number of remembered steps that must be equal.
const MAJORITY: usize = 3;
/// Largest window whose pages are not adjacent: each page is a request of its own.
const STRIDED_MAX: u64 = 32;
/// Windows that a stream's miss may be past its reader's last position.
const REACH: u64 = 4;
/// Largest stride, in pages.
const STRIDE_MAX: u64 = 1 << 20;
/// Misses and marks for which a continued stream outlives a new one, and after which a touch of its
/// mark counts as another reader's.
const PATIENCE: u64 = 256;

/// Pages of a stream's first window.
const FIRST: u64 = 8;
/// Stages, the number of earlier windows of a stream; the last stage holds all later windows.
const STAGES: usize = 8;
/// Windows remembered for a stage; beyond this, counts are halved.
const REMEMBERED: u32 = 64;

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    /// Pages from one touch to the next; not 0.
    stride: i64,
    /// Where its reader began.
    from: u64,
    /// Last known position of its reader, and the time.
    last: u64,
    last_at: Instant,
    /// The first page that is not planned yet.
    next: u64,
    /// Pages of the last window, whatever the stride.
    window: u64,
    /// A touch of this page plans the next window.
    mark: Option<u64>,
    /// Windows before the last one, at most [`STAGES`] - 1.
    stage: usize,
    /// Whether the last window counts for its stage and was not reached yet.
    awaited: bool,
    /// Nanoseconds from one page to the next, smoothed; 0 while unknown.
    pace_ns: u64,
    /// Pages of the last window whose touch was seen.
    hits: u64,
    used: u64,
}

/// State of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adaptive {
    /// At most [`STREAMS`].
    streams: Vec<Stream>,
    steps: [i64; STEPS],
    /// At most [`MISSES`], and the index of the last one.
    misses: Vec<u64>,
    last_miss: usize,
    clock: u64,
    odds: [Odds; STAGES],
}

/// Inputs of the window size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time.
    pub now: Instant,
    /// Nanoseconds that the store takes for a window.
    pub latency_ns: u64,
    /// Most pages of a window.
    pub max: u64,
    /// Whether hits are seen page by page. Then a window with less than half of its pages touched
    /// is followed by a smaller one.
    pub sees_hits: bool,
}

/// A window: `count` swapped-out pages from `start`, `stride` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadPlan {
    /// The region's stream, for [`Adaptive::planned`].
    pub stream: usize,
    /// The first page.
    pub start: PageIndex,
    /// Number of pages; if 0, only `behind` matters.
    pub count: u64,
    /// Most pages to examine to find them.
    pub clear: u64,
    /// Distance between the pages.
    pub stride: i64,
    /// Pages that the reader has passed; empty unless its pages are adjacent.
    pub behind: PageRange,
    /// The reason.
    pub reason: SwapReason,
}

impl Stream {
    /// Steps from the reader's last position to a page; none if the stream does not reach it.
    fn steps_to(&self, page: u64) -> Option<u64> {
        let distance =
            if self.stride > 0 { page.checked_sub(self.last) } else { self.last.checked_sub(page) };
        // Each miss asks all streams of a region, so adjacent pages, the usual case, avoid a
        // division.
        match (distance?, self.stride.unsigned_abs()) {
            (0, _) => None,
            (distance, 1) => Some(distance),
            (distance, stride) => (distance % stride == 0).then_some(distance / stride),
        }
    }

    /// Records the reader's position; returns the pages it has passed. A late touch of a passed
    /// mark shows no position, and a miss past all planned pages may be another reader's.
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

    /// Pages of the next window: as many as the reader touches in twice the store's latency,
    /// bounded by the odds.
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
        // Long windows are few requests: pages that will certainly be used are read in large
        // requests.
        let wanted = lead.saturating_mul(4).max(FIRST).checked_next_power_of_two().unwrap_or(u64::MAX);
        let poor = pace.sees_hits && self.hits * 2 < self.window;
        let bounds =
            if poor { (1, self.window / 2) } else { (self.window / 2, (self.window * 2).max(FIRST)) };
        let wanted = wanted.clamp(bounds.0.max(1), bounds.1.max(1)).min(max.max(1));
        self.window = wanted.min(bound(odds, self.stage));
        self.hits = 0;
    }

    /// Whether there is a next window. If not, a miss of its first page shows that the stream
    /// continues.
    fn goes_on(&mut self, odds: &mut [Odds; STAGES]) -> bool {
        self.awaited = self.window == 0;
        if self.awaited {
            self.mark = None;
            odds[self.stage].plan();
        }
        !self.awaited
    }

    /// The farthest step that still belongs to this stream: the first page that was not planned.
    /// For a continued stream that the odds do not limit, a few windows more, since planned pages
    /// may not have been read.
    fn reach(&self) -> u64 {
        let next = self.steps_to(self.next).unwrap_or(1);
        if self.stage > 0 && self.window >= FIRST { next.max(REACH * self.window) } else { next }
    }

    /// Pages from the first unplanned one to where another stream's reader began.
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
    /// Handles a touch of a swapped-out page. None if only that page should be read.
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

    /// Handles advice that the pages from here on will be touched in order.
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

    /// The next window of a stream, or else the pages its reader has passed, if any. Where another
    /// reader has begun, swapped-out pages were just read or are that reader's to read. So the
    /// window ends there; a reader that continues all the same misses and continues its stream.
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

    /// Handles the touch of a marked page. None if its stream was evicted.
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

    /// Records the touch of a page that was read ahead.
    pub fn on_hit(&mut self, page: PageIndex) {
        let near = |stream: &&mut Stream| {
            stream.steps_to(page.0).is_some_and(|steps| steps <= stream.window.saturating_mul(2))
        };
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.hits += 1;
        }
    }

    /// Records the result of a plan: pages are planned up to `next`, and `mark` is the first page
    /// read.
    pub fn planned(&mut self, stream: usize, next: PageIndex, mark: Option<PageIndex>) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.next = next.0;
            stream.mark = mark.map(|mark| mark.0);
            // A window that is all in memory has no mark, and shows nothing.
            stream.awaited = mark.is_some();
            if stream.awaited {
                self.odds[stream.stage].plan();
            }
        }
    }

    /// The stream that reaches a page in the fewest steps, and the number of steps.
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

/// Results of recent windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Odds {
    planned: u32,
    /// Planned windows that a reader reached.
    reached: u32,
}

impl Default for Odds {
    /// Optimistic at first.
    fn default() -> Self {
        Self { planned: 4, reached: 4 }
    }
}

impl Odds {
    fn plan(&mut self) {
        self.planned += 1;
        if self.planned >= REMEMBERED {
            (self.planned, self.reached) = (self.planned / 2, self.reached / 2);
        }
    }

    fn reach(&mut self) {
        self.reached = (self.reached + 1).min(self.planned);
    }

    /// Largest window, in pages, with these odds: unlimited if half are reached, 0 if hardly any
    /// is.
    fn bound(self) -> u64 {
        if self.reached * 2 >= self.planned {
            u64::MAX
        } else {
            2 * FIRST * u64::from(self.reached) / u64::from(self.planned)
        }
    }
}

/// Largest window of a stage: limited by its own odds and by those of the next stage, since an
/// unreached next window means that this one is not read to its end.
fn bound(odds: &[Odds; STAGES], stage: usize) -> u64 {
    let next = odds[(stage + 1).min(STAGES - 1)];
    odds[stage].bound().min(next.bound().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn pace(now: u64) -> Pace {
        Pace { now: Instant(now), latency_ns: 100_000, max: 256, sees_hits: false }
    }

    #[test]
    fn two_adjacent_misses_begin_a_stream_and_marks_continue_it() {
        let mut adaptive = Adaptive::default();
        assert_eq!(adaptive.on_miss(PageIndex(100), &pace(0)), None);
        let first = adaptive.on_miss(PageIndex(101), &pace(100_000)).expect("a stream");
        assert_eq!((first.start.0, first.count, first.reason), (102, 8, SwapReason::Forward));
        adaptive.planned(first.stream, PageIndex(110), Some(PageIndex(102)));
        // 1 µs a page and a store of 100 µs: windows double up to what that needs.
        let (mut at, mut time) = (102, 101_000);
        for count in [16, 32, 64, 128, 256, 256] {
            let plan = adaptive.on_mark(PageIndex(at), &pace(time)).expect("the mark of a stream");
            assert_eq!((plan.count, plan.reason), (count, SwapReason::Mark));
            (at, time) = (plan.start.0, time + 1000 * (plan.start.0 - at));
            adaptive.planned(plan.stream, PageIndex(at + count), Some(PageIndex(at)));
        }
    }

    #[test]
    fn a_slow_reader_gets_a_short_distance() {
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
    fn a_passed_mark_may_be_touched_later() {
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
    fn strides_and_downward_steps_begin_streams_and_random_steps_do_not() {
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

    /// Touches `count` pages in order from `start`, of which only planned pages are in memory;
    /// returns how many those were.
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
    fn unreached_windows_shrink_to_nothing_and_continued_streams_regain_them() {
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
            // A continuing reader shows by its misses.
            let scan = planned(5000..5001, 4000);
            assert!(scan > 3900, "{scan}");
        }
    }

    /// Several readers begin at the same time, alternately, on adjacent blocks.
    #[test]
    fn alternating_readers_get_their_own_streams_and_blocks() {
        let (mut adaptive, readers, block) = (Adaptive::default(), 8, 100);
        let (mut planned, mut marks) = (vec![0; (readers * block) as usize], Vec::new());
        let mut misses = 0;
        for turn in 0..block {
            // In an order without a common step.
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
    fn a_continued_stream_outlives_new_ones() {
        let mut adaptive = Adaptive::default();
        adaptive.on_miss(PageIndex(100), &pace(0));
        let plan = adaptive.on_miss(PageIndex(101), &pace(1)).expect("a stream");
        adaptive.planned(plan.stream, PageIndex(110), Some(PageIndex(102)));
        let plan = adaptive.on_mark(PageIndex(102), &pace(2)).expect("the stream continues");
        adaptive.planned(plan.stream, PageIndex(126), Some(PageIndex(110)));
        (1..=100).for_each(|turn| _ = look_up(&mut adaptive, turn * 10_000, 2));
        assert!(adaptive.on_mark(PageIndex(110), &pace(3)).is_some());
    }

    #[test]
    fn windows_with_few_hits_shrink_where_hits_are_seen() {
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
