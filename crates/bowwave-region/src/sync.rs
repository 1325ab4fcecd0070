//! What threads meet at: the standard library's, or in a model checker (ADR 22) doubles whose every step is a point at which
//! another thread may come first.

#[cfg(not(feature = "model"))]
pub(crate) use std::{sync::atomic, sync::*, thread};

#[cfg(feature = "model")]
pub(crate) use shuttle::{sync::atomic, sync::*, thread};
