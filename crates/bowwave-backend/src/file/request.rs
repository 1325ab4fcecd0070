//! Reads and writes in flight, carried out part by part, by either carrier.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::open::{ALIGNMENT, OpenFile};
use super::root::os_error;
use crate::pool::Job;
use crate::{Error, ReadBuf, ReadSink, Result, WriteBuf, WriteSink, generate};

/// A read or a write, and its progress.
pub(super) struct Request {
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    /// Most bytes to transfer; fewer if the file ends.
    len: usize,
    pub(super) done: usize,
    /// Bytes at the beginning of a write that bypass the kernel's cache.
    direct: usize,
    pub(super) work: Work,
}

/// The memory and the sink.
pub(super) enum Work {
    Read { buf: ReadBuf, sink: Box<dyn ReadSink> },
    Write { buf: WriteBuf, sink: Box<dyn WriteSink> },
}

/// What remains of a request after a part.
pub(super) enum After {
    More(Request),
    Ended,
}

impl Request {
    pub(super) fn read(file: Arc<OpenFile>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) -> Self {
        // The end of a file that is being written is where the kernel says.
        let len =
            if file.writable { buf.len() } else { generate::within(file.identity.size, offset, buf.len()) };
        Self { file, offset, len, done: 0, direct: 0, work: Work::Read { buf, sink } }
    }

    pub(super) fn write(file: Arc<OpenFile>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) -> Self {
        let direct = direct_bytes(&file, offset, &buf);
        Self { file, offset, len: buf.len(), done: 0, direct, work: Work::Write { buf, sink } }
    }

    /// Whether the request ends without a system call, because nothing is to be done, or nothing
    /// can be.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 || self.is_past_all()
    }

    pub(super) fn end_empty(self) {
        let result = if self.len > 0 && matches!(self.work, Work::Write { .. }) {
            Err(os_error(&self.file.place, Errno::FBIG))
        } else {
            self.file.check().map(|()| 0)
        };
        self.end(result);
    }

    /// Whether the offset is past every file, and out of range for system calls.
    fn is_past_all(&self) -> bool {
        i64::try_from(self.position()).is_err()
    }

    /// Where the next part begins in the file.
    pub(super) fn position(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// The bytes of the buffer for the next system call. A read may extend past the end of the
    /// file, because direct reads are of whole blocks.
    pub(super) fn part(&self) -> Range<usize> {
        let end = match &self.work {
            Work::Read { buf, .. } => buf.len(),
            Work::Write { .. } if self.done < self.direct => self.direct,
            Work::Write { buf, .. } => buf.len(),
        };
        self.done..end.min(self.done + PART_BYTES)
    }

    /// The memory segments of [`Self::part`].
    #[cfg(feature = "io-uring")]
    pub(super) fn vectors(&self) -> Vec<libc::iovec> {
        match &self.work {
            Work::Read { buf, .. } => buf.vectors(self.part()),
            Work::Write { buf, .. } => buf.vectors(self.part()),
        }
    }

    /// The descriptor for the next part, and whether it is the direct one.
    pub(super) fn descriptor(&self) -> (&std::fs::File, bool) {
        match &self.work {
            Work::Read { buf, .. } => self.file.descriptor(self.position(), buf.is_aligned(ALIGNMENT)),
            Work::Write { .. } => self.file.descriptor(self.position(), self.done < self.direct),
        }
    }

    /// Carries out all parts on this thread.
    pub(super) fn run(mut self) {
        if self.is_empty() {
            return self.end_empty();
        }
        loop {
            let (result, direct) = self.carry_out();
            match self.advance(result, direct) {
                After::More(rest) => self = rest,
                After::Ended => return,
            }
        }
    }

    /// Carries out the next part with one system call; returns whether it was direct.
    pub(super) fn carry_out(&mut self) -> (io::Result<usize>, bool) {
        let (part, position, file) = (self.part(), self.position(), Arc::clone(&self.file));
        let direct = self.descriptor().1;
        let descriptor = if direct { file.direct.as_ref().unwrap_or(&file.buffered) } else { &file.buffered };
        let result = match &mut self.work {
            Work::Read { buf, .. } => buf.read_from(descriptor, position, part),
            Work::Write { buf, .. } => buf.write_to(descriptor, position, part),
        };
        (result, direct)
    }

    /// Handles the result of transferring [`Self::part`], `direct` or not.
    pub(super) fn advance(mut self, result: io::Result<usize>, direct: bool) -> After {
        match result {
            Ok(count) => {
                self.done = (self.done + count).min(self.len);
                if let Err(error) = self.file.check() {
                    return self.end(Err(error));
                }
                if count == 0 || self.done == self.len {
                    // Zero before the end: the file is being written and ends here, or it is a
                    // short read.
                    let done = self.done;
                    return self.end(Ok(done));
                }
                if let Work::Read { sink, .. } = &mut self.work {
                    sink.progress(self.done);
                }
                After::More(self)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => After::More(self),
            // Some file systems accept O_DIRECT and then reject the I/O.
            Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => {
                self.file.direct_refused.store(true, Ordering::Relaxed);
                After::More(self)
            }
            Err(error) => {
                let error = Error::from_os(self.file.place.display(), &error);
                self.end(Err(error))
            }
        }
    }

    pub(super) fn end(self, result: Result<usize>) -> After {
        match self.work {
            Work::Read { buf, sink } => sink.done(buf, result),
            Work::Write { buf, sink } => sink.done(buf, result),
        }
        After::Ended
    }
}

impl Job for Request {
    fn step(mut self: Box<Self>) -> Option<Box<dyn Job>> {
        if self.is_empty() {
            self.end_empty();
            return None;
        }
        let (result, direct) = self.carry_out();
        match self.advance(result, direct) {
            After::More(request) => Some(Box::new(request)),
            After::Ended => None,
        }
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.end(Err(error));
    }
}

/// Number of bytes at the beginning of a write that bypass the kernel's cache: those that direct
/// I/O accepts, if they are many.
///
/// The engine caches large writes itself, and a direct write ends only on the device. So the
/// scheduler knows what waits for the device, a sync has little left to do, and errors reach the
/// write itself. Small writes, and the tail of a file, go to the kernel, which merges neighbours.
fn direct_bytes(file: &OpenFile, offset: u64, buf: &WriteBuf) -> usize {
    if !file.descriptor(offset, true).1 {
        return 0;
    }
    let mut aligned = 0;
    for segment in buf.segments() {
        if !segment.iov_base.addr().is_multiple_of(ALIGNMENT) {
            break;
        }
        aligned += segment.iov_len / ALIGNMENT * ALIGNMENT;
        if !segment.iov_len.is_multiple_of(ALIGNMENT) {
            break;
        }
    }
    if aligned < file.direct_writes_from { 0 } else { aligned }
}

/// Bytes of one system call. Smaller: more system calls. Larger: later progress of large reads.
const PART_BYTES: usize = 1 << 20;
