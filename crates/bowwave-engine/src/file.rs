//! An open file: reads through the cache.

mod attributes;
mod write;

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use bowwave_backend::Identity;
use bowwave_core::schedule::Priority;
use bowwave_core::{
    Advice, FillError, FrameId, HandleId, PageIndex, PageRange, Pattern, Policy, Request, Stats,
};

use crate::engine::{Caller, Inner};
use crate::entry::FileEntry;
use crate::error::{Error, Result};
use crate::options::StreamBudget;
use crate::shard::{Effect, Found};
use crate::store::StoreInner;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::wait::{Outcome, Slot};
pub(crate) use write::ALL;
pub use write::Upload;

/// An open handle of an object. Any number of threads may read through it. With the policy
/// `stream`, all handles of an object share one readahead state. With the other policies each
/// handle has its own: use one handle for each independent stream.
#[derive(Debug)]
pub struct File {
    pub(crate) engine: Arc<Inner>,
    store: Arc<StoreInner>,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) handle: HandleId,
    access: Access,
    /// Number of failed write-outs of the file that this handle has already reported.
    errors_returned: AtomicU64,
    /// A [`Priority`] by its place in [`Priority::ALL`].
    priority: AtomicU8,
    /// Whether reads were announced through this handle.
    has_plan: AtomicBool,
}

/// Advice whose requests are decided and not sent. Reads of these pages wait until
/// [`perform`](Self::perform), so call it.
#[must_use]
pub(crate) struct Advised {
    engine: Arc<Inner>,
    shard: usize,
    caller: Caller,
    effects: Vec<Effect>,
}

impl Advised {
    /// Sends the requests.
    pub(crate) fn perform(self) {
        self.engine.perform_as(self.caller, self.shard, self.effects);
    }
}

/// Access mode of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Read and append.
    Append,
}

/// Buffers that each thread reuses.
#[derive(Debug, Default)]
struct Scratch {
    frames: Vec<FrameId>,
    effects: Vec<Effect>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    /// The thread's buffers. At the end of a thread, or in a nested read, they are new ones.
    fn take() -> Self {
        SCRATCH.try_with(RefCell::take).unwrap_or_default()
    }

    /// Keeps the buffers for the thread's next read.
    fn keep(self) {
        let _no_reuse = SCRATCH.try_with(|kept| kept.replace(self));
    }
}

