//! Copies one file: reads and writes its ranges, several at a time.
//!
//! ```text
//! missing range --read--> ReadBuf --the same memory--> WriteBuf --write--> noted
//!     ^                     |
//!     +---- retry, later ---+  bytes that arrived are kept
//! ```

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Stdin};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant as StdInstant};

use bowwave_backend::{Error, ErrorKind, Object, ReadBuf, ReadSink, Result, WriteBuf, WriteSink};
use bowwave_core::Instant;
use bowwave_core::network::{Failure as Failed, Retry, RetryLimits, Verdict};

use super::shared::{Moved, Permit, Shared};
use super::target::Target;
use crate::Failure;

/// Source of the bytes.
#[derive(Debug)]
pub(super) enum Input<'a> {
    Object(&'a dyn Object),
    /// To its end, in order.
    Stream(Stdin),
}

/// Copies everything of `input` that `target` does not have yet.
pub(super) fn transfer(
    shared: &Shared<'_>,
    limits: RetryLimits,
    input: Input<'_>,
    target: &mut Target,
) -> std::result::Result<(), Failure> {
    // One event per range in flight, so no backend thread blocks here.
    let (events, heard) = mpsc::sync_channel(RANGES_MAX);
    let unwanted = Arc::new(AtomicBool::new(false));
    let counts =
        if target.counts_writes() || matches!(input, Input::Stream(_)) { None } else { Some(shared.moved()) };
    let mut transfer = Transfer {
        shared,
        limits,
        input,
        target,
        events,
        unwanted,
        counts,
        ranges: BTreeMap::new(),
        again: Vec::new(),
        next: 0,
        ended: false,
        failure: None,
    };
    transfer.run(&heard);
    transfer.failure.map_or(Ok(()), Err)
}

struct Transfer<'a> {
    shared: &'a Shared<'a>,
    limits: RetryLimits,
    input: Input<'a>,
    target: &'a mut Target,
    events: SyncSender<Event>,
    /// Reads of this file may be cancelled.
    unwanted: Arc<AtomicBool>,
    /// Counts bytes as they arrive; `None` if they count when written.
    counts: Option<Moved>,
    /// In flight, or to be retried.
    ranges: BTreeMap<u64, Range<'a>>,
    /// When to retry ranges.
    again: Vec<(Instant, u64)>,
    next: u64,
    /// No more ranges start: all have, or the input has ended.
    ended: bool,
    failure: Option<Failure>,
}

/// A range of the file in flight.
struct Range<'a> {
    offset: u64,
    /// Bytes that have arrived.
    head: Option<ReadBuf>,
    /// Bytes to read again.
    rest: Option<ReadBuf>,
    retry: Retry,
    _memory: Permit<'a>,
}

/// Completion of a request.
pub(super) enum Event {
    Read {
        index: u64,
        buf: ReadBuf,
        result: Result<usize>,
        progressed: usize,
    },
    Wrote {
        index: u64,
        buf: WriteBuf,
        result: Result<usize>,
    },
    /// The store dropped the request.
    Lost {
        index: u64,
    },
}

