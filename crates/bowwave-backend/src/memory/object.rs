//! Open files in memory.

use std::sync::Arc;

use super::tree::{Inode, os_error};
use crate::generate::{self, Source};
use crate::pool::{self, Job};
use crate::{
    Allocate, Attributes, Error, Identity, Object, ReadBuf, ReadSink, Result, Seek, WriteBuf, WriteObject,
    WriteSink, path,
};

/// An open file.
#[derive(Debug)]
pub(super) struct MemoryObject {
    identity: Identity,
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    inode: Arc<Inode>,
    /// For messages.
    place: String,
    /// The version that was opened; `None` if it is open for writing, and any version is valid.
    version: Option<u64>,
}

impl MemoryObject {
    pub(super) fn new(inode: Arc<Inode>, place: String, writable: bool) -> Self {
        let identity = inode.identity();
        let version = inode.read_file().map(|file| file.version).filter(|_| !writable);
        Self { identity, held: Arc::new(Held { inode, place, version }) }
    }

    fn error(&self, errno: i32) -> Error {
        os_error(self.held.place.as_ref(), errno)
    }
}

impl Source for Held {
    fn size(&self) -> u64 {
        self.inode.read_file().map_or(0, |file| file.bytes.size())
    }

    fn fill(&self, offset: u64, buf: &mut ReadBuf, at: usize, len: usize) {
        let Some(file) = self.inode.read_file() else { return };
        buf.fill_with(at..at + len, |position, bytes| {
            file.bytes.read(offset + (position - at) as u64, bytes)
        });
    }

    fn check(&self) -> Result<()> {
        let now = self.inode.read_file().map(|file| file.version);
        if self.version.is_none() || self.version == now { Ok(()) } else { Err(path::changed(&self.place)) }
    }
}

impl Object for MemoryObject {
    fn size(&self) -> u64 {
        self.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        generate::read(&(Arc::clone(&self.held) as Arc<dyn Source>), offset, buf, sink);
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let found = self.held.inode.read_file().and_then(|file| file.bytes.seek(offset, what == Seek::Data));
        found.ok_or_else(|| self.error(libc::ENXIO))
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        Some(Ok(Arc::new(Self::new(Arc::clone(&self.held.inode), self.held.place.clone(), false))))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        Some(&*self.held.inode)
    }
}

impl WriteObject for MemoryObject {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let job = Box::new(Write { held: Arc::clone(&self.held), offset, buf, sink });
        match pool::memory_pool() {
            Some(pool) if job.buf.len() > INLINE_BYTES_MAX => pool.add(job),
            _ => drop(job.step()),
        }
    }

    fn sync(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if i64::try_from(len).is_err() {
            return Err(self.error(libc::EFBIG));
        }
        if let Some(mut file) = self.held.inode.change_file() {
            file.bytes.set_len(len);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| self.error(libc::EFBIG))?;
        if len == 0 {
            return Err(self.error(libc::EINVAL));
        }
        let Some(mut file) = self.held.inode.change_file() else { return Ok(()) };
        let grows = match how {
            // Space cannot be reserved.
            Allocate::Reserve { keep_size } => !keep_size,
            Allocate::Punch => {
                file.bytes.punch(offset..end);
                false
            }
            Allocate::Zero { keep_size } => {
                file.bytes.punch(offset..end);
                !keep_size
            }
            Allocate::Collapse | Allocate::Insert => return Err(self.error(libc::EOPNOTSUPP)),
        };
        if grows && end > file.bytes.size() {
            file.bytes.set_len(end);
        }
        Ok(())
    }

    fn finish(&self) -> Result<Identity> {
        Ok(self.held.inode.identity())
    }
}

/// A write in flight.
struct Write {
    held: Arc<Held>,
    offset: u64,
    buf: WriteBuf,
    sink: Box<dyn WriteSink>,
}

impl Job for Write {
    fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
        let Self { held, offset, buf, sink } = *self;
        let end = offset.checked_add(buf.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() && !buf.is_empty() {
            let error = os_error(held.place.as_ref(), libc::EFBIG);
            sink.done(buf, Err(error));
            return None;
        }
        if !buf.is_empty()
            && let Some(mut file) = held.inode.change_file()
        {
            let mut at = offset;
            for slice in buf.slices() {
                file.bytes.write(at, slice);
                at += slice.len() as u64;
            }
        }
        let count = buf.len();
        sink.done(buf, Ok(count));
        None
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.sink.done(self.buf, Err(error));
    }
}

/// Largest write that the calling thread does itself: a few microseconds.
const INLINE_BYTES_MAX: usize = 64 << 10;
