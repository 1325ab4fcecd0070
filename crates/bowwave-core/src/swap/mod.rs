//! Swap readahead: which pages to bring back from the spill store together with one that was touched.
//!
//! | policy | what it follows |
//! |---|---|
//! | [`Cluster`] | Linux before 4.14, and today on rotating disks: the slots around the touched page's slot, an aligned block, sized by hits counted over all regions |
//! | [`Vma`] | VMA-based swap readahead (patch of 2017, document 001, in Linux since 4.14): the pages around the touched page in its own region, in the direction of the last step, sized by the region's own hits |
//! | [`Adaptive`] | bowwave's own: several streams a region, forwards, backwards or at a stride, each read ahead by as many pages as its reader gets through while the store answers |
//!
//! The first two share the arithmetic of sizes ([`window_size`]). None of them does anything: a window is a plan, and whoever pages
//! clips it to what is really out.

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
    /// Which swap readahead.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SwapPolicy {
        /// None: the touched page alone.
        None = "none",
        /// By slots.
        Cluster = "cluster",
        /// By addresses.
        Vma = "vma",
        /// By streams of addresses, each as far ahead as the store is slow.
        Adaptive = "adaptive",
    }
}

impl SwapPolicy {
    /// As Linux chooses: by addresses, unless the store has a head to move; then by slots, since pages that went out
    /// together lie together.
    #[must_use]
    pub const fn for_store(rotating: bool) -> Self {
        if rotating { Self::Cluster } else { Self::Vma }
    }
}

named_enum! {
    /// Why a window is what it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SwapReason {
        /// One page: readahead is off, or nothing speaks for more.
        Single = "single",
        /// An aligned block of slots.
        Block = "block",
        /// Steps go up: the window begins at the page.
        Forward = "forward",
        /// Steps go down: the window ends at the page.
        Backward = "backward",
        /// Neither: the page is in the middle.
        Centred = "centred",
        /// Pages at a distance that most of the last steps had.
        Strided = "strided",
        /// A reader got to the mark: the next window.
        Mark = "mark",
        /// Someone said so.
        Advised = "advised",
    }
}
