//! A store that counts the reads and writes of the store below.

use std::sync::{Mutex, MutexGuard};

use super::*;

/// A store that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    store: Wrapped<Counter>,
}

/// The counts, shared by a store and its test.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) requests: u64,
    pub(crate) in_flight: u64,
    pub(crate) in_flight_max: u64,
    /// Bytes transferred.
    pub(crate) bytes: u64,
    /// Of each request, in order of start.
    pub(crate) offsets: Vec<u64>,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Self {
        Self { store: Wrapped::new("counted", inner, Counter(Arc::default())) }
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.store.layer.0)
    }
}

backend_by_field!(Counted);

impl Counts {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.state().requests
    }

    fn begin(&self, offset: u64) {
        let mut state = self.state();
        state.requests += 1;
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        state.offsets.push(offset);
    }

    fn end(&self, result: &Result<usize>) {
        let mut state = self.state();
        state.in_flight -= 1;
        state.bytes += *result.as_ref().unwrap_or(&0) as u64;
    }
}

#[derive(Debug)]
struct Counter(Arc<Counts>);

impl Layer for Counter {
    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.0.begin(offset);
        let counts = Arc::clone(&self.0);
        let end = move |sink: Box<dyn ReadSink>, buf, result| {
            counts.end(&result);
            sink.done(buf, result);
        };
        object.inner.read(offset, buf, Box::new(Ending { sink, end }));
    }

    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.0.begin(offset);
        let counts = Arc::clone(&self.0);
        let end = move |sink: Box<dyn WriteSink>, buf, result| {
            counts.end(&result);
            sink.done(buf, result);
        };
        object.inner.write(offset, buf, Box::new(Ending { sink, end }));
    }
}
