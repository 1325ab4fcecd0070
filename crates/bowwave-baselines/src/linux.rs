//! Today's Linux (6.18): sync and async readahead of reads, read-around of mapped faults.
//!
//! ```text
//!   miss, page 0 or sequential ─►  initial window   start = page, async = size − request, or size / 2
//!   miss with cached history  ──►  context window   size = history + request, async = 1
//!   other miss                ──►  the request alone; the state is unchanged
//!   expected mark             ──►  next window      start = end of the last, async = size
//!   other mark                ──►  next window      start = next hole, size from the distance to it
//!   mapped fault              ──►  read-around      a window around the page, until too many miss
//! ```
//!
//! The test `bowwave-cli/tests/conformance` compares this with the tracepoints of a running kernel.
//! Omitted: throttled control groups (here a congested device only defers async readahead), and
//! windows for huge and executable mappings.

use alloc::boxed::Box;

use bowwave_core::window::{initial_size, next_size};
use bowwave_core::{
    Access, Capabilities, Config, FileMemory, PageCount, PageIndex, PageRange, Pattern, Plan, Plans, Policy,
    PolicyKind, Readahead, Reason, Trigger, View,
};

/// Read-around stops when a mapping's misses exceed its hits by more than this.
const MMAP_LOTSAMISS: u32 = 100;
/// Cap of the miss counter. Without it, a long random phase would disable read-around for good.
const MMAP_MISS_MAX: u32 = 1000;

/// Largest folio: 2^20 pages.
const FOLIO_ORDER_MAX: u8 = 20;

/// Parameters that Linux takes from the device, the file system and its version. The default is for
/// a cache of single pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxConfig {
    /// Optimal request size of the device, in pages (`max_sectors_kb`): the largest window for a
    /// request larger than `ra_pages`. 0: windows never exceed `ra_pages`.
    pub io_pages: u32,
    /// Windows after a mark are shortened to end at a multiple of their folio size (since Linux
    /// 6.16; of 4 pages without large folios). It costs more and smaller windows at the start of a
    /// stream.
    pub align_end: bool,
    /// Largest folio of the file system: log2 of its pages, at most 20; 0 for none. It only places
    /// marks and ends of windows as Linux does with such folios.
    pub folio_order_max: u8,
    /// A window that reaches the end of the file has a mark, which triggers an empty window: as in
    /// Linux up to 6.18, but not by default.
    pub mark_at_eof: bool,
}

/// The configuration of [`LINUX`](crate::LINUX).
pub(crate) static DEFAULT: LinuxConfig =
    LinuxConfig { io_pages: 0, align_end: false, folio_order_max: 0, mark_at_eof: false };

/// Today's Linux with this configuration. A configuration other than the default is never freed.
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
    /// Log2 of the pages of its folios.
    order: u32,
    /// First page of the folio that holds the last window's mark. `None` without large folios.
    marked: Option<PageIndex>,
    /// Misses of mapped pages minus hits.
    mmap_miss: u32,
}

impl Readahead for Linux {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        let (page, req) = (access.page, access.req_pages());
        // The missing page is read alone.
        if view.ra_pages == 0 && access.trigger != Trigger::Advice {
            return;
        }
        let plan = match (access.mapped, access.trigger) {
            (_, Trigger::Advice) => self.forced(page, req, view),
            (Some(pattern), Trigger::Found { in_flight }) => {
                let counts = pattern != Pattern::Random && !in_flight;
                self.mmap_miss = self.mmap_miss.saturating_sub(counts.into());
                return;
            }
            // Random advice applies to misses only; earlier marks still work.
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
    /// The state of a handle that was never read.
    pub const fn new(config: LinuxConfig) -> Self {
        Self { config, start: 0, size: 0, async_size: 0, order: 0, marked: None, mmap_miss: 0 }
    }

    /// Most pages of a window for a request of `req` pages.
    fn max_pages(&self, req: u64, view: View<'_>) -> u64 {
        view.ra_pages.max(req.min(self.config.io_pages.into()))
    }

    /// Exactly the requested pages, at most `ra_pages` or `io_pages`, whichever is larger. The
    /// state is unchanged.
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

    /// A miss out of sequence: searches the cache for the pages of a stream.
    fn context(&mut self, access: &Access, req: u64, max: u64, view: View<'_>) -> Plan {
        let page = access.page;
        let (history, whole) = match view.prev_miss(PageIndex(page.0 - 1), PageCount(max)) {
            Some(hole) => (page.0 - 1 - hole.0, false),
            // Everything before the page is cached.
            None if page.0 < max => (page.0, true),
            // The scan reached its limit; its last page does not count.
            None => (max - 1, false),
        };
        if history <= req {
            return Plan::new(page, req, 0, Reason::Random);
        }
        // Cached from the start of the file: probably read whole.
        let history = if whole { history * 2 } else { history };
        self.order = 0;
        self.submit(page, (history + req).min(max), 1, Reason::Context, view)
    }

    /// Async readahead: the page has a mark.
    fn mark_hit(&mut self, access: &Access, req: u64, view: View<'_>) -> Plan {
        let (page, max) = (access.page, self.max_pages(req, view));
        let end = self.start.saturating_add(self.size);
        let expected = end - self.async_size;
        let (start, size, reason) = if page.0 == expected || self.marked == Some(page) {
            (end, self.size.max(next_size(self.size, max)), Reason::Lookahead)
        } else {
            // A mark of another stream. The distance to the next hole is about its async size.
            let Some(hole) = view.next_miss(page + PageCount(1), PageCount(max)) else {
                return Plan::new(page, 0, 0, Reason::Interleaved);
            };
            (hole.0, next_size((hole.0 - page.0).saturating_add(req), max), Reason::Interleaved)
        };
        self.order += 2;
        let size = if self.config.align_end { self.aligned(start, size, max) } else { size };
        self.submit(PageIndex(start), size, size, reason, view)
    }

    /// The size of a window that ends at a multiple of its folios.
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

    /// Stores a window in the state, and places its mark.
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

    /// First page of the folio that contains a window's mark. Folios are as large as alignment and
    /// the window allow. From the first one that would cover a cached page on, they are single
    /// pages.
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

/// The mark of a window of single pages. If the end of the file clips the window, the mark is
/// counted from there, and is then not where the state expects it.
fn mark_of_pages(window: PageRange, async_size: u64, view: View<'_>) -> Option<PageIndex> {
    let end = window.end.0.min(view.file_pages.0);
    let mark = end.checked_sub(async_size)?;
    (mark >= window.start.0).then_some(PageIndex(mark))
}

#[cfg(test)]
mod tests;
