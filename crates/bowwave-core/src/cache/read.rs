//! A demand read: served at once if all is there, else walked page by page as figure 4 of paper 002 does.

use alloc::vec::Vec;

use super::frames::{Flag, State};
use super::table::LEAF_PAGES;
use super::{Cache, Handle, StarvedRead, Wait};
use crate::event::{Action, FillError, ReadOutcome, Trigger, Urgency};
use crate::id::{FileId, FillId, FrameId, HandleId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Access, Plan, Plans, Readahead, Reason, View};
use crate::request::{Pattern, Request};
use crate::time::Instant;

/// What a walk knows about itself.
pub(super) struct Walk {
    pub(super) handle: HandleId,
    pub(super) file: FileId,
    /// The request as made; may reach past the end of the file.
    pub(super) request: PageRange,
    /// The part within the file.
    pub(super) range: PageRange,
    /// Pages of `range` that still need a frame.
    pub(super) demand_left: u64,
    /// Where a walking policy is asked next.
    pub(super) next: PageIndex,
    /// It is a fault of one page, of a mapping so advised.
    pub(super) mapped: Option<Pattern>,
}

impl Cache {
    /// A demand read, the hot part of [`step`](Self::step).
    ///
    /// On a hit `frames` holds the pinned frames of the pages within the file, in order; there are actions only if the
    /// policy is asked as the reader walks. After [`ReadOutcome::Wait`]
    /// exactly one [`Action::Wake`] follows, perhaps among this call's actions. No more is read than the file has.
    ///
    /// The read fails with [`FillError::TOO_LARGE`] if it wants more pages than the cache has frames; it never fails
    /// because frames are taken, but waits in line for them.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn read(
        &mut self,
        now: Instant,
        waiter: Waiter,
        handle: HandleId,
        request: impl Into<Request>,
        frames: &mut Vec<FrameId>,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        self.tick(now);
        let request = request.into();
        if self.hit(handle, request, frames) || self.walk_over_hit(handle, request, frames, out) {
            return ReadOutcome::Hit;
        }
        self.read_or_queue(StarvedRead { waiter, handle, request, mapped: None }, out);
        ReadOutcome::Wait
    }

    /// Counts a read that is not a plain hit, and starts it or puts it in line.
    pub(super) fn read_or_queue(&mut self, read: StarvedRead, out: &mut Vec<Action>) {
        let file = self.handle(read.handle).file;
        let entry = self.file_mut(file);
        let count = clip_to_file(read.request.range, entry.pages).count().0;
        entry.stats.reads += 1;
        entry.stats.accesses += count;
        self.accesses += count;
        if !self.starved.is_empty() || !self.start_read(read, out) {
            self.stats_mut(file).reads_starved += 1;
            self.starved.push_back(read);
        }
    }

    /// The part of [`read`](Self::read) that needs no time, decides nothing and answers nothing: pins the pages of a
    /// request if all are up to date and unmarked, and tells whether they are. If not, nothing has happened. Never for a
    /// policy that is asked as the reader walks.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn hit(&mut self, handle: HandleId, request: impl Into<Request>, frames: &mut Vec<FrameId>) -> bool {
        if self.handle(handle).walks {
            return false;
        }
        let request = request.into();
        let hit = self.pin_all(handle, request.range, frames);
        hit.is_some_and(|range| {
            self.walked(handle, Request { range, ..request });
            true
        })
    }

    /// A read of which everything is there, with the policy asked on the way.
    fn walk_over_hit(
        &mut self,
        handle: HandleId,
        request: Request,
        frames: &mut Vec<FrameId>,
        out: &mut Vec<Action>,
    ) -> bool {
        // Reads wait for frames: readahead must not take the next ones, so this one gets in line.
        if !self.handle(handle).walks || !self.starved.is_empty() {
            return false;
        }
        let Some(range) = self.pin_all(handle, request.range, frames) else { return false };
        let mut walk = Walk::new(handle, self.handle(handle), request.range, range, 0);
        let mut at = range.start;
        while range.contains(at) {
            self.ask(&mut walk, at, Trigger::Mark, out);
            if walk.next <= at {
                break;
            }
            at = walk.next;
        }
        self.walked(handle, Request { range, ..request });
        true
    }

    /// Pins, counts and touches the pages of a request, if all are up to date and unmarked; which they are.
    fn pin_all(
        &mut self,
        handle: HandleId,
        request: PageRange,
        frames: &mut Vec<FrameId>,
    ) -> Option<PageRange> {
        frames.clear();
        let Handle { file, prev, no_reuse, .. } = *self.handle(handle);
        let range = clip_to_file(request, self.file(file).pages);
        if !self.collect_hits(file, range, frames) {
            return None;
        }
        let stats = &mut self.file_mut(file).stats;
        stats.reads += 1;
        stats.accesses += range.count().0;
        stats.hits += range.count().0;
        self.accesses += range.count().0;
        let shared = shared_page(prev, range);
        for (&frame, page) in frames.iter().zip(range.start.0..) {
            let is_touch = !no_reuse && shared != Some(PageIndex(page));
            if self.frames.pin_hit(frame) && is_touch {
                self.touch(frame);
            }
        }
        Some(range)
    }

    /// Frames are no longer in use; each is given as often as a hit or a wake handed it out.
    ///
    /// # Panics
    /// If a frame is not pinned.
    pub fn unpin(&mut self, now: Instant, frames: &[FrameId], out: &mut Vec<Action>) {
        self.tick(now);
        self.drop_pins(frames);
        self.retry_starved(out);
    }

    /// Lets reads that wait for frames try again, oldest first.
    pub(super) fn retry_starved(&mut self, out: &mut Vec<Action>) {
        while let Some(&read) = self.starved.front() {
            if !self.start_read(read, out) {
                break;
            }
            self.starved.pop_front();
        }
    }

    pub(super) fn drop_pins(&mut self, frames: &[FrameId]) {
        for &frame in frames {
            if self.frames.unpin(frame) && self.frames.get(frame).state == State::Doomed {
                self.frames.free(frame);
            }
        }
    }

    /// Appends the frames of a range if each page is up to date and unmarked; tells whether they are.
    fn collect_hits(&self, file: FileId, range: PageRange, frames: &mut Vec<FrameId>) -> bool {
        let mut page = range.start.0;
        while page < range.end.0 {
            let Some(slots) = self.table.leaf(file, PageIndex(page)) else { return false };
            let leaf_start = page - page % LEAF_PAGES;
            let end = range.end.0.min(leaf_start + LEAF_PAGES);
            // Both are offsets within a leaf.
            for slot in &slots[(page - leaf_start) as usize..(end - leaf_start) as usize] {
                match slot.frame() {
                    Some(frame) if self.frames.get(frame).is_plain_hit() => frames.push(frame),
                    _ => return false,
                }
            }
            page = end;
        }
        true
    }

    /// Starts a read that is not a plain hit; tells whether there were frames enough. All or nothing: a read that holds
    /// pins never waits for frames, so two reads cannot wait for each other.
    fn start_read(&mut self, read: StarvedRead, out: &mut Vec<Action>) -> bool {
        let StarvedRead { waiter, handle, request, mapped } = read;
        let file = self.handle(handle).file;
        let range = clip_to_file(request.range, self.file(file).pages);
        if range.count().0 > u64::from(self.limit) {
            out.push(Action::Wake { waiter, result: Err(FillError::TOO_LARGE) });
            return true;
        }
        let present: Vec<Option<FrameId>> =
            (range.start.0..range.end.0).map(|page| self.table.get(file, PageIndex(page)).frame()).collect();
        present.iter().flatten().for_each(|&frame| self.frames.pin(frame));
        let absent = present.iter().filter(|frame| frame.is_none()).count() as u64;
        if self.available() < absent {
            let pinned: Vec<FrameId> = present.into_iter().flatten().collect();
            self.drop_pins(&pinned);
            return false;
        }
        let mut walk =
            Walk { mapped, ..Walk::new(handle, self.handle(handle), request.range, range, absent) };
        let frames = Vec::with_capacity(present.len());
        let wait = self.waits.insert(Wait { waiter, file, range, frames, pending: 0, error: None });
        let Handle { prev, no_reuse, .. } = *self.handle(handle);
        let shared = shared_page(prev, range);
        for (frame, page) in present.into_iter().zip(range.start.0..) {
            let page = PageIndex(page);
            if page == walk.next {
                let cached = self.table.get(file, page).frame().is_some();
                self.ask(&mut walk, page, if cached { Trigger::Mark } else { Trigger::Miss }, out);
            }
            let frame = self.visit(&mut walk, page, frame, out);
            if !no_reuse && shared != Some(page) {
                self.touch(frame);
            }
            self.await_frame(wait, frame, out);
        }
        match mapped {
            None => self.walked(handle, Request { range, ..request }),
            Some(_) if range.is_empty() => {}
            Some(_) => self.handle_mut(handle).prev_fault = Some(range.start),
        }
        self.finish_wait(wait, out);
        true
    }

    /// One step of the walk: decide on a miss, then on a mark. `present` is the page's frame, pinned, if it was there
    /// when the walk began. Returns the page's frame, pinned.
    fn visit(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        present: Option<FrameId>,
        out: &mut Vec<Action>,
    ) -> FrameId {
        let frame = if let Some(frame) = present {
            let in_flight = self.frames.get(frame).state == State::InFlight;
            if let Some(pattern) = walk.mapped {
                self.handle_mut(walk.handle).policy.on_mapped_hit(pattern, in_flight);
            }
            let stats = self.stats_mut(walk.file);
            if in_flight {
                stats.late += 1
            } else {
                stats.hits += 1
            }
            frame
        } else {
            self.stats_mut(walk.file).misses += 1;
            let frame = match self.table.get(walk.file, page).frame() {
                // A decision at an earlier page of this walk has brought it in.
                Some(frame) => frame,
                None => self.miss(walk, page, out),
            };
            self.frames.pin(frame);
            frame
        };
        // A fault in a mapping advised to be random leaves marks for others.
        if walk.mapped != Some(Pattern::Random) && self.frames.get_mut(frame).take(Flag::Mark) {
            self.decide(walk, page, Trigger::Mark, out);
        }
        frame
    }

    /// Brings in a page that is not there; the policy decides what else.
    fn miss(&mut self, walk: &mut Walk, page: PageIndex, out: &mut Vec<Action>) -> FrameId {
        self.decide(walk, page, Trigger::Miss, out);
        // What on-demand readahead costs more: the page is looked up again. A walking policy was asked before the look-up.
        let walks = self.handle(walk.handle).walks;
        self.stats_mut(walk.file).lookups_more += u64::from(!walks);
        if let Some(frame) = self.table.get(walk.file, page).frame() {
            return frame;
        }
        let plan = Plan::new(page, 1, 0, Reason::Demand);
        self.carry_out(walk, page, Trigger::Miss, plan, out);
        self.table
            .get(walk.file, page)
            .frame()
            .expect("frames for all missing pages were set aside before the walk")
    }

    fn decide(&mut self, walk: &mut Walk, page: PageIndex, trigger: Trigger, out: &mut Vec<Action>) {
        let Handle { pattern, walks, .. } = *self.handle(walk.handle);
        // A walking policy is only told of misses here.
        self.stats_mut(walk.file).policy_calls += u64::from(!walks);
        if trigger == Trigger::Mark && self.congested {
            let plan = Plan::new(page, 0, 0, Reason::Deferred);
            self.carry_out(walk, page, trigger, plan, out);
            return;
        }
        let random = pattern == Pattern::Random && walk.mapped.is_none() && !walks;
        let (access, view, policy) = self.question(walk, page, trigger);
        let plan = if random { policy.on_random(access, view) } else { Some(policy.on_access(access, view)) };
        if let Some(plan) = plan {
            self.carry_out(walk, page, trigger, plan, out);
        }
    }

    /// Asks a walking policy before a page is looked up.
    fn ask(&mut self, walk: &mut Walk, page: PageIndex, trigger: Trigger, out: &mut Vec<Action>) {
        self.stats_mut(walk.file).policy_calls += 1;
        let (access, view, policy) = self.question(walk, page, trigger);
        let mut plans = Plans::default();
        walk.next = policy.on_walk(access, view, &mut plans);
        for plan in plans.iter() {
            self.carry_out(walk, page, trigger, plan, out);
        }
    }

    /// What a policy is asked about a page, and the policy.
    pub(super) fn question(
        &mut self,
        walk: &Walk,
        page: PageIndex,
        trigger: Trigger,
    ) -> (Access, View<'_>, &mut dyn Readahead) {
        let free = self.readahead_allowance(walk.demand_left);
        let pages = self.file(walk.file).pages;
        let handle =
            self.handles[walk.handle.0 as usize].as_mut().expect("the driver names open handles only");
        let ra_pages = u64::from(self.config.ra_pages)
            * match handle.pattern {
                Pattern::Sequential => 2,
                // A walking policy is asked all the same, so it must be told.
                Pattern::Random if handle.walks => 0,
                Pattern::Normal | Pattern::Random => 1,
            };
        let prev_page = match walk.mapped {
            None => handle.prev.map(|prev| PageIndex(prev.range.end.0 - 1)),
            Some(_) => handle.prev_fault,
        };
        let access = Access {
            now: self.now,
            page,
            request: walk.request,
            prev_page,
            prev_end: handle.prev.map(|prev| PageIndex(prev.range.end.0 - u64::from(prev.ends_inside))),
            trigger,
            mapped: walk.mapped,
        };
        let view = View::new(&self.table, walk.file, ra_pages, pages, free, self.congested);
        (access, view, &mut *handle.policy)
    }

    /// Hands a pinned frame to a waiting read, and makes the read wait for its fill if it has one.
    fn await_frame(&mut self, wait: u64, frame: FrameId, out: &mut Vec<Action>) {
        let entry = self.waits.get_mut(wait).expect("the wait ends after the walk");
        entry.frames.push(frame);
        if self.frames.get(frame).state != State::InFlight {
            return;
        }
        let fill_id = self.frames.fill_of(frame);
        let fill = self.fills.get_mut(fill_id).expect("a frame in flight has a fill");
        if fill.waits.last() != Some(&wait) {
            fill.waits.push(wait);
            entry.pending += 1;
        }
        if fill.urgency == Urgency::Readahead {
            fill.urgency = Urgency::Demand;
            let file = fill.file;
            out.push(Action::Promote { fill: FillId(fill_id) });
            self.stats_mut(file).fills_promoted += 1;
        }
    }

    /// Notes where a handle has been; drops what is behind it, if advised to.
    fn walked(&mut self, handle: HandleId, walked: Request) {
        let range = walked.range;
        if range.is_empty() {
            return;
        }
        let entry = self.handle_mut(handle);
        let behind = entry.prev.replace(walked).filter(|_| entry.no_reuse);
        let file = entry.file;
        if let Some(Request { range: behind, .. }) = behind {
            for page in (behind.start.0..behind.end.0).map(PageIndex).filter(|&page| !range.contains(page)) {
                self.drop_idle(file, page);
            }
        }
    }

    /// Counts a use of a page, as Linux's `mark_page_accessed`: the second one makes it active.
    fn touch(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id);
        let (file, used, thrashed) = (frame.file, frame.take(Flag::Unused), frame.take(Flag::Thrashed));
        match (frame.state, frame.has(Flag::Referenced)) {
            (State::Inactive, true) => {
                frame.take(Flag::Referenced);
                self.activate(id);
            }
            (State::InFlight, true) => frame.set(Flag::Activate),
            _ => frame.set(Flag::Referenced),
        }
        if used {
            let stats = self.stats_mut(file);
            stats.pages_used += 1;
            stats.pages_thrashed += u64::from(thrashed);
        }
    }
}

impl Walk {
    /// A walk over the pages `range` of a request, `demand_left` of them absent.
    fn new(id: HandleId, handle: &Handle, request: PageRange, range: PageRange, demand_left: u64) -> Self {
        let next = if handle.walks { range.start } else { PageIndex(u64::MAX) };
        Self { handle: id, file: handle.file, request, range, demand_left, next, mapped: None }
    }
}

/// The page that a read shares with the one before, if it starts on the one where that ended: reads smaller than a page
/// count as one touch.
fn shared_page(prev: Option<Request>, range: PageRange) -> Option<PageIndex> {
    prev.map(|prev| PageIndex(prev.range.end.0 - 1)).filter(|&page| page == range.start)
}

/// The part of a request that lies within a file; empty at the end of the file if none does.
fn clip_to_file(request: PageRange, pages: PageCount) -> PageRange {
    let end = PageIndex(pages.0);
    PageRange { start: request.start.min(end), end: request.end.min(end) }
}
