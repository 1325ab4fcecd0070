//! One shard of the page cache.
//!
//! | file | idea |
//! |---|---|
//! | `table` | which page is where |
//! | `frames` | what holds a page, and the active and inactive lists |
//! | `access` | the one demand entry for reads, parts of reads and faults, and its fast path for hits |
//! | `walk` | an access that is not a plain hit: walk page by page, decide, wait |
//! | `mapped` | mapped pages: where pages lie, which to map, and when to unmap them |
//! | `plan` | from a policy's plan to fills |
//! | `instant` | an access whose device takes no time |
//! | `fill` | the end of a fill: wake or fail, tell the policy; pages that readers are done with |
//! | `reclaim` | room: eviction, shadows, grants |
//! | `advise` | what users say about ranges; invalidation |
//! | `itinerary` | the ranges that a reader says it will go through |
//! | `planned` | readahead along them |
//! | `write` | which frames the bytes of a write go to, and who waits |
//! | `write_back` | dirty pages on their way to the store; syncs |
//! | `pages` | a set of pages |
//! | `check` | the invariants, spelled out |

mod access;
mod advise;
mod check;
mod fill;
mod frames;
mod instant;
mod itinerary;
mod mapped;
mod pages;
mod plan;
mod planned;
mod reclaim;
mod table;
mod walk;
mod write;
mod write_back;

pub use access::Pins;
pub use check::Violation;
pub(crate) use frames::{Flag, Frames};
pub use instant::Observer;
pub use planned::TooManyRanges;
pub(crate) use table::PageTable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::{Config, ConfigError};
use crate::event::{Action, Event, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FillId, FrameId, HandleId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Asked, FileMemory, Plans, Readahead};
use crate::request::{PageAccess, Pattern, Request};
use crate::slab::Slab;
use crate::stats::Stats;
use crate::time::Instant;
use crate::write::WriteBackConfig;

/// A page cache without bytes: see the [crate docs](crate) for what it does and how to drive it.
///
/// The calls in order of use: `open_file`, `open_handle`, then any of `access`, `filled`, `unpin`, `advise`, `follow`,
/// `invalidate`, `set_congested`, `grant`, `revoke`, then `close_handle`, `close_file`. Each appends at most a few
/// actions for each page of its range and window to the lent buffer. Every call is also an [`Event`] for
/// [`step`](Self::step). Time must not run back.
#[derive(Debug)]
pub struct Cache {
    config: Config,
    now: Instant,
    /// Frames that may be used now.
    limit: u32,
    congested: bool,
    table: PageTable,
    frames: Frames,
    files: Vec<Option<File>>,
    handles: Vec<Option<Handle>>,
    fills: Slab<Option<FillState>>,
    waits: Slab<Option<Wait>>,
    /// Reads that found too few frames, oldest first.
    starved: VecDeque<StarvedRead>,
    reclaim: reclaim::Reclaim,
    write_back: write_back::WriteBack,
    /// Of files that are closed.
    closed_stats: Stats,
    /// Pages that reads asked for, of all files.
    accesses: u64,
    /// Mapped pages that reclaim has looked at, and that are to be unmapped to see whether they are touched again.
    unmapped: Vec<(FileId, PageIndex)>,
    /// Most pages that may be on their way ahead of readers, and how many are.
    ahead_max: u64,
    ahead: u64,
    /// Itineraries with something left to read ahead.
    itineraries: u32,
    /// The plans of the last decision, kept for their memory.
    plans: Plans,
    /// Lent to the walk of an instant read, kept for its memory.
    scratch: Option<Box<instant::Scratch>>,
}

#[derive(Debug)]
struct File {
    pages: PageCount,
    handles: u32,
    stats: Stats,
    /// What the store has not of it, if there is anything.
    unwritten: Option<Box<write_back::Unwritten>>,
    /// The readahead state that its handles share, if the policy is such; made with the first of them.
    policy: Option<Box<dyn Readahead>>,
    /// What it keeps for its policy, and whether its pages have places of their own.
    memory: FileMemory,
}

