//! Frames lent to a store: nothing else uses them until the buffer that lends them is dropped.
//!
//! ```text
//!                 buffer dropped                request ended
//!   Out ─────────────────────────────► Back ────────────────────► retried or completed: frames are free
//!    │  request ended, buffer still out
//!    └───────────────► Orphaned (completed as leaked: out of the page table, pinned)
//!                                          └── buffer dropped ──► unpinned
//! ```
//!
//! A failed ring, or a store that drops a request, ends the request although the buffer may still
//! be written. Readers get the error at once. The frames return when the buffer is dropped, or
//! never.

use bowwave_core::FrameId;

use crate::engine::Inner;
use crate::sync::{Arc, Mutex};

/// The owner of a request's buffer, dropped with its last piece. Keeps the memory mapped.
#[derive(Debug)]
pub(crate) struct Lease {
    state: Arc<Mutex<State>>,
    engine: Arc<Inner>,
    shard: usize,
}

/// The request's view of its lease.
#[derive(Debug)]
pub(crate) struct Loan(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    Out,
    Back,
    /// The request ended; these frames stay pinned until the buffer is dropped.
    Orphaned(Vec<FrameId>),
}

impl Lease {
    pub(crate) fn new(engine: Arc<Inner>, shard: usize) -> (Self, Loan) {
        let state = Arc::new(Mutex::new(State::Out));
        (Self { state: Arc::clone(&state), engine, shard }, Loan(state))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Back);
        if let State::Orphaned(frames) = before {
            self.engine.unpin(self.shard, &frames);
        }
    }
}

impl Loan {
    /// Whether the memory is back. If not, `orphan` pins the frames in the cache and returns them;
    /// this completes before the memory can come back.
    pub(crate) fn is_back_or(&self, orphan: impl FnOnce() -> Vec<FrameId>) -> bool {
        let mut state = self.0.lock();
        if matches!(*state, State::Out) {
            *state = State::Orphaned(orphan());
        }
        matches!(*state, State::Back)
    }
}
