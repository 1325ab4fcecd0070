//! Object uploads: parts go to the store as they are written; readers see nothing of an object
//! until all of it is published.
//!
//! ```text
//!   write (at the end only) ──► tail: the last part, not full yet
//!                                 └── full ──► Slots, MemoryPool (the writer waits) ──► WriteObject::write ── retried
//!   fsync, close ──► tail, all parts are accepted ──► WriteObject::finish: published
//!                                                     failed ──► abort: the object is unchanged
//! ```
//!
//! All handles that write one object write one *upload* of its next version, as they would write
//! one file. Opening with `truncate` begins a new upload: handles that wrote to the earlier one can
//! write no more, and do not publish. Any fsync publishes an upload, and so does the close of the
//! last handle that wrote to it. So a close never publishes a version that another handle is still
//! writing.
//!
//! A failed upload is aborted. Each handle that was open gets the error once, from fsync or close;
//! a handle that wrote to the upload gets it from each write, too.

mod attributes;
mod discarded;
mod memory_pool;
mod part;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bowwave_backend::{
    Error as StoreError, ErrorKind, Identity, PartMemory, SetAttributes, WriteObject, read_once,
};
use bowwave_core::network::Retry;
use bowwave_core::{HandleId, PageIndex, PageRange};

use crate::clock;
use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::error::Result;
use crate::queue::Queue;
use crate::request::again_at;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use discarded::Discarded;
use memory_pool::Buffer;
pub(crate) use memory_pool::{MemoryPool, Slots};
pub(crate) use part::Part;

/// The next version of an object in a store that only accepts complete objects.
#[derive(Debug)]
pub(crate) struct ObjectUpload {
    engine: Arc<Inner>,
    object: Arc<dyn WriteObject>,
    queue: Arc<Queue>,
    slots: Arc<Slots>,
    discarded: Arc<Discarded>,
    /// Bytes of a part.
    part: usize,
    path: PathBuf,
    /// For messages.
    name: String,
    /// Serializes writes, truncations and publications.
    tail: Mutex<Tail>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The last part of the upload, if it is not full. It stays after publication, for later writes.
#[derive(Debug, Default)]
struct Tail {
    buffer: Option<Buffer>,
}

#[derive(Debug)]
struct State {
    /// Size of the upload in bytes, or of the published object if there is none.
    end: u64,
    /// There are bytes, or a truncation, to be published.
    is_pending: bool,
    /// An object is published under the name.
    is_published: bool,
    published_bytes: u64,
    /// Uploads begun so far from nothing, or after a failed one.
    generation: u64,
    in_flight: u32,
    /// Buffers to be reused.
    spare: Vec<Buffer>,
    /// Failed parts are not retried.
    is_abandoned: bool,
    /// Error of a part of this upload.
    part_error: Option<StoreError>,
    /// Failed uploads so far; the last one, and its error.
    failures: u64,
    last_failure: Option<(u64, StoreError)>,
    /// Unlinked: further writes are discarded.
    unlinked: Option<Unlinked>,
    handles: HashMap<HandleId, HandleState>,
    /// Attributes of the version that is published next.
    attributes: SetAttributes,
    written_at: Option<SystemTime>,
}

/// State of a handle.
#[derive(Debug, Clone, Copy)]
struct HandleState {
    /// The upload that it writes.
    generation: u64,
    /// It has written to that upload since the last fsync or close.
    has_written: bool,
    /// Failures before it was opened, or that it has returned.
    failures_reported: u64,
    is_open: bool,
}

/// How an object was unlinked during its upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlinked {
    /// Removed or replaced: as in file systems, its writers continue, and their bytes are
    /// discarded.
    Removed,
    /// Renamed; it cannot be written under the new name.
    Renamed,
}

/// A handle that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) entry: &'a FileEntry,
    pub(crate) handle: HandleId,
    /// Writes go to the end, whatever their offset.
    pub(crate) appends: bool,
}

