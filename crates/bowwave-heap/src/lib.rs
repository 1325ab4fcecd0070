//! The library that `bowwave run --swap` loads into a program. It serves the C library's memory
//! calls from a [`Swap`](bowwave_region::Swap), so that the program may use more memory than the
//! machine has.
//!
//! ```text
//!   malloc … free ──► small, or bowwave's own ──────────► C library
//!                 ├─► up to 128 KiB ──────────► spans ──┐
//!                 └─► larger ─────────────────► large ──┼─► regions of one swap
//!   mmap … munmap ──► anonymous private ≥ 2 MiB ► large ┘
//!                 └─► others ───────────────────────────► kernel
//! ```
//!
//! | module | content |
//! |---|---|
//! | `calls` | the C library's functions, one file per area |
//! | `heap` | the swap of this process, created on first use, and its allocations: `spans`, `large` |
//! | `libc_heap` | the C library's own heap, from which bowwave itself allocates |
//! | `real` | the next definitions of other functions |
//! | `fork` | abandons a parent's memory in a child |
//! | `setup`, `start`, `report` | environment; start and end; counters |
//!
//! **No deadlock.** A page fault of the program waits for the handler threads, so a handler thread
//! must never wait for the program. Handler threads have their own heap (`libc_heap`), look up no
//! symbols (`real`), and get no signals of the program (`Quiet`). A program thread holds their
//! locks only while it touches no swapped memory and has all signals blocked.
//!
//! **Tables lie outside** the memory that they describe: freeing swapped-out memory reads nothing
//! back.
//!
//! Not part of `bowwave-preload`: that library leaves the program's heap alone.
//!
//! Not supported: static programs, and memory obtained without the C library.

mod calls;
mod fork;
mod heap;
mod libc_heap;
mod real;
mod report;
mod setup;
mod start;
