//! Swap readahead: which pages to read from the spill store together with a touched one.
//!
//! | policy | rule |
//! |---|---|
//! | [`Cluster`] | Linux before 4.14, and today on rotating disks: an aligned block of slots around the touched page's slot, sized by hits over all regions |
//! | [`Vma`] | VMA-based swap readahead (patch of 2017, document 001, in Linux since 4.14): the pages around the touched page in its region, in the direction of the last step, sized by the region's hits |
//! | [`Adaptive`] | bowwave's own: several streams a region, upward, downward or strided, each read ahead by as many pages as its reader touches while the store responds |
//!
//! The first two share the arithmetic of sizes ([`window_size`]). A policy only plans: the pager clips
//! each window to the pages that are swapped out.

mod adaptive;
mod cluster;
mod odds;
pub mod pager;
mod size;
mod vma;

pub use adaptive::{Adaptive, AheadPlan, Pace};
pub use cluster::{Cluster, SlotIndex, SlotRange};
pub use size::{SwapConfig, window_size};
pub use vma::{Vma, VmaPlan};

use crate::config::ConfigError;

named_enum! {
    /// A swap readahead policy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SwapPolicy {
        /// The touched page alone.
        None = "none",
        /// By slots.
        Cluster = "cluster",
        /// By addresses.
        Vma = "vma",
        /// By streams of addresses, with a distance that follows the store's latency.
        Adaptive = "adaptive",
    }
}

impl SwapPolicy {
    /// Linux's choice: by addresses, unless the store is rotating. Then by slots, since pages
    /// written out together lie together.
    #[must_use]
    pub const fn for_store(rotating: bool) -> Self {
        if rotating { Self::Cluster } else { Self::Vma }
    }
}

named_enum! {
    /// Reason of a window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SwapReason {
        /// One page: readahead is off, or the policy predicts nothing.
        Single = "single",
        /// An aligned block of slots.
        Block = "block",
        /// Upward steps: the window begins at the page.
        Forward = "forward",
        /// Downward steps: the window ends at the page.
        Backward = "backward",
        /// No direction: the page is in the middle.
        Centred = "centred",
        /// The stride of most of the last steps.
        Strided = "strided",
        /// A reader reached the mark: the next window.
        Mark = "mark",
        /// Advice.
        Advised = "advised",
    }
}
