//! Releases the GIL for copies, and hands it over between threads that read without a sleep.
//!
//! A thread that finds the GIL taken sleeps until a signal, which takes longer than a copy of
//! 64 KiB. Threads in a loop of cached reads hold the GIL for some microseconds between two copies,
//! so a thread that returns from its copy spins for that long before it asks for the GIL.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;

/// Reads in a row by one thread after which it keeps the GIL during short copies again. Smaller:
/// two threads in turns are taken for one; larger: a thread alone releases it for nothing.
const ALONE: u32 = 64;
/// Iterations of the spin, of 10 to 40 ns each. Fewer: a thread sleeps although the GIL is
/// about to be released; more: processor time is lost if the other thread computes.
const SPINS: u32 = 400;

/// Whether the interpreter has no GIL, by its build or its options.
static FREE: AtomicBool = AtomicBool::new(false);

/// Whether a thread has returned from a copy and has not started the next one: most likely it
/// holds the GIL. This is wrong if the GIL was released elsewhere meanwhile. The next copy corrects
/// it: the thread that starts it held the GIL until then.
static HELD: AtomicBool = AtomicBool::new(false);

/// The thread of the last read, as the address of a thread-local.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// Reads of that thread for which others still count as readers.
static SHARED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static ADDRESS: u8 = const { 0 };
}

/// Records whether the interpreter has a GIL.
///
/// # Errors
/// Those of Python.
pub(crate) fn look(py: Python<'_>) -> PyResult<()> {
    // Since 3.13.
    if let Some(enabled) = py.import("sys")?.getattr_opt("_is_gil_enabled")? {
        FREE.store(!enabled.call0()?.is_truthy()?, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the interpreter has no GIL.
pub(crate) fn is_free() -> bool {
    FREE.load(Ordering::Relaxed)
}

/// Notes a read by this thread; returns whether other threads have read lately.
pub(crate) fn is_shared() -> bool {
    let this = ADDRESS.with(|address| std::ptr::from_ref(address).addr());
    if LAST.load(Ordering::Relaxed) != this {
        LAST.store(this, Ordering::Relaxed);
        SHARED.store(ALONE, Ordering::Relaxed);
        return true;
    }
    let left = SHARED.load(Ordering::Relaxed);
    if left > 0 {
        SHARED.store(left - 1, Ordering::Relaxed);
    }
    left > 0
}

/// Runs a copy without the GIL.
pub(crate) fn released<T: Send>(py: Python<'_>, copy: impl FnOnce() -> T + Send) -> T {
    if is_free() {
        return py.detach(copy);
    }
    py.detach(|| {
        HELD.store(false, Ordering::Relaxed);
        let value = copy();
        for _ in 0..SPINS {
            if !HELD.load(Ordering::Relaxed) && !HELD.swap(true, Ordering::Relaxed) {
                return value;
            }
            std::hint::spin_loop();
        }
        HELD.store(true, Ordering::Relaxed);
        value
    })
}
