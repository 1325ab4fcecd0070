//! A demand read: served at once if all is there, else walked page by page as figure 4 of paper 002 does.

use alloc::vec::Vec;

use super::frames::{Flag, State};
use super::plan::{Run, Sink};
use super::table::LEAF_PAGES;
use super::{Cache, HANDLES, Handle, StarvedRead, Wait};
use crate::config::Eviction;
use crate::event::{Action, Decision, FillError, ReadOutcome, Trigger, Urgency};
use crate::id::{FileId, FillId, FrameId, HandleId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Access, Account, Limits, Plan, Plans, Pressure, Readahead, Reason, View};
use crate::request::{Part, Pattern, Request};
use crate::time::Instant;

/// What a walk knows about itself.
pub(super) struct Walk {
    pub(super) handle: HandleId,
    pub(super) file: FileId,
    /// First page of the request as made.
    first: PageIndex,
    /// Pages of it; may reach past the end of the file.
    req_pages: PageCount,
    /// Whether it ends before its last page does.
    pub(super) ends_inside: bool,
    /// The part within the file.
    pub(super) range: PageRange,
    /// Pages of `range` that still need a frame.
    pub(super) demand_left: u64,
    /// Where a walking policy is asked next.
    pub(super) next: PageIndex,
    /// It is a fault of one page, of a mapping so advised.
    pub(super) mapped: Option<Pattern>,
    /// Whether the policy is asked as the reader walks.
    pub(super) walks: bool,
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
        self.read_part(now, waiter, Part::whole(handle, request.into()), frames, out)
    }

    /// A part of a demand read, for a reader that takes its pages one after the other, as a kernel's buffered read does:
    /// it waits at each page that is not up to date and looks at the next one only then. Policies see the whole
    /// request, and decide at the pages of the part with the cache as it is then.
    ///
    /// Parts of a request come in order and together cover it; other reads through the handle come before or after all
    /// of them. Frames, wakes and errors are those of the part.
    ///
    /// # Panics
    /// If the handle is not open or the part is not within its request.
    pub fn read_part(
        &mut self,
        now: Instant,
        waiter: Waiter,
        part: Part,
        frames: &mut Vec<FrameId>,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        assert!(part.request.range.intersect(part.pages) == part.pages, "{part:?} is outside of its request");
        self.tick(now);
        if self.hit_part(part, frames) || self.walk_over_hit(part, frames, out) {
            return ReadOutcome::Hit;
        }
        self.read_or_queue(StarvedRead { waiter, part, mapped: None }, out);
        ReadOutcome::Wait
    }

    /// Counts a read that is not a plain hit, and starts it or puts it in line.
    pub(super) fn read_or_queue(&mut self, read: StarvedRead, out: &mut Vec<Action>) {
        self.count_read(read.part);
        if !self.starved.is_empty() || !self.start_read(read, out) {
            self.stats_mut(self.handle(read.part.handle).file).reads_starved += 1;
            self.starved.push_back(read);
            self.write_back(out);
        }
    }

    /// The part of [`read`](Self::read) that needs no time, decides nothing and answers nothing: pins the pages of a
    /// request if all are up to date and unmarked, and tells whether they are. If not, nothing has happened. Never for a
    /// policy that is asked as the reader walks.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn hit(&mut self, handle: HandleId, request: impl Into<Request>, frames: &mut Vec<FrameId>) -> bool {
        self.hit_part(Part::whole(handle, request.into()), frames)
    }

    fn hit_part(&mut self, part: Part, frames: &mut Vec<FrameId>) -> bool {
        if self.handle(part.handle).asked.every_access {
            return false;
        }
        let hit = self.pin_all(part, frames);
        hit.is_some_and(|range| {
            self.walked(part, range);
            true
        })
    }

    /// A read of which everything is there, with the policy asked on the way.
    pub(super) fn walk_over_hit(
        &mut self,
        part: Part,
        frames: &mut Vec<FrameId>,
        sink: &mut impl Sink,
    ) -> bool {
        // Reads wait for frames: readahead must not take the next ones, so this one gets in line.
        if !self.handle(part.handle).asked.every_access || !self.starved.is_empty() {
            return false;
        }
        let Some(range) = self.pin_all(part, frames) else { return false };
        let mut walk = self.walk_of(part, range);
        while range.contains(walk.next) {
            let at = walk.next;
            self.ask(&mut walk, at, false, sink);
            if walk.next <= at {
                break;
            }
        }
        self.handle_mut(part.handle).next = walk.next;
        self.walked(part, range);
        true
    }

    /// Pins, counts and touches the pages of a part, if all are up to date and unmarked; which they are.
    fn pin_all(&mut self, part: Part, frames: &mut Vec<FrameId>) -> Option<PageRange> {
        frames.clear();
        let file = self.handle(part.handle).file;
        let range = clip_to_file(part.pages, self.file(file).pages);
        if !self.collect_hits(file, range, frames) {
            return None;
        }
        self.count_hits(part, file, range);
        let touches = self.touches(part.handle, part.request.range.start, range);
        for (&frame, page) in frames.iter().zip(range.start.0..) {
            if self.frames.pin_hit(frame) && touches.contains(PageIndex(page)) {
                self.touch(frame);
            }
        }
        Some(range)
    }

    /// Counts a read of which something may not be there; the pages of it that exist.
    pub(super) fn count_read(&mut self, part: Part) -> PageRange {
        let file = self.handle(part.handle).file;
        let entry = self.file_mut(file);
        let range = clip_to_file(part.pages, entry.pages);
        entry.stats.reads += u64::from(part.is_first());
        entry.stats.accesses += range.count().0;
        self.accesses += range.count().0;
        range
    }

    /// Counts a read of which everything is there.
    pub(super) fn count_hits(&mut self, part: Part, file: FileId, range: PageRange) {
        let count = range.count().0;
        self.file_mut(file).stats.count_hits(part.is_first().into(), count);
        self.accesses += count;
    }

    /// Frames are no longer in use; each is given as often as a hit or a wake handed it out.
    ///
    /// # Panics
    /// If a frame is not pinned.
    pub fn unpin(&mut self, now: Instant, frames: &[FrameId], out: &mut Vec<Action>) {
        self.tick(now);
        self.drop_pins(frames.iter().copied());
        self.retry_starved(out);
    }

    /// Nobody pins a spent frame any more.
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
        // Most often all of them at once.
        while let Some(spent) = frames.by_ref().find(|&frame| self.frames.unpin(frame)) {
            self.unpinned(spent);
        }
    }

    /// Appends the frames of a range if each page is up to date and unmarked; tells whether they are.
    pub(super) fn collect_hits(&self, file: FileId, range: PageRange, frames: &mut Vec<FrameId>) -> bool {
        let mut page = range.start.0;
        while page < range.end.0 {
            let Some(slots) = self.table.leaf(file, PageIndex(page)) else { return false };
            let leaf_start = page - page % LEAF_PAGES;
            let end = range.end.0.min(leaf_start + LEAF_PAGES);
            // Both are offsets within a leaf.
            let slots = &slots[(page - leaf_start) as usize..(end - leaf_start) as usize];
            // All of a leaf first: to look for room at each page would take longer than what is done for it.
            let known = frames.len();
            frames.extend(slots.iter().map(|slot| slot.number()));
            if !frames[known..].iter().all(|&frame| self.frames.is_plain_hit(frame)) {
                frames.clear();
                return false;
            }
            page = end;
        }
        true
    }

    /// Starts a read that is not a plain hit; tells whether there were frames enough. All or nothing: a read that holds
    /// pins never waits for frames, so two reads cannot wait for each other.
    fn start_read(&mut self, read: StarvedRead, out: &mut Vec<Action>) -> bool {
        let StarvedRead { waiter, part, mapped } = read;
        let file = self.handle(part.handle).file;
        let range = clip_to_file(part.pages, self.file(file).pages);
        if range.count().0 > u64::from(self.limit) {
            out.push(Action::Wake { waiter, result: Err(FillError::TOO_LARGE) });
            return true;
        }
        let mut present = Vec::new();
        let mut walk = self.walk_of(part, range);
        walk.mapped = mapped;
        if !self.set_out(&mut walk, &mut present) {
            return false;
        }
        let frames = Vec::with_capacity(present.len());
        let wait = self.waits.insert_keyed(Wait { waiter, file, range, frames, pending: 0, error: None });
        self.walk(&mut walk, &mut present, &mut Waiting { wait, out });
        self.finish_wait(wait, out);
        true
    }

    /// Begins a walk: pins what is present and notes it, a place for each page. If there are too few frames for what is
    /// absent, tells so and has done nothing.
    pub(super) fn set_out(&mut self, walk: &mut Walk, present: &mut Vec<Option<FrameId>>) -> bool {
        present.clear();
        // At most as many as there are frames.
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

    /// Walks over the pages of a request; in the end `present` has the frames of all, pinned.
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

    /// The pages of a part of a request, which begins at page `first`, whose reading counts as a use: none if they will not
    /// be used again, and not the page shared with the request before, so that reads smaller than a page count as one
    /// use. For LRU each counts: it makes a difference only if something else was used in between.
    pub(super) fn touches(&self, handle: HandleId, first: PageIndex, range: PageRange) -> PageRange {
        let handle = self.handle(handle);
        if handle.no_reuse {
            return PageRange { start: range.end, end: range.end };
        }
        let shares = || range.start == first && handle.was_last_at(first);
        if self.config.eviction != Eviction::Lru && shares() && !range.is_empty() {
            PageRange { start: range.start + PageCount(1), end: range.end }
        } else {
            range
        }
    }

    /// One step of the walk: decide on a miss, then on a mark. `present` is the page's frame, pinned, if it was there
    /// when the walk began. Returns the page's frame, pinned.
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
            if walk.mapped.is_some() && self.handle(walk.handle).asked.found {
                let (access, view, policy, plans) = self.question(walk, page, Trigger::Found { in_flight });
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
                // A decision at an earlier page of this walk has brought it in.
                Some(frame) => frame,
                None => self.miss(walk, page, sink),
            };
            self.frames.pin(frame);
            frame
        };
        // A fault in a mapping advised to be random leaves marks for others.
        if walk.mapped != Some(Pattern::Random) && self.frames.get_mut(frame).take(Flag::Mark) {
            self.decide(walk, page, Trigger::Mark, sink);
        }
        if waits {
            self.wait_by_plan(walk, page, sink);
        }
        frame
    }

    /// Brings in a page that is not there; the policy decides what else.
    fn miss(&mut self, walk: &mut Walk, page: PageIndex, sink: &mut impl Sink) -> FrameId {
        self.decide(walk, page, Trigger::Miss, sink);
        // What on-demand readahead costs more: the page is looked up again. A walking policy was asked before the look-up.
        let walks = self.handle(walk.handle).asked.every_access;
        self.stats_mut(walk.file).lookups_more += u64::from(!walks);
        if let Some(frame) = self.table.get(walk.file, page).frame() {
            return frame;
        }
        let plan = Plan::new(page, 1, 0, Reason::Demand);
        self.carry_out(walk, page, Trigger::Miss, &plan, sink);
        self.table
            .get(walk.file, page)
            .frame()
            .expect("frames for all missing pages were set aside before the walk")
    }

    fn decide(&mut self, walk: &mut Walk, page: PageIndex, trigger: Trigger, sink: &mut impl Sink) {
        let Handle { pattern, asked, ref itinerary, .. } = *self.handle(walk.handle);
        if itinerary.is_some() && self.decide_by_plan(walk, page, trigger, sink) {
            return;
        }
        // A policy that is asked on every access is only told of misses here.
        self.stats_mut(walk.file).policy_calls += u64::from(!asked.every_access);
        if trigger == Trigger::Mark && self.congested {
            let plan = Plan::new(page, 0, 0, Reason::Deferred);
            self.carry_out(walk, page, trigger, &plan, sink);
            return;
        }
        let random = pattern == Pattern::Random && !asked.every_access;
        if random && !asked.advice && walk.mapped.is_none() {
            if trigger == Trigger::Miss {
                let plan = Plan::new(page, (walk.request().end - page).0, 0, Reason::Forced);
                self.carry_out(walk, page, trigger, &plan, sink);
            }
            return;
        }
        let (access, view, policy, plans) = self.question(walk, page, trigger);
        policy.on_access(access, view, plans);
        let list = plans.take_list();
        // Under random advice a fault reads its own window alone.
        let most = if random { 1 } else { list.len() };
        for plan in list.iter().take(most) {
            self.carry_out(walk, page, trigger, plan, sink);
        }
        self.plans.give_back(list);
    }

    /// Asks a policy of every access before a page is looked up.
    fn ask(&mut self, walk: &mut Walk, page: PageIndex, missing: bool, sink: &mut impl Sink) {
        self.stats_mut(walk.file).policy_calls += 1;
        let frame = self.table.get(walk.file, page).frame();
        let fresh = frame.is_some_and(|frame| self.frames.get_mut(frame).take(Flag::Fresh));
        let (access, view, policy, plans) = self.question(walk, page, Trigger::Lookup { missing, fresh });
        policy.on_access(access, view, plans);
        walk.next = plans.next;
        let list = plans.take_list();
        let trigger = if missing { Trigger::Miss } else { Trigger::Mark };
        for plan in &list {
            self.carry_out(walk, page, trigger, plan, sink);
        }
        self.plans.give_back(list);
        if self.plans.has_noted() {
            let file = self.files[walk.file.0 as usize].as_mut().expect("a handle's file is open");
            self.plans.count(&mut file.stats.counters);
        }
    }

    /// What a policy is asked about a page, the policy, and where its plans go.
    // Inlined, so that the answer is not put together in memory and read back at once.
    #[inline(always)]
    pub(super) fn question(
        &mut self,
        walk: &Walk,
        page: PageIndex,
        trigger: Trigger,
    ) -> (Access, View<'_>, &mut dyn Readahead, &mut Plans) {
        let free = self.readahead_allowance(walk.demand_left);
        let file = self.files[walk.file.0 as usize].as_mut().expect("a handle's file is open");
        let (pages, account) = (file.pages, Account::of(&file.stats));
        let handle = self.handles[walk.handle.0 as usize].as_mut().expect(HANDLES);
        let ra_pages = u64::from(self.config.ra_pages)
            * match handle.pattern {
                // Asked all the same, so it must be told.
                Pattern::Random if handle.asked.every_access => 0,
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
        let limits = Limits { ra_pages, file_pages: pages, free, frames: self.limit.into() };
        let pressure = Pressure {
            evictions: self.reclaim.clock,
            cold: u64::from(self.limit.saturating_sub(self.frames.active_len())),
            unread: self.frames.unused().into(),
        };
        let view = View::new(&self.table, &self.frames, walk.file, limits, self.congested);
        let view = view.with(account, pressure);
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

    /// Notes where a handle has been, at the last part of a request; drops what is behind it, if advised to. `range` is
    /// the part within the file.
    // Inlined, so that the request need not be put together in memory and read back at once.
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

    /// Drops what a handle has read last and does not read now.
    #[cold]
    fn drop_behind(&mut self, handle: HandleId, range: PageRange) {
        let &Handle { file, prev, .. } = self.handle(handle);
        let behind = prev.unwrap_or_default().range;
        for page in (behind.start.0..behind.end.0).map(PageIndex).filter(|&page| !range.contains(page)) {
            self.drop_idle(file, page);
        }
    }
}

/// A read that waits for what it asks for.
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

    fn cancel(&mut self, fill: FillId) {
        self.out.cancel(fill);
    }

    fn reached(&mut self, cache: &mut Cache, frame: FrameId) {
        cache.await_frame(self.wait, frame, self.out);
    }
}

impl Walk {
    /// The request as made; may reach past the end of the file.
    // From its size: two ends in a row would be copied at once, right after they were written one by one, which stalls.
    pub(super) fn request(&self) -> PageRange {
        PageRange::from_start(self.first, self.req_pages)
    }

    /// A walk over the pages `range` of a part, of which none is known to be absent.
    pub(super) fn new(part: Part, handle: &Handle, range: PageRange) -> Self {
        let next = match (handle.asked.every_access, part.is_first()) {
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
            walks: handle.asked.every_access,
        }
    }
}

/// The part of a request that lies within a file; empty at the end of the file if none does.
pub(super) fn clip_to_file(request: PageRange, pages: PageCount) -> PageRange {
    let end = PageIndex(pages.0);
    PageRange { start: request.start.min(end), end: request.end.min(end) }
}
