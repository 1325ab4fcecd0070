//! Memory larger than RAM: regions whose pages are swapped to a spill file, or to any store with
//! in-place writes, and read back before they are needed.
//!
//! | file | content |
//! |---|---|
//! | `region`, `vec` | the API: memory, and a vector in it |
//! | `swap` | the driver of [the core's pager](bowwave_core::swap::pager), which decides everything |
//! | `transfers`, `queue` | reads and writes in flight: buffers, the core's scheduler, the store |
//! | `reclaim` | the thread that evicts pages |
//! | `recorder` | journal of events, log of decisions |
//! | `memory` | the mapping, and its state in the kernel |
//! | `serve` | threads that wait for page faults |
//! | `spill`, `buffers`, `space` | the file, pages in flight, allocation of addresses |
//!
//! **No deadlock.** Serving a fault uses buffers, tables and threads allocated outside of regions,
//! and never accesses a region. A write-out holds its buffers until it ends and waits for nothing.
//! A swap-in waits for buffers or a frame, which write-outs release.
//!
//! **Fork.** A child does not have the memory (`MADV_DONTFORK`): an access there is an immediate
//! segmentation fault, not zeros or a wait for threads that it does not have. `vfork` and
//! `posix_spawn` share the parent's memory and work.

mod buffers;
mod live;
mod memory;
mod queue;
mod reclaim;
mod recorder;
mod region;
mod serve;
mod space;
mod spill;
mod swap;
mod transfers;
mod vec;

pub use bowwave_core::swap::SwapPolicy;
pub use bowwave_core::swap::pager::{Lists, PagerLoad, Placement, RegionAdvice, SwapStats};
pub use live::{SWAP_SETTINGS, SwapSetting};
pub use recorder::SwapJournal;
pub use region::{Swap, SwapOptions, SwapRegion, SwapReport};
pub use spill::Spill;
pub use vec::SwapVec;
