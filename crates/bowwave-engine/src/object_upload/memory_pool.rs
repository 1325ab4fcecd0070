//! Memory and slots for object parts; writers wait for both.

use std::collections::VecDeque;
use std::fmt;

use bowwave_backend::{PartMemory, Result};

use crate::engine::Inner;
use crate::sync::{Arc, Condvar, Mutex};

/// Memory budget for the parts of all objects.
///
/// It is taken from the cache, as far as frames are reclaimable: the cache shrinks by it.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// Bytes of parts in flight. The store frees them, so no writer needs to do anything for that.
    in_flight: u64,
    /// Frames taken from the cache.
    frames: u32,
    waiting: u32,
}

impl MemoryPool {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Waits for memory for `bytes` more. If all memory in use holds incomplete parts, whose
    /// writers wait here, it would never be freed; then the bytes are granted beyond the budget.
    fn acquire(&self, engine: &Arc<Inner>, bytes: u64) {
        let mut state = self.state.lock();
        while state.used + bytes > self.limit && state.in_flight > 0 {
            state.waiting += 1;
            state = self.freed.wait(state);
            state.waiting -= 1;
        }
        state.used += bytes;
        let missing = self.frames(engine, state.used.min(self.limit)).saturating_sub(state.frames);
        drop(state);
        if missing > 0 {
            let got = engine.take_frames(missing);
            self.state.lock().frames += got;
        }
    }

    fn release(&self, engine: &Inner, bytes: u64, in_flight: bool) {
        let mut state = self.state.lock();
        state.used -= bytes;
        state.in_flight -= if in_flight { bytes } else { 0 };
        let spare = state.frames.saturating_sub(self.frames(engine, state.used));
        state.frames -= spare;
        drop(state);
        engine.give_frames(spare);
        self.freed.notify_all();
    }

    fn frames(&self, engine: &Inner, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(engine.page_size().bytes())).unwrap_or(u32::MAX)
    }
}

/// Memory of one part, allocated as it is filled.
#[derive(Debug)]
pub(crate) struct Buffer {
    engine: Arc<Inner>,
    bytes: Arc<PartMemory>,
    leased: u64,
    in_flight: bool,
}

impl Buffer {
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(engine: &Arc<Inner>, part: usize) -> Result<Self> {
        let bytes = Arc::new(PartMemory::new(part)?);
        Ok(Self { engine: Arc::clone(engine), bytes, leased: 0, in_flight: false })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes to send; they cannot change until every holder has dropped them.
    pub(crate) fn share(&self) -> Arc<PartMemory> {
        Arc::clone(&self.bytes)
    }

    /// Appends bytes, and waits for memory; `part` is the most that the buffer will hold.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn extend(&mut self, bytes: &[u8], part: usize) -> Result<()> {
        let len = (self.len() + bytes.len()) as u64;
        if len > self.leased {
            let want = len.next_power_of_two().max(LEASE_BYTES_MIN).min((part as u64).max(len));
            self.engine.memory_pool().acquire(&self.engine, want - self.leased);
            self.leased = want;
        }
        if Arc::get_mut(&mut self.bytes).is_none() {
            // A store that leaked a part may read its memory forever.
            let mut copy = PartMemory::new(part)?;
            copy.extend(&self.bytes);
            self.bytes = Arc::new(copy);
        }
        Arc::get_mut(&mut self.bytes).expect("not shared, see above").extend(bytes);
        Ok(())
    }

    /// The store has the part from now on, and frees its memory without a further write.
    pub(crate) fn mark_in_flight(&mut self) {
        if !self.in_flight {
            self.in_flight = true;
            self.engine.memory_pool().state.lock().in_flight += self.leased;
            self.engine.memory_pool().freed.notify_all();
        }
    }

    /// The store is done with it: reuses the buffer, unless a writer waits for memory or the store
    /// leaked it.
    pub(crate) fn reuse(mut self) -> Option<Self> {
        Arc::get_mut(&mut self.bytes)?.clear();
        let mut state = self.engine.memory_pool().state.lock();
        // Under one lock: later waiters do not count on this memory.
        let keep = state.waiting == 0;
        if keep && self.in_flight {
            state.in_flight -= self.leased;
            self.in_flight = false;
        }
        drop(state);
        keep.then_some(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.engine.memory_pool().release(&self.engine, self.leased, self.in_flight);
    }
}

/// Slots of one store: bounds the parts in flight, in order of arrival.
///
/// If the store also serves reads, which would wait behind long parts, a quarter of the slots is
/// left to reads.
pub(crate) struct Slots {
    most: u32,
    is_read: Box<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<SlotState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    used: u32,
    next: u64,
    waiting: VecDeque<u64>,
}

/// A part's slot, freed on drop.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    /// At most `most` parts. `is_read` returns whether reads are in flight.
    pub(crate) fn new(most: u32, is_read: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let is_read = Box::new(is_read);
        Self { most: most.max(1), is_read, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Waits for a slot.
    pub(crate) fn acquire(self: &Arc<Self>) -> Slot {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(number);
        while state.waiting.front() != Some(&number) || !self.has_free(&state) {
            state = self.freed.wait(state);
        }
        state.waiting.pop_front();
        state.used += 1;
        drop(state);
        // The next waiter may continue, too.
        self.freed.notify_all();
        Slot(Arc::clone(self))
    }

    fn has_free(&self, state: &SlotState) -> bool {
        let left = self.most - self.most.div_ceil(4);
        state.used < self.most && (state.used < left.max(1) || !(self.is_read)())
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("most", &self.most).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state.lock().used -= 1;
        self.0.freed.notify_all();
    }
}

/// First allocation of a part; larger ones waste memory on small objects.
const LEASE_BYTES_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_quarter_of_the_slots_is_left_to_reads() {
        static IS_READ: AtomicBool = AtomicBool::new(false);
        for (most, with_reads) in [(1, 1), (2, 1), (4, 3), (64, 48)] {
            let slots = Arc::new(Slots::new(most, || IS_READ.load(Ordering::Relaxed)));
            for is_read in [false, true, false] {
                IS_READ.store(is_read, Ordering::Relaxed);
                let mut taken = Vec::new();
                while slots.has_free(&slots.state.lock()) {
                    taken.push(slots.acquire());
                }
                assert_eq!(taken.len(), if is_read { with_reads } else { most as usize });
            }
        }
    }

    #[test]
    fn slots_are_granted_in_order_of_arrival() {
        let slots = Arc::new(Slots::new(1, || false));
        let order = Mutex::new(Vec::new());
        let first = slots.acquire();
        std::thread::scope(|scope| {
            for number in 0..5 {
                let (waiter, order) = (Arc::clone(&slots), &order);
                scope.spawn(move || {
                    let _slot = waiter.acquire();
                    order.lock().push(number);
                });
                // In line before the next one arrives.
                while slots.state.lock().waiting.len() <= number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(order.into_inner(), [0, 1, 2, 3, 4]);
    }
}
