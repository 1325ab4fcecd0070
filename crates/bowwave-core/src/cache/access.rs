//! The demand entry of the cache, for reads, parts of reads and faults: its fast path for hits, and
//! its form for devices that take no time.

use alloc::vec::Vec;

use super::plan::{Run, Sink};
use super::table::LEAF_PAGES;
use super::{Cache, FILES, HANDLES, StarvedRead, open_in};
use crate::config::Eviction;
use crate::event::{Action, Decision, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FrameId, HandleId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::{PageAccess, Part};
use crate::time::Instant;

/// Whether [`Cache::try_hit`] pins the frames of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pins {
    /// The frames stay pinned until [`Cache::unpin`].
    Held,
    /// The driver is done with the frames before its next call, so an unpin would follow at once.
    Skipped,
}

/// Observes [`Cache::access_instant`]; `()` ignores everything.
pub trait Observer {
    /// Pages were read from the store in one request.
    fn filled(&mut self, _file: FileId, _range: PageRange, _urgency: Urgency) {}

    /// A policy decided; the fills since the last decision carried it out.
    fn decided(&mut self, _decision: &Decision) {}
}

impl Observer for () {}

/// Buffers of [`Cache::access_instant`].
#[derive(Debug, Default)]
pub(super) struct Scratch {
    present: Vec<Option<FrameId>>,
    frames: Vec<FrameId>,
}

/// Chains new frames: the reader does not wait for them, and they enter the lists together.
struct Instantly<'a, O> {
    observer: &'a mut O,
    /// First and last frame of all fills so far.
    chain: Option<(FrameId, FrameId)>,
}

impl<O: Observer> Sink for Instantly<'_, O> {
    fn begin(&mut self, _decision: &Decision) -> usize {
        0
    }

    fn end(&mut self, _place: usize, decision: &Decision) {
        self.observer.decided(decision);
    }

    fn fill(&mut self, cache: &mut Cache, file: FileId, run: &Run, urgency: Urgency) {
        let first = match self.chain {
            Some((first, last)) => {
                cache.frames.link(last, run.first);
                first
            }
            None => run.first,
        };
        self.chain = Some((first, run.last));
        self.observer.filled(file, run.range(), urgency);
    }
}

impl Cache {
    /// The demand entry: a read, a part of a read, or a fault.
    ///
    /// On a hit `frames` holds the pinned frames of the pages within the file, in order. A hit has
    /// actions only if the policy runs on every access. After [`ReadOutcome::Wait`] exactly one
    /// [`Action::Wake`] follows, perhaps among this call's actions. No page past the end of the
    /// file is read.
    ///
    /// A fault always waits, also if its page is cached: the wake is then among this call's
    /// actions, and `frames` is not used. The driver calls this for every touch that the hardware
    /// cannot serve: how often mapped pages are found tells a policy whether reading around them
    /// pays. A fault past the end of the file wakes without a frame. Reads and faults of a handle
    /// do not count as neighbours of each other.
    ///
    /// The access fails with [`FillError::TOO_LARGE`](crate::FillError::TOO_LARGE) if it wants more
    /// pages than the cache has frames. It never fails because frames are in use, but waits in line
    /// for them.
    ///
    /// # Panics
    /// If the handle is not open or a part is not within its request.
    pub fn access(
        &mut self,
        now: Instant,
        waiter: Waiter,
        access: PageAccess,
        frames: &mut Vec<FrameId>,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        let part = access.part;
        assert!(part.request.range.intersect(part.pages) == part.pages, "{part:?} is outside of its request");
        self.tick(now);
        if access.mapped.is_none() && (self.hit_pinned(part, frames) || self.walk_over_hit(part, frames, out))
        {
            return ReadOutcome::Hit;
        }
        self.read_or_queue(StarvedRead { waiter, access }, out);
        ReadOutcome::Wait
    }

    /// The fast path of [`access`](Self::access): it needs no time, decides nothing and has no
    /// actions. If each page is up to date and has no lookahead mark, it does what `access` would
    /// do, and with [`Pins::Skipped`] what [`unpin`](Self::unpin) would do after that. Otherwise
    /// nothing has happened and it returns `false`.
    ///
    /// It is never a hit for a fault, or for a policy that runs on every access. With
    /// [`Pins::Skipped`] it is no hit either while reads wait for frames: an unpin lets them try
    /// again.
    ///
    /// # Panics
    /// If the handle is not open.
    // Out of line, the request is copied through memory: 30 instructions more for each hit.
    #[inline(always)]
    pub fn try_hit(&mut self, access: PageAccess, pins: Pins, frames: &mut Vec<FrameId>) -> bool {
        if access.mapped.is_some() {
            return false;
        }
        let part = access.part;
        if pins == Pins::Held {
            return self.hit_pinned(part, frames);
        }
        let entry = self.handle(part.handle);
        if entry.capabilities.every_access || !self.starved.is_empty() {
            return false;
        }
        if let Some(frame) = self.hit_one(part) {
            frames.clear();
            frames.push(frame);
            return true;
        }
        self.hit_unpinned(part, frames)
    }

