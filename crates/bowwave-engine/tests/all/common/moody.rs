//! A store whose writes fail on request.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bowwave_backend::{
    Allocate, Attributes, Backend, Error, ErrorKind, Identity, Object, OpenWrite, ReadBuf, ReadSink, Result,
    Write, WriteBuf, WriteObject, WriteSink,
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

/// A store over another, with failures.
#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) mood: Arc<Mood>,
}

impl Backend for Moody {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.inner.open(path)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }

    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }
}

impl Write for Moody {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let inner = self.inner.open_write(path, how)?;
        Ok(Arc::new(MoodyObject { inner, mood: Arc::clone(&self.mood) }))
    }
}

#[derive(Debug)]
struct MoodyObject {
    inner: Arc<dyn WriteObject>,
    mood: Arc<Mood>,
}

impl Object for MoodyObject {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.inner.read(offset, buf, sink);
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
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

impl WriteObject for MoodyObject {
    fn write(&self, offset: u64, mut buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.mood.asked.fetch_add(1, Ordering::Relaxed);
        let take = |left: &AtomicU32| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        if !take(&self.mood.spare)
            && let Err(error) = self.mood.fault(&self.mood.writes)
        {
            return sink.done(buf, Err(error));
        }
        if buf.len() > 1 && take(&self.mood.short) {
            let tail = buf.split_off(buf.len() / 2);
            return self.inner.write(offset, buf, Box::new(Joined { sink, tail }));
        }
        let most = self.mood.most.load(Ordering::Relaxed);
        if most > 0 && buf.len() > most {
            let tail = buf.split_off(most);
            return self.inner.write(offset, buf, Box::new(Joined { sink, tail }));
        }
        self.inner.write(offset, buf, sink);
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.mood.fault(&self.mood.syncs)?;
        self.inner.sync(data_only)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.inner.allocate(offset, len, how)
    }

    fn finish(&self) -> Result<Identity> {
        self.inner.finish()
    }
}
