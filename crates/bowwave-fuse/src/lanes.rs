//! Who runs a request: the thread that received it, or a worker when receivers run short.
//!
//! ```text
//!   /dev/fuse --> receiver --a receiver is left to read the next request--> runs it here
//!                          \-no other receiver is free--------------------> worker runs it, receiver reads on
//! ```
//!
//! Warm reads end in microseconds and never leave their receiver: no hand-over, no second wake-up. On a slow
//! store requests wait for milliseconds, many at once; they overflow to workers, which are made on demand.
//! (Receivers for all would cost 16 MiB of receive buffer each, of which huge pages make 2 MiB resident.)

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs; see the module's head.
#[derive(Clone)]
pub(crate) struct Lanes {
    shared: Arc<Shared>,
}

struct Shared {
    /// Receivers that run a job right now.
    running: AtomicUsize,
    receivers: usize,
    workers_max: usize,
    state: Mutex<State>,
    wake: Condvar,
}

/// `queue.len() <= jobs <= workers`: each job in the queue has a worker that is free, or about to be.
#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Jobs that wait in the queue or run.
    jobs: usize,
    workers: usize,
}

impl Lanes {
    /// Lanes for `receivers` receiving threads, with at most `workers_max` workers besides.
    pub(crate) fn new(receivers: usize, workers_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                running: AtomicUsize::new(0),
                receivers,
                workers_max,
                state: Mutex::default(),
                wake: Condvar::new(),
            }),
        }
    }

    /// Runs `job`, here or on a worker. Blocks for as long as the job if all workers are taken: then the kernel
    /// is the queue.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let running = self.shared.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running < self.shared.receivers {
            guard(job);
        } else if let Err(job) = self.hand_over(Box::new(job)) {
            guard(job);
        }
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// As [`run`](Self::run), for a job on bytes of the receiver's buffer: they are copied only if a worker is to have them.
    pub(crate) fn run_on(&self, bytes: &[u8], job: impl FnOnce(&[u8]) + Send + 'static) {
        let running = self.shared.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running < self.shared.receivers || !self.has_worker() {
            guard(|| job(bytes));
        } else {
            let copy = bytes.to_vec();
            if let Err(job) = self.hand_over(Box::new(move || job(&copy))) {
                guard(job);
            }
        }
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a worker is free, or can be made.
    fn has_worker(&self) -> bool {
        self.shared.lock().jobs < self.shared.workers_max
    }

    fn hand_over(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.lock();
        if state.jobs == state.workers {
            if state.workers == self.shared.workers_max {
                return Err(job);
            }
            let shared = Arc::clone(&self.shared);
            if thread::Builder::new().name("bowwave-fuse-w".to_owned()).spawn(move || shared.work()).is_err()
            {
                return Err(job);
            }
            state.workers += 1;
        }
        state.jobs += 1;
        state.queue.push_back(job);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                guard(job);
                state = self.lock();
                state.jobs -= 1;
                continue;
            }
            let (next, timeout) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.queue.is_empty() {
                state.workers -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so that a panic in one cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a job. A panic in it is our bug: the request gets EIO (fuser answers for a reply that is dropped), the
/// panic's message is on stderr, and the mount lives on.
fn guard(job: impl FnOnce()) {
    let _ = panic::catch_unwind(AssertUnwindSafe(job));
}

/// How long a worker without work stays: longer than the pauses of a program that computes between reads.
const IDLE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn bytes_reach_their_job_wherever_it_runs() {
        let lanes = Lanes::new(1, 1);
        let (tell, told) = sync_channel(1);
        for _ in 0..2 {
            let tell = tell.clone();
            // With a single receiver every job goes to the worker.
            lanes.run_on(b"some bytes", move |bytes| tell.send(bytes.to_vec()).expect("the test waits"));
            assert_eq!(told.recv().expect("it ran"), b"some bytes");
        }
    }

    #[test]
    fn one_receiver_stays_free_while_workers_last_and_the_rest_run_in_place() {
        let lanes = Lanes::new(2, 3);
        let (started, starts) = sync_channel(16);
        let gates: Vec<_> = (0..4)
            .map(|_| {
                let (open, gate) = sync_channel::<()>(1);
                let (lanes, started) = (lanes.clone(), started.clone());
                let receiver = thread::spawn(move || {
                    lanes.run(move || {
                        started.send(thread::current().name() == Some("bowwave-fuse-w")).expect("test waits");
                        gate.recv().expect("opened below");
                    });
                });
                let on_worker = starts.recv().expect("the job starts though others are blocked");
                (open, receiver, on_worker)
            })
            .collect();
        // The first runs in its receiver; the next three find no second free receiver.
        assert_eq!(gates.iter().map(|gate| gate.2).collect::<Vec<_>>(), [false, true, true, true]);
        // Workers are taken: the next runs in place.
        let (lanes2, started2) = (lanes.clone(), started.clone());
        lanes2.run(move || started2.send(thread::current().name() == Some("bowwave-fuse-w")).expect("test"));
        assert!(!starts.recv().expect("ran"));
        for (open, receiver, _) in gates {
            open.send(()).expect("the job waits");
            receiver.join().expect("no panic");
        }
    }
}
