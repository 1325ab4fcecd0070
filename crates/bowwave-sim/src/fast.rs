//! Fast replay: a trace through the engine's own cache, with device reads that complete at once.
//!
//! ```text
//! rows ──► pages ──► core::Cache::access_instant ──► counters      (no page is ever late)
//! ```
//!
//! Misses and readahead do not depend on a device model if times do not matter. A hundred million
//! rows then take seconds. That makes policies, cache sizes and evictions comparable on traces too
//! long for [`crate::machine`]. Here `seconds`, `late` and latencies are 0.
//!
//! Each stream (process and file) has one readahead state. Reads and loads are read, `evict` rows
//! drop pages, advice is passed on; writes are skipped or count as reads ([`Writes`]). A read
//! larger than half the cache's frames is split.

use bowwave_core::{
    Action, Advice, Cache, Config, ConfigError, Eviction, Fault, FileId, FillError, HandleId, Instant,
    PageAccess, PageCount, PageIndex, PageRange, PageSize, Pattern, Policy, Request, Stats,
};
use bowwave_trace::binary::{self, Trace};
use bowwave_trace::{Error, Op};

use crate::record::Row;
use crate::sweep::SweepError;

/// Maximum pages of a row: twice the 2 GiB that Linux reads per call. More is an error in the
/// trace.
const ROW_PAGES_MAX: u64 = 1 << 20;

/// Configuration of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Readahead policy.
    pub policy: Policy,
    /// Frames of the cache; `None` never evicts.
    pub cache_pages: Option<u32>,
    /// Eviction policy.
    pub eviction: Eviction,
    /// Maximum pages of a window.
    pub ra_pages: u32,
    /// Bytes of a page.
    pub page_size: PageSize,
    /// How writes are treated.
    pub writes: Writes,
}

/// How writes and stores of a trace are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Skipped.
    #[default]
    LeftOut,
    /// Count as reads: how traces of disks are replayed to compare with published miss ratios.
    AsReads,
}

/// Result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Rows that were reads or counted as reads.
    pub reads: u64,
    /// Skipped rows: writes and syncs.
    pub left_out: u64,
    /// Bytes the reads requested.
    pub bytes_wanted: u64,
    /// Counters of the cache.
    pub stats: Stats,
}

impl Default for Setup {
    /// On-demand readahead of 32 pages of 4 KiB in a cache that never evicts; writes skipped.
    fn default() -> Self {
        Self {
            policy: Policy::OnDemand,
            cache_pages: None,
            eviction: Eviction::TwoList,
            ra_pages: 32,
            page_size: PageSize::KIB_4,
            writes: Writes::LeftOut,
        }
    }
}

/// Replays a trace.
///
/// # Errors
///
/// An invalid row, a row that touches more than 2^20 pages, or a rejected configuration.
pub fn replay<B: AsRef<[u8]>>(trace: &Trace<B>, setup: &Setup) -> Result<Outcome, SweepError> {
    let mut machine = Machine::new(trace, setup)?;
    for (row, number) in trace.rows().zip(0u64..) {
        let row = row.map_err(|bad| trace.error(bad))?;
        let outcome = machine.row(&row);
        outcome.map_err(|problem| {
            let why = match problem {
                Problem::TooLong(pages) => {
                    format!("{pages} pages at once; a row may touch {ROW_PAGES_MAX} at most")
                }
                Problem::OutOfFrames => {
                    format!("more than {} pages in all; set a cache size", Config::UNLIMITED)
                }
            };
            Error::unfit(trace.name(), format!("row {number}: {why}"))
        })?;
    }
    machine.outcome.stats = machine.cache.stats();
    Ok(machine.outcome)
}

/// The pages a row reads, if it is or counts as a read.
pub fn pages(row: &binary::Row, page_size: PageSize, writes: Writes) -> Option<PageRange> {
    let reads = match row.op {
        Op::Read | Op::Load => true,
        Op::Write | Op::Store => writes == Writes::AsReads,
        _ => false,
    };
    reads.then(|| page_size.range_of(row.offset, row.length))
}

impl Outcome {
    /// A row of a table.
    pub fn row(&self, setup: &Setup) -> Row {
        let Stats { accesses, hits, late, misses, fills, pages_filled, .. } = self.stats;
        let page = setup.page_size.bytes();
        let bytes_fetched = pages_filled * page;
        let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Row {
            policy: setup.policy.name().to_owned(),
            eviction: setup.eviction.name().to_owned(),
            device: "instant".to_owned(),
            cache_bytes: setup.cache_pages.map(|pages| u64::from(pages) * page),
            ra_pages: setup.ra_pages,
            accesses,
            hits,
            late,
            misses,
            requests: fills,
            bytes_fetched,
            bytes_wanted: self.bytes_wanted,
            amplification: per(bytes_fetched, self.bytes_wanted),
            pages_used: self.stats.pages_used,
            pages_wasted: {
                let Stats { pages_readahead, pages_used, pages_thrashed, .. } = self.stats;
                pages_readahead.saturating_sub(pages_used + pages_thrashed)
            },
            pages_thrashed: self.stats.pages_thrashed,
            avg_io_bytes: per(bytes_fetched, fills),
            ..Row::default()
        }
    }
}

/// A cache and a device that takes no time.
struct Machine {
    cache: Cache,
    setup: Setup,
    /// Maximum pages of one read of the cache.
    piece: u64,
    /// The file of each stream.
    files: Vec<FileId>,
    outcome: Outcome,
    // Reused buffer, lent to the cache.
    actions: Vec<Action>,
}

/// Why a row failed.
enum Problem {
    TooLong(u64),
    OutOfFrames,
}

