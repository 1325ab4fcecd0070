//! What waits for its time: fills and write-outs for their next try, tasks' frames for being taken back.

use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::engine::Inner;
use crate::hedge::Race;
use crate::queue::Piece;
use crate::sync::{Arc, Condvar, Mutex, PoisonError, Weak, thread, until};
use crate::wait::Slot;
use crate::whole::Part;

/// How long a task that has been woken may leave its frames pinned before others get them.
const TASK_PATIENCE: Duration = Duration::from_secs(1);
/// Tasks' frames are looked at together, as each fault of a mapped file leaves some to be looked at.
const COARSE: Duration = Duration::from_millis(250);

/// Does things when their time has come.
#[derive(Debug)]
pub(crate) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
    /// Times that need not be exact are multiples of [`COARSE`] since then.
    epoch: Instant,
}

impl Default for Timer {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::default(), epoch: Instant::now() }
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: BinaryHeap<Waiting>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    job: Job,
}

/// What to do then.
#[derive(Debug)]
pub(crate) enum Job {
    /// Hand a fill or a write-out back to its queue.
    Send(Piece),
    /// Write back what has been dirty for long, and come again.
    WriteBack,
    /// Ask for a read again that is late, if it still is on its way.
    Hedge(Weak<Race>),
    /// Send the part again.
    Part(Part),
    /// Take the frames back that a task has not come for.
    TakeBack {
        /// Of which shard they are.
        shard: usize,
        /// Where they wait.
        slot: Weak<Slot>,
    },
}

impl Job {
    fn carry_out(self, engine: &Arc<Inner>) {
        match self {
            Self::Send(piece) => {
                let queue = Arc::clone(&piece.entry().queue);
                queue.push(piece);
                queue.pump(engine);
            }
            Self::Part(part) => part.send(),
            Self::Hedge(race) => {
                if let Some(race) = race.upgrade() {
                    race.hedge();
                }
            }
            Self::WriteBack => engine.write_back_old(),
            Self::TakeBack { shard, slot } => {
                if let Some(frames) = slot.upgrade().and_then(|slot| slot.take_back()) {
                    engine.unpin(shard, &frames);
                }
            }
        }
    }
}

impl Timer {
    /// Starts the thread, which ends when the engine does.
    pub(crate) fn start(self: &Arc<Self>, engine: Weak<Inner>) -> std::io::Result<()> {
        let timer = Arc::clone(self);
        thread::Builder::new().name("bowwave-timer".into()).spawn(move || timer.run(&engine)).map(drop)
    }

    /// Keeps a job until `due`.
    pub(crate) fn add(&self, due: Instant, job: Job) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = state.waiting.peek().is_none_or(|first| due < first.due);
        state.waiting.push(Waiting { due, job });
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Takes the frames back that a task is told of now, if it does not come for them.
    pub(crate) fn take_back(&self, shard: usize, slot: &Arc<Slot>) {
        let due = (self.epoch.elapsed() + TASK_PATIENCE).as_nanos().next_multiple_of(COARSE.as_nanos());
        let due = Duration::from_nanos(u64::try_from(due).expect("nobody waits for centuries"));
        self.add(self.epoch + due, Job::TakeBack { shard, slot: Arc::downgrade(slot) });
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_one();
    }

    fn run(&self, engine: &Weak<Inner>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let Some(first) = state.waiting.peek() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if let Some(pause) = until(first.due) {
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Waiting { job, .. } = state.waiting.pop().expect("peeked above");
            drop(state);
            let Some(engine) = engine.upgrade() else { return };
            // A store that panics here has nobody to tell but the panic hook, and ends its own request; others still
            // wait for this thread.
            let _told = catch_unwind(AssertUnwindSafe(|| job.carry_out(&engine)));
            drop(engine);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
/// The heap gives the largest first; the largest is the one due first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}
