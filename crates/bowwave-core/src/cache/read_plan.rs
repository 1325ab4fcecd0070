//! Readahead along a reader's plan: the ranges that it announces, in order.
//!
//! ```text
//!   announced ranges         900..904   10..50        300..310
//!   positions                0──────────4─────────────44───────54
//!                                           ^ at            ^ edge
//!                                           the reader      read ahead up to here
//! ```
//!
//! Positions count pages of the plan, so any plan is read ahead like one stream. The handle's
//! policy is not called for pages of the plan, and nothing else is read ahead there. Requested
//! pages come first. Then follow as many pages of the plan as its distance and memory allow, in
//! order. Marks show where the reader is. A reader that skips ranges, or reads them in another
//! order, is followed from where it is. Elsewhere the policy decides, and after [`AWAY_MAX`] misses
//! the plan's readahead in flight is cancelled until the reader returns.
//!
//! The distance starts with the waste budget of an unknown file. It doubles when the reader waits
//! for the plan's readahead or reaches its end. All plans with pages left share half of the memory
//! for pages read once. One plan gets at most a quarter of all frames, and at most
//! [`StreamConfig::distance_pages_max`](crate::StreamConfig::distance_pages_max).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use super::Cache;
use super::frames::Flag;
use super::plan::Sink;
use super::walk::Walk;
use crate::event::{Action, Trigger, Urgency};
use crate::id::{FileId, FillId, HandleId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Plan, Reason};
use crate::request::Part;
use crate::time::Instant;

/// First distance, in windows.
const WINDOWS: u64 = 16;
/// A distance is read in this many parts, so that requests are served side by side.
const PARTS: u64 = 64;
/// A part is at most a window times this, and at least a window divided by this.
const PART_WINDOWS: u64 = 4;
/// One plan gets at most one in this many of all frames.
const ALONE: u64 = 4;
/// All plans and other readahead get at most one in this many of the frames for pages read once.
const TOGETHER: u64 = 2;
/// Drop-behind starts when more than one in this many of the frames for pages read once is unused
/// readahead.
const SHORT: u32 = 4;
/// Most runs of missing pages read under one lock.
const RUNS_MAX: usize = 1024;
/// Most pages examined under one lock.
const LOOKED_AT_MAX: u64 = 1 << 16;
/// Consecutive misses outside of the plan after which the reader has left it.
const AWAY_MAX: u32 = 16;
/// Most ranges of a plan that wait to be used: bounds the memory.
const RANGES_MAX: usize = 1 << 20;
/// Most distinct first pages of ranges that a search for a page examines.
const PLACES_MAX: usize = 64;
/// Used ranges are removed in batches of at least this many: a removal moves all later ranges.
const FORGET_MIN: usize = 64;

/// The plan of a handle.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadPlan {
    legs: Vec<Leg>,
    /// Legs by first page, then in order; empty until it is needed.
    by_start: Vec<u32>,
    /// For each entry of `by_start`, the largest end of the legs up to it.
    reach: Vec<u64>,
    /// The leg of `at`.
    here: usize,
    /// Last known position of the reader.
    at: u64,
    /// End of the readahead.
    edge: u64,
    /// Most pages ahead of the reader.
    distance: u64,
    /// The distance may double again once the reader has reached this position.
    grown_at: u64,
    /// The reader waited for the readahead, or reached its end.
    waited: bool,
    /// Consecutive misses outside of the plan.
    away: u32,
    /// It has pages left to read ahead, so it gets a share of memory.
    shares: bool,
    /// Pages read ahead so far.
    issued: u64,
    /// Of those, the pages up to the last mark that the reader passed.
    passed: u64,
    /// Marks ahead of the reader: position, and pages read ahead before it.
    marks: VecDeque<(u64, u64)>,
    /// Pages read ahead since the last mark.
    since_mark: u64,
    /// Positions read ahead that were not checked for waste yet, in order.
    behind: VecDeque<(u64, u64)>,
}

/// A range, and the position of its first page.
#[derive(Clone, Copy, Debug)]
struct Leg {
    start: u64,
    pages: u64,
    before: u64,
}

impl Leg {
    /// This leg extended by a range that begins at its end or in its last page.
    fn joined(self, range: PageRange) -> Option<Self> {
        let end = self.start + self.pages;
        let joins = range.start.0 == end || range.start.0 + 1 == end;
        joins.then(|| Self { pages: self.pages.max(range.end.0 - self.start), ..self })
    }

