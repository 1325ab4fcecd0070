//! References whose last one is never dropped by a signal handler.
//!
//! A handler, or work that runs in one, may hold a reference to a region while its owner drops it.
//! To drop the last one unmaps memory, takes locks and closes files, which a handler must not do.
//! So an [`Owner`] keeps its reference until it is the only one. Usually it already is; otherwise a
//! thread drops it later and ends when nothing is left to drop.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use bowwave_engine::backend::sync::Mutex;

/// An owning reference, dropped last.
pub(crate) struct Owner<T: Send + Sync + 'static>(Option<Arc<T>>);

impl<T: Send + Sync> Owner<T> {
    pub(crate) fn new(owned: Arc<T>) -> Self {
        Self(Some(owned))
    }
}

impl<T: Send + Sync> Deref for Owner<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Send + Sync> Drop for Owner<T> {
    fn drop(&mut self) {
        let Some(shared) = self.0.take().and_then(try_drop) else { return };
        // The model has neither signals nor a clock.
        if !cfg!(feature = "model") {
            later(Box::new(Some(shared)));
        }
    }
}

/// Drops the value, unless there are other references.
fn try_drop<T>(owned: Arc<T>) -> Option<Arc<T>> {
    Arc::try_unwrap(owned).err()
}

/// A reference that waits to become the last one.
trait Waiting: Send {
    /// Tries to drop it; returns whether it was dropped.
    fn is_dropped(&mut self) -> bool;
}

impl<T: Send + Sync> Waiting for Option<Arc<T>> {
    fn is_dropped(&mut self) -> bool {
        *self = self.take().and_then(try_drop);
        self.is_none()
    }
}

/// Waiting references, and whether the reaper thread runs.
struct Reaper {
    waiting: Vec<Box<dyn Waiting>>,
    is_running: bool,
}

static REAPER: Mutex<Reaper> = Mutex::new(Reaper { waiting: Vec::new(), is_running: false });

fn reaper() -> MutexGuard<'static, Reaper> {
    REAPER.lock()
}

/// Drops a reference once it is the last one.
fn later(waiting: Box<dyn Waiting>) {
    let mut state = reaper();
    state.waiting.push(waiting);
    if !state.is_running {
        // If no thread can be started, the reference waits until the next one is added.
        state.is_running = thread::Builder::new().name("bowwave-reaper".to_owned()).spawn(reap).is_ok();
    }
}

/// Drops waiting references until none is left.
fn reap() {
    loop {
        let mut waiting = std::mem::take(&mut reaper().waiting);
        // Outside the lock: a dropped value may own others.
        waiting.retain_mut(|waiting| !waiting.is_dropped());
        let mut state = reaper();
        state.waiting.append(&mut waiting);
        if state.waiting.is_empty() {
            state.is_running = false;
            return;
        }
        drop(state);
        thread::sleep(PAUSE);
    }
}

/// Polling interval. A handler holds its reference for about as long as the store takes.
const PAUSE: Duration = Duration::from_millis(5);