impl<'a> Transfer<'a> {
    fn run(&mut self, heard: &Receiver<Event>) {
        loop {
            if self.shared.interrupt.is_set() {
                self.fail(|| Failure::failed("interrupted"));
            }
            if self.failure.is_none() && !self.ended {
                self.begin_reads();
            }
            if self.ranges.is_empty() && (self.ended || self.failure.is_some()) {
                return;
            }
            match heard.recv_timeout(self.patience()) {
                Ok(event) => self.hear(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is held here"),
            }
            self.read_again();
        }
    }

    fn fail(&mut self, failure: impl FnOnce() -> Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure());
            self.unwanted.store(true, Ordering::Relaxed);
        }
        // Ranges that wait for a retry are not in flight.
        for (_, index) in self.again.drain(..) {
            self.ranges.remove(&index);
        }
    }

    fn refuse(&mut self, error: &Error) {
        self.target.failed(error);
        self.fail(|| Failure::from(error));
    }

    /// Starts reads of ranges, in order, while there is memory.
    fn begin_reads(&mut self) {
        while self.ranges.len() < RANGES_MAX && self.failure.is_none() {
            let (index, chunk) = (self.next, self.target.chunk());
            let offset = index.saturating_mul(chunk);
            let len = match &self.input {
                Input::Object(source) => chunk.min(source.size().saturating_sub(offset)),
                Input::Stream(_) => chunk,
            };
            if len == 0 {
                self.ended = true;
                return;
            }
            if self.target.has(index) {
                self.next += 1;
                continue;
            }
            // At least one range proceeds; others use spare memory only.
            let Some(memory) = self.shared.memory(len, self.ranges.is_empty()) else { return };
            let retry = Retry::new(self.limits, now());
            self.ranges.insert(index, Range { offset, head: None, rest: None, retry, _memory: memory });
            self.next += 1;
            match &mut self.input {
                Input::Object(_) => self.read(index, offset, ReadBuf::zeroed(to_usize(len))),
                Input::Stream(stream) => match next_bytes(stream, len) {
                    Ok(bytes) if bytes.is_empty() => {
                        self.ranges.remove(&index);
                        self.ended = true;
                        return;
                    }
                    Ok(bytes) => {
                        self.ended = (bytes.len() as u64) < len;
                        self.shared.more(bytes.len() as u64);
                        let bytes = WriteBuf::from_vec(bytes);
                        self.target.note(index, &bytes);
                        self.write(index, offset, bytes);
                        if self.ended {
                            return;
                        }
                    }
                    Err(error) => {
                        self.ranges.remove(&index);
                        self.fail(|| failed!("cannot read standard input: {error}"));
                    }
                },
            }
        }
    }

    fn teller(&self, index: u64) -> Teller {
        Teller { index, events: Some(self.events.clone()) }
    }

    fn read(&mut self, index: u64, offset: u64, buf: ReadBuf) {
        let Input::Object(source) = &self.input else { return };
        let sink = Reading {
            teller: self.teller(index),
            unwanted: Arc::clone(&self.unwanted),
            counts: self.counts.clone(),
            progressed: 0,
        };
        source.read(offset, buf, Box::new(sink));
    }

    /// Writes a range, or the rest of one.
    fn write(&mut self, index: u64, offset: u64, buf: WriteBuf) {
        let sink = Writing(self.teller(index));
        match self.target.write(index, offset, buf, sink) {
            Ok(written) => {
                for index in written {
                    self.ranges.remove(&index);
                }
            }
            Err(failure) => {
                self.ranges.clear();
                self.again.clear();
                self.fail(|| failure);
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Read { index, buf, result, progressed } => self.has_read(index, buf, result, progressed),
            Event::Wrote { index, buf, result } => self.has_written(index, buf, result),
            Event::Lost { index } => {
                self.ranges.remove(&index);
                self.fail(|| Failure::failed("the store dropped a request"));
            }
        }
    }

    fn has_read(&mut self, index: u64, mut buf: ReadBuf, result: Result<usize>, progressed: usize) {
        if self.failure.is_some() {
            self.ranges.remove(&index);
            return;
        }
        let Some(range) = self.ranges.get_mut(&index) else { return };
        let (good, error) = match result {
            Ok(count) if count == buf.len() => (count, None),
            Ok(0) => (0, Some(Error::new(ErrorKind::Truncated, "the store sent no byte"))),
            Ok(count) => (count, None),
            // It is unknown which of these bytes are damaged.
            Err(error) if error.kind() == ErrorKind::Corrupt => (0, Some(error)),
            Err(error) => (progressed.min(buf.len()), Some(error)),
        };
        let rest = (good < buf.len()).then(|| buf.split_off(good));
        match &mut range.head {
            Some(head) => head.unsplit(buf),
            None => range.head = Some(buf),
        }
        if let Some(counts) = &self.counts {
            counts.take_back(progressed.saturating_sub(good));
            counts.add(good.saturating_sub(progressed));
        }
        let Some(rest) = rest else {
            let (offset, head) = (range.offset, range.head.take());
            if let Some(head) = head {
                let bytes = WriteBuf::from_read(head);
                self.target.note(index, &bytes);
                self.write(index, offset, bytes);
            }
            return;
        };
        let at = match error {
            None => now(),
            Some(error) => {
                let after =
                    error.retry_after().map(|pause| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
                let failed = Failed { transient: error.is_retryable(), retry_after_ns: after };
                match range.retry.failed(now(), failed, RandomState::new().hash_one(index)) {
                    Verdict::Again(at) => at,
                    Verdict::GiveUp(_) => {
                        self.ranges.remove(&index);
                        return self.refuse(&error);
                    }
                }
            }
        };
        range.rest = Some(rest);
        self.again.push((at, index));
    }

    fn has_written(&mut self, index: u64, mut buf: WriteBuf, result: Result<usize>) {
        match result {
            Ok(count) if count == buf.len() => {
                self.ranges.remove(&index);
                if self.target.counts_writes() {
                    self.shared.moved().add(count);
                }
                if let Err(error) = self.target.wrote(index) {
                    self.refuse(&error);
                }
            }
            Ok(count) if count > 0 && self.failure.is_none() => {
                let Some(range) = self.ranges.get_mut(&index) else { return };
                range.offset += count as u64;
                let (offset, rest) = (range.offset, buf.split_off(count));
                self.write(index, offset, rest);
            }
            Ok(_) => {
                self.ranges.remove(&index);
                self.fail(|| Failure::failed("the store accepted no byte and gave no reason"));
            }
            Err(error) => {
                self.ranges.remove(&index);
                self.refuse(&error);
            }
        }
    }
}

impl Transfer<'_> {
    /// Retries reads that are due.
    fn read_again(&mut self) {
        let time = now();
        let (due, later) = self.again.drain(..).partition(|(at, _)| *at <= time);
        self.again = later;
        let due: Vec<(Instant, u64)> = due;
        for (_, index) in due {
            let Some(range) = self.ranges.get_mut(&index) else { continue };
            let at = range.offset + range.head.as_ref().map_or(0, ReadBuf::len) as u64;
            if let Some(rest) = range.rest.take() {
                self.read(index, at, rest);
            }
        }
    }

    /// How long to wait for an event.
    fn patience(&self) -> Duration {
        let due = self.again.iter().map(|(at, _)| at.0.saturating_sub(now().0)).min();
        due.map_or(LOOK_EVERY, |due| Duration::from_nanos(due).min(LOOK_EVERY))
    }
}

