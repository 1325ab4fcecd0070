//! A file to be mapped into memory: its pages come when they are touched, to where the program sees them.

use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use bowwave_core::{Advice, Fault, FillError, PageCount, PageRange, Pattern, Stats};

use crate::error::Result;
use crate::file::{File, Waiting};
use crate::places::{Mapping, Places};
use crate::shard::{Effect, Touch};

/// What may be mapped with a page that is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// Within these bytes of the file.
    pub bytes: Range<u64>,
    /// Most bytes behind the page that were read ahead and that nobody has used. What is mapped counts as used: the less,
    /// the better readahead learns what is.
    pub unread_bytes: u64,
}

/// An open object whose pages lie in a memory object in file order, for whoever maps that and serves its faults.
///
/// The memory holds only what the cache holds: pages come by [`fault`](Self::fault), and go as the cache needs room,
/// first out of the mapping ([`attach`](Self::attach)). Pages also share in the budget of the [`Engine`](crate::Engine).
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    places: Arc<Places>,
}

impl MappedFile {
    pub(crate) fn new(file: File) -> Self {
        let places = Arc::clone(file.entry.places.get().expect("a mapped file has places"));
        Self { file, places }
    }

    /// The same mapped file, with a readahead state of its own: for another stream of touches, such as another thread's.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { file: self.file.another(), places: Arc::clone(&self.places) }
    }

    /// The object as any other open file: to read, advise, or look at. What is read this way and what is mapped share pages.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of a page of the cache, a multiple of the machine's.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.file.engine.page_size().bytes()
    }

    /// The memory object. Every page that a fault has mapped has the file's bytes there, at the file's offset; any other
    /// may have half of them. Past the end of the file, to the end of its last page, there are zeros.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.places.memory()
    }

    /// Says who has the file mapped, in place of whoever had before.
    pub fn attach(&self, mapping: Weak<dyn Mapping>) {
        self.places.attach(mapping);
    }

    /// Says how the mapping will be touched: the whole of it (`Normal`, `Sequential`, `Random`) or a range of bytes.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) {
        self.file.advise(offset, len, advice);
    }

    /// What the cache has done for it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.file.stats()
    }

    /// A program has touched the byte at `offset`, in a mapping advised as `pattern` says, and found its page not mapped. When the page is up to
    /// date, `map` is called once with the bytes to map: the page and what lies around it, as `around` says; they stay what they are during the
    /// call, which runs under a lock of the cache. It tells how many bytes it has mapped, from the first on.
    ///
    /// For any executor; may be dropped half-way.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the one that was opened; otherwise as the store says, after retries. `map` is not called then.
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
                    engine.perform(entry.shard, effects);
                    return Ok(());
                }
                Some(Err(error)) => {
                    let cause = entry.error(error);
                    if error == FillError::LOST {
                        // Somebody may still write to the place of that page, and it has no other.
                        engine.make_stale(entry);
                    }
                    return Err(cause.into());
                }
                // It was polled too late, and others have the frame.
                None => {}
            }
        }
    }

    /// As [`fault`](Self::fault), if the page is up to date and not mapped; tells whether it was. If not, nothing has happened,
    /// and `map` was not called.
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
        // A page that was there takes no memory, unless more is read with it.
        if !effects.is_empty() {
            engine.perform(entry.shard, effects);
            engine.relieve(entry.shard);
        }
    }
}
