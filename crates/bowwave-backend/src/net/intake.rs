//! A body on its way into the lent buffer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::{Stream, StreamExt as _};

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

    /// Tells when nobody wants the bytes any more, if that may happen.
    pub(crate) fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        self.sink.unwanted()
    }

    /// Takes a whole body: exactly [`Self::len`] bytes. `place` names the object in errors, `failed` explains theirs.
    pub(crate) async fn take<B, E>(
        &mut self,
        place: &str,
        body: impl Stream<Item = std::result::Result<B, E>>,
        failed: impl Fn(E) -> Error,
    ) -> Result<()>
    where
        B: AsRef<[u8]>,
    {
        let mut body = std::pin::pin!(body);
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(&failed).inspect_err(|_| self.tell())?;
            let bytes = bytes.as_ref();
            if bytes.len() > self.len - self.taken {
                let message = format!("{place}: the body is longer than the {} bytes it announced", self.len);
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            self.buf.copy_in(self.taken, bytes);
            self.taken += bytes.len();
            if self.taken - self.told >= STEP_BYTES && self.taken < self.len {
                self.tell();
            }
        }
        if self.taken < self.len {
            self.tell();
            let message = format!("{place}: the body ended after {} of {} bytes", self.taken, self.len);
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        Ok(())
    }

    /// Ends the read: with all bytes, or with what went wrong.
    pub(crate) fn end(self, result: Result<()>) {
        let taken = self.taken;
        self.sink.done(self.buf, result.map(|()| taken));
    }

    fn tell(&mut self) {
        if self.taken > self.told {
            self.told = self.taken;
            self.sink.progress(self.taken);
        }
    }
}

/// Bytes between two tellings.
const STEP_BYTES: usize = 64 << 10;
