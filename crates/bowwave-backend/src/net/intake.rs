//! A body on its way into the lent buffer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::checksum::Verifier;
use super::exchange::{Incoming, Next};
use crate::{Error, ErrorKind, ReadBuf, ReadSink, Result};

/// Takes the bytes of one answer, tells of them as they come, and ends the read.
pub(crate) struct Intake {
    buf: ReadBuf,
    /// Bytes that the answer must have.
    len: usize,
    taken: usize,
    told: usize,
    sink: Box<dyn ReadSink>,
}

impl Intake {
    /// For an answer of `len <= buf.len()` bytes.
    pub(crate) fn new(buf: ReadBuf, len: usize, sink: Box<dyn ReadSink>) -> Self {
        Self { buf, len, taken: 0, told: 0, sink }
    }

    /// Bytes that the answer must have.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// When the read must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sink.deadline()
    }

    /// Tells when nobody wants the bytes any more, if that may happen.
    pub(crate) fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        self.sink.unwanted()
    }

    /// Takes a whole body: exactly [`Self::len`] bytes. `place` names the object in errors. Bytes that a checksum covers are
    /// told of when it was found right.
    pub(crate) async fn take(
        &mut self,
        place: &str,
        mut incoming: Incoming,
        verifier: &mut Verifier,
    ) -> Result<()> {
        let mut deadline = self.sink.deadline();
        loop {
            let bytes = match incoming.next(deadline).await {
                // All of it is there: how the connection ends says nothing more.
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

    /// Takes all bytes of the answer from memory: exactly [`Self::len`].
    pub(crate) fn take_all(&mut self, bytes: &[u8]) {
        self.buf.copy_in(0, bytes);
        self.taken = bytes.len();
    }

    /// Ends the read: with all bytes, or with what went wrong.
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

/// Bytes between two tellings.
const STEP_BYTES: usize = 64 << 10;
