//! The threads that read from the disk, and the timer for a disk that hangs.
//!
//! ```text
//!   read ──► a worker ──► every byte verified ──► the reader
//!     │         └──► missing or damaged ──► the store ──► the reader, and a copy to the disk
//!     └──► not complete within the limit: the timer takes buffer and sink back ──► the store
//! ```
//!
//! A system call that hangs cannot be cancelled. So a worker reads into its own memory ([`CHUNK`]
//! bytes), and copies verified bytes to the reader's buffer only while it still owns the read. A
//! cache never has more than [`WORKERS`] workers: those that hang are not replaced.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Instant;
use std::{collections::VecDeque, io};

use super::Counters;
use super::directory::Directory;
use super::health::{Admission, Health, Limits};
use super::key::Key;
use super::segment::{self, CHUNK, Found};
use super::writes::Writes;
use crate::sync::{Condvar, Mutex};
use crate::{Object, ReadBuf, ReadSink};

/// Threads that wait for the disk: as many as a disk serves well.
pub(super) const WORKERS: usize = 4;
/// Most reads that wait for a worker; others go to the store.
const WAITING_MAX: usize = 4096;

/// A read, as it was requested.
pub(super) struct Pending {
    pub(super) inner: Arc<dyn Object>,
    pub(super) key: Arc<Key>,
    pub(super) wanted: Range<u64>,
    pub(super) buf: ReadBuf,
    pub(super) sink: Box<dyn ReadSink>,
}

/// A read that was passed to the workers.
struct Request {
    key: Arc<Key>,
    wanted: Range<u64>,
    deadline: Instant,
    is_probe: bool,
    /// Taken by the worker with the result, or by the timer.
    pending: Mutex<Option<Pending>>,
}

impl Request {
    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock()
    }
}

#[derive(Debug)]
pub(super) struct Reads {
    directory: Arc<Directory>,
    writes: Arc<Writes>,
    counters: Arc<Counters>,
    limits: Limits,
    state: Mutex<State>,
    /// Wakes workers: there is a request.
    work: Condvar,
    /// Wakes the timer: there is a first deadline.
    timer: Condvar,
}

struct State {
    waiting: VecDeque<Arc<Request>>,
    /// The request of each worker.
    current: [Option<Arc<Request>>; WORKERS],
    health: Health,
    /// The timer waits for a first deadline.
    is_timer_idle: bool,
    stopping: bool,
}

impl Reads {
    /// Starts the threads.
    pub(super) fn start(
        directory: Arc<Directory>,
        writes: Arc<Writes>,
        counters: Arc<Counters>,
        limits: Limits,
    ) -> io::Result<Arc<Self>> {
        let state = State {
            waiting: VecDeque::new(),
            current: [const { None }; WORKERS],
            health: Health::new(limits, Instant::now()),
            is_timer_idle: false,
            stopping: false,
        };
        let (state, work, timer) = (Mutex::new(state), Condvar::new(), Condvar::new());
        let reads = Arc::new(Self { directory, writes, counters, limits, state, work, timer });
        // Stops started threads if another cannot be started.
        let stop = Stop(Arc::clone(&reads));
        for index in 0..WORKERS {
            let shared = Arc::clone(&reads);
            thread::Builder::new().name(format!("bowwave-disk-{index}")).spawn(move || shared.work(index))?;
        }
        let shared = Arc::clone(&reads);
        thread::Builder::new().name("bowwave-timer".to_owned()).spawn(move || shared.time())?;
        std::mem::forget(stop);
        Ok(reads)
    }

