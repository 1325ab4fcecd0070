//! Readahead policies: given an access that missed or met a mark, plan what to read.
//!
//! A policy plans and does nothing. It sees an [`Access`] and a read-only [`View`] of the cache,
//! and pushes [`Plan`]s. The cache skips resident pages, cuts windows at the end of the file,
//! applies the budget and sets the marks. So a policy cannot break an invariant; it can only choose
//! badly.

mod costs;
mod file_requests;
mod none;
mod on_demand;
mod range;
mod siblings;
mod stream;
mod stride;
mod weighed;

pub use costs::Costs;
pub(crate) use costs::DemandFill;
pub(crate) use file_requests::FileRequests;
pub use none::NoReadahead;
pub use on_demand::{OnDemand, follows};
pub use range::{ClusterRules, Clusters, Range, RangeConfig, RangeEvent};
pub use siblings::{
    PlannedSibling, SIBLING_SHARE, SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, SamplePrior, Sibling,
    SiblingDirectories, SiblingEvent, SiblingExtent, SiblingFetch, SiblingReason, SiblingTrails, SiblingUses,
    Siblings,
};
pub use stream::{Detector, Scores, Stream, StreamConfig};
#[cfg(feature = "ablation")]
pub use stream::{Tuning, set_tuning};
pub use stride::Stride;
pub use weighed::{Candidate, Verdict, Weighed, WeighedCandidate};

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::cache::{Flag, Frames, History, PageTable};
use crate::config::Config;
use crate::event::Trigger;
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::Pattern;
use crate::stats::Stats;
use crate::time::Instant;

/// A readahead policy: the state of one handle, or of all handles of a file
/// ([`Capabilities::per_file`]).
///
/// Derive `Clone`: a copied handle starts with a copy of its source's state.
pub trait Readahead: CloneState + fmt::Debug + Send {
    /// Pushes the I/O for an access to `plans`, which is empty; [`Access::trigger`] says why.
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans);

    /// A page of the file was evicted for space; `used` says whether a reader had used it. Called
    /// only for policies with [`Capabilities::evictions`].
    fn on_evict(&mut self, _page: PageIndex, _used: bool) {}

    /// A fill of the file ended. Called only for policies with [`Capabilities::per_file`].
    fn on_fill(&mut self, _report: &FillReport) {}
}

/// Copies the state of a policy; every policy that is `Clone` has it.
pub trait CloneState {
    /// A copy that makes the same decisions from now on.
    fn copy(&self) -> Box<dyn Readahead>;
}

impl<T: Readahead + Clone + 'static> CloneState for T {
    fn copy(&self) -> Box<dyn Readahead> {
        Box::new(self.clone())
    }
}

/// A kind of policy: its name, when it is called, and how its state is built.
///
/// A static of any type with this trait, in any crate, is a policy: [`Policy::Other`].
pub trait PolicyKind: fmt::Debug + Send + Sync {
    /// The name in reports and on command lines.
    fn name(&self) -> &'static str;

    /// When the policy is called besides misses and marks.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Names of the policy's own counters, by the numbers it gives to [`Plans::note`].
    fn counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// The state of a handle, or of a file, that was never read.
    fn build(&self, config: &Config, file: &mut FileMemory) -> Box<dyn Readahead>;
}

/// When a policy is called besides misses and marks, and the scope of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// All handles of a file share one state; otherwise each handle has its own.
    pub per_file: bool,
    /// On every access, before the page is looked up ([`Trigger::Lookup`]). Hits then cost a call.
    pub every_access: bool,
    /// Under random and will-need advice. Otherwise the cache reads exactly the range that misses
    /// or that the advice names.
    pub advice: bool,
    /// When a driver maps a range at a touch ([`Trigger::Mapped`]).
    pub mapped: bool,
    /// When a fault finds its page ([`Trigger::Found`]).
    pub found: bool,
    /// When a page is evicted ([`Readahead::on_evict`]); only with `per_file`.
    pub evictions: bool,
    /// Not of a file, but of a directory: a driver that knows its files reads ahead those that
    /// [`Siblings`] plans.
    pub siblings: bool,
}

/// The policy's state of a file, for as long as the file is open.
#[derive(Clone, Debug, Default)]
pub struct FileMemory {
    /// A driver maps the pages of this file
    /// ([`Cache::map_by_offset`](crate::Cache::map_by_offset)).
    pub offset_mapped: bool,
    /// State that the policy's handles of this file share; only the policy accesses it.
    pub shared: Option<Arc<dyn Any + Send + Sync>>,
}

