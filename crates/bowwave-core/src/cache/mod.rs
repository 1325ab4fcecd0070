//! One shard of the page cache.
//!
//! | file | contents |
//! |---|---|
//! | `table` | page table |
//! | `frames` | frames, and the active and inactive lists |
//! | `access` | the demand entry for reads, parts of reads and faults; its fast path for hits; its form without waits |
//! | `walk` | an access that is not a plain hit: walk page by page, decide, wait |
//! | `mapped` | offset-mapped files: what to map, when to unmap |
//! | `plan` | from a policy's plan to fills |
//! | `fill` | the end of a fill: wake or fail, report to the policy; drop-behind |
//! | `reclaim` | eviction, shadows, lent frames |
//! | `history` | which pages were used, after their shadows are gone |
//! | `advise` | advice on ranges; invalidation |
//! | `read_plan` | a reader's plan, and readahead along it |
//! | `write` | target frames of writes, and stalled writes |
//! | `write_back` | write-outs of dirty pages; syncs |
//! | `pages` | a set of pages |
//! | `check` | invariants |

mod access;
mod advise;
mod check;
mod fill;
mod frames;
mod history;
mod mapped;
mod pages;
mod plan;
mod read_plan;
mod reclaim;
mod table;
mod walk;
mod write;
mod write_back;

