//! One request to a store: adjacent fills in one read, completed one by one as their bytes arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_backend::{Error as StoreError, ErrorKind, Object, ReadBuf, ReadSink};
use bowwave_core::network::{Failure, Retry, Verdict};
use bowwave_core::schedule::{Direction, DispatchId};
use bowwave_core::{FillError, Instant as CoreInstant, Urgency};

use crate::clock;
use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::hedge::Race;
use crate::lease::{Lease, Loan};
use crate::queue::{Batch, IoRequest, Queue};
use crate::shard::Effect;
use crate::write_out;

/// Receives the result of the request.
struct Sink {
    engine: Arc<Inner>,
    queue: Arc<Queue>,
    id: DispatchId,
    entry: Arc<FileEntry>,
    /// The object that was read.
    object: Option<Arc<dyn Object>>,
    /// Loan of the frames of all fills.
    loan: Loan,
    /// Fills in flight, in page order.
    parts: std::vec::IntoIter<IoRequest>,
    /// Bytes of the buffer in completed fills.
    answered_bytes: usize,
    /// Bytes of the buffer that are final.
    final_bytes: usize,
    /// Bytes that the store has for this request: the buffer, or less at the end of the file.
    wanted: usize,
    sent: CoreInstant,
    /// Its end was handled.
    ended: bool,
}

/// Sends a request to its store.
pub(crate) fn send(engine: &Arc<Inner>, queue: &Arc<Queue>, batch: Batch) {
    let Batch { id, sent, parts } = batch;
    // Reads and writes do not merge.
    match parts[0].direction() {
        Direction::Read => read(engine, queue, (id, sent), parts),
        Direction::Write => write_out::send(engine, queue, (id, sent), parts),
    }
}

/// Sends fills as one read. They are of one file and adjacent.
fn read(
    engine: &Arc<Inner>,
    queue: &Arc<Queue>,
    (id, sent): (DispatchId, CoreInstant),
    mut parts: Vec<IoRequest>,
) {
    for part in &mut parts {
        let limits = queue.retry_limits(engine.retries(), part.demanded.since().is_some());
        part.retry.get_or_insert_with(|| Retry::new(limits, sent));
    }
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return };
    let entry = Arc::clone(&first.entry);
    let page_size = engine.page_size();
    let have = first.have_bytes;
    let offset = (first.range.start.0 << page_size.shift()) + have;
    let end = last.range.end.0 << page_size.shift();
    // Uncached bytes past the store's end were never written: zeros.
    let wanted = entry.stored().min(end).saturating_sub(offset);
    // Not more than that, as far as alignment allows: bytes past the current end may be written
    // before the store returns the buffer.
    let room = wanted.next_multiple_of(queue.alignment());
    let (buf, loan) = lend(engine, &parts, usize::try_from(room).expect("a request fits into memory"));
    clear_tail(&parts, have + wanted);
    let demanded = parts.iter().any(|part| part.urgency == Urgency::Demand);
    let object = entry.object();
    entry.note_request(wanted);
    let sink = Box::new(Sink {
        engine: Arc::clone(engine),
        queue: Arc::clone(queue),
        id,
        entry,
        object: object.clone(),
        loan,
        parts: parts.into_iter(),
        answered_bytes: 0,
        final_bytes: 0,
        wanted: usize::try_from(wanted).expect("a request fits into memory"),
        sent,
        ended: false,
    });
    let is_late = sink.deadline().is_some_and(|deadline| deadline <= Instant::now());
    match object {
        Some(_) if wanted == 0 => sink.done(buf, Ok(0)),
        Some(_) if is_late => {
            let message = format!("{}: not read by the deadline (--deadline)", sink.entry.name());
            sink.done(buf, Err(StoreError::new(ErrorKind::TimedOut, message)));
        }
        Some(object) if demanded => Race::run(queue, id, object, offset, (buf, sink)),
        Some(object) => object.read(offset, buf, sink),
        // The last handle was closed while this fill was queued.
        None => sink.done(buf, Err(StoreError::new(ErrorKind::Io, "the file was closed").retryable(false))),
    }
}

/// The first `len` bytes of the frames that an earlier request has not returned, as segments.
pub(crate) fn segments(parts: &[IoRequest], len: usize) -> Vec<(*mut u8, usize)> {
    let mut segments: Vec<(*mut u8, usize)> = Vec::new();
    let mut have = usize::try_from(parts[0].have_bytes).expect("a fill fits into memory");
    let mut left = len;
    for (arena, frame) in parts.iter().flat_map(|part| part.frames.iter().map(|&frame| (&part.arena, frame)))
    {
        let (base, bytes) = arena.segment(frame);
        let skip = have.min(bytes);
        have -= skip;
        let (base, count) = (base.wrapping_add(skip), left.min(bytes - skip));
        left -= count;
        match segments.last_mut() {
            _ if count == 0 => {}
            // Adjacent frames become one segment.
            Some((last, last_len)) if last.wrapping_add(*last_len) == base => *last_len += count,
            _ => segments.push((base, count)),
        }
    }
    segments
}

