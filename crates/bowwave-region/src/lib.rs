//! Memory whose pages come from a store when they are touched: any file of any store, mapped, without a mount or a kernel
//! module.
//!
//! ```text
//!   a touch ──► kernel ──► handler ──► MappedFile::fault ──► cache, readahead ──► store
//!      ▲                                       │ the page is there, and what lies around it
//!      └────────── mapped, woken ◄─────────────┘
//! ```
//!
//! A [`Region`] is read like a slice. What it holds is what the [`Engine`](bowwave_engine::Engine) caches, without a second
//! copy, and goes as the engine needs room.
//!
//! ```
//! use bowwave_engine::{Engine, Options};
//! use bowwave_region::{MapOptions, Region};
//!
//! let engine = Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() })?;
//! let store = engine.store("pattern:/100MiB")?;
//! let region = Region::map(&store, "".as_ref(), &MapOptions::default())?;
//! let mut last = [0];
//! region.read(region.len() as u64 - 1, &mut last)?;
//! assert_eq!(region.as_slice()[region.len() - 1], last[0]);
//! # Ok::<(), bowwave_region::Error>(())
//! ```
//!
//! A [`SwapRegion`] is memory larger than memory: what does not fit goes to a spill file, and comes back before it is needed.
//!
//! What it does not do: decide (the core does), fetch (the engine does).

mod anonymous;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inner;
#[cfg(not(feature = "model"))]
mod kernel;
#[cfg(feature = "model")]
#[path = "model.rs"]
mod kernel;
mod reap;
mod region;
mod signals;
mod streams;
mod sync;
mod task;
pub mod uffd;

pub use anonymous::{
    PagerLoad, RegionAdvice, Spill, Swap, SwapOptions, SwapPolicy, SwapRegion, SwapReport, SwapStats, SwapVec,
};
pub use bowwave_engine as engine;
pub use error::{Error, Result};
#[cfg(feature = "model")]
pub use kernel::{Touched, Toucher};
pub use region::{MapOptions, Protection, Region, RegionStats};
