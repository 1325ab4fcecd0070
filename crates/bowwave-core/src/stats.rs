//! Counters.

use core::ops::AddAssign;

use crate::readahead::Reason;

/// Counters of a cache, or of one file. Unit: pages, unless stated otherwise. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads.
    pub reads: u64,
    /// Pages requested by reads (within the file).
    pub accesses: u64,
    /// Requested pages that were up to date.
    pub hits: u64,
    /// Requested pages that were in flight.
    pub late: u64,
    /// Requested pages that were neither.
    pub misses: u64,
    /// Fills requested (not pages).
    pub fills: u64,
    /// Fills that failed (not pages).
    pub fills_failed: u64,
    /// Readahead fills that a demand read waited for (not pages).
    pub fills_promoted: u64,
    /// Pages requested by fills.
    pub pages_filled: u64,
    /// Pages of those that no reader had requested.
    pub pages_readahead: u64,
    /// Pages of those whose fill failed; pages of a reader's plan do not count.
    pub pages_failed: u64,
    /// Pages read ahead and used.
    pub pages_used: u64,
    /// Pages read ahead for a reader's plan.
    pub pages_planned: u64,
    /// Pages of those that were used.
    pub pages_planned_used: u64,
    /// Planned pages that were unused when their reader was far past them, left its plan or closed.
    pub pages_abandoned: u64,
    /// Pages that readahead omitted for lack of frames.
    pub pages_refused: u64,
    /// Pages evicted to free frames.
    pub pages_evicted: u64,
    /// Pages evicted unused and then requested.
    pub pages_thrashed: u64,
    /// Pages dropped unused and not requested since.
    pub pages_wasted: u64,
    /// Pages that came back after eviction.
    pub refaults: u64,
    /// Pages of those that returned soon enough to go straight to the active list.
    pub refaults_activated: u64,
    /// Reads that waited for a frame.
    pub reads_starved: u64,
    /// Pages that became dirty, each time.
    pub pages_dirtied: u64,
    /// Pages accepted by the store.
    pub pages_written: u64,
    /// Dirty pages dropped because their part of the file was.
    pub pages_discarded: u64,
    /// Write-outs requested (not pages).
    pub write_outs: u64,
    /// Write-outs that failed (not pages).
    pub write_outs_failed: u64,
    /// Writes that waited for write-back or for a frame (not pages).
    pub writes_throttled: u64,
    /// Decisions of readahead policies (not pages): on misses, on marks, and where a policy that
    /// runs on every access asked to be called. Mere reports of misses do not count.
    pub policy_calls: u64,
    /// Page-cache lookups beyond the first for each requested page. See [`lookups`](Self::lookups).
    pub lookups_more: u64,
    pub(crate) decisions: [u64; Reason::ALL.len()],
    pub(crate) counters: [u64; Self::COUNTERS],
}

impl Stats {
    /// Most counters of a policy.
    pub const COUNTERS: usize = 16;

    /// A counter of the policy ([`Plans::note`](crate::Plans::note)), by its index in
    /// [`Policy::counters`](crate::Policy::counters); 0 if the policy has no such counter.
    #[must_use]
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
    #[must_use]
    pub fn decided(&self, reason: Reason) -> u64 {
        self.decisions[reason as usize]
    }

    /// Page-cache lookups that Linux would have made for the same reads, decisions and policy:
    ///
    /// - one for each page of a read, in the reader's loop;
    /// - one more for each missing page: after the policy has planned, Linux looks for the page again.
    ///   A policy with [`Capabilities::every_access`](crate::Capabilities::every_access) plans before the lookup and
    ///   has no second one;
    /// - one for each page of a submitted window that is within the file, cached or not
    ///   (`do_page_cache_readahead`). None for a page read singly (reason `demand`), which is entered
    ///   without a lookup.
    ///
    /// Lookups inside policies, such as the history scan of context readahead, do not count. Neither
    /// do lookups of bowwave's page table, which finds 16 adjacent pages at once.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.accesses + self.lookups_more
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.late += other.late;
        self.misses += other.misses;
        self.fills += other.fills;
        self.fills_failed += other.fills_failed;
        self.fills_promoted += other.fills_promoted;
        self.pages_filled += other.pages_filled;
        self.pages_readahead += other.pages_readahead;
        self.pages_failed += other.pages_failed;
        self.pages_used += other.pages_used;
        self.pages_planned += other.pages_planned;
        self.pages_planned_used += other.pages_planned_used;
        self.pages_abandoned += other.pages_abandoned;
        self.pages_refused += other.pages_refused;
        self.pages_evicted += other.pages_evicted;
        self.pages_thrashed += other.pages_thrashed;
        self.pages_wasted += other.pages_wasted;
        self.refaults += other.refaults;
        self.refaults_activated += other.refaults_activated;
        self.reads_starved += other.reads_starved;
        self.pages_dirtied += other.pages_dirtied;
        self.pages_written += other.pages_written;
        self.pages_discarded += other.pages_discarded;
        self.write_outs += other.write_outs;
        self.write_outs_failed += other.write_outs_failed;
        self.writes_throttled += other.writes_throttled;
        self.policy_calls += other.policy_calls;
        self.lookups_more += other.lookups_more;
        for (mine, theirs) in self.decisions.iter_mut().zip(other.decisions) {
            *mine += theirs;
        }
        for (mine, theirs) in self.counters.iter_mut().zip(other.counters) {
            *mine += theirs;
        }
    }
}
