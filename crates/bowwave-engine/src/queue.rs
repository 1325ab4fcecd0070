//! Requests to a store: the core's dispatcher merges and orders them and bounds how many are in
//! flight.
//!
//! ```text
//!   fills, write-outs ──push──► Dispatcher (merge, order, depth) ──run──► request::send ──► store
//!             promote, cancel ──┤                                            │
//!               timer: expire ──┘ ◄── pause ◄── failed, or a late read ◄─────┴── ended ──► run
//! ```

mod io_request;
mod shape;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bowwave_backend::Profile;
use bowwave_core::network::RetryLimits;
use bowwave_core::schedule::{self, DispatchId, Dispatcher, Expired, Priority, RequestId, SchedulerTuning};
use bowwave_core::{Instant, PageRange, Urgency};

pub(crate) use self::io_request::{Demand, Id, IoRequest, Key};
use self::shape::Shape;
use crate::clock;
use crate::engine::Inner;
use crate::hedge::Race;
use crate::options::Options;
use crate::request;
use crate::stats::{Latencies, StoreStats, Work};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, thread_local};
use crate::timer::Job;
use crate::write_out::Rest;

/// The queue of one store.
#[derive(Debug)]
pub(crate) struct Queue {
    /// URL of the store, for messages.
    url: String,
    shape: Shape,
    alignment: u64,
    page_bytes: u64,
    state: Mutex<State>,
    congested: AtomicBool,
    /// Longest wait of a reader in nanoseconds, over all attempts.
    deadline_ns: Option<u64>,
}

/// One request to the store.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Identifier for [`Queue::ended`].
    pub(crate) id: DispatchId,
    /// When it left the queue.
    pub(crate) sent: Instant,
    /// Adjacent fills or write-outs of one file in page order, at least one.
    pub(crate) parts: Vec<IoRequest>,
}

#[derive(Debug)]
struct State {
    /// Requests, and the time each was added.
    dispatcher: Dispatcher<(IoRequest, Instant)>,
    ids: HashMap<Key, RequestId>,
    /// Rests of writes that the store ended early.
    rests: VecDeque<Rest>,
    /// Reads that may be hedged.
    races: HashMap<DispatchId, Arc<Race>>,
    /// When the engine's timer next runs the queue.
    armed: Option<Instant>,
    stats: StoreStats,
    latencies: Latencies,
}

/// What a queue sends next.
enum Next {
    Request(Batch),
    Rest(Rest),
    /// The second request of a late read.
    Hedge(Arc<Race>),
}

