//! Memory larger than memory: regions whose pages go to a spill file, or any store that can be written in place, and come back before
//! they are needed.
//!
//! | file | what it is |
//! |---|---|
//! | `region`, `vec` | what programs have: memory, and a vector in it |
//! | `swap` | the driver of [the core's pager](bowwave_core::swap::pager), which decides everything |
//! | `transfers`, `queue` | reads and writes on their way: buffers, the core's scheduler, the store |
//! | `room` | the thread that takes pages out of memory |
//! | `memory` | the mapping, and what the kernel says of it |
//! | `serve` | threads that wait for touches |
//! | `spill`, `buffers`, `space` | the file, pages on their way, who has which addresses |
//!
//! **No deadlock.** Serving a touch takes buffers, tables and threads that are allocated outside of regions, and never touches one. A write-out
//! holds its buffers until it ends and waits for nobody; a swap-in waits for buffers or a frame, which come back from those.
//!
//! **Fork.** A child does not have the memory (`MADV_DONTFORK`): a touch is a segmentation fault there, at once, rather than zeros
//! or a wait for threads that it does not have. `vfork` and `posix_spawn` share the parent's memory and work.

mod buffers;
mod memory;
mod queue;
mod region;
mod room;
mod serve;
mod space;
mod spill;
mod swap;
mod transfers;
mod vec;

pub use bowwave_core::swap::SwapPolicy;
pub use bowwave_core::swap::pager::{PagerLoad, RegionAdvice, SwapStats};
pub use region::{Swap, SwapOptions, SwapRegion, SwapReport};
pub use spill::Spill;
pub use vec::SwapVec;
