//! A record of each request.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Layer, Wrapped, backend_by_field};
use crate::{Backend, ErrorKind, Object, ReadBuf, ReadSink, Result};

/// A store that writes down each read.
#[derive(Debug)]
pub struct Trace {
    store: Wrapped<Recorder>,
}

impl Trace {
    /// Records the reads of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let log = TraceLog { epoch: Instant::now(), state: Mutex::default() };
        Self { store: Wrapped::new("trace", inner, Recorder { log: Arc::new(log) }) }
    }

    /// The record, shared with this store.
    #[must_use]
    pub fn log(&self) -> Arc<TraceLog> {
        Arc::clone(&self.store.layer.log)
    }
}

backend_by_field!(Trace);

/// One read that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number in order of start, from 0.
    pub number: u64,
    /// The object.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: usize,
    /// Start, since the store was made.
    pub start: Duration,
    /// End, since the store was made.
    pub end: Duration,
    /// Bytes that came, or what went wrong.
    pub outcome: std::result::Result<usize, ErrorKind>,
}

/// The reads of a [`Trace`]: the last million of them, and sums of all.
#[derive(Debug)]
pub struct TraceLog {
    epoch: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    started: u64,
    ended: u64,
    bytes: u64,
    in_flight_max: u64,
}

impl TraceLog {
    /// Reads started so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.lock().started
    }

    /// Reads in flight now.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let state = self.lock();
        state.started - state.ended
    }

    /// Most reads that were in flight at once.
    #[must_use]
    pub fn in_flight_max(&self) -> u64 {
        self.lock().in_flight_max
    }

    /// Bytes that came so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// The reads that have ended, in order of end.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.iter().cloned().collect()
    }

    /// Forgets records and sums; reads in flight go on counting as in flight.
    pub fn clear(&self) {
        let mut state = self.lock();
        let in_flight = state.started - state.ended;
        *state = State { started: in_flight, in_flight_max: in_flight, ..State::default() };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Recorder {
    log: Arc<TraceLog>,
}

impl Layer for Recorder {
    fn read(
        self: &Arc<Self>,
        inner: &Arc<dyn Object>,
        path: &Arc<Path>,
        offset: u64,
        buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    ) {
        let mut state = self.log.lock();
        let number = state.started;
        state.started += 1;
        state.in_flight_max = state.in_flight_max.max(state.started - state.ended);
        drop(state);
        let (log, path, len) = (Arc::clone(&self.log), Arc::clone(path), buf.len());
        let start = log.epoch.elapsed();
        inner.read(offset, buf, Box::new(Recording { sink, log, path, number, offset, len, start }));
    }
}

struct Recording {
    sink: Box<dyn ReadSink>,
    log: Arc<TraceLog>,
    path: Arc<Path>,
    number: u64,
    offset: u64,
    len: usize,
    start: Duration,
}

impl ReadSink for Recording {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let Self { sink, log, path, number, offset, len, start } = *self;
        let outcome = result.as_ref().copied().map_err(|error| error.kind());
        let end = log.epoch.elapsed();
        let record = Record { number, path: path.to_path_buf(), offset, len, start, end, outcome };
        let mut state = log.lock();
        state.ended += 1;
        state.bytes += outcome.unwrap_or(0) as u64;
        if state.records.len() >= RECORDS_MAX {
            state.records.pop_front();
        }
        state.records.push_back(record);
        drop(state);
        sink.done(buf, result);
    }
}

/// Records kept.
const RECORDS_MAX: usize = 1 << 20;
