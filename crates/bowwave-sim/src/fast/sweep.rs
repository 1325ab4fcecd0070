//! Runs many replays of one trace in parallel.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowwave_core::{Eviction, Policy};
use bowwave_trace::binary::Trace;

use super::{Error, Outcome, Setup, replay};
use crate::parallel;

/// Values to combine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Readahead policies.
    pub policies: Vec<Policy>,
    /// Frames of the cache; `None` never evicts.
    pub cache_pages: Vec<Option<u32>>,
    /// Eviction policies.
    pub evictions: Vec<Eviction>,
    /// Maximum pages of a window.
    pub ra_pages: Vec<u32>,
}

impl Axes {
    /// Every combination on top of `base`: windows vary fastest, then policies, evictions, cache
    /// sizes.
    #[must_use]
    pub fn setups(&self, base: &Setup) -> Vec<Setup> {
        let mut setups = Vec::new();
        for &cache_pages in &self.cache_pages {
            for &eviction in &self.evictions {
                for &policy in &self.policies {
                    for &ra_pages in &self.ra_pages {
                        setups.push(Setup { policy, cache_pages, eviction, ra_pages, ..*base });
                    }
                }
            }
        }
        setups
    }
}

/// Replays a trace with each of `setups` on `workers` threads; outcomes are in the order of
/// `setups`. `progress` receives the number done after each.
///
/// # Errors
///
/// The first of `setups` that failed.
pub fn replay_all<B: AsRef<[u8]> + Sync>(
    trace: &Trace<B>,
    setups: &[Setup],
    workers: NonZeroUsize,
    progress: impl Fn(usize) + Sync,
) -> Result<Vec<Outcome>, Error> {
    let done = AtomicUsize::new(0);
    parallel::try_map(setups, workers, |setup| {
        let outcome = replay(trace, setup);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        outcome
    })
}
