//! State of a handle: the last access, the window, the stride, the cluster of faults. Unit: pages.

use super::config::{ClusterRules, Clusters, RangeEvent};
use super::widths::{FileWidths, OwnWidths};
use crate::config::Config;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Plans, Reason, Stride, View};
use crate::request::Pattern;

/// A reader that skips or repeats at most this many pages is still sequential.
const LOOSE_PAGES: u64 = 8;
/// Smallest window around a fault, in bytes.
const RANGE_BYTES_MIN: u64 = 64 << 10;
/// A reader plans readahead while less than this many bytes of its window are ahead.
const FAST_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    // Settings.
    pub(super) rpc: u64,
    pub(super) file_max: u64,
    range: u64,
    range_min: u64,
    whole: u64,
    fast: u64,
    /// Sequential faults after which the window grows.
    growth: u64,
    /// As in [`ClusterRules`].
    skipped: u64,
    page_0_is_none: bool,
    /// [`Clusters::Learned`].
    learned: bool,
    fault_pages: u64,
    // The reader.
    requests: u64,
    /// End of the last access.
    last_end: u64,
    /// Reads are faults of a cache in front.
    reads_are_faults: bool,
    /// End of the access before the last jump.
    jumped_from: u64,
    /// Pages mapped from there on; their touches are not seen.
    unseen: u64,
    in_order_requests: u64,
    in_order_pages: u64,
    // The window.
    window_start: u64,
    pub(super) window: u64,
    /// The next page to read ahead.
    pub(super) next: u64,
    grows: bool,
    whole_file: bool,
    /// The window lies around a fault.
    around: bool,
    /// Start of the last window that was requested while no reader waited.
    pub(super) handed_over: Option<u64>,
    // The stride.
    stride_requests: u64,
    stride_offset: u64,
    stride_length: u64,
    stride_data: u64,
    // The cluster of faults.
    cluster: Option<(u64, u64)>,
    cluster_requests: u64,
    last_cluster: u64,
    /// The page of the cluster that was touched first.
    entered: u64,
    widths: OwnWidths,
    /// Width of the cluster that ended, 0 if it was not touched upward.
    pub(super) ended: Option<u64>,
    /// The window begins with the fault.
    ahead: bool,
}

impl State {
    pub(super) fn new(config: &Config, placed: bool) -> Self {
        let shift = config.page_size.shift();
        let pages = |bytes: u64| (bytes >> shift).max(u64::from(bytes > 0));
        let range = &config.range;
        let (learned, rules) = match range.clusters {
            Clusters::Suited => (placed, ClusterRules::FIXED),
            Clusters::Fixed => (false, ClusterRules::FIXED),
            Clusters::Learned => (true, ClusterRules::FIXED),
            Clusters::Other(rules) => (false, *rules),
        };
        let range_pages = if rules.ranges { pages(range.range_bytes) } else { 0 };
        let range_min = pages(RANGE_BYTES_MIN);
        Self {
            rpc: config.ra_pages.max(1).into(),
            file_max: pages(range.file_bytes_max),
            range: range_pages,
            range_min,
            whole: pages(range.whole_bytes),
            fast: pages(FAST_BYTES),
            growth: rules.growth_faults.map_or_else(|| range_pages.max(range_min), |faults| faults.max(1)),
            skipped: rules.skipped_pages,
            page_0_is_none: rules.page_0_is_none,
            learned,
            fault_pages: pages(range.fault_bytes),
            next: 1,
            ..Self::default()
        }
    }

