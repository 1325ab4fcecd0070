//! Copies of the store's bytes in flight to the disk, and the thread that writes them.
//!
//! No read waits for it. Copies are dropped when [`QUEUED_MAX`] bytes are queued, when one write
//! takes longer than a working disk needs, and while reads bypass the disk.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::Counters;
use super::directory::{Directory, Fault};
use super::health::Limits;
use super::key::Key;
use super::quota::Quota;
use super::segment;
use crate::sync::{Condvar, Mutex};
use crate::wrap::Ending;
use crate::{Error, ErrorKind, ReadBuf, ReadSink, Result};

/// Most queued bytes of one cache; others are dropped. Larger: more memory.
const QUEUED_MAX: usize = 64 << 20;
/// Limit of one write, in limits of a read: it may have to evict segments first.
const WRITE_FACTOR: u32 = 4;
/// How long closing a cache waits for queued bytes.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

/// Bytes queued for writing.
#[derive(Debug)]
pub(super) struct Writes {
    counters: Arc<Counters>,
    /// Limit of one write.
    limit: Duration,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<PendingWrite>,
    /// Bytes of queued jobs, of the current write, and of copies in progress.
    bytes: usize,
    /// When the write in progress began.
    since: Option<Instant>,
    closing: bool,
}

/// Bytes of an object to be written.
#[derive(Debug)]
struct PendingWrite {
    key: Arc<Key>,
    offset: u64,
    bytes: Vec<u8>,
}

impl Writes {
    /// Starts the thread, which opens the directory, so that a hanging disk does not block the
    /// caller forever.
    pub(super) fn start(
        path: PathBuf,
        bytes: u64,
        counters: &Arc<Counters>,
        limits: Limits,
        open_limit: Duration,
    ) -> Result<(Arc<Self>, Arc<Directory>)> {
        let (ending, ended) = mpsc::sync_channel::<()>(1);
        let (opening, opened) = mpsc::sync_channel(1);
        let writes = Arc::new(Self {
            counters: Arc::clone(counters),
            limit: WRITE_FACTOR * limits.answer,
            queue: Mutex::default(),
            wake: Condvar::new(),
            ended: Mutex::new(ended),
        });
        let late = format!(
            "disk cache {}: the disk has not answered within {open_limit:?}, or another process holds the lock on the file `used` \
             there: name another directory, or none",
            path.display()
        );
        let shared = Arc::clone(&writes);
        let run = move || shared.run(&path, bytes, &opening, ending);
        thread::Builder::new()
            .name("bowwave-keep".to_owned())
            .spawn(run)
            .map_err(|error| Error::from_os("disk cache: cannot start a thread", &error))?;
        match opened.recv_timeout(open_limit) {
            Ok(directory) => Ok((writes, directory?)),
            // Not `TimedOut`, which refers to the store and its own limit.
            Err(_) => Err(Error::new(ErrorKind::Io, late)),
        }
    }

    /// Whether bytes are accepted now. An overdue write drops the bytes queued behind it.
    fn reserve(&self, len: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.since.is_some_and(|since| since.elapsed() > self.limit) {
            self.drop_jobs(&mut queue);
        } else if queue.bytes + len <= QUEUED_MAX && !queue.closing {
            queue.bytes += len;
            return true;
        }
        drop(queue);
        self.counters.count(|stats| stats.bytes_dropped += len as u64);
        false
    }

    fn add(&self, keep: PendingWrite) {
        self.queue.lock().jobs.push_back(keep);
        self.wake.notify_one();
    }

    /// Drops queued bytes.
    pub(super) fn discard(&self) {
        self.drop_jobs(&mut self.queue.lock());
    }

    fn drop_jobs(&self, queue: &mut Queue) {
        let bytes: usize = queue.jobs.drain(..).map(|keep| keep.bytes.len()).sum();
        queue.bytes -= bytes;
        self.counters.count(|stats| stats.bytes_dropped += bytes as u64);
    }

