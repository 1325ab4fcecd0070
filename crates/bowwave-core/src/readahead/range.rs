//! Lustre's readahead (llite), with windows around mapped faults ("lustre: llite: try to improve
//! mmap performance", Wang, 2021).
//!
//! ```text
//!   second read of a small file  ──►  the whole file
//!   sequential, ±8 pages         ──►  a window that grows by one RPC with each read, up to a cap per file
//!   strided                      ──►  a window of strided blocks, grown by one RPC of their pages
//!   a miss in a cluster of
//!   mapped faults                ──►  a window around it, as wide as the last cluster
//!   a miss inside the window     ──►  no window: its pages were evicted before they were used
//!   other miss                   ──►  the rest of the request alone
//! ```
//!
//! The window begins at a multiple of the RPC size (or of the window size, if smaller) at or before
//! the reader, and grows with each sequential read. Its missing pages are read when the reader
//! misses, or first uses a page that was read ahead, unless 16 MiB (or an RPC, if larger) of the
//! window are still ahead. Reads end at such a multiple too, or at the end of the file or of the
//! request.
//!
//! Requested pages are always read. Readahead is read only if the budget covers an RPC or all of
//! it, so a full cache makes few requests, not small ones.
//!
//! Differences from Lustre:
//!
//! - Positions are pages, not bytes. A page shared by two requests counts in both.
//! - The RPC size is the `ra_pages` of the configuration. No lock limits a window.
//! - A read counts once, even if Lustre splits it into a fast and a slow part.
//! - The frame budget limits readahead in flight. On a congested device, readahead without waiters
//!   is postponed to the next page.
//! - Lustre maps one page at a fault. If a driver maps more, touches of the others are not seen.
//!   The pages before the next fault count as touched in order if it is among them or directly
//!   after.
//! - The window that Lustre gives to a worker is requested at once.
//!
//! [`Clusters`] describes the fixes to the published patch. Another crate can set rules of its own
//! as [`ClusterRules`].

mod config;
mod state;
mod widths;

pub use config::{ClusterRules, Clusters, RangeConfig, RangeEvent};

use alloc::sync::Arc;

use self::state::State;
use self::widths::FileWidths;
use super::{Access, Capabilities, FileMemory, Plan, Plans, Readahead, Reason, View};
use crate::config::Config;
use crate::event::Trigger;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::Pattern;

/// Readahead with strides and ranges of mapped faults: the state of one handle.
#[derive(Clone, Debug)]
pub struct Range {
    state: State,
    /// Widths of clusters in this file, through all handles.
    widths: Arc<FileWidths>,
    /// The reader left the fast path in this request, so each page plans readahead.
    slow: bool,
}

/// Pages to read ahead.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    start: u64,
    end: u64,
    reason: Reason,
}

impl Readahead for Range {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        match access.trigger {
            Trigger::Lookup { missing, fresh } => {
                plans.next = access.page + PageCount(1);
                if access.page == access.request.start {
                    self.slow = false;
                    if access.mapped.is_none() {
                        self.state.enter(access.request, view.file_pages, plans);
                    }
                }
                if missing || fresh {
                    self.reached(&access, missing, view, plans);
                }
                // A cluster that ended counts from the next access on.
                if let Some(pages) = self.state.ended.take() {
                    self.widths.add(pages);
                }
            }
            Trigger::Mapped => self.state.mapped(access.request),
            // The plan at the lookup omitted the page: read it alone.
            trigger => {
                let missing = trigger == Trigger::Miss;
                plans.push(Plan::new(access.page, missing.into(), 0, Reason::Demand));
            }
        }
    }
}

impl Range {
    /// When this policy is called.
    pub fn capabilities() -> Capabilities {
        Capabilities { every_access: true, mapped: true, ..Capabilities::default() }
    }

