//! A record of each request.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Layer, Wrapped, WrappedObject, WrappedWriteObject, backend_by_field};
use crate::{
    Backend, Error, ErrorKind, Identity, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink,
};

/// A store that records each request.
#[derive(Debug)]
pub struct Trace {
    store: Wrapped<Recorder>,
}

impl Trace {
    /// Records reads, writes, syncs and finishes of `inner`.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let log = TraceLog { epoch: Instant::now(), state: Mutex::default() };
        Self { store: Wrapped::new("trace", inner, Recorder { log: Arc::new(log) }) }
    }

    /// The record, shared with this store.
    pub fn log(&self) -> Arc<TraceLog> {
        Arc::clone(&self.store.layer.log)
    }
}

backend_by_field!(Trace);

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes.
    Read,
    /// To take bytes.
    Write,
    /// Make bytes durable.
    Sync,
    /// Publish bytes.
    Finish,
}

/// A completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number in order of start, from 0.
    pub number: u64,
    /// Its kind.
    pub operation: Operation,
    /// The object.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Bytes requested or passed; 0 for syncs and finishes, as is their offset.
    pub len: usize,
    /// Start, since the store was created.
    pub start: Duration,
    /// End, since the store was created.
    pub end: Duration,
    /// Bytes transferred, or the error.
    pub outcome: std::result::Result<usize, ErrorKind>,
}

/// The requests of a [`Trace`]: the last million of them, and sums of all.
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
    /// Requests started so far.
    pub fn requests(&self) -> u64 {
        self.lock().started
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> u64 {
        let state = self.lock();
        state.started - state.ended
    }

    /// Most requests that were in flight at once.
    pub fn in_flight_max(&self) -> u64 {
        self.lock().in_flight_max
    }

    /// Bytes transferred so far.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// The completed requests, in order of their ends.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.iter().cloned().collect()
    }

    /// Clears records and sums; requests in flight still count as in flight.
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
    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let entry = Pending::begin(&self.log, Operation::Read, &object.path, offset, buf.len());
        object.inner.read(offset, buf, Box::new(Recording { sink, entry }));
    }

    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let entry = Pending::begin(&self.log, Operation::Write, &object.read.path, offset, buf.len());
        object.inner.write(offset, buf, Box::new(Recording { sink, entry }));
    }

    fn sync(&self, inner: &dyn WriteObject, path: &Path, data_only: bool) -> Result<()> {
        let entry = Pending::begin(&self.log, Operation::Sync, &path.into(), 0, 0);
        let result = inner.sync(data_only);
        entry.end(result.as_ref().map(|()| 0));
        result
    }

    fn finish(&self, inner: &dyn WriteObject, path: &Path) -> Result<Identity> {
        let entry = Pending::begin(&self.log, Operation::Finish, &path.into(), 0, 0);
        let result = inner.finish();
        entry.end(result.as_ref().map(|_| 0));
        result
    }
}

/// A request in flight.
struct Pending {
    log: Arc<TraceLog>,
    operation: Operation,
    path: Arc<Path>,
    number: u64,
    offset: u64,
    len: usize,
    start: Duration,
}

impl Pending {
    fn begin(log: &Arc<TraceLog>, operation: Operation, path: &Arc<Path>, offset: u64, len: usize) -> Self {
        let mut state = log.lock();
        let number = state.started;
        state.started += 1;
        state.in_flight_max = state.in_flight_max.max(state.started - state.ended);
        drop(state);
        let start = log.epoch.elapsed();
        Self { log: Arc::clone(log), operation, path: Arc::clone(path), number, offset, len, start }
    }

    fn end(self, result: std::result::Result<usize, &Error>) {
        let Self { log, operation, path, number, offset, len, start } = self;
        let outcome = result.map_err(Error::kind);
        let end = log.epoch.elapsed();
        let record = Record { number, operation, path: path.to_path_buf(), offset, len, start, end, outcome };
        let mut state = log.lock();
        state.ended += 1;
        state.bytes += outcome.unwrap_or(0) as u64;
        if state.records.len() >= RECORDS_MAX {
            state.records.pop_front();
        }
        state.records.push_back(record);
    }
}

/// A request in flight, with the sink of a read or of a write.
struct Recording<S: ?Sized> {
    sink: Box<S>,
    entry: Pending,
}

impl ReadSink for Recording<dyn ReadSink> {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn deadline(&self) -> Option<Instant> {
        self.sink.deadline()
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        self.sink.unwanted()
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let Self { sink, entry } = *self;
        entry.end(result.as_ref().copied());
        sink.done(buf, result);
    }
}

impl WriteSink for Recording<dyn WriteSink> {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        let Self { sink, entry } = *self;
        entry.end(result.as_ref().copied());
        sink.done(buf, result);
    }
}

/// Records kept.
const RECORDS_MAX: usize = 1 << 20;
