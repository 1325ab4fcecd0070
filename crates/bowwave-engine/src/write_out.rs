//! One request to a store: adjacent write-outs in one write.

use std::fmt;
use std::sync::Arc;

use bowwave_backend::{Error as StoreError, ErrorKind, WriteBuf, WriteObject, WriteSink};
use bowwave_core::network::Retry;
use bowwave_core::schedule::DispatchId;
use bowwave_core::{FillError, Instant as CoreInstant, WriteOutId};

use crate::clock;
use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::lease::{Lease, Loan};
use crate::queue::{IoRequest, Queue};
use crate::request::{again_at, segments};
use crate::shard::Effect;

/// Receives the result of the request.
struct Sink {
    engine: Arc<Inner>,
    queue: Arc<Queue>,
    id: DispatchId,
    entry: Arc<FileEntry>,
    object: Option<Arc<dyn WriteObject>>,
    /// Loan of the frames of all write-outs.
    loan: Loan,
    /// Write-outs in flight, in page order.
    parts: Vec<IoRequest>,
    /// End of the bytes that the store accepted.
    offset: u64,
    /// Bytes accepted by the store so far.
    accepted: u64,
    sent: CoreInstant,
    /// Its end was handled.
    ended: bool,
}

/// The rest of a write that the store ended early.
pub(crate) struct Rest {
    object: Arc<dyn WriteObject>,
    buf: WriteBuf,
    sink: Box<Sink>,
}

impl Rest {
    pub(crate) fn send(self) {
        self.object.write(self.sink.offset, self.buf, self.sink);
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest")
            .field("object", &self.object)
            .field("offset", &self.sink.offset)
            .finish_non_exhaustive()
    }
}

/// Sends write-outs as one write. They are of one file and adjacent.
pub(crate) fn send(
    engine: &Arc<Inner>,
    queue: &Arc<Queue>,
    (id, sent): (DispatchId, CoreInstant),
    parts: Vec<IoRequest>,
) {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return };
    let entry = Arc::clone(&first.entry);
    let page_size = engine.page_size();
    let offset = first.range.start.0 << page_size.shift();
    // Bytes past the end of the file are not written.
    let end = (last.range.end.0 << page_size.shift()).min(entry.size());
    let len = usize::try_from(end.saturating_sub(offset)).expect("a request fits into memory");
    let (buf, loan) = lend(engine, &parts, len);
    let object = entry.write_object();
    let sink = Box::new(Sink {
        engine: Arc::clone(engine),
        queue: Arc::clone(queue),
        id,
        entry,
        object: object.clone(),
        loan,
        parts,
        offset,
        accepted: 0,
        sent,
        ended: false,
    });
    match object {
        // The file was truncated meanwhile.
        Some(_) if len == 0 => sink.done(buf, Ok(0)),
        Some(object) => object.write(offset, buf, sink),
        None => sink.done(buf, Err(StoreError::new(ErrorKind::Io, "the file was closed").retryable(false))),
    }
}

/// The first `len` bytes of the frames of the write-outs as one buffer.
#[allow(unsafe_code, reason = "lends frames to the backend")]
fn lend(engine: &Arc<Inner>, parts: &[IoRequest], len: usize) -> (WriteBuf, Loan) {
    let segments = segments(parts, len).into_iter().map(|(base, len)| (base.cast_const(), len));
    let (lease, loan) = Lease::new(Arc::clone(engine), parts[0].key.shard);
    // SAFETY: segments lie in the arena. The lease keeps it mapped: it holds the engine, and all
    // parts are of one file, so of one shard and arena. Frames of a write-out in flight hold their
    // page's bytes and are pinned, and the cache allows no write to them until the write-out is
    // completed. It is completed when the buffer is back, or as leaked: then the frames stay pinned
    // and unchanged until the lease is dropped.
    (unsafe { WriteBuf::from_raw_segments(segments, Arc::new(lease)) }, loan)
}

