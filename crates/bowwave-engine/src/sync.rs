//! What threads meet at: the standard library's, or in a model checker (ADR 22) doubles whose every step is a point at which
//! another thread may come first.

use std::time::Instant;

#[cfg(not(feature = "model"))]
pub(crate) use std::{sync::atomic, sync::*, thread, thread_local};

#[cfg(feature = "model")]
pub(crate) use shuttle::{sync::atomic, sync::*, thread, thread_local};
#[cfg(feature = "model")]
pub(crate) use std::sync::OnceLock;

/// How long until `due`; `None` if it has come. In the model it always has: what waits for a time there may happen at once,
/// and so at any moment.
pub(crate) fn until(due: Instant) -> Option<std::time::Duration> {
    if cfg!(feature = "model") {
        return None;
    }
    Some(due.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
}
