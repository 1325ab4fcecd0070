//! Synchronisation primitives: the standard library's, or doubles for a model checker (ADR 22), in
//! which each operation is a possible thread switch.

#[cfg(not(feature = "model"))]
pub(crate) use std::{sync::atomic, sync::*, thread};

#[cfg(feature = "model")]
pub(crate) use shuttle::{sync::atomic, sync::*, thread};
