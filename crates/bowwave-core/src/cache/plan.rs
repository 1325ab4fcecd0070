//! Turns a policy's plan into fills: skips cached pages, cuts at the end of the file, keeps to the
//! budget and sets the mark.

use alloc::vec::Vec;

use super::frames::{Flag, Flags};
use super::table::Slot;
use super::walk::Walk;
use super::{Cache, FillState};
use crate::event::{Action, Decision, Fill, Trigger, Urgency};
use crate::id::{FileId, FillId, FrameId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Plan, Reason, Stride, Weighed};

/// A window that the in-flight limit cuts is a multiple of this: fewer pages are not worth a
/// request.
const REQUEST_PAGES: u64 = 16;

/// A run of new frames, chained, that will become one fill.
pub(super) struct Run {
    pub(super) start: PageIndex,
    pub(super) len: u64,
    pub(super) first: FrameId,
    pub(super) last: FrameId,
}

/// Receives the decisions and fills of an access.
pub(super) trait Sink {
    /// A decision is about to be carried out; the returned value is passed to `end`.
    fn begin(&mut self, decision: &Decision) -> usize;

    /// The decision was carried out, with the fills in between.
    fn end(&mut self, place: usize, decision: &Decision);

    /// A run is to be read into its frames.
    fn fill(&mut self, cache: &mut Cache, file: FileId, run: &Run, urgency: Urgency);

    /// What the policy weighed for the next decision.
    fn weighed(&mut self, _weighed: Weighed) {}

    /// A fill is no longer needed.
    fn cancel(&mut self, _fill: FillId) {}

    /// The reader gets this pinned frame.
    fn reached(&mut self, _cache: &mut Cache, _frame: FrameId) {}
}

/// Queues actions for the driver.
impl Sink for Vec<Action> {
    fn begin(&mut self, decision: &Decision) -> usize {
        self.push(Action::Decided(*decision));
        self.len() - 1
    }

    fn end(&mut self, place: usize, decision: &Decision) {
        // The other fields are unchanged since `begin`.
        if let Action::Decided(decided) = &mut self[place] {
            decided.mark = decision.mark;
        }
    }

    fn fill(&mut self, cache: &mut Cache, file: FileId, run: &Run, urgency: Urgency) {
        cache.start_fill(file, run.range(), urgency, run.first, false, self);
    }

    fn weighed(&mut self, weighed: Weighed) {
        if !weighed.is_empty() {
            self.push(Action::Weighed(weighed));
        }
    }

    fn cancel(&mut self, fill: FillId) {
        self.push(Action::Cancel { fill });
    }
}

impl Run {
    pub(super) fn range(&self) -> PageRange {
        PageRange::from_start(self.start, PageCount(self.len))
    }
}

impl Cache {
    /// Applies a plan. Requested pages always get a frame from the reserve; other pages only
    /// within the budget.
    pub(super) fn apply_plan(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        trigger: Trigger,
        plan: &Plan,
        sink: &mut impl Sink,
    ) {
        let Walk { handle, file, .. } = *walk;
        let req_pages = walk.request().end - page;
        let mut decision = Decision { handle, file, page, req_pages, trigger, plan: *plan, mark: None };
        let place = sink.begin(&decision);
        let hints = &plan.hints;
        if !hints.drop_behind.is_empty() {
            self.let_go(file, hints.drop_behind);
        }
        let window = plan.window.range().clip(PageIndex(self.file(file).pages.0));
        let stats = self.stats_mut(file);
        stats.decisions[plan.reason as usize] += 1;
        if plan.reason != Reason::Demand {
            stats.lookups_extra +=
                hints.stride.map_or_else(|| window.count().0, |stride| stride.count(window));
        }
        let decided_at = page;
        let placed = self.file(file).memory.offset_mapped;
        let demand = Flags::NONE
            .with(Flag::OffsetMapped, placed)
            .with(Flag::Once, hints.read_once)
            .with(Flag::Retained, hints.retain);
        let ahead = demand.with(Flag::Unused, true).with(Flag::Planned, plan.reason == Reason::Planned);
        let mut speculation = self.speculation(walk, window, hints.stride);
        let mut run: Option<Run> = None;
        let mut at = window.start;
        while at < window.end {
            let mut page = at;
            if let Some(stride) = hints.stride {
                page = stride.next(at);
                if page != at {
                    self.submit(walk, run.take(), sink);
                }
                if page >= window.end {
                    break;
                }
            }
            at = page + PageCount(1);
            if let Some(frame) = self.table.get(file, page).frame() {
                self.submit(walk, run.take(), sink);
                if self.config.persist {
                    self.mark(frame, page, &mut decision);
                }
                continue;
            }
            let demanded = walk.range.contains(page);
            let flags = if demanded { demand } else { ahead };
            let Some(frame) = self.frame_for(walk, page, demanded || speculation > 0, demanded, flags) else {
                let refused = &mut self.stats_mut(file).pages_refused;
                let left = PageRange { start: page, end: window.end };
                let left = hints.stride.map_or_else(|| left.count().0, |stride| stride.count(left));
                *refused = refused.saturating_add(left);
                break;
            };
            speculation -= u64::from(!demanded);
            if walk.walks && page != decided_at {
                self.frames.get_mut(frame).set(Flag::Fresh);
            }
            self.mark(frame, page, &mut decision);
            // A request ends before the next mark, so that a reader at one mark does not wait for
            // pages beyond the next.
            if plan.parts(page)
                || run.as_ref().is_some_and(|run| run.len >= u64::from(self.config.fill_pages_max))
            {
                self.submit(walk, run.take(), sink);
            }
            let run = run.get_or_insert(Run { start: page, len: 0, first: frame, last: frame });
            self.frames.chain((run.len > 0).then_some(run.last), frame);
            run.last = frame;
            run.len += 1;
        }
        self.submit(walk, run, sink);
        sink.end(place, &decision);
    }