    /// Ends the thread after all writes. Waits for it briefly, unless `hurry`.
    pub(super) fn close(&self, hurry: bool) {
        self.queue.lock().closing = true;
        self.wake.notify_one();
        if !hurry {
            let ended = self.ended.lock();
            // Nothing is ever sent: the wait ends by disconnection, or in time.
            let _either = ended.recv_timeout(CLOSE_WAIT);
        }
    }

    /// Bytes that wait, for tests.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.lock().bytes
    }

    fn run(
        &self,
        path: &std::path::Path,
        bytes: u64,
        opening: &SyncSender<Result<Arc<Directory>>>,
        ending: SyncSender<()>,
    ) {
        let mut quota = match Quota::open(path, bytes, Arc::clone(&self.counters)) {
            Ok(quota) => quota,
            Err(error) => {
                // If it was too late for the caller, the caller has its error already.
                let _late = opening.try_send(Err(error));
                return;
            }
        };
        if opening.try_send(Ok(Arc::clone(&quota.directory))).is_ok() {
            self.write_all(&mut quota);
        }
        drop(quota);
        drop(ending);
    }

    fn write_all(&self, quota: &mut Quota) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(keep) = queue.jobs.pop_front() {
                drop(queue);
                self.write(quota, &keep);
                queue = self.queue.lock();
                queue.since = None;
                queue.bytes -= keep.bytes.len();
            } else if queue.closing {
                return;
            } else {
                queue = self.wake.wait(queue);
            }
        }
    }

    fn write(&self, quota: &mut Quota, keep: &PendingWrite) {
        let PendingWrite { key, offset, bytes } = keep;
        for (number, part) in segment::parts(*offset..*offset + bytes.len() as u64) {
            self.queue.lock().since = Some(Instant::now());
            let piece = &bytes[(part.start - offset) as usize..(part.end - offset) as usize];
            let written = Self::write_part(quota, key, (number, &part), piece);
            self.counters.count(|stats| match &written {
                Ok(Some(written)) => {
                    stats.bytes_written += written.bytes;
                    stats.damaged += written.replaced;
                }
                failed => {
                    stats.bytes_dropped += piece.len() as u64;
                    stats.damaged += u64::from(matches!(failed, Err(Fault::Foreign)));
                    stats.errors += u64::from(matches!(failed, Err(Fault::Absent | Fault::Os(_))));
                }
            });
        }
    }

    /// `None` if the directory is full.
    fn write_part(
        quota: &mut Quota,
        key: &Key,
        part: (u64, &std::ops::Range<u64>),
        piece: &[u8],
    ) -> std::result::Result<Option<segment::Written>, Fault> {
        // With the segment's head, and whole pages; pages already present are returned.
        let most = (piece.len() as u64).next_multiple_of(segment::PAGE) + 2 * segment::PAGE;
        if !quota.take(most)? {
            return Ok(None);
        }
        let written = segment::write(&quota.directory, key, part, piece)?;
        if written.bytes == 0 {
            quota.give(most);
        }
        Ok(Some(written))
    }
}

impl Writes {
    /// The sink of a read of the store at `offset` whose bytes are also written to the disk.
    pub(super) fn copying(
        self: Arc<Self>,
        sink: Box<dyn ReadSink>,
        key: Arc<Key>,
        offset: u64,
    ) -> Box<dyn ReadSink> {
        let end = move |sink: Box<dyn ReadSink>, mut buf: ReadBuf, result: Result<usize>| {
            let range = result.as_ref().ok().and_then(|&count| key.pages(offset, count));
            let len = range.map_or(0, |range| (range.end - range.start) as usize);
            let keep = (len > 0 && self.reserve(len)).then(|| {
                // Before the reader gets them: afterwards they are the reader's.
                let mut bytes = Vec::with_capacity(len);
                buf.fill_with(0..len, |_, piece| bytes.extend_from_slice(piece));
                PendingWrite { key, offset, bytes }
            });
            sink.done(buf, result);
            if let Some(keep) = keep {
                self.add(keep);
            }
        };
        Box::new(Ending { sink, end })
    }
}
