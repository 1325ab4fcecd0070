//! Values that belong to one process: a forked child must neither use nor drop its parent's.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(bowwave._bowwave, Forked, PyRuntimeError, "It was opened before a fork.");

/// Number of forks from the first process to this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Reports that this process is a forked child.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    bowwave_engine::backend::forked();
}

/// The current generation.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value that only the process that created it uses and drops. In a child it is leaked: its
/// locks may be held by threads that the child does not have.
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    generation: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: generation() }
    }

    /// The value.
    ///
    /// # Errors
    /// `Forked` in a child.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if self.generation == generation() {
            return Ok(&self.value);
        }
        Err(Forked::new_err("opened before a fork: open it again in the child"))
    }

    /// The value, even in a child. A child must not use parts of it that the parent's threads may
    /// have been changing.
    pub(crate) fn of_parent(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    #[allow(unsafe_code, reason = "drops a value by hand")]
    fn drop(&mut self) {
        if self.generation != generation() {
            return;
        }
        let drop_value = || {
            // SAFETY: dropped here only, once.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        };
        // Releases the GIL: a drop may wait for threads that need it.
        Python::attach(|py| {
            let drop_value = Movable(drop_value);
            py.detach(move || drop_value.call());
        });
    }
}

/// Lets [`Python::detach`] run a closure that is not `Send`: it runs on the same thread.
struct Movable<F>(F);

impl<F: FnOnce()> Movable<F> {
    fn call(self) {
        (self.0)();
    }
}

#[allow(unsafe_code, reason = "the closure stays on its thread")]
// SAFETY: `detach` runs the closure on the calling thread.
unsafe impl<F> Send for Movable<F> {}