impl WriteSink for Sink {
    fn done(mut self: Box<Self>, buf: WriteBuf, result: bowwave_backend::Result<usize>) {
        let mut buf = buf;
        let result = match result {
            Ok(count) if count < buf.len() && count > 0 => {
                // The store stopped early: the rest follows as another write.
                let rest = buf.split_off(count);
                drop(buf);
                self.offset += count as u64;
                self.accepted += count as u64;
                if let Some(object) = self.object.clone() {
                    // Queued, not sent here: with a store that completes inline, each write would
                    // use more stack.
                    let (engine, queue) = (Arc::clone(&self.engine), Arc::clone(&self.queue));
                    queue.add_rest(Rest { object, buf: rest, sink: self });
                    return queue.run(&engine);
                }
                buf = rest;
                Err(StoreError::new(ErrorKind::Io, "the file was closed"))
            }
            Ok(count) if count < buf.len() => {
                let message = format!("{}: the store takes no more bytes", self.entry.name());
                Err(StoreError::new(ErrorKind::Io, message))
            }
            Ok(count) => {
                self.offset += count as u64;
                self.accepted += count as u64;
                Ok(())
            }
            Err(error) => Err(error),
        };
        // Before its frames can be reused.
        drop(buf);
        self.end(result);
    }
}

/// A backend that panics or drops the request must not leave syncs waiting forever. The buffer may
/// be dropped before or after the sink.
impl Drop for Sink {
    fn drop(&mut self) {
        if !self.ended {
            let message = format!("{}: the store dropped a request", self.entry.name());
            self.end(Err(StoreError::new(ErrorKind::Io, message).retryable(true)));
        }
    }
}

impl Sink {
    /// Completes the write-outs or retries them, and frees the slot for the next request.
    fn end(&mut self, result: bowwave_backend::Result<()>) {
        self.ended = true;
        let failed = result.is_err();
        let mut retries = 0;
        if !self.is_back(&result) {
            // Completed there.
        } else if let Err(error) = result {
            retries = self.retry_or_fail(&error);
        } else {
            // Before waiters wake, so that they see themselves counted.
            self.queue.accepted(self.accepted, self.sent, &self.parts);
            self.entry.has_stored(self.offset);
            let answers = self.parts.drain(..).map(|part| (part.write_out(), Ok(()))).collect();
            self.engine.written_out(self.entry.shard, answers);
        }
        let latency = clock::precise().0.saturating_sub(self.sent.0);
        self.queue.ended(self.id, |stats| {
            stats.requests_failed += u64::from(failed);
            stats.retries += retries;
            stats.latency_ns_total += latency;
        });
        self.queue.run(&self.engine);
    }

    /// Whether the memory is back. If not, the write-outs end here, and their frames stay
    /// unchanged.
    fn is_back(&mut self, result: &bowwave_backend::Result<()>) -> bool {
        let Self { engine, entry, loan, parts, .. } = self;
        let mut effects: Vec<Effect> = Vec::new();
        let is_back = loan.is_back_or(|| {
            if let Err(error) = result {
                entry.note_write_error(error);
            }
            let frames = parts.iter().flat_map(|part| part.frames.iter().copied()).collect();
            let lost = parts.drain(..).map(|part| (part.write_out(), Err(FillError::ABANDONED)));
            engine.shard(entry.shard).written_out(lost, &mut effects);
            frames
        });
        engine.perform(entry.shard, effects);
        is_back
    }

    /// Retries where that may help, and fails the others. Returns the number of retries.
    fn retry_or_fail(&mut self, error: &StoreError) -> u64 {
        let mut failed: Vec<(WriteOutId, Result<(), FillError>)> = Vec::new();
        let mut retries = 0;
        for mut part in std::mem::take(&mut self.parts) {
            let limits = self.queue.retry_limits(self.engine.retries(), true);
            let retry = part.retry.get_or_insert_with(|| Retry::new(limits, self.sent));
            match again_at(&self.engine, retry, error) {
                Some(time) => {
                    retries += 1;
                    self.queue.pause(time, part);
                }
                None => failed.push((part.write_out(), Err(FillError(0)))),
            }
        }
        if !failed.is_empty() {
            self.entry.note_write_error(error);
            self.engine.written_out(self.entry.shard, failed);
        }
        retries
    }
}
