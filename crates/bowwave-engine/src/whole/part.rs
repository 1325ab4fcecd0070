//! A part on its way to the store.

use std::sync::Arc;
use std::time::Instant;

use bowwave_backend::{Error as StoreError, ErrorKind, PartMemory, Result, WriteBuf, WriteSink};
use bowwave_core::Instant as CoreInstant;

use super::Whole;
use super::room::{Buffer, Slot};
use crate::clock;
use crate::request::pause;
use crate::timer::Job;

/// Bytes that the store is asked to take, until it has, or will not.
#[derive(Debug)]
pub(crate) struct Part {
    whole: Arc<Whole>,
    offset: u64,
    bytes: Arc<PartMemory>,
    /// The memory, if nobody else is to go on with it.
    buffer: Option<Buffer>,
    tries: u32,
    sent: CoreInstant,
    _turn: Slot,
}

impl Part {
    /// A part, once it is its turn. The object counts it as on its way.
    pub(super) fn new(
        whole: &Arc<Whole>,
        offset: u64,
        bytes: Arc<PartMemory>,
        buffer: Option<Buffer>,
        turn: Slot,
    ) -> Self {
        let sent = clock::precise();
        Self { whole: Arc::clone(whole), offset, bytes, buffer, tries: 0, sent, _turn: turn }
    }

    /// Asks the store to take it, now or again.
    pub(crate) fn send(mut self) {
        self.sent = clock::precise();
        let buf = WriteBuf::from_shared(Arc::clone(&self.bytes), self.bytes.len());
        let (object, offset) = (Arc::clone(&self.whole.object), self.offset);
        object.write(offset, buf, Box::new(Sink(Some(self))));
    }

    fn ended(mut self, result: Result<usize>) {
        let error = match result {
            Ok(count) if count == self.bytes.len() => None,
            Ok(count) => {
                let (name, len) = (&self.whole.name, self.bytes.len());
                let message = format!("{name}: the store took {count} of {len} bytes at {}", self.offset);
                Some(StoreError::new(ErrorKind::Truncated, message))
            }
            Err(error) => Some(error),
        };
        let engine = Arc::clone(&self.whole.engine);
        let again = error.as_ref().is_some_and(StoreError::is_retryable)
            && self.tries < engine.retries()
            && self.whole.is_wanted();
        let taken = error.is_none().then_some(self.bytes.len() as u64);
        self.whole.queue.part_ended(self.sent, taken, again);
        match error {
            Some(error) if again => {
                let due = Instant::now() + pause(&engine, self.tries, error.retry_after());
                self.tries += 1;
                engine.at(due, Job::Part(self));
            }
            error => {
                let Self { whole, bytes, buffer, _turn: turn, .. } = self;
                drop((bytes, turn));
                whole.part_ended(error, buffer);
            }
        }
    }
}

/// Hears how it went.
struct Sink(Option<Part>);

impl WriteSink for Sink {
    fn done(mut self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        drop(buf);
        if let Some(part) = self.0.take() {
            part.ended(result);
        }
    }
}

/// A store that panics, or loses the part in another way, must not leave a writer waiting for ever.
impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(part) = self.0.take() {
            let message = format!("{}: the store dropped a part", part.whole.name);
            part.ended(Err(StoreError::new(ErrorKind::Io, message).retryable(true)));
        }
    }
}
