//! An access that is not a plain hit: processed page by page, as in figure 4 of the OLS paper of
//! 2007.

use alloc::vec::Vec;

use super::access::clip_to_file;
use super::frames::{Flag, State};
use super::plan::{Run, Sink};
use super::{Cache, HANDLES, Handle, StarvedRead, Wait};
use crate::event::{Action, Decision, FillError, Trigger, Urgency};
use crate::id::{FileId, FillId, FrameId, HandleId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Access, Plan, Plans, Pressure, Readahead, Reason, View, WasteCounts, Weighed};
use crate::request::{Part, Pattern, Request};
use crate::time::Instant;

/// The state of a walk over the pages of an access.
pub(super) struct Walk {
    pub(super) handle: HandleId,
    pub(super) file: FileId,
    /// First page of the request as made.
    first: PageIndex,
    /// Pages of it; may reach past the end of the file.
    req_pages: PageCount,
    /// Whether the request ends inside its last page.
    pub(super) ends_inside: bool,
    /// The part within the file.
    pub(super) range: PageRange,
    /// Pages of `range` that still need a frame.
    pub(super) demand_left: u64,
    /// Next page at which a policy that runs on every access is called.
    pub(super) next: PageIndex,
    /// For a fault: the advice of its mapping.
    pub(super) mapped: Option<Pattern>,
    /// Whether the policy runs on every access.
    pub(super) walks: bool,
}

impl Cache {
    /// Frames are no longer in use; each is given as often as a hit or a wake handed it out.
    ///
    /// # Panics
    /// If a frame is not pinned.
    pub fn unpin(&mut self, now: Instant, frames: &[FrameId], out: &mut Vec<Action>) {
        self.tick(now);
        self.drop_pins(frames.iter().copied());
        self.retry_starved(out);
    }