    /// Handles the start of a read.
    pub(super) fn enter(&mut self, request: PageRange, file_pages: PageCount, plans: &mut Plans) {
        self.requests = self.requests.saturating_add(1);
        self.in_order_requests = self.in_order_requests.saturating_add(1);
        self.grows = false;
        self.whole_file = self.requests >= 2 && file_pages.0 <= self.whole;
        if self.whole_file {
            (self.window_start, self.next) = (0, 0);
            self.window = self.file_max.min(self.whole);
            return;
        }
        let (page, count) = (request.start.0, request.count().0);
        if self.fault_pages > 0 && !self.is_near(page, LOOSE_PAGES) {
            // The kernel's sequential reads after a fault may be reordered: they are in this
            // cluster, or in the one that the reader left. They have any length.
            let in_clusters = self.is_near(page, self.range) || lies_near(self.jumped_from, page, self.range);
            self.reads_are_faults = count == self.fault_pages || (self.reads_are_faults && in_clusters);
            self.jumped_from = self.last_end;
        }
        if self.reads_are_faults {
            self.touch(page, count);
            self.fault(page, count, plans);
            return;
        }
        let stride_found = self.detect(page, count, plans);
        self.grows = self.in_order_requests > 1 || stride_found;
    }

    /// Handles a missing page, or the first use of a page that was read ahead.
    pub(super) fn update(
        &mut self,
        page: u64,
        missing: bool,
        mapped: Option<Pattern>,
        widths: &FileWidths,
        plans: &mut Plans,
    ) {
        (self.around, self.ahead) = (false, false);
        if self.whole_file {
            return;
        }
        if mapped == Some(Pattern::Sequential) {
            if missing {
                plans.note(RangeEvent::MmapRangeRead as u8);
                self.window = self.range;
                self.around = true;
            }
            return self.set(page, missing, page + 1);
        }
        if mapped.is_some() {
            self.touch(page, 1);
            self.fault(page, 1, plans);
        }
        if mapped.is_some() || self.reads_are_faults {
            let in_clusters = !self.grows && self.window <= self.range;
            if in_clusters
                && missing
                && let Some(window) = self.learned_window(page, widths)
            {
                plans.note(RangeEvent::MmapRangeRead as u8);
                (self.around, self.ahead) = (true, true);
                self.window = window;
                return self.set(page, true, page);
            }
            if in_clusters && self.cluster_requests >= 2 {
                return self.cluster_window(page, missing, plans);
            }
        }
        let inside = self.window_start <= page && page <= self.window_end();
        if missing && self.window > 0 && page < self.next && inside {
            plans.note(RangeEvent::MissInsideWindow as u8);
            self.grows = false;
            let stride = self.stride().is_some_and(|stride| stride.contains(PageIndex(page)));
            self.reset(page);
            if !stride {
                return self.forget_stride();
            }
            if self.window_start < self.stride_offset {
                self.forget_stride();
            }
        }
        self.set(page, missing, page + 1);
    }

    /// A fault in a cluster without another pattern: the window is as wide as the last cluster.
    fn cluster_window(&mut self, page: u64, missing: bool, plans: &mut Plans) {
        if !missing {
            self.window = 0;
            return self.set(page, false, page + 1);
        }
        plans.note(RangeEvent::MmapRangeRead as u8);
        self.around = true;
        self.window = self.last_cluster.max(self.range_min);
        let start = page.saturating_sub(self.window / 2);
        self.set(start, true, start.saturating_add(self.skipped));
    }

    /// Pages to read ahead from a fault on, predicted from earlier clusters of the handle and the
    /// file.
    fn learned_window(&self, page: u64, of_file: &FileWidths) -> Option<u64> {
        let (first, last) = self.cluster.filter(|_| self.learned)?;
        if self.stride_mode() || self.entered != first || page < first {
            return None;
        }
        let usual = self.widths.usual(of_file).min(self.range);
        let window = match self.cluster_requests {
            0 => usual,
            _ if usual > 0 => (usual / 2).max(self.range_min),
            // Two adjacent touches begin a cluster, of unknown width, if no other is known.
            1 if of_file.are_unknown() && page == last && page == first + 1 => self.range / 2,
            1 => 0,
            _ => (last - first + 1).clamp(self.range_min, self.range.max(self.range_min)),
        };
        (window >= self.range_min).then_some(window)
    }

