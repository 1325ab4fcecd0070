//! The page cache in real time: the decisions of [`bowwave_core`] carried out on real memory and real stores.
//!
//! ```text
//!   File::read_at ──► Shard (lock: decide) ──► effects ──► Queue (merge, order) ──► Object::read
//!        ▲               ▲      frames, pins                    │ retries                  │
//!        └── copy, unpin ┴── filled, wake ◄─────────────────────┴── progress, done ◄──────┘
//! ```
//!
//! An [`Engine`] owns the memory. A [`Store`] is a tree of a backend; a [`File`] is an open handle with its own
//! readahead state. Everything is decided under a shard's lock and done outside it, but for one thing: small reads that
//! hit are copied under it, because to pin, leave, come back and unpin would cost as much as the copy.
//!
//! ```
//! use bowwave_engine::{Engine, Options};
//!
//! let engine = Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() })?;
//! let file = engine.open("pattern:/1MiB")?;
//! let mut bytes = [0; 4096];
//! assert_eq!(file.read_at(1_000_000, &mut bytes)?, 4096);
//! assert_eq!(file.read_at((1 << 20) - 1, &mut bytes)?, 1);
//! # Ok::<(), bowwave_engine::Error>(())
//! ```
//!
//! What it does not do: decide (the core does), know protocols (backends do).

mod ahead;
mod arena;
mod budget;
mod clock;
mod copy;
mod engine;
mod entry;
mod error;
mod file;
mod files;
mod hedge;
mod journal;
mod lease;
mod lock;
mod mapped;
mod memory;
mod options;
mod places;
mod queue;
mod request;
mod settings;
mod shard;
mod stats;
mod store;
mod sync;
mod timer;
mod wait;
mod whole;
mod write_out;

pub use ahead::AheadBudget;
/// Stores, as the engine reads them: [`bowwave_backend`].
pub use bowwave_backend as backend;
pub use bowwave_backend::{Entry, EntryKind, ErrorKind, Identity};
pub use bowwave_core::schedule::{Algorithm, SchedulerStats};
pub use bowwave_core::{Advice, LustreStat, PageSize, Pattern, Policy, RangeConfig, Stats, StreamConfig};
pub use engine::Engine;
pub use error::{Error, Result};
pub use file::File;
pub use journal::Journal;
#[cfg(feature = "model")]
pub use lock::TriedLock;
pub use mapped::{Around, MappedFile};
pub use memory::available_memory;
pub use options::{Options, Tuning};
pub use places::Mapping;
pub use settings::{Settings, suitable_ra_pages};
pub use stats::{EngineStats, Latencies, Spread, StoreStats, Work};
pub use store::{OpenOptions, Store};

/// The README's example runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
