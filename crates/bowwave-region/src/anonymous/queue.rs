//! Transfers between buffers and the store, in the order of the core's dispatcher.
//!
//! ```text
//!   add ──► Dispatcher (merge, order, depth) ──► run ──► store ──► ended ──► Ends::ended, run
//!      promote ──┘                          ▲                    ├─ short: run sends the rest
//!                                           └── paused ◄─────────┘─ failed: retried alone, a few times
//! ```
//!
//! Completions neither sleep nor send requests: they leave that to [`Queue::run`], which runs at
//! most once per thread. So a store that completes requests inline uses a bounded amount of stack.
//! A retry that has to pause waits in the queue with its due time; the owner calls `run` again
//! when [`Queue::patience`] is over.
#![allow(unsafe_code, reason = "lends buffers to the store")]

use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bowwave_backend::{
    Error, ErrorKind, Profile, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink,
};
use bowwave_core::network::{Failure, Retry, RetryLimits, Verdict};
use bowwave_core::schedule::{
    Direction, DispatchId, Dispatcher, Expired, Priority, Request, RequestId, SchedulerConfig, SchedulerStats,
};
use bowwave_core::{Instant, Urgency};
use bowwave_engine::backend::sync::Mutex;

use super::buffers::Lease;
use crate::uffd::SYSTEM_PAGE;

/// Adjacent pages of the store, to be read into or written from buffers.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Name chosen by the owner.
    pub(super) name: u64,
    pub(super) direction: Direction,
    pub(super) urgency: Urgency,
    /// First slot.
    pub(super) slot: u64,
    /// Buffers for all of its pages.
    pub(super) buffers: Vec<Lease>,
    /// Its attempts.
    pub(super) retry: Retry,
}

impl Transfer {
    /// A transfer that has not been tried.
    pub(super) fn new(
        name: u64,
        direction: Direction,
        urgency: Urgency,
        slot: u64,
        buffers: Vec<Lease>,
    ) -> Self {
        let retry = Retry::new(RetryLimits::LOCAL, now());
        Self { name, direction, urgency, slot, buffers, retry }
    }

    fn pages(&self) -> u64 {
        self.buffers.iter().map(|lease| lease.pages() as u64).sum()
    }

    fn bytes(&self) -> Range<u64> {
        let page = SYSTEM_PAGE as u64;
        self.slot * page..(self.slot + self.pages()) * page
    }
}

/// Receives the results of transfers, on the store's threads, without a lock held.
pub(super) trait Ends: Send + Sync {
    /// A transfer has ended; called once per transfer.
    fn ended(&self, transfer: Transfer, result: Result<()>);

    /// [`Queue::patience`] may be shorter now.
    fn paused(&self);
}

/// The queue of one store. See the [module](self).
pub(super) struct Queue {
    object: Arc<dyn WriteObject>,
    state: Mutex<State>,
    ends: Mutex<Weak<dyn Ends>>,
}

struct State {
    dispatcher: Dispatcher<Transfer>,
    /// Names of waiting reads, for [`Queue::promote`].
    names: HashMap<u64, RequestId>,
    /// Remainders of requests that the store completed partially: sent next. They still count as in
    /// flight.
    rests: VecDeque<Rest>,
    requests: u64,
    retries: u64,
    /// Bytes of reads and of writes sent.
    bytes: [u64; 2],
}

/// Remainder of a request that the store completed partially.
struct Rest {
    id: DispatchId,
    transfers: Vec<Transfer>,
    /// Completed bytes of the transfers.
    skip: usize,
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueStats {
    /// Requests sent to the store.
    pub(super) requests: u64,
    /// Transfers retried after an error.
    pub(super) retries: u64,
    /// Bytes read from the store.
    pub(super) bytes_read: u64,
    /// Bytes written to the store.
    pub(super) bytes_written: u64,
    pub(super) scheduler: SchedulerStats,
}

impl Queue {
    pub(super) fn new(object: Arc<dyn WriteObject>, profile: &Profile) -> Arc<Self> {
        let depth = profile.slots.clamp(1, DEPTH_MAX);
        let latency_ns = u64::try_from(profile.latency.as_nanos()).unwrap_or(u64::MAX);
        let spill = SchedulerConfig::for_spill(depth, latency_ns, profile.seeks);
        let best = profile.request_bytes_best.max(SYSTEM_PAGE as u64);
        let config = SchedulerConfig { request_bytes_max: spill.request_bytes_max.min(best), ..spill };
        let state = State {
            dispatcher: Dispatcher::new(config, depth as usize, 0).expect("every knob is at least 1"),
            names: HashMap::new(),
            rests: VecDeque::new(),
            requests: 0,
            retries: 0,
            bytes: [0; 2],
        };
        let no_owner: Weak<dyn Ends> = Weak::<NoOwner>::new();
        Arc::new(Self { object, state: Mutex::new(state), ends: Mutex::new(no_owner) })
    }

    /// Sets the receiver of results; must precede the first transfer.
    pub(super) fn set_ends(&self, ends: Weak<dyn Ends>) {
        *self.ends.lock() = ends;
    }

