//! From a policy's plan to fills: skip what is cached, cut at the end of the file, keep to the budget, set the mark.

use alloc::vec::Vec;

use super::frames::Flag;
use super::read::Walk;
use super::table::Slot;
use super::{Cache, FillState};
use crate::event::{Action, Decision, Fill, Trigger, Urgency};
use crate::id::{FileId, FillId, FrameId};
use crate::page::{PageIndex, PageRange};
use crate::readahead::{Plan, Reason};

/// A run of frames that will become one fill.
struct Run {
    start: PageIndex,
    len: u64,
    first: FrameId,
    last: FrameId,
}

impl Cache {
    /// Carries out a plan. Pages of the request always get a frame (they were set aside); the others only while the
    /// budget lasts.
    pub(super) fn carry_out(
        &mut self,
        walk: &mut Walk,
        page: PageIndex,
        trigger: Trigger,
        plan: Plan,
        out: &mut Vec<Action>,
    ) {
        let Walk { handle, file, request, .. } = *walk;
        let decided = out.len();
        let req_pages = request.end - page;
        out.push(Action::Decided(Decision { handle, file, page, req_pages, trigger, plan, mark: None }));
        let window = plan.window.range().clip(PageIndex(self.file(file).pages.0));
        let stats = self.stats_mut(file);
        stats.decisions[plan.reason as usize] += 1;
        if plan.reason != Reason::Demand {
            stats.lookups_more += window.count().0;
        }
        let mark_at = plan.mark;
        let mut mark = None;
        let mut run: Option<Run> = None;
        for page in (window.start.0..window.end.0).map(PageIndex) {
            if self.table.get(file, page).frame().is_some() {
                self.submit(walk, run.take(), out);
                continue;
            }
            let demanded = walk.range.contains(page);
            let Some(frame) = self.frame_for(walk, page, demanded) else {
                let refused = &mut self.stats_mut(file).pages_refused;
                *refused = refused.saturating_add(window.end.0 - page.0);
                break;
            };
            if mark_at == Some(page) {
                self.frames.get_mut(frame).set(Flag::Mark);
                mark = mark_at;
            }
            if run.as_ref().is_some_and(|run| run.len >= u64::from(self.config.fill_pages_max)) {
                self.submit(walk, run.take(), out);
            }
            let run = run.get_or_insert(Run { start: page, len: 0, first: frame, last: frame });
            self.frames.chain((run.len > 0).then_some(run.last), frame);
            run.last = frame;
            run.len += 1;
        }
        self.submit(walk, run, out);
        if let Action::Decided(decision) = &mut out[decided] {
            decision.mark = mark;
        }
    }

    /// A frame for a page about to be read, entered in the page table.
    fn frame_for(&mut self, walk: &mut Walk, page: PageIndex, demanded: bool) -> Option<FrameId> {
        if demanded {
            walk.demand_left -= 1;
        } else if self.readahead_allowance(walk.demand_left) == 0 {
            return None;
        }
        self.make_room();
        let frame = self.frames.alloc(self.limit, walk.file, page)?;
        if !demanded {
            self.frames.get_mut(frame).set(Flag::Unused);
            self.stats_mut(walk.file).pages_readahead += 1;
        }
        if let Some(shadow) = self.table.set(walk.file, page, Slot::of_frame(frame)).shadow() {
            self.refault(frame, shadow, demanded);
        }
        Some(frame)
    }

    /// Asks the driver for a run of frames.
    fn submit(&mut self, walk: &Walk, run: Option<Run>, out: &mut Vec<Action>) {
        let Some(Run { start, len, first, .. }) = run else { return };
        let range = PageRange::new(start.0, start.0 + len);
        // Readers wait only for pages of the request, so what reaches beyond it is readahead.
        let urgency =
            if range.intersect(walk.range).is_empty() { Urgency::Readahead } else { Urgency::Demand };
        self.start_fill(walk.file, range, urgency, first, false, out);
    }

    /// Enters a fill whose frames are chained from `first`, and asks the driver for it.
    pub(super) fn start_fill(
        &mut self,
        file: FileId,
        range: PageRange,
        urgency: Urgency,
        first: FrameId,
        exact: bool,
        out: &mut Vec<Action>,
    ) -> u64 {
        let id = self.fills.insert(FillState {
            file,
            range,
            urgency,
            first,
            waits: Vec::new(),
            exact,
            cancelled: false,
        });
        let mut frame = Some(first);
        while let Some(current) = frame {
            self.frames.set_fill(current, id);
            frame = self.frames.chained(current);
        }
        let stats = self.stats_mut(file);
        stats.fills += 1;
        stats.pages_filled += range.count().0;
        out.push(Action::Fill(Fill { id: FillId(id), file, range, urgency }));
        id
    }
}
