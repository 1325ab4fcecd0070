//! A body on its way into the lent buffer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::checksum::Verifier;
use super::exchange::{Incoming, Next};
use crate::{Error, ErrorKind, ReadBuf, ReadSink, Result};

/// Receives the bytes of one response, reports progress, and ends the read.
pub(crate) struct Intake {
    buf: ReadBuf,
    /// Expected bytes of the response.
    len: usize,
    taken: usize,
    told: usize,
    sink: Box<dyn ReadSink>,
}

impl Intake {
    /// For a response of `len <= buf.len()` bytes.
    pub(crate) fn new(buf: ReadBuf, len: usize, sink: Box<dyn ReadSink>) -> Self {
        Self { buf, len, taken: 0, told: 0, sink }
    }

    /// Expected bytes of the response.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// When the read must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sink.deadline()
    }

    /// Becomes true when the bytes are no longer needed, if that can happen.
    pub(crate) fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        self.sink.unwanted()
    }

    /// Receives a whole body: exactly [`Self::len`] bytes. `place` names the object in errors.
    /// Bytes under a checksum are reported once they are verified.
    pub(crate) async fn take(
        &mut self,
        place: &str,
        mut incoming: Incoming,
        verifier: &mut Verifier,
    ) -> Result<()> {
        let mut deadline = self.sink.deadline();
        loop {
            let bytes = match incoming.next(deadline).await {
                // All bytes arrived: the connection's end does not matter.
                Err(_) if self.taken == self.len => break,
                Err(error) => {
                    self.tell(verifier);
                    return Err(error);
                }
                Ok(Next::Bytes(bytes)) => bytes,
                Ok(Next::End) => break,
                Ok(Next::Due) => {
                    deadline = self.sink.deadline();
                    continue;
                }
            };
            if bytes.len() > self.len - self.taken {
                let message = format!("{place}: the body is longer than the {} bytes it announced", self.len);
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            self.buf.copy_in(self.taken, &bytes);
            self.taken += bytes.len();
            verifier
                .take(&bytes)
                .map_err(|what| Error::new(ErrorKind::Corrupt, format!("{place}: {what}")))?;
            if self.taken - self.told >= STEP_BYTES && self.taken < self.len {
                self.tell(verifier);
            }
        }
        if self.taken < self.len {
            self.tell(verifier);
            let message = format!("{place}: the body ended after {} of {} bytes", self.taken, self.len);
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        Ok(())
    }

    /// Copies the whole response from memory: exactly [`Self::len`] bytes.
    pub(crate) fn take_all(&mut self, bytes: &[u8]) {
        self.buf.copy_in(0, bytes);
        self.taken = bytes.len();
    }

    /// Ends the read: with all bytes, or with an error.
    pub(crate) fn end(self, result: Result<()>) {
        let taken = self.taken;
        self.sink.done(self.buf, result.map(|()| taken));
    }

    fn tell(&mut self, verifier: &Verifier) {
        let known = verifier.known(self.taken);
        if known > self.told {
            self.told = known;
            self.sink.progress(known);
        }
    }
}

/// Bytes between two progress reports.
const STEP_BYTES: usize = 64 << 10;
