//! A part in flight to the store.

use std::sync::Arc;

use bowwave_backend::{Error as StoreError, ErrorKind, PartMemory, Result, WriteBuf, WriteSink};
use bowwave_core::Instant as CoreInstant;
use bowwave_core::network::{Retry, RetryLimits};

use super::ObjectUpload;
use super::memory_pool::{Buffer, Slot};
use crate::clock;
use crate::request::again_at;
use crate::timer::Job;

/// Bytes sent to the store, until it accepts or rejects them.
#[derive(Debug)]
pub(crate) struct Part {
    upload: Arc<ObjectUpload>,
    offset: u64,
    bytes: Arc<PartMemory>,
    /// The memory, if it is not shared with the upload's tail.
    buffer: Option<Buffer>,
    retry: Option<Retry>,
    sent: CoreInstant,
    _slot: Slot,
}

impl Part {
    /// A part that has a slot. The object counts it as in flight.
    pub(super) fn new(
        upload: &Arc<ObjectUpload>,
        offset: u64,
        bytes: Arc<PartMemory>,
        buffer: Option<Buffer>,
        slot: Slot,
    ) -> Self {
        let sent = clock::precise();
        Self { upload: Arc::clone(upload), offset, bytes, buffer, retry: None, sent, _slot: slot }
    }

    /// Sends the part, first or again.
    pub(crate) fn send(mut self) {
        self.sent = clock::precise();
        let buf = WriteBuf::from_shared(Arc::clone(&self.bytes), self.bytes.len());
        let (object, offset) = (Arc::clone(&self.upload.object), self.offset);
        object.write(offset, buf, Box::new(Sink(Some(self))));
    }

    fn ended(mut self, result: Result<usize>) {
        let error = match result {
            Ok(count) if count == self.bytes.len() => None,
            Ok(count) => {
                let (name, len) = (&self.upload.name, self.bytes.len());
                let message = format!("{name}: the store accepted {count} of {len} bytes at {}", self.offset);
                Some(StoreError::new(ErrorKind::Truncated, message))
            }
            Err(error) => Some(error),
        };
        let engine = Arc::clone(&self.upload.engine);
        let limits = self.upload.queue.retry_limits(engine.retries(), true);
        let limits = RetryLimits { from_first_failure: true, ..limits };
        let retry = self.retry.get_or_insert_with(|| Retry::new(limits, self.sent));
        let due = match &error {
            // A store behind a network has already retried until its deadline.
            Some(error) if self.upload.needs_parts() && !self.upload.queue.has_deadline() => {
                again_at(&engine, retry, error)
            }
            _ => None,
        };
        let accepted = error.is_none().then_some(self.bytes.len() as u64);
        self.upload.queue.part_ended(self.sent, accepted, due.is_some());
        match due {
            Some(due) => engine.at(clock::instant(due), Job::Part(self)),
            None => {
                let Self { upload, bytes, buffer, _slot: slot, .. } = self;
                drop((bytes, slot));
                upload.part_ended(error, buffer);
            }
        }
    }
}

/// Receives the result.
struct Sink(Option<Part>);

impl WriteSink for Sink {
    fn done(mut self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        drop(buf);
        if let Some(part) = self.0.take() {
            part.ended(result);
        }
    }
}

/// A store that panics or drops the part must not leave a writer waiting forever.
impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(part) = self.0.take() {
            let message = format!("{}: the store dropped a part", part.upload.name);
            part.ended(Err(StoreError::new(ErrorKind::Io, message).retryable(true)));
        }
    }
}
