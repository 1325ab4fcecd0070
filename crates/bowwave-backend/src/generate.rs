//! Reads of bytes that this process has or makes itself: copied in slices on the shared pool.

use std::fmt::Debug;
use std::sync::Arc;

use crate::pool::{self, Job};
use crate::{Error, Identity, Object, ReadBuf, ReadSink, Result};

/// Bytes at hand.
pub(crate) trait Source: Debug + Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Writes the bytes at `offset` of the source to `buf[at..at + len]`; they lie within the source and the buffer.
    fn fill(&self, offset: u64, buf: &mut ReadBuf, at: usize, len: usize);

    /// Fails if the bytes are no longer those of the object that was opened.
    fn check(&self) -> Result<()>;
}

/// An open object whose bytes are at hand.
#[derive(Debug)]
pub(crate) struct Made {
    identity: Identity,
    source: Arc<dyn Source>,
}

impl Made {
    pub(crate) fn new(identity: Identity, source: Arc<dyn Source>) -> Self {
        Self { identity, source }
    }
}

impl Object for Made {
    fn size(&self) -> u64 {
        self.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        read(&self.source, offset, buf, sink);
    }
}

/// Reads `buf.len()` bytes at `offset` of `source`: small reads at once, larger ones in slices on the pool.
pub(crate) fn read(source: &Arc<dyn Source>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
    let len = within(source.size(), offset, buf.len());
    let mut job = Box::new(Generate { source: Arc::clone(source), offset, buf, len, done: 0, sink });
    if len <= INLINE_BYTES_MAX {
        job.advance(len);
        job.finish();
    } else if let Some(pool) = pool::memory_pool() {
        pool.add(job);
    } else {
        job.advance(len);
        job.finish();
    }
}

/// How many of `len` bytes at `offset` lie before `size`.
pub(crate) fn within(size: u64, offset: u64, len: usize) -> usize {
    usize::try_from(size.saturating_sub(offset)).map_or(len, |rest| rest.min(len))
}

struct Generate {
    source: Arc<dyn Source>,
    offset: u64,
    buf: ReadBuf,
    len: usize,
    done: usize,
    sink: Box<dyn ReadSink>,
}

impl Generate {
    fn advance(&mut self, count: usize) {
        self.source.fill(self.offset + self.done as u64, &mut self.buf, self.done, count);
        self.done += count;
    }

    fn finish(self) {
        let result = self.source.check().map(|()| self.done);
        self.sink.done(self.buf, result);
    }
}

impl Job for Generate {
    fn step(mut self: Box<Self>) -> Option<Box<dyn Job>> {
        let count = (self.len - self.done).min(SLICE_BYTES);
        self.advance(count);
        if self.done == self.len {
            self.finish();
            return None;
        }
        // Bytes may be told only once it is certain that they are of the version that was opened.
        if let Err(error) = self.source.check() {
            self.refuse(error);
            return None;
        }
        self.sink.progress(self.done);
        Some(self)
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.sink.done(self.buf, Err(error));
    }
}

/// Largest read that the calling thread does itself: a few microseconds.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of one turn of a large read.
const SLICE_BYTES: usize = 256 << 10;