    /// An access to a device that takes no time: does what [`access`](Self::access),
    /// [`filled`](Self::filled) for each of its fills in their order, and [`unpin`](Self::unpin)
    /// would do. The outcome is that of `access`.
    ///
    /// For drivers that use nothing else to read: while fills are in flight or frames are pinned,
    /// it may find too few frames.
    ///
    /// # Errors
    /// [`FillError::TOO_LARGE`] if it wants more pages than the cache can free for it. Then nothing
    /// is read, but the request counts.
    ///
    /// # Panics
    /// If the handle is not open.
    pub fn access_instant<O: Observer>(
        &mut self,
        now: Instant,
        access: PageAccess,
        observer: &mut O,
    ) -> Result<ReadOutcome, FillError> {
        self.tick(now);
        let PageAccess { part, mapped } = access;
        if mapped.is_none() && self.hit_one(part).is_some() {
            return Ok(ReadOutcome::Hit);
        }
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut sink = Instantly { observer, chain: None };
        let outcome = if mapped.is_some() {
            self.walk_instantly(access, &mut scratch.present, &mut sink)
        } else if self.hit_unpinned(part, &mut scratch.frames) {
            Ok(ReadOutcome::Hit)
        } else if self.walk_over_hit(part, &mut scratch.frames, &mut sink) {
            self.arrive_all(&sink);
            self.drop_pins(scratch.frames.drain(..));
            Ok(ReadOutcome::Hit)
        } else {
            self.walk_instantly(access, &mut scratch.present, &mut sink)
        };
        self.scratch = Some(scratch);
        outcome
    }

    fn walk_instantly<O: Observer>(
        &mut self,
        PageAccess { part, mapped }: PageAccess,
        present: &mut Vec<Option<FrameId>>,
        sink: &mut Instantly<'_, O>,
    ) -> Result<ReadOutcome, FillError> {
        let range = self.count_read(part);
        if range.count().0 > u64::from(self.limit) {
            return Err(FillError::TOO_LARGE);
        }
        let mut walk = self.walk_of(part, range);
        walk.mapped = mapped;
        if !self.set_out(&mut walk, present) {
            self.stats_mut(walk.file).reads_starved += 1;
            return Err(FillError::TOO_LARGE);
        }
        self.walk(&mut walk, present, sink);
        self.arrive_all(sink);
        self.drop_pins(present.drain(..).flatten());
        Ok(ReadOutcome::Wait)
    }

    fn arrive_all<O>(&mut self, sink: &Instantly<'_, O>) {
        if let Some((first, _)) = sink.chain {
            self.arrive(first);
        }
    }

    /// Counts a read that is not a plain hit, and starts it or puts it in line.
    fn read_or_queue(&mut self, read: StarvedRead, out: &mut Vec<Action>) {
        self.count_read(read.access.part);
        if !self.starved.is_empty() || !self.start_read(read, out) {
            self.stats_mut(self.handle(read.access.part.handle).file).reads_starved += 1;
            self.starved.push_back(read);
            self.write_back(out);
        }
    }

    /// A hit of one page within the file that is a whole request: the loops over many pages would
    /// cost more than the work itself. It needs no buffer and looks up the handle once.
    #[inline(always)]
    pub(super) fn hit_one(&mut self, part: Part) -> Option<FrameId> {
        let entry = open_in(&mut self.handles, part.handle.0, HANDLES);
        let file = open_in(&mut self.files, entry.file.0, FILES);
        let range = part.pages;
        let one = range.count() == PageCount(1) && part.is_whole();
        if entry.capabilities.every_access || !one || range.end.0 > file.pages.0 {
            return None;
        }
        let id = self.table.get(entry.file, range.start).frame()?;
        let frame = self.frames.get(id);
        if !frame.is_plain_hit() {
            return None;
        }
        if entry.no_reuse {
            self.use_hits(part, range, &[id]);
            return Some(id);
        }
        let again = self.config.eviction != Eviction::Lru && entry.was_last_at(range.start);
        let touches = !again && frame.would_touch();
        file.stats.count_hits(1, 1);
        self.accesses += 1;
        entry.prev = Some(part.request);
        if touches {
            self.touch(id);
        }
        Some(id)
    }

    /// As [`hit_pinned`](Self::hit_pinned), without pins.
    pub(super) fn hit_unpinned(&mut self, part: Part, frames: &mut Vec<FrameId>) -> bool {
        let entry = self.handle(part.handle);
        let (file, walks) = (entry.file, entry.capabilities.every_access);
        let range = clip_to_file(part.pages, self.file(file).pages);
        frames.clear();
        // `hit_one` has looked up the page already if it is a whole request.
        let known = range == part.pages && range.count() == PageCount(1) && part.is_whole();
        if walks || known || !self.collect_hits(file, range, frames) {
            return false;
        }
        self.use_hits(part, range, frames);
        true
    }