pub use access::{Observer, Pins};
pub use check::Violation;
pub(crate) use check::ensure;
pub(crate) use frames::{Flag, Frames};
pub(crate) use history::History;
pub use read_plan::TooManyRanges;
pub(crate) use table::PageTable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::{Config, ConfigError, WindowTuning};
use crate::event::{Action, Event, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FillId, FrameId, HandleId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{
    Capabilities, Costs, FileMemory, FileRequests, Plans, Policy, RangeConfig, Readahead,
};
use crate::request::{PageAccess, Pattern, Request};
use crate::slab::Slab;
use crate::stats::Stats;
use crate::time::Instant;
use crate::write::WriteBackConfig;

/// A page cache without bytes: the [crate docs](crate) explain how to drive it.
///
/// Order of calls: `open_file`, `open_handle`, then accesses, writes and advice through the handle,
/// then `close_handle`, `close_file`. Each call appends at most a few actions for each page of its
/// range and window to the lent buffer. Every call that changes the cache is also an [`Event`] for
/// [`step`](Self::step). Time must not run backward.
#[derive(Debug)]
pub struct Cache {
    config: Config,
    /// [`Capabilities::evictions`] of the policy.
    reports_evictions: bool,
    now: Instant,
    /// Frames that may be used now.
    limit: u32,
    congested: bool,
    /// What requests to the store cost, from all fills.
    costs: Costs,
    /// How many requests small files get; only the policy `stream` counts them.
    file_requests: FileRequests,
    table: PageTable,
    frames: Frames,
    files: Vec<Option<File>>,
    handles: Vec<Option<Handle>>,
    fills: Slab<Option<FillState>>,
    waits: Slab<Option<Wait>>,
    /// Pages of all reads in `waits`.
    awaited: u64,
    /// Reads that found too few frames, oldest first.
    starved: VecDeque<StarvedRead>,
    reclaim: reclaim::Reclaim,
    /// Limits which pages of files are remembered as used.
    histories: history::Histories,
    write_back: write_back::WriteBack,
    /// Counters of closed files.
    closed_stats: Stats,
    /// Pages requested by reads, over all files.
    accesses: u64,
    /// Mapped pages that reclaim visited: they are unmapped, so that the cache sees further
    /// touches.
    unmapped: Vec<(FileId, PageIndex)>,
    /// Limit of readahead in flight, in pages, and pages in flight now.
    ahead_max: u64,
    ahead: u64,
    /// Readers' plans with pages left to read ahead.
    plans_sharing: u32,
    /// Buffer of the last decision's plans.
    plans: Plans,
    /// Buffer of instant reads.
    scratch: Option<Box<access::Scratch>>,
}

#[derive(Debug, Default)]
struct File {
    pages: PageCount,
    handles: u32,
    stats: Stats,
    /// Unwritten pages, if there are any.
    unwritten: Option<Box<write_back::Unwritten>>,
    /// The readahead state shared by its handles, for policies with one state a file; created by
    /// the first handle.
    policy: Option<Box<dyn Readahead>>,
    /// State kept for the policy, and whether frames are offset-mapped.
    memory: FileMemory,
    /// Which pages were used; none before one of them lost its shadow.
    history: Option<Box<History>>,
}

#[derive(Debug)]
struct Handle {
    file: FileId,
    /// Its own readahead state; none if the file has one.
    policy: Option<Box<dyn Readahead>>,
    /// When the policy is called.
    capabilities: Capabilities,
    pattern: Pattern,
    /// Windows are doubled, since sequential advice; stays during later random advice, as in Linux.
    wide: bool,
    /// Drop pages behind the reader.
    no_reuse: bool,
    /// The last read, as far as it was processed.
    prev: Option<Request>,
    /// The last page that faulted.
    prev_fault: Option<PageIndex>,
    /// Where a policy that runs on every access is called next; kept between parts of a request.
    next: PageIndex,
    /// Its reader's plan.
    read_plan: Option<Box<read_plan::ReadPlan>>,
}

#[derive(Debug)]
struct FillState {
    file: FileId,
    range: PageRange,
    urgency: Urgency,
    /// First frame; the others are chained to it in page order.
    first: FrameId,
    /// Reads that wait for it.
    waits: Vec<u64>,
    /// Has only demand pages, after a larger fill failed.
    exact: bool,
    /// The driver was asked to cancel it.
    cancelled: bool,
    /// Pages that no read had requested.
    ahead: u64,
    /// When it was requested.
    requested_at: Instant,
    /// When the first reader began to wait for it, if it was readahead.
    overtaken: Option<Instant>,
    /// No other fill was in flight when it was requested.
    alone: bool,
}

/// A read that waits for fills.
#[derive(Debug)]
struct Wait {
    waiter: Waiter,
    file: FileId,
    range: PageRange,
    /// Its frames in page order, each pinned.
    frames: Vec<FrameId>,
    /// Fills in flight.
    pending: u32,
    error: Option<FillError>,
}

#[derive(Clone, Copy, Debug)]
struct StarvedRead {
    waiter: Waiter,
    access: PageAccess,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// The first field of `config` that is out of bounds.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let capabilities = config.policy.capabilities();
        Ok(Self {
            limit: config.frames,
            reports_evictions: capabilities.per_file && capabilities.evictions,
            plans: Plans::new(config.explain),
            config,
            now: Instant(0),
            congested: false,
            costs: Costs::new(),
            file_requests: FileRequests::new(),
            table: PageTable::default(),
            frames: Frames::new(),
            files: Vec::new(),
            handles: Vec::new(),
            fills: Slab::default(),
            waits: Slab::default(),
            awaited: 0,
            starved: VecDeque::new(),
            reclaim: reclaim::Reclaim::default(),
            histories: history::Histories::default(),
            write_back: write_back::WriteBack::default(),
            closed_stats: Stats::default(),
            accesses: 0,
            unmapped: Vec::new(),
            ahead_max: u64::MAX,
            ahead: 0,
            plans_sharing: 0,
            scratch: None,
        })
    }

    /// Handles any event: the entry for replay, fuzzing and the simulator.
    ///
    /// A read that hits also returns an [`Action::Wake`], so the actions are complete.
    ///
    /// # Panics
    /// If the event breaks the contract of its method, such as a read through a closed handle.
    pub fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::OpenFile { file, pages } => self.open_file(file, pages),
            Event::CloseFile { file } => self.close_file(file),
            Event::OpenHandle { handle, file } => self.open_handle(handle, file),
            Event::CopyHandle { from, to } => self.copy_handle(from, to),
            Event::CloseHandle { handle } => self.close_handle(now, handle, out),
            Event::Access { waiter, access } => {
                let mut frames = Vec::new();
                if self.access(now, waiter, access, &mut frames, out) == ReadOutcome::Hit {
                    out.push(Action::Wake { waiter, result: Ok(frames) });
                }
            }
            Event::MapByOffset { file } => self.map_by_offset(file),
            Event::Mapped { handle, page, range } => self.mapped(handle, page, range),
            Event::Filled { fill, result } => self.filled(now, fill, result, out),
            Event::Unpin { frames } => self.unpin(now, &frames, out),
            Event::Advise { handle, range, advice } => self.advise(now, handle, range, advice, out),
            Event::SetReadPlan { handle, ranges } if ranges.is_empty() => self.end_plan(now, handle, out),
            Event::SetReadPlan { handle, ranges } => {
                // The error for too many ranges was returned when the event was logged.
                let _refused = self.set_read_plan(now, handle, &ranges, out);
            }
            Event::Write { waiter, write } => {
                let mut targets = Vec::new();
                let place = out.len();
                let outcome = self.write(now, waiter, write, &mut targets, out);
                out.insert(place, Action::Accepted { waiter, outcome, targets });
            }
            Event::WrittenOut { id, result } => self.written_out(now, id, result, out),
            Event::Sync { waiter, file, range, why } => {
                if self.sync(now, waiter, file, range, why, out) == ReadOutcome::Hit {
                    out.push(Action::Wake { waiter, result: Ok(Vec::new()) });
                }
            }
            Event::Discard { waiter, file, range } => {
                if self.discard(now, waiter, file, range, out) == ReadOutcome::Hit {
                    out.push(Action::Wake { waiter, result: Ok(Vec::new()) });
                }
            }
            Event::Expire => self.expire(now, out),
            Event::Invalidate { file, range } => self.invalidate(file, range),
            Event::Congestion { congested } => self.set_congested(congested),
            Event::Granted { frames } => self.grant(now, frames, out),
            Event::Revoked { frames } => self.revoke(frames, out),
            Event::Extended { file, pages } => self.set_pages(file, pages),
            Event::Allowed { pages } => self.allow_ahead(pages),
            Event::Tuned { windows, write_back } => self.tune(now, windows, write_back, out),
            Event::PolicySet { policy, range } => self.set_policy(policy, range),
        }
        self.report_mappings(out);
    }

    /// Opens a file of `pages` pages, with nothing cached.
    ///
    /// # Panics
    /// If `file` is open.
    pub fn open_file(&mut self, file: FileId, pages: PageCount) {
        let entry = slot(&mut self.files, file.0);
        assert!(entry.is_none(), "file {} is open", file.0);
        *entry = Some(File { pages, ..File::default() });
    }

    /// Sets a file's length. After a truncation the driver invalidates the pages past the end.
    ///
    /// # Panics
    /// If `file` is not open.
    pub fn set_pages(&mut self, file: FileId, pages: PageCount) {
        self.file_mut(file).pages = pages;
    }

    /// Forgets a file and all its pages, also unwritten ones. Fills and write-outs in flight must
    /// still be completed; only then may the driver reuse the number.
    ///
    /// # Panics
    /// If `file` is not open or has handles.
    pub fn close_file(&mut self, file: FileId) {
        assert_eq!(self.file(file).handles, 0, "file {} has open handles", file.0);
        self.forget_unwritten(file);
        self.drop_pages(file, PageRange::new(0, u64::MAX));
        self.drop_history(file);
        let closed = self.files[file.0 as usize].take().expect("looked up above");
        self.closed_stats += closed.stats;
    }

    /// Opens a handle with a fresh readahead state of the configured policy.
    ///
    /// # Panics
    /// If `handle` is open or `file` is not.
    pub fn open_handle(&mut self, handle: HandleId, file: FileId) {
        let capabilities = self.config.policy.capabilities();
        let owner = open_in(&mut self.files, file.0, FILES);
        owner.handles += 1;
        let policy = owner.build_policy(&self.config, capabilities);
        let entry = slot(&mut self.handles, handle.0);
        assert!(entry.is_none(), "handle {} is open", handle.0);
        *entry = Some(Handle {
            file,
            policy,
            capabilities,
            pattern: Pattern::Normal,
            wide: false,
            no_reuse: false,
            prev: None,
            prev_fault: None,
            next: PageIndex(0),
            read_plan: None,
        });
    }

    /// Copies the readahead state of `from`, with all advice, to `to`. For drivers in which, as in
    /// Linux 2.6, each read has its own copy of a descriptor's state. Several readers can then
    /// share a descriptor and still read page by page ([`Part`](crate::Part)).
    ///
    /// # Panics
    /// If one of them is not open, or they are not of the same file.
    pub fn copy_handle(&mut self, from: HandleId, to: HandleId) {
        let read_plan = self.copy_plan(from, to);
        let source = self.handle(from);
        let copy =
            Handle { policy: source.policy.as_ref().map(|policy| policy.copy()), read_plan, ..*source };
        let target = self.handle_mut(to);
        assert!(target.file == copy.file, "handles {} and {} are of different files", from.0, to.0);
        *target = copy;
    }

    /// Closes a handle; its file's pages stay. With the last handle of a file, readahead without
    /// waiters is cancelled. Reads through the handle that wait for frames fail with
    /// [`FillError::CLOSED`]; those that wait for fills continue.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn close_handle(&mut self, now: Instant, handle: HandleId, out: &mut Vec<Action>) {
        self.tick(now);
        let file = self.handle(handle).file;
        self.end_plan(now, handle, out);
        self.handles[handle.0 as usize] = None;
        let entry = self.file_mut(file);
        entry.handles -= 1;
        if entry.handles == 0 {
            self.cancel_readahead(file, out);
        }
        self.starved.retain(|read| {
            if read.access.part.handle == handle {
                out.push(Action::Wake { waiter: read.waiter, result: Err(FillError::CLOSED) });
            }
            read.access.part.handle != handle
        });
    }

    /// Sets whether the device's queue is too full for readahead. Async readahead is then dropped
    /// and returns as sync readahead (OLS paper of 2007, section 3.2).
    pub fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    /// Limits readahead in flight to `pages`, over all files; initially unlimited. Demand pages do
    /// not count. Readahead already in flight is not cancelled.
    ///
    /// A window that exceeds the limit is cut to a multiple of 16 pages, possibly to none.
    pub fn allow_ahead(&mut self, pages: u64) {
        self.ahead_max = pages;
    }

    /// Changes the sizes of readahead windows and the limits of dirty pages, from the next decision
    /// on. Fills in flight are unchanged; stalled writers that now have space wake.
    ///
    /// # Panics
    /// If [`Config::validate`] rejects the values.
    pub fn tune(
        &mut self,
        now: Instant,
        windows: WindowTuning,
        write_back: WriteBackConfig,
        out: &mut Vec<Action>,
    ) {
        let WindowTuning { ra_pages, la_size, persist } = windows;
        (self.config.ra_pages, self.config.la_size, self.config.persist) = (ra_pages, la_size, persist);
        self.config.write_back = write_back;
        self.config.validate().expect("the driver gives values within their bounds");
        self.tick(now);
        self.write_back(out);
        self.wake_writers(out);
    }

    /// Changes the readahead policy of all files and handles, from the next decision on. Each gets
    /// a fresh state; advice, read plans, pages and fills in flight stay.
    ///
    /// # Panics
    /// If [`Config::validate`] rejects the values.
    pub fn set_policy(&mut self, policy: Policy, range: RangeConfig) {
        self.config.policy = policy;
        self.config.range = range;
        self.config.validate().expect("the driver gives values within their bounds");
        let capabilities = policy.capabilities();
        self.reports_evictions = capabilities.per_file && capabilities.evictions;
        for file in self.files.iter_mut().flatten() {
            file.policy = None;
            file.memory.shared = None;
        }
        for handle in self.handles.iter_mut().flatten() {
            let owner = open_in(&mut self.files, handle.file.0, FILES);
            handle.policy = owner.build_policy(&self.config, capabilities);
            handle.capabilities = capabilities;
        }
    }

    /// The readahead policy.
    pub const fn policy(&self) -> Policy {
        self.config.policy
    }

    /// Readahead in flight, in pages.
    pub fn pages_ahead(&self) -> u64 {
        self.ahead
    }

    /// The frames of a fill in flight, in page order.
    pub fn fill_frames(&self, fill: FillId) -> impl Iterator<Item = FrameId> + '_ {
        let first = self.fills.get(fill.0).map(|fill| fill.first);
        core::iter::successors(first, |&frame| self.frames.chained(frame))
    }

    /// Whether a page is up to date or in flight.
    pub fn is_cached(&self, file: FileId, page: PageIndex) -> bool {
        self.table.get(file, page).frame().is_some()
    }

    /// Whether a page is in flight from the store.
    pub fn is_in_flight(&self, file: FileId, page: PageIndex) -> bool {
        let frame = self.table.get(file, page).frame();
        frame.is_some_and(|frame| self.frames.get(frame).state == frames::State::InFlight)
    }

    /// Counters of the cache.
    pub fn stats(&self) -> Stats {
        self.files.iter().flatten().fold(self.closed_stats, |mut sum, file| {
            sum += file.stats;
            sum
        })
    }

    /// Counters of an open file since it was opened; zeros if it is not open.
    pub fn file_stats(&self, file: FileId) -> Stats {
        self.files
            .get(file.0 as usize)
            .and_then(Option::as_ref)
            .map_or_else(Stats::default, |file| file.stats)
    }

    /// Pages requested by reads; the same as in [`stats`](Self::stats), without the sum over files.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Frames lent to the cache now.
    pub fn frame_limit(&self) -> u32 {
        self.limit
    }

    /// Frames that hold a page or are in flight.
    pub fn frames_used(&self) -> u32 {
        self.frames.used()
    }

    /// Frames read ahead or in flight ahead, and unused.
    pub fn frames_unread(&self) -> u32 {
        self.frames.unused()
    }

    /// Fills in flight.
    pub fn fills_in_flight(&self) -> usize {
        self.fills.len()
    }

    /// Reads that wait for frames.
    pub fn reads_starved(&self) -> usize {
        self.starved.len()
    }

    /// Bytes of memory used for bookkeeping.
    pub fn metadata_bytes(&self) -> usize {
        self.table.bytes() + self.frames.bytes() + self.reclaim.bytes() + self.histories.bytes()
    }

    fn tick(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time runs back from {} to {}", self.now.0, now.0);
        self.now = now;
    }

    fn file(&self, file: FileId) -> &File {
        self.files.get(file.0 as usize).and_then(Option::as_ref).expect(FILES)
    }

    fn file_mut(&mut self, file: FileId) -> &mut File {
        open_in(&mut self.files, file.0, FILES)
    }

    /// The counters of `file`; those of closed files if it is closed.
    fn stats_mut(&mut self, file: FileId) -> &mut Stats {
        match self.files.get_mut(file.0 as usize) {
            Some(Some(file)) => &mut file.stats,
            _ => &mut self.closed_stats,
        }
    }

    fn handle(&self, handle: HandleId) -> &Handle {
        self.handles.get(handle.0 as usize).and_then(Option::as_ref).expect(HANDLES)
    }

    fn handle_mut(&mut self, handle: HandleId) -> &mut Handle {
        open_in(&mut self.handles, handle.0, HANDLES)
    }
}