impl Queue {
    pub(crate) fn new(url: &str, profile: &Profile, options: &Options) -> Self {
        let shape = Shape::new(profile, options);
        let state = State {
            dispatcher: shape.dispatcher(profile, options),
            ids: HashMap::new(),
            rests: VecDeque::new(),
            races: HashMap::new(),
            armed: None,
            stats: StoreStats::default(),
            latencies: Latencies::default(),
        };
        Self {
            url: url.to_owned(),
            shape,
            alignment: u64::from(profile.alignment.max(1)),
            page_bytes: options.page_bytes,
            state: Mutex::new(state),
            congested: AtomicBool::new(false),
            deadline_ns: profile.deadline.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Changes knobs of the scheduler.
    pub(crate) fn tune(&self, tuning: SchedulerTuning) {
        self.state.lock().dispatcher.tune(tuning);
    }

    /// The store's URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether readahead should wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    /// Adds a fill or a write-out. If `drops`, returns readahead for which the queue is too full.
    pub(crate) fn push(&self, io: IoRequest, drops: bool) -> Option<IoRequest> {
        let mut state = self.state.lock();
        if drops && io.work() == Work::Readahead && !io.is_demanded() && state.dispatcher.is_full() {
            state.stats.readahead_dropped += 1;
            return Some(io);
        }
        self.add(&mut state, io);
        None
    }

    fn add(&self, state: &mut State, io: IoRequest) {
        let mut io = io;
        if self.shape.promotes() && io.is_demanded() {
            io.urgency = Urgency::Demand;
        }
        let now = clock::precise();
        let (object, key, is_alone) = (io.entry.uid, io.key, io.is_left_over());
        let PageRange { start, end } = io.range;
        let bytes = start.0 * self.page_bytes..end.0 * self.page_bytes;
        let Range { start, end } = self.shape.address(&io.entry, bytes);
        let (direction, urgency, priority) = (io.direction(), io.urgency, io.priority);
        let request = schedule::Request { start, end, direction, object, urgency, priority };
        let dispatcher = &mut state.dispatcher;
        let added = if is_alone {
            dispatcher.add_alone(now, request, (io, now))
        } else {
            dispatcher.add(now, request, (io, now))
        };
        state.ids.insert(key, added.id);
        let waiting = state.dispatcher.waiting() as u64;
        state.stats.waiting_max = state.stats.waiting_max.max(waiting);
        self.note_congestion(state);
    }

    /// Adds a failed fill or write-out again at `due`; [`run`](Self::run) must follow.
    pub(crate) fn pause(&self, due: Instant, io: IoRequest) {
        self.state.lock().dispatcher.pause(due, (io, due));
    }

    /// Makes a fill or a write-out a demand request of a waiter of this priority, if it still
    /// waits: it then precedes the speculative ones.
    pub(crate) fn promote(&self, key: Key, priority: Priority) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(&id) = state.ids.get(&key) else { return };
        let (io, _) = state.dispatcher.payload_mut(id).expect("a request with a key waits");
        io.urgency = Urgency::Demand;
        io.priority = io.priority.min(priority);
        let now = clock::precise();
        // Without promotion it keeps its place.
        let promoted = state.dispatcher.promote(now, id).unwrap_or(id);
        let raised = state.dispatcher.raise(now, promoted, priority).unwrap_or(promoted);
        state.ids.insert(key, raised);
    }

    /// Removes a fill that is still queued.
    pub(crate) fn cancel(&self, key: Key) -> Option<IoRequest> {
        let mut state = self.state.lock();
        let id = state.ids.remove(&key)?;
        let ((io, _), _) = state.dispatcher.cancel(id).expect("a request with a key waits");
        self.note_congestion(&state);
        Some(io)
    }

    /// Sends queued requests while the store has free slots, and requests whose timer has expired.
    ///
    /// # Panics
    /// If the store panics. The other requests are sent first: no later call may come to send them.
    pub(crate) fn run(self: &Arc<Self>, engine: &Arc<Inner>) {
        let Some(_running) = Running::enter(Arc::as_ptr(self).addr()) else { return };
        let mut panic = None;
        loop {
            let next = self.next();
            // Before the store is called: it may block.
            self.arm(engine);
            let Some(next) = next else { break };
            let sent = catch_unwind(AssertUnwindSafe(|| match next {
                Next::Request(batch) => request::send(engine, self, batch),
                Next::Rest(rest) => rest.send(),
                Next::Hedge(race) => race.send(true),
            }));
            panic = panic.or_else(|| sent.err());
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Has the engine's timer run the queue at its next timed event.
    fn arm(self: &Arc<Self>, engine: &Inner) {
        let mut state = self.state.lock();
        let Some(due) = state.dispatcher.next_timer() else { return };
        if state.armed.is_some_and(|armed| armed <= due) {
            return;
        }
        state.armed = Some(due);
        drop(state);
        engine.at(clock::instant(due), Job::Run(Arc::clone(self), due));
    }

    /// The timer that was set for `due` has expired.
    pub(crate) fn expired(self: &Arc<Self>, engine: &Arc<Inner>, due: Instant) {
        {
            let mut state = self.state.lock();
            // Another one may have been set for an earlier event.
            state.armed = state.armed.filter(|&armed| armed != due);
        }
        self.run(engine);
    }

    /// Drops the requests that pause: the engine, and so its timer, has ended.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        let mut paused = Vec::new();
        while let Some(event) = state.dispatcher.expire(Instant(u64::MAX)) {
            paused.push(event);
        }
        drop(state);
    }

    /// Stores the rest of a write for the next [`run`](Self::run). It still counts as in flight.
    pub(crate) fn add_rest(&self, rest: Rest) {
        self.state.lock().rests.push_back(rest);
    }

    /// Bytes of fills arrived.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.state.lock().stats.bytes_fetched += bytes;
    }

    /// As [`arrived`](Self::arrived), and completes the timing of fills that were sent at `sent`.
    pub(crate) fn answered(&self, bytes: u64, sent: Instant, fills: &[IoRequest]) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.state.lock();
        state.stats.bytes_fetched += bytes;
        for fill in fills {
            state.latencies.record_device(fill.work(), took);
        }
    }

