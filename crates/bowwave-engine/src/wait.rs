//! A reader's wait for its pages.

use std::task::{Context, Poll, Waker};

use bowwave_core::{FillError, FrameId};

use crate::sync::{Condvar, Mutex};

/// Result of a wait: the pinned frames, or the error.
pub(crate) type Outcome = Result<Vec<FrameId>, FillError>;

/// What happened to a delivered outcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A thread has it, or will when it runs.
    ToThread,
    /// A task may collect it.
    ToTask,
    /// The reader is gone.
    Unwanted(Outcome),
}

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
    /// A task did not collect its pages in time.
    TakenBack,
    /// The reader is gone: frames that still arrive must be unpinned.
    Abandoned,
}

impl Slot {
    /// Delivers the outcome.
    pub(crate) fn deliver(&self, outcome: Outcome) -> Delivery {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut *state, State::Abandoned);
        if matches!(before, State::Abandoned) {
            return Delivery::Unwanted(outcome);
        }
        *state = State::Done(outcome);
        drop(state);
        // Outside the lock: an executor may poll the task right here.
        if let State::Polled(waker) = before {
            waker.wake();
            return Delivery::ToTask;
        }
        self.ready.notify_one();
        Delivery::ToThread
    }

    /// Takes back the frames that a task has not collected.
    pub(crate) fn take_back(&self) -> Option<Vec<FrameId>> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Done(Ok(_))) {
            return None;
        }
        match std::mem::replace(&mut *state, State::TakenBack) {
            State::Done(Ok(frames)) => Some(frames),
            _ => unreachable!("looked at above"),
        }
    }

    /// Blocks until the outcome arrives.
    pub(crate) fn wait(&self) -> Outcome {
        let mut state = self.state.lock();
        loop {
            match std::mem::take(&mut *state) {
                State::Done(outcome) => return outcome,
                _ => state = self.ready.wait(state),
            }
        }
    }

    /// The outcome, `None` if it was taken back, or pending with the task's waker stored.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Option<Outcome>> {
        let mut state = self.state.lock();
        match std::mem::take(&mut *state) {
            State::Done(outcome) => Poll::Ready(Some(outcome)),
            State::TakenBack => Poll::Ready(None),
            _ => {
                *state = State::Polled(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The reader is gone. Returns an outcome that has already arrived; the caller unpins its
    /// frames.
    pub(crate) fn abandon(&self) -> Option<Outcome> {
        match std::mem::replace(&mut *self.state.lock(), State::Abandoned) {
            State::Done(outcome) => Some(outcome),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_woken_and_a_dropped_tasks_outcome_is_returned() {
        let slot = Slot::default();
        let context = Context::from_waker(Waker::noop());
        assert!(slot.poll(&context).is_pending());
        assert_eq!(slot.deliver(Ok(Vec::new())), Delivery::ToTask);
        assert!(slot.poll(&context).is_ready());

        let slot = Slot::default();
        assert!(slot.poll(&context).is_pending());
        assert!(slot.abandon().is_none());
        assert_eq!(slot.deliver(Ok(vec![FrameId(3)])), Delivery::Unwanted(Ok(vec![FrameId(3)])));
    }

    #[test]
    fn a_late_task_must_read_again() {
        let slot = Slot::default();
        let context = Context::from_waker(Waker::noop());
        assert!(slot.poll(&context).is_pending());
        assert_eq!(slot.take_back(), None, "nothing has come yet");
        assert_eq!(slot.deliver(Ok(vec![FrameId(3)])), Delivery::ToTask);
        assert_eq!(slot.take_back(), Some(vec![FrameId(3)]));
        assert_eq!(slot.take_back(), None, "they are back already");
        assert_eq!(slot.poll(&context), Poll::Ready(None));
    }
}