    /// A spent frame lost its last pin.
    #[cold]
    fn unpinned(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id);
        if frame.state == State::Doomed {
            self.frames.free(id);
        } else if frame.take(Flag::Spent) && frame.state == State::Inactive {
            self.frames.move_to_tail(id);
        }
    }

    /// Lets reads that wait for frames try again, oldest first, and then writes.
    pub(super) fn retry_starved(&mut self, out: &mut Vec<Action>) {
        while let Some(&read) = self.starved.front() {
            if !self.start_read(read, out) {
                break;
            }
            self.starved.pop_front();
        }
        self.wake_writers(out);
    }

    pub(super) fn drop_pins(&mut self, frames: impl IntoIterator<Item = FrameId>) {
        let mut frames = frames.into_iter();
        // Usually no frame is spent.
        while let Some(spent) = frames.by_ref().find(|&frame| self.frames.unpin(frame)) {
            self.unpinned(spent);
        }
    }

    /// Starts a read that is not a plain hit; returns whether there were enough frames. A read that
    /// holds pins never waits for frames, so two reads cannot wait for each other.
    pub(super) fn start_read(&mut self, read: StarvedRead, out: &mut Vec<Action>) -> bool {
        let StarvedRead { waiter, access } = read;
        let part = access.part;
        let file = self.handle(part.handle).file;
        let range = clip_to_file(part.pages, self.file(file).pages);
        if range.count().0 > u64::from(self.limit) {
            out.push(Action::Wake { waiter, result: Err(FillError::TOO_LARGE) });
            return true;
        }
        let mut present = Vec::new();
        let mut walk = self.walk_of(part, range);
        walk.mapped = access.mapped;
        if !self.set_out(&mut walk, &mut present) {
            return false;
        }
        let frames = Vec::with_capacity(present.len());
        let wait = self.waits.insert_keyed(Wait { waiter, file, range, frames, pending: 0, error: None });
        self.walk(&mut walk, &mut present, &mut Waiting { wait, out });
        self.awaited += range.count().0;
        self.finish_wait(wait, out);
        true
    }

    /// Begins a walk: pins the cached pages; `present` gets an entry for each page. If there are
    /// too few frames for the missing pages, changes nothing and returns `false`.
    pub(super) fn set_out(&mut self, walk: &mut Walk, present: &mut Vec<Option<FrameId>>) -> bool {
        present.clear();
        // At most the number of frames.
        present.reserve(walk.range.count().0 as usize);
        let mut absent = 0;
        for page in (walk.range.start.0..walk.range.end.0).map(PageIndex) {
            let frame = self.table.get(walk.file, page).frame();
            match frame {
                Some(frame) => self.frames.pin(frame),
                None => absent += 1,
            }
            present.push(frame);
        }
        if self.available() < absent {
            self.drop_pins(present.drain(..).flatten());
            return false;
        }
        walk.demand_left = absent;
        true
    }

    /// Walks over the pages of a request; afterwards `present` has all their frames, pinned.
    pub(super) fn walk(&mut self, walk: &mut Walk, present: &mut [Option<FrameId>], sink: &mut impl Sink) {
        let touches = self.touches(walk.handle, walk.first, walk.range);
        for (place, page) in present.iter_mut().zip(walk.range.start.0..) {
            let page = PageIndex(page);
            if page == walk.next {
                let missing = self.table.get(walk.file, page).frame().is_none();
                self.ask(walk, page, missing, sink);
            }
            let frame = self.visit(walk, page, *place, sink);
            if touches.contains(page) {
                self.touch(frame);
            }
            *place = Some(frame);
            sink.reached(self, frame);
        }
        match walk.mapped {
            None => {
                let Walk { handle, ends_inside, .. } = *walk;
                self.handle_mut(handle).next = walk.next;
                let request = Request { range: walk.request(), ends_inside };
                self.walked(Part { handle, request, pages: walk.range }, walk.range);
            }
            Some(_) if walk.range.is_empty() => {}
            Some(_) => self.handle_mut(walk.handle).prev_fault = Some(walk.range.start),
        }
    }

    /// One step of the walk: decide on a miss, then on a mark. `present` is the page's pinned frame
    /// if it was cached when the walk began. Returns the page's frame, pinned.
    fn visit(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        present: Option<FrameId>,
        sink: &mut impl Sink,
    ) -> FrameId {
        let mut waits = false;
        let frame = if let Some(frame) = present {
            let in_flight = self.frames.get(frame).state == State::InFlight;
            waits = in_flight && self.is_awaited_by_plan(walk, self.frames.fill_of(frame));
            if walk.mapped.is_some() && self.handle(walk.handle).capabilities.found {
                let (access, view, policy, plans) =
                    self.policy_call(walk, page, Trigger::Found { in_flight });
                policy.on_access(access, view, plans);
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
                // Read by a decision at an earlier page of this walk.
                Some(frame) => frame,
                None => self.miss(walk, page, sink),
            };
            self.frames.pin(frame);
            frame
        };
        // A fault with random advice leaves marks to other readers.
        if walk.mapped != Some(Pattern::Random) && self.frames.get_mut(frame).take(Flag::Mark) {
            self.decide(walk, page, Trigger::Mark, sink);
        }
        if waits {
            self.wait_by_plan(walk, page, sink);
        }
        frame
    }

    /// Reads a missing page; the policy decides what else to read.
    fn miss(&mut self, walk: &mut Walk, page: PageIndex, sink: &mut impl Sink) -> FrameId {
        self.decide(walk, page, Trigger::Miss, sink);
        // Linux looks up the page again after the decision, except with policies called before the
        // lookup.
        let walks = self.handle(walk.handle).capabilities.every_access;
        self.stats_mut(walk.file).lookups_extra += u64::from(!walks);
        if let Some(frame) = self.table.get(walk.file, page).frame() {
            return frame;
        }
        let plan = Plan::new(page, 1, 0, Reason::Demand);
        self.apply_plan(walk, page, Trigger::Miss, &plan, sink);
        self.table
            .get(walk.file, page)
            .frame()
            .expect("frames for all missing pages were set aside before the walk")
    }

    fn decide(&mut self, walk: &mut Walk, page: PageIndex, trigger: Trigger, sink: &mut impl Sink) {
        let Handle { pattern, capabilities, ref read_plan, .. } = *self.handle(walk.handle);
        if read_plan.is_some() && self.decide_by_plan(walk, page, trigger, sink) {
            return;
        }
        // For a policy that runs on every access, this only reports the miss.
        self.stats_mut(walk.file).policy_calls += u64::from(!capabilities.every_access);
        if trigger == Trigger::Mark && self.congested {
            let plan = Plan::new(page, 0, 0, Reason::Deferred);
            self.apply_plan(walk, page, trigger, &plan, sink);
            return;
        }
        let random = pattern == Pattern::Random && !capabilities.every_access;
        if random && !capabilities.advice && walk.mapped.is_none() {
            if trigger == Trigger::Miss {
                let plan = Plan::new(page, (walk.request().end - page).0, 0, Reason::Forced);
                self.apply_plan(walk, page, trigger, &plan, sink);
            }
            return;
        }
        let (access, view, policy, plans) = self.policy_call(walk, page, trigger);
        policy.on_access(access, view, plans);
        let (list, (before, now)) = (plans.take_list(), plans.reached);
        if let Some(weighed) = &mut plans.weighed {
            sink.weighed(core::mem::take(weighed));
        }
        self.file_requests.count(before, now);
        // Under random advice a fault reads its own window alone.
        let most = if random { 1 } else { list.len() };
        for plan in list.iter().take(most) {
            self.apply_plan(walk, page, trigger, plan, sink);
        }
        self.plans.give_back(list);
    }

    /// Calls a policy that runs on every access, before a page is looked up.
    pub(super) fn ask(&mut self, walk: &mut Walk, page: PageIndex, missing: bool, sink: &mut impl Sink) {
        self.stats_mut(walk.file).policy_calls += 1;
        let frame = self.table.get(walk.file, page).frame();
        let fresh = frame.is_some_and(|frame| self.frames.get_mut(frame).take(Flag::Fresh));
        let (access, view, policy, plans) = self.policy_call(walk, page, Trigger::Lookup { missing, fresh });
        policy.on_access(access, view, plans);
        walk.next = plans.next;
        let list = plans.take_list();
        let trigger = if missing { Trigger::Miss } else { Trigger::Mark };
        for plan in &list {
            self.apply_plan(walk, page, trigger, plan, sink);
        }
        self.plans.give_back(list);
        if self.plans.has_noted() {
            let file = self.files[walk.file.0 as usize].as_mut().expect("a handle's file is open");
            self.plans.count(&mut file.stats.counters);
        }
    }

    /// The arguments of a policy's call for a page, the policy, and the buffer of its plans.
    // Inlined: otherwise the arguments go through memory.
    #[inline(always)]
    pub(super) fn policy_call(
        &mut self,
        walk: &Walk,
        page: PageIndex,
        trigger: Trigger,
    ) -> (Access, View<'_>, &mut dyn Readahead, &mut Plans) {
        let free = self.readahead_allowance(walk.demand_left);
        let file = self.files[walk.file.0 as usize].as_mut().expect("a handle's file is open");
        let history = file.history.as_deref();
        let (pages, waste) = (file.pages, WasteCounts::of(&file.stats));
        let handle = self.handles[walk.handle.0 as usize].as_mut().expect(HANDLES);
        let ra_pages = u64::from(self.config.ra_pages)
            * match handle.pattern {
                // Such a policy runs despite random advice, so it must see the advice.
                Pattern::Random if handle.capabilities.every_access => 0,
                _ if handle.wide => 2,
                _ => 1,
            };
        let prev_page = match walk.mapped {
            None => handle.prev.map(|prev| PageIndex(prev.range.end.0 - 1)),
            Some(_) => handle.prev_fault,
        };
        let access = Access {
            now: self.now,
            handle: walk.handle,
            page,
            request: walk.request(),
            prev_page,
            prev_end: handle.prev.map(|prev| PageIndex(prev.range.end.0 - u64::from(prev.ends_inside))),
            trigger,
            random: handle.pattern == Pattern::Random,
            mapped: walk.mapped,
        };
        let pressure = Pressure {
            evictions: self.reclaim.clock,
            cold: u64::from(self.limit.saturating_sub(self.frames.active_len())),
            unread: self.frames.unused().into(),
            awaited: self.awaited,
        };
        self.costs.waiting = self.waits.len() as u64;
        let view = View {
            table: &self.table,
            frames_of: &self.frames,
            file: walk.file,
            stats: Some(&file.stats),
            history,
            file_requests: &self.file_requests,
            waste,
            pressure,
            ra_pages,
            la_size: self.config.la_size,
            file_pages: pages,
            free,
            frames: self.limit.into(),
            congested: self.congested,
            costs: &self.costs,
        };
        let policy = handle.policy.as_mut().or(file.policy.as_mut());
        self.plans.clear();
        let policy = &mut **policy.expect("a handle has a readahead state, or its file has");
        (access, view, policy, &mut self.plans)
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
            fill.overtaken = Some(self.now);
            let file = fill.file;
            out.push(Action::Promote { fill: FillId(fill_id) });
            self.stats_mut(file).fills_promoted += 1;
        }
    }

    /// Records the position of a handle at the last part of a request, and drops pages behind it if
    /// advised. `range` is the part within the file.
    // Inlined: otherwise the request goes through memory.
    #[inline(always)]
    pub(super) fn walked(&mut self, part: Part, mut range: PageRange) {
        if !part.is_whole() {
            range = clip_to_file(part.request.range, self.file(self.handle(part.handle).file).pages);
            if part.pages.end < range.end {
                return;
            }
        }
        if range.is_empty() {
            return;
        }
        if self.handle(part.handle).no_reuse {
            self.drop_behind(part.handle, range);
        }
        self.handle_mut(part.handle).prev = Some(Request { range, ends_inside: part.request.ends_inside });
    }

    /// Drops the pages of the handle's last read that this read does not include.
    #[cold]
    fn drop_behind(&mut self, handle: HandleId, range: PageRange) {
        let &Handle { file, prev, .. } = self.handle(handle);
        let behind = prev.unwrap_or_default().range;
        for page in (behind.start.0..behind.end.0).map(PageIndex).filter(|&page| !range.contains(page)) {
            self.drop_idle(file, page);
        }
    }
}