    /// The names of [`RangeEvent`].
    pub const COUNTERS: &'static [&'static str] = &RangeEvent::NAMES;

    /// The state of a handle that has read nothing; it shares the widths of clusters in `file`.
    pub fn new(config: &Config, file: &mut FileMemory) -> Self {
        let known = file.shared.clone().and_then(|shared| shared.downcast::<FileWidths>().ok());
        let widths = known.unwrap_or_default();
        file.shared = Some(widths.clone());
        Self { state: State::new(config, file.offset_mapped), widths, slow: false }
    }

    /// Handles a missing page, or the first use of a page that was read ahead.
    fn reached(&mut self, access: &Access, missing: bool, view: View<'_>, plans: &mut Plans) {
        let page = access.page;
        plans.note(if missing { RangeEvent::Misses } else { RangeEvent::Hits } as u8);
        // The cache tells a policy that runs on every access about random advice in this way.
        if view.ra_pages == 0 || access.mapped == Some(Pattern::Random) {
            if missing {
                let reason = if access.mapped.is_none() { Reason::Forced } else { Reason::Random };
                plans.push(Plan::new(page, access.req_pages(), 0, reason));
            }
            return;
        }
        self.state.update(page.0, missing, access.mapped, &self.widths, plans);
        if !missing && !self.slow {
            if self.state.is_fast() || self.hand_over(view, plans) {
                return;
            }
            plans.note(RangeEvent::FailedToFastRead as u8);
        }
        self.slow = true;
        let before = self.state;
        let ahead = self.readahead(access, missing, view, plans);
        if missing {
            self.with_page(access, ahead, plans);
        } else if let Some(ahead) = ahead {
            if view.congested {
                self.state = before;
                plans.push(Plan::new(page, 0, 0, Reason::Deferred));
                return;
            }
            plans.push(self.plan(ahead.start, ahead.end, ahead.reason));
        }
    }

    /// Requests a long window while no reader waits; returns whether the reader continues without
    /// planning readahead.
    fn hand_over(&mut self, view: View<'_>, plans: &mut Plans) -> bool {
        let state = &mut self.state;
        let (start, count) = (state.align(state.next), state.fast_pages());
        if state.stride_mode() || state.window < state.file_max || count > view.free || view.congested {
            return false;
        }
        if state.handed_over != Some(start) {
            state.next = start.saturating_add(count);
            state.handed_over = Some(start);
            if start < view.file_pages.0 {
                plans.note(RangeEvent::AsyncReadahead as u8);
                plans.push(Plan::new(PageIndex(start), count, 0, Reason::Ahead));
            }
        }
        true
    }

    /// The part of the window to read now.
    fn readahead(
        &mut self,
        access: &Access,
        missing: bool,
        view: View<'_>,
        plans: &mut Plans,
    ) -> Option<Ahead> {
        let state = &mut self.state;
        let stride = state.stride();
        // The window is around the page, which is read anyway.
        let around = state.next < access.page.0 || state.is_ahead();
        let start = stride.map_or(state.next, |stride| stride.offset.0.max(state.next));
        let mut end = state.window_end();
        if around {
            end = start.saturating_add(state.window);
        } else if state.window == 0 {
            end = 0;
        }
        // A fault requests its own page only, and ends no window.
        let request_end =
            if access.mapped.is_none() { access.request.end.0.min(view.file_pages.0) } else { 0 };
        let eof = end.max(request_end) >= view.file_pages.0;
        end = end.max(request_end).min(view.file_pages.0);
        let count = |end: u64| {
            let range = PageRange { start: PageIndex(start), end: PageIndex(end.max(start)) };
            stride.map_or_else(|| range.count().0, |stride| stride.count(range))
        };
        let mut pages = count(end);
        if pages == 0 {
            plans.note(RangeEvent::ZeroSizeWindow as u8);
            return None;
        }
        let wanted_end = end;
        let mut demanded = 0;
        let mut end_min = 0;
        if missing && request_end > start {
            end_min = request_end;
            demanded = if around { 0 } else { (request_end - start).min(state.rpc - start % state.rpc) };
        }
        pages = pages.max(demanded);
        let granted = state.grant(pages, demanded, view);
        if granted < pages {
            plans.note(RangeEvent::HitMaxReadaheadIssue as u8);
        }
        if !around && !eof {
            let aligned = state.align(end);
            end = if aligned > 0 { aligned } else { end };
        }
        end = end.max(end_min);
        if granted < pages {
            end = cut(access, start, end, granted, stride, view);
        }
        // The next window begins after the last page of a block.
        let last = stride.map_or(end, |stride| stride.trim(PageIndex(end)).0);
        let some = granted > 0 && count(end) > 0;
        if !some || last != wanted_end {
            plans.note(RangeEvent::FailedToReachEnd as u8);
        } else if eof {
            plans.note(RangeEvent::ReadaheadToEof as u8);
        }
        if !some {
            return None;
        }
        state.next = last;
        Some(Ahead { start, end: last, reason: state.reason() })
    }

    /// Plans a missing page and its readahead, as one window if they are adjacent.
    fn with_page(&self, access: &Access, ahead: Option<Ahead>, plans: &mut Plans) {
        let page = access.page.0;
        let Some(Ahead { start, end, reason }) = ahead else {
            plans.push(Plan::new(access.page, access.req_pages(), 0, Reason::Random));
            return;
        };
        let meant = self.state.stride().is_none_or(|stride| stride.contains(PageIndex(page)));
        if meant && start <= page + 1 && page < end {
            plans.push(self.plan(start.min(page), end, reason));
        } else {
            plans.push(Plan::new(access.page, 1, 0, Reason::Demand));
            plans.push(self.plan(start, end, reason));
        }
    }

    fn plan(&self, start: u64, end: u64, reason: Reason) -> Plan {
        let mut plan = Plan::new(PageIndex(start), end - start, 0, reason);
        plan.hints.stride = self.state.stride();
        plan
    }
}

/// End of a window that may read only `granted` pages.
fn cut(
    access: &Access,
    start: u64,
    end: u64,
    granted: u64,
    stride: Option<super::Stride>,
    view: View<'_>,
) -> u64 {
    let (mut at, mut left) = (start, granted);
    while left > 0 && at < end {
        let page = stride.map_or(PageIndex(at), |stride| stride.next(PageIndex(at)));
        if page.0 >= end {
            return end;
        }
        // The accessed page is not readahead.
        left -= u64::from(page != access.page && !view.is_cached(page));
        at = page.0 + 1;
    }
    at
}
