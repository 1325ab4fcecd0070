//! Objects that are written as a whole: parts go to the store as they come, and nothing of them is seen before all is.
//!
//! ```text
//!   write (at the end only) ──► tail: the last part, not full yet
//!                                 └── full ──► Slots, Room (the writer waits) ──► WriteObject::write ── again, if need be
//!   fsync, close ──► tail, all parts are there ──► WriteObject::finish: seen      failed ──► abort: it stays as it was
//! ```
//!
//! All handles that write one object write one *draft* of the next version, as they would write one file. Opening with
//! `truncate` begins a new draft: who has written to the one before can write no more, and does not publish. A draft is
//! published by any fsync, and when the last of those who have written to it closes, so that a version that somebody else
//! is in the middle of is not.
//!
//! Of a draft that fails nothing is left, and each handle that was open then hears of it once, from fsync or close; who has
//! written to it hears of it from each write, too.

mod attributes;
mod discarded;
mod part;
mod room;

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
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) use discarded::Discarded;
pub(crate) use part::Part;
use room::Buffer;
pub(crate) use room::{Room, Slots};

/// An object of a store of whole objects, for as long as handles are open that write it.
#[derive(Debug)]
pub(crate) struct Whole {
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
    /// One write, cut or publication at a time.
    turn: Mutex<Tail>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The last part of the draft, if it is not full. It stays when the draft is published, for who goes on with it.
#[derive(Debug, Default)]
struct Tail {
    buffer: Option<Buffer>,
}

#[derive(Debug)]
struct State {
    /// Bytes of the draft if there is one, else of what is published.
    end: u64,
    /// There is a draft, to be published.
    is_draft: bool,
    /// Something is seen under the name.
    is_published: bool,
    published_bytes: u64,
    /// Drafts begun so far from nothing, or after one that failed.
    draft: u64,
    in_flight: u32,
    /// Memory to be used again.
    spare: Vec<Buffer>,
    /// Parts that fail are not tried again.
    is_given_up: bool,
    /// What a part of this draft has failed with.
    part_error: Option<StoreError>,
    /// Drafts that failed so far; which was the last, and why.
    failures: u64,
    last_failure: Option<(u64, StoreError)>,
    /// It has lost its name: what is written goes nowhere.
    gone: Option<Gone>,
    handles: HashMap<HandleId, Mine>,
    /// Those of the version that is published next.
    attributes: SetAttributes,
    written_at: Option<SystemTime>,
}

/// What is known of a handle.
#[derive(Debug, Clone, Copy)]
struct Mine {
    /// The draft that it writes.
    draft: u64,
    /// It has written to it, and neither fsync nor close has been since.
    has_written: bool,
    /// Failures before it was opened, or that it was told of.
    heard: u64,
    is_open: bool,
}

/// How an object can lose its name while it is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Removed or replaced: as in file systems, who writes it may go on, and nobody sees it.
    Removed,
    /// It has another, and nothing can be written to it there.
    Renamed,
}

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) entry: &'a FileEntry,
    pub(crate) handle: HandleId,
    /// At the end, wherever it asks for.
    pub(crate) appends: bool,
}

impl Whole {
    /// An object that was just opened; not published if its identity says nothing.
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
            is_draft: !is_published,
            is_published,
            published_bytes: bytes,
            draft: 0,
            in_flight: 0,
            spare: Vec::new(),
            is_given_up: false,
            part_error: None,
            failures: 0,
            last_failure: None,
            gone: None,
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
            turn: Mutex::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Where it is to be seen.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes as far as it is written, or published.
    pub(crate) fn size(&self) -> u64 {
        self.state().end
    }

    /// Whether something is to be published.
    pub(crate) fn is_draft(&self) -> bool {
        let state = self.state();
        state.is_draft && state.gone.is_none()
    }