    /// Reads from the disk, or from the store if the disk is bypassed.
    pub(super) fn add(&self, pending: Pending) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_idle = state.waiting.is_empty() && state.current.iter().any(Option::is_none);
        let admission = state.health.admit(now, is_idle);
        if admission == Admission::Bypass || state.waiting.len() >= WAITING_MAX {
            drop(state);
            self.counters.count(|stats| stats.bypassed += 1);
            return self.ask_store(pending, false);
        }
        state.waiting.push_back(Arc::new(Request {
            key: Arc::clone(&pending.key),
            wanted: pending.wanted.clone(),
            deadline: now + self.limits.answer,
            is_probe: admission == Admission::Probe,
            pending: Mutex::new(Some(pending)),
        }));
        let wake_timer = std::mem::take(&mut state.is_timer_idle);
        drop(state);
        self.work.notify_one();
        if wake_timer {
            self.timer.notify_one();
        }
    }

    /// Whether reads ask the disk.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().health.is_up()
    }

    /// The directory, for tests.
    #[cfg(test)]
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Ends the threads once the waiting reads have ended. Does not wait for them.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
        self.timer.notify_all();
    }

    fn work(&self, index: usize) {
        let mut scratch = vec![0; CHUNK];
        let mut state = self.state.lock();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                state.current[index] = Some(Arc::clone(&request));
                drop(state);
                let answered = self.serve(&request, &mut scratch);
                state = self.state.lock();
                state.current[index] = None;
                if answered && request.is_probe {
                    state.health.answered(Instant::now());
                }
            } else if state.stopping {
                return;
            } else {
                state = self.work.wait(state);
            }
        }
    }

    /// Serves a request from the disk, or from the store; `false` if the timer took it back.
    fn serve(&self, request: &Request, scratch: &mut [u8]) -> bool {
        let found = self.look_up(request, scratch);
        let Some(pending) = request.pending().take() else { return false };
        if !found {
            self.ask_store(pending, true);
            return true;
        }
        let len = request.wanted.end - request.wanted.start;
        self.counters.count(|stats| {
            stats.hits += 1;
            stats.bytes_read += len;
        });
        pending.sink.done(pending.buf, Ok(len as usize));
        true
    }

    /// Reads all requested bytes from the disk; `false` if some are missing.
    fn look_up(&self, request: &Request, scratch: &mut [u8]) -> bool {
        let Request { key, wanted, .. } = request;
        let mut deliver = |offset: u64, bytes: &[u8]| {
            let mut pending = request.pending();
            let Some(pending) = &mut *pending else { return false };
            pending.buf.copy_in((offset - wanted.start) as usize, bytes);
            true
        };
        let mut whole = true;
        for (number, part) in segment::parts(wanted.clone()) {
            match segment::read(&self.directory, key, (number, &part), scratch, &mut deliver) {
                Ok(Found::Here) => {}
                Ok(Found::Absent | Found::Abandoned) => return false,
                Ok(Found::Damaged) => {
                    self.counters.count(|stats| stats.damaged += 1);
                    // Bytes with a matching checksum would not be written again.
                    let _best_effort = segment::remove(&self.directory, key, number);
                    whole = false;
                }
                Err(_) => {
                    self.counters.count(|stats| stats.errors += 1);
                    return false;
                }
            }
        }
        whole
    }

    /// Requests from the store, and writes a copy to the disk if `keep`.
    fn ask_store(&self, pending: Pending, keep: bool) {
        self.counters.count(|stats| stats.misses += 1);
        let Pending { inner, key, wanted, buf, sink } = pending;
        if keep && key.is_settled() {
            let sink = Arc::clone(&self.writes).copying(sink, key, wanted.start);
            inner.read(wanted.start, buf, sink);
        } else {
            inner.read(wanted.start, buf, sink);
        }
    }

    /// Takes back reads that the disk does not complete in time.
    fn time(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let late = state.take_late(now);
            if !late.is_empty() {
                drop(state);
                // A disk that hangs for reads hangs for writes too, and the memory is needed.
                self.writes.discard();
                for (pending, timed_out) in late {
                    self.counters.count(|stats| match timed_out {
                        true => stats.timed_out += 1,
                        false => stats.bypassed += 1,
                    });
                    self.ask_store(pending, false);
                }
                state = self.state.lock();
                continue;
            }
            state = match state.next_deadline() {
                Some(deadline) => {
                    let pause = deadline.saturating_duration_since(now);
                    self.timer.wait_timeout(state, pause)
                }
                None if state.stopping => return,
                None => {
                    state.is_timer_idle = true;
                    self.timer.wait(state)
                }
            };
        }
    }
}

impl State {
    /// Late reads and, if there are some, the reads that wait behind them; with a flag for which
    /// they are.
    fn take_late(&mut self, now: Instant) -> Vec<(Pending, bool)> {
        let is_late = |request: &Request| request.deadline <= now;
        let current = self.current.iter().flatten().filter(|request| is_late(request));
        let mut late: Vec<_> =
            current.filter_map(|request| Some((request.pending().take()?, true))).collect();
        if late.is_empty() && !self.waiting.front().is_some_and(|request| is_late(request)) {
            return late;
        }
        self.health.timed_out(now);
        late.extend(self.waiting.drain(..).filter_map(|request| {
            let pending = request.pending().take();
            Some((pending?, is_late(&request)))
        }));
        late
    }

    fn next_deadline(&self) -> Option<Instant> {
        let current = self.current.iter().flatten().filter(|request| request.pending().is_some());
        current.chain(self.waiting.front()).map(|request| request.deadline).min()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).field("health", &self.health).finish()
    }
}

/// Stops the threads when it is dropped.
struct Stop(Arc<Reads>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