impl ObjectUpload {
    /// An object that was just opened; not published if it has no identity.
    pub(crate) fn new(
        engine: &Arc<Inner>,
        object: Arc<dyn WriteObject>,
        (queue, slots, discarded): (&Arc<Queue>, &Arc<Slots>, &Arc<Discarded>),
        part: usize,
        (path, name): (&Path, String),
    ) -> Self {
        let is_published = *object.identity() != Identity::default();
        let bytes = object.size();
        let state = State {
            end: bytes,
            is_pending: !is_published,
            is_published,
            published_bytes: bytes,
            generation: 0,
            in_flight: 0,
            spare: Vec::new(),
            is_abandoned: false,
            part_error: None,
            failures: 0,
            last_failure: None,
            unlinked: None,
            handles: HashMap::new(),
            attributes: object.next_attributes(),
            written_at: (!is_published).then(SystemTime::now),
        };
        Self {
            engine: Arc::clone(engine),
            object,
            queue: Arc::clone(queue),
            slots: Arc::clone(slots),
            discarded: Arc::clone(discarded),
            part,
            path: path.to_owned(),
            name,
            tail: Mutex::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far, or published.
    pub(crate) fn size(&self) -> u64 {
        self.state.lock().end
    }

    /// Whether there is something to publish.
    pub(crate) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        state.is_pending && state.unlinked.is_none()
    }

    /// Whether nothing is published under its name yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.state.lock().is_published
    }