/// Frames of the fills as one buffer: `room` bytes, after those that an earlier request returned.
#[allow(unsafe_code, reason = "lends frames to the backend")]
fn lend(engine: &Arc<Inner>, parts: &[IoRequest], room: usize) -> (ReadBuf, Loan) {
    let (lease, loan) = Lease::new(Arc::clone(engine), parts[0].key.shard);
    // SAFETY: segments lie in the arena. The lease keeps it mapped: it holds the engine, and all
    // parts are of one file, so of one shard and arena. Frames of a fill in flight belong to that
    // fill alone until it is completed: when the bytes are final, when the buffer is back, or as
    // leaked. Leaked frames stay pinned, in no page table, until the lease is dropped.
    (unsafe { ReadBuf::from_raw_segments(segments(parts, room), Arc::new(lease)) }, loan)
}

/// Zeros the bytes past the store's end: a file that is or becomes longer has a hole there.
/// `wanted` bytes, from the first fill's start on, come from the store.
#[allow(unsafe_code, reason = "writes to page frames")]
fn clear_tail(parts: &[IoRequest], wanted: u64) {
    let mut left = usize::try_from(wanted).expect("a request fits into memory");
    for part in parts {
        let bytes: usize = part.frames.iter().map(|&frame| part.arena.segment(frame).1).sum();
        let skip = left.min(bytes);
        left -= skip;
        // SAFETY: the frames are those of a fill in flight that was not sent yet, so they are used
        // nowhere else.
        unsafe { part.arena.zero_from(&part.frames, skip) };
    }
}

impl ReadSink for Sink {
    fn progress(&mut self, bytes: usize) {
        self.answer_through(bytes, false);
    }

    /// The earliest deadline of the waiting readers.
    fn deadline(&self) -> Option<Instant> {
        let waiting = self.parts.as_slice().iter().filter_map(|part| part.demanded.since());
        self.queue.deadline(waiting.min()?).map(clock::instant)
    }

    fn done(mut self: Box<Self>, buf: ReadBuf, result: bowwave_backend::Result<usize>) {
        // Before its frames can be reused.
        drop(buf);
        let outcome = match result {
            Ok(bytes) => {
                self.answer_through(bytes, true);
                if bytes >= self.wanted { Outcome::Done } else { Outcome::Short(self.wanted - bytes) }
            }
            Err(error) => Outcome::Failed(error),
        };
        self.end(outcome);
    }
}

/// A backend that panics or drops the request must not leave readers waiting forever. The buffer
/// may be dropped before or after the sink.
impl Drop for Sink {
    fn drop(&mut self) {
        if !self.ended {
            let message = format!("{}: the store dropped a request", self.entry.name());
            self.end(Outcome::Failed(StoreError::new(ErrorKind::Io, message).retryable(true)));
        }
    }
}

/// Result of a request.
enum Outcome {
    /// All bytes arrived.
    Done,
    /// Bytes are missing, without an error.
    Short(usize),
    /// It failed.
    Failed(StoreError),
}

impl Sink {
    /// Retries or fails the fills in flight, and frees the slot for the next request.
    fn end(&mut self, outcome: Outcome) {
        self.ended = true;
        if !self.is_back(&outcome) {
            // The store still has the memory: nothing can be retried.
            return self.end_lost(outcome);
        }
        let left_over = self.keep_left_over();
        let outcome = self.weigh(outcome);
        let (error, short) = match outcome {
            Outcome::Done => (None, false),
            Outcome::Short(missing) => {
                let message = format!("{}: the store stopped {missing} bytes early", self.entry.name());
                (Some(StoreError::new(ErrorKind::Truncated, message)), true)
            }
            Outcome::Failed(error) => (Some(error), false),
        };
        let parts = std::mem::take(&mut self.parts);
        let retries = match &error {
            Some(error) => retry_or_fail(&self.engine, &self.entry, parts, error, short && left_over > 0),
            None => 0,
        };
        let latency = clock::precise().0.saturating_sub(self.sent.0);
        self.queue.ended(self.id, |stats| {
            stats.requests_failed += u64::from(error.is_some() && !short);
            stats.requests_short += u64::from(short);
            stats.retries += retries;
            stats.latency_ns_total += latency;
        });
        self.queue.run(&self.engine);
    }

    /// A changed object may be one that the file no longer uses, because it is now written through
    /// another object. Then the fills are retried with that one.
    fn weigh(&self, outcome: Outcome) -> Outcome {
        let Outcome::Failed(error) = outcome else { return outcome };
        let now = self.entry.object();
        let replaced = match (&self.object, &now) {
            (Some(asked), Some(now)) => !Arc::ptr_eq(asked, now),
            _ => false,
        };
        let again = error.is_retryable() || replaced && error.kind() == ErrorKind::Changed;
        Outcome::Failed(error.retryable(again))
    }

