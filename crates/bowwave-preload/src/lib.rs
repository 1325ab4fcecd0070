//! The library that `bowwave run` loads into a program. It serves the C library's file calls for
//! paths in a store, and passes other calls on.
//!
//! ```text
//!   program ──► open, read, mmap … ──► calls ──┬─ not in a store ──► real ──► C library
//!                                              └─ in a store ──► table ──► live ──► service ──► engine, region
//! ```
//!
//! Each descriptor that the library returns is a kernel descriptor: a sealed memory object that
//! cannot be read. The kernel handles dup, poll, close-on-exec and inheritance, and keeps the file
//! offset. Calls that bypass the C library fail instead of reading zeros (`placeholder`).
//!
//! | module | content |
//! |---|---|
//! | `calls` | the C library's functions, one file per area |
//! | `real` | the next definitions of these functions, usually the C library's |
//! | `setup`, `service` | the configuration from the environment, and the engine, created on first use |
//! | `table`, `live`, `placeholder` | served descriptors |
//! | `maps` | served memory maps |
//! | `fork` | recreates maps in a child at once, the engine and files on first use |
//! | `report` | counters at the end of the process |
//!
//! Not supported: writing, static programs, and calls that bypass the C library.

mod attributes;
mod calls;
mod errno;
mod fork;
mod live;
mod maps;
mod placeholder;
mod real;
mod report;
mod service;
mod setup;
mod start;
mod table;