/// A read found no free frame, and the cache never evicts.
impl From<FillError> for Problem {
    fn from(_: FillError) -> Self {
        Self::OutOfFrames
    }
}

impl Machine {
    /// Opens all files and handles of the trace.
    fn new<B: AsRef<[u8]>>(trace: &Trace<B>, setup: &Setup) -> Result<Self, ConfigError> {
        let Setup { policy, cache_pages, eviction, ra_pages, page_size, .. } = *setup;
        let frames = cache_pages.unwrap_or(Config::UNLIMITED);
        let mut cache =
            Cache::new(Config { page_size, frames, ra_pages, policy, eviction, ..Config::default() })?;
        for file in 0..trace.file_count() {
            cache.open_file(FileId(file), page_size.count_for(trace.file_end(file)));
        }
        let files: Vec<FileId> = trace.streams().iter().map(|stream| FileId(stream.file)).collect();
        for (&file, handle) in files.iter().zip(0..) {
            cache.open_handle(HandleId(handle), file);
        }
        Ok(Self {
            cache,
            setup: *setup,
            piece: u64::from(frames / 2).clamp(1, ROW_PAGES_MAX),
            files,
            outcome: Outcome { reads: 0, left_out: 0, bytes_wanted: 0, stats: Stats::default() },
            actions: Vec::new(),
        })
    }

    #[inline]
    fn row(&mut self, row: &binary::Row) -> Result<(), Problem> {
        if row.op != Op::Read {
            return self.other(row);
        }
        self.outcome.reads += 1;
        self.outcome.bytes_wanted = self.outcome.bytes_wanted.saturating_add(row.length);
        let request = self.setup.page_size.request_of(row.offset, row.length);
        self.read(HandleId(row.stream), request)
    }

    #[inline]
    fn read(&mut self, handle: HandleId, request: Request) -> Result<(), Problem> {
        if request.range.count().0 > self.piece {
            return self.read_pieces(handle, request);
        }
        self.cache.access_instant(Instant(0), PageAccess::read(handle, request), &mut ())?;
        Ok(())
    }

    fn read_pieces(&mut self, handle: HandleId, request: Request) -> Result<(), Problem> {
        let mut left = pages_in_bounds(request.range)?;
        while !left.is_empty() {
            let range = PageRange::from_start(left.start, PageCount(self.piece)).intersect(left);
            left.start = range.end;
            let piece = Request { range, ends_inside: request.ends_inside && left.is_empty() };
            self.cache.access_instant(Instant(0), PageAccess::read(handle, piece), &mut ())?;
        }
        Ok(())
    }

    /// Touches mapped pages, one by one.
    fn touch(&mut self, handle: HandleId, range: PageRange) -> Result<(), Problem> {
        let range = pages_in_bounds(range)?;
        for page in (range.start.0..range.end.0).map(PageIndex) {
            let fault = Fault { page, pattern: Pattern::Normal };
            self.cache.access_instant(Instant(0), PageAccess::fault(handle, fault), &mut ())?;
        }
        Ok(())
    }

    /// Processes a row that is not a read.
    fn other(&mut self, row: &binary::Row) -> Result<(), Problem> {
        let Setup { page_size, writes, .. } = self.setup;
        let (handle, file) = (HandleId(row.stream), self.files[row.stream as usize]);
        let request = page_size.request_of(row.offset, row.length);
        if pages(row, page_size, writes).is_some() {
            self.outcome.reads += 1;
            self.outcome.bytes_wanted = self.outcome.bytes_wanted.saturating_add(row.length);
            return match row.op {
                Op::Load | Op::Store => self.touch(handle, request.range),
                _ => self.read(handle, request),
            };
        }
        let advice = match row.op {
            Op::WillNeed => Advice::WillNeed,
            Op::DontNeed => Advice::DontNeed,
            Op::Random => Advice::Random,
            Op::Sequential => Advice::Sequential,
            Op::Evict => {
                self.cache.invalidate(file, request.range);
                return Ok(());
            }
            Op::Plan => {
                self.plan(handle, request.range);
                return Ok(());
            }
            Op::Done => return Ok(()),
            Op::Read | Op::Load | Op::Write | Op::Store | Op::Fsync => {
                self.outcome.left_out += 1;
                return Ok(());
            }
        };
        let mut actions = std::mem::take(&mut self.actions);
        let mut range = request.range;
        if advice == Advice::WillNeed {
            range = PageRange::from_start(range.start, PageCount(range.count().0.min(ROW_PAGES_MAX)));
        }
        self.cache.advise(Instant(0), handle, range, advice, &mut actions);
        self.answer(actions);
        Ok(())
    }

    /// Announces a range of the read plan, or ends the plan.
    fn plan(&mut self, handle: HandleId, range: PageRange) {
        let mut actions = std::mem::take(&mut self.actions);
        if range.is_empty() {
            self.cache.end_plan(Instant(0), handle, &mut actions);
        } else {
            // Ranges beyond the maximum of a plan are not announced.
            let _refused = self.cache.set_read_plan(Instant(0), handle, &[range], &mut actions);
        }
        self.answer(actions);
    }

    /// Completes fills. Their completions cause nothing more, because no read waits.
    fn answer(&mut self, mut actions: Vec<Action>) {
        for action in actions.drain(..) {
            if let Action::Fill(fill) = action {
                self.cache.filled(Instant(0), fill.id, Ok(()), &mut self.actions);
            }
        }
        self.actions = actions;
    }
}

/// Returns the range if it is not longer than any system call's.
fn pages_in_bounds(range: PageRange) -> Result<PageRange, Problem> {
    let count = range.count().0;
    if count > ROW_PAGES_MAX { Err(Problem::TooLong(count)) } else { Ok(range) }
}