    /// The store rejected pages permanently.
    pub(crate) fn lost(&self, pages: u64) {
        self.state.lock().stats.pages_lost += pages;
    }

    /// The store accepted bytes of write-outs that were sent at `sent`.
    pub(crate) fn accepted(&self, bytes: u64, sent: Instant, writes: &[IoRequest]) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.state.lock();
        state.stats.bytes_written += bytes;
        for write in writes {
            state.latencies.record_device(write.work(), took);
        }
    }

    /// An object part that was sent at `sent` ended: the store accepted bytes, or it failed and may
    /// be retried.
    pub(crate) fn part_ended(&self, sent: Instant, taken: Option<u64>, is_tried_again: bool) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.state.lock();
        state.stats.requests += 1;
        state.stats.latency_ns_total += took;
        state.stats.requests_failed += u64::from(taken.is_none());
        state.stats.retries += u64::from(is_tried_again);
        if let Some(bytes) = taken {
            state.stats.bytes_written += bytes;
            state.latencies.record_device(Work::WriteBack, took);
        }
    }

    /// Enters a read that may be hedged. Returns whether it may.
    pub(crate) fn begin_race(&self, bytes: u64, race: &Arc<Race>) -> bool {
        let mut state = self.state.lock();
        let hedged = state.dispatcher.sent(clock::precise(), race.id(), bytes);
        if hedged {
            state.races.insert(race.id(), Arc::clone(race));
        }
        hedged
    }

    /// A request of a read that may be hedged returned its bytes. Returns whether it is the first.
    pub(crate) fn race_answered(&self, id: DispatchId, is_second: bool) -> bool {
        let mut state = self.state.lock();
        let is_first = state.dispatcher.answered(clock::precise(), id, is_second);
        state.stats.hedges_won += u64::from(is_first && is_second);
        is_first
    }

    /// A request of a read that may be hedged failed. Returns whether the read has failed.
    pub(crate) fn race_failed(&self, id: DispatchId) -> bool {
        self.state.lock().dispatcher.failed(id)
    }

    /// An object could not be published, and no handle was left to return the error.
    pub(crate) fn lost_object(&self) {
        self.state.lock().stats.objects_lost += 1;
    }

    /// A request ended.
    pub(crate) fn ended(&self, id: DispatchId, tell: impl FnOnce(&mut StoreStats)) {
        let mut state = self.state.lock();
        let known = state.dispatcher.complete(clock::precise(), id);
        state.races.remove(&id);
        debug_assert!(known, "{id:?} ends once");
        tell(&mut state.stats);
    }

    /// Limits for the attempts of a fill or a write-out. Readahead without a waiter gives up
    /// earlier, so that a later reader still has a whole deadline for its own request.
    pub(crate) fn retry_limits(&self, retries: u32, is_demand: bool) -> RetryLimits {
        let budget_ns = match self.deadline_ns {
            Some(deadline) if is_demand => deadline,
            Some(deadline) => deadline / 3 * 2,
            None => u64::MAX,
        };
        RetryLimits { attempts_max: retries.saturating_add(1), budget_ns, ..RetryLimits::default() }
    }

    /// Whether calls of the store end by a deadline, and the store itself retries until then.
    pub(crate) fn has_deadline(&self) -> bool {
        self.deadline_ns.is_some()
    }

    /// When a reader that waits since then gives up.
    pub(crate) fn deadline(&self, since: Instant) -> Option<Instant> {
        Some(Instant(since.0.saturating_add(self.deadline_ns?)))
    }

    /// Alignment of offsets that the store requires, in bytes.
    pub(crate) fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Whether requests are queued or in flight.
    pub(crate) fn is_in_use(&self) -> bool {
        let state = self.state.lock();
        state.dispatcher.at_device() + state.dispatcher.waiting() > 0
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let state = self.state.lock();
        StoreStats { scheduler: *state.dispatcher.stats(), ..state.stats }
    }

    pub(crate) fn latencies(&self) -> Latencies {
        self.state.lock().latencies.clone()
    }

    /// What to send next; none if the store is busy or no queued request may be sent.
    fn next(&self) -> Option<Next> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(rest) = state.rests.pop_front() {
            return Some(Next::Rest(rest));
        }
        let (now, mut parts) = (clock::precise(), Vec::new());
        while let Some(event) = state.dispatcher.expire(now) {
            match event {
                Expired::Retry((io, _)) => self.add(state, io),
                Expired::Hedge(id) => {
                    state.stats.requests += 1;
                    state.stats.hedges += 1;
                    if let Some(race) = state.races.get(&id) {
                        return Some(Next::Hedge(Arc::clone(race)));
                    }
                }
            }
        }
        let dispatch = state.dispatcher.next(now, &mut parts)?;
        for (io, since) in &parts {
            state.ids.remove(&io.key);
            state.latencies.record_queue(io.work(), now.0.saturating_sub(since.0));
        }
        let parts = parts.into_iter().map(|(io, _)| io).collect();
        state.stats.requests += 1;
        let at_device = state.dispatcher.at_device() as u64;
        state.stats.in_flight_max = state.stats.in_flight_max.max(at_device);
        state.stats.in_flight_total += at_device;
        state.stats.waiting_total += state.dispatcher.waiting() as u64;
        self.note_congestion(state);
        Some(Next::Request(Batch { id: dispatch.id, sent: now, parts }))
    }

    fn note_congestion(&self, state: &State) {
        self.congested.store(state.dispatcher.is_congested(), Ordering::Relaxed);
    }
}

thread_local! {
    /// Addresses of the queues that this thread runs, else 0. An array: a vector would be destroyed
    /// before files are closed at the end of a thread.
    static RUNNING: Cell<[usize; NESTED_MAX]> = const { Cell::new([0; NESTED_MAX]) };
}

/// Queues that a thread may run at once: a store that reads from another store makes two.
const NESTED_MAX: usize = 8;

/// While it lives, this thread runs a queue, so that a backend that completes inline does not
/// recurse. (A flag of the queue would make one reader send all others' requests, and a panicking
/// backend would leave it set.)
struct Running(usize);

impl Running {
    /// `None` if this thread runs the queue already.
    fn enter(queue: usize) -> Option<Self> {
        let mut running = RUNNING.with(Cell::get);
        if running.contains(&queue) {
            return None;
        }
        // If all entries are used it recurses, which takes stack but works.
        if let Some(free) = running.iter_mut().find(|place| **place == 0) {
            *free = queue;
            RUNNING.with(|of_thread| of_thread.set(running));
        }
        Some(Self(queue))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with(|of_thread| {
            of_thread.set(of_thread.get().map(|queue| if queue == self.0 { 0 } else { queue }));
        });
    }
}
