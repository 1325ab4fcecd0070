//! Futures that are polled on the waking thread: completing a fault needs no thread switch.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use bowwave_engine::sync::atomic::{AtomicUsize, Ordering};
use bowwave_engine::sync::{Arc, Condvar, Mutex};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future, polled by the thread that wakes it.
struct Task {
    /// Wake-ups since the task was last idle, including the one whose thread polls it now. 0 while
    /// it is idle; stays above 0 after the end.
    wakes: AtomicUsize,
    /// Never contended: only the thread that finds `wakes` at 0 locks it.
    work: Mutex<Option<Work>>,
}

/// Polls `work` now, and after each wake-up on the waking thread.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Task { wakes: AtomicUsize::new(0), work: Mutex::new(Some(Box::pin(work))) }).wake();
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            // The polling thread sees this and polls again: another thread, or an outer frame of
            // this one.
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        let mut seen = 1;
        loop {
            let mut work = self.work.lock();
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

/// Runs a future to completion on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let wakeup = Arc::new(Wakeup::default());
    let waker = Waker::from(Arc::clone(&wakeup));
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        wakeup.wait();
    }
}

/// A wake-up for one thread. Not `park`: inside a signal handler that would consume the interrupted
/// code's own token.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        *self.notified.lock() = true;
        self.changed.notify_one();
    }

    /// Waits until it is notified.
    fn wait(&self) {
        let mut notified = self.notified.lock();
        while !*notified {
            notified = self.changed.wait(notified);
        }
        *notified = false;
    }

    /// As `wait`, with a timeout. Returns whether it was notified.
    pub(crate) fn wait_timeout(&self, time: std::time::Duration) -> bool {
        let mut notified = self.notified.lock();
        if !*notified {
            notified = self.changed.wait_timeout(notified, time);
        }
        std::mem::take(&mut *notified)
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.notify();
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
    fn concurrent_wakes_are_not_lost_and_polls_do_not_overlap() {
        for _ in 0..200 {
            let (woken, inside) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
            let (slot, ended) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
            spawn({
                let (woken, slot, ended) = (Arc::clone(&woken), Arc::clone(&slot), Arc::clone(&ended));
                poll_fn(move |context| {
                    assert!(!inside.swap(true, Ordering::Relaxed), "two poll it at once");
                    *slot.lock() = Some(context.waker().clone());
                    let done = woken.load(Ordering::Acquire) == 4;
                    inside.store(false, Ordering::Relaxed);
                    ended.store(done, Ordering::Relaxed);
                    if done { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            let waker: Waker = slot.lock().take().expect("it was polled");
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
