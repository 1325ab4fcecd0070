//! Runs each request on the thread that received it, or on a worker when receivers run short.
//!
//! ```text
//!   /dev/fuse --> receiver --a receiver is left to read the next request--> runs it here
//!                          \-no other receiver is free--------------------> worker runs it, receiver reads on
//! ```
//!
//! Warm reads end in microseconds and stay on their receiver: no hand-over, no second wake-up. On a
//! slow store many requests block for milliseconds; these overflow to workers, created on demand.
//! Receivers instead of workers would cost a receive buffer of 16 MiB each, of which huge pages
//! make 2 MiB resident.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::sync::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on receivers and workers; see the module documentation.
#[derive(Clone)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    /// Receivers that are running a job.
    running: AtomicUsize,
    receivers: usize,
    workers_max: usize,
    state: Mutex<State>,
    wake: Condvar,
}

/// Invariant: `queue.len() <= jobs <= workers`. Each queued job has a worker that is or will soon
/// be free.
#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Queued and running jobs.
    jobs: usize,
    workers: usize,
}

impl Workers {
    /// Workers for `receivers` receiving threads; at most `workers_max` threads are created.
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

    /// Runs `job` here or on a worker. If all workers are busy, runs it here, and further requests
    /// queue in the kernel.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let running = self.shared.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running < self.shared.receivers {
            guard(job);
        } else if let Err(job) = self.hand_over(Box::new(job)) {
            guard(job);
        }
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// As [`run`](Self::run), for a job on bytes of the receiver's buffer. They are copied only for
    /// a worker.
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

    /// Whether a worker is free or can be created.
    fn has_worker(&self) -> bool {
        self.shared.state.lock().jobs < self.shared.workers_max
    }

    fn hand_over(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
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
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                guard(job);
                state = self.state.lock();
                state.jobs -= 1;
                continue;
            }
            let since = Instant::now();
            state = self.wake.wait_timeout(state, IDLE);
            if since.elapsed() >= IDLE && state.queue.is_empty() {
                state.workers -= 1;
                return;
            }
        }
    }
}

/// Runs a job and catches its panic, which is a bug of ours. The request gets EIO, because fuser
/// responds for a dropped reply; the message goes to stderr; the mount continues.
fn guard(job: impl FnOnce()) {
    let _ = panic::catch_unwind(AssertUnwindSafe(job));
}

/// How long an idle worker stays. Shorter than a program's pauses between reads, and threads are
/// created again and again.
const IDLE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn jobs_get_their_bytes_on_receivers_and_workers() {
        let workers = Workers::new(1, 1);
        let (tell, received) = sync_channel(1);
        for _ in 0..2 {
            let tell = tell.clone();
            // With a single receiver, every job goes to the worker.
            workers.run_on(b"some bytes", move |bytes| tell.send(bytes.to_vec()).expect("the test waits"));
            assert_eq!(received.recv().expect("it ran"), b"some bytes");
        }
    }

    #[test]
    fn one_receiver_stays_free_until_all_workers_are_busy() {
        let workers = Workers::new(2, 3);
        let (started, starts) = sync_channel(16);
        let gates: Vec<_> = (0..4)
            .map(|_| {
                let (open, gate) = sync_channel::<()>(1);
                let (workers, started) = (workers.clone(), started.clone());
                let receiver = thread::spawn(move || {
                    workers.run(move || {
                        started.send(thread::current().name() == Some("bowwave-fuse-w")).expect("test waits");
                        gate.recv().expect("opened below");
                    });
                });
                let on_worker = starts.recv().expect("the job starts though others are blocked");
                (open, receiver, on_worker)
            })
            .collect();
        // The first job runs on its receiver; the next three find no second free receiver.
        assert_eq!(gates.iter().map(|gate| gate.2).collect::<Vec<_>>(), [false, true, true, true]);
        // All workers are busy, so the next job runs in place.
        let (workers2, started2) = (workers.clone(), started.clone());
        workers2
            .run(move || started2.send(thread::current().name() == Some("bowwave-fuse-w")).expect("test"));
        assert!(!starts.recv().expect("ran"));
        for (open, receiver, _) in gates {
            open.send(()).expect("the job waits");
            receiver.join().expect("no panic");
        }
    }
}