#[derive(Debug)]
struct Handle {
    file: FileId,
    /// Its own readahead state; none if it shares that of its file.
    policy: Option<Box<dyn Readahead>>,
    /// What the policy is asked about.
    asked: Asked,
    pattern: Pattern,
    /// Windows are twice as large: since sequential advice, also if reads are random for a while, as in Linux.
    wide: bool,
    /// Drop pages behind the reader.
    no_reuse: bool,
    /// The last read, as far as it was walked.
    prev: Option<Request>,
    /// The last page that faulted.
    prev_fault: Option<PageIndex>,
    /// Where a walking policy is asked next, from one part of a request to the next.
    next: PageIndex,
    /// What its reader says it will read.
    itinerary: Option<Box<itinerary::Itinerary>>,
}

#[derive(Debug)]
struct FillState {
    file: FileId,
    range: PageRange,
    urgency: Urgency,
    /// First frame; the others are chained behind it, in page order.
    first: FrameId,
    /// Reads that wait for it.
    waits: Vec<u64>,
    /// Only what readers wait for, after a fill that had more has failed.
    exact: bool,
    /// The driver was asked to drop it.
    cancelled: bool,
    /// Pages of it that nobody had asked for.
    ahead: u64,
    /// When it was asked for.
    begun: Instant,
    /// When the first reader came to wait for it, if it was readahead until then.
    overtaken: Option<Instant>,
}

