//! The page cache as a pure state machine: what to read, when, what to keep, what to drop, and why.
//!
//! ```text
//!   Event, Instant  ──►  Cache::step  ──►  Action …
//!                          │    ▲
//!                   Access ▼    │ Plan (window, reason)
//!                         Readahead policy
//! ```
//!
//! A [`Cache`] is one shard: page table, fills in flight, waiting reads, frame budget, eviction lists and a readahead
//! policy per open handle. It has no clock, no thread, no bytes and no randomness. A driver tells it what happened
//! ([`Event`]) and when ([`Instant`]), and carries out what it answers ([`Action`]):
//!
//! ```
//! use bowwave_core::{Action, Cache, Config, FileId, HandleId, Instant, PageCount, PageRange, ReadOutcome, Waiter};
//!
//! let mut cache = Cache::new(Config::default()).expect("the default configuration is valid");
//! let (mut out, mut frames) = (Vec::new(), Vec::new());
//! cache.open_file(FileId(0), PageCount(100));
//! cache.open_handle(HandleId(0), FileId(0));
//!
//! // A read that misses waits, and the cache asks for the page and three more.
//! let outcome = cache.read(Instant(0), Waiter(7), HandleId(0), PageRange::new(0, 1), &mut frames, &mut out);
//! assert_eq!(outcome, ReadOutcome::Wait);
//! let fill = out.iter().find_map(|action| match action { Action::Fill(fill) => Some(*fill), _ => None }).unwrap();
//! assert_eq!(fill.range, PageRange::new(0, 4));
//!
//! // When the fill is done, the reader is woken with its page pinned.
//! out.clear();
//! cache.filled(Instant(1), fill.id, Ok(()), &mut out);
//! assert!(matches!(&out[..], [Action::Wake { waiter: Waiter(7), result: Ok(pinned) }] if pinned.len() == 1));
//! ```
//!
//! To drive it: decide under a lock, act outside it. Every [`Fill`] is answered by exactly one
//! [`Cache::filled`], every [`WriteOut`] by one [`Cache::written_out`]; every [`ReadOutcome::Wait`] is answered by exactly
//! one [`Action::Wake`]; frames that a hit or a
//! wake hands out are pinned until [`Cache::unpin`]. A log of `(Instant, Event)` replays to the identical actions.
//!
//! What it does not do: I/O, byte offsets, locking. Those are the driver's. What a driver decides about requests to a remote
//! store (retries, deadlines, versions) is in [`network`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cache;
pub mod check;
mod config;
mod event;
mod id;
mod mix;
pub mod network;
mod page;
pub mod readahead;
mod request;
pub mod schedule;
pub mod slab;
mod stats;
pub mod swap;
mod time;
pub mod window;
mod write;

pub use cache::{Cache, Observer, TooManyRanges, Violation};
pub use config::{Config, ConfigError, Eviction};
pub use event::{Action, Advice, Decision, Event, Fill, FillError, ReadOutcome, Trigger, Urgency};
pub use id::{FileId, FillId, FrameId, HandleId, Waiter, WriteOutId};
pub use mix::{MIX_STEP, mix};
pub use page::{PageCount, PageIndex, PageRange, PageSize};
pub use readahead::{
    Access, Account, Clusters, Detector, FillReport, LinuxConfig, LustreStat, Plan, Plans, Policy, Pressure,
    RangeConfig, Readahead, Reason, Scores, StreamConfig, Stride, View, Window,
};
pub use request::{Fault, Part, Pattern, Request};
pub use stats::Stats;
pub use time::Instant;
pub use write::{Base, SyncFor, Target, Write, WriteBackConfig, WriteOut, WriteOutcome};
