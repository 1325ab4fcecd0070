//! Fills on their way to a store: demand before readahead, neighbours joined, no more in flight than the store serves.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_backend::Profile;
use bowwave_core::{FillId, FrameId, PageRange, Urgency};

use crate::arena::Arena;
use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::request;
use crate::stats::StoreStats;

/// Requests that a queue holds before it counts as full, as Linux's `BLKDEV_MAX_RQ`; congested at 7/8 (paper 002, 3.2).
const QUEUE_REQUESTS: u64 = 128;
/// A readahead run is spread over free slots in requests no smaller than this part of the best size.
const SPREAD: u64 = 32;
/// One slot in this many is kept for demand.
const DEMAND_SLOTS: u32 = 32;

/// The queue of one store.
#[derive(Debug)]
pub(crate) struct Queue {
    profile: Profile,
    page_bytes: u64,
    state: Mutex<State>,
    congested: AtomicBool,
}

/// Which fill of which shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FillKey {
    pub(crate) shard: usize,
    pub(crate) fill: FillId,
}

/// A fill that waits to be sent.
#[derive(Debug)]
pub(crate) struct QueuedFill {
    pub(crate) key: FillKey,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) range: PageRange,
    pub(crate) urgency: Urgency,
    /// Set when a reader comes to wait for it, wherever it is then: here, between two tries, or not here yet.
    pub(crate) demanded: Arc<AtomicBool>,
    pub(crate) frames: Vec<FrameId>,
    pub(crate) arena: Arc<Arena>,
    /// How often it was sent in vain.
    pub(crate) tries: u32,
    /// Bytes at its start that an earlier request has brought.
    pub(crate) have_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    fills: HashMap<FillKey, QueuedFill>,
    /// By file and first page: who continues whom.
    places: BTreeMap<(u64, u64), FillKey>,
    /// Order of service. A key may be stale: gone from `fills`, or promoted since.
    demand: VecDeque<FillKey>,
    readahead: VecDeque<FillKey>,
    queued_pages: u64,
    in_flight: u32,
    in_flight_pages: u64,
    stats: StoreStats,
}

thread_local! {
    /// Addresses of the queues that this thread sends for, else 0, so that a backend that answers at once does not recurse.
    /// No vector: that would be gone when files are read and closed in the end of a thread.
    static PUMPED: Cell<[usize; NESTED_MAX]> = const { Cell::new([0; NESTED_MAX]) };
}

/// Queues that a thread may send for at once: a store whose requests read from another store makes two.
const NESTED_MAX: usize = 8;

/// While it lives, this thread sends for a queue. (Not a flag of the queue: one reader would send what all others ask
/// for, and a backend that panics would leave it set.)
struct Pumping(usize);

impl Pumping {
    /// `None` if this thread sends for the queue already.
    fn enter(queue: usize) -> Option<Self> {
        let mut pumped = PUMPED.get();
        if pumped.contains(&queue) {
            return None;
        }
        // Deeper down it recurses, which takes stack but works.
        if let Some(free) = pumped.iter_mut().find(|place| **place == 0) {
            *free = queue;
            PUMPED.set(pumped);
        }
        Some(Self(queue))
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        PUMPED.set(PUMPED.get().map(|queue| if queue == self.0 { 0 } else { queue }));
    }
}

impl Queue {
    pub(crate) fn new(profile: Profile, page_bytes: u64) -> Self {
        Self { profile, page_bytes, state: Mutex::default(), congested: AtomicBool::new(false) }
    }

    /// Whether readahead should wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    /// Adds a fill behind those of its urgency.
    pub(crate) fn push(&self, fill: QueuedFill) {
        let mut fill = fill;
        let mut state = self.lock();
        if fill.demanded.load(Ordering::Relaxed) {
            fill.urgency = Urgency::Demand;
        }
        state.drop_stale_keys();
        state.queued_pages += fill.range.count().0;
        state.places.insert((fill.entry.uid, fill.range.start.0), fill.key);
        match fill.urgency {
            Urgency::Demand => state.demand.push_back(fill.key),
            Urgency::Readahead => state.readahead.push_back(fill.key),
        }
        state.fills.insert(fill.key, fill);
        self.note_congestion(&state);
    }

    /// Moves a fill, if it still waits, to the demand side.
    pub(crate) fn promote(&self, key: FillKey) {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(fill) = state.fills.get_mut(&key) {
            fill.urgency = Urgency::Demand;
            state.demand.push_back(key);
        }
    }

    /// Takes a fill out, if it still waits.
    pub(crate) fn cancel(&self, key: FillKey) -> Option<QueuedFill> {
        let mut state = self.lock();
        let fill = state.take(key)?;
        state.stats.cancelled += 1;
        self.note_congestion(&state);
        Some(fill)
    }

