//! Today's Linux: sync and async readahead of reads, read-around of mapped faults (6.18, `algorithms.md` section 1).
//!
//! ```text
//!   miss, page 0 or in order  ──►  initial window   start = page, async = size − request (or half of it)
//!   miss with cached history  ──►  context window   size = history + request, async = 1
//!   other miss                ──►  the request alone, nothing remembered
//!   expected mark             ──►  next window      start = end of the last, async = size
//!   other mark                ──►  next window      start = next hole, size from the distance to it
//!   mapped fault              ──►  read-around      a window laid around the page, until too many miss
//! ```
//!
//! `bowwave-cli/tests/conformance` compares this with the tracepoints of a running kernel. Left out on purpose: what
//! throttled control groups do (a full device only defers async readahead here), windows for huge and for executable
//! mappings.

use alloc::boxed::Box;

use bowwave_core::window::{initial_size, next_size};
use bowwave_core::{
    Access, Capabilities, Config, FileMemory, PageCount, PageIndex, PageRange, Pattern, Plan, Plans, Policy,
    PolicyKind, Readahead, Reason, Trigger, View,
};

/// Misses of a mapping, less its hits, from which on reading around does not pay.
const MMAP_LOTSAMISS: u32 = 100;
/// Misses of a mapping that count at most, so that its luck can turn again.
const MMAP_MISS_MAX: u32 = 1000;

/// Largest folio: 2^20 pages.
const FOLIO_ORDER_MAX: u8 = 20;

/// What Linux takes from the device, the file system and its version. The default suits a cache of single pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxConfig {
    /// Best request of the device, in pages: a larger request than `ra_pages` may have a window up to this. Linux takes
    /// it from `max_sectors_kb`. 0: windows never exceed `ra_pages`.
    pub io_pages: u32,
    /// Whether windows that follow a mark are cut short to end at a multiple of their folio size (Linux 6.16 and later;
    /// of 4 pages without large folios). It pays only where the store likes aligned chunks: the first windows of a
    /// stream become smaller, and there are more of them.
    pub align_end: bool,
    /// Largest folio of the file system, as base-2 logarithm of its pages, at most 20; 0 if it has none. Folios are not
    /// made here: this only places marks and ends where Linux would with such folios.
    pub folio_order_max: u8,
    /// Whether a window that reaches the end of the file bears a mark all the same (Linux 6.18 and before). It triggers a
    /// window of nothing.
    pub mark_at_eof: bool,
}

/// [`LinuxConfig`] as [`LINUX`](crate::LINUX) has it.
pub(crate) static DEFAULT: LinuxConfig =
    LinuxConfig { io_pages: 0, align_end: false, folio_order_max: 0, mark_at_eof: false };

/// Today's Linux, set up otherwise. A setup other than the default lives as long as the program.
#[must_use]
pub fn linux(config: LinuxConfig) -> Policy {
    if config == DEFAULT {
        return crate::LINUX;
    }
    let folio_order_max = config.folio_order_max.min(FOLIO_ORDER_MAX);
    Policy::Other(Box::leak(Box::new(LinuxConfig { folio_order_max, ..config })))
}

impl PolicyKind for LinuxConfig {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { advice: true, found: true, ..Capabilities::default() }
    }

    fn build(&self, _config: &Config, _file: &mut FileMemory) -> Box<dyn Readahead> {
        Box::new(Linux::new(*self))
    }
}

/// Today's Linux: the state of one handle.
#[derive(Clone, Copy, Debug)]
pub struct Linux {
    config: LinuxConfig,
    /// The last window.
    start: u64,
    size: u64,
    async_size: u64,
    /// Base-2 logarithm of the pages of its folios.
    order: u32,
    /// First page of the folio that the last window marked, if it is larger than a page.
    marked: Option<PageIndex>,
    /// Mapped pages that missed, less those found.
    mmap_miss: u32,
}

impl Readahead for Linux {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        let (page, req) = (access.page, access.req_pages());
        let plan = match (access.mapped, access.trigger) {
            (_, Trigger::Advice) => self.forced(page, req, view),
            (Some(pattern), Trigger::Found { in_flight }) => {
                let counts = pattern != Pattern::Random && !in_flight;
                self.mmap_miss = self.mmap_miss.saturating_sub(counts.into());
                return;
            }
            // Random advice concerns misses only: marks from before still work.
            (None, Trigger::Mark) => self.mark_hit(&access, req, view),
            (None, _) if access.random => self.forced(page, req, view),
            (None, _) => self.missed(&access, req, view),
            (Some(_), Trigger::Mark) => self.mark_hit(&access, view.ra_pages, view),
            (Some(Pattern::Sequential), _) if access.random => self.forced(page, view.ra_pages, view),
            (Some(pattern), _) => self.faulted(&access, pattern, view),
        };
        plans.push(plan);
    }
}

impl Linux {
    /// The state of a handle that has read nothing.
    #[must_use]
    pub const fn new(config: LinuxConfig) -> Self {
        Self { config, start: 0, size: 0, async_size: 0, order: 0, marked: None, mmap_miss: 0 }
    }

    /// Most pages of a window for a request of `req` pages.
    fn max_pages(&self, req: u64, view: View<'_>) -> u64 {
        view.ra_pages.max(req.min(self.config.io_pages.into()))
    }

    /// Exactly what was asked for, up to what the device likes; nothing is remembered.
    fn forced(&self, start: PageIndex, count: u64, view: View<'_>) -> Plan {
        let max = view.ra_pages.max(self.config.io_pages.into());
        Plan::new(start, count.min(max), 0, Reason::Forced)
    }

