//! Readers that touch many places of one region before they go to the next: chunks of an array,
//! nodes of a tree, rows of a tile.
//!
//! The engine's policies see the order of reads, and such reads have none. Here counts only that
//! several reads in a row stay within one region of [`REGION`] bytes. Then the rest of the region
//! is fetched at once; and if regions turn out to be used by half or more, the next ones are
//! fetched at their first touch.
//!
//! The waste is bounded: a region is fetched after [`TOUCHES`] reads in a row, which reads at
//! random places almost never are; and after one badly used region, only so again.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a region. Larger: more waste where clusters are small; smaller: more requests.
const REGION: u64 = 1 << 20;
/// Reads in a row within a region before it is fetched.
const TOUCHES: u32 = 3;
/// Longest read that counts: longer ones keep a store busy by themselves.
const SMALL: u64 = 64 << 10;
/// Bytes of a slot of the map of used bytes.
const SLOT: u64 = 16 << 10;

/// What is known of one reader.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<State>, AtomicBool);

#[derive(Debug, Default)]
struct State {
    /// The region of the last read, and its reads in a row.
    current: Option<u64>,
    reads: u32,
    /// End of the last read.
    end: u64,
    /// Used slots of the current region.
    used: u64,
    fetched: bool,
    /// Well used regions in a row.
    good: u32,
}

impl Regions {
    /// Stops fetching regions, or starts again: for readers that announce what they read.
    pub(crate) fn stop(&self, stops: bool) {
        self.1.store(stops, Ordering::Relaxed);
    }

    /// Notes a read of `len` bytes at `offset` in a file of `size` bytes; returns what to fetch.
    pub(crate) fn note(&self, offset: u64, len: u64, size: u64) -> Option<Range<u64>> {
        if self.1.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let follows = offset == state.end;
        state.end = offset.saturating_add(len);
        if len > SMALL || len == 0 || offset >= size {
            return None;
        }
        let region = offset / REGION;
        if state.current != Some(region) {
            state.leave();
            state.current = Some(region);
        }
        state.reads += 1;
        let first = (offset % REGION) / SLOT;
        let last = ((offset % REGION + len - 1).min(REGION - 1)) / SLOT;
        (first..=last).for_each(|slot| state.used |= 1 << slot);
        // The policy reads ahead of readers in order.
        let fetches = !state.fetched && !follows && (state.reads >= TOUCHES || state.good >= 2);
        if !fetches {
            return None;
        }
        state.fetched = true;
        Some(region * REGION..((region + 1) * REGION).min(size))
    }
}

impl State {
    /// The reader goes to another region.
    fn leave(&mut self) {
        if self.fetched {
            let used = u64::from(self.used.count_ones()) * SLOT;
            self.good = if used >= REGION / 2 { self.good + 1 } else { 0 };
        }
        (self.reads, self.used, self.fetched) = (0, 0, false);
    }
}
