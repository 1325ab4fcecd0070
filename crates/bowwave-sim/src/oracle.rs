//! Lower bounds for all policies: Belady's eviction, and perfect readahead with it.
//!
//! This is the only part of this crate that does not drive the engine's cache: it decides with
//! knowledge of the future. Use it to judge policies, never to run one.
//!
//! Belady (1966): evict the page whose next access is furthest away. Mattson and others (1970)
//! proved that no eviction policy has fewer misses. Readahead cannot reduce the pages read either:
//! delaying each read and its eviction until the page is accessed costs no more reads. So the
//! misses of this policy without readahead are also the fewest pages a cache of this size reads.
//! Perfect readahead can save only the waiting.
//!
//! As in the engine's cache, a read page takes a frame, if only for a moment. The bound ignores
//! `evict` rows and advice, and treats the pages of a request one by one, while the engine's cache
//! pins them all at once. Both can only loosen the bound.

use crate::device::DeviceLimits;
use std::collections::{BinaryHeap, HashMap};

use bowwave_core::PageSize;
use bowwave_trace::Error;
use bowwave_trace::binary::Trace;

use crate::fast::{Writes, pages};
use crate::record::Row;

/// No later access.
const NEVER: u32 = u32::MAX;

/// A trace with the next access to the same page for each page access.
///
/// Memory: 4 bytes per access and, during construction, about 30 bytes per page.
#[derive(Clone, Debug)]
pub struct Future {
    /// By access: the next one to the same page, or [`NEVER`].
    next: Vec<u32>,
    page_size: PageSize,
    /// Distinct pages.
    distinct: u64,
}

/// Lower bound for every policy with a cache of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Page accesses.
    pub accesses: u64,
    /// Misses without readahead: the fewest pages read, with or without it.
    pub misses: u64,
    /// Bytes of these pages.
    pub bytes_fetched: u64,
    /// Bytes of the distinct pages.
    pub bytes_distinct: u64,
}

impl Future {
    /// Scans the whole trace once, backwards.
    ///
    /// # Errors
    ///
    /// An invalid row, or 2^32 - 1 page accesses or more.
    pub fn of<B: AsRef<[u8]>>(trace: &Trace<B>, page_size: PageSize, writes: Writes) -> Result<Self, Error> {
        let too_many = |accesses: u64| {
            let what = "accesses to pages are more than the oracle has memory for; use larger pages";
            Error::unfit(trace.name(), format!("{accesses} {what}"))
        };
        let mut accesses = 0u64;
        // Pages per file, up to its last access.
        let mut ends = vec![0u64; trace.file_count() as usize];
        for row in trace.rows() {
            let row = row.map_err(|bad| trace.error(bad))?;
            let Some(range) = pages(&row, page_size, writes) else { continue };
            accesses += range.count().0;
            let end = &mut ends[trace.stream(row.stream).file as usize];
            *end = range.end.0.max(*end);
            // Inside the loop, so that absurd lengths cannot overflow the sum.
            if accesses >= u64::from(NEVER) {
                return Err(too_many(accesses));
            }
        }
        let mut next = Vec::new();
        if next.try_reserve_exact(accesses as usize).is_err() {
            return Err(too_many(accesses));
        }
        next.resize(accesses as usize, NEVER);
        // Checked above: fits.
        let mut at = accesses as u32;
        let mut later = Later::new(&ends, accesses);
        let mut distinct = 0;
        for row in trace.rows().rev() {
            let row = row.map_err(|bad| trace.error(bad))?;
            let Some(range) = pages(&row, page_size, writes) else { continue };
            let file = trace.stream(row.stream).file;
            for page in (range.start.0..range.end.0).rev() {
                at -= 1;
                let later = later.replace(file, page, at);
                next[at as usize] = later;
                distinct += u64::from(later == NEVER);
            }
        }
        Ok(Self { next, page_size, distinct })
    }

    /// Distinct pages: the misses of a cache that never evicts.
    pub fn distinct_pages(&self) -> u64 {
        self.distinct
    }

