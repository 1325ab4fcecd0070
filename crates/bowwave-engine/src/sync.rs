//! Synchronization primitives: the standard library's, or a model checker's doubles (ADR 22), in
//! which another thread may run at every step.

use std::time::Instant;

#[cfg(not(feature = "model"))]
pub use bowwave_backend::sync::{Condvar, Mutex, RwLock};
#[cfg(not(feature = "model"))]
pub use std::{sync::atomic, sync::*, thread, thread_local};

#[cfg(feature = "model")]
pub use shuttle::{sync::atomic, sync::*, thread, thread_local};
#[cfg(feature = "model")]
pub use std::sync::OnceLock;

#[cfg(feature = "model")]
bowwave_backend::locks_without_poison!(shuttle::sync);

/// Time until `due`; `None` if it has passed. In the model it always has: a timed wait may end at
/// any moment.
pub fn time_until(due: Instant) -> Option<std::time::Duration> {
    if cfg!(feature = "model") {
        return None;
    }
    Some(due.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
}