impl File {
    /// A fresh readahead state for a handle; none if the file has one for all its handles.
    fn build_policy(&mut self, config: &Config, capabilities: Capabilities) -> Option<Box<dyn Readahead>> {
        let mut build = || config.policy.build(config, &mut self.memory);
        if !capabilities.per_file {
            return Some(build());
        }
        self.policy.get_or_insert_with(build);
        None
    }
}

impl Handle {
    /// Whether the last read through it ended with this page.
    fn was_last_at(&self, page: PageIndex) -> bool {
        self.prev.as_ref().is_some_and(|prev| prev.range.end.0 - 1 == page.0)
    }
}

/// Panic messages for unknown identifiers.
const FILES: &str = "the driver names open files only";
const HANDLES: &str = "the driver names open handles only";

/// The open file or handle with a number. A free function, so that both can be borrowed at once.
#[inline(always)]
fn open_in<'a, T>(entries: &'a mut [Option<T>], number: u32, why: &'static str) -> &'a mut T {
    entries.get_mut(number as usize).and_then(Option::as_mut).expect(why)
}

/// The entry of a small number in a vector that grows as needed.
fn slot<T>(entries: &mut Vec<Option<T>>, number: u32) -> &mut Option<T> {
    let number = number as usize;
    if entries.len() <= number {
        entries.resize_with(number + 1, || None);
    }
    &mut entries[number]
}
