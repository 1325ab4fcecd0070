//! Hedged reads: a late demand read is requested a second time, and the first response counts.
//!
//! ```text
//!   first request   ├────────────────────────────── late ···✕ no longer needed
//!   second request              ├───────────┤ its bytes go to the reader
//!                        the read is late
//! ```
//!
//! The core's dispatcher decides which reads are late, which are hedged, and which response counts.
//! Each request has its own buffer: until a store returns a buffer, however late, it may write to
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bowwave_backend::{Error as StoreError, Object, ReadBuf, ReadSink};
use bowwave_core::schedule::DispatchId;

use crate::queue::Queue;
use crate::sync::{Arc, Mutex};

/// A read that may be hedged.
#[derive(Debug)]
pub(crate) struct Race {
    queue: Arc<Queue>,
    id: DispatchId,
    object: Arc<dyn Object>,
    offset: u64,
    state: Mutex<State>,
    /// The other request is no longer needed.
    unwanted: Arc<AtomicBool>,
}

struct State {
    /// Destination of the bytes, until they arrive.
    prize: Option<(ReadBuf, Box<dyn ReadSink>)>,
    error: Option<StoreError>,
}

/// One of the two requests.
struct Runner {
    race: Arc<Race>,
    is_second: bool,
    ended: bool,
}

impl Race {
    /// Reads `buf.len()` bytes for a dispatch, with a second request if the dispatcher says so.
    pub(crate) fn run(
        queue: &Arc<Queue>,
        id: DispatchId,
        object: Arc<dyn Object>,
        offset: u64,
        (buf, sink): (ReadBuf, Box<dyn ReadSink>),
    ) {
        let bytes = buf.len() as u64;
        let state = Mutex::new(State { prize: Some((buf, sink)), error: None });
        let unwanted = Arc::new(AtomicBool::new(false));
        let race = Arc::new(Self { queue: Arc::clone(queue), id, object, offset, state, unwanted });
        if queue.begin_race(bytes, &race) {
            race.send(false);
        } else if let Some((buf, sink)) = race.take() {
            race.object.read(offset, buf, sink);
        }
    }

    pub(crate) fn id(&self) -> DispatchId {
        self.id
    }

    /// Sends one of the requests, unless the read has just ended.
    pub(crate) fn send(self: &Arc<Self>, is_second: bool) {
        let Some(len) = self.state.lock().prize.as_ref().map(|(buf, _)| buf.len()) else { return };
        let runner = Runner { race: Arc::clone(self), is_second, ended: false };
        self.object.read(self.offset, ReadBuf::zeroed(len), Box::new(runner));
    }

    /// A request returned bytes.
    fn answered(&self, from: &ReadBuf, bytes: usize, is_second: bool) {
        if self.queue.race_answered(self.id, is_second)
            && let Some((mut buf, sink)) = self.take()
        {
            buf.copy_in(0, &from.to_vec()[..bytes]);
            sink.done(buf, Ok(bytes));
        }
    }

    /// A request failed or was dropped.
    fn failed(&self, error: Option<StoreError>) {
        let error = {
            let mut state = self.state.lock();
            state.error = error.or_else(|| state.error.take());
            state.error.clone()
        };
        // The other request may still succeed.
        if self.queue.race_failed(self.id)
            && let Some((buf, sink)) = self.take()
        {
            match error {
                Some(error) => sink.done(buf, Err(error)),
                // The sink reports that itself.
                None => drop((buf, sink)),
            }
        }
    }

    /// Takes the destination: the read has ended.
    fn take(&self) -> Option<(ReadBuf, Box<dyn ReadSink>)> {
        self.unwanted.store(true, Ordering::Relaxed);
        self.state.lock().prize.take()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("ended", &self.prize.is_none()).finish_non_exhaustive()
    }
}

impl ReadSink for Runner {
    fn progress(&mut self, _bytes: usize) {
        // The bytes are checked when the buffer returns.
    }

    fn done(mut self: Box<Self>, buf: ReadBuf, result: bowwave_backend::Result<usize>) {
        self.ended = true;
        match result {
            Ok(bytes) => self.race.answered(&buf, bytes, self.is_second),
            Err(error) => self.race.failed(Some(error)),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.race.state.lock().prize.as_ref().and_then(|(_, sink)| sink.deadline())
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.race.unwanted))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.ended {
            self.race.failed(None);
        }
    }
}