/// A read that waits for fills.
#[derive(Debug)]
struct Wait {
    waiter: Waiter,
    file: FileId,
    range: PageRange,
    /// Its frames in page order, each pinned.
    frames: Vec<FrameId>,
    /// Fills not ended.
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
        Ok(Self {
            limit: config.frames,
            config,
            now: Instant(0),
            congested: false,
            table: PageTable::default(),
            frames: Frames::new(),
            files: Vec::new(),
            handles: Vec::new(),
            fills: Slab::default(),
            waits: Slab::default(),
            starved: VecDeque::new(),
            reclaim: reclaim::Reclaim::default(),
            write_back: write_back::WriteBack::default(),
            closed_stats: Stats::default(),
            accesses: 0,
            unmapped: Vec::new(),
            ahead_max: u64::MAX,
            ahead: 0,
            itineraries: 0,
            plans: Plans::default(),
            scratch: None,
        })
    }

    /// Everything that can happen, in one place: the entry for replay, fuzzing and the simulator.
    ///
    /// A read that hits answers with an [`Action::Wake`] too, so that the actions tell all.
    ///
    /// # Panics
    /// If the event breaks the contract of the method it stands for, such as a read through a handle that is not open.
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
            Event::PlaceFile { file } => self.place_file(file),
            Event::Mapped { handle, page, range } => self.mapped(handle, page, range),
            Event::Filled { fill, result } => self.filled(now, fill, result, out),
            Event::Unpin { frames } => self.unpin(now, &frames, out),
            Event::Advise { handle, range, advice } => self.advise(now, handle, range, advice, out),
            Event::Follow { handle, ranges } if ranges.is_empty() => self.end_plan(now, handle, out),
            Event::Follow { handle, ranges } => {
                // Who has too many ranges was told so when this was logged.
                let _refused = self.follow(now, handle, &ranges, out);
            }
            Event::Write { waiter, write } => {
                let mut targets = Vec::new();
                let place = out.len();
                let outcome = self.write(now, waiter, write, &mut targets, out);
                out.insert(place, Action::Took { waiter, outcome, targets });
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
            Event::Tuned { ra_pages, write_back } => self.tune(now, ra_pages, write_back, out),
        }
        self.tell_places(out);
    }

    /// A file of `pages` pages comes into being, with nothing cached.
    ///
    /// # Panics
    /// If `file` is open.
    pub fn open_file(&mut self, file: FileId, pages: PageCount) {
        let entry = slot(&mut self.files, file.0);
        assert!(entry.is_none(), "file {} is open", file.0);
        let (stats, memory) = (Stats::default(), FileMemory::default());
        *entry = Some(File { pages, handles: 0, stats, unwritten: None, policy: None, memory });
    }

    /// A file has become longer, or shorter; then the driver invalidates what lies behind its end.
    ///
    /// # Panics
    /// If `file` is not open.
    pub fn set_pages(&mut self, file: FileId, pages: PageCount) {
        self.file_mut(file).pages = pages;
    }

    /// A file and all its pages are forgotten, also what was written and is not in the store. Fills and write-outs in flight
    /// still want their answers; the driver gives the number to another file only after them.
    ///
    /// # Panics
    /// If `file` is not open or has handles.
    pub fn close_file(&mut self, file: FileId) {
        assert_eq!(self.file(file).handles, 0, "file {} has open handles", file.0);
        self.forget_unwritten(file);
        self.invalidate(file, PageRange::new(0, u64::MAX));
        let closed = self.files[file.0 as usize].take().expect("looked up above");
        self.closed_stats += closed.stats;
    }

    /// A handle with a fresh readahead state of the configured policy.
    ///
    /// # Panics
    /// If `handle` is open or `file` is not.
    pub fn open_handle(&mut self, handle: HandleId, file: FileId) {
        let asked = self.config.policy.asked();
        let owner = open_in(&mut self.files, file.0, FILES);
        owner.handles += 1;
        let mut policy = None;
        if !asked.per_file || owner.policy.is_none() {
            let built = Some(self.config.policy.build(&self.config, &mut owner.memory));
            *(if asked.per_file { &mut owner.policy } else { &mut policy }) = built;
        }
        let entry = slot(&mut self.handles, handle.0);
        assert!(entry.is_none(), "handle {} is open", handle.0);
        *entry = Some(Handle {
            file,
            policy,
            asked,
            pattern: Pattern::Normal,
            wide: false,
            no_reuse: false,
            prev: None,
            prev_fault: None,
            next: PageIndex(0),
            itinerary: None,
        });
    }

    /// The readahead state of `to`, with all advice, becomes what that of `from` is. For drivers that, as Linux 2.6 did,
    /// give each read its own copy of a descriptor's state: several readers at once may then share a descriptor and
    /// still go through their pages in parts ([`Part`](crate::Part)).
    ///
    /// # Panics
    /// If one of them is not open, or they are not of the same file.
    pub fn copy_handle(&mut self, from: HandleId, to: HandleId) {
        let itinerary = self.copy_plan(from, to);
        let source = self.handle(from);
        let copy =
            Handle { policy: source.policy.as_ref().map(|policy| policy.copy()), itinerary, ..*source };
        let target = self.handle_mut(to);
        assert!(target.file == copy.file, "handles {} and {} are of different files", from.0, to.0);
        *target = copy;
    }

    /// The handle's readahead state is forgotten; its file's pages stay. With the last handle of a file, readahead that
    /// nobody waits for is cancelled. Reads through it that wait for frames fail with [`FillError::CLOSED`]; those that
    /// wait for fills go on.
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

    /// Tells whether the device's queue is too full for readahead. Async readahead is then dropped, and comes back as a
    /// sync one (paper 002, 3.2).
    pub fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    /// So many pages may be on their way ahead of readers, of all files together; at first, any number. What readers have asked
    /// for does not count, and what is on its way already stays so.
    ///
    /// Readahead that finds less room than it wants gets as much of it as makes requests worth making, or nothing.
    pub fn allow_ahead(&mut self, pages: u64) {
        self.ahead_max = pages;
    }

    /// Changes the largest readahead window and the limits of dirty pages, from the next decision on. What is in flight stays
    /// so; writers that now have space wake.
    ///
    /// # Panics
    /// If [`Config::validate`] refuses the values.
    pub fn tune(&mut self, now: Instant, ra_pages: u32, write_back: WriteBackConfig, out: &mut Vec<Action>) {
        self.config.ra_pages = ra_pages;
        self.config.write_back = write_back;
        self.config.validate().expect("the driver gives values within their bounds");
        self.tick(now);
        self.write_back(out);
        self.wake_writers(out);
    }

    /// Pages on their way that nobody had asked for when they were sent for.
    #[must_use]
    pub fn pages_ahead(&self) -> u64 {
        self.ahead
    }

    /// The frames of a fill in flight, in page order.
    pub fn fill_frames(&self, fill: FillId) -> impl Iterator<Item = FrameId> + '_ {
        let first = self.fills.get(fill.0).map(|fill| fill.first);
        core::iter::successors(first, |&frame| self.frames.chained(frame))
    }

    /// Whether a page is up to date or in flight.
    #[must_use]
    pub fn is_cached(&self, file: FileId, page: PageIndex) -> bool {
        self.table.get(file, page).frame().is_some()
    }

    /// Whether a page is being read now.
    #[must_use]
    pub fn is_in_flight(&self, file: FileId, page: PageIndex) -> bool {
        let frame = self.table.get(file, page).frame();
        frame.is_some_and(|frame| self.frames.get(frame).state == frames::State::InFlight)
    }

    /// What the cache has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.files.iter().flatten().fold(self.closed_stats, |mut sum, file| {
            sum += file.stats;
            sum
        })
    }

    /// What the cache has done for one file since it was opened; nothing if it is not open.
    #[must_use]
    pub fn file_stats(&self, file: FileId) -> Stats {
        self.files
            .get(file.0 as usize)
            .and_then(Option::as_ref)
            .map_or_else(Stats::default, |file| file.stats)
    }

    /// Pages that reads asked for so far, as [`stats`](Self::stats) tells, but without adding up all files.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Frames lent to the cache now.
    #[must_use]
    pub fn frame_limit(&self) -> u32 {
        self.limit
    }

    /// Frames that hold a page or wait for one.
    #[must_use]
    pub fn frames_used(&self) -> u32 {
        self.frames.used()
    }

    /// Frames whose pages were read ahead, or are being read ahead, and that nobody has used so far.
    #[must_use]
    pub fn frames_unread(&self) -> u32 {
        self.frames.unused()
    }

    /// Fills asked for and not answered.
    #[must_use]
    pub fn fills_in_flight(&self) -> usize {
        self.fills.len()
    }

    /// Reads that wait for frames.
    #[must_use]
    pub fn reads_starved(&self) -> usize {
        self.starved.len()
    }

    /// Bytes of memory that the bookkeeping takes.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        self.table.bytes() + self.frames.bytes() + self.reclaim.bytes()
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

    /// The counters that work for `file` goes to; those of closed files if it is gone meanwhile.
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

impl Handle {
    /// Whether the last read through it ended with this page.
    fn was_last_at(&self, page: PageIndex) -> bool {
        self.prev.as_ref().is_some_and(|prev| prev.range.end.0 - 1 == page.0)
    }
}

/// Why a file and a handle are there.
const FILES: &str = "the driver names open files only";
const HANDLES: &str = "the driver names open handles only";

/// The open file or handle of a number. A function of what it looks in, so that both may be held at a time.
#[inline(always)]
fn open_in<'a, T>(entries: &'a mut [Option<T>], number: u32, why: &'static str) -> &'a mut T {
    entries.get_mut(number as usize).and_then(Option::as_mut).expect(why)
}

/// The place of a small number in a vector that grows as needed.
fn slot<T>(entries: &mut Vec<Option<T>>, number: u32) -> &mut Option<T> {
    let number = number as usize;
    if entries.len() <= number {
        entries.resize_with(number + 1, || None);
    }
    &mut entries[number]
}
