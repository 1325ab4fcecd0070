#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cluster;
mod clusters;
mod deadline;
mod legacy;
mod linux;
mod patch;

pub use cluster::{CLUSTER, SWAP, swap_for_store};
pub use clusters::{CLUSTERS, CLUSTERS_BEFORE, CLUSTERS_LITERAL};
pub use deadline::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW, algorithm, scheduler};
pub use legacy::Legacy;
pub use linux::{Linux, LinuxConfig, linux};
pub use patch::OnDemandPatch;

use alloc::boxed::Box;

use bowwave_core::readahead::Range;
use bowwave_core::{Capabilities, Config, FileMemory, Policy, PolicyKind, RangeConfig, Readahead};

/// Linux 2.6.20.
pub const LEGACY: Policy = Policy::Other(&WithoutSettings::Legacy);
/// On-demand readahead as in the patch of 2007.
pub const ON_DEMAND_PATCH: Policy = Policy::Other(&WithoutSettings::OnDemandPatch);
/// Today's Linux, with the settings for a cache of single pages (no large folios).
pub const LINUX: Policy = Policy::Other(&linux::DEFAULT);
/// [`Policy::Range`] with the read-around windows for faults as Lustre's patch of 2021 has them.
pub const RANGE_LITERAL: Policy = Policy::Other(&WithoutSettings::RangeLiteral);

/// Every policy: those of `bowwave-core` and those of this crate, as reports order them.
pub const ALL: [Policy; 8] = [
    Policy::None,
    LEGACY,
    Policy::OnDemand,
    ON_DEMAND_PATCH,
    LINUX,
    Policy::Range,
    RANGE_LITERAL,
    Policy::Stream,
];

/// The policy of a name, if it is in [`ALL`].
pub fn policy(name: &str) -> Option<Policy> {
    ALL.into_iter().find(|policy| policy.name() == name)
}

/// The names of [`ALL`].
pub fn names() -> [&'static str; ALL.len()] {
    ALL.map(Policy::name)
}

/// The policies without settings of their own.
#[derive(Debug)]
enum WithoutSettings {
    Legacy,
    OnDemandPatch,
    RangeLiteral,
}

impl PolicyKind for WithoutSettings {
    fn name(&self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::OnDemandPatch => "ondemand-patch",
            Self::RangeLiteral => "range-literal",
        }
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Legacy => Capabilities { every_access: true, ..Capabilities::default() },
            Self::OnDemandPatch => Capabilities::default(),
            Self::RangeLiteral => Range::capabilities(),
        }
    }

    fn counters(&self) -> &'static [&'static str] {
        match self {
            Self::Legacy | Self::OnDemandPatch => &[],
            Self::RangeLiteral => Range::COUNTERS,
        }
    }

    fn build(&self, config: &Config, file: &mut FileMemory) -> Box<dyn Readahead> {
        match self {
            Self::Legacy => Box::new(Legacy::new()),
            Self::OnDemandPatch => Box::new(OnDemandPatch::default()),
            Self::RangeLiteral => {
                let range = RangeConfig { clusters: CLUSTERS_LITERAL, ..config.range };
                Box::new(Range::new(&Config { range, ..config.clone() }, file))
            }
        }
    }
}
