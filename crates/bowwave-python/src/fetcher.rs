//! A store over a Python callable `fetch(start, end)`, called by threads of its own.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bowwave_engine::backend::sync::{Condvar, Mutex};
use bowwave_engine::backend::{Backend, Error, Object, Profile, ReadBuf, ReadSink, Result};
use bowwave_engine::{ErrorKind, Identity};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::Buffer;
use crate::errors::of_exception;
use crate::process::generation;

/// Requests in flight for one fetcher, as for an object store. File systems have limits of their
/// own, such as 10 connections in s3fs: the rest waits there.
const SLOTS: u32 = 32;
/// Threads of all fetchers together.
const THREADS: usize = 64;
/// Best request of an object store over a file system of Python, whose requests cost about 1 ms of
/// the interpreter.
const REQUEST: u64 = 4 << 20;
const LATENCY: Duration = Duration::from_millis(30);

/// The last exception of a fetcher, and its text in the store's error: readers raise it again.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<Option<(String, PyErr)>>>);

impl Failures {
    /// The exception behind an error of the engine.
    pub(crate) fn behind(&self, py: Python<'_>, error: &bowwave_engine::Error) -> Option<PyErr> {
        let last = self.0.lock();
        let (_, exception) = last.as_ref().filter(|(text, _)| error.to_string().contains(text))?;
        Some(exception.clone_ref(py))
    }

    fn put(&self, text: String, exception: PyErr) {
        *self.0.lock() = Some((text, exception));
    }
}

/// The store.
#[derive(Debug)]
pub(crate) struct Fetcher {
    object: Arc<Fetched>,
}

/// Its only object.
struct Fetched {
    name: String,
    identity: Identity,
    fetch: Arc<Py<PyAny>>,
    failures: Failures,
}

/// A read that waits for a thread.
struct Job {
    fetch: Arc<Py<PyAny>>,
    failures: Failures,
    name: String,
    start: u64,
    buf: ReadBuf,
    sink: Box<dyn ReadSink>,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    work: Condvar,
    /// The last running job has ended.
    quiet: std::sync::Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    running: usize,
    /// The interpreter ends.
    ended: bool,
}

impl Fetcher {
    pub(crate) fn new(
        name: &str,
        size: u64,
        tag: Option<String>,
        fetch: Py<PyAny>,
        failures: Failures,
    ) -> Self {
        let identity = Identity { etag: tag, size, ..Identity::default() };
        let object = Fetched { name: name.to_owned(), identity, fetch: Arc::new(fetch), failures };
        Self { object: Arc::new(object) }
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Backend for Fetcher {
    fn url(&self) -> &str {
        &self.object.name
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        if path.as_os_str().is_empty() {
            return Ok(Arc::clone(&self.object) as _);
        }
        Err(Error::new(ErrorKind::NotFound, format!("{}: no such object", path.display())))
    }

    fn profile(&self) -> Profile {
        Profile {
            request_bytes_best: REQUEST,
            slots: SLOTS,
            latency: LATENCY,
            ..Profile::read_only("fetcher")
        }
    }
}

impl Object for Fetched {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let (fetch, failures) = (Arc::clone(&self.fetch), self.failures.clone());
        let job = Job { fetch, failures, name: self.name.clone(), start: offset, buf, sink };
        if let Err(job) = pool().add(job) {
            let error = Error::new(ErrorKind::Unavailable, "no thread can be started: raise ulimit -u");
            job.sink.done(job.buf, Err(error));
        }
    }
}

/// The pool of this process: a child has none of its parent's threads.
fn pool() -> &'static Pool {
    static POOLS: Mutex<Vec<(u64, &'static Pool)>> = Mutex::new(Vec::new());
    let mut pools = POOLS.lock();
    let now = generation();
    if let Some((_, pool)) = pools.iter().find(|(generation, _)| *generation == now) {
        return pool;
    }
    let pool: &'static Pool = Box::leak(Box::default());
    pools.push((now, pool));
    pool
}

impl Pool {
    /// Queues a job, or returns it if there is no thread for it.
    fn add(&'static self, job: Job) -> std::result::Result<(), Box<Job>> {
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            job.refuse();
            return Ok(());
        }
        if state.idle <= state.jobs.len() && state.threads < THREADS {
            let spawned = thread::Builder::new().name("bowwave-fetch".into()).spawn(|| self.work());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Box::new(job)),
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                state.idle += 1;
                state = self.work.wait(state);
                state.idle -= 1;
            };
            state.running += 1;
            drop(state);
            job.run();
            let mut state = self.state.lock();
            state.running -= 1;
            if state.running == 0 {
                self.quiet.notify_all();
            }
        }
    }

    /// Fails all jobs that have not begun, now and later, and waits up to `most` for the others.
    fn end(&self, most: Duration) {
        let mut state = self.state.lock();
        state.ended = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        jobs.into_iter().for_each(Job::refuse);
        let running = |state: &mut State| state.running > 0;
        drop(self.quiet.wait_timeout_while(self.state.lock(), most, running));
    }
}

/// Call before the interpreter ends. Waits up to `seconds` for the fetcher calls in progress, and
/// fails all others. A thread that requests the GIL after the end is ended by CPython in the middle
/// of the engine, which aborts the process.
#[pyfunction]
pub(crate) fn end_fetches(py: Python<'_>, seconds: f64) {
    py.detach(|| pool().end(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)));
}

impl Job {
    fn run(self) {
        let Self { fetch, failures, name, start, mut buf, sink } = self;
        let end = start + buf.len() as u64;
        let result = Python::try_attach(|py| {
            let fetched = fetch.bind(py).call1((start, end)).and_then(|bytes| copied(py, &bytes, &mut buf));
            // Here, where the interpreter is at hand.
            drop(fetch);
            fetched.map_err(|raised| {
                let error = of_exception(py, &name, &raised);
                failures.put(error.to_string(), raised);
                error
            })
        });
        sink.done(buf, result.unwrap_or_else(|| Err(ended())));
    }

    /// Fails the read without a call.
    fn refuse(self) {
        self.sink.done(self.buf, Err(ended()));
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the interpreter ends").retryable(false)
}

/// Copies what a fetcher returned, without the interpreter if that is safe.
fn copied(py: Python<'_>, bytes: &Bound<'_, PyAny>, buf: &mut ReadBuf) -> PyResult<usize> {
    if let Ok(bytes) = bytes.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        let count = bytes.len().min(buf.len());
        py.detach(|| buf.copy_in(0, &bytes[..count]));
        return Ok(count);
    }
    let held = Buffer::readable(bytes)?;
    let bytes = held.as_slice();
    let count = bytes.len().min(buf.len());
    buf.copy_in(0, &bytes[..count]);
    Ok(count)
}