/// One access of a handle's reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time of the access.
    pub now: Instant,
    /// The handle.
    pub handle: HandleId,
    /// The accessed page.
    pub page: PageIndex,
    /// The whole request, not clipped at the end of the file; `page` is in it.
    pub request: PageRange,
    /// Last page of the previous request through this handle (for a fault: of the fault before).
    pub prev_page: Option<PageIndex>,
    /// The page of the byte after the last *read* through this handle: `prev_page` if the read
    /// ended inside it, else the next page.
    pub prev_end: Option<PageIndex>,
    /// Why the policy is called.
    pub trigger: Trigger,
    /// The handle has random advice. Only policies with [`Capabilities::advice`] see it.
    pub random: bool,
    /// For a fault of a mapped page: the advice of the mapping. `request` is then that page.
    pub mapped: Option<Pattern>,
}

/// What a policy may inspect: the cached pages of its file, and the current limits.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) table: &'a PageTable,
    pub(crate) frames_of: &'a Frames,
    pub(crate) file: FileId,
    pub(crate) stats: Option<&'a Stats>,
    pub(crate) history: Option<&'a History>,
    pub(crate) file_requests: &'a FileRequests,
    /// Results of readahead in this file so far.
    pub waste: WasteCounts,
    /// Memory pressure.
    pub pressure: Pressure,
    /// Largest window in pages, with advice applied; 0 for no readahead.
    pub ra_pages: u64,
    /// As [`Config::la_size`].
    pub la_size: u32,
    /// Pages in the file.
    pub file_pages: PageCount,
    /// Frames available to readahead now.
    pub free: u64,
    /// Frames that the cache may use in total.
    pub frames: u64,
    /// Whether the device refuses readahead now.
    pub congested: bool,
    /// What requests to the store cost.
    pub costs: &'a Costs,
}

/// Exact results of readahead in a file. With them a policy can keep a waste budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WasteCounts {
    /// Pages used by readers: demand reads, and pages read ahead and then used.
    pub consumed: u64,
    /// Pages read ahead and unused: cached, in flight or evicted. Neither planned pages nor pages
    /// of failed fills count.
    pub unread: u64,
    /// Pages read ahead and used.
    pub used: u64,
}

/// How often the readers of a file used its pages, unless [that was
/// forgotten](View::has_forgotten). Late pages count as used again as long as reads wait for them,
/// and so do pages that were evicted unread and requested again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Pages used, each counted once: a lower bound.
    pub pages: u64,
    /// Accesses to pages that were used before: an upper bound.
    pub again: u64,
}

/// Memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Evictions and activations so far, modulo 2^32: pages that left the inactive list. The clock
    /// of refault distances.
    pub evictions: u32,
    /// Frames for pages read once: all except the frames of active pages.
    pub cold: u64,
    /// Frames of all files whose pages were read ahead and are unused: in flight or up to date.
    pub unread: u64,
    /// Pages of the other reads that wait: they cannot be evicted.
    pub awaited: u64,
}

/// The result of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillReport {
    /// When it ended.
    pub now: Instant,
    /// Its pages.
    pub range: PageRange,
    /// Nanoseconds from the request to the end.
    pub took_ns: u64,
    /// For readahead that a reader waited for: nanoseconds of the wait.
    pub waited_ns: Option<u64>,
    /// Whether a reader waited for it from the beginning.
    pub demanded: bool,
    /// It failed or was cancelled: `range` are pages of it that are absent and not requested again.
    pub failed: bool,
}

/// A readahead window.
///
/// ```text
///   |<------------- size ------------->|
///   |==========#=======================|      # lookahead mark
///   start      |<----- async_size ---->|
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: PageIndex,
    /// Pages.
    pub size: PageCount,
    /// Pages from the lookahead mark to the end; 0 for no mark, at most `size`.
    pub async_size: PageCount,
}

/// A window to read, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The window, before the cache clips it to missing pages within the file.
    pub window: Window,
    /// The page to mark, if it is new: the first of the asynchronous part, unless the policy knows
    /// better.
    pub mark: Option<PageIndex>,
    /// Why.
    pub reason: Reason,
    /// How it is requested and retained.
    pub hints: Hints,
}

