//! Writes in progress: reads before partial writes, waits for cache space, and the resulting
//! write-outs.

use bowwave_core::{
    Base, FileId, FillError, Instant, PageCount, PageIndex, PageRange, Part, ReadOutcome, Waiter, Write,
    WriteOut, WriteOutId, WriteOutcome,
};

use super::process::Access;
use super::{Machine, ProcessId};
use crate::device::{Direction, Request, RequestId};

/// A write in progress, or a sync, which has no pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    process: ProcessId,
    file: FileId,
    /// The pages not yet in the cache.
    pages: PageRange,
    first: PageIndex,
    /// Whether the first and the last page are partial.
    partial: (bool, bool),
    bytes: u64,
    waits: u32,
    /// It waited for space.
    woken: bool,
    /// It waits for a page that it writes in part.
    reads: bool,
}

/// Waiter numbers of writes and request numbers of write-outs are above those of reads and fills.
const ABOVE: u64 = 1 << 63;

/// Whether a waiter is a write or a sync.
pub(super) const fn is_write(waiter: Waiter) -> bool {
    waiter.0 & ABOVE != 0
}

/// The write-out behind a request, if any.
pub(super) fn write_out(request: RequestId) -> Option<WriteOutId> {
    (request.0 & ABOVE != 0).then_some(WriteOutId(request.0 & !ABOVE))
}

/// The request for a write-out.
pub(super) const fn request_of(id: WriteOutId) -> RequestId {
    RequestId(id.0 | ABOVE)
}

/// The number of a read or write by its waiter.
pub(super) const fn number(waiter: Waiter) -> usize {
    (waiter.0 & !ABOVE) as usize
}

impl Machine {
    /// Starts a write of a process.
    pub(super) fn begin_write(&mut self, process: ProcessId, access: Access) {
        let Access { file, offset, bytes, .. } = access;
        if bytes == 0 {
            return;
        }
        let page = self.page_size.bytes();
        let pages = self.page_size.request_of(offset, bytes).range;
        let partial = (offset % page != 0, (offset + bytes) % page != 0);
        let waiter = self.insert(process, file, pages, partial, bytes);
        self.continue_write(waiter);
        self.act();
    }

    /// Starts a sync of a file.
    pub(super) fn begin_sync(&mut self, process: ProcessId, file: FileId) {
        let nothing = PageRange::new(0, 0);
        let waiter = self.insert(process, file, nothing, (false, false), 0);
        let everything = PageRange::new(0, u64::MAX);
        if self.cache.sync(self.now, waiter, file, everything, &mut self.actions) == ReadOutcome::Hit {
            self.end_write(waiter);
        } else {
            self.writes[number(waiter)].waits += 1;
        }
        self.act();
    }

    fn insert(
        &mut self,
        process: ProcessId,
        file: FileId,
        pages: PageRange,
        partial: (bool, bool),
        bytes: u64,
    ) -> Waiter {
        self.processes[process.0 as usize].in_flight += 1;
        let first = pages.start;
        let (waits, woken, reads) = (0, false, false);
        let write = Writing { process, file, pages, first, partial, bytes, waits, woken, reads };
        Waiter(self.writes.insert(write) as u64 | ABOVE)
    }

    /// Continues a write until it waits or ends.
    fn continue_write(&mut self, waiter: Waiter) {
        loop {
            let write = self.writes[number(waiter)];
            if write.pages.is_empty() {
                return self.end_write(waiter);
            }
            self.owner = write.process;
            let request = Write {
                file: write.file,
                range: write.pages,
                keeps_head: write.partial.0 && write.pages.start == write.first,
                keeps_tail: write.partial.1,
                woken: write.woken,
            };
            let mut targets = std::mem::take(&mut self.targets);
            let outcome = self.cache.write(self.now, waiter, request, &mut targets, &mut self.actions);
            // Copies of whole pages cost no extra time here.
            debug_assert!(targets.iter().all(|target| target.base != Base::Copy(target.frame)));
            self.targets = targets;
            match outcome {
                WriteOutcome::Accepted(pages) => {
                    let write = &mut self.writes[number(waiter)];
                    (write.pages.start, write.woken) = (write.pages.start + PageCount(pages), false);
                    let (file, end) = (write.file, write.pages.start);
                    let known = &mut self.files[file.0 as usize].pages;
                    *known = (*known).max(PageCount(end.0));
                }
                WriteOutcome::Wait => {
                    self.writes[number(waiter)].waits += 1;
                    return;
                }
                WriteOutcome::Read(page) => return self.read_before(waiter, page),
                WriteOutcome::Failed(_) => {
                    self.recorder.read_failed();
                    return self.end_write(waiter);
                }
            }
        }
    }

    /// Reads a page before a partial write.
    fn read_before(&mut self, waiter: Waiter, page: PageIndex) {
        let write = self.writes[number(waiter)];
        let handle = self.handle(write.process, write.file);
        let pages = PageRange::from_start(page, PageCount(1));
        let bytes = self.page_size.bytes();
        let part = Part { handle, request: self.page_size.request_of(page.0 * bytes, bytes), pages };
        let mut frames = std::mem::take(&mut self.frames);
        let outcome = self.cache.access(self.now, waiter, part.into(), &mut frames, &mut self.actions);
        if outcome == ReadOutcome::Hit {
            self.cache.unpin(self.now, &frames, &mut self.actions);
            self.frames = frames;
            return self.continue_write(waiter);
        }
        self.frames = frames;
        let write = &mut self.writes[number(waiter)];
        (write.reads, write.waits) = (true, write.waits + 1);
    }

    /// The cache has woken a write or a sync.
    pub(super) fn write_woken(
        &mut self,
        waiter: Waiter,
        result: Result<Vec<bowwave_core::FrameId>, FillError>,
    ) {
        let write = &mut self.writes[number(waiter)];
        match result {
            Ok(frames) if write.reads => {
                write.reads = false;
                self.cache.unpin(self.now, &frames, &mut self.actions);
                self.continue_write(waiter);
            }
            Ok(_) => {
                write.woken = true;
                self.continue_write(waiter);
            }
            Err(_) => {
                self.recorder.read_failed();
                self.end_write(waiter);
            }
        }
    }

    fn end_write(&mut self, waiter: Waiter) {
        let write = self.writes.remove(number(waiter));
        let free = Instant(self.now.0 + self.host.read_ns(write.bytes, write.waits));
        self.recorder.write(write.bytes, free);
        let process = &mut self.processes[write.process.0 as usize];
        process.in_flight -= 1;
        process.end(free);
        self.schedule(write.process);
        self.close_if_done(write.process);
    }

    /// Sends a write-out to the device.
    pub(super) fn submit_write_out(&mut self, out: &WriteOut) {
        let shift = self.page_size.shift();
        let request = Request {
            id: request_of(out.id),
            direction: Direction::Write,
            start: self.files[out.file.0 as usize].address + (out.range.start.0 << shift),
            bytes: out.range.count().0 << shift,
            urgency: out.urgency,
            owner: self.owner.0,
            object: out.file.0,
        };
        self.queue.submit(self.now, request);
    }
}
