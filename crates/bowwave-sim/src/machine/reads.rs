//! Reads in progress: through the pages of a request, at once or one by one, to the end of the
//! call.

use bowwave_core::{
    Advice, Event, Fault, FileId, FillError, FrameId, HandleId, Instant, PageAccess, PageCount, PageIndex,
    PageRange, Part, Pattern, ReadOutcome, Request, Waiter,
};

use super::process::{Access, AccessOp};
use super::writes::number;
use super::{Machine, ProcessId, Walk};

/// One read in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    process: ProcessId,
    handle: HandleId,
    pub(super) file: FileId,
    pub(super) start: Instant,
    /// The original request.
    request: Request,
    /// Its part within the file.
    pub(super) pages: PageRange,
    /// The first page not yet delivered.
    next: PageIndex,
    /// Bytes the reader gets.
    pub(super) bytes: u64,
    /// A touch of mapped memory.
    mapped: bool,
    /// Its number among the links.
    number: Option<u32>,
    waits: u32,
    pub(super) outcome: Outcome,
}

/// Result of a read, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// All pages were up to date.
    Hit = 0,
    /// Some were in flight, none missing.
    Late = 1,
    /// Some were missing.
    Miss = 2,
}

impl Machine {
    /// Starts a process's next access.
    pub(super) fn begin(&mut self, process: ProcessId, access: Access) {
        let Access { op, file, offset, bytes, at } = access;
        let number = u32::try_from(at.0).ok();
        let request = self.page_size.request_of(offset, bytes);
        let range = request.range;
        self.owner = process;
        let mapped = match op {
            AccessOp::Read => false,
            AccessOp::Load => true,
            AccessOp::Write => return self.begin_write(process, access),
            AccessOp::Sync => return self.begin_sync(process, file),
            AccessOp::Advise(advice) => return self.advise(process, file, range, advice),
            AccessOp::Plan => return self.set_read_plan(process, file, range),
            AccessOp::Evict => return self.cache.note(self.now, Event::Invalidate { file, range }),
        };
        let pages = range.intersect(PageRange::new(0, self.files[file.0 as usize].pages.0));
        if pages.is_empty() {
            return self.ended(process, number, self.now);
        }
        let is_open = self.processes[process.0 as usize].handles.contains_key(&file);
        let handle = self.handle(process, file);
        self.copy_shared(process, file, handle, true);
        let page_bytes = self.page_size.bytes();
        let end = pages.end.0.saturating_mul(page_bytes);
        let bytes = offset.saturating_add(bytes).min(end) - offset;
        let waiter = self.reads.insert(Read {
            process,
            handle,
            file,
            start: self.now,
            request,
            pages,
            next: pages.start,
            bytes,
            mapped,
            number,
            waits: 0,
            outcome: Outcome::Hit,
        });
        self.processes[process.0 as usize].in_flight += 1;
        self.continue_read(Waiter(waiter as u64));
        self.act();
        self.note_read(process, file, pages.start.0 * page_bytes..end);
        if !is_open {
            self.read_siblings(file);
        }
    }

    /// The cache has woken a read.
    pub(super) fn read_woken(&mut self, waiter: Waiter, result: Result<Vec<FrameId>, FillError>) {
        match result {
            Ok(frames) => {
                let got = PageCount(frames.len() as u64);
                self.cache.unpin(self.now, &frames, &mut self.actions);
                let read = &mut self.reads[number(waiter)];
                read.next = read.next + got;
                self.continue_read(waiter);
            }
            Err(_) => {
                self.recorder.read_failed();
                let page_bytes = self.page_size.bytes();
                let read = &mut self.reads[number(waiter)];
                // The read got the pages before `next`.
                let missing = (read.pages.end - read.next).0.saturating_mul(page_bytes);
                read.bytes = read.bytes.saturating_sub(missing);
                self.end(waiter);
            }
        }
    }

    /// Continues a read until it waits or ends.
    fn continue_read(&mut self, waiter: Waiter) {
        self.note_congestion();
        loop {
            let read = self.reads[number(waiter)];
            if read.next >= read.pages.end {
                return self.end(waiter);
            }
            self.owner = read.process;
            let before = self.counts(read.file);
            let mut frames = std::mem::take(&mut self.frames);
            let pages = match self.walk {
                // A read of most of the cache is split: whole, it would fail or starve all others.
                Walk::AtOnce if read.pages.count().0 > self.part_pages_max => {
                    PageRange::from_start(read.next, PageCount(self.part_pages_max)).intersect(read.pages)
                }
                Walk::AtOnce => read.pages,
                Walk::PageByPage => PageRange::from_start(read.next, PageCount(1)),
            };
            let access = if read.mapped {
                PageAccess::fault(read.handle, Fault { page: read.next, pattern: Pattern::Normal })
            } else {
                Part { handle: read.handle, request: read.request, pages }.into()
            };
            let outcome = self.cache.access(self.now, waiter, access, &mut frames, &mut self.actions);
            if outcome == ReadOutcome::Hit {
                self.cache.unpin(self.now, &frames, &mut self.actions);
                self.reads[number(waiter)].next = pages.end;
            }
            self.frames = frames;
            if outcome == ReadOutcome::Wait {
                let found = found(before, self.counts(read.file));
                let read = &mut self.reads[number(waiter)];
                // With a checker, and at a fault, a hit also arrives as a wake.
                read.waits += u32::from(found != Outcome::Hit);
                read.outcome = read.outcome.max(found);
                return;
            }
        }
    }

    /// Late and missed pages of a file so far.
    fn counts(&self, file: FileId) -> (u64, u64) {
        let stats = self.cache.get().file_stats(file);
        (stats.late, stats.misses)
    }

    /// Ends a read that is complete or failed.
    fn end(&mut self, waiter: Waiter) {
        let read = self.reads.remove(number(waiter));
        let free = Instant(self.now.0 + self.host.read_ns(read.bytes, read.waits));
        self.recorder.read(&read, free);
        self.copy_shared(read.process, read.file, read.handle, false);
        let process = &mut self.processes[read.process.0 as usize];
        process.in_flight -= 1;
        process.end(free);
        self.ended(read.process, read.number, free);
        self.schedule(read.process);
        self.close_if_done(read.process);
    }

    fn advise(&mut self, process: ProcessId, file: FileId, range: PageRange, advice: Advice) {
        let handle = self.handle(process, file);
        self.note_congestion();
        self.cache.step(self.now, Event::Advise { handle, range, advice }, &mut self.actions);
        self.act();
    }

    /// Announces one or more ranges of a read plan, or ends the plan.
    fn set_read_plan(&mut self, process: ProcessId, file: FileId, range: PageRange) {
        let handle = self.handle(process, file);
        let mut ranges = if range.is_empty() { Vec::new() } else { vec![range] };
        while !ranges.is_empty()
            && let Some(more) = self.processes[process.0 as usize].begin_more_of_plan(self.now, file)
        {
            ranges.push(self.page_size.range_of(more.offset, more.bytes));
        }
        self.note_congestion();
        self.cache.step(self.now, Event::SetReadPlan { handle, ranges }, &mut self.actions);
        self.act();
    }
}

/// The result of a step, from the counters before and after.
fn found(before: (u64, u64), after: (u64, u64)) -> Outcome {
    if after.1 > before.1 {
        Outcome::Miss
    } else if after.0 > before.0 {
        Outcome::Late
    } else {
        Outcome::Hit
    }
}
