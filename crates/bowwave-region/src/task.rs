//! A future that runs where it is woken: the end of a fault costs no thread a switch.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future, polled by whoever wakes it.
struct Task {
    /// Times that it was woken and not polled since, the one included that polls it now; more than 0 for ever once it has ended.
    wakes: AtomicUsize,
    /// Nobody waits for this: only who found `wakes` at 0 takes it.
    work: Mutex<Option<Work>>,
}

/// Polls `work` now, and then whenever it is woken, on the thread that wakes it.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Task { wakes: AtomicUsize::new(0), work: Mutex::new(Some(Box::pin(work))) }).wake();
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            // Whoever polls it sees this, and polls it again: another thread, or this one further up.
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        let mut seen = 1;
        loop {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(future) = work.as_mut() else { return };
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *work = None;
                return;
            }
            drop(work);
            match self.wakes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        bell.wait();
    }
}

/// What a thread waits for. Not `park`: within a signal that would take what the thread itself was to be woken by.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung() = true;
        self.rings.notify_one();
    }

    /// Until it has been rung since the last time.
    fn wait(&self) {
        let mut rung = self.rung();
        while !*rung {
            rung = self.rings.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
        *rung = false;
    }

    /// The same, for no longer than that; whether it was rung.
    pub(crate) fn wait_for(&self, time: std::time::Duration) -> bool {
        let mut rung = self.rung();
        if !*rung {
            (rung, _) = self.rings.wait_timeout(rung, time).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut *rung)
    }

    fn rung(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn a_task_that_wakes_itself_while_it_is_polled_is_polled_again() {
        let polls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&polls);
        spawn(poll_fn(move |context| {
            if seen.fetch_add(1, Ordering::Relaxed) == 3 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        assert_eq!(polls.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn of_many_that_wake_it_at_once_no_wake_is_lost_and_none_polls_beside_another() {
        for _ in 0..200 {
            let (woken, inside) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
            let (slot, ended) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
            spawn({
                let (woken, slot, ended) = (Arc::clone(&woken), Arc::clone(&slot), Arc::clone(&ended));
                poll_fn(move |context| {
                    assert!(!inside.swap(true, Ordering::Relaxed), "two poll it at once");
                    *slot.lock().expect("nobody panics") = Some(context.waker().clone());
                    let done = woken.load(Ordering::Acquire) == 4;
                    inside.store(false, Ordering::Relaxed);
                    ended.store(done, Ordering::Relaxed);
                    if done { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            let waker: Waker = slot.lock().expect("nobody panics").take().expect("it was polled");
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        woken.fetch_add(1, Ordering::Release);
                        waker.wake_by_ref();
                    });
                }
            });
            assert!(ended.load(Ordering::Relaxed), "a wake was lost");
        }
    }
}