/// How a window is requested and retained, beyond its pages and its mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Only the pages of a stride are read.
    pub stride: Option<Stride>,
    /// Each page whose distance from [`Plan::mark`] is a multiple of this many pages is marked,
    /// too, and begins a request. 0 for none.
    pub mark_every: u64,
    /// A request begins every this many pages from the start of the window. Requests are served
    /// side by side, and a reader waits for one of them. 0 for none.
    pub split_every: u64,
    /// Readers are done with these pages: they are the next to be evicted. Empty for none.
    pub drop_behind: PageRange,
    /// Memory is short and the window will be read once: each page is evicted next as soon as its
    /// reader comes to the following one.
    pub read_once: bool,
    /// Under memory pressure the window outlasts pages that were used.
    pub retain: bool,
}

/// What to read, in order: usually one window, sometimes none or several.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    list: Vec<Plan>,
    /// With [`Capabilities::every_access`]: the page of this request at which the policy is called
    /// next. Not again if it is at or before the accessed page, or outside the request.
    pub next: PageIndex,
    /// What the policy weighed at a miss or a mark; `None` without [`Config::explain`]. Calls for
    /// other reasons must not add to it.
    pub weighed: Option<Box<Weighed>>,
    /// Bitmap of events.
    noted: u16,
    /// Levels of [`FileRequests`] that the file had reached, and has now.
    pub(crate) reached: (u8, u8),
}

named_enum! {
    /// Why a policy decided as it did. The names are those of table 2 of the OLS paper of 2007,
    /// where it has one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        /// First read at the start of a file: it may be read whole.
        Initial = "initial",
        /// A read larger than the largest window, out of sequence.
        Oversize = "oversize",
        /// A small read out of sequence: the request alone.
        Random = "random",
        /// The reader reached the lookahead index of the last window.
        Lookahead = "lookahead",
        /// The reader reached the end of the last window (its mark was passed over or deferred).
        Readahead = "readahead",
        /// Not sequential, but enough cached pages precede it: one of several streams.
        Context = "context",
        /// A mapped page faulted: the pages around it.
        Around = "around",
        /// A sequential read missed: a new window.
        Miss = "miss",
        /// A mark of a window that this state does not know: an interleaved stream.
        Interleaved = "interleaved",
        /// The window ahead of the one that the reader is in (2.6.20).
        Ahead = "ahead",
        /// The accessed page itself, if the plan omits it or there is no readahead.
        Demand = "demand",
        /// Async readahead on a congested device: dropped, and comes back as a sync one (OLS
        /// paper, section 3.2).
        Deferred = "deferred",
        /// Exactly the range that the user requested.
        Forced = "forced",
        /// Strided reads: the next blocks of the stride.
        Stride = "stride",
        /// A mapped page missed among nearby touches: a window around it as wide as their distance
        /// (Lustre's patch of 2021). With `stream`, a run of predicted length.
        Range = "range",
        /// A small file: all of it.
        WholeFile = "whole_file",
        /// Downward reads: the pages before them.
        Backward = "backward",
        /// Repeating offset deltas: the run at the next delta.
        Jumps = "jumps",
        /// The first read of the last pages of a file, where many formats have their index: these
        /// last pages.
        Tail = "tail",
        /// A page read ahead was evicted before it was read: the window shrinks to what survives.
        Thrash = "thrash",
        /// The reader's plan has these pages.
        Planned = "plan",
    }
}

/// A readahead policy. Policies of one name are equal.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// No readahead: each miss reads the rest of the request.
    None,
    /// On-demand readahead as in the paper "Linux readahead: less tricks for more" (Wu and others,
    /// OLS 2007): figure 4, tables 2 and 3.
    OnDemand,
    /// Lustre's readahead: strides, small files, and windows around mapped faults. Set up by
    /// [`Config::range`].
    Range,
    /// bowwave's own: a table of streams for each file, and pattern detectors, set up by
    /// [`Config::stream`].
    Stream,
    /// A policy of another crate.
    Other(&'static dyn PolicyKind),
}

