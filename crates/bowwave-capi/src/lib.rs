//! The C API of bowwave: `libbowwave.so`, `libbowwave.a` and `include/bowwave.h`.
//!
//! The header is the reference; this crate implements it, one file per area. No panic leaves a
//! function: it becomes `EIO` with a message ([`failure`]). A test compares the header with the
//! functions, type by type.
//!
//! It has no logic of its own: engine and region do the work.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "the header is the reference")]

mod arguments;
pub mod control;
pub mod counters;
pub mod failure;
pub mod file;
pub mod region;
pub mod store;
pub mod swap;

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
