//! A layer over a store, whose writes fail on request.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bowwave_backend::{
    Error, ErrorKind, Layer, Result, WrappedWriteObject, WriteBuf, WriteObject, WriteSink,
};

/// Current failures.
#[derive(Debug, Default)]
pub(crate) struct Mood {
    /// Error kind of each write.
    pub(crate) writes: Mutex<Option<ErrorKind>>,
    /// Writes that still succeed before that.
    pub(crate) spare: AtomicU32,
    /// Error kind of each flush.
    pub(crate) syncs: Mutex<Option<ErrorKind>>,
    /// This many next writes write half of their bytes.
    pub(crate) short: AtomicU32,
    /// Most bytes that a write transfers; 0 for no limit.
    pub(crate) most: AtomicUsize,
    /// Writes requested.
    pub(crate) asked: AtomicU64,
}

impl Mood {
    /// Sets whether writes fail from now on.
    pub(crate) fn fail_writes(&self, kind: Option<ErrorKind>) {
        *self.writes.lock().expect("no panic") = kind;
    }

    /// Sets whether flushes fail from now on.
    pub(crate) fn fail_syncs(&self, kind: Option<ErrorKind>) {
        *self.syncs.lock().expect("no panic") = kind;
    }

    fn fault(&self, of: &Mutex<Option<ErrorKind>>) -> Result<()> {
        match *of.lock().expect("no panic") {
            Some(kind) => Err(Error::new(kind, format!("told to fail as {kind:?}")).retryable(false)),
            None => Ok(()),
        }
    }
}

/// Rejoins the buffer of a short write.
struct Joined {
    sink: Box<dyn WriteSink>,
    tail: WriteBuf,
}

impl WriteSink for Joined {
    fn done(self: Box<Self>, mut buf: WriteBuf, result: Result<usize>) {
        buf.unsplit(self.tail);
        self.sink.done(buf, result);
    }
}

impl Layer for Mood {
    fn write(
        &self,
        object: &WrappedWriteObject<Self>,
        offset: u64,
        mut buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    ) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let take = |left: &AtomicU32| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        if !take(&self.spare)
            && let Err(error) = self.fault(&self.writes)
        {
            return sink.done(buf, Err(error));
        }
        if buf.len() > 1 && take(&self.short) {
            let tail = buf.split_off(buf.len() / 2);
            return object.inner.write(offset, buf, Box::new(Joined { sink, tail }));
        }
        let most = self.most.load(Ordering::Relaxed);
        if most > 0 && buf.len() > most {
            let tail = buf.split_off(most);
            return object.inner.write(offset, buf, Box::new(Joined { sink, tail }));
        }
        object.inner.write(offset, buf, sink);
    }

    fn sync(&self, inner: &dyn WriteObject, data_only: bool) -> Result<()> {
        self.fault(&self.syncs)?;
        inner.sync(data_only)
    }
}
