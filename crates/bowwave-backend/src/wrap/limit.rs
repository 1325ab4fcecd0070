//! A limit of requests in flight.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use super::{Ending, Layer, Wrapped, WrappedObject, WrappedWriteObject, backend_by_field};
use crate::sync::Mutex;
use crate::{
    Backend, Error, ErrorKind, Object, Profile, ReadBuf, ReadSink, WriteBuf, WriteObject, WriteSink,
};

/// A store that limits the requests in flight to the store below; others wait in order of arrival.
#[derive(Debug)]
pub struct Limit {
    store: Wrapped<Gate>,
}

impl Limit {
    /// Allows `requests` (at least 1) in flight to `inner`. If more than 4096 wait, requests fail
    /// as throttled.
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
    /// A thread is starting requests already; it also starts those that are added.
    pumping: bool,
}

enum Waiting {
    Read { inner: Arc<dyn Object>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink> },
    Write { inner: Arc<dyn WriteObject>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink> },
}

impl Layer for Gate {
    fn profile(&self, profile: Profile) -> Profile {
        Profile { slots: profile.slots.min(self.requests), ..profile }
    }

    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        object.layer.add(Waiting::Read { inner: Arc::clone(&object.inner), offset, buf, sink });
    }

    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        object.read.layer.add(Waiting::Write { inner: Arc::clone(&object.inner), offset, buf, sink });
    }
}

impl Gate {
    fn add(self: &Arc<Self>, request: Waiting) {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            drop(state);
            let message = format!("more than {WAITING_MAX} requests wait");
            return request.refuse(Error::new(ErrorKind::Throttled, message));
        }
        state.waiting.push_back(request);
        self.pump(state);
    }

    /// Starts requests as the limit allows. A loop, not a recursion: requests may end before they
    /// return.
    fn pump<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        if state.pumping {
            return;
        }
        state.pumping = true;
        while state.in_flight < self.requests
            && let Some(request) = state.waiting.pop_front()
        {
            state.in_flight += 1;
            drop(state);
            request.start(Arc::clone(self));
            state = self.state.lock();
        }
        state.pumping = false;
    }
}

impl Waiting {
    fn start(self, gate: Arc<Gate>) {
        match self {
            Self::Read { inner, offset, buf, sink } => {
                let end = move |sink: Box<dyn ReadSink>, buf, result| gate.passed(|| sink.done(buf, result));
                inner.read(offset, buf, Box::new(Ending { sink, end }));
            }
            Self::Write { inner, offset, buf, sink } => {
                let end = move |sink: Box<dyn WriteSink>, buf, result| gate.passed(|| sink.done(buf, result));
                inner.write(offset, buf, Box::new(Ending { sink, end }));
            }
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Read { buf, sink, .. } => sink.done(buf, Err(error)),
            Self::Write { buf, sink, .. } => sink.done(buf, Err(error)),
        }
    }
}

impl Gate {
    /// A request ended: calls `tell` for its sink, then starts the next one.
    fn passed(self: &Arc<Self>, tell: impl FnOnce()) {
        self.state.lock().in_flight -= 1;
        tell();
        self.pump(self.state.lock());
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { offset, buf, .. } => write!(f, "Read({offset}, {buf:?})"),
            Self::Write { offset, buf, .. } => write!(f, "Write({offset}, {buf:?})"),
        }
    }
}

/// Most requests that may wait.
const WAITING_MAX: usize = 4096;