/// A read that waits for its missing pages.
struct Waiting<'a> {
    wait: u64,
    out: &'a mut Vec<Action>,
}

impl Sink for Waiting<'_> {
    fn begin(&mut self, decision: &Decision) -> usize {
        self.out.begin(decision)
    }

    fn end(&mut self, place: usize, decision: &Decision) {
        self.out.end(place, decision);
    }

    fn fill(&mut self, cache: &mut Cache, file: FileId, run: &Run, urgency: Urgency) {
        self.out.fill(cache, file, run, urgency);
    }

    fn weighed(&mut self, weighed: Weighed) {
        self.out.weighed(weighed);
    }

    fn cancel(&mut self, fill: FillId) {
        self.out.cancel(fill);
    }

    fn reached(&mut self, cache: &mut Cache, frame: FrameId) {
        cache.await_frame(self.wait, frame, self.out);
    }
}

impl Walk {
    /// The request as made; may reach past the end of the file.
    // Computed from the size: copying both ends directly after separate stores would stall.
    pub(super) fn request(&self) -> PageRange {
        PageRange::from_start(self.first, self.req_pages)
    }

    /// A walk over the pages `range` of a part.
    pub(super) fn new(part: Part, handle: &Handle, range: PageRange) -> Self {
        let next = match (handle.capabilities.every_access, part.is_first()) {
            (false, _) => PageIndex(u64::MAX),
            (true, true) => range.start,
            (true, false) => handle.next,
        };
        let Request { range: request, ends_inside } = part.request;
        Self {
            handle: part.handle,
            file: handle.file,
            first: request.start,
            req_pages: request.count(),
            ends_inside,
            range,
            demand_left: 0,
            next,
            mapped: None,
            walks: handle.capabilities.every_access,
        }
    }
}