    fn position(&self, page: u64) -> Option<u64> {
        (self.start..self.start + self.pages).contains(&page).then(|| self.before + (page - self.start))
    }
}

impl ReadPlan {
    /// A plan without ranges.
    fn new(distance: u64) -> Self {
        Self { distance, ..Self::default() }
    }

    /// The end of the last range.
    fn end(&self) -> u64 {
        self.legs.last().map_or(0, |leg| leg.before + leg.pages)
    }

    /// Number of ranges if these were appended.
    fn len_with(&self, ranges: impl Iterator<Item = PageRange>) -> usize {
        let mut last = self.legs.last().copied();
        let mut len = self.legs.len();
        for range in ranges.filter(|range| range.start < range.end) {
            let joined = last.and_then(|last| last.joined(range));
            len += usize::from(joined.is_none());
            let apart = || Leg { start: range.start.0, pages: range.count().0, before: 0 };
            last = Some(joined.unwrap_or_else(apart));
        }
        len
    }

    /// Appends a range. It extends the last one if they are adjacent or share a page.
    fn append(&mut self, range: PageRange) {
        if range.start >= range.end {
            return;
        }
        self.by_start.clear();
        let before = self.end();
        if let Some(last) = self.legs.last_mut()
            && let Some(joined) = last.joined(range)
        {
            *last = joined;
            return;
        }
        self.legs.push(Leg { start: range.start.0, pages: range.count().0, before });
    }

    /// Removes ranges that the reader has passed.
    fn forget_used(&mut self) {
        let kept = self.behind.front().map_or(self.at, |&(from, _)| from.min(self.at));
        let used = self.legs.partition_point(|leg| leg.before + leg.pages <= kept);
        // The last range stays: its end is that of the plan.
        let used = used.min(self.legs.len().saturating_sub(1));
        if used >= FORGET_MIN {
            self.legs.drain(..used);
            self.here -= used.min(self.here);
            self.by_start.clear();
        }
    }

    /// Position of a page: the first one from the reader on, else the last one before the reader.
    fn find(&mut self, page: PageIndex) -> Option<u64> {
        let PageIndex(page) = page;
        let near = self.legs.iter().skip(self.here).take(2);
        if let Some(position) = near.filter_map(|leg| leg.position(page)).next() {
            return Some(position);
        }
        self.sort();
        let Self { legs, by_start, reach, here, .. } = self;
        let leg = |place: usize| (&legs[by_start[place] as usize], by_start[place] as usize);
        let mut best: Option<(bool, u64, u64)> = None;
        let mut below = by_start.partition_point(|&number| legs[number as usize].start <= page);
        for _ in 0..PLACES_MAX {
            if below == 0 || reach[below - 1] <= page {
                break;
            }
            let start = leg(below - 1).0.start;
            // Of the legs that begin here: the first one from the reader on, and the one before.
            let from = by_start[..below].partition_point(|&number| legs[number as usize].start < start);
            let next = from + by_start[from..below].partition_point(|&number| (number as usize) < *here);
            for place in
                [next.checked_sub(1).filter(|&place| place >= from), Some(next).filter(|&n| n < below)]
            {
                let Some((found, number)) = place.map(leg) else { continue };
                let Some(position) = found.position(page) else { continue };
                let far = number.abs_diff(*here) as u64;
                let key = (number < *here, far, position);
                best = Some(best.map_or(key, |best| best.min(key)));
            }
            below = from;
        }
        best.map(|(_, _, position)| position)
    }

    fn sort(&mut self) {
        if !self.by_start.is_empty() {
            return;
        }
        let Self { legs, by_start, reach, .. } = self;
        // Fewer than RANGES_MAX.
        by_start.extend(0..legs.len() as u32);
        by_start.sort_unstable_by_key(|&number| (legs[number as usize].start, number));
        reach.clear();
        let mut furthest = 0;
        reach.extend(by_start.iter().map(|&number| {
            let leg = &legs[number as usize];
            furthest = furthest.max(leg.start + leg.pages);
            furthest
        }));
    }

