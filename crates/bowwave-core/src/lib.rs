#![doc = include_str!("../README.md")]
//!
//! # Driving the cache
//!
//! Decide under a lock, act outside it, with one exception: after [`Cache::write`], copy the bytes
//! into the target frames before any other call, under the lock. Report the end of every [`Fill`]
//! by exactly one [`Cache::filled`], and of every [`WriteOut`] by one [`Cache::written_out`]. Every
//! [`ReadOutcome::Wait`] is followed by exactly one [`Action::Wake`]. Frames that a hit or a wake
//! hands out stay pinned until [`Cache::unpin`].
//!
//! [`network`] has the decisions about requests to a remote store: retries, deadlines, versions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Declares an enum whose values have names in reports and on command lines.
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* $vis:vis enum $Enum:ident { $($(#[$about:meta])* $Value:ident = $name:literal,)* }) => {
        $(#[$meta])*
        $vis enum $Enum {
            $($(#[$about])* $Value,)*
        }

        #[allow(dead_code, reason = "not every enum needs each")]
        impl $Enum {
            /// Every value, in order.
            $vis const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// The names of [`ALL`](Self::ALL).
            $vis const NAMES: [&'static str; Self::ALL.len()] = [$($name),*];

            /// The name in reports and on command lines.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }

        impl core::fmt::Display for $Enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

mod cache;
pub mod check;
mod config;
mod event;
pub mod explain;
mod id;
mod journal;
pub mod network;
mod page;
mod random;
mod ranges;
pub mod readahead;
mod request;
pub mod schedule;
pub mod slab;
mod stats;
pub mod swap;
mod time;
pub mod window;
mod write;

pub use cache::{Cache, Observer, Pins, TooManyRanges, Violation};
pub use config::{Config, ConfigError, Eviction, WindowTuning};
pub use event::{Action, Advice, Decision, Event, Fill, FillError, ReadOutcome, Trigger, Urgency};
pub use id::{FileId, FillId, FrameId, HandleId, Waiter, WriteOutId};
pub use journal::{Journal, Replay};
pub use page::{PageCount, PageIndex, PageRange, PageSize};
pub use random::{MIX_STEP, Random, fill_pattern, mix};
pub use ranges::RangeSet;
pub use readahead::{
    Access, Candidate, Capabilities, ClusterRules, Clusters, Costs, Detector, FileMemory, FillReport, Hints,
    Plan, Plans, Policy, PolicyKind, Pressure, RangeConfig, Readahead, Reason, Scores, StreamConfig, Stride,
    Verdict, View, WasteCounts, Weighed, WeighedCandidate, Window,
};
#[cfg(feature = "ablation")]
pub use readahead::{Tuning, set_tuning};
pub use request::{Fault, PageAccess, Part, Pattern, Request};
pub use stats::Stats;
pub use time::Instant;
pub use write::{Base, SyncFor, Target, Write, WriteBackConfig, WriteOut, WriteOutcome};
