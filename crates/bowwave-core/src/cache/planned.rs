//! Readahead along what a reader says it will read: its plan.
//!
//! The handle's policy is not asked where the plan leads, nor is anything read there that the plan has not. What the reader
//! asks for comes first; then as many pages of the plan as its distance and memory allow, in the plan's order, each range by
//! itself (the driver's queue joins neighbours), long ones in parts. Marks tell where the reader is. One who skips ranges, or
//! comes to them in another order, is followed from there; one who reads elsewhere has the policy, and after a while what is
//! on its way for the plan is called back, until it returns.
//!
//! The distance begins with as much as is read ahead in a file of which nothing is known, and doubles when the reader had to
//! wait for what was on its way or came to its end, but for the first of it. Plans that have something left to read share half of the memory that
//! pages read once go through; one has no more than a quarter of all,
//! and no more than a stream may ([`StreamConfig::distance_pages_max`](crate::StreamConfig::distance_pages_max)).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::Cache;
use super::frames::Flag;
use super::plan::Sink;
use super::read_plan::{RANGES_MAX, ReadPlan};
use super::walk::Walk;
use crate::event::{Action, Trigger, Urgency};
use crate::id::{FileId, FillId, HandleId};
use crate::page::{PageIndex, PageRange};
use crate::readahead::{Plan, Reason};
use crate::request::Part;
use crate::time::Instant;

/// Windows that are ahead of a reader at first.
const WINDOWS: u64 = 16;
/// A distance is filled in so many parts, each from a quarter of a window to four of them: many can be served side by side.
const PARTS: u64 = 64;
const PART_WINDOWS: u64 = 4;
/// Of memory, one plan has no more than one in so many frames.
const ALONE: u64 = 4;
/// All plans have no more than one in so many frames that pages read once go through, with what is read ahead for others.
const TOGETHER: u64 = 2;
/// Pages are let go of right behind the reader if more than one in so many of those frames was read ahead and not used.
const SHORT: u32 = 4;
/// Ranges in one go: others wait for the lock.
const RUNS_MAX: usize = 1024;
/// Pages looked at in one go.
const LOOKED_AT_MAX: u64 = 1 << 16;
/// Who misses so often in a row elsewhere has left the plan.
const AWAY_MAX: u32 = 16;

/// A plan has more ranges than a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges;

impl TooManyRanges {
    /// Most ranges of a plan that wait to be used. Those that go on where the one before ends are one.
    pub const MAX: usize = RANGES_MAX;
}

impl fmt::Display for TooManyRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plan has at most {} ranges that wait to be used; give the others later", Self::MAX)
    }
}

impl core::error::Error for TooManyRanges {}