    /// Queues a transfer; [`run`](Self::run) sends it.
    pub(super) fn add(&self, transfer: Transfer) {
        self.state.lock().add(transfer);
    }

    /// Raises a read to demand priority. A read that is not in the queue is in flight. A pausing
    /// read keeps its due time, because the pause protects the store.
    pub(super) fn promote(&self, name: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let is_it = |paused: &Transfer| paused.direction == Direction::Read && paused.name == name;
        if let Some(transfer) = state.dispatcher.paused_mut().find(|paused| is_it(paused)) {
            transfer.urgency = Urgency::Demand;
            return;
        }
        let Some(&id) = state.names.get(&name) else { return };
        let Some(transfer) = state.dispatcher.payload_mut(id) else { return };
        transfer.urgency = Urgency::Demand;
        let id = state.dispatcher.promote_alone(now(), id).expect("a request with a name waits");
        state.names.insert(name, id);
    }

    /// Time until a pausing transfer is due and [`run`](Self::run) must be called; `None` if no
    /// transfer pauses.
    pub(super) fn patience(&self) -> Option<Duration> {
        let due = self.state.lock().dispatcher.next_timer()?;
        Some(Duration::from_nanos(due.0.saturating_sub(now().0)))
    }

    /// Sends as many requests as the store accepts.
    pub(super) fn run(self: &Arc<Self>) {
        let this = Arc::as_ptr(self).addr();
        // A store may complete inline, and the completion calls `run`. The running loop then
        // continues, instead of a nested one.
        let outer = RUNNING.replace(this);
        if outer != this {
            while let Some((rest, alone)) = self.next() {
                let here = match MAY_WAIT.get() {
                    MayWait::No => false,
                    MayWait::Alone => alone,
                    MayWait::Always => true,
                };
                self.send(rest, here);
            }
        }
        RUNNING.set(outer);
    }

    /// The next request, and whether nothing else is in flight.
    fn next(&self) -> Option<(Rest, bool)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(rest) = state.rests.pop_front() {
            return Some((rest, false));
        }
        let now = now();
        while let Some(Expired::Retry(transfer)) = state.dispatcher.expire(now) {
            state.add(transfer);
        }
        let mut transfers = Vec::new();
        let dispatch = state.dispatcher.next(now, &mut transfers)?;
        for transfer in &transfers {
            if transfer.direction == Direction::Read {
                state.names.remove(&transfer.name);
            }
        }
        state.requests += 1;
        state.bytes[dispatch.request.direction as usize] += dispatch.request.bytes();
        Some((Rest { id: dispatch.id, transfers, skip: 0 }, state.dispatcher.at_device() == 1))
    }

    /// Sends adjacent transfers. A demand read runs on this thread if `here` and the store supports
    /// it.
    fn send(self: &Arc<Self>, Rest { id, transfers, skip }: Rest, here: bool) {
        let first = transfers.first().expect("a dispatch has a part");
        let (direction, offset) = (first.direction, first.bytes().start + skip as u64);
        let here = here && skip == 0 && transfers.iter().any(|transfer| transfer.urgency == Urgency::Demand);
        let transfers = Arc::new(transfers);
        let owner: Arc<dyn Any + Send + Sync> = Arc::clone(&transfers) as _;
        let mut left = skip;
        let segments = transfers.iter().flat_map(|transfer| &transfer.buffers).filter_map(|lease| {
            let bytes = lease.pages() * SYSTEM_PAGE;
            let skipped = left.min(bytes);
            left -= skipped;
            (skipped < bytes).then(|| (lease.as_ptr().wrapping_add(skipped), bytes - skipped))
        });
        let segments: Vec<(*mut u8, usize)> = segments.collect();
        let end = End { queue: Arc::clone(self), id, transfers: Some(transfers), skip };
        match direction {
            Direction::Read => {
                // SAFETY: the transfers own the buffers, which stay alive and unused until the
                // request ends.
                let buf = unsafe { ReadBuf::from_raw_segments(segments, owner) };
                if here {
                    self.object.read_here(offset, buf, Box::new(end));
                } else {
                    self.object.read(offset, buf, Box::new(end));
                }
            }
            Direction::Write => {
                let segments = segments.into_iter().map(|(base, len)| (base.cast_const(), len));
                // SAFETY: as above, and they are initialised.
                let buf = unsafe { WriteBuf::from_raw_segments(segments, owner) };
                self.object.write(offset, buf, Box::new(end));
            }
        }
    }