/// The part of a read that the cache processes at once.
#[derive(Clone, Copy)]
struct Chunk {
    request: Request,
    /// Bytes before the requested ones in the first page.
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
        let errors_returned = AtomicU64::new(entry.write_errors().0);
        let priority = AtomicU8::new(Priority::default() as u8);
        Self {
            engine,
            store,
            entry,
            handle,
            access,
            errors_returned,
            priority,
            has_plan: AtomicBool::new(false),
        }
    }

    /// Another read handle of the same version.
    pub(crate) fn another(&self) -> Self {
        let (engine, store, entry) =
            (Arc::clone(&self.engine), Arc::clone(&self.store), Arc::clone(&self.entry));
        let handle = store.another_handle(&entry);
        Self::new(engine, store, entry, handle, Access::Read)
    }

    /// Another handle with the same advice, for another reader, such as another thread. `None` if
    /// the policy has a state for each handle, as Linux has for each descriptor.
    pub fn for_another_reader(&self) -> Option<Self> {
        self.engine.tuning().policy.capabilities().per_file.then(|| {
            let other = self.another();
            self.engine.shard(self.entry.shard).copy_handle(self.handle, other.handle);
            other
        })
    }

    /// The store's URL and the path in it, for messages.
    pub fn name(&self) -> String {
        self.entry.name()
    }

    /// Current size in bytes: as of the open, and as writers changed it since.
    pub fn size(&self) -> u64 {
        self.entry.upload.get().map_or_else(|| self.entry.size(), |upload| upload.size())
    }

    /// The current readahead policy.
    pub(crate) fn policy(&self) -> Policy {
        self.engine.tuning().policy
    }

    /// Identity, as of the last comparison with the store.
    pub fn identity(&self) -> Identity {
        self.entry.identity()
    }

    /// A number for the object's version: two handles have the same one only if they read the same
    /// bytes. Writes through this engine do not change it.
    pub fn version(&self) -> u64 {
        self.entry.uid
    }

    /// Whether the last open asked the store for this version. If not, the version is known from a
    /// listing or an earlier lookup, and the first read compares it with the store's.
    pub fn is_confirmed(&self) -> bool {
        self.entry.object().is_none_or(|object| object.is_confirmed())
    }

    /// Reads into `buf` from `offset`. Returns the number of bytes read; it is smaller than `buf`
    /// only at the end of the file.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the version that was opened; otherwise as the store
    /// says, after retries. The contents of `buf` are then unspecified.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.check_readable()?;
        let len = self.clip(offset, buf.len());
        if self.copy_hit(offset, &mut buf[..len])? {
            return Ok(len);
        }
        let mut scratch = Scratch::take();
        let read = self.read_chunks(offset, buf, &mut scratch);
        scratch.keep();
        read
    }

    /// As [`read_at`](Self::read_at), without blocking the thread, for any async runtime. The
    /// future may be dropped half-way.
    ///
    /// Poll it when it wakes: its pages stay pinned until then, for at most one second; a later
    /// poll reads again.
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
        let mut scratch = Scratch::take();
        while let Some(chunk) = self.next_chunk(offset, done, buf.len()) {
            let part = &mut buf[done..done + chunk.len];
            self.check_stale()?;
            let read = match self.start(chunk, &mut scratch) {
                Found::Hit => self.copy(&scratch.frames, chunk, part, &mut scratch.effects),
                Found::Later(slot) => {
                    let waiting = Waiting { file: self, slot: &slot };
                    let outcome = poll_fn(|context| waiting.slot.poll(context)).await;
                    std::mem::forget(waiting);
                    // `None`: it was polled too late, and the frames were reclaimed.
                    let Some(outcome) = outcome else { continue };
                    self.finish(outcome, chunk, part, &mut scratch, &mut tries)?
                }
            };
            done += if read { chunk.len } else { 0 };
        }
        scratch.keep();
        Ok(done)
    }

    /// Sets the priority, a class of `ionice`, of the requests that this handle causes from now on.
    /// It also applies to queued requests that a read of this handle begins to wait for. The
    /// scheduler `deadline` serves a lower class when no higher one waits, or when it has waited
    /// too long. Other schedulers ignore the priority.
    pub fn set_priority(&self, priority: Priority) {
        if priority != Priority::default() {
            self.engine.has_priorities.store(true, Ordering::Relaxed);
        }
        self.priority.store(priority as u8, Ordering::Relaxed);
    }

    /// The priority of this handle's requests.
    pub fn priority(&self) -> Priority {
        Priority::ALL[usize::from(self.priority.load(Ordering::Relaxed))]
    }

    /// Carries out effects of the file's shard.
    pub(crate) fn perform(&self, effects: Vec<Effect>) {
        self.engine.perform_as(self.caller(false), self.entry.shard, effects);
    }

    /// As [`perform`](Self::perform), for a read or a fault.
    pub(crate) fn perform_read(&self, effects: Vec<Effect>) {
        let caller = self.caller(!self.has_plan.load(Ordering::Relaxed));
        self.engine.perform_as(caller, self.entry.shard, effects);
    }

    fn caller(&self, drops: bool) -> Caller {
        Caller { priority: self.priority(), drops }
    }

    /// Advises how the file, or `len` bytes of it from `offset`, will be read. A `len` of 0 means
    /// to the end.
    ///
    /// `DontNeed` and `Copied` drop only pages that lie completely within the range.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) {
        self.decide(offset, len, advice).perform();
    }

    /// As [`advise`](Self::advise), but [`Advised::perform`] sends the requests.
    pub(crate) fn decide(&self, offset: u64, len: u64, advice: Advice) -> Advised {
        let size = self.entry.size();
        let end = if len == 0 { size } else { offset.saturating_add(len).min(size) };
        let offset = offset.min(end);
        let page = self.engine.page_size();
        let mut range = page.range_of(offset, end - offset);
        if matches!(advice, Advice::DontNeed | Advice::Copied) {
            let start = PageIndex(page.count_for(offset).0);
            // The last page of the file counts as complete.
            let stop = if end == size { range.end } else { page.index_of(end) };
            range = PageRange { start, end: stop.max(start) };
        }
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).advise(self.handle, range, advice, &mut effects);
        Advised {
            engine: Arc::clone(&self.engine),
            shard: self.entry.shard,
            caller: self.caller(false),
            effects,
        }
    }

    /// The budget for a caller that reads ahead by an index in the file, such as a Parquet footer.
    /// `None` with another policy than `stream`, with windows of size 0, and after the advice
    /// `Random`.
    pub fn stream_budget(&self) -> Option<StreamBudget> {
        let tuning = self.engine.tuning();
        let shard = self.engine.shard(self.entry.shard);
        let is_random = shard.with_cache(|cache| cache.pattern(self.handle)) == Pattern::Random;
        (tuning.policy == Policy::Stream && tuning.ra_pages > 0 && !is_random).then(|| StreamBudget {
            window_bytes: u64::from(tuning.ra_pages) * self.engine.page_size().bytes(),
            waste_percent: self.engine.waste_percent(),
            cache_bytes: self.engine.cache_bytes(),
        })
    }

    /// Appends ranges to this handle's read plan: the bytes that will be read, in order, such as
    /// columns, tensors or known records. The engine starts to read them ahead at once, many at a
    /// time, as far as readers need and memory allows. While reads follow the plan, nothing else is
    /// read ahead. For one range, pass `Some(range)`: `Some(0..u64::MAX)` plans the file to its
    /// end.
    ///
    /// Reads may skip ranges or change their order; reads elsewhere work as without a plan. Planned
    /// pages that were read and not used count in
    /// [`Stats::pages_abandoned`](crate::Stats::pages_abandoned).
    ///
    /// ```
    /// use bowwave_engine::{Engine, Options};
    ///
    /// let engine = Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() })?;
    /// let file = engine.open("pattern:/64MiB")?;
    /// let columns = [40 << 20..41 << 20, 3 << 20..5 << 20];
    /// file.plan(columns.clone())?;
    /// for column in columns {
    ///     let mut bytes = vec![0; (column.end - column.start) as usize];
    ///     file.read_at(column.start, &mut bytes)?;
    /// }
    /// # Ok::<(), bowwave_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Options` if more than 2^20 ranges wait to be read; adjacent ranges in order count once. The
    /// plan is then unchanged: pass the ranges again when earlier ones have been read.
    pub fn plan(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        let (page, size) = (self.engine.page_size(), self.entry.size());
        let pages =
            |range: Range<u64>| page.range_of(range.start, range.end.min(size).saturating_sub(range.start));
        let ranges: Vec<PageRange> =
            ranges.into_iter().map(pages).filter(|range| !range.is_empty()).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let had_plan = self.has_plan.swap(true, Ordering::Relaxed);
        self.engine.relieve(self.entry.shard);
        let mut effects = Vec::new();
        let shard = self.engine.shard(self.entry.shard);
        let taken = shard.set_read_plan(self.handle, ranges, self.entry.queue.is_congested(), &mut effects);
        self.perform(effects);
        taken.map_err(|error| {
            self.has_plan.store(had_plan, Ordering::Relaxed);
            Error::Options(error.to_string())
        })
    }

    /// Ends the read plan: the rest is not read, and readahead in flight without waiters is
    /// cancelled.
    pub fn end_plan(&self) {
        self.has_plan.store(false, Ordering::Relaxed);
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).end_plan(self.handle, &mut effects);
        self.perform(effects);
    }

    /// Counters of this file, over all handles.
    pub fn stats(&self) -> Stats {
        self.engine.shard(self.entry.shard).with_cache(|cache| cache.file_stats(self.entry.file))
    }

    /// Requests sent for this file, and their bytes, over all handles since the engine first opened
    /// it. Hedges are not counted.
    pub fn fetched(&self) -> (u64, u64) {
        self.entry.fetched()
    }

    /// The fast path of most reads: one lock, if all pages are cached; returns whether they were.
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

    /// The next chunk of a read of `len` bytes at `offset` of which `done` are read. None at the
    /// end of the file, which may move meanwhile.
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
        self.entry.upload.get().map_or(Ok(()), |upload| upload.check_readable())
    }

    /// Requests a chunk from the cache, and carries out the effects.
    fn start(&self, chunk: Chunk, scratch: &mut Scratch) -> Found {
        let shard = self.engine.shard(self.entry.shard);
        let found = shard.read(
            self.handle,
            chunk.request,
            self.entry.queue.is_congested(),
            &mut scratch.frames,
            &mut scratch.effects,
        );
        if matches!(found, Found::Later(_)) && self.engine.has_priorities.load(Ordering::Relaxed) {
            shard.promote(&self.entry, chunk.request.range, &mut scratch.effects);
        }
        // A hit may also read ahead.
        if matches!(found, Found::Later(_)) || !scratch.effects.is_empty() {
            self.perform_read(std::mem::take(&mut scratch.effects));
            self.engine.relieve(self.entry.shard);
        }
        found
    }

    /// Handles the outcome of a wake; `false` if the chunk must be requested again.
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
                // A request with leaked frames cannot be retried; the read can, into other frames.
                if error == FillError::ABANDONED && cause.is_retryable() && *tries > 0 {
                    *tries -= 1;
                    return Ok(false);
                }
                Err(cause.into())
            }
        }
    }

    /// Copies from pinned frames and unpins them; `false` if they are too few, because the file was
    /// truncated meanwhile.
    #[allow(unsafe_code, reason = "reads page frames")]
    fn copy(&self, frames: &[FrameId], chunk: Chunk, part: &mut [u8], effects: &mut Vec<Effect>) -> bool {
        let shard = self.engine.shard(self.entry.shard);
        let enough = chunk.skip + part.len() <= frames.len() * self.engine.page_size().bytes() as usize;
        if enough {
            // SAFETY: a hit or a wake has just returned these frames, up to date and pinned; they
            // are unpinned below.
            unsafe { shard.arena.copy_out(frames, chunk.skip, part) };
        }
        shard.unpin(frames, effects);
        if !effects.is_empty() {
            self.perform(std::mem::take(effects));
        }
        enough
    }
}

impl Drop for File {
    /// Closes the handle. The last writing handle first writes out all dirty pages. Errors that no
    /// [`flush`](Self::flush) has returned are counted
    /// ([`StoreStats::pages_lost`](crate::StoreStats::pages_lost),
    /// [`objects_lost`](crate::StoreStats::objects_lost)).
    fn drop(&mut self) {
        match self.entry.upload.get() {
            Some(upload) => self.store.close_whole(upload, &self.entry, self.handle),
            None if self.is_writable() => self.store.close_writer(&self.entry),
            None => {}
        }
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).close_handle(self.handle, &mut effects);
        self.perform(effects);
        self.store.closed(&self.entry);
    }
}

/// Returns the frames of a dropped task.
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
