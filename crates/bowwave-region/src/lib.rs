#![doc = include_str!("../README.md")]
//!
//! [`Region`] maps a file of a store. [`SwapRegion`] and [`SwapVec`] are memory larger than RAM.
//! [`bowwave_core`] makes all decisions. [`bowwave_engine`] sends the requests of a [`Region`];
//! swap has a queue of its own.

mod anonymous;
mod copy;
mod error;
mod faults;
#[cfg(not(feature = "model"))]
mod fork;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inner;
#[cfg(not(feature = "model"))]
mod kernel;
#[cfg(feature = "model")]
#[path = "model.rs"]
mod kernel;
mod page_map;
mod reap;
mod region;
mod signals;
mod streams;
mod task;
pub mod uffd;

pub use anonymous::{
    Lists, PagerLoad, Placement, RegionAdvice, SWAP_SETTINGS, Spill, Swap, SwapJournal, SwapOptions,
    SwapPolicy, SwapRegion, SwapReport, SwapSetting, SwapStats, SwapVec,
};
pub use bowwave_engine as engine;
pub use error::{Error, Result};
pub use faults::{Fault, FaultOutcome};
#[cfg(feature = "model")]
pub use kernel::{Touched, Toucher};
#[doc(hidden)]
pub use page_map::private_pages;
pub use region::{MapOptions, Protection, Region, RegionStats};
