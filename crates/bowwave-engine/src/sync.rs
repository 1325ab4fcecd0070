//! Synchronization primitives: the standard library's, or a model checker's doubles (ADR 22), in
//! which another thread may run at every step.

use std::time::Instant;

#[cfg(not(feature = "model"))]
pub(crate) use std::{sync::atomic, sync::*, thread, thread_local};

#[cfg(feature = "model")]
pub(crate) use shuttle::{sync::atomic, sync::*, thread, thread_local};
#[cfg(feature = "model")]
pub(crate) use std::sync::OnceLock;

/// Time until `due`; `None` if it has passed. In the model it always has: a timed wait may end at
/// any moment.
pub(crate) fn time_until(due: Instant) -> Option<std::time::Duration> {
    if cfg!(feature = "model") {
        return None;
    }
    Some(due.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
}