    /// The pages from a position to the end of its range; none at the end of the plan.
    fn pages_from(&self, position: u64) -> Option<PageRange> {
        let leg = self.legs.get(self.leg_of(position))?;
        let skip = position.checked_sub(leg.before)?;
        (skip < leg.pages)
            .then(|| PageRange::from_start(PageIndex(leg.start + skip), PageCount(leg.pages - skip)))
    }

    fn leg_of(&self, position: u64) -> usize {
        self.legs.partition_point(|leg| leg.before + leg.pages <= position)
    }

    /// Sets the position of the reader.
    fn go_to(&mut self, position: u64) {
        if position < self.at {
            self.marks.clear();
            self.passed = self.issued;
        }
        self.at = position;
        while self.marks.front().is_some_and(|&(mark, _)| mark <= position) {
            self.passed = self.marks.pop_front().map_or(self.passed, |(_, issued)| issued);
        }
        self.here = self.leg_of(position);
    }

    /// Restarts the readahead at a position.
    fn begin_at(&mut self, position: u64) {
        self.edge = position;
        self.marks.clear();
        self.passed = self.issued;
        self.since_mark = 0;
    }

    /// Pages read ahead that the reader has not passed, as far as marks show.
    fn ahead(&self) -> u64 {
        self.issued - self.passed
    }

    /// Whether the reader has no mark ahead.
    fn is_unmarked(&self) -> bool {
        self.marks.is_empty()
    }

    /// Records marks on every `every`th of `pages` pages from a position, which are read ahead now.
    fn marked(&mut self, position: u64, pages: u64, every: u64) {
        for mark in (0..pages).step_by(usize::try_from(every.max(1)).unwrap_or(usize::MAX)) {
            self.marks.push_back((position + mark, self.issued + mark));
        }
    }

    /// Records that `pages` pages from a position are read ahead.
    fn issue(&mut self, position: u64, pages: u64) {
        self.issued += pages;
        match self.behind.back_mut() {
            Some((_, to)) if *to == position => *to += pages,
            _ => self.behind.push_back((position, position + pages)),
        }
    }

    /// The unchecked readahead before a position, as ranges of the file; it counts as checked then.
    fn take_behind(&mut self, position: u64) -> Vec<PageRange> {
        let mut seen = Vec::new();
        while let Some(&(from, to)) = self.behind.front()
            && from < position
        {
            let to = to.min(position);
            let mut at = from;
            while at < to
                && let Some(pages) = self.pages_from(at)
            {
                let pages = pages.clip(PageIndex(pages.start.0 + (to - at)));
                at += pages.count().0;
                seen.push(pages);
            }
            self.behind[0].0 = to;
            if self.behind[0].0 >= self.behind[0].1 {
                self.behind.pop_front();
            }
        }
        seen
    }
}

/// A plan has too many ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges;

impl TooManyRanges {
    /// Most ranges of a plan that wait to be used. Adjacent ranges count as one.
    pub const MAX: usize = RANGES_MAX;
}

impl fmt::Display for TooManyRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plan has at most {} ranges that wait to be used; announce the others later", Self::MAX)
    }
}

impl core::error::Error for TooManyRanges {}

