//! A future that runs where it is woken: the end of a fault costs no thread a switch.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future, polled by whoever wakes it.
struct Task {
    work: Mutex<Option<Work>>,
}

/// Polls `work` now, and then whenever it is woken, on the thread that wakes it.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Task { work: Mutex::new(Some(Box::pin(work))) }).wake();
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        // Two that wake it take turns; the second finds it waiting again, or done.
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = work.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *work = None;
        }
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}
