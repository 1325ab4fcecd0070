//! What `bowwave run` loads into the program that it runs: the C library's calls on files, answered by bowwave where the
//! path says so and passed on where not.
//!
//! ```text
//!   program ──► open, read, mmap … ──► calls ──┬─ not ours ──► real ──► C library
//!                                              └─ ours ──► table ──► live ──► service ──► engine, region
//! ```
//!
//! A descriptor of ours is a real one, a sealed memory object that cannot be read: what the program does with descriptors in
//! general (dup, poll, close on exec, inheriting) is the kernel's business, and its offset is the file's. What reaches the
//! kernel by another way than the C library fails there, rather than read zeros (`placeholder`).
//!
//! | module | what it is |
//! |---|---|
//! | `calls` | the C library's functions, a file an area |
//! | `real` | the C library's own, the next in line |
//! | `setup`, `service` | what is served, as the environment says, and the engine behind it, made when first wanted |
//! | `table`, `live`, `placeholder` | descriptors of ours |
//! | `maps` | memory of ours |
//! | `fork` | a child makes everything anew |
//! | `report` | counters at the end of the process |
//!
//! What it does not do: writing; programs without the dynamic linker; calls that bypass the C library.

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