    /// The bound for a cache of `frames` frames.
    ///
    /// # Panics
    /// If `frames` is 0.
    pub fn bound(&self, frames: u32) -> Bound {
        assert!(frames > 0, "a cache has frames");
        // Whether the page of an access is still cached at that access.
        let mut kept = vec![false; self.next.len()];
        // Next accesses of cached pages; passed ones stay until removed.
        let mut wanted: BinaryHeap<u32> = BinaryHeap::new();
        // Cached pages that are never accessed again.
        let mut spare = 0u32;
        let (mut used, mut misses) = (0u32, 0u64);
        for (&next, now) in self.next.iter().zip(0u32..) {
            // On a hit, the page's entry in `wanted` is in the past from now on.
            if !kept[now as usize] {
                misses += 1;
                if used < frames {
                    used += 1;
                } else if spare > 0 {
                    spare -= 1;
                } else {
                    // All frames are used and none is spare, so the latest entry belongs to a
                    // cached page.
                    let latest = wanted.pop().expect("a used frame that is not spare has an entry");
                    kept[latest as usize] = false;
                }
            }
            if next == NEVER {
                spare += 1;
            } else {
                kept[next as usize] = true;
                wanted.push(next);
            }
            if wanted.len() > 2 * frames as usize + 1024 {
                wanted.retain(|&at| at > now);
            }
        }
        let page = self.page_size.bytes();
        Bound {
            accesses: self.next.len() as u64,
            misses,
            bytes_fetched: misses * page,
            bytes_distinct: self.distinct * page,
        }
    }
}

/// Per page, the earliest access found so far, scanning backwards.
enum Later {
    /// By page number over all files, with each file's start. For traces that touch most pages of
    /// their span.
    Dense { files: Vec<u64>, at: Vec<u32> },
    /// By file and page.
    Sparse(HashMap<(u32, u64), u32>),
}

impl Later {
    /// For files of these lengths in pages and this many accesses in total.
    fn new(ends: &[u64], accesses: u64) -> Self {
        let mut files = Vec::with_capacity(ends.len());
        let mut total = 0u64;
        for &end in ends {
            files.push(total);
            total = total.saturating_add(end);
        }
        // A table of all pages then takes about as much memory as the accesses.
        if total > 2 * accesses + (1 << 20) {
            return Self::Sparse(HashMap::new());
        }
        Self::Dense { files, at: vec![NEVER; total as usize] }
    }

    /// Records the access `at` of a page; returns the previously recorded one.
    fn replace(&mut self, file: u32, page: u64, at: u32) -> u32 {
        match self {
            Self::Dense { files, at: entries } => {
                std::mem::replace(&mut entries[(files[file as usize] + page) as usize], at)
            }
            Self::Sparse(entries) => entries.insert((file, page), at).unwrap_or(NEVER),
        }
    }
}

impl Bound {
    /// Least time, in nanoseconds, in which the device reads these pages without other delays.
    ///
    /// # Panics
    ///
    /// If a limit that must not be 0 is 0.
    pub fn device_ns(&self, limits: &DeviceLimits) -> u64 {
        let bytes = |bytes: u64, per_ns: f64| (bytes as f64 / per_ns) as u64;
        let transfer = bytes(self.bytes_fetched, limits.bytes_per_ns);
        let medium = bytes(self.bytes_distinct, limits.medium_bytes_per_ns);
        let rounds = self.requests(limits).div_ceil(limits.depth.into());
        transfer.max(medium).max(rounds.saturating_mul(limits.request_ns_min))
    }

    /// Fewest requests for these pages.
    ///
    /// # Panics
    ///
    /// If a limit that must not be 0 is 0.
    pub fn requests(&self, limits: &DeviceLimits) -> u64 {
        self.bytes_fetched.div_ceil(limits.request_bytes_max)
    }

    /// The row of Belady's eviction without readahead on a device that takes no time: its misses
    /// are what any policy must read.
    pub fn belady(&self) -> Row {
        self.row(Self::BELADY, self.misses, self.misses, 0)
    }

    /// The row of the same eviction with perfect readahead: reads wait only for the device as a
    /// whole.
    pub fn oracle(&self, limits: &DeviceLimits) -> Row {
        self.row(Self::ORACLE, 0, self.requests(limits), self.device_ns(limits))
    }

    /// Name of [`belady`](Self::belady) in the policy column.
    pub const BELADY: &'static str = "belady";
    /// Name of [`oracle`](Self::oracle) in the policy column.
    pub const ORACLE: &'static str = "oracle";

