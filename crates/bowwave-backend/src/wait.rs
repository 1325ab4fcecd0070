//! Blocking reads and writes: for tests, tools and metadata, not for the hot path.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use crate::{Error, ErrorKind, Object, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink};

/// An event of a sink.
#[derive(Debug)]
pub enum Heard {
    /// The first N bytes of the buffer are final.
    Progress(usize),
    /// The read ended.
    Done(ReadBuf, Result<usize>),
    /// The sink was dropped; nothing follows.
    Dropped,
}

/// Starts a read and returns the channel of its events.
pub fn start_read(object: &dyn Object, offset: u64, buf: ReadBuf) -> Receiver<Heard> {
    let (sender, receiver) = mpsc::sync_channel(PROGRESS_MAX + 2);
    object.read(offset, buf, Box::new(ChannelSink { sender, progress: 0 }));
    receiver
}

/// As [`start_read`], where the store may read on this thread.
pub fn start_read_here(object: &dyn Object, offset: u64, buf: ReadBuf) -> Receiver<Heard> {
    let (sender, receiver) = mpsc::sync_channel(PROGRESS_MAX + 2);
    object.read_here(offset, buf, Box::new(ChannelSink { sender, progress: 0 }));
    receiver
}

/// Reads up to `len` bytes at `offset`, and continues after short reads; returns fewer only at the
/// end of the object.
///
/// # Errors
/// As the store says; `TimedOut` if no event arrives for `patience`.
pub fn read_exact(object: &dyn Object, offset: u64, len: usize, patience: Duration) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let at = offset.saturating_add(bytes.len() as u64);
        let rest = crate::generate::within(object.size(), at, len - bytes.len());
        if rest == 0 {
            return Ok(bytes);
        }
        let part = read_once(object, at, rest, patience)?;
        if part.is_empty() {
            let message = format!("the store returned no byte at {at} of {}", object.size());
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        bytes.extend(part);
    }
}

/// Reads up to `len` bytes at `offset` with one request.
///
/// # Errors
/// As the store says; `TimedOut` if no event arrives for `patience`.
pub fn read_once(object: &dyn Object, offset: u64, len: usize, patience: Duration) -> Result<Vec<u8>> {
    read_end(&start_read(object, offset, ReadBuf::zeroed(len)), patience)
}

/// Waits for the end of a started read; returns its bytes.
///
/// # Errors
/// As the store says; `TimedOut` if no event arrives for `patience`.
pub fn read_end(heard: &Receiver<Heard>, patience: Duration) -> Result<Vec<u8>> {
    loop {
        match heard.recv_timeout(patience) {
            Ok(Heard::Progress(_)) => {}
            Ok(Heard::Done(buf, result)) => {
                let (mut bytes, count) = (buf.to_vec(), result?);
                if count > bytes.len() {
                    let message = format!("the store reported {count} bytes for a buffer of {}", bytes.len());
                    return Err(Error::new(ErrorKind::Io, message));
                }
                bytes.truncate(count);
                return Ok(bytes);
            }
            Ok(Heard::Dropped) => return Err(Error::new(ErrorKind::Io, "the store dropped a read")),
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("no response from the store within {patience:?}"),
                ));
            }
        }
    }
}

/// Starts a write and returns the channel of its end: the buffer and the result; disconnected if
/// the store drops the sink.
pub fn start_write(
    object: &dyn WriteObject,
    offset: u64,
    buf: WriteBuf,
) -> Receiver<(WriteBuf, Result<usize>)> {
    // Capacity for a second end, so that a store that violates the contract is detected instead of
    // blocked.
    let (sender, receiver) = mpsc::sync_channel(2);
    object.write(offset, buf, Box::new(EndSink { sender }));
    receiver
}

/// Writes `bytes` at `offset`, and continues after short writes.
///
/// # Errors
/// As the store says; `TimedOut` if no event arrives for `patience`.
pub fn write_exact(object: &dyn WriteObject, offset: u64, bytes: &[u8], patience: Duration) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let count = write_once(object, offset.saturating_add(done as u64), &bytes[done..], patience)?;
        if count == 0 {
            return Err(Error::new(ErrorKind::Io, "the store accepted no byte, without an error"));
        }
        done += count;
    }
    Ok(())
}

/// Writes `bytes` at `offset` with one request; returns how many were written.
///
/// # Errors
/// As the store says; `TimedOut` if no event arrives for `patience`.
pub fn write_once(object: &dyn WriteObject, offset: u64, bytes: &[u8], patience: Duration) -> Result<usize> {
    let end = start_write(object, offset, WriteBuf::from_vec(bytes.to_vec()));
    match end.recv_timeout(patience) {
        Ok((_, result)) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(Error::new(ErrorKind::Io, "the store dropped a write"))
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(Error::new(ErrorKind::TimedOut, format!("no response from the store within {patience:?}")))
        }
    }
}

struct EndSink {
    sender: SyncSender<(WriteBuf, Result<usize>)>,
}

impl WriteSink for EndSink {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        // The receiver may have been dropped.
        self.sender.try_send((buf, result)).ok();
    }
}

/// Capacity for the end and the drop is reserved, so sending never blocks.
struct ChannelSink {
    sender: SyncSender<Heard>,
    progress: usize,
}

impl ReadSink for ChannelSink {
    fn progress(&mut self, bytes: usize) {
        if self.progress < PROGRESS_MAX {
            self.progress += 1;
            // The receiver may have been dropped (here and below).
            self.sender.try_send(Heard::Progress(bytes)).ok();
        }
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        self.sender.try_send(Heard::Done(buf, result)).ok();
    }
}

impl Drop for ChannelSink {
    fn drop(&mut self) {
        self.sender.try_send(Heard::Dropped).ok();
    }
}

/// Most `progress` events that are passed on; later ones are dropped, and `done` supersedes them.
const PROGRESS_MAX: usize = 254;
