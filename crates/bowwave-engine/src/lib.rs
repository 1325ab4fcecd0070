#![doc = include_str!("../README.md")]
//!
//! # Structure
//!
//! An [`Engine`] owns the memory. A [`Store`] is a backend that is read through the cache, and a
//! [`File`] is an open handle. The policy `stream` has one readahead state per file, other policies
//! have one per handle.
//!
//! The cache consists of shards, each with its own lock and memory. A file belongs to one shard.
//! The engine decides under the shard's lock and acts outside it, with two exceptions. Small reads
//! that hit are copied under the lock, because pinning and unpinning would cost as much as the
//! copy. Writes are copied under the lock, at most 256 KiB at a time.

mod ahead;
mod arena;
mod budget;
mod clock;
mod copy;
mod decisions;
mod engine;
mod entry;
mod error;
mod file;
mod files;
mod hedge;
mod known;
mod lease;
mod live;
mod mapped;
mod memory;
mod object_upload;
mod offset_mapped;
mod options;
mod pressure;
mod queue;
mod request;
mod settings;
mod shard;
mod siblings;
mod stats;
mod store;
#[doc(hidden)]
pub mod sync;
mod timer;
mod wait;
mod write_out;

pub use ahead::AheadBudget;
/// Stores, as the engine reads them: [`bowwave_backend`].
pub use bowwave_backend as backend;
pub use bowwave_backend::{Entry, EntryKind, ErrorKind, Identity, Namespace};
/// Decisions as JSON.
pub use bowwave_core::explain;
pub use bowwave_core::readahead::{
    PlannedSibling, SIBLING_SHARE, SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, SamplePrior, Sibling,
    SiblingDirectories, SiblingEvent, SiblingExtent, SiblingFetch, SiblingReason, SiblingTrails, SiblingUses,
    Siblings,
};
pub use bowwave_core::schedule::{Algorithm, Priority, SchedulerStats};
pub use bowwave_core::{
    Advice, Instant as EventTime, Journal as EventJournal, PageSize, Pattern, Policy, RangeConfig, Stats,
    StreamConfig,
};
pub use decisions::{ActingFor, DecisionLog};
pub use engine::Engine;
pub use error::{Error, Result};
pub use file::{File, Upload};
pub use live::{LIVE_SETTINGS, LiveSetting};
pub use mapped::{Around, MappedFile};
pub use memory::available_memory;
pub use offset_mapped::Mapping;
pub use options::{Options, StreamBudget, Tuning};
pub use settings::{SETTINGS, Setting, Settings, suitable_ra_pages};
pub use siblings::{
    ManyFiles, NamedFile, NamedFiles, SiblingFile, SiblingJournal, SiblingOpen, SiblingReadahead,
    SiblingTree, TooMany,
};
pub use stats::{EngineStats, Latencies, Spread, StoreStats, Work};
pub use store::{OpenOptions, Store};

/// The events of one shard since it began, and a digest of the actions they led to.
pub type Journal = bowwave_core::Journal<bowwave_core::Event>;