    /// Whether the memory of all fills in flight is back; if not, their readers get the error.
    fn is_back(&mut self, outcome: &Outcome) -> bool {
        let Self { engine, entry, loan, parts, .. } = self;
        let mut effects: Vec<Effect> = Vec::new();
        let is_back = loan.is_back_or(|| {
            if let Outcome::Failed(error) = outcome {
                // For the readers that wake below.
                entry.note_error(error);
            }
            let frames = parts.as_slice().iter().flat_map(|part| part.frames.iter().copied()).collect();
            let lost = parts.as_slice().iter().map(|part| (part.fill(), Err(FillError::ABANDONED)));
            engine.shard(entry.shard).filled(lost, &mut effects);
            frames
        });
        engine.perform(entry.shard, effects);
        is_back
    }

    /// Frees the slot of a request whose memory is not back. Its fills are completed.
    fn end_lost(&mut self, outcome: Outcome) {
        let lost = std::mem::take(&mut self.parts).len() as u64;
        let failed = matches!(outcome, Outcome::Failed(_)) || lost > 0;
        self.queue.ended(self.id, |stats| {
            stats.requests_failed += u64::from(failed);
        });
        self.queue.run(&self.engine);
    }

    /// Records how much of the first incomplete fill arrived, so that only the rest is requested,
    /// from an aligned offset. Returns the bytes kept.
    fn keep_left_over(&mut self) -> u64 {
        let came = self.final_bytes.saturating_sub(self.answered_bytes) as u64;
        let Some(part) = self.parts.as_mut_slice().first_mut() else { return 0 };
        let have = (part.have_bytes + came) / self.queue.alignment() * self.queue.alignment();
        let kept = have.saturating_sub(part.have_bytes);
        if kept > 0 {
            part.have_bytes = have;
            self.queue.arrived(kept);
        }
        kept
    }

    /// Completes the fills whose bytes are among the first `bytes` of the buffer. The fill at the
    /// end of the file only when the request is `done`: until then the store may write past the
    /// end, where a program may write.
    fn answer_through(&mut self, bytes: usize, done: bool) {
        let mut answered = Vec::new();
        self.final_bytes = self.final_bytes.max(bytes.min(self.wanted));
        let before = self.answered_bytes;
        while let Some(part) = self.parts.as_slice().first() {
            let fill_bytes = part.frames.len() * self.engine.page_size().bytes() as usize;
            let have = usize::try_from(part.have_bytes).expect("a fill fits into memory");
            let end = self.answered_bytes + fill_bytes - have;
            if bytes < end.min(self.wanted) || !done && end > self.wanted {
                break;
            }
            self.answered_bytes = end;
            answered.extend(self.parts.next());
        }
        if !answered.is_empty() {
            // Before the readers wake, so that they see themselves counted.
            let came = (self.answered_bytes.min(self.wanted) - before) as u64;
            self.queue.answered(came, self.sent, &answered);
            let answers = answered.iter().map(|part| (part.fill(), Ok(()))).collect();
            self.engine.filled(self.entry.shard, answers);
        }
    }
}

/// Retries incomplete fills where that may help, and fails the others; returns the number of
/// retries. With `at_once` there is no pause: the store works, but returns little at a time.
fn retry_or_fail(
    engine: &Arc<Inner>,
    entry: &Arc<FileEntry>,
    parts: impl Iterator<Item = IoRequest>,
    error: &StoreError,
    at_once: bool,
) -> u64 {
    let mut failed = Vec::new();
    let mut retries = 0;
    for mut part in parts {
        let now = clock::precise();
        let waits_too_long = || {
            let deadline = part.demanded.since().and_then(|since| entry.queue.deadline(since));
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let again = match &mut part.retry {
            _ if entry.is_stale() || waits_too_long() => None,
            _ if at_once => Some(now),
            Some(retry) => again_at(engine, retry, error),
            None => None,
        };
        match again {
            Some(time) => {
                retries += 1;
                entry.queue.pause(time, part);
            }
            None => failed.push((part.fill(), Err(entry.note_error(error)))),
        }
    }
    // In a damaged object, any page may be wrong.
    if matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt) && !error.is_retryable() {
        if error.kind() == ErrorKind::Corrupt {
            entry.note_damage(error);
        }
        engine.make_stale(entry);
    }
    if !failed.is_empty() {
        engine.filled(entry.shard, failed);
    }
    retries
}

/// When to retry after an error, if that may help.
pub(crate) fn again_at(engine: &Inner, retry: &mut Retry, error: &StoreError) -> Option<CoreInstant> {
    let nanos = |pause: Duration| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    let failure = Failure { transient: error.is_retryable(), retry_after_ns: error.retry_after().map(nanos) };
    match retry.failed(clock::precise(), failure, engine.random()) {
        Verdict::Again(time) => Some(time),
        Verdict::GiveUp(_) => None,
    }
}
