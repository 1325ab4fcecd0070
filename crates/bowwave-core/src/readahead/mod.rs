//! Readahead policies: given an access that missed or met a mark, plan what to read.
//!
//! A policy plans and does nothing. It sees an [`Access`] and a read-only [`View`] of the cache and returns a
//! [`Plan`]; the cache skips resident pages, cuts at the end of the file, applies the budget and sets the mark. So a policy
//! cannot break an invariant, only choose badly.

mod none;
mod on_demand;

pub use none::NoReadahead;
pub use on_demand::{OnDemand, Variant};

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use crate::cache::PageTable;
use crate::event::Trigger;
use crate::id::FileId;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::time::Instant;

/// A readahead policy: the state of one open handle.
pub trait Readahead: fmt::Debug + Send {
    /// Plans the I/O for an access that missed or met the lookahead mark.
    fn on_access(&mut self, access: Access, view: View<'_>) -> Plan;
}

/// What a handle's reader does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When.
    pub now: Instant,
    /// The page it stands on.
    pub page: PageIndex,
    /// The whole request, not clipped at the end of the file; `page` is in it.
    pub request: PageRange,
    /// Last page of the previous request through this handle.
    pub prev_page: Option<PageIndex>,
    /// Whether the page is missing or bears the mark.
    pub trigger: Trigger,
}

/// What a policy may look at: the cached pages of its file, and the limits in force.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    table: &'a PageTable,
    file: FileId,
    /// Most pages of a window now (advice included).
    pub ra_pages: u64,
    /// Pages of the file.
    pub file_pages: PageCount,
    /// Frames that readahead could get now.
    pub free: u64,
    /// Whether the device refuses readahead now.
    pub congested: bool,
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

/// What to read, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The window, before clipping to what is missing and exists.
    pub window: Window,
    /// Why.
    pub reason: Reason,
}

/// Why a policy decided as it did. The names are those of table 2 of the OLS'07 paper (002) where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// First read at the start of a file: it may be read whole.
    Initial,
    /// A read larger than the largest window, out of sequence.
    Oversize,
    /// A small read out of sequence: as is.
    Random,
    /// The reader reached the lookahead index of the last window.
    Lookahead,
    /// The reader reached the end of the last window (its mark was passed over or deferred).
    Readahead,
    /// A sequential read missed: a new window.
    Miss,
    /// A mark of a window that this state does not know: an interleaved stream.
    Interleaved,
    /// The accessed page itself, because the decision before left it out or there is no readahead.
    Demand,
    /// Async readahead on a congested device: dropped, and comes back as a sync one (paper 3.2).
    Deferred,
    /// The user asked for exactly this.
    Forced,
}

/// Which policy, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// No readahead: each miss reads what the request wants and no more.
    None,
    /// On-demand readahead as the OLS'07 paper (002) has it: figure 4, tables 2 and 3.
    OnDemand,
    /// On-demand readahead as the patch (000) has it, to the letter.
    OnDemandPatch,
}

impl<'a> View<'a> {
    /// A view of `file`.
    pub(crate) fn new(
        table: &'a PageTable,
        file: FileId,
        ra_pages: u64,
        file_pages: PageCount,
        free: u64,
        congested: bool,
    ) -> Self {
        Self { table, file, ra_pages, file_pages, free, congested }
    }

    /// A view of an endless file of which nothing is cached: to try a policy by itself.
    #[must_use]
    pub fn of_nothing(ra_pages: u64) -> View<'static> {
        static NOTHING: PageTable = PageTable::new();
        View::new(&NOTHING, FileId(0), ra_pages, PageCount(u64::MAX), u64::MAX, false)
    }

    /// Whether a page is cached or in flight.
    #[must_use]
    pub fn is_cached(self, page: PageIndex) -> bool {
        self.table.get(self.file, page).frame().is_some()
    }

    /// The first page from `from` on that is not cached, looking at `max` pages at most.
    #[must_use]
    pub fn next_miss(self, from: PageIndex, max: PageCount) -> Option<PageIndex> {
        (from.0..(from + max).0).map(PageIndex).find(|&page| !self.is_cached(page))
    }

    /// The last page down from `from` that is not cached, looking at `max` pages at most.
    #[must_use]
    pub fn prev_miss(self, from: PageIndex, max: PageCount) -> Option<PageIndex> {
        let lowest = (from.0.saturating_add(1)).saturating_sub(max.0);
        (lowest..=from.0).rev().map(PageIndex).find(|&page| !self.is_cached(page))
    }
}

impl Access {
    /// Pages from the accessed one to the end of the request.
    #[must_use]
    pub fn req_pages(&self) -> u64 {
        (self.request.end - self.page).0
    }
}

impl Plan {
    /// A plan to read `size` pages from `start`, the last `async_size` of them ahead of the reader.
    #[must_use]
    pub fn new(start: PageIndex, size: u64, async_size: u64, reason: Reason) -> Self {
        let window = Window { start, size: PageCount(size), async_size: PageCount(async_size) };
        Self { window, reason }
    }
}

impl Window {
    /// The pages of the window.
    #[must_use]
    pub fn range(self) -> PageRange {
        PageRange::from_start(self.start, self.size)
    }

    /// Where the lookahead mark belongs.
    #[must_use]
    pub fn mark(self) -> Option<PageIndex> {
        let ahead = self.async_size.0.min(self.size.0);
        (ahead > 0).then(|| self.start + PageCount(self.size.0 - ahead))
    }
}

impl Reason {
    /// Every reason, in the order of [`Stats::decisions`](crate::Stats::decisions).
    pub const ALL: [Self; 10] = [
        Self::Initial,
        Self::Oversize,
        Self::Random,
        Self::Lookahead,
        Self::Readahead,
        Self::Miss,
        Self::Interleaved,
        Self::Demand,
        Self::Deferred,
        Self::Forced,
    ];

    /// The name that `explain` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Oversize => "oversize",
            Self::Random => "random",
            Self::Lookahead => "lookahead",
            Self::Readahead => "readahead",
            Self::Miss => "miss",
            Self::Interleaved => "interleaved",
            Self::Demand => "demand",
            Self::Deferred => "deferred",
            Self::Forced => "forced",
        }
    }
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::None, Self::OnDemand, Self::OnDemandPatch];

    /// A fresh state of this policy.
    #[must_use]
    pub fn build(self) -> Box<dyn Readahead> {
        match self {
            Self::None => Box::new(NoReadahead),
            Self::OnDemand => Box::new(OnDemand::new(Variant::Paper)),
            Self::OnDemandPatch => Box::new(OnDemand::new(Variant::Patch)),
        }
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OnDemand => "ondemand",
            Self::OnDemandPatch => "ondemand-patch",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses the name on the command line; the error lists the names there are.
impl FromStr for Policy {
    type Err = &'static str;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or("no such policy; there are none, ondemand, ondemand-patch")
    }
}