    /// Whether the window begins with the fault.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// Places the window at `page`, and grows it if that is due. After a missing page, readahead
    /// continues at `next`.
    fn set(&mut self, page: u64, missing: bool, next: u64) {
        self.window_start = self.align(page);
        if let Some(stride) = self.stride() {
            self.next = self.next.max(page + 1);
            self.window_start = self.window_start.max(stride.offset.0);
        } else if missing {
            self.next = next;
        } else {
            self.next = self.next.max(self.window_start);
        }
        if core::mem::take(&mut self.grows) {
            self.grow();
        }
    }

    /// Grows the window by one RPC.
    fn grow(&mut self) {
        let Some(stride) = self.stride() else {
            let window = (self.window + self.rpc).min(self.file_max);
            self.window =
                if window < self.rpc { window } else { window - window % self.window.min(self.rpc).max(1) };
            return;
        };
        let end = stride.after(PageIndex(self.window_end()), self.rpc);
        let window = PageRange { start: PageIndex(self.window_start), end };
        if stride.count(window) <= self.file_max || self.window == 0 {
            self.window = window.count().0;
        }
    }

    /// Handles a first touch of mapped pages; the window grows after enough sequential ones.
    fn fault(&mut self, page: u64, count: u64, plans: &mut Plans) {
        let before = self.in_order_pages;
        self.infer(page);
        let stride_found = self.detect(page, count, plans);
        // A cache in front reads half a window before the first page, and is up to two windows
        // ahead of its reader.
        let step = self.growth + if self.reads_are_faults { 5 * self.fault_pages / 2 } else { 0 };
        self.grows |= self.in_order_pages / step > before / step || stride_found;
    }

    /// A touch of the first page mapped the range.
    pub(super) fn mapped(&mut self, range: PageRange) {
        if range.start.0.saturating_add(1) == self.last_end {
            self.unseen = range.end.0.saturating_sub(self.last_end);
        }
    }

    /// Assumes that the mapped pages before a touched page were touched in order.
    fn infer(&mut self, page: u64) {
        let unseen = core::mem::take(&mut self.unseen);
        let touched = page.saturating_sub(self.last_end).min(unseen);
        self.in_order_pages = self.in_order_pages.saturating_add(touched);
        self.last_end = self.last_end.saturating_add(touched);
    }

    /// Compares an access with the earlier ones; returns whether a stride was found.
    fn detect(&mut self, page: u64, count: u64, plans: &mut Plans) -> bool {
        let mut found = false;
        let continues = self.continues(page, count);
        if !self.is_near(page, LOOSE_PAGES) {
            plans.note(RangeEvent::ReadpageNotConsecutive as u8);
            if continues {
                (self.in_order_pages, self.in_order_requests) = (0, 0);
                self.stride_requests = self.stride_requests.saturating_add(1);
                found = self.stride_mode();
            } else {
                self.begin_stride(page);
                self.reset(page);
            }
        } else if self.stride_mode() && !continues {
            self.forget_stride();
            self.window = 0;
            self.next = page;
        }
        self.in_order_pages = self.in_order_pages.saturating_add(count);
        self.last_end = page.saturating_add(count);
        found
    }

    /// Whether an access continues the stride.
    fn continues(&self, page: u64, count: u64) -> bool {
        let (data, length) = (self.stride_data, self.stride_length);
        if data == 0 || data >= length || page < self.last_end {
            return false;
        }
        match page - self.last_end {
            0 => self.in_order_pages.saturating_add(count) <= data,
            gap => gap == length - data && self.in_order_pages == data && count <= data,
        }
    }

    /// Handles a jump: upward, it may be the first of a stride; downward, it ends a stride.
    fn begin_stride(&mut self, page: u64) {
        if self.stride_requests > 0 || page < self.last_end {
            return self.forget_stride();
        }
        self.stride_data = self.in_order_pages;
        self.stride_length = (page - self.last_end).saturating_add(self.in_order_pages);
        self.stride_offset = page;
        self.stride_requests = 1;
    }

    fn forget_stride(&mut self) {
        (self.stride_requests, self.stride_length, self.stride_data) = (0, 0, 0);
    }

