//! Counters.

use core::ops::AddAssign;

use crate::readahead::Reason;

/// What a cache, or one file of it, has done so far. Pages unless said otherwise; all only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads.
    pub reads: u64,
    /// Pages that reads asked for (within the file).
    pub accesses: u64,
    /// Pages that were up to date when asked for.
    pub hits: u64,
    /// Pages that were in flight when asked for.
    pub late: u64,
    /// Pages that were neither.
    pub misses: u64,
    /// Fills asked for (not pages).
    pub fills: u64,
    /// Fills that failed (not pages).
    pub fills_failed: u64,
    /// Readahead fills that a demand read had to wait for (not pages).
    pub fills_promoted: u64,
    /// Pages that fills were asked for.
    pub pages_filled: u64,
    /// Of these, pages that nobody had asked for.
    pub pages_readahead: u64,
    /// Pages read ahead and used.
    pub pages_used: u64,
    /// Of the pages read ahead, those that a reader's plan leads to.
    pub pages_planned: u64,
    /// Of these, pages that were used.
    pub pages_planned_used: u64,
    /// Pages read ahead for a plan and not used when their reader was far beyond them, had left the plan or was gone.
    pub pages_given_up: u64,
    /// Pages that readahead left out because the frame budget was used up.
    pub pages_refused: u64,
    /// Pages evicted to make room.
    pub pages_evicted: u64,
    /// Pages evicted unused and then wanted.
    pub pages_thrashed: u64,
    /// Pages dropped unused and not wanted since.
    pub pages_wasted: u64,
    /// Pages that came back after eviction.
    pub refaults: u64,
    /// Of these, pages that came back soon enough to go straight to the active list.
    pub refaults_activated: u64,
    /// Reads that had to wait for a frame.
    pub reads_starved: u64,
    /// Pages that became dirty, each time they did.
    pub pages_dirtied: u64,
    /// Pages that the store has taken.
    pub pages_written: u64,
    /// Dirty pages dropped with their part of the file.
    pub pages_discarded: u64,
    /// Write-outs asked for (not pages).
    pub write_outs: u64,
    /// Write-outs that failed (not pages).
    pub write_outs_failed: u64,
    /// Writes that had to wait for write-back or for a frame (not pages).
    pub writes_throttled: u64,
    /// Times that a readahead policy was asked to decide (not pages): on a miss, on a mark, and, of a policy that is asked as
    /// readers walk, wherever it wanted to be; that it is told of a miss, too, does not count.
    pub policy_calls: u64,
    /// Page-cache look-ups beyond the first of each page that reads asked for. See [`lookups`](Self::lookups).
    pub lookups_more: u64,
    pub(crate) decisions: [u64; Reason::ALL.len()],
    pub(crate) counters: [u64; Self::COUNTERS],
}

impl Stats {
    /// Most counters of a policy.
    pub const COUNTERS: usize = 16;

    /// A counter of the policy ([`Plans::note`](crate::Plans::note)), by its place in
    /// [`Policy::counters`](crate::Policy::counters); 0 if the policy has no such counter.
    #[must_use]
    pub fn counter(&self, number: usize) -> u64 {
        self.counters.get(number).copied().unwrap_or(0)
    }

    /// Pages were there, of as many reads.
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

    /// Page-cache lookups that Linux would have made for the same reads and decisions, with the same policy:
    ///
    /// - one for each page of a read, in the reader's loop;
    /// - one more for each page that was absent, after the policy has planned: the page is looked up again. A policy with
    ///   [`Asked::every_access`](crate::Asked::every_access) plans before the lookup, and has no second one;
    /// - one for each page of a window that exists in the file, cached or not, when it is submitted
    ///   (`do_page_cache_readahead`). None for a page read singly (reason `demand`): that is entered without looking.
    ///
    /// What a policy looks at of its own accord, such as the history of a context readahead, is not counted, and neither
    /// are the look-ups that bowwave's page table makes: it finds 16 neighbouring pages at once.
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
        self.pages_used += other.pages_used;
        self.pages_planned += other.pages_planned;
        self.pages_planned_used += other.pages_planned_used;
        self.pages_given_up += other.pages_given_up;
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