impl View<'_> {
    /// A view of an endless file without cached pages, for tests of one policy.
    pub fn of_nothing(ra_pages: u64) -> View<'static> {
        static NOTHING: PageTable = PageTable::new();
        static NO_FRAMES: Frames = Frames::new();
        static NO_FILES: FileRequests = FileRequests::new();
        static NO_COSTS: Costs = Costs::new();
        View {
            table: &NOTHING,
            frames_of: &NO_FRAMES,
            file: FileId(0),
            stats: None,
            history: None,
            file_requests: &NO_FILES,
            waste: WasteCounts::default(),
            pressure: Pressure { evictions: 0, cold: u64::MAX, unread: 0, awaited: 0 },
            ra_pages,
            la_size: u32::MAX,
            file_pages: PageCount(u64::MAX),
            free: u64::MAX,
            frames: u64::MAX,
            congested: false,
            costs: &NO_COSTS,
        }
    }

    /// Whether a page was read ahead and is unused.
    pub fn is_unread(&self, page: PageIndex) -> bool {
        let frame = self.table.get(self.file, page).frame();
        frame.is_some_and(|frame| self.frames_of.get(frame).has(Flag::Unused))
    }

    /// Whether a page was evicted after use, unless [that was forgotten](Self::has_forgotten).
    pub fn was_used(&self, page: PageIndex) -> bool {
        !self.is_cached(page) && self.is_used(page)
    }

    /// Whether a reader used a page, unless [that was forgotten](Self::has_forgotten).
    pub fn is_used(&self, page: PageIndex) -> bool {
        let known = self.table.get(self.file, page);
        match (known.frame(), known.shadow()) {
            (Some(frame), _) => !self.frames_of.get(frame).has(Flag::Unused),
            (None, Some(shadow)) => !shadow.unused,
            (None, None) => self.history.is_some_and(|history| history.has(page)),
        }
    }

    /// How often readers of the file used pages again.
    pub fn repeats(&self) -> Repeats {
        let (accesses, refaults) = self.stats.map_or((0, 0), |stats| (stats.accesses, stats.refaults));
        let returned = refaults + self.history.map_or(0, |history| history.returned);
        let again = accesses.saturating_sub(self.waste.consumed);
        Repeats { pages: self.waste.consumed.saturating_sub(returned), again: again.saturating_add(returned) }
    }

    /// Whether it was forgotten which pages of the file were used: its bytes changed, it is too
    /// large, or other files needed the memory.
    pub fn has_forgotten(&self) -> bool {
        self.history.is_some_and(|history| history.is_lost)
    }

    /// Whether a page is cached or in flight.
    pub fn is_cached(&self, page: PageIndex) -> bool {
        self.table.get(self.file, page).frame().is_some()
    }

    /// The first page from `from` on that is not cached, looking at `max` pages at most.
    pub fn next_miss(&self, from: PageIndex, max: PageCount) -> Option<PageIndex> {
        self.table.next_absent(self.file, PageRange::from_start(from, max))
    }

    /// The last page down from `from` that is not cached, looking at `max` pages at most.
    pub fn prev_miss(&self, from: PageIndex, max: PageCount) -> Option<PageIndex> {
        let lowest = (from.0.saturating_add(1)).saturating_sub(max.0);
        (lowest..=from.0).rev().map(PageIndex).find(|&page| !self.is_cached(page))
    }
}

impl WasteCounts {
    /// The history in these counters.
    pub(crate) fn of(stats: &Stats) -> Self {
        let demanded = stats.pages_filled.saturating_sub(stats.pages_readahead);
        let planned = stats.pages_planned.saturating_sub(stats.pages_planned_used);
        let settled = stats.pages_used + stats.pages_failed;
        let unread = stats.pages_readahead.saturating_sub(settled).saturating_sub(planned);
        let (used, consumed) = (stats.pages_used, demanded.saturating_add(stats.pages_used));
        Self { consumed, unread, used }
    }
}

impl Access {
    /// A read at the first page of `request`, at time 0 through the first handle, after a read that
    /// ended with `prev_page`: for tests of one policy.
    pub fn read(request: PageRange, prev_page: Option<PageIndex>, trigger: Trigger) -> Self {
        let prev_end = prev_page.map(|page| page + PageCount(1));
        Self {
            now: Instant(0),
            handle: HandleId(0),
            page: request.start,
            request,
            prev_page,
            prev_end,
            trigger,
            random: false,
            mapped: None,
        }
    }

    /// Pages from the accessed one to the end of the request.
    pub fn req_pages(&self) -> u64 {
        (self.request.end - self.page).0
    }
}

impl Plan {
    /// A plan to read `size` pages from `start`, the last `async_size` of them ahead of the reader.
    #[inline]
    pub fn new(start: PageIndex, size: u64, async_size: u64, reason: Reason) -> Self {
        let window = Window { start, size: PageCount(size), async_size: PageCount(async_size) };
        Self { window, mark: window.mark(), reason, hints: Hints::default() }
    }

    /// The plan with at most `pages` pages beyond its lookahead mark; 0 for no mark.
    #[inline]
    #[must_use]
    pub fn lookahead_at_most(mut self, pages: u32) -> Self {
        let pages = u64::from(pages);
        if self.window.async_size.0 > pages {
            self.window.async_size = PageCount(pages);
            self.mark = self.window.mark();
        }
        self
    }

