//! An object upload: the next version of an object.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::super::Slow;
use super::{UPLOADS, bytes_of, target_of};
use crate::sync::{Condvar, Mutex};
use crate::wrap::Layer as _;
use crate::{
    Error, ErrorKind, Namespace as _, Object, OpenWrite, Rename, Result, Write as _, WriteBuf, WriteObject,
    WriteSink, path, read_exact, write_exact, write_once,
};

/// An object upload with its parts.
#[derive(Debug)]
pub(super) struct Draft {
    slow: Arc<Slow>,
    part: u64,
    path: Arc<Path>,
    id: String,
    /// The version that this one continues.
    base: Option<Arc<dyn Object>>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The file of the upload, from the first part on.
    upload: Option<Arc<dyn WriteObject>>,
    parts: BTreeMap<u64, Part>,
    /// All written bytes, while they are one short part.
    short: Option<Vec<u8>>,
    /// End of the written bytes.
    end: u64,
    in_flight: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// In flight, or failed: its contents are unknown.
    Unknown,
    /// Written, with this many bytes.
    Written(u64),
}

impl Draft {
    pub(super) fn new(slow: &Arc<Slow>, path: &Arc<Path>, part: u64, base: Option<Arc<dyn Object>>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self {
            slow: Arc::clone(slow),
            part,
            path: Arc::clone(path),
            id: format!("{:x}-{process:x}-{count:x}", now.as_nanos()),
            base,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Size of this version so far, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.state.lock().end.max(self.base_size())
    }

    /// Writes a part and tells `sink`.
    pub(super) fn write(self: &Arc<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        match self.admit(offset, &buf) {
            Err(error) => sink.done(buf, Err(error)),
            Ok(None) => {
                let len = buf.len();
                sink.done(buf, Ok(len));
            }
            Ok(Some(upload)) => {
                let upload = self.slow.write_object(&bytes_of(&self.id), upload);
                let draft = Arc::clone(self);
                upload.write(offset, buf, Box::new(PartSink { draft, index: offset / self.part, sink }));
            }
        }
    }

    /// Admits a write. Returns the file for it; `None` if the bytes are kept here as a short
    /// object.
    fn admit(&self, offset: u64, buf: &WriteBuf) -> Result<Option<Arc<dyn WriteObject>>> {
        let (len, name) = (buf.len() as u64, || path::place(crate::Backend::url(&*self.slow), &self.path));
        if !offset.is_multiple_of(self.part) || len > self.part {
            let message = format!(
                "{}: cannot write {len} bytes at {offset}: write at multiples of {part}, at most {part} bytes",
                name(),
                part = self.part
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let end = offset
            .checked_add(len)
            .ok_or_else(|| Error::new(ErrorKind::TooLarge, format!("{}: no object is so large", name())))?;
        let mut state = self.state.lock();
        if len < self.part && end < state.end.max(self.base_size()) {
            let message = format!("{}: a part is short, and not the last", name());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let alone = offset == 0 && len < self.part && state.parts.is_empty();
        if offset == 0 {
            state.short = alone.then(|| buf.to_vec());
        }
        state.end = state.end.max(end);
        if alone {
            return Ok(None);
        }
        state.parts.insert(offset / self.part, Part::Unknown);
        if state.upload.is_none() {
            state.upload = Some(self.begin()?);
        }
        state.in_flight += 1;
        Ok(state.upload.clone())
    }

    /// Creates the hidden files of the upload.
    fn begin(&self) -> Result<Arc<dyn WriteObject>> {
        let inner = &self.slow.inner;
        match inner.create_directory(UPLOADS.as_ref(), 0o700, None) {
            Err(error) if error.kind() != ErrorKind::Exists => return Err(error),
            _ => {}
        }
        match inner.symlink(&self.path, &target_of(&self.id), None) {
            // From an attempt that failed after this step.
            Err(error) if error.kind() != ErrorKind::Exists => return Err(error),
            _ => {}
        }
        let how = OpenWrite { create: true, truncate: true, mode: 0o644, ..OpenWrite::default() };
        inner.open_write(&bytes_of(&self.id), &how)
    }

    /// Publishes this version in place of another one, or only in place of none if `exclusive`. May
    /// be retried.
    pub(super) fn publish(&self, exclusive: bool) -> Result<()> {
        let mut state = self.state.lock();
        while state.in_flight > 0 {
            state = self.ended.wait(state);
        }
        let size = state.end.max(self.base_size());
        if state.parts.is_empty() {
            self.put(&mut state, size)?;
        } else {
            self.complete(&mut state, size)?;
        }
        drop(state);
        self.rename(exclusive)
    }

    /// Writes an object of less than a part with one request.
    fn put(&self, state: &mut State, size: u64) -> Result<()> {
        let upload = match &state.upload {
            Some(upload) => Arc::clone(upload),
            None => Arc::clone(state.upload.insert(self.begin()?)),
        };
        if size > 0 && state.short.is_none() {
            let message = format!("{}: nothing was written, and nothing is to be", self.path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let bytes = state.short.as_deref().unwrap_or_default();
        let upload = self.slow.write_object(&bytes_of(&self.id), upload);
        let written = write_once(&upload, 0, bytes, PATIENCE)?;
        write_exact(&upload, written as u64, &bytes[written..], PATIENCE)
    }

    /// Copies unwritten parts from the earlier version, and checks that all parts are written.
    fn complete(&self, state: &mut State, size: u64) -> Result<()> {
        let upload = match &state.upload {
            Some(upload) => Arc::clone(upload),
            None => Arc::clone(state.upload.insert(self.begin()?)),
        };
        for index in 0..size.div_ceil(self.part) {
            let range = index * self.part..size.min((index + 1) * self.part);
            match state.parts.get(&index) {
                Some(Part::Written(len)) if *len == range.end - range.start => {}
                None if range.end <= self.base_size() => self.bring_in(&*upload, range)?,
                _ => {
                    let message = format!(
                        "{}: the part at {} is missing or not whole; write it again",
                        self.path.display(),
                        range.start
                    );
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
            }
        }
        upload.set_len(size)?;
        self.slow.layer.before_metadata();
        Ok(())
    }

    /// Copies a range of the earlier version. A server does it by itself: the device takes no time.
    fn bring_in(&self, upload: &dyn WriteObject, range: Range<u64>) -> Result<()> {
        let Some(base) = &self.base else { return Ok(()) };
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let bytes = read_exact(&**base, range.start, len, PATIENCE)?;
        write_exact(upload, range.start, &bytes, PATIENCE)
    }

    fn rename(&self, exclusive: bool) -> Result<()> {
        let inner = &self.slow.inner;
        // Keys of objects need no directories.
        let above: Vec<_> =
            self.path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for directory in above.into_iter().rev() {
            match inner.create_directory(directory, 0o755, None) {
                Err(error) if error.kind() != ErrorKind::Exists => return Err(error),
                _ => {}
            }
        }
        let how = if exclusive { Rename::NoReplace } else { Rename::Replace };
        inner.rename(&bytes_of(&self.id), &self.path, how)?;
        // Otherwise the link would be listed as an upload.
        inner.remove_file(&target_of(&self.id)).ok();
        Ok(())
    }

    /// Removes the upload. It stays as a stray upload if that fails.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        if state.upload.take().is_some() {
            let inner = &self.slow.inner;
            if inner.remove_file(&bytes_of(&self.id)).is_ok() {
                inner.remove_file(&target_of(&self.id)).ok();
            }
        }
        *state = State { in_flight: state.in_flight, ..State::default() };
    }

    fn base_size(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.size())
    }
}

/// Records the end of a part.
struct PartSink {
    draft: Arc<Draft>,
    index: u64,
    sink: Box<dyn WriteSink>,
}

impl WriteSink for PartSink {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        let Self { draft, index, sink } = *self;
        let mut state = draft.state.lock();
        state.in_flight -= 1;
        if let Ok(count) = result
            && count == buf.len()
        {
            state.parts.insert(index, Part::Written(count as u64));
        }
        drop(state);
        draft.ended.notify_all();
        // A short part is an error: the caller writes all of it again.
        let result = result.and_then(|count| {
            let short = || Error::new(ErrorKind::Truncated, format!("{count} of {} bytes taken", buf.len()));
            if count == buf.len() { Ok(count) } else { Err(short()) }
        });
        sink.done(buf, result);
    }
}

/// Longest wait for one part; emulated devices are far quicker.
const PATIENCE: Duration = Duration::from_secs(600);
