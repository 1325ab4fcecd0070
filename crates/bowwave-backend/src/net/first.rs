//! The first bytes of an object, requested together with its size and version.
//!
//! ```text
//!   open     GET bytes=0-    -> size, version, then the bytes
//!   reads    |--a--|--b--|   -> each takes its bytes of this response, in turn
//! ```
//!
//! A read takes bytes only if it begins where the read before ended, or shortly behind. All others
//! send requests of their own, also a second read of the same bytes, and all that follow a read
//! that failed. So no read waits for bytes that no other read receives.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::exchange::{Incoming, Next};
use super::runtime;
use crate::sync::Mutex;
use crate::{Result, SMALL_BYTES};

/// The body of a response, which one read receives, or several in turn.
#[derive(Debug)]
pub(super) struct Body {
    incoming: Option<Incoming>,
    /// Received bytes that belong to the next read.
    left: Bytes,
    /// Bytes that no read has taken.
    rest: u64,
    /// The first of these, if no read wants them.
    skip: u64,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Body {
    /// The body of a response that announced `len` bytes.
    pub(super) fn new(incoming: Incoming, len: u64, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { incoming: Some(incoming), left: Bytes::new(), rest: len, skip: 0, _permit: permit }
    }

    /// Bytes that no read has taken.
    pub(super) fn rest(&self) -> u64 {
        self.rest
    }

    /// Another read receives the rest.
    pub(super) fn resume(&mut self) {
        if let Some(incoming) = &mut self.incoming {
            incoming.resume();
        }
    }

    /// The next event, as [`Incoming::next`]. Bytes are [taken](Self::take) afterwards.
    pub(super) async fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        loop {
            let next = match &mut self.incoming {
                _ if !self.left.is_empty() => Next::Bytes(std::mem::take(&mut self.left)),
                Some(incoming) => incoming.next(deadline).await?,
                None => Next::End,
            };
            let Next::Bytes(mut bytes) = next else { return Ok(next) };
            let skipped = self.skip.min(bytes.len() as u64);
            (self.skip, self.rest) = (self.skip - skipped, self.rest.saturating_sub(skipped));
            let bytes = bytes.split_off(skipped as usize);
            if !bytes.is_empty() {
                return Ok(Next::Bytes(bytes));
            }
        }
    }

    /// Takes up to `len` of these bytes; the others belong to the next read.
    pub(super) fn take(&mut self, mut bytes: Bytes, len: usize) -> Bytes {
        self.left = bytes.split_off(bytes.len().min(len));
        self.rest = self.rest.saturating_sub(bytes.len() as u64);
        bytes
    }
}

impl Drop for Body {
    /// Receives the rest of a small response: its connection can then be used again.
    fn drop(&mut self) {
        let Some(mut incoming) = self.incoming.take().filter(|_| (1..=SMALL_BYTES).contains(&self.rest))
        else {
            return;
        };
        runtime::spawn(
            async move { while let Ok(Next::Bytes(_) | Next::Due) = incoming.next(None).await {} },
        );
    }
}

/// Reads that take the bytes of the response to an open.
#[derive(Debug, Default)]
pub(super) struct First(Arc<Mutex<Option<Untaken>>>);

/// The bytes of the response that no read has claimed.
#[derive(Debug)]
struct Untaken {
    range: Range<u64>,
    /// From the read before: it passes the body on at its end.
    body: oneshot::Receiver<Body>,
}

/// A read's part of the response.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) range: Range<u64>,
    /// Bytes before it that no read wants.
    skip: u64,
    body: oneshot::Receiver<Body>,
    /// To the next read, if bytes are left.
    pass: Option<oneshot::Sender<Body>>,
}

impl First {
    /// The bytes `range` arrive with `body`.
    pub(super) fn of(range: Range<u64>, body: Body) -> Self {
        let (sender, receiver) = oneshot::channel();
        // The receiver exists.
        sender.send(body).ok();
        Self::new(range, receiver)
    }

    /// The bytes `range` arrive with a body that is not there yet, and may not come.
    pub(super) fn new(range: Range<u64>, body: oneshot::Receiver<Body>) -> Self {
        let untaken = Arc::new(Mutex::new(Some(Untaken { range, body })));
        let kept = Arc::downgrade(&untaken);
        runtime::spawn(async move {
            tokio::time::sleep(UNTAKEN_MAX).await;
            let expired = kept.upgrade().and_then(|untaken| untaken.lock().take());
            drop(expired);
        });
        Self(untaken)
    }

    /// Whether bytes wait for a read.
    pub(super) fn is_there(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The beginning of a read of `range`, if its bytes are next.
    pub(super) fn claim(&self, range: &Range<u64>) -> Option<Claim> {
        let mut untaken = self.0.lock();
        let skipped = |found: &Untaken| range.start.checked_sub(found.range.start);
        let is_next = |found: &Untaken| {
            skipped(found).is_some_and(|skip| skip <= SKIP_BYTES_MAX) && range.start < found.range.end
        };
        let found = untaken.take_if(|found| is_next(found))?;
        let skip = skipped(&found)?;
        let end = found.range.end.min(range.end);
        let mut pass = None;
        if end < found.range.end {
            let (sender, body) = oneshot::channel();
            *untaken = Some(Untaken { range: end..found.range.end, body });
            pass = Some(sender);
        }
        Some(Claim { range: range.start..end, skip, body: found.body, pass })
    }
}

impl Claim {
    /// The body, once the read before has passed it on; `None` if that read failed.
    pub(super) async fn body(&mut self) -> Option<Body> {
        let mut body = (&mut self.body).await.ok()?;
        body.skip = self.skip;
        Some(body)
    }

    /// Lets the next read have the rest.
    pub(super) fn pass(self, body: Body) {
        if let Some(next) = self.pass {
            // Without a next read the body is dropped.
            next.send(body).ok();
        }
    }
}

/// How long bytes wait for a read. Longer: programs that open files without reading them occupy
/// more connections. Shorter: a busy program requests the bytes again.
const UNTAKEN_MAX: Duration = Duration::from_secs(2);
/// Most bytes that are received and dropped because a read begins behind them: a page, of the end
/// of an object whose size was not known. More: reads wait for bytes that they do not want.
const SKIP_BYTES_MAX: u64 = 64 << 10;