    fn row(&self, policy: &str, misses: u64, requests: u64, ns: u64) -> Row {
        Row {
            policy: policy.to_owned(),
            eviction: "opt".to_owned(),
            seconds: ns as f64 / 1e9,
            accesses: self.accesses,
            hits: self.accesses - misses,
            misses,
            requests,
            bytes_fetched: self.bytes_fetched,
            avg_io_bytes: if requests == 0 { 0.0 } else { self.bytes_fetched as f64 / requests as f64 },
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_trace::Record;
    use bowwave_trace::generate::Random;

    fn future(pages: &[u64]) -> Future {
        let read = |&page: &u64| Record { offset: page << 12, length: 4096, ..Record::default() };
        let trace = Trace::of(pages.iter().map(read), "t").expect("in bounds");
        Future::of(&trace, PageSize::KIB_4, Writes::LeftOut).expect("good rows")
    }

    /// The fewest pages read by any schedule: any readahead at any time, any evictions.
    fn fewest_reads(pages: &[u64], frames: u32) -> u64 {
        // By set of resident pages, one bit each.
        let sets: Vec<u32> = (0..32u32).filter(|set| set.count_ones() <= frames).collect();
        let mut reads = [u64::MAX; 32];
        reads[0] = 0;
        for &page in pages {
            let mut after = [u64::MAX; 32];
            for &to in sets.iter().filter(|&&set| set & 1 << page != 0) {
                let least = sets.iter().filter(|&&from| reads[from as usize] < u64::MAX);
                let least = least.map(|&from| reads[from as usize] + u64::from((to & !from).count_ones()));
                after[to as usize] = least.min().unwrap_or(u64::MAX);
            }
            reads = after;
        }
        reads.into_iter().min().expect("not empty")
    }

    #[test]
    fn no_schedule_of_reads_and_evictions_reads_fewer_pages() {
        let mut random = Random::new(11);
        for round in 0..300 {
            let pages: Vec<u64> = (0..1 + round % 14).map(|_| random.below(5)).collect();
            let future = future(&pages);
            for frames in 1..=5 {
                let bound = future.bound(frames);
                assert_eq!(bound.misses, fewest_reads(&pages, frames), "{pages:?} in {frames} frames");
                assert_eq!(bound.accesses, pages.len() as u64);
            }
            assert_eq!(future.bound(5).misses, future.distinct_pages());
        }
    }

    #[test]
    fn pages_far_apart_give_the_same_bound_as_pages_close_together() {
        let close = [0, 1, 2, 0, 1, 3, 0, 3, 1, 2];
        let far = close.map(|page| page << 40);
        for frames in 1..4 {
            assert_eq!(future(&close).bound(frames), future(&far).bound(frames));
        }
        assert_eq!(future(&far).distinct_pages(), 4);
    }

    #[test]
    fn past_entries_neither_accumulate_nor_change_the_bound() {
        // Page 0 is hit thousands of times, each leaving an entry, between pages with better claims
        // to its frame.
        let pages: Vec<u64> = (0..20_000).map(|at| if at % 5 == 4 { 1 + at % 3 } else { 0 }).collect();
        assert_eq!(future(&pages).bound(4).misses, 4);
        // With 2 frames, page 0 stays and the other frame serves the three others: a miss each
        // time.
        assert_eq!(future(&pages).bound(2).misses, 1 + 4000);
    }

    #[test]
    fn the_tighter_limit_gives_the_least_time() {
        let bound = Bound { accesses: 9, misses: 5, bytes_fetched: 5 * 4096, bytes_distinct: 3 * 4096 };
        let limits = DeviceLimits {
            bytes_per_ns: 4.096,
            medium_bytes_per_ns: f64::INFINITY,
            request_bytes_max: 8192,
            depth: 2,
            request_ns_min: 100,
        };
        assert_eq!((bound.requests(&limits), bound.device_ns(&limits)), (3, 5000));
        // Two rounds of two requests.
        assert_eq!(bound.device_ns(&DeviceLimits { bytes_per_ns: 1e9, ..limits }), 200);
        assert_eq!(bound.device_ns(&DeviceLimits { medium_bytes_per_ns: 1.0, ..limits }), 3 * 4096);
        let (belady, oracle) = (bound.belady(), bound.oracle(&limits));
        assert_eq!((belady.misses, belady.hits, oracle.misses, oracle.requests), (5, 4, 0, 3));
    }
}