    /// Sends what the store has room for.
    ///
    /// # Panics
    /// If the store does, after what else there is has been sent: nobody else may come to send it.
    pub(crate) fn pump(self: &Arc<Self>, engine: &Arc<Inner>) {
        let Some(_pumping) = Pumping::enter(Arc::as_ptr(self).addr()) else { return };
        let mut panic = None;
        loop {
            let parts = {
                let mut state = self.lock();
                let parts = self.next_request(&mut state);
                self.note_congestion(&state);
                if parts.is_empty() {
                    break;
                }
                state.in_flight += 1;
                state.in_flight_pages += pages_of(&parts);
                state.stats.requests += 1;
                state.stats.in_flight_max = state.stats.in_flight_max.max(state.in_flight.into());
                parts
            };
            let sent = catch_unwind(AssertUnwindSafe(|| request::send(engine, self, parts)));
            panic = panic.or_else(|| sent.err());
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Bytes that fills wanted have come.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.lock().stats.bytes_fetched += bytes;
    }

    /// A request for so many pages has ended.
    pub(crate) fn ended(&self, pages: u64, tell: impl FnOnce(&mut StoreStats)) {
        let mut state = self.lock();
        state.in_flight -= 1;
        state.in_flight_pages -= pages;
        tell(&mut state.stats);
    }

    /// Alignment in bytes that the store wants offsets to have.
    pub(crate) fn alignment(&self) -> u64 {
        u64::from(self.profile.alignment.max(1))
    }

    pub(crate) fn stats(&self) -> StoreStats {
        self.lock().stats
    }

    /// The fills of the next request, in page order; none if the store is busy or nothing waits.
    fn next_request(&self, state: &mut State) -> Vec<QueuedFill> {
        let slots = self.profile.slots.max(1);
        if state.in_flight >= slots {
            return Vec::new();
        }
        let first = state.pop(Urgency::Demand).or_else(|| {
            let kept = slots / DEMAND_SLOTS;
            (state.in_flight + kept < slots).then(|| state.pop(Urgency::Readahead)).flatten()
        });
        let Some(first) = first else { return Vec::new() };
        if first.is_left_over() {
            return vec![first];
        }
        let best = self.profile.request_bytes_best.max(self.page_bytes);
        // What is queued and in flight, dealt out over all slots: if the slot that comes free first took all that is
        // queued, the others would find nothing.
        let pages = state.queued_pages + state.in_flight_pages + first.range.count().0;
        let share = pages * self.page_bytes / u64::from(slots);
        let target = share.clamp((best / SPREAD).max(1), best);
        let (file, mut end) = (first.entry.uid, first.range.end.0);
        let mut bytes = first.range.count().0 * self.page_bytes;
        let mut parts = vec![first];
        while bytes < target {
            let Some(&key) = state.places.get(&(file, end)) else { break };
            if state.fills.get(&key).is_none_or(QueuedFill::is_left_over) {
                break;
            }
            let Some(fill) = state.take(key) else { break };
            bytes += fill.range.count().0 * self.page_bytes;
            end = fill.range.end.0;
            parts.push(fill);
        }
        parts
    }

    fn note_congestion(&self, state: &State) {
        let requests =
            state.queued_pages * self.page_bytes / self.profile.request_bytes_best.max(self.page_bytes);
        self.congested.store(requests >= QUEUE_REQUESTS * 7 / 8, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedFill {
    /// Whether a request has failed it or left it half done. It is then sent by itself, so that one bad page does not
    /// fail its neighbours again.
    fn is_left_over(&self) -> bool {
        self.tries > 0 || self.have_bytes > 0
    }
}

/// Pages of the fills of a request.
pub(crate) fn pages_of(parts: &[QueuedFill]) -> u64 {
    parts.iter().map(|part| part.range.count().0).sum()
}

impl State {
    /// The oldest fill of an urgency.
    fn pop(&mut self, urgency: Urgency) -> Option<QueuedFill> {
        loop {
            let key = match urgency {
                Urgency::Demand => self.demand.pop_front(),
                Urgency::Readahead => self.readahead.pop_front(),
            }?;
            if self.fills.get(&key).is_some_and(|fill| fill.urgency == urgency) {
                return self.take(key);
            }
        }
    }

    /// Keeps the orders of service from growing with keys of fills that went another way.
    fn drop_stale_keys(&mut self) {
        let (fills, most) = (&self.fills, 2 * self.fills.len() + 64);
        for (order, urgency) in
            [(&mut self.demand, Urgency::Demand), (&mut self.readahead, Urgency::Readahead)]
        {
            if order.len() > most {
                order.retain(|key| fills.get(key).is_some_and(|fill| fill.urgency == urgency));
            }
        }
    }

    fn take(&mut self, key: FillKey) -> Option<QueuedFill> {
        let fill = self.fills.remove(&key)?;
        let place = (fill.entry.uid, fill.range.start.0);
        if self.places.get(&place) == Some(&key) {
            self.places.remove(&place);
        }
        self.queued_pages -= fill.range.count().0;
        Some(fill)
    }
}
