//! An open file: reads through the cache.

mod attributes;
mod length;
mod planned;
mod whole;
mod write;

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;

use bowwave_backend::Identity;
use bowwave_core::{Advice, FillError, FrameId, HandleId, PageIndex, PageRange, Request, Stats};

use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::error::Result;
use crate::shard::{Effect, Found};
use crate::store::StoreInner;
use crate::sync::atomic::AtomicU64;
use crate::wait::{Outcome, Slot};
pub(crate) use write::ALL;

/// An open handle of an object, with its own readahead state. Any number of threads may read through it; streams that
/// should be told apart want handles of their own.
#[derive(Debug)]
pub struct File {
    pub(crate) engine: Arc<Inner>,
    store: Arc<StoreInner>,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) handle: HandleId,
    access: Access,
    /// Write-outs of the file that had failed when this handle was last told of them.
    errors_told: AtomicU64,
}

/// What a handle was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading.
    Read,
    /// Writing, too.
    Write,
    /// Writing at the end.
    Append,
}

/// Buffers that each thread uses again and again.
#[derive(Debug, Default)]
struct Scratch {
    frames: Vec<FrameId>,
    effects: Vec<Effect>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's buffers. Where the thread is about to end, or reads within a read, they are new ones.
fn with_scratch<T>(act: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.try_with(RefCell::take).unwrap_or_default();
    let result = act(&mut scratch);
    let _no_reuse = SCRATCH.try_with(|kept| kept.replace(scratch));
    result
}

/// A part of a read that the cache is asked for at once.
#[derive(Clone, Copy)]
struct Chunk {
    request: Request,
    /// Bytes before the wanted ones in the first page.
    skip: usize,
    len: usize,
}

impl File {
    pub(crate) fn new(
        engine: Arc<Inner>,
        store: Arc<StoreInner>,
        entry: Arc<FileEntry>,
        handle: HandleId,
        access: Access,
    ) -> Self {
        let errors_told = AtomicU64::new(entry.write_errors().0);
        Self { engine, store, entry, handle, access, errors_told }
    }

    /// A handle more, to read the same version of the object, with a readahead state of its own.
    pub(crate) fn another(&self) -> Self {
        let (engine, store, entry) =
            (Arc::clone(&self.engine), Arc::clone(&self.store), Arc::clone(&self.entry));
        let handle = store.another_handle(&entry);
        Self::new(engine, store, entry, handle, Access::Read)
    }

    /// Size in bytes, now: as of the opening, and as writers have changed it since.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.entry.whole.get().map_or_else(|| self.entry.size(), |whole| whole.size())
    }

