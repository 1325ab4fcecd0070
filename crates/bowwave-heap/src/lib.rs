//! What `bowwave run --swap` loads into the program that it runs: the C library's calls for memory, answered out of a
//! [`Swap`](bowwave_region::Swap), so that the program may have more memory than there is.
//!
//! ```text
//!   malloc … free ──► small, or bowwave's own ──────────────► C library
//!                 └─► from so many bytes on ──► spans ──┐
//!   mmap … munmap ──► anonymous, private, large ► large ┴──► regions of one swap
//!                 └─► all else ─────────────────────────────► kernel
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `calls` | the C library's functions, a file an area |
//! | `heap` | the swap of this process, made when first wanted, and who has what of it: `spans`, `large` |
//! | `libc_heap` | the C library's own heap, which all that bowwave itself needs comes from |
//! | `real` | the next in line for other functions |
//! | `fork` | a child leaves its parent's memory alone |
//! | `setup`, `start`, `report` | what the environment says; begin and end; counters |
//!
//! **No deadlock.** A touch of the program's waits for the threads that serve it. So these must never wait for the program: they have their
//! own heap (`libc_heap`), look up no symbol (`real`), get no signal of the program's (`quiet`), and what they lock the
//! program locks only where it touches nothing and no signal comes in between.
//!
//! **Tables lie outside** of what they are about: to free memory that is out brings nothing back.
//!
//! A library of its own, apart from the one that serves files: that one leaves the heap of its programs alone.
//!
//! What it does not do: programs without the dynamic linker; memory that a program gets without the C library.

mod calls;
mod fork;
mod heap;
mod libc_heap;
mod quiet;
mod real;
mod report;
mod setup;
mod start;