    /// Whether its name was removed, or is another object's now.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.state.lock().unlinked.is_some()
    }

    /// Fails during an upload, whose bytes cannot be read.
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.state.lock().is_pending {
            return Ok(());
        }
        let what = "what is being written to an object can be read when it is closed or synced";
        Err(self.unsupported(what).into())
    }

    /// Counts a new handle.
    pub(crate) fn opened(&self, handle: HandleId) {
        let mut state = self.state.lock();
        let own = HandleState {
            generation: state.generation,
            has_written: false,
            failures_reported: state.failures,
            is_open: true,
        };
        state.handles.insert(handle, own);
    }

    /// Counts a closed handle; returns how many are left.
    pub(crate) fn closed(&self, handle: HandleId) -> usize {
        let mut state = self.state.lock();
        state.handles.remove(&handle);
        state.handles.len()
    }

    /// Writes at the end; returns the offset and the number of bytes written: all, unless an error
    /// occurs half-way.
    pub(crate) fn write(
        self: &Arc<Self>,
        writer: Writer<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(u64, usize)> {
        let mut tail = self.lock()?;
        let offset = self.admit(writer, offset, bytes.len())?;
        if self.state.lock().unlinked == Some(Unlinked::Removed) {
            self.state.lock().end = offset + bytes.len() as u64;
            return Ok((offset, bytes.len()));
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.fill(&mut tail, offset + done as u64, &bytes[done..]) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((offset, done))
    }

    /// Whether a write is allowed, and its offset.
    fn admit(&self, writer: Writer<'_>, offset: u64, len: usize) -> Result<u64> {
        let mut state = self.state.lock();
        let (generation, end) = (state.generation, state.end);
        if state.unlinked == Some(Unlinked::Renamed) {
            return Err(self
                .error(ErrorKind::Changed, "was renamed while it was open; open it again")
                .into());
        }
        let failure = state.last_failure.clone();
        let own = state.handles.get_mut(&writer.handle).filter(|own| own.is_open);
        let own = own.ok_or_else(|| self.closed_already())?;
        if own.has_written && own.generation != generation {
            // This handle's bytes are lost, so later bytes would be without them.
            match failure {
                Some((failed, error)) if failed == own.generation => return Err(error.into()),
                _ if writer.appends => {}
                _ => {
                    let what = "was begun anew by another program while this one wrote it";
                    return Err(self.error(ErrorKind::Changed, what).into());
                }
            }
        }
        let offset = if writer.appends { end } else { offset };
        if offset != end {
            return Err(self.unsupported(&format!(
                "an object is written from front to back: {end} bytes are there, the next can be at {end}, not at \
                 {offset}; write a new file and rename it"
            ))
            .into());
        }
        if offset.checked_add(len as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(self.error(ErrorKind::TooLarge, "no object has bytes beyond 2^63").into());
        }
        if len > 0 {
            *own = HandleState { generation, has_written: true, ..*own };
            self.forget_time(&mut state);
        }
        Ok(offset)
    }

    /// Adds bytes to the last part, and sends it when it is full. Returns the bytes added.
    fn fill(self: &Arc<Self>, tail: &mut Tail, at: u64, bytes: &[u8]) -> Result<usize> {
        let have = usize::try_from(at % self.part as u64).expect("smaller than a part");
        let mut buffer = match tail.buffer.take() {
            Some(buffer) => buffer,
            None => {
                let spare = self.state.lock().spare.pop();
                let mut buffer = spare.map_or_else(|| Buffer::new(&self.engine, self.part), Ok)?;
                if have > 0 {
                    // The published version ends within a part, which is written again.
                    buffer.extend(&self.published(at - have as u64, have)?, self.part)?;
                }
                buffer
            }
        };
        debug_assert_eq!(buffer.len(), have, "the buffer holds what is behind the last full part");
        let count = bytes.len().min(self.part - have);
        if let Err(error) = buffer.extend(&bytes[..count], self.part) {
            // The earlier bytes are still valid.
            tail.buffer = Some(buffer);
            return Err(error.into());
        }
        let mut state = self.state.lock();
        state.end = at + count as u64;
        state.is_pending = true;
        drop(state);
        if buffer.len() == self.part {
            self.send(at - have as u64, buffer.share(), Some(buffer));
        } else {
            tail.buffer = Some(buffer);
        }
        Ok(count)
    }

    /// Sends a part once it has a slot.
    fn send(self: &Arc<Self>, offset: u64, bytes: Arc<PartMemory>, mut buffer: Option<Buffer>) {
        let slot = self.slots.acquire();
        if let Some(buffer) = &mut buffer {
            buffer.mark_in_flight();
        }
        self.state.lock().in_flight += 1;
        Part::new(self, offset, bytes, buffer, slot).send();
    }

    /// Bytes of the published version.
    fn published(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (at, left) = (offset + bytes.len() as u64, len - bytes.len());
            let more = self.with_retries(|| {
                let more = read_once(&*self.object, at, left, PATIENCE)?;
                let ended = || StoreError::new(ErrorKind::Truncated, format!("{}: ended at {at}", self.name));
                if more.is_empty() { Err(ended()) } else { Ok(more) }
            })?;
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Whether parts in flight are still needed.
    fn needs_parts(&self) -> bool {
        let state = self.state.lock();
        state.part_error.is_none() && !state.is_abandoned
    }

    /// A part was accepted, or failed for good.
    fn part_ended(&self, error: Option<StoreError>, buffer: Option<Buffer>) {
        let mut reusable = if error.is_none() { buffer.and_then(Buffer::reuse) } else { None };
        let mut state = self.state.lock();
        state.in_flight -= 1;
        if state.spare.len() < SPARE_MAX && state.is_pending {
            state.spare.extend(reusable.take());
        }
        if state.part_error.is_none() {
            state.part_error = error;
        }
        drop(state);
        // Returns its memory, outside the lock.
        drop(reusable);
        self.changed.notify_all();
    }

    /// Publishes what this handle has written, unless other handles have unfinished writes, and
    /// with `unwritten` also an upload that no handle has written. Returns an error that this
    /// handle has not returned yet.
    pub(crate) fn flush(self: &Arc<Self>, writer: Writer<'_>, unwritten: bool) -> Result<()> {
        let mut tail = self.lock()?;
        let is_done = self.is_done_writing(writer.handle);
        if is_done || unwritten && self.is_unwritten() {
            self.publish_or_fail(&mut tail, writer.entry);
        }
        self.report_failure(writer.handle)
    }

    /// Whether no handle has unfinished writes to this upload.
    fn is_unwritten(&self) -> bool {
        let state = self.state.lock();
        !state.handles.values().any(|own| own.has_written && own.generation == state.generation)
    }

    /// Publishes the writes of all handles.
    pub(crate) fn sync(self: &Arc<Self>, writer: Writer<'_>) -> Result<()> {
        let mut tail = self.lock()?;
        self.report_failure(writer.handle)?;
        match self.publish(&mut tail, writer.entry) {
            // Worth a retry: the written bytes are still in memory.
            Err(error) if error.is_retryable() && self.state.lock().part_error.is_none() => Err(error.into()),
            Err(error) => {
                self.fail(&mut tail, &error);
                self.report_failure(writer.handle)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Ends the handle's writing: as [`flush`](Self::flush), and the last handle publishes an
    /// upload that was never written. A second call does nothing.
    pub(crate) fn end(self: &Arc<Self>, writer: Writer<'_>) -> Result<()> {
        let mut tail = self.lock()?;
        let was_last = self.is_done_writing(writer.handle);
        let mut state = self.state.lock();
        let Some(own) = state.handles.get_mut(&writer.handle).filter(|own| own.is_open) else {
            return Ok(());
        };
        own.is_open = false;
        let none_left = state.handles.values().all(|own| !own.is_open);
        drop(state);
        if was_last || none_left {
            self.publish_or_fail(&mut tail, writer.entry);
        }
        if none_left {
            tail.buffer = None;
            self.state.lock().spare.clear();
        }
        self.report_failure(writer.handle)
    }

    /// Ends the handle's writing without publishing its writes.
    pub(crate) fn abandon(self: &Arc<Self>, handle: HandleId) {
        let mut tail = self.tail.lock();
        let mut state = self.state.lock();
        let generation = state.generation;
        let Some(own) = state.handles.get_mut(&handle).filter(|own| own.is_open) else { return };
        own.is_open = false;
        let has_written = own.has_written && own.generation == generation;
        let none_left = state.handles.values().all(|own| !own.is_open);
        let is_lost = state.is_pending && state.unlinked.is_none() && (has_written || none_left);
        drop(state);
        if is_lost {
            self.fail(&mut tail, &self.error(ErrorKind::Io, "was abandoned before it was closed"));
            if !has_written {
                self.discarded.forget(&self.path);
            }
        }
    }

    /// Marks a handle as done writing; returns whether it had written to this upload, and no other
    /// handle is writing.
    fn is_done_writing(&self, handle: HandleId) -> bool {
        let mut state = self.state.lock();
        let generation = state.generation;
        let Some(own) = state.handles.get_mut(&handle) else { return false };
        let had_written = own.has_written && own.generation == generation;
        own.has_written = false;
        had_written && !state.handles.values().any(|own| own.has_written && own.generation == generation)
    }

    /// Returns an error that the handle has not returned yet.
    fn report_failure(&self, handle: HandleId) -> Result<()> {
        let mut state = self.state.lock();
        let (failures, last) = (state.failures, state.last_failure.clone());
        let Some(own) = state.handles.get_mut(&handle) else { return Ok(()) };
        let news = own.failures_reported < failures;
        own.failures_reported = failures;
        match last {
            Some((_, error)) if news => {
                // After the error it may begin again.
                own.has_written = false;
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    fn publish_or_fail(self: &Arc<Self>, tail: &mut Tail, entry: &FileEntry) {
        if let Err(error) = self.publish(tail, entry) {
            self.fail(tail, &error);
        }
    }

    /// Publishes the upload, if there is one.
    fn publish(self: &Arc<Self>, tail: &mut Tail, entry: &FileEntry) -> bowwave_backend::Result<()> {
        if !self.is_pending() {
            return Ok(());
        }
        let end = self.size();
        if let Some(buffer) = tail.buffer.as_ref().filter(|buffer| buffer.len() > 0) {
            self.send(end - buffer.len() as u64, buffer.share(), None);
        }
        if let Some(error) = self.wait_for_parts() {
            return Err(error);
        }
        let identity = self.with_retries(|| self.object.finish())?;
        let mut state = self.state.lock();
        state.is_pending = false;
        state.is_published = true;
        state.published_bytes = end;
        // The next version has its own time.
        state.attributes.modified = None;
        self.object.set_next_attributes(&state.attributes).ok();
        state.spare.clear();
        state.handles.values_mut().for_each(|own| own.has_written = false);
        drop(state);
        self.discarded.forget(&self.path);
        self.switch_readers(entry, identity);
        Ok(())
    }

    /// Waits for all parts in flight, which are no longer needed.
    fn drain(&self) {
        self.state.lock().is_abandoned = true;
        self.wait_for_parts();
        let mut state = self.state.lock();
        state.is_abandoned = false;
        state.part_error = None;
    }

    /// Waits for all parts in flight; returns the error of a failed one.
    fn wait_for_parts(&self) -> Option<StoreError> {
        let mut state = self.state.lock();
        while state.in_flight > 0 {
            state = self.changed.wait(state);
        }
        state.part_error.clone()
    }

    /// Switches readers of these handles to the new version.
    fn switch_readers(&self, entry: &FileEntry, identity: Identity) {
        let pages = self.engine.page_size().count_for(identity.size);
        let shard = self.engine.shard(entry.shard);
        let is_longer = identity.size > entry.size();
        if is_longer {
            shard.set_pages(entry.file, pages);
        } else {
            entry.set_size(identity.size);
            entry.set_stored(identity.size);
        }
        let all = PageRange { start: PageIndex(0), end: PageIndex(u64::MAX) };
        shard.invalidate_pages(entry.file, all);
        if is_longer {
            entry.set_size(identity.size);
            entry.set_stored(identity.size);
        } else {
            shard.set_pages(entry.file, pages);
        }
        entry.set_identity(identity);
    }

    /// The upload failed; the object is unchanged.
    fn fail(&self, tail: &mut Tail, error: &StoreError) {
        self.drain();
        self.object.abort();
        tail.buffer = None;
        let mut state = self.state.lock();
        state.is_pending = false;
        state.end = state.published_bytes;
        state.failures += 1;
        state.last_failure = Some((state.generation, error.clone()));
        state.generation += 1;
        state.spare.clear();
        if state.unlinked.is_none() {
            self.discarded.add(&self.path, error);
        }
    }

    /// Begins an empty upload, or does nothing if the object has that length.
    pub(crate) fn set_len(self: &Arc<Self>, writer: Writer<'_>, len: u64) -> Result<()> {
        let mut tail = self.lock()?;
        let mut state = self.state.lock();
        match state.unlinked {
            Some(Unlinked::Removed) => {
                state.end = len;
                return Ok(());
            }
            Some(Unlinked::Renamed) => {
                return Err(self.error(ErrorKind::Changed, "was renamed while it was open").into());
            }
            None if len == state.end && (len > 0 || state.is_pending) => return Ok(()),
            None => {}
        }
        let end = state.end;
        drop(state);
        if len > 0 {
            return Err(self.unsupported(&format!(
                "an object can be cut to no bytes, and neither cut nor extended otherwise, from {end} bytes to {len}"
            ))
            .into());
        }
        self.drain();
        self.object.set_len(0)?;
        tail.buffer = None;
        let mut state = self.state.lock();
        state.end = 0;
        state.is_pending = true;
        state.generation += 1;
        self.forget_time(&mut state);
        let generation = state.generation;
        if let Some(own) = state.handles.get_mut(&writer.handle) {
            *own = HandleState { generation, has_written: false, ..*own };
        }
        Ok(())
    }

    /// The error for operations that objects do not support.
    pub(crate) fn unsupported(&self, what: &str) -> StoreError {
        self.error(ErrorKind::Unsupported, what)
    }

    /// Unlinks the object by `act`, while no write or publication is running.
    pub(crate) fn unlink<T>(
        &self,
        how: Unlinked,
        act: impl FnOnce() -> bowwave_backend::Result<T>,
    ) -> bowwave_backend::Result<T> {
        let mut tail = self.tail.lock();
        let done = act()?;
        self.drain();
        self.object.abort();
        tail.buffer = None;
        let mut state = self.state.lock();
        state.unlinked = Some(how);
        state.is_pending = false;
        state.spare.clear();
        Ok(done)
    }

    /// Waits for a running publication.
    pub(crate) fn wait_for_publication(&self) {
        drop(self.tail.lock());
    }

    /// Locks writes, truncations and publications. If a part failed, the upload failed.
    fn lock(&self) -> Result<MutexGuard<'_, Tail>> {
        let mut tail = self.tail.lock();
        let failed = self.state.lock().part_error.clone();
        if let Some(error) = failed {
            self.fail(&mut tail, &error);
        }
        Ok(tail)
    }

    /// Retries an operation that may succeed later.
    fn with_retries<T>(
        &self,
        mut act: impl FnMut() -> bowwave_backend::Result<T>,
    ) -> bowwave_backend::Result<T> {
        let limits = self.queue.retry_limits(self.engine.retries(), true);
        let mut retry = Retry::new(limits, clock::precise());
        loop {
            let error = match act() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Some(due) = again_at(&self.engine, &mut retry, &error) else { return Err(error) };
            std::thread::sleep(clock::instant(due).saturating_duration_since(Instant::now()));
        }
    }

    fn error(&self, kind: ErrorKind, what: &str) -> StoreError {
        StoreError::new(kind, format!("{}: {what}", self.name))
    }

    fn closed_already(&self) -> StoreError {
        self.error(ErrorKind::ReadOnly, "is not open for writing any more")
    }
}

/// Longest wait for the bytes that an upload continues from; stores give up much earlier.
const PATIENCE: Duration = Duration::from_secs(600);
/// Buffers kept for reuse.
const SPARE_MAX: usize = 4;