    /// Identity, as of the last agreement with the store.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.entry.identity()
    }

    /// A number that stands for the object's version: the same for two handles only if they read the same bytes. What is
    /// written through this engine does not change it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.entry.uid
    }

    /// Reads into `buf` from `offset`; returns how many bytes there were before the end of the file.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the one that was opened; otherwise as the store says, after retries. What
    /// `buf` then holds is unspecified.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.check_readable()?;
        let len = self.clip(offset, buf.len());
        if self.copy_hit(offset, &mut buf[..len])? {
            return Ok(len);
        }
        with_scratch(|scratch| self.read_chunks(offset, buf, scratch))
    }

    /// As [`read_at`](Self::read_at), without blocking the thread: for any async runtime. May be dropped half-way.
    ///
    /// Poll it when it wakes: its pages stay pinned until then, but for a second at most; polled later, it reads anew.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub async fn read_at_async(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.check_readable()?;
        let len = self.clip(offset, buf.len());
        let mut done = 0;
        if self.copy_hit(offset, &mut buf[..len])? {
            return Ok(len);
        }
        let mut tries = self.engine.retries();
        while let Some(chunk) = self.next_chunk(offset, done, buf.len()) {
            let part = &mut buf[done..done + chunk.len];
            self.check_stale()?;
            let mut scratch = Scratch::default();
            let read = match self.start(chunk, &mut scratch) {
                Found::Hit => self.copy(&scratch.frames, chunk, part, &mut scratch.effects),
                Found::Later(slot) => {
                    let waiting = Waiting { file: self, slot: &slot };
                    let outcome = poll_fn(|context| waiting.slot.poll(context)).await;
                    std::mem::forget(waiting);
                    // None: it was polled too late, and others have the frames.
                    let Some(outcome) = outcome else { continue };
                    self.finish(outcome, chunk, part, &mut scratch, &mut tries)?
                }
            };
            done += if read { chunk.len } else { 0 };
        }
        Ok(done)
    }

    /// Says how the file, or `len` bytes of it from `offset`, will be read. 0 for `len` means to the end.
    ///
    /// `DontNeed` drops only pages that lie wholly within the bytes.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) {
        let size = self.entry.size();
        let end = if len == 0 { size } else { offset.saturating_add(len).min(size) };
        let offset = offset.min(end);
        let page = self.engine.page_size();
        let mut range = page.range_of(offset, end - offset);
        if advice == Advice::DontNeed {
            let start = PageIndex(page.count_for(offset).0);
            // The last page of the file counts as whole.
            let stop = if end == size { range.end } else { page.index_of(end) };
            range = PageRange { start, end: stop.max(start) };
        }
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).advise(self.handle, range, advice, &mut effects);
        self.engine.perform(self.entry.shard, effects);
    }

    /// What the cache has done for this file, through all handles.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.shard(self.entry.shard).with_cache(|cache| cache.file_stats(self.entry.file))
    }

    /// The short way of most reads: one turn under the lock, if all is there; tells whether it was.
    #[inline]
    fn copy_hit(&self, offset: u64, part: &mut [u8]) -> Result<bool> {
        let chunk = self.chunk(offset, part.len());
        if part.is_empty() || chunk.len < part.len() {
            return Ok(false);
        }
        self.check_stale()?;
        Ok(self.engine.shard(self.entry.shard).copy_hit(self.handle, chunk.request, chunk.skip, part))
    }

    fn read_chunks(&self, offset: u64, buf: &mut [u8], scratch: &mut Scratch) -> Result<usize> {
        let mut done = 0;
        let mut tries = self.engine.retries();
        while let Some(chunk) = self.next_chunk(offset, done, buf.len()) {
            let part = &mut buf[done..done + chunk.len];
            self.check_stale()?;
            let read = match self.start(chunk, scratch) {
                Found::Hit => self.copy(&scratch.frames, chunk, part, &mut scratch.effects),
                Found::Later(slot) => self.finish(slot.wait(), chunk, part, scratch, &mut tries)?,
            };
            done += if read { chunk.len } else { 0 };
        }
        Ok(done)
    }

    /// What to ask for next of a read of `len` bytes at `offset`, `done` of which it has; nothing at the end of the file,
    /// which may have come nearer meanwhile.
    fn next_chunk(&self, offset: u64, done: usize, len: usize) -> Option<Chunk> {
        let from = offset.checked_add(done as u64)?;
        let left = self.clip(from, len - done);
        (left > 0).then(|| self.chunk(from, left))
    }

    fn clip(&self, offset: u64, len: usize) -> usize {
        let left = self.entry.size().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| len.min(left))
    }

    fn chunk(&self, offset: u64, len: usize) -> Chunk {
        let page = self.engine.page_size();
        let skip = (offset & (page.bytes() - 1)) as usize;
        let most = (self.engine.chunk_pages() * page.bytes()) as usize - skip;
        let len = len.min(most);
        Chunk { request: page.request_of(offset, len as u64), skip, len }
    }

    pub(crate) fn check_stale(&self) -> Result<()> {
        if self.entry.is_stale() { Err(self.entry.stale_error().into()) } else { Ok(()) }
    }

    #[inline]
    fn check_readable(&self) -> Result<()> {
        self.entry.whole.get().map_or(Ok(()), |whole| whole.check_readable())
    }

    /// Asks the cache for a chunk, and sees to what follows from it.
    fn start(&self, chunk: Chunk, scratch: &mut Scratch) -> Found {
        let shard = self.engine.shard(self.entry.shard);
        let found = shard.read(
            self.handle,
            chunk.request,
            self.entry.queue.is_congested(),
            &mut scratch.frames,
            &mut scratch.effects,
        );
        // A hit may have read ahead, too.
        if matches!(found, Found::Later(_)) || !scratch.effects.is_empty() {
            self.engine.perform(self.entry.shard, std::mem::take(&mut scratch.effects));
            self.engine.relieve(self.entry.shard);
        }
        found
    }

    /// Takes what a wake has brought; `false` if the chunk must be asked for again.
    fn finish(
        &self,
        outcome: Outcome,
        chunk: Chunk,
        part: &mut [u8],
        scratch: &mut Scratch,
        tries: &mut u32,
    ) -> Result<bool> {
        match outcome {
            Ok(frames) => Ok(self.copy(&frames, chunk, part, &mut scratch.effects)),
            Err(error) => {
                let cause = self.entry.error(error);
                // A request that kept its frames could not be tried again; the read can, into others.
                if error == FillError::LOST && cause.is_retryable() && *tries > 0 {
                    *tries -= 1;
                    return Ok(false);
                }
                Err(cause.into())
            }
        }
    }

    /// Copies out of pinned frames, and unpins them; `false` if they are too few, because the file was cut meanwhile.
    #[allow(unsafe_code, reason = "reads page frames")]
    fn copy(&self, frames: &[FrameId], chunk: Chunk, part: &mut [u8], effects: &mut Vec<Effect>) -> bool {
        let shard = self.engine.shard(self.entry.shard);
        let enough = chunk.skip + part.len() <= frames.len() * self.engine.page_size().bytes() as usize;
        if enough {
            // SAFETY: a hit or a wake has just handed these frames out, up to date and pinned; they are unpinned below.
            unsafe { shard.arena.copy_out(frames, chunk.skip, part) };
        }
        shard.unpin(frames, effects);
        if !effects.is_empty() {
            self.engine.perform(self.entry.shard, std::mem::take(effects));
        }
        enough
    }
}

impl Drop for File {
    /// Closes the handle. The last one that writes first writes out what is left to, so that the store has it; errors that
    /// nobody has heard of by [`flush`](Self::flush) are counted
    /// ([`StoreStats::pages_lost`](crate::StoreStats::pages_lost), and [`objects_lost`](crate::StoreStats::objects_lost)).
    fn drop(&mut self) {
        match self.entry.whole.get() {
            Some(whole) => self.store.close_whole(whole, &self.entry, self.handle),
            None if self.is_writable() => self.store.close_writer(&self.entry),
            None => {}
        }
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).close_handle(self.handle, &mut effects);
        self.engine.perform(self.entry.shard, effects);
        self.store.closed(&self.entry);
    }
}

/// Gives back what a dropped task waited for.
pub(crate) struct Waiting<'a> {
    pub(crate) file: &'a File,
    pub(crate) slot: &'a Slot,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(Ok(frames)) = self.slot.abandon() {
            self.file.engine.unpin(self.file.entry.shard, &frames);
        }
    }
}