/// Up to `len` bytes; fewer only at the end of the input.
fn next_bytes(stream: &Stdin, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(to_usize(len));
    stream.lock().take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The current time, for retry rules.
fn now() -> Instant {
    static EPOCH: OnceLock<StdInstant> = OnceLock::new();
    let since = EPOCH.get_or_init(StdInstant::now).elapsed();
    Instant(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Reports the completion of a request; on drop, reports that the store dropped it.
struct Teller {
    index: u64,
    /// `None` once it has reported.
    events: Option<SyncSender<Event>>,
}

impl Teller {
    fn tell(&mut self, event: Event) {
        if let Some(events) = self.events.take() {
            // The channel has space for one event per range; without a receiver the event is not
            // needed.
            events.try_send(event).ok();
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(Event::Lost { index: self.index });
    }
}

/// Forwards the completion of a read.
struct Reading {
    teller: Teller,
    unwanted: Arc<AtomicBool>,
    counts: Option<Moved>,
    progressed: usize,
}

impl ReadSink for Reading {
    fn progress(&mut self, bytes: usize) {
        if let Some(counts) = &self.counts {
            counts.add(bytes.saturating_sub(self.progressed));
        }
        self.progressed = self.progressed.max(bytes);
    }

    fn done(mut self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let (index, progressed) = (self.teller.index, self.progressed);
        self.teller.tell(Event::Read { index, buf, result, progressed });
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.unwanted))
    }
}

/// Forwards the completion of a write.
pub(super) struct Writing(Teller);

impl Writing {
    /// Drops without an event.
    pub(super) fn forget(mut self) {
        self.0.events = None;
    }
}

impl WriteSink for Writing {
    fn done(mut self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        let index = self.0.index;
        self.0.tell(Event::Wrote { index, buf, result });
    }
}

/// Maximum ranges of one file in flight: enough to fill a fast link from a high-latency store.
const RANGES_MAX: usize = 32;
/// Interval of checks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);