    /// Sets the mark of a page that the plan marks.
    #[inline]
    fn mark(&mut self, frame: FrameId, page: PageIndex, decision: &mut Decision) {
        if decision.plan.marks(page) {
            self.frames.get_mut(frame).set(Flag::Mark);
            decision.mark = decision.mark.or(Some(page));
        }
    }

    /// Pages of a window that the in-flight limit allows: all, or a multiple of [`REQUEST_PAGES`].
    fn speculation(&self, walk: &Walk, window: PageRange, stride: Option<Stride>) -> u64 {
        let room = self.ahead_max.saturating_sub(self.ahead);
        let count = |range: PageRange| stride.map_or_else(|| range.count().0, |stride| stride.count(range));
        if self.ahead_max == u64::MAX || count(window) - count(window.intersect(walk.range)) <= room {
            return room;
        }
        room / REQUEST_PAGES * REQUEST_PAGES
    }

    /// Allocates a frame for a page and enters it in the page table.
    fn frame_for(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        allowed: bool,
        demanded: bool,
        flags: Flags,
    ) -> Option<FrameId> {
        if demanded {
            walk.demand_left -= 1;
        } else if !allowed || self.readahead_allowance(walk.demand_left) == 0 {
            return None;
        }
        self.make_room();
        let frame = self.frames.alloc(self.limit, walk.file, page, flags)?;
        let shadow = self.table.set(walk.file, page, Slot::of_frame(frame)).shadow();
        let file = self.file_mut(walk.file);
        file.stats.pages_readahead += u64::from(!demanded);
        file.stats.pages_planned += u64::from(flags.has(Flag::Planned));
        if let Some(shadow) = shadow {
            self.refault(frame, shadow, demanded);
        } else if let Some(history) = &mut file.history {
            history.returned += u64::from(history.has(page));
        }
        Some(frame)
    }

    /// Requests a run of frames.
    fn submit(&mut self, walk: &Walk, run: Option<Run>, sink: &mut impl Sink) {
        let Some(run) = run else { return };
        // Readers wait only for requested pages; the rest of the run is readahead.
        let urgency =
            if run.range().intersect(walk.range).is_empty() { Urgency::Readahead } else { Urgency::Demand };
        let stats = self.stats_mut(walk.file);
        stats.fills += 1;
        stats.pages_filled += run.len;
        sink.fill(self, walk.file, &run, urgency);
    }

    /// Enters a fill whose frames are chained from `first`, and requests it from the driver.
    pub(super) fn start_fill(
        &mut self,
        file: FileId,
        range: PageRange,
        urgency: Urgency,
        first: FrameId,
        exact: bool,
        out: &mut Vec<Action>,
    ) -> u64 {
        let frames = core::iter::successors(Some(first), |&frame| self.frames.chained(frame));
        let unrequested = frames.filter(|&frame| self.frames.get(frame).has(Flag::Unused)).count() as u64;
        // Only demand pages are requested again.
        let ahead = if exact { 0 } else { unrequested };
        self.ahead += ahead;
        let alone = self.fills.is_empty();
        let id = self.fills.insert_keyed(FillState {
            file,
            range,
            ahead,
            urgency,
            first,
            waits: Vec::new(),
            exact,
            cancelled: false,
            requested_at: self.now,
            overtaken: None,
            alone,
        });
        let mut frame = Some(first);
        while let Some(current) = frame {
            self.frames.set_fill(current, id);
            frame = self.frames.chained(current);
        }
        out.push(Action::Fill(Fill { id: FillId(id), file, range, urgency }));
        id
    }
}