impl Cache {
    /// Appends `ranges` to the plan of a handle: what its reader will read, in order. They are read
    /// ahead as far as memory allows and no faster than they are used, and nothing else, as long as
    /// reads follow the plan. Ranges are clipped at the end of the file.
    ///
    /// [`Event::SetReadPlan`](crate::Event::SetReadPlan) without ranges is
    /// [`end_plan`](Self::end_plan).
    ///
    /// # Errors
    /// If the plan had more than [`TooManyRanges::MAX`] waiting ranges. It is then unchanged.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn set_read_plan(
        &mut self,
        now: Instant,
        handle: HandleId,
        ranges: &[PageRange],
        out: &mut Vec<Action>,
    ) -> Result<(), TooManyRanges> {
        self.tick(now);
        let (first_distance, end) = (
            WINDOWS * u64::from(self.config.ra_pages.max(1)),
            PageIndex(self.file(self.handle(handle).file).pages.0),
        );
        let entry = self.handle_mut(handle);
        let mut read_plan = entry.read_plan.take().unwrap_or_else(|| Box::new(ReadPlan::new(first_distance)));
        read_plan.forget_used();
        let ranges =
            ranges.iter().map(|range| PageRange { start: range.start.min(end), end: range.end.min(end) });
        let fits = read_plan.len_with(ranges.clone()) <= RANGES_MAX;
        if fits {
            ranges.for_each(|range| read_plan.append(range));
        }
        // Reads that wait for frames get the next ones.
        if fits
            && self.starved.is_empty()
            && let Some(next) = read_plan.pages_from(read_plan.edge)
        {
            let nothing = PageRange { start: next.start, end: next.start };
            let mut walk = Walk::new(Part::whole(handle, next.into()), self.handle(handle), nothing);
            let begins = read_plan.edge == 0;
            self.read_along(&mut read_plan, &mut walk, next.start, Trigger::Advice, out);
            // The first read waits whatever the distance is, so that wait does not double it.
            read_plan.grown_at = if begins { read_plan.edge / 2 } else { read_plan.grown_at };
        }
        self.keep_plan(handle, read_plan);
        if fits { Ok(()) } else { Err(TooManyRanges) }
    }

    /// Ends the plan of a handle. Its readahead in flight without waiters is cancelled.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn end_plan(&mut self, now: Instant, handle: HandleId, out: &mut Vec<Action>) {
        self.tick(now);
        let file = self.handle(handle).file;
        if let Some(mut read_plan) = self.handle_mut(handle).read_plan.take() {
            self.drop_plan(file, &mut read_plan, out);
        }
    }

    /// Whether the plan of a handle has pages that its reader, as far as the cache saw, has not
    /// reached.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn has_plan(&self, handle: HandleId) -> bool {
        self.handle(handle).read_plan.as_ref().is_some_and(|read_plan| read_plan.at < read_plan.end())
    }

    /// A walk over the pages `range` of a part. In a plan, a policy that runs on every access is
    /// not called.
    pub(super) fn walk_of(&mut self, part: Part, range: PageRange) -> Walk {
        let handle = self.handle_mut(part.handle);
        let mut walk = Walk::new(part, handle, range);
        if walk.walks
            && let Some(read_plan) = &mut handle.read_plan
            && read_plan.find(range.start).is_some()
        {
            (walk.walks, walk.next) = (false, PageIndex(u64::MAX));
        }
        walk
    }

    /// Decides at a missing or marked page that is in the handle's plan; returns whether it is.
    pub(super) fn decide_by_plan(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        trigger: Trigger,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(mut read_plan) = self.handle_mut(walk.handle).read_plan.take() else { return false };
        let position = read_plan.find(page);
        match (position, trigger) {
            (Some(position), Trigger::Miss) => {
                self.missed_by_plan(&mut read_plan, position, walk, page, sink)
            }
            (Some(position), _) if position >= read_plan.at => {
                read_plan.away = 0;
                read_plan.go_to(position);
                self.count_behind(walk.file, &mut read_plan, position);
                self.continue_plan(&mut read_plan, walk, page, trigger, sink);
            }
            // A page that the reader had skipped.
            (Some(_), _) => {}
            (None, Trigger::Miss) => {
                read_plan.away += 1;
                if read_plan.away == AWAY_MAX {
                    self.cancel_plan(walk.file, &mut read_plan, sink);
                }
            }
            (None, _) => {}
        }
        self.keep_plan(walk.handle, read_plan);
        position.is_some()
    }

    /// A reader reached an unmarked page that is in flight as readahead. If the plan requested it,
    /// it was requested too late.
    pub(super) fn wait_by_plan(&mut self, walk: &mut Walk, page: PageIndex, sink: &mut impl Sink) {
        let Some(mut read_plan) = self.handle_mut(walk.handle).read_plan.take() else { return };
        if let Some(position) = read_plan.find(page)
            && position >= read_plan.at
        {
            read_plan.waited = true;
            read_plan.go_to(position);
            self.continue_plan(&mut read_plan, walk, page, Trigger::Mark, sink);
        }
        self.keep_plan(walk.handle, read_plan);
    }

    /// Whether the handle has a plan and a fill is in flight as readahead.
    pub(super) fn is_awaited_by_plan(&self, walk: &Walk, fill: u64) -> bool {
        self.handle(walk.handle).read_plan.is_some()
            && self.fills.get(fill).is_some_and(|fill| fill.urgency == Urgency::Readahead)
    }

    /// Cancels the readahead of a plan that ends.
    pub(super) fn drop_plan(&mut self, file: FileId, read_plan: &mut ReadPlan, out: &mut Vec<Action>) {
        self.cancel_plan(file, read_plan, out);
        self.plans_sharing -= u32::from(read_plan.shares);
    }

    /// A copy of the plan of `from`, in place of the plan of `to`.
    pub(super) fn copy_plan(&mut self, from: HandleId, to: HandleId) -> Option<Box<ReadPlan>> {
        let copy = self.handle(from).read_plan.clone();
        let before = self.handle(to).read_plan.as_ref().is_some_and(|read_plan| read_plan.shares);
        self.plans_sharing -= u32::from(before);
        self.plans_sharing += u32::from(copy.as_ref().is_some_and(|read_plan| read_plan.shares));
        copy
    }

    fn keep_plan(&mut self, handle: HandleId, mut read_plan: Box<ReadPlan>) {
        let shares = read_plan.edge < read_plan.end();
        self.plans_sharing += u32::from(shares);
        self.plans_sharing -= u32::from(read_plan.shares);
        read_plan.shares = shares;
        self.handle_mut(handle).read_plan = Some(read_plan);
    }

    /// A page of the plan is missing.
    fn missed_by_plan(
        &mut self,
        read_plan: &mut ReadPlan,
        position: u64,
        walk: &mut Walk,
        page: PageIndex,
        sink: &mut impl Sink,
    ) {
        read_plan.away = 0;
        if (read_plan.at..read_plan.edge).contains(&position) {
            // It was read ahead and evicted: the distance was too long for the memory.
            read_plan.distance = (read_plan.distance / 2).max(self.part_of(read_plan));
            read_plan.grown_at = read_plan.edge;
        } else {
            // The reader reached the end of the readahead.
            read_plan.waited |= position == read_plan.edge && read_plan.ahead() > 0;
        }
        read_plan.go_to(position);
        self.count_behind(walk.file, read_plan, position);
        let wanted = walk.request().end - page;
        let plan = Plan::new(page, wanted.0, 0, Reason::Planned);
        self.apply_plan(walk, page, Trigger::Miss, &plan, sink);
        let rest = read_plan.pages_from(position).map_or(0, |pages| pages.count().0);
        read_plan.begin_at(position + wanted.0.min(rest));
        self.continue_plan(read_plan, walk, page, Trigger::Miss, sink);
    }

    /// Reads ahead unless the device is congested; further than before if the reader waited.
    fn continue_plan(
        &mut self,
        read_plan: &mut ReadPlan,
        walk: &mut Walk,
        page: PageIndex,
        trigger: Trigger,
        sink: &mut impl Sink,
    ) {
        if read_plan.waited && read_plan.at >= read_plan.grown_at {
            read_plan.distance = read_plan.distance.saturating_mul(2).min(self.plan_share());
            read_plan.grown_at = read_plan.edge;
        }
        read_plan.waited = false;
        if !self.congested {
            self.read_along(read_plan, walk, page, trigger, sink);
        }
    }

    /// Reads ahead as much of the plan as its distance and memory allow.
    fn read_along(
        &mut self,
        read_plan: &mut ReadPlan,
        walk: &mut Walk,
        page: PageIndex,
        trigger: Trigger,
        sink: &mut impl Sink,
    ) {
        let (distance, part) = (read_plan.distance.min(self.plan_share()), self.part_of(read_plan));
        let unread = u64::from(self.frames.unused());
        let spare = (self.cold() / TOGETHER).saturating_sub(unread);
        let room = distance.saturating_sub(read_plan.ahead());
        let mut room = room.min(spare).min(self.readahead_allowance(walk.demand_left));
        // Whole parts only, while readahead is in flight.
        if room < part.min(distance) && read_plan.ahead() > 0 {
            return;
        }
        let once = self.frames.unused() > u32::try_from(self.cold()).unwrap_or(u32::MAX) / SHORT;
        let (mut runs, mut looked_at) = (0, 0);
        while room > 0 && runs < RUNS_MAX && looked_at < LOOKED_AT_MAX {
            let Some(pages) = read_plan.pages_from(read_plan.edge) else { break };
            let pages = pages.clip(PageIndex(pages.start.0.saturating_add(LOOKED_AT_MAX - looked_at)));
            let (skipped, missing) = self.next_missing(walk.file, pages, room);
            looked_at += skipped + missing;
            let start = read_plan.edge + skipped;
            read_plan.edge = start + missing;
            if missing == 0 {
                continue;
            }
            (room, runs) = (room - missing, runs + 1);
            let first = PageIndex(pages.start.0 + skipped);
            let mut plan = Plan::new(first, missing, 0, Reason::Planned);
            (plan.hints.split_every, plan.hints.read_once) = (part, once);
            if read_plan.is_unmarked() || read_plan.since_mark + missing >= part {
                plan.mark = Some(first);
                plan.hints.mark_every = if missing > part { part } else { 0 };
                plan.window.async_size = plan.window.size;
                read_plan.marked(start, missing, part);
                read_plan.since_mark = missing % part;
            } else {
                read_plan.since_mark += missing;
            }
            read_plan.issue(start, missing);
            self.apply_plan(walk, page, trigger, &plan, sink);
        }
    }

    /// Number of cached pages at the start of `pages`, and of missing pages after them, at most
    /// `most`.
    fn next_missing(&self, file: FileId, pages: PageRange, most: u64) -> (u64, u64) {
        let is_cached = |page: u64| self.table.get(file, PageIndex(page)).frame().is_some();
        let (start, end) = (pages.start.0, pages.end.0);
        let first = (start..end).find(|&page| !is_cached(page)).unwrap_or(end);
        let stop = end.min(first.saturating_add(most));
        let last = (first..stop).find(|&page| is_cached(page)).unwrap_or(stop);
        (first - start, last - first)
    }

    /// Pages of one part of a plan's distance.
    fn part_of(&self, read_plan: &ReadPlan) -> u64 {
        let window = u64::from(self.config.ra_pages.max(1));
        (read_plan.distance / PARTS).clamp((window / PART_WINDOWS).max(1), window * PART_WINDOWS)
    }

    /// Frames for pages read once.
    fn cold(&self) -> u64 {
        u64::from(self.limit.saturating_sub(self.frames.active_len()))
    }

    /// Most pages that one plan may have ahead of its reader.
    fn plan_share(&self) -> u64 {
        let of_all = self.cold() / TOGETHER / u64::from(self.plans_sharing.max(1));
        of_all.min(u64::from(self.limit) / ALONE).min(self.config.stream.distance_pages_max).max(1)
    }

    /// Counts the plan's unused readahead that lies more than a distance behind a position: the
    /// reader will not return to it.
    fn count_behind(&mut self, file: FileId, read_plan: &mut ReadPlan, position: u64) {
        let position = position.saturating_sub(read_plan.distance);
        self.count_abandoned(file, &read_plan.take_behind(position));
    }

    fn count_abandoned(&mut self, file: FileId, ranges: &[PageRange]) {
        let pages = ranges.iter().flat_map(|range| range.start.0..range.end.0);
        let abandoned = pages.filter(|&page| {
            let frame = self.table.get(file, PageIndex(page)).frame().map(|frame| self.frames.get(frame));
            frame.is_some_and(|frame| frame.has(Flag::Planned) && frame.has(Flag::Unused))
        });
        let abandoned = abandoned.count() as u64;
        self.stats_mut(file).pages_abandoned += abandoned;
    }

    /// Cancels a plan's readahead in flight without waiters.
    fn cancel_plan(&mut self, file: FileId, read_plan: &mut ReadPlan, sink: &mut impl Sink) {
        let (from, to) = (read_plan.at, read_plan.edge);
        let Self { fills, frames, .. } = self;
        for (id, fill) in fills.iter_mut() {
            let unwanted = fill.file == file && fill.urgency == Urgency::Readahead && !fill.cancelled;
            if unwanted
                && frames.get(fill.first).has(Flag::Planned)
                && read_plan.find(fill.range.start).is_some_and(|position| (from..to).contains(&position))
            {
                fill.cancelled = true;
                sink.cancel(FillId(id));
            }
        }
        let seen = read_plan.take_behind(read_plan.edge.max(read_plan.at));
        self.count_abandoned(file, &seen);
        read_plan.begin_at(read_plan.at.min(read_plan.edge));
    }
}

#[cfg(test)]
mod tests;