    /// A request has ended with `done` bytes completed.
    fn ended(self: &Arc<Self>, id: DispatchId, transfers: Vec<Transfer>, result: Result<usize>, skip: usize) {
        let wanted = transfers.iter().map(|transfer| transfer.pages() as usize * SYSTEM_PAGE).sum::<usize>();
        let result = match result {
            Ok(0) => Err(Error::new(ErrorKind::Truncated, "the store gave or took no byte of a page")),
            Ok(bytes) if skip + bytes < wanted => {
                self.state.lock().rests.push_back(Rest { id, transfers, skip: skip + bytes });
                return self.run();
            }
            result => result.map(|_| ()),
        };
        {
            let mut state = self.state.lock();
            let known = state.dispatcher.complete(now(), id);
            debug_assert!(known, "{id:?} ends once");
        }
        let (now, mut pauses) = (now(), false);
        for mut transfer in transfers {
            // A full store stays full; every other error may be transient.
            let verdict = result.as_ref().err().map(|error| {
                let transient = error.kind() != ErrorKind::NoSpace;
                transfer.retry.failed(now, Failure { transient, retry_after_ns: None }, 0)
            });
            if let Some(Verdict::Again(due)) = verdict {
                pauses |= due > now;
                let mut state = self.state.lock();
                state.retries += 1;
                state.dispatcher.pause(due, transfer);
            } else {
                self.tell_end(transfer, result.clone());
            }
        }
        if pauses && let Some(ends) = self.ends() {
            ends.paused();
        }
        self.run();
    }

    /// The owner, while it exists.
    fn ends(&self) -> Option<Arc<dyn Ends>> {
        self.ends.lock().upgrade()
    }

    fn tell_end(&self, transfer: Transfer, result: Result<()>) {
        // Without an owner the transfer is no longer needed.
        if let Some(ends) = self.ends() {
            ends.ended(transfer, result);
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        let state = self.state.lock();
        let [bytes_read, bytes_written] = state.bytes;
        let (requests, retries, scheduler) = (state.requests, state.retries, *state.dispatcher.stats());
        QueueStats { requests, retries, bytes_read, bytes_written, scheduler }
    }
}

impl State {
    fn add(&mut self, transfer: Transfer) {
        let Range { start, end } = transfer.bytes();
        let Transfer { name, direction, urgency, retry, .. } = transfer;
        let request = Request { start, end, direction, object: 0, urgency, priority: Priority::default() };
        let added = if retry.attempts() > 1 {
            self.dispatcher.add_alone(now(), request, transfer)
        } else {
            self.dispatcher.add(now(), request, transfer)
        };
        if direction == Direction::Read {
            self.names.insert(name, added.id);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("object", &self.object).finish_non_exhaustive()
    }
}

/// The completion of a request.
struct End {
    queue: Arc<Queue>,
    id: DispatchId,
    /// Taken at the end. Transfers left when this is dropped have failed.
    transfers: Option<Arc<Vec<Transfer>>>,
    skip: usize,
}

impl End {
    fn finish(&mut self, result: Result<usize>) {
        let Some(transfers) = self.transfers.take() else { return };
        // The store has returned the buffer. If it leaked it instead, the store owns the memory
        // forever, and the transfers fail.
        match Arc::try_unwrap(transfers) {
            Ok(transfers) => self.queue.ended(self.id, transfers, result, self.skip),
            Err(leaked) => self.queue.leaked(self.id, &leaked),
        }
    }
}

impl Queue {
    /// The store keeps the buffers of a request forever.
    fn leaked(self: &Arc<Self>, id: DispatchId, transfers: &[Transfer]) {
        self.state.lock().dispatcher.complete(now(), id);
        for transfer in transfers {
            let Transfer { name, direction, urgency, slot, retry, .. } = *transfer;
            let without = Transfer { name, direction, urgency, slot, retry, buffers: Vec::new() };
            self.tell_end(
                without,
                Err(Error::new(ErrorKind::Io, "the store has failed and kept the memory")),
            );
        }
        self.run();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish(Err(Error::new(ErrorKind::Io, "the store dropped a request")));
    }
}

impl ReadSink for End {
    fn progress(&mut self, _bytes: usize) {}

    fn done(mut self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        drop(buf);
        self.finish(result);
    }
}

impl WriteSink for End {
    fn done(mut self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        drop(buf);
        self.finish(result);
    }
}

/// The receiver of a queue without an owner.
struct NoOwner;

impl Ends for NoOwner {
    fn ended(&self, _transfer: Transfer, _result: Result<()>) {}

    fn paused(&self) {}
}

/// Nanoseconds since the first call.
pub(super) fn now() -> Instant {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let begin = BEGIN.get_or_init(std::time::Instant::now);
    Instant(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

thread_local! {
    /// The queue that this thread runs.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread may block on a read that another thread also waits for.
    static MAY_WAIT: Cell<MayWait> = const { Cell::new(MayWait::No) };
}

/// Whether a thread may block on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayWait {
    No,
    /// Only for a request alone at the store: the thread also serves others, which do not need it
    /// then.
    Alone,
    /// The thread has nothing else to do.
    Always,
}

/// Runs demand reads that `work` sends on this thread.
pub(super) fn reading_here<T>(may_wait: MayWait, work: impl FnOnce() -> T) -> T {
    let outer = MAY_WAIT.replace(may_wait);
    let result = work();
    MAY_WAIT.set(outer);
    result
}

/// Maximum requests in flight, whatever the store accepts: enough for any drive.
const DEPTH_MAX: u32 = 32;

#[cfg(test)]
mod tests;
