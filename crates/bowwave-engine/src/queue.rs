//! Requests to a store: the core's dispatcher merges and orders them and bounds how many are in
//! flight.
//!
//! ```text
//!   fills, write-outs ──push──► Dispatcher (merge, order, depth) ──pump──► request::send ──► store
//!             promote, cancel ──┘                                                └── ended ──► pump
//! ```

mod piece;
mod pumping;
mod shape;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bowwave_backend::Profile;
use bowwave_core::network::RetryLimits;
use bowwave_core::schedule::{self, CONGESTED_REQUESTS, DispatchId, Dispatcher, Priority, RequestId};
use bowwave_core::{Instant, PageRange};

pub(crate) use self::piece::{Demand, FillKey, Key, Piece, QueuedFill, QueuedWrite};
use self::pumping::Pumping;
use self::shape::Shape;
use crate::clock;
use crate::engine::Inner;
use crate::hedge::Hedges;
use crate::options::Options;
use crate::request;
use crate::stats::{Latencies, StoreStats, Work};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// Hedging of late reads, if enabled.
    hedges: Option<Hedges>,
}

/// One request to the store.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Identifier for [`Queue::ended`].
    pub(crate) id: DispatchId,
    /// When it left the queue.
    pub(crate) sent: Instant,
    pub(crate) parts: Parts,
}

/// Parts of a request: adjacent ranges of one file in page order, at least one.
#[derive(Debug)]
pub(crate) enum Parts {
    /// Reads.
    Fills(Vec<QueuedFill>),
    /// Writes.
    Writes(Vec<QueuedWrite>),
}

#[derive(Debug)]
struct State {
    /// Requests, and the time each was added.
    dispatcher: Dispatcher<(Piece, Instant)>,
    ids: HashMap<Key, RequestId>,
    /// Rests of writes that the store ended early.
    rests: VecDeque<Rest>,
    /// Queued pages to read.
    queued_fill_pages: u64,
    stats: StoreStats,
    latencies: Latencies,
}

impl Queue {
    pub(crate) fn new(url: &str, profile: &Profile, options: &Options) -> Self {
        let shape = Shape::new(profile, options);
        let state = State {
            dispatcher: shape.dispatcher(),
            ids: HashMap::new(),
            rests: VecDeque::new(),
            queued_fill_pages: 0,
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
            hedges: Hedges::new(profile, options.hedge_percent),
        }
    }

    /// The store's URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether readahead should wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    /// Adds a fill or a write-out.
    pub(crate) fn push(&self, piece: Piece) {
        let mut piece = piece;
        let mut state = self.lock();
        if self.shape.promotes() && piece.is_demanded() {
            piece.set_demand();
        }
        let urgency = piece.urgency();
        let now = clock::precise();
        let (object, key, is_alone) = (piece.entry().uid, piece.key(), piece.is_left_over());
        let PageRange { start, end } = piece.range();
        let bytes = start.0 * self.page_bytes..end.0 * self.page_bytes;
        let Range { start, end } = self.shape.address(piece.entry(), bytes);
        let (direction, priority) = (piece.direction(), Priority::default());
        let request = schedule::Request { start, end, direction, object, urgency, priority };
        state.queued_fill_pages += piece.fill_pages();
        let dispatcher = &mut state.dispatcher;
        let added = if is_alone {
            dispatcher.add_alone(now, request, (piece, now))
        } else {
            dispatcher.add(now, request, (piece, now))
        };
        state.ids.insert(key, added.id);
        let waiting = state.dispatcher.waiting() as u64;
        state.stats.waiting_max = state.stats.waiting_max.max(waiting);
        self.note_congestion(&state);
    }