    /// Sync readahead: the page is missing.
    fn missed(&mut self, access: &Access, req: u64, view: View<'_>) -> Plan {
        let (page, max) = (access.page, self.max_pages(req, view));
        let reason = if page == PageIndex(0) {
            Reason::Initial
        } else if req > max {
            Reason::Oversize
        } else if access.prev_end.is_some_and(|end| page.0.wrapping_sub(end.0) <= 1) {
            Reason::Miss
        } else {
            return self.context(access, req, max, view);
        };
        let size = initial_size(req, max);
        let async_size = if size > req { size - req } else { size / 2 };
        self.order = 0;
        self.submit(page, size, async_size, reason, view)
    }

    /// A miss out of order: looks at the cache for the trace that a stream would have left.
    fn context(&mut self, access: &Access, req: u64, max: u64, view: View<'_>) -> Plan {
        let page = access.page;
        let (history, whole) = match view.prev_miss(PageIndex(page.0 - 1), PageCount(max)) {
            Some(hole) => (page.0 - 1 - hole.0, false),
            // Everything before the page is cached.
            None if page.0 < max => (page.0, true),
            // The scan gave up; it does not count the page it ended on.
            None => (max - 1, false),
        };
        if history <= req {
            return Plan::new(page, req, 0, Reason::Random);
        }
        // Cached from the start: a file that is read whole.
        let history = if whole { history * 2 } else { history };
        self.order = 0;
        self.submit(page, (history + req).min(max), 1, Reason::Context, view)
    }

    /// Async readahead: the page bears a mark.
    fn mark_hit(&mut self, access: &Access, req: u64, view: View<'_>) -> Plan {
        let (page, max) = (access.page, self.max_pages(req, view));
        let end = self.start.saturating_add(self.size);
        let expected = end - self.async_size;
        let (start, size, reason) = if page.0 == expected || self.marked == Some(page) {
            (end, self.size.max(next_size(self.size, max)), Reason::Lookahead)
        } else {
            // The state is that of another stream. The distance to the next hole is about the old async size.
            let Some(hole) = view.next_miss(page + PageCount(1), PageCount(max)) else {
                return Plan::new(page, 0, 0, Reason::Interleaved);
            };
            (hole.0, next_size((hole.0 - page.0).saturating_add(req), max), Reason::Interleaved)
        };
        self.order += 2;
        let size = if self.config.align_end { self.aligned(start, size, max) } else { size };
        self.submit(PageIndex(start), size, size, reason, view)
    }

    /// The size of a window whose end is cut to a multiple of its folios.
    fn aligned(&self, start: u64, size: u64, max: u64) -> u64 {
        let align = 1 << self.order.min(max.trailing_zeros());
        let end = start.saturating_add(size) / align * align;
        if end > start { end - start } else { size }
    }

    /// A mapped page is missing.
    fn faulted(&mut self, access: &Access, pattern: Pattern, view: View<'_>) -> Plan {
        let page = access.page;
        match pattern {
            Pattern::Random => return Plan::new(page, 1, 0, Reason::Random),
            Pattern::Sequential => return self.missed(access, view.ra_pages, view),
            Pattern::Normal => {}
        }
        self.mmap_miss = (self.mmap_miss + 1).min(MMAP_MISS_MAX);
        if self.mmap_miss > MMAP_LOTSAMISS {
            return Plan::new(page, 1, 0, Reason::Random);
        }
        self.order = 0;
        let start = PageIndex(page.0.saturating_sub(view.ra_pages / 2));
        self.submit(start, view.ra_pages, view.ra_pages / 4, Reason::Around, view)
    }

    /// Remembers a window, and finds the place of its mark.
    fn submit(
        &mut self,
        start: PageIndex,
        size: u64,
        async_size: u64,
        reason: Reason,
        view: View<'_>,
    ) -> Plan {
        (self.start, self.size, self.async_size, self.marked) = (start.0, size, async_size, None);
        let limit = u32::from(self.config.folio_order_max);
        self.order = if limit == 0 { 0 } else { self.order.min(limit).min(size.max(1).ilog2()) };
        let mut plan = Plan::new(start, size, async_size, reason);
        let reaches_end = plan.window.range().end.0 >= view.file_pages.0;
        plan.mark = if async_size == 0 || reaches_end && !self.config.mark_at_eof {
            None
        } else if limit == 0 {
            mark_of_pages(plan.window.range(), async_size, view)
        } else {
            self.mark_of_folios(plan.window.range(), async_size, view)
        };
        plan
    }

    /// First page of the folio that a window's mark falls on. Folios are as large as alignment and the window allow; from the
    /// first one that would cover a cached page on, they are single pages.
    fn mark_of_folios(&mut self, window: PageRange, async_size: u64, view: View<'_>) -> Option<PageIndex> {
        let mark = PageIndex(window.end.0 - async_size);
        let end = window.end.0.min(view.file_pages.0);
        let mut page = window.start.0;
        while page < end {
            let mut order = self.order.min(page.trailing_zeros());
            while order > 0 && end - page < 1 << order {
                order -= 1;
            }
            let next = page + (1 << order);
            if (page..next).any(|page| view.is_cached(PageIndex(page))) {
                return mark_of_pages(PageRange::new(page, window.end.0), async_size, view);
            }
            if (page..next).contains(&mark.0) {
                self.marked = Some(PageIndex(page));
                return self.marked;
            }
            page = next;
        }
        None
    }
}

/// Where the mark of a window of single pages goes: counted from the end of the file if that cuts it short, so it is then
/// not where its owner expects it.
fn mark_of_pages(window: PageRange, async_size: u64, view: View<'_>) -> Option<PageIndex> {
    let end = window.end.0.min(view.file_pages.0);
    let mark = end.checked_sub(async_size)?;
    (mark >= window.start.0).then_some(PageIndex(mark))
}

#[cfg(test)]
mod tests;