    /// Whether nobody sees anything under its name yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.state().is_published
    }

    /// Whether its name is gone, or another object's.
    pub(crate) fn is_nameless(&self) -> bool {
        self.state().gone.is_some()
    }

    /// Fails while there is a draft: of that nothing can be read.
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.state().is_draft {
            return Ok(());
        }
        let what = "what is being written to an object can be read when it is closed or synced";
        Err(self.unsupported(what).into())
    }

    /// Counts a handle more.
    pub(crate) fn opened(&self, handle: HandleId) {
        let mut state = self.state();
        let mine = Mine { draft: state.draft, has_written: false, heard: state.failures, is_open: true };
        state.handles.insert(handle, mine);
    }

    /// Counts a handle less, and says how many are left.
    pub(crate) fn closed(&self, handle: HandleId) -> usize {
        let mut state = self.state();
        state.handles.remove(&handle);
        state.handles.len()
    }

    /// Writes at the end; returns where that was, and how many bytes it took: all of them, unless an error came half-way.
    pub(crate) fn write(
        self: &Arc<Self>,
        who: Writer<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(u64, usize)> {
        let mut turn = self.turn()?;
        let offset = self.admit(who, offset, bytes.len())?;
        if self.state().gone == Some(Gone::Removed) {
            self.state().end = offset + bytes.len() as u64;
            return Ok((offset, bytes.len()));
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.fill(&mut turn, offset + done as u64, &bytes[done..]) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((offset, done))
    }

    /// Whether a write may be, and where.
    fn admit(&self, who: Writer<'_>, offset: u64, len: usize) -> Result<u64> {
        let mut state = self.state();
        let (draft, end) = (state.draft, state.end);
        if state.gone == Some(Gone::Renamed) {
            return Err(self
                .error(ErrorKind::Changed, "was renamed while it was open; open it again")
                .into());
        }
        let failure = state.last_failure.clone();
        let mine = state.handles.get_mut(&who.handle).filter(|mine| mine.is_open);
        let mine = mine.ok_or_else(|| self.closed_already())?;
        if mine.has_written && mine.draft != draft {
            // What this handle has written is lost, and what it writes now would be without that.
            match failure {
                Some((failed, error)) if failed == mine.draft => return Err(error.into()),
                _ if who.appends => {}
                _ => {
                    let what = "was begun anew by another program while this one wrote it";
                    return Err(self.error(ErrorKind::Changed, what).into());
                }
            }
        }
        let offset = if who.appends { end } else { offset };
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
            *mine = Mine { draft, has_written: true, ..*mine };
            self.forget_time(&mut state);
        }
        Ok(offset)
    }

    /// Adds what the last part has room for, and sends it when it is full. Returns how many bytes that were.
    fn fill(self: &Arc<Self>, turn: &mut Tail, at: u64, bytes: &[u8]) -> Result<usize> {
        let have = usize::try_from(at % self.part as u64).expect("smaller than a part");
        let mut buffer = match turn.buffer.take() {
            Some(buffer) => buffer,
            None => {
                let spare = self.state().spare.pop();
                let mut buffer = spare.map_or_else(|| Buffer::new(&self.engine, self.part), Ok)?;
                if have > 0 {
                    // What is published ends within a part, which is written again.
                    buffer.extend(&self.published(at - have as u64, have)?, self.part)?;
                }
                buffer
            }
        };
        debug_assert_eq!(buffer.len(), have, "the buffer holds what is behind the last full part");
        let count = bytes.len().min(self.part - have);
        if let Err(error) = buffer.extend(&bytes[..count], self.part) {
            // What was there is still.
            turn.buffer = Some(buffer);
            return Err(error.into());
        }
        let mut state = self.state();
        state.end = at + count as u64;
        state.is_draft = true;
        drop(state);
        if buffer.len() == self.part {
            self.send(at - have as u64, buffer.share(), Some(buffer));
        } else {
            turn.buffer = Some(buffer);
        }
        Ok(count)
    }

    /// Sends a part when it is its turn; waits for that.
    fn send(self: &Arc<Self>, offset: u64, bytes: Arc<PartMemory>, buffer: Option<Buffer>) {
        let slot = self.slots.take();
        let mut buffer = buffer;
        if let Some(buffer) = &mut buffer {
            buffer.leave();
        }
        self.state().in_flight += 1;
        Part::new(self, offset, bytes, buffer, slot).send();
    }

    /// Bytes of the published version.
    fn published(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (at, left) = (offset + bytes.len() as u64, len - bytes.len());
            let more = self.persist(|| {
                let more = read_once(&*self.object, at, left, PATIENCE)?;
                let ended = || StoreError::new(ErrorKind::Truncated, format!("{}: ended at {at}", self.name));
                if more.is_empty() { Err(ended()) } else { Ok(more) }
            })?;
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Whether parts on their way are still good for something.
    fn is_wanted(&self) -> bool {
        let state = self.state();
        state.part_error.is_none() && !state.is_given_up
    }

    /// A part is with the store, or never will be.
    fn part_ended(&self, error: Option<StoreError>, buffer: Option<Buffer>) {
        let kept = if error.is_none() { buffer.and_then(Buffer::reuse) } else { None };
        let mut state = self.state();
        state.in_flight -= 1;
        let keep = state.spare.len() < SPARE_MAX && state.is_draft;
        let unused = kept.and_then(|buffer| {
            if keep {
                state.spare.push(buffer);
                None
            } else {
                Some(buffer)
            }
        });
        if state.part_error.is_none() {
            state.part_error = error;
        }
        drop(state);
        drop(unused);
        self.changed.notify_all();
    }

    /// Publishes what this handle has written, unless others have written, too, and are not done; tells what went wrong
    /// since it was told last.
    pub(crate) fn flush(self: &Arc<Self>, who: Writer<'_>) -> Result<()> {
        let mut turn = self.turn()?;
        if self.is_done_writing(who.handle)
            && let Err(error) = self.publish(&mut turn, who.entry)
        {
            self.fail(&mut turn, &error);
        }
        self.tell(who.handle)
    }

    /// As [`flush`](Self::flush), and publishes a draft that nobody has written to, too.
    pub(crate) fn flush_untouched(self: &Arc<Self>, who: Writer<'_>) -> Result<()> {
        let mut turn = self.turn()?;
        let is_done = self.is_done_writing(who.handle);
        if (is_done || self.is_untouched())
            && let Err(error) = self.publish(&mut turn, who.entry)
        {
            self.fail(&mut turn, &error);
        }
        self.tell(who.handle)
    }

    /// Whether nobody has written to this draft and is not done.
    fn is_untouched(&self) -> bool {
        let state = self.state();
        !state.handles.values().any(|mine| mine.has_written && mine.draft == state.draft)
    }

    /// Publishes what all have written.
    pub(crate) fn sync(self: &Arc<Self>, who: Writer<'_>) -> Result<()> {
        let mut turn = self.turn()?;
        self.tell(who.handle)?;
        match self.publish(&mut turn, who.entry) {
            // Worth trying again: what was written is still there.
            Err(error) if error.is_retryable() && self.state().part_error.is_none() => Err(error.into()),
            Err(error) => {
                self.fail(&mut turn, &error);
                self.tell(who.handle)
            }
            Ok(()) => Ok(()),
        }
    }

    /// The handle writes no more: as [`flush`](Self::flush), and publishes what nobody has written to, if it was the last.
    /// Does nothing the second time.
    pub(crate) fn end(self: &Arc<Self>, who: Writer<'_>) -> Result<()> {
        let mut turn = self.turn()?;
        let was_last = self.is_done_writing(who.handle);
        let mut state = self.state();
        let Some(mine) = state.handles.get_mut(&who.handle).filter(|mine| mine.is_open) else {
            return Ok(());
        };
        mine.is_open = false;
        let none_left = state.handles.values().all(|mine| !mine.is_open);
        drop(state);
        if (was_last || none_left)
            && let Err(error) = self.publish(&mut turn, who.entry)
        {
            self.fail(&mut turn, &error);
        }
        if none_left {
            turn.buffer = None;
            self.state().spare.clear();
        }
        self.tell(who.handle)
    }

    /// The handle writes no more, and what it has written is not to be published.
    pub(crate) fn abandon(self: &Arc<Self>, handle: HandleId) {
        let mut turn = self.lock_turn();
        let mut state = self.state();
        let draft = state.draft;
        let Some(mine) = state.handles.get_mut(&handle).filter(|mine| mine.is_open) else { return };
        mine.is_open = false;
        let has_written = mine.has_written && mine.draft == draft;
        let none_left = state.handles.values().all(|mine| !mine.is_open);
        let is_lost = state.is_draft && state.gone.is_none() && (has_written || none_left);
        drop(state);
        if is_lost {
            self.fail(&mut turn, &self.error(ErrorKind::Io, "was given up before it was closed"));
            if !has_written {
                self.discarded.forget(&self.path);
            }
        }
    }

    /// Takes note that a handle is done writing; tells whether it had written to this draft, and no other is at it.
    fn is_done_writing(&self, handle: HandleId) -> bool {
        let mut state = self.state();
        let draft = state.draft;
        let Some(mine) = state.handles.get_mut(&handle) else { return false };
        let had_written = mine.has_written && mine.draft == draft;
        mine.has_written = false;
        had_written && !state.handles.values().any(|mine| mine.has_written && mine.draft == draft)
    }

    /// What went wrong since the handle was told last.
    fn tell(&self, handle: HandleId) -> Result<()> {
        let mut state = self.state();
        let (failures, last) = (state.failures, state.last_failure.clone());
        let Some(mine) = state.handles.get_mut(&handle) else { return Ok(()) };
        let news = mine.heard < failures;
        mine.heard = failures;
        match last {
            Some((_, error)) if news => {
                // Having been told, it may begin again.
                mine.has_written = false;
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Publishes the draft, if there is one.
    fn publish(self: &Arc<Self>, turn: &mut Tail, entry: &FileEntry) -> bowwave_backend::Result<()> {
        if !self.is_draft() {
            return Ok(());
        }
        let end = self.size();
        if let Some(tail) = turn.buffer.as_ref().filter(|tail| tail.len() > 0) {
            self.send(end - tail.len() as u64, tail.share(), None);
        }
        if let Some(error) = self.wait_for_parts() {
            return Err(error);
        }
        let identity = self.persist(|| self.object.finish())?;
        let mut state = self.state();
        state.is_draft = false;
        state.is_published = true;
        state.published_bytes = end;
        // The next version has a time of its own.
        state.attributes.modified = None;
        self.object.set_next_attributes(&state.attributes).ok();
        drop(std::mem::take(&mut state.spare));
        state.handles.values_mut().for_each(|mine| mine.has_written = false);
        drop(state);
        self.discarded.forget(&self.path);
        self.show(entry, identity);
        Ok(())
    }

    /// Waits for the end of all parts on their way, which nobody wants any more.
    fn drain(&self) {
        self.state().is_given_up = true;
        self.wait_for_parts();
        let mut state = self.state();
        state.is_given_up = false;
        state.part_error = None;
    }

    /// Waits for the end of all parts on their way; gives the error of one that failed.
    fn wait_for_parts(&self) -> Option<StoreError> {
        let mut state = self.state();
        while state.in_flight > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.part_error.clone()
    }

    /// Who reads through these handles reads the new version.
    fn show(&self, entry: &FileEntry, identity: Identity) {
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

    /// The draft is lost, and the object stays as it was.
    fn fail(&self, turn: &mut Tail, error: &StoreError) {
        self.drain();
        self.object.abort();
        turn.buffer = None;
        let mut state = self.state();
        state.is_draft = false;
        state.end = state.published_bytes;
        state.failures += 1;
        state.last_failure = Some((state.draft, error.clone()));
        state.draft += 1;
        drop(std::mem::take(&mut state.spare));
        if state.gone.is_none() {
            self.discarded.add(&self.path, error);
        }
    }

    /// Begins a draft of no bytes, or leaves the object as it is if it has that length.
    pub(crate) fn set_len(self: &Arc<Self>, who: Writer<'_>, len: u64) -> Result<()> {
        let mut turn = self.turn()?;
        let mut state = self.state();
        match state.gone {
            Some(Gone::Removed) => {
                state.end = len;
                return Ok(());
            }
            Some(Gone::Renamed) => {
                return Err(self.error(ErrorKind::Changed, "was renamed while it was open").into());
            }
            None if len == state.end && (len > 0 || state.is_draft) => return Ok(()),
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
        turn.buffer = None;
        let mut state = self.state();
        state.end = 0;
        state.is_draft = true;
        state.draft += 1;
        self.forget_time(&mut state);
        let draft = state.draft;
        if let Some(mine) = state.handles.get_mut(&who.handle) {
            *mine = Mine { draft, has_written: false, ..*mine };
        }
        Ok(())
    }

    /// What cannot be done with objects.
    pub(crate) fn unsupported(&self, what: &str) -> StoreError {
        self.error(ErrorKind::Unsupported, what)
    }

    /// Does what takes the name away, while nobody writes or publishes.
    pub(crate) fn lose_name<T>(
        &self,
        how: Gone,
        act: impl FnOnce() -> bowwave_backend::Result<T>,
    ) -> bowwave_backend::Result<T> {
        let mut turn = self.lock_turn();
        let done = act()?;
        self.drain();
        self.object.abort();
        turn.buffer = None;
        let mut state = self.state();
        state.gone = Some(how);
        state.is_draft = false;
        drop(std::mem::take(&mut state.spare));
        Ok(done)
    }

    /// Waits until nobody publishes it.
    pub(crate) fn settle(&self) {
        drop(self.lock_turn());
    }

    /// Nobody else writes, cuts or publishes until the end of the turn. If a part has failed, so has the draft.
    fn turn(&self) -> Result<MutexGuard<'_, Tail>> {
        let mut turn = self.lock_turn();
        let failed = self.state().part_error.clone();
        if let Some(error) = failed {
            self.fail(&mut turn, &error);
        }
        Ok(turn)
    }

    fn lock_turn(&self) -> MutexGuard<'_, Tail> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries again what may go better the next time.
    fn persist<T>(&self, mut act: impl FnMut() -> bowwave_backend::Result<T>) -> bowwave_backend::Result<T> {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest wait for the bytes that a draft goes on from; stores give up long before.
const PATIENCE: Duration = Duration::from_secs(600);
/// Buffers of parts kept for the next ones.
const SPARE_MAX: usize = 4;