    /// Makes a fill or a write-out a demand request, if it still waits: it then precedes the speculative ones.
    pub(crate) fn promote(&self, key: Key) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(&id) = state.ids.get(&key) else { return };
        let (piece, _) = state.dispatcher.payload_mut(id).expect("a request with a key waits");
        piece.set_demand();
        // Without promotion it keeps its place.
        if let Some(id) = state.dispatcher.promote(clock::precise(), id) {
            state.ids.insert(key, id);
        }
    }

    /// Removes a fill that is still queued.
    pub(crate) fn cancel(&self, key: FillKey) -> Option<QueuedFill> {
        let mut state = self.lock();
        let id = *state.ids.get(&Key::Fill(key))?;
        let ((piece, _), _) = state.dispatcher.cancel(id).expect("a request with a key waits");
        state.forget(&piece);
        self.note_congestion(&state);
        match piece {
            Piece::Fill(fill) => Some(fill),
            Piece::Write(_) => None,
        }
    }

    /// Sends as many requests as the store has slots for.
    ///
    /// # Panics
    /// If the store does, after the other requests were sent: no later call may come to send them.
    pub(crate) fn pump(self: &Arc<Self>, engine: &Arc<Inner>) {
        let Some(_pumping) = Pumping::enter(Arc::as_ptr(self).addr()) else { return };
        let mut panic = None;
        loop {
            let sent = if let Some(rest) = self.next_rest() {
                catch_unwind(AssertUnwindSafe(|| rest.send()))
            } else if let Some(batch) = self.next_request() {
                catch_unwind(AssertUnwindSafe(|| request::send(engine, self, batch)))
            } else {
                break;
            };
            panic = panic.or_else(|| sent.err());
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Stores the rest of a write for the next [`pump`](Self::pump). It still counts as in flight.
    pub(crate) fn add_rest(&self, rest: Rest) {
        self.lock().rests.push_back(rest);
    }

    fn next_rest(&self) -> Option<Rest> {
        self.lock().rests.pop_front()
    }

    /// Bytes of fills arrived.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.lock().stats.bytes_fetched += bytes;
    }

    /// As [`arrived`](Self::arrived), and completes the timing of fills that were sent at `sent`.
    pub(crate) fn answered(&self, bytes: u64, sent: Instant, fills: &[QueuedFill]) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.lock();
        state.stats.bytes_fetched += bytes;
        for fill in fills {
            state.latencies.record_device(fill.work(), took);
        }
    }

    /// The store rejected pages permanently.
    pub(crate) fn lost(&self, pages: u64) {
        self.lock().stats.pages_lost += pages;
    }

    /// The store accepted bytes of write-outs that were sent at `sent`.
    pub(crate) fn taken(&self, bytes: u64, sent: Instant, writes: &[QueuedWrite]) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.lock();
        state.stats.bytes_written += bytes;
        for write in writes {
            state.latencies.record_device(write.work(), took);
        }
    }

    /// An object part that was sent at `sent` ended: the store accepted bytes, or it failed and may
    /// be retried.
    pub(crate) fn part_ended(&self, sent: Instant, taken: Option<u64>, is_tried_again: bool) {
        let took = clock::precise().0.saturating_sub(sent.0);
        let mut state = self.lock();
        state.stats.requests += 1;
        state.stats.latency_ns_total += took;
        state.stats.requests_failed += u64::from(taken.is_none());
        state.stats.retries += u64::from(is_tried_again);
        if let Some(bytes) = taken {
            state.stats.bytes_written += bytes;
            state.latencies.record_device(Work::WriteBack, took);
        }
    }

    /// Hedging of late reads, if enabled.
    pub(crate) fn hedges(&self) -> Option<&Hedges> {
        self.hedges.as_ref()
    }

    /// A late read was hedged.
    pub(crate) fn hedged(&self) {
        let mut state = self.lock();
        state.stats.requests += 1;
        state.stats.hedges += 1;
    }

    /// The second request completed first.
    pub(crate) fn hedge_won(&self) {
        self.lock().stats.hedges_won += 1;
    }

    /// An object could not be published, and no handle was left to return the error.
    pub(crate) fn lost_object(&self) {
        self.lock().stats.objects_lost += 1;
    }

    /// A request ended.
    pub(crate) fn ended(&self, id: DispatchId, tell: impl FnOnce(&mut StoreStats)) {
        let mut state = self.lock();
        let known = state.dispatcher.complete(clock::precise(), id);
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
        let state = self.lock();
        state.dispatcher.at_device() + state.dispatcher.waiting() > 0
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let state = self.lock();
        StoreStats { scheduler: *state.dispatcher.stats(), ..state.stats }
    }

    pub(crate) fn latencies(&self) -> Latencies {
        self.lock().latencies.clone()
    }

    /// The next request; none if the store is busy or no queued request may be sent.
    fn next_request(&self) -> Option<Batch> {
        let mut state = self.lock();
        let state = &mut *state;
        let (now, mut parts) = (clock::precise(), Vec::new());
        let dispatch = state.dispatcher.next(now, &mut parts)?;
        let (mut fills, mut writes) = (Vec::new(), Vec::new());
        for (piece, since) in parts {
            state.forget(&piece);
            state.latencies.record_queue(piece.work(), now.0.saturating_sub(since.0));
            match piece {
                Piece::Fill(fill) => fills.push(fill),
                Piece::Write(write) => writes.push(write),
            }
        }
        // Reads and writes do not merge.
        let parts = if writes.is_empty() { Parts::Fills(fills) } else { Parts::Writes(writes) };
        state.stats.requests += 1;
        let at_device = state.dispatcher.at_device() as u64;
        state.stats.in_flight_max = state.stats.in_flight_max.max(at_device);
        state.stats.in_flight_total += at_device;
        state.stats.waiting_total += state.dispatcher.waiting() as u64;
        self.note_congestion(state);
        Some(Batch { id: dispatch.id, sent: now, parts })
    }

    fn note_congestion(&self, state: &State) {
        let requests = self.shape.requests_of(state.queued_fill_pages * self.page_bytes);
        self.congested.store(requests >= CONGESTED_REQUESTS as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A piece left the queue.
    fn forget(&mut self, piece: &Piece) {
        self.ids.remove(&piece.key());
        self.queued_fill_pages -= piece.fill_pages();
    }
}
