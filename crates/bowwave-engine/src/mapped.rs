//! Mapped files: pages are read when a program touches them, into the memory that it maps.

use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use bowwave_core::{Advice, Fault, FillError, PageCount, PageRange, Pattern, Stats};

use crate::error::Result;
use crate::file::{File, Waiting};
use crate::offset_mapped::{Mapping, OffsetMappedFrames};
use crate::shard::{Effect, Touch};

/// What may be mapped together with a touched page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// Within these bytes of the file.
    pub bytes: Range<u64>,
    /// Most unread readahead after the page to map, in bytes. Mapped pages count as used, so with
    /// smaller values readahead sees more of the reader's touches.
    pub unread_bytes: u64,
}

/// An open object with offset-mapped frames in a memory object, for a program that maps it and
/// serves its faults.
///
/// The memory holds only cached pages. [`fault`](Self::fault) reads pages; the cache evicts them
/// under memory pressure, after it unmaps them ([`attach`](Self::attach)). Pages count in the
/// budget of the [`Engine`](crate::Engine).
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    frames: Arc<OffsetMappedFrames>,
}

impl MappedFile {
    pub(crate) fn new(file: File) -> Self {
        let frames = Arc::clone(file.entry.offset_mapped.get().expect("a mapped file has frames"));
        Self { file, frames }
    }

    /// The same mapped file through a handle of its own, for another stream of touches, such as
    /// another thread's.
    pub fn another(&self) -> Self {
        Self { file: self.file.another(), frames: Arc::clone(&self.frames) }
    }

    /// The object as an ordinary open file, to read or advise. Reads and the mapping share pages.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of a page of the cache; a multiple of the machine's page size.
    pub fn page_bytes(&self) -> u64 {
        self.file.engine.page_size().bytes()
    }

    /// The memory object. Pages that a fault has mapped hold the file's bytes at the file's offset;
    /// other pages may be incomplete. The last page is zero past the end of the file.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.frames.memory()
    }

    /// Sets the program's mapping, in place of an earlier one.
    pub fn attach(&self, mapping: Weak<dyn Mapping>) {
        self.frames.attach(mapping);
    }

    /// Advises the whole mapping (`Normal`, `Sequential`, `Random`) or a range of bytes.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) {
        self.file.advise(offset, len, advice);
    }

    /// Counters of the file.
    pub fn stats(&self) -> Stats {
        self.file.stats()
    }

    /// Handles a fault at `offset`, in a mapping with the advice `pattern`. When the page is up to
    /// date, calls `map` once with the bytes to map: the page and its surroundings within `around`.
    /// They do not change during the call, which runs under a lock of the cache. `map` returns how
    /// many bytes it has mapped, from the first on.
    ///
    /// For any executor; the future may be dropped half-way.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the one that was opened; otherwise as the store says,
    /// after retries. `map` is not called then.
    pub async fn fault(
        &self,
        offset: u64,
        pattern: Pattern,
        around: Around,
        mut map: impl FnMut(Range<u64>) -> u64,
    ) -> Result<()> {
        let File { engine, entry, .. } = &self.file;
        let touch = self.touch(offset, pattern, &around);
        let mut map = |range| self.map(range, &mut map);
        let shard = engine.shard(entry.shard);
        loop {
            self.file.check_stale()?;
            let mut effects = Vec::new();
            let slot = shard.fault(&touch, &mut map, &mut effects);
            self.perform(effects);
            let Some(slot) = slot else { return Ok(()) };
            let waiting = Waiting { file: &self.file, slot: &slot };
            let outcome = poll_fn(|context| waiting.slot.poll(context)).await;
            std::mem::forget(waiting);
            match outcome {
                Some(Ok(frames)) => {
                    let mut effects = Vec::new();
                    shard.map_pinned(&touch, frames, &mut map, &mut effects);
                    self.file.perform(effects);
                    return Ok(());
                }
                Some(Err(error)) => {
                    let cause = entry.error(error);
                    if error == FillError::ABANDONED {
                        // The backend may still write to the page's only frame.
                        engine.make_stale(entry);
                    }
                    return Err(cause.into());
                }
                // It was polled too late, and the frame was reclaimed.
                None => {}
            }
        }
    }

    /// As [`fault`](Self::fault), if the page is up to date and unmapped; returns whether it was.
    /// If not, nothing happens, and `map` is not called.
    pub fn fault_if_there(
        &self,
        offset: u64,
        pattern: Pattern,
        around: Around,
        mut map: impl FnMut(Range<u64>) -> u64,
    ) -> bool {
        let File { engine, entry, .. } = &self.file;
        let touch = self.touch(offset, pattern, &around);
        let mut effects = Vec::new();
        let mut map = |range| self.map(range, &mut map);
        let is_there = self.file.check_stale().is_ok()
            && engine.shard(entry.shard).fault_if_there(&touch, &mut map, &mut effects);
        self.perform(effects);
        is_there
    }

    fn touch(&self, offset: u64, pattern: Pattern, around: &Around) -> Touch<'_> {
        let File { engine, entry, handle, .. } = &self.file;
        let page_size = engine.page_size();
        Touch {
            entry,
            handle: *handle,
            fault: Fault { page: page_size.index_of(offset), pattern },
            around: PageRange::new(
                page_size.index_of(around.bytes.start).0,
                page_size.count_for(around.bytes.end).0,
            ),
            unread: PageCount(around.unread_bytes >> page_size.shift()),
        }
    }

    fn map(&self, range: PageRange, map: &mut impl FnMut(Range<u64>) -> u64) -> PageCount {
        let shift = self.file.engine.page_size().shift();
        PageCount(map(range.start.0 << shift..range.end.0 << shift) >> shift)
    }

    fn perform(&self, effects: Vec<Effect>) {
        let File { engine, entry, .. } = &self.file;
        // A cached page takes no memory, unless readahead follows.
        if !effects.is_empty() {
            self.file.perform_read(effects);
            engine.relieve(entry.shard);
        }
    }
}
