//! A small pool of threads that carries out reads in slices, by turns.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::process::PerProcess;
use crate::{Error, ErrorKind};

/// Work that runs slice by slice, so that one large read does not hold up the small ones behind it.
pub(crate) trait Job: Send {
    /// Does one slice; gives the job back if it is not finished.
    fn step(self: Box<Self>) -> Option<Box<dyn Job>>;

    /// Ends the job without doing it.
    fn refuse(self: Box<Self>, error: Error);
}

/// Threads and the jobs that wait for them. Dropping it lets the jobs that are in it finish.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Starts `threads` threads called `name`.
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let pool = Self { shared: Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() }) };
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            thread::Builder::new().name(format!("{name}-{index}")).spawn(move || shared.run())?;
        }
        Ok(pool)
    }

    /// Adds a job; refuses it if too many wait.
    pub(crate) fn add(&self, job: Box<dyn Job>) {
        let mut state = self.shared.lock();
        if state.jobs.len() >= JOBS_MAX {
            drop(state);
            job.refuse(Error::new(ErrorKind::Throttled, format!("more than {JOBS_MAX} reads are waiting")));
            return;
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.wake.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_all();
    }
}

/// The pool for bytes that are in memory already, or made by arithmetic; one for the process.
pub(crate) fn memory_pool() -> Option<&'static Pool> {
    static POOL: PerProcess<Option<Pool>> = PerProcess::new();
    // Two threads reach the memory's bandwidth; without threads the caller does the work itself.
    POOL.get_or_init(|| Pool::start("bowwave-fill", 2).ok()).as_ref()
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned queue is still whole: jobs run outside the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                let rest = job.step();
                state = self.lock();
                // A job in progress is counted already, so it may exceed JOBS_MAX by the number of threads.
                state.jobs.extend(rest);
            } else if state.stopping {
                return;
            } else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("jobs", &self.jobs.len()).field("stopping", &self.stopping).finish()
    }
}

/// Most jobs that may wait; far above the slots of any profile, so only a caller that ignores them meets it.
const JOBS_MAX: usize = 4096;