    /// Whether a request must begin at this page of the window.
    pub fn parts(&self, page: PageIndex) -> bool {
        let part = page.0.wrapping_sub(self.window.start.0);
        let every = self.hints.split_every;
        self.marked_again(page) || every > 0 && part.is_multiple_of(every)
    }

    /// Whether a page has one of the marks behind the first.
    fn marked_again(&self, page: PageIndex) -> bool {
        let past = self.mark.map(|mark| page.0.abs_diff(mark.0));
        let every = self.hints.mark_every;
        every > 0 && past.is_some_and(|past| past.is_multiple_of(every))
    }

    /// Whether a page of the window gets a mark, if it is new.
    pub fn marks(&self, page: PageIndex) -> bool {
        self.mark == Some(page) || self.marked_again(page)
    }
}

impl Plans {
    /// An empty list. `explain`: policies record what they weigh.
    pub(crate) fn new(explain: bool) -> Self {
        Self { weighed: explain.then(Box::default), ..Self::default() }
    }

    /// Appends a window.
    #[inline]
    pub fn push(&mut self, plan: Plan) {
        self.list.push(plan);
    }

    /// Clears the list and keeps its memory, for the next access.
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
        (self.next, self.noted, self.reached) = (PageIndex(0), 0, (0, 0));
    }

    /// Takes the list, to be carried out while the cache changes. Return its memory with
    /// [`give_back`](Self::give_back).
    #[inline]
    pub(crate) fn take_list(&mut self) -> Vec<Plan> {
        core::mem::take(&mut self.list)
    }

    #[inline]
    pub(crate) fn give_back(&mut self, list: Vec<Plan>) {
        self.list = list;
    }

    /// Counts an event of the policy, by its index in [`PolicyKind::counters`], below
    /// [`Stats::COUNTERS`]. Repeats within one call count once.
    pub fn note(&mut self, event: u8) {
        self.noted |= 1 << event;
    }

    /// Whether an event was noted.
    #[inline]
    pub(crate) fn has_noted(&self) -> bool {
        self.noted != 0
    }

    /// Adds the noted events to the counters of a file.
    pub(crate) fn count(&self, counters: &mut [u64; Stats::COUNTERS]) {
        let mut noted = self.noted;
        while noted != 0 {
            counters[noted.trailing_zeros() as usize] += 1;
            noted &= noted - 1;
        }
    }

    /// The windows, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.list.iter()
    }
}

impl Window {
    /// The pages of the window.
    pub fn range(self) -> PageRange {
        PageRange::from_start(self.start, self.size)
    }

    /// The page of the lookahead mark.
    #[inline]
    pub fn mark(self) -> Option<PageIndex> {
        let ahead = self.async_size.0.min(self.size.0);
        (ahead > 0).then(|| self.start + PageCount(self.size.0 - ahead))
    }
}

impl Policy {
    /// The policies of this crate.
    pub const ALL: [Self; 4] = [Self::None, Self::OnDemand, Self::Range, Self::Stream];

    /// A fresh state of this policy for a handle of a file, or for the file.
    pub fn build(self, config: &Config, file: &mut FileMemory) -> Box<dyn Readahead> {
        match self {
            Self::None => Box::new(NoReadahead),
            Self::OnDemand => Box::new(OnDemand::new()),
            Self::Range => Box::new(Range::new(config, file)),
            Self::Stream => Box::new(Stream::new(config.stream)),
            Self::Other(kind) => kind.build(config, file),
        }
    }

    /// When the policy is called besides misses and marks.
    pub fn capabilities(self) -> Capabilities {
        match self {
            Self::None | Self::OnDemand => Capabilities::default(),
            Self::Range => Range::capabilities(),
            Self::Stream => {
                Capabilities { per_file: true, mapped: true, siblings: true, ..Capabilities::default() }
            }
            Self::Other(kind) => kind.capabilities(),
        }
    }

    /// Names of the policy's own counters, as [`Stats::counter`] counts them.
    pub fn counters(self) -> &'static [&'static str] {
        match self {
            Self::None | Self::OnDemand | Self::Stream => &[],
            Self::Range => Range::COUNTERS,
            Self::Other(kind) => kind.counters(),
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OnDemand => "ondemand",
            Self::Range => "range",
            Self::Stream => "stream",
            Self::Other(kind) => kind.name(),
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Policy {}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
