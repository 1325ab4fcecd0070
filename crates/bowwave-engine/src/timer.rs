//! The timer thread: timed events of queues, write-back, retries of parts, reclaim of frames that
//! tasks did not collect.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bowwave_core::Instant as CoreInstant;

use crate::engine::Inner;
use crate::object_upload::Part;
use crate::queue::Queue;
use crate::sync::{Arc, Condvar, Mutex, Weak, thread, time_until};
use crate::wait::Slot;

/// How long a woken task may leave its frames pinned before they are reclaimed.
const UNCOLLECTED_MAX: Duration = Duration::from_secs(1);
/// Reclaim times are rounded up to multiples of this: one wake-up serves many tasks. Each fault of
/// a mapped file schedules a reclaim.
const RECLAIM_STEP: Duration = Duration::from_millis(250);

/// Runs jobs at their times.
#[derive(Debug)]
pub(crate) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
    /// Reclaim times are multiples of [`RECLAIM_STEP`] since then.
    epoch: Instant,
}

impl Default for Timer {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::default(), epoch: Instant::now() }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Key: due time, then a number that breaks ties.
    waiting: BTreeMap<(Instant, u64), Job>,
    /// Number of the last job.
    number: u64,
    closed: bool,
}

/// A timed job.
#[derive(Debug)]
pub(crate) enum Job {
    /// Run a queue: its dispatcher has a timed event then.
    Run(Arc<Queue>, CoreInstant),
    /// Write back old dirty pages, and repeat.
    WriteBack,
    /// Compare the cache with the memory pressure of the system, and repeat.
    Pressure,
    /// Send a part again.
    Part(Part),
    /// Reclaim the frames that a task has not collected.
    ReclaimFrames {
        /// Shard of the frames.
        shard: usize,
        /// Slot that holds them.
        slot: Weak<Slot>,
    },
}

impl Job {
    fn run(self, engine: &Arc<Inner>) {
        match self {
            Self::Run(queue, due) => queue.expired(engine, due),
            Self::Part(part) => part.send(),
            Self::WriteBack => engine.write_back_old(),
            Self::Pressure => engine.yield_memory(),
            Self::ReclaimFrames { shard, slot } => {
                if let Some(frames) = slot.upgrade().and_then(|slot| slot.take_back()) {
                    engine.unpin(shard, &frames);
                }
            }
        }
    }
}

impl Timer {
    /// Starts the thread, which ends with the engine.
    pub(crate) fn start(self: &Arc<Self>, engine: Weak<Inner>) -> std::io::Result<()> {
        let timer = Arc::clone(self);
        thread::Builder::new().name("bowwave-timer".into()).spawn(move || timer.run(&engine)).map(drop)
    }

    /// Schedules a job at `due`.
    pub(crate) fn add(&self, due: Instant, job: Job) {
        let mut state = self.state.lock();
        state.number += 1;
        let key = (due, state.number);
        state.waiting.insert(key, job);
        let is_first = state.waiting.first_key_value().is_some_and(|(&first, _)| first == key);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Schedules the reclaim of frames that a task was just told of.
    pub(crate) fn schedule_reclaim(&self, shard: usize, slot: &Arc<Slot>) {
        let due =
            (self.epoch.elapsed() + UNCOLLECTED_MAX).as_nanos().next_multiple_of(RECLAIM_STEP.as_nanos());
        let due = Duration::from_nanos(u64::try_from(due).expect("a due time fits in 584 years"));
        self.add(self.epoch + due, Job::ReclaimFrames { shard, slot: Arc::downgrade(slot) });
    }

    /// Ends the thread, drops all jobs, and closes the queues that wait for one.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_one();
        for job in waiting.into_values() {
            if let Job::Run(queue, _) = job {
                // Its paused requests keep the queue alive: `close` drops them.
                queue.close();
            }
        }
    }

    fn run(&self, engine: &Weak<Inner>) {
        let mut state = self.state.lock();
        while !state.closed {
            let Some((&(due, _), _)) = state.waiting.first_key_value() else {
                state = self.changed.wait(state);
                continue;
            };
            if let Some(pause) = time_until(due) {
                state = self.changed.wait_timeout(state, pause);
                continue;
            }
            let (_, job) = state.waiting.pop_first().expect("there is a first one");
            drop(state);
            let Some(engine) = engine.upgrade() else { return };
            // A panic of a store is reported by the panic hook and ends its own request; other jobs
            // still need this thread.
            let _told = catch_unwind(AssertUnwindSafe(|| job.run(&engine)));
            drop(engine);
            state = self.state.lock();
        }
    }
}
