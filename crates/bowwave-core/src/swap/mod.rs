//! Swap readahead: which pages to read from the spill store together with a touched one.
//!
//! | policy | rule |
//! |---|---|
//! | [`Vma`] | VMA-based swap readahead (Huang, 2017; in Linux since 4.14): the pages around the touched page in its region, in the direction of the last step, sized by the region's hits |
//! | [`Adaptive`] | bowwave's own: several streams a region, upward, downward or strided, each read ahead by as many pages as its reader touches while the store responds |
//!
//! Another crate adds a policy with [`SwapPolicyKind`]; [`window_size`] has Linux's arithmetic of
//! sizes. A policy only plans: the pager clips each window to the pages that are swapped out.

mod adaptive;
pub mod pager;
mod size;
mod vma;

pub use adaptive::{Adaptive, AheadPlan, Pace};
pub use size::{SwapConfig, window_size};
pub use vma::{Vma, VmaPlan};

use alloc::boxed::Box;
use core::fmt;

use crate::config::ConfigError;
use pager::{PageId, SwapWindow};

/// A swap readahead policy. Policies with the same name are equal.
#[derive(Clone, Copy, Debug)]
pub enum SwapPolicy {
    /// The touched page alone.
    None,
    /// By addresses.
    Vma,
    /// By streams of addresses, with a distance that follows the store's latency.
    Adaptive,
    /// A policy of another crate.
    Other(&'static dyn SwapPolicyKind),
}

/// A kind of swap readahead: its name, and how a state is built.
///
/// A static of any type with this trait, in any crate, is a policy: [`SwapPolicy::Other`].
pub trait SwapPolicyKind: fmt::Debug + Send + Sync {
    /// The name in reports and on command lines.
    fn name(&self) -> &'static str;

    /// The state of a pager that has seen no touch.
    fn build(&self) -> Box<dyn SwapReadahead>;
}

/// Swap readahead of another crate: one state for all regions of a pager.
pub trait SwapReadahead: fmt::Debug + Send {
    /// A touch found its page on the store: plans what to read with it.
    fn on_fault(&mut self, fault: SwapFault) -> SwapPlan;

    /// A touch found a page in memory that readahead had read, or was reading.
    fn on_hit(&mut self, _page: PageId) {}
}

/// A touch of a page that is on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapFault {
    /// The page.
    pub page: PageId,
    /// Its slot.
    pub slot: SlotIndex,
    /// Slots of the store, with slot 0.
    pub slots: u64,
    /// The limits of windows.
    pub config: SwapConfig,
}

/// A window of swap readahead, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapPlan {
    /// Slots or pages to read, as far as they are in use; the touched page is read anyway.
    pub window: SwapWindow,
    /// Pages of the window before it was clipped.
    pub size: u64,
    /// Why.
    pub reason: SwapReason,
}

/// Position of a page on the spill store. Slot 0 holds the store's header and is no page's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u64);

impl SwapPolicy {
    /// The policies of this crate.
    pub const ALL: [Self; 3] = [Self::None, Self::Vma, Self::Adaptive];

    /// The name in reports and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vma => "vma",
            Self::Adaptive => "adaptive",
            Self::Other(kind) => kind.name(),
        }
    }
}

impl PartialEq for SwapPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for SwapPolicy {}

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