impl Cache {
    /// The reader of a handle says what it will read, in order: `ranges` come behind those that it has named before. They are
    /// read ahead from now on, as far as memory allows and no faster than they are used, and nothing is read beyond them
    /// while the reader keeps to them. Parts past the end of the file are left out.
    ///
    /// [`Event::SetReadPlan`](crate::Event::SetReadPlan) without ranges is [`end_plan`](Self::end_plan).
    ///
    /// # Errors
    /// If there are more than [`TooManyRanges::MAX`] ranges that wait; then nothing has happened.
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
            WINDOWS * u64::from(self.config.ra_pages),
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
        // Reads that wait for frames have the next ones.
        if fits
            && self.starved.is_empty()
            && let Some(next) = read_plan.pages_from(read_plan.edge)
        {
            let nothing = PageRange { start: next.start, end: next.start };
            let mut walk = Walk::new(Part::whole(handle, next.into()), self.handle(handle), nothing);
            let begins = read_plan.edge == 0;
            self.read_along(&mut read_plan, &mut walk, next.start, Trigger::Advice, out);
            // Who reads at once waits for the first of it, however much there is.
            read_plan.grown_at = if begins { read_plan.edge / 2 } else { read_plan.grown_at };
        }
        self.keep_plan(handle, read_plan);
        if fits { Ok(()) } else { Err(TooManyRanges) }
    }

    /// The plan of a handle ends here: what is left of it will not be read ahead, and what is on its way for it and nobody
    /// waits for is called back.
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

    /// Whether the reader of a handle has named ranges that it has not come to, by all that was seen of it.
    ///
    /// # Panics
    /// If `handle` is not open.
    #[must_use]
    pub fn has_plan(&self, handle: HandleId) -> bool {
        self.handle(handle).read_plan.as_ref().is_some_and(|read_plan| read_plan.at < read_plan.end())
    }

    /// A walk over the pages `range` of a part. Where a plan leads, a policy is not asked, also if it is one that is asked as
    /// readers walk.
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

    /// Decides for a page that is missing or bears a mark, if the handle has a plan that leads there; tells whether it has.
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
                self.look_behind(walk.file, &mut read_plan, position);
                self.go_on(&mut read_plan, walk, page, trigger, sink);
            }
            // One of those that it had left out.
            (Some(_), _) => {}
            (None, Trigger::Miss) => {
                read_plan.away += 1;
                if read_plan.away == AWAY_MAX {
                    self.call_back(walk.file, &mut read_plan, sink);
                }
            }
            (None, _) => {}
        }
        self.keep_plan(walk.handle, read_plan);
        position.is_some()
    }

    /// A reader has come to a page that is on its way as readahead and bears no mark: if that is so because of its plan, it
    /// should have been asked for sooner.
    pub(super) fn wait_by_plan(&mut self, walk: &mut Walk, page: PageIndex, sink: &mut impl Sink) {
        let Some(mut read_plan) = self.handle_mut(walk.handle).read_plan.take() else { return };
        if let Some(position) = read_plan.find(page)
            && position >= read_plan.at
        {
            read_plan.waited = true;
            read_plan.go_to(position);
            self.go_on(&mut read_plan, walk, page, Trigger::Mark, sink);
        }
        self.keep_plan(walk.handle, read_plan);
    }

    /// Whether a page of a handle with a plan is on its way as readahead.
    pub(super) fn is_awaited_by_plan(&self, walk: &Walk, fill: u64) -> bool {
        self.handle(walk.handle).read_plan.is_some()
            && self.fills.get(fill).is_some_and(|fill| fill.urgency == Urgency::Readahead)
    }

    /// The handle closes, or has another plan.
    pub(super) fn drop_plan(&mut self, file: FileId, read_plan: &mut ReadPlan, out: &mut Vec<Action>) {
        self.call_back(file, read_plan, out);
        self.itineraries -= u32::from(read_plan.shares);
    }

    /// The plan that another handle is to have as this one does.
    pub(super) fn copy_plan(&mut self, from: HandleId, to: HandleId) -> Option<Box<ReadPlan>> {
        let copy = self.handle(from).read_plan.clone();
        let before = self.handle(to).read_plan.as_ref().is_some_and(|read_plan| read_plan.shares);
        self.itineraries -= u32::from(before);
        self.itineraries += u32::from(copy.as_ref().is_some_and(|read_plan| read_plan.shares));
        copy
    }

    fn keep_plan(&mut self, handle: HandleId, mut read_plan: Box<ReadPlan>) {
        let shares = read_plan.edge < read_plan.end();
        self.itineraries += u32::from(shares);
        self.itineraries -= u32::from(read_plan.shares);
        read_plan.shares = shares;
        self.handle_mut(handle).read_plan = Some(read_plan);
    }

    /// A page that the plan leads to is not there.
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
            // It was there, or on its way, and is gone: too much was read ahead for the memory there is.
            read_plan.distance = (read_plan.distance / 2).max(self.part_of(read_plan));
            read_plan.grown_at = read_plan.edge;
        } else {
            // It has come to the end of what was read ahead.
            read_plan.waited |= position == read_plan.edge && read_plan.ahead() > 0;
        }
        read_plan.go_to(position);
        self.look_behind(walk.file, read_plan, position);
        let wanted = walk.request().end - page;
        let plan = Plan::new(page, wanted.0, 0, Reason::Planned);
        self.carry_out(walk, page, Trigger::Miss, &plan, sink);
        let rest = read_plan.pages_from(position).map_or(0, |pages| pages.count().0);
        read_plan.begin_at(position + wanted.0.min(rest));
        self.go_on(read_plan, walk, page, Trigger::Miss, sink);
    }

    /// Reads ahead, if the device takes readahead now, and further ahead if the reader had to wait.
    fn go_on(
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

    /// Reads as much of the plan ahead as may be.
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
        // In parts, as long as there is something on its way.
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
            read_plan.went(start, missing);
            self.carry_out(walk, page, trigger, &plan, sink);
        }
    }

    /// Pages that are there at the start of `pages`, and behind them those that are not, no more than `most`.
    fn next_missing(&self, file: FileId, pages: PageRange, most: u64) -> (u64, u64) {
        let is_cached = |page: u64| self.table.get(file, PageIndex(page)).frame().is_some();
        let (start, end) = (pages.start.0, pages.end.0);
        let first = (start..end).find(|&page| !is_cached(page)).unwrap_or(end);
        let stop = end.min(first.saturating_add(most));
        let last = (first..stop).find(|&page| is_cached(page)).unwrap_or(stop);
        (first - start, last - first)
    }

    /// Pages of a part.
    fn part_of(&self, read_plan: &ReadPlan) -> u64 {
        let window = u64::from(self.config.ra_pages);
        (read_plan.distance / PARTS).clamp((window / PART_WINDOWS).max(1), window * PART_WINDOWS)
    }

    /// Frames that pages read once go through.
    fn cold(&self) -> u64 {
        u64::from(self.limit.saturating_sub(self.frames.active_len()))
    }

    /// Most pages that one plan may have ahead of its reader.
    fn plan_share(&self) -> u64 {
        let of_all = self.cold() / TOGETHER / u64::from(self.itineraries.max(1));
        of_all.min(u64::from(self.limit) / ALONE).min(self.config.stream.distance_pages_max).max(1)
    }

    /// Counts what was read ahead for a plan and not used, up to a distance behind a position: who has not come by now does
    /// not come.
    fn look_behind(&mut self, file: FileId, read_plan: &mut ReadPlan, position: u64) {
        let position = position.saturating_sub(read_plan.distance);
        self.count_given_up(file, &read_plan.look_behind(position));
    }

    fn count_given_up(&mut self, file: FileId, ranges: &[PageRange]) {
        let pages = ranges.iter().flat_map(|range| range.start.0..range.end.0);
        let abandoned = pages.filter(|&page| {
            let frame = self.table.get(file, PageIndex(page)).frame().map(|frame| self.frames.get(frame));
            frame.is_some_and(|frame| frame.has(Flag::Planned) && frame.has(Flag::Unused))
        });
        let abandoned = abandoned.count() as u64;
        self.stats_mut(file).pages_abandoned += abandoned;
    }

    /// What is on its way for a plan and nobody waits for is not wanted, for now at least.
    fn call_back(&mut self, file: FileId, read_plan: &mut ReadPlan, sink: &mut impl Sink) {
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
        let seen = read_plan.look_behind(read_plan.edge.max(read_plan.at));
        self.count_given_up(file, &seen);
        read_plan.begin_at(read_plan.at.min(read_plan.edge));
    }
}
