//! bowwave for C, and for whatever calls C: `libbowwave.so`, `libbowwave.a` and `include/bowwave.h`.
//!
//! The header is the reference; what is here carries it out, a file an area. No panic leaves a function: it becomes `EIO`
//! with a message ([`failure`]). A test holds the header against the functions, type by type.
//!
//! What it does not do: anything of its own. Engine and region do the work.

pub mod counters;
pub mod failure;
pub mod file;
mod given;
pub mod region;
pub mod store;
pub mod swap;

/// The example of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