    /// Forgets the window.
    fn reset(&mut self, page: u64) {
        (self.in_order_requests, self.in_order_pages, self.window) = (0, 0, 0);
        self.window_start = page;
        self.next = page + 1;
    }

    /// Follows the clusters of faults.
    fn touch(&mut self, page: u64, count: u64) {
        let end = page.saturating_add(count.max(1) - 1);
        let known = self.cluster.filter(|&(_, last)| last > 0 || !self.page_0_is_none);
        let (first, last) = known.unwrap_or_default();
        if known.is_some() && self.is_near(page, self.range) {
            self.cluster_requests = self.cluster_requests.saturating_add(1);
            let (first, last) = (first.min(page), last.max(end));
            self.cluster = Some((first, last));
            if last - first < self.range {
                return;
            }
        }
        self.last_cluster = last - first + 1;
        if known.is_some() {
            // With a single touch, the other mapped pages may not have been touched.
            let unseen = last + 1 == self.last_end && self.cluster_requests > 0;
            let last = last + if unseen { self.unseen } else { 0 };
            let width = if self.entered == first { last - first + 1 } else { 0 };
            self.widths.add(width);
            self.ended = Some(width);
        }
        self.entered = page;
        self.cluster_requests = 0;
        self.cluster = Some((page, end));
    }

    /// Whether a page is at most `pages` from the end of the last access.
    fn is_near(&self, page: u64, pages: u64) -> bool {
        lies_near(self.last_end, page, pages)
    }

    /// Whether two equal jumps were seen, or three where reads may arrive reordered.
    pub(super) fn stride_mode(&self) -> bool {
        let in_a_cluster = self.reads_are_faults && self.stride_length <= self.range;
        self.stride_requests > if in_a_cluster { 2 } else { 1 }
    }

    /// The stride of the reader, once it is trusted.
    pub(super) fn stride(&self) -> Option<Stride> {
        let (length, data) = (self.stride_length, self.stride_data);
        self.stride_mode().then_some(Stride::new(PageIndex(self.stride_offset), length, data))
    }

    pub(super) fn window_end(&self) -> u64 {
        self.window_start.saturating_add(self.window)
    }

    /// A page rounded down to a multiple of the RPC size, or of the window if that is smaller.
    pub(super) fn align(&self, page: u64) -> u64 {
        page - page % self.window.min(self.rpc).max(1)
    }

    /// A reader with fewer pages of its window ahead plans readahead.
    pub(super) fn fast_pages(&self) -> u64 {
        self.fast.max(self.rpc)
    }

    /// Whether the reader continues without planning readahead.
    pub(super) fn is_fast(&self) -> bool {
        let stretch = self.stride().map_or(1, |stride| stride.length.div_ceil(stride.data));
        let left = self.fast_pages().saturating_mul(stretch);
        self.whole_file || self.window_end() < self.next.saturating_add(left)
    }

    /// How many of `pages` pages may be read; readers wait for `demanded` of them.
    pub(super) fn grant(&self, pages: u64, demanded: u64, view: View<'_>) -> u64 {
        // No readahead takes more than a quarter of the cache.
        let pages = pages.min(view.frames / 4);
        let granted = pages.min(view.free);
        // At least an RPC, or nothing.
        let granted = if granted < pages.min(self.rpc) { 0 } else { granted };
        granted.max(demanded)
    }

    /// The reason of the window.
    pub(super) fn reason(&self) -> Reason {
        if self.whole_file {
            Reason::WholeFile
        } else if self.around {
            Reason::Range
        } else if self.stride_mode() {
            Reason::Stride
        } else if self.window > 0 {
            Reason::Readahead
        } else {
            Reason::Random
        }
    }
}

/// Whether a page is at most `pages` from the end of an access.
fn lies_near(end: u64, page: u64, pages: u64) -> bool {
    (end.saturating_sub(pages)..end.saturating_add(pages)).contains(&page)
}
