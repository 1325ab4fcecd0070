//! A bound on the requests in flight.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Layer, Wrapped, backend_by_field};
use crate::{Backend, Error, ErrorKind, Object, Profile, ReadBuf, ReadSink, Result};

/// A store that sends at most so many requests at once to the one below; more wait in order of arrival.
#[derive(Debug)]
pub struct Limit {
    store: Wrapped<Gate>,
}

impl Limit {
    /// At most `requests` (at least 1) of `inner` in flight. Beyond 4096 that wait, reads fail as throttled.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, requests: u32) -> Self {
        let gate = Gate { requests: requests.max(1), state: Mutex::default() };
        Self { store: Wrapped::new(&format!("limit:{requests}"), inner, gate) }
    }
}

backend_by_field!(Limit);

#[derive(Debug)]
struct Gate {
    requests: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: u32,
    waiting: VecDeque<Waiting>,
    /// A thread is starting reads already; it sees what others add.
    pumping: bool,
}

struct Waiting {
    inner: Arc<dyn Object>,
    offset: u64,
    buf: ReadBuf,
    sink: Box<dyn ReadSink>,
}

impl Layer for Gate {
    fn profile(&self, profile: Profile) -> Profile {
        Profile { slots: profile.slots.min(self.requests), ..profile }
    }

    fn read(
        self: &Arc<Self>,
        inner: &Arc<dyn Object>,
        _: &Arc<Path>,
        offset: u64,
        buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    ) {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            drop(state);
            let message = format!("more than {WAITING_MAX} reads wait");
            return sink.done(buf, Err(Error::new(ErrorKind::Throttled, message)));
        }
        state.waiting.push_back(Waiting { inner: Arc::clone(inner), offset, buf, sink });
        self.pump(state);
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what may start. A loop and not a recursion: reads may end before they return.
    fn pump<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        if state.pumping {
            return;
        }
        state.pumping = true;
        while state.in_flight < self.requests
            && let Some(Waiting { inner, offset, buf, sink }) = state.waiting.pop_front()
        {
            state.in_flight += 1;
            drop(state);
            inner.read(offset, buf, Box::new(Passing { sink, gate: Arc::clone(self) }));
            state = self.lock();
        }
        state.pumping = false;
    }
}

struct Passing {
    sink: Box<dyn ReadSink>,
    gate: Arc<Gate>,
}

impl ReadSink for Passing {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let Self { sink, gate } = *self;
        gate.lock().in_flight -= 1;
        sink.done(buf, result);
        gate.pump(gate.lock());
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("offset", &self.offset)
            .field("buf", &self.buf)
            .finish_non_exhaustive()
    }
}

/// Most reads that may wait.
const WAITING_MAX: usize = 4096;
