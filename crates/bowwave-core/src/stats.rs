//! Counters.

use core::ops::AddAssign;

use crate::readahead::Reason;

/// Declares the counters, and how they add up.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Counters of a cache, or of one file. Unit: pages, unless stated otherwise. They only
        /// grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$about])* pub $name: u64,)*
            pub(crate) decisions: [u64; Reason::ALL.len()],
            pub(crate) counters: [u64; Self::COUNTERS],
        }

        impl AddAssign for Stats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
                let mine = self.decisions.iter_mut().chain(&mut self.counters);
                mine.zip(other.decisions.iter().chain(&other.counters)).for_each(|(mine, add)| *mine += add);
            }
        }
    };
}

counters! {
    /// Reads.
    reads,
    /// Pages requested by reads (within the file).
    accesses,
    /// Requested pages that were up to date.
    hits,
    /// Requested pages that were in flight.
    late,
    /// Requested pages that were neither.
    misses,
    /// Fills requested (not pages).
    fills,
    /// Fills that failed (not pages), without those that were cancelled or dropped.
    fills_failed,
    /// Readahead fills that a demand read waited for (not pages).
    fills_promoted,
    /// Pages requested by fills.
    pages_filled,
    /// Pages requested by fills that no reader had requested.
    pages_readahead,
    /// Pages read ahead whose fill failed, without pages of a reader's plan.
    pages_failed,
    /// Pages read ahead and used.
    pages_used,
    /// Pages read ahead for a reader's plan.
    pages_planned,
    /// Pages read ahead for a reader's plan and used.
    pages_planned_used,
    /// Planned pages that were unused when their reader was far past them, left its plan or closed.
    pages_abandoned,
    /// Pages that readahead omitted for lack of frames.
    pages_refused,
    /// Pages evicted to free frames.
    pages_evicted,
    /// Pages evicted unused and then requested.
    pages_thrashed,
    /// Pages dropped unused and not requested since.
    pages_wasted,
    /// Pages that came back after eviction.
    refaults,
    /// Refaults that came soon enough to put the page on the active list at once.
    refaults_activated,
    /// Reads that waited for a frame.
    reads_starved,
    /// Pages that became dirty, each time.
    pages_dirtied,
    /// Pages accepted by the store.
    pages_written,
    /// Dirty pages dropped because their part of the file was discarded.
    pages_discarded,
    /// Write-outs requested (not pages).
    write_outs,
    /// Write-outs that failed (not pages).
    write_outs_failed,
    /// Writes that waited for write-back or for a frame (not pages).
    writes_throttled,
    /// Decisions of readahead policies (not pages): on misses, on marks, and where a policy that
    /// runs on every access asked to be called. Mere reports of misses do not count.
    policy_calls,
    /// Page-cache lookups beyond the first for each requested page. See [`lookups`](Self::lookups).
    lookups_extra,
}

impl Stats {
    /// Most counters of a policy.
    pub const COUNTERS: usize = 16;

    /// A counter of the policy ([`Plans::note`](crate::Plans::note)), by its index in
    /// [`Policy::counters`](crate::Policy::counters); 0 if the policy has no such counter.
    pub fn counter(&self, number: usize) -> u64 {
        self.counters.get(number).copied().unwrap_or(0)
    }

    /// Counts `reads` reads of `pages` cached pages in total.
    pub(crate) fn count_hits(&mut self, reads: u64, pages: u64) {
        self.reads += reads;
        self.accesses += pages;
        self.hits += pages;
    }

    /// How often a policy decided for this reason.
    pub fn decided(&self, reason: Reason) -> u64 {
        self.decisions[reason as usize]
    }

    /// Page-cache lookups that Linux would have made for the same reads, decisions and policy:
    ///
    /// - one for each page of a read, in the reader's loop;
    /// - one more for each missing page: after the policy has planned, Linux looks for the page
    ///   again. A policy with [`Capabilities::every_access`](crate::Capabilities::every_access)
    ///   plans before the lookup and has no second one;
    /// - one for each page of a submitted window that is within the file, cached or not
    ///   (`do_page_cache_readahead`). None for a page read singly (reason `demand`), which is
    ///   entered without a lookup.
    ///
    /// Lookups inside policies, such as the history scan of context readahead, do not count.
    /// Neither do lookups of bowwave's page table, which finds 16 adjacent pages at once.
    pub fn lookups(&self) -> u64 {
        self.accesses + self.lookups_extra
    }
}