    /// Counts and touches the pages `range` of a part within the file; `hits` has all of them.
    #[inline(always)]
    fn use_hits(&mut self, part: Part, range: PageRange, hits: &[FrameId]) {
        self.count_hits(part, self.handle(part.handle).file, range);
        let touches = self.touches(part.handle, part.request.range.start, range);
        for &frame in &hits[(touches.start.0 - range.start.0) as usize..] {
            if self.frames.get(frame).would_touch() {
                self.touch(frame);
            }
        }
        self.walked(part, range);
    }

    /// Pins the pages of a part if each is a plain hit.
    fn hit_pinned(&mut self, part: Part, frames: &mut Vec<FrameId>) -> bool {
        if self.handle(part.handle).capabilities.every_access {
            return false;
        }
        let hit = self.pin_all(part, frames);
        hit.is_some_and(|range| {
            self.walked(part, range);
            true
        })
    }

    /// A hit with a policy that runs on every access.
    pub(super) fn walk_over_hit(
        &mut self,
        part: Part,
        frames: &mut Vec<FrameId>,
        sink: &mut impl Sink,
    ) -> bool {
        // While reads wait for frames, readahead must not take the next ones: this read queues.
        if !self.handle(part.handle).capabilities.every_access || !self.starved.is_empty() {
            return false;
        }
        let Some(range) = self.pin_all(part, frames) else { return false };
        let mut walk = self.walk_of(part, range);
        while range.contains(walk.next) {
            let at = walk.next;
            self.ask(&mut walk, at, false, sink);
            if walk.next <= at {
                break;
            }
        }
        self.handle_mut(part.handle).next = walk.next;
        self.walked(part, range);
        true
    }

    /// Pins, counts and touches the pages of a part if all are up to date and unmarked. Returns the
    /// pages within the file.
    fn pin_all(&mut self, part: Part, frames: &mut Vec<FrameId>) -> Option<PageRange> {
        frames.clear();
        let file = self.handle(part.handle).file;
        let range = clip_to_file(part.pages, self.file(file).pages);
        if !self.collect_hits(file, range, frames) {
            return None;
        }
        self.count_hits(part, file, range);
        let touches = self.touches(part.handle, part.request.range.start, range);
        for (&frame, page) in frames.iter().zip(range.start.0..) {
            if self.frames.pin_hit(frame) && touches.contains(PageIndex(page)) {
                self.touch(frame);
            }
        }
        Some(range)
    }

    /// Counts a read that may miss; returns its pages within the file.
    pub(super) fn count_read(&mut self, part: Part) -> PageRange {
        let file = self.handle(part.handle).file;
        let entry = self.file_mut(file);
        let range = clip_to_file(part.pages, entry.pages);
        entry.stats.reads += u64::from(part.is_first());
        entry.stats.accesses += range.count().0;
        self.accesses += range.count().0;
        range
    }

    /// Counts a read that hits.
    pub(super) fn count_hits(&mut self, part: Part, file: FileId, range: PageRange) {
        let count = range.count().0;
        self.file_mut(file).stats.count_hits(part.is_first().into(), count);
        self.accesses += count;
    }

    /// Appends the frames of a range and returns `true` if each page is up to date and unmarked.
    pub(super) fn collect_hits(&self, file: FileId, range: PageRange, frames: &mut Vec<FrameId>) -> bool {
        let mut page = range.start.0;
        while page < range.end.0 {
            let Some(slots) = self.table.leaf(file, PageIndex(page)) else { return false };
            let leaf_start = page - page % LEAF_PAGES;
            let end = range.end.0.min(leaf_start + LEAF_PAGES);
            // Both are offsets within a leaf.
            let slots = &slots[(page - leaf_start) as usize..(end - leaf_start) as usize];
            // A whole leaf at once: growing the vector for each page costs more than the work
            // itself.
            let known = frames.len();
            frames.extend(slots.iter().map(|slot| slot.number()));
            if !frames[known..].iter().all(|&frame| self.frames.is_plain_hit(frame)) {
                frames.clear();
                return false;
            }
            page = end;
        }
        true
    }

    /// The pages of a part whose reading counts as a use; the request begins at page `first`. With
    /// no-reuse advice, no page counts. The page shared with the previous request does not count,
    /// so that reads smaller than a page are one use. With LRU it counts, which matters only after
    /// other uses.
    pub(super) fn touches(&self, handle: HandleId, first: PageIndex, range: PageRange) -> PageRange {
        let handle = self.handle(handle);
        if handle.no_reuse {
            return PageRange { start: range.end, end: range.end };
        }
        let shares = || range.start == first && handle.was_last_at(first);
        if self.config.eviction != Eviction::Lru && shares() && !range.is_empty() {
            PageRange { start: range.start + PageCount(1), end: range.end }
        } else {
            range
        }
    }
}

/// The part of a request within a file; empty, at the end of the file, if there is none.
pub(super) fn clip_to_file(request: PageRange, pages: PageCount) -> PageRange {
    let end = PageIndex(pages.0);
    PageRange { start: request.start.min(end), end: request.end.min(end) }
}
