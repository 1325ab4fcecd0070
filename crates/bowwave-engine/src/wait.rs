//! Where a reader waits until its pages are there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bowwave_core::{FillError, FrameId};

/// What a wake brings: the pinned frames, or why not.
pub(crate) type Outcome = Result<Vec<FrameId>, FillError>;

/// One wait of one reader, by a thread or by a task.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Waiting,
    /// A task waits.
    Polled(Waker),
    Done(Outcome),
    /// The reader has gone; what comes must be given back.
    Abandoned,
}

impl Slot {
    /// Delivers the outcome; returns it if nobody wants it any more.
    pub(crate) fn deliver(&self, outcome: Outcome) -> Option<Outcome> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut *state, State::Abandoned);
        if matches!(before, State::Abandoned) {
            return Some(outcome);
        }
        *state = State::Done(outcome);
        drop(state);
        // Outside the lock: an executor may poll the task right here.
        if let State::Polled(waker) = before {
            waker.wake();
        }
        self.ready.notify_one();
        None
    }

    /// Blocks until the outcome is there.
    pub(crate) fn wait(&self) -> Outcome {
        let mut state = self.lock();
        loop {
            match std::mem::take(&mut *state) {
                State::Done(outcome) => return outcome,
                _ => state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The outcome, or a promise to wake the task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        let mut state = self.lock();
        if let State::Done(outcome) = std::mem::take(&mut *state) {
            return Poll::Ready(outcome);
        }
        *state = State::Polled(context.waker().clone());
        Poll::Pending
    }

    /// The reader goes away; returns the outcome if it is there already, for the caller to give back.
    pub(crate) fn abandon(&self) -> Option<Outcome> {
        match std::mem::replace(&mut *self.lock(), State::Abandoned) {
            State::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_woken_and_what_a_dropped_one_waited_for_comes_back() {
        let slot = Slot::default();
        let context = Context::from_waker(Waker::noop());
        assert!(slot.poll(&context).is_pending());
        assert!(slot.deliver(Ok(Vec::new())).is_none());
        assert!(slot.poll(&context).is_ready());

        let slot = Slot::default();
        assert!(slot.poll(&context).is_pending());
        assert!(slot.abandon().is_none());
        assert_eq!(slot.deliver(Ok(vec![FrameId(3)])), Some(Ok(vec![FrameId(3)])));
    }
}
