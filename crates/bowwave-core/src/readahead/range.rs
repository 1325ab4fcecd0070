//! Lustre's readahead (llite), with ranges of mapped faults (document 003; `algorithms.md` section 5).
//!
//! ```text
//!   second read of a small file  ──►  the whole file
//!   in order, ±8 pages           ──►  a window that grows by one RPC with each read, up to a cap per file
//!   at an even distance          ──►  a window of the pages at that distance, grown by one RPC of such pages
//!   mapped faults near each other,
//!   then a miss                  ──►  one RPC around it, as wide as the last cluster of faults was
//!   a miss inside the window     ──►  the window is forgotten: its pages are evicted before they are used
//!   other miss                   ──►  the rest of the request alone
//! ```
//!
//! The window begins at a multiple of the RPC size (or of its own, if that is less) at or before the reader. It grows when
//! a read comes in order; its absent pages are read when the reader misses or when it comes to a page that was read ahead
//! and not used so far, but only if no long window (16 MiB, or an RPC) is still ahead. What is read ends at such a
//! multiple, too, or at the end of the file or of the request.
//!
//! What a reader waits for is always read. What is more is read if the cache can give an RPC of it, or all of it, at
//! once; so a full cache makes few requests, not small ones.
//!
//! Where Lustre has more to look at than this cache:
//!
//! - Positions are counted in pages, not bytes. A page that two requests share counts with both.
//! - The RPC size is the `ra_pages` of the configuration. There are no locks whose end would cut a window.
//! - A read counts as one, also where Lustre makes a fast and a slow part of it.
//! - The budget for readahead in flight is what the frame budget leaves. On a congested device, readahead that no reader
//!   waits for is left for the next page.
//! - Lustre maps one page at a fault. Where a driver maps more, touches of these are not seen: the pages up to the next
//!   fault count as touched in order if that is among them or just behind.
//! - The window that Lustre hands over to a worker is asked for at once: nobody waits for it either.
//!
//! [`Clusters`] says where the published patch is corrected. Another crate changes that with [`ClusterRules`].

mod config;
mod state;
mod widths;

pub use config::{ClusterRules, Clusters, RangeConfig, RangeEvent};

use alloc::sync::Arc;

use self::state::State;
use self::widths::FileWidths;
use super::{Access, Capabilities, FileMemory, Hint, Plan, Plans, Readahead, Reason, View, Window};
use crate::config::Config;
use crate::event::Trigger;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::Pattern;

/// Readahead with strides and ranges of mapped faults: the state of one handle.
#[derive(Clone, Debug)]
pub struct Range {
    state: State,
    /// The widths of clusters in this file, through all handles.
    widths: Arc<FileWidths>,
    /// Whether the reader has left the fast path in this request: it looks for readahead at each page then.
    slow: bool,
}

/// What is to be read ahead.
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
                // What has ended counts from the next access on.
                if let Some(pages) = self.state.ended.take() {
                    self.widths.add(pages);
                }
            }
            Trigger::Mapped => self.state.mapped(access.request),
            // The lookup left the page out: read it alone.
            trigger => {
                let missing = trigger == Trigger::Miss;
                plans.push(Plan::new(access.page, missing.into(), 0, Reason::Demand));
            }
        }
    }
}

impl Range {
    /// What this policy is asked about.
    pub const ASKED: Capabilities = Capabilities {
        per_file: false,
        every_access: true,
        advice: false,
        mapped: true,
        found: false,
        evictions: false,
    };

    /// The names of [`RangeEvent`].
    pub const COUNTERS: &'static [&'static str] = &RangeEvent::NAMES;

    /// The state of a handle that has read nothing; it shares the widths of clusters in `file`.
    #[must_use]
    pub fn new(config: &Config, file: &mut FileMemory) -> Self {
        let known = file.shared.clone().and_then(|shared| shared.downcast::<FileWidths>().ok());
        let widths = known.unwrap_or_default();
        file.shared = Some(widths.clone());
        Self { state: State::new(config, file.offset_mapped), widths, slow: false }
    }

    /// The reader comes to a page that is missing, or that was read ahead and not used so far.
    fn reached(&mut self, access: &Access, missing: bool, view: View<'_>, plans: &mut Plans) {
        let page = access.page;
        plans.note(if missing { RangeEvent::Misses } else { RangeEvent::Hits } as u8);
        // A walking policy sees by this that the handle was advised to be read in no order.
        let random = match access.mapped {
            None => view.ra_pages == 0,
            Some(pattern) => pattern == Pattern::Random,
        };
        if random {
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

    /// Has a long window read for which no reader waits; tells whether the reader may go on without looking for readahead.
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

    /// What of the window is to be read now.
    fn readahead(
        &mut self,
        access: &Access,
        missing: bool,
        view: View<'_>,
        plans: &mut Plans,
    ) -> Option<Ahead> {
        let state = &mut self.state;
        let stride = state.stride();
        // The window lies around the page, which is read anyway.
        let around = state.next < access.page.0 || state.is_ahead();
        let start = stride.map_or(state.next, |stride| stride.offset.0.max(state.next));
        let mut end = state.window_end();
        if around {
            end = start.saturating_add(state.window);
        } else if state.window == 0 {
            end = 0;
        }
        // A fault is a request of its own page alone, which ends no window.
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
        // The last page that is meant is where the next one begins.
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

    /// Plans a missing page and what is read ahead with it, as one if they touch.
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
        let window =
            Window { start: PageIndex(start), size: PageCount(end - start), async_size: PageCount(0) };
        let plan = Plan::new(window.start, window.size.0, 0, reason);
        self.state.stride().map_or(plan, |stride| plan.with(Hint::Stride(stride)))
    }
}

/// Where a window ends that may bring in only `granted` pages.
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
        // The page itself is no readahead.
        left -= u64::from(page != access.page && !view.is_cached(page));
        at = page.0 + 1;
    }
    at
}
