//! The end of a writable mount: writes dirty data to the store before the process exits.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::sync::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Work that runs once, on the first request; every caller waits for it.
#[derive(Clone)]
pub(crate) struct Finish {
    shared: Arc<Shared>,
}

struct Shared {
    stage: Mutex<Stage>,
    done: Condvar,
    patience: Duration,
}

enum Stage {
    Waiting(Work),
    Running,
    Done(Result<()>),
}

type Work = Box<dyn FnOnce() -> Result<()> + Send>;

impl fmt::Debug for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").field("patience", &self.shared.patience).finish_non_exhaustive()
    }
}

impl Finish {
    /// Creates `work` to be run later. Callers wait at most `patience`.
    pub(crate) fn new(patience: Duration, work: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        let stage = Mutex::new(Stage::Waiting(Box::new(work)));
        Self { shared: Arc::new(Shared { stage, done: Condvar::new(), patience }) }
    }

    /// Runs the work unless it has started, and waits for its end.
    ///
    /// # Errors
    /// The error of the work, the same for every caller; or a timeout.
    pub(crate) fn run(&self) -> Result<()> {
        let mut stage = self.shared.stage.lock();
        if matches!(*stage, Stage::Waiting(_))
            && let Stage::Waiting(work) = std::mem::replace(&mut *stage, Stage::Running)
        {
            let shared = Arc::clone(&self.shared);
            // On its own thread: a store that never responds must not block the end of the process.
            let started = thread::Builder::new().name("bowwave-finish".to_owned()).spawn(move || {
                let result = work();
                *shared.stage.lock() = Stage::Done(result);
                shared.done.notify_all();
            });
            if let Err(error) = started {
                *stage = Stage::Done(Err(Error::new(format!("cannot write out what was written: {error}"))));
            }
        }
        let deadline = Instant::now() + self.shared.patience;
        loop {
            if let Stage::Done(result) = &*stage {
                return result.clone();
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(Error::new(format!(
                    "what was written did not all reach the store within {:?}: the rest is lost",
                    self.shared.patience
                )));
            };
            stage = self.shared.done.wait_timeout(stage, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::sync_channel;

    #[test]
    fn work_runs_once_and_every_caller_gets_its_result() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let finish = Finish::new(Duration::from_secs(60), || {
            RUNS.fetch_add(1, Ordering::Relaxed);
            Err(Error::new("the disk is full"))
        });
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| finish.run())).collect();
            for result in waiting.into_iter().map(|waiting| waiting.join().expect("no panic")) {
                assert_eq!(result.expect_err("as the work says").to_string(), "the disk is full");
            }
        });
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_store_that_never_responds_is_a_timeout() {
        let (_hold, held) = sync_channel::<()>(0);
        let finish = Finish::new(Duration::from_millis(1), move || {
            let _never = held.recv();
            Ok(())
        });
        let error = finish.run().expect_err("it takes too long").to_string();
        assert!(error.contains("within 1ms"), "{error}");
    }
}
