//! The fast replay counts what an independent look at the trace counts, and no policy beats the
//! oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use bowwave_core::{Eviction, PageSize, Policy};
use bowwave_sim::fast::{self, Outcome, Setup, Writes};
use bowwave_sim::oracle::Future;
use bowwave_sim::parallel;
use bowwave_trace::binary::Trace;
use bowwave_trace::generate::{Pattern, Spec};
use bowwave_trace::{Op, Record};

fn made(pattern: Pattern, rows: u64, blocks: u64, block_bytes: u64) -> Trace {
    let spec =
        Spec { pattern, rows, file_bytes: blocks * block_bytes, block_bytes, seed: 9, ..Spec::default() };
    Trace::of(spec.records().expect("in bounds"), "made").expect("in bounds")
}

fn of_records(records: &[(u64, &str, Op, u64, u64)]) -> Trace {
    let records = records.iter().map(|&(pid, file, op, offset, length)| Record {
        time_ns: 0,
        pid,
        op,
        file: file.to_owned(),
        offset,
        length,
    });
    Trace::of(records, "made").expect("in bounds")
}

fn replay(trace: &Trace, setup: Setup) -> Outcome {
    fast::replay(trace, &setup).expect("good rows")
}

fn patterns() -> Vec<Pattern> {
    vec![
        Pattern::Sequential,
        Pattern::Random,
        Pattern::Interleaved { streams: 3 },
        Pattern::Strided { stride_bytes: 20_000 },
        Pattern::Backward,
        Pattern::Clustered { cluster_bytes: 1 << 16 },
        Pattern::Zipf { exponent: 0.9 },
        Pattern::Oltp { exponent: 1.0 },
    ]
}

#[test]
fn a_cache_that_never_evicts_misses_each_page_once() {
    let trace = made(Pattern::Zipf { exponent: 0.8 }, 20_000, 5_000, 8192);
    let pages: BTreeSet<u64> =
        trace.rows().map(|row| row.expect("good").offset / 4096).flat_map(|page| [page, page + 1]).collect();
    let outcome = replay(&trace, Setup { policy: Policy::None, ..Setup::default() });
    assert_eq!((outcome.reads, outcome.bytes_wanted), (20_000, 20_000 * 8192));
    let stats = outcome.stats;
    assert_eq!((stats.accesses, stats.misses, stats.late), (40_000, pages.len() as u64, 0));
    assert_eq!(stats.pages_filled, pages.len() as u64);
}

#[test]
fn no_policy_misses_less_than_the_oracle_without_readahead_or_reads_less_than_it_at_all() {
    for pattern in patterns() {
        let trace = made(pattern.clone(), 10_000, 3_000, 4096);
        let future = Future::of(&trace, PageSize::KIB_4, Writes::LeftOut).expect("good rows");
        for cache_pages in [64, 512, 4096] {
            let bound = future.bound(cache_pages);
            for policy in bowwave_baselines::ALL {
                let setup = Setup { policy, cache_pages: Some(cache_pages), ..Setup::default() };
                let stats = replay(&trace, setup).stats;
                assert_eq!(stats.accesses, bound.accesses);
                let what = format!("{pattern:?} {cache_pages} {policy}: {stats:?} {bound:?}");
                assert!(stats.pages_filled >= bound.misses, "{what}");
                assert!(policy != Policy::None || stats.misses >= bound.misses, "{what}");
                assert_eq!(stats.hits + stats.misses, stats.accesses);
            }
            assert_eq!(future.bound(4096).misses, future.distinct_pages());
        }
    }
}

#[test]
fn rows_are_replayed_by_operation() {
    let page = 4096;
    let trace = of_records(&[
        (1, "a", Op::Read, 0, 2 * page),
        (2, "a", Op::Read, 0, 1),
        (1, "b", Op::Load, 0, page),
        (1, "a", Op::Write, 4 * page, page),
        (1, "a", Op::Fsync, 0, 0),
        (1, "a", Op::Evict, 0, page),
        (1, "a", Op::Read, 0, 2 * page),
        (1, "a", Op::WillNeed, 3 * page, page),
        (1, "a", Op::Read, 3 * page, page),
        (1, "a", Op::Read, 7, 0),
    ]);
    let setup = Setup { policy: Policy::None, ..Setup::default() };
    let outcome = replay(&trace, setup);
    assert_eq!((outcome.reads, outcome.left_out, outcome.bytes_wanted), (6, 2, 6 * page + 1));
    let stats = outcome.stats;
    // Hits: page 0 through the other process, page 1 after page 0 was dropped, and what was advised
    // to be needed.
    assert_eq!((stats.accesses, stats.hits, stats.misses), (7, 3, 4));
    let with_writes = replay(&trace, Setup { writes: Writes::AsReads, ..setup });
    assert_eq!((with_writes.stats.accesses, with_writes.left_out), (8, 1));
}

#[test]
fn a_read_larger_than_the_cache_is_split() {
    let trace = of_records(&[(1, "a", Op::Read, 0, 1 << 20)]);
    for policy in bowwave_baselines::ALL {
        let stats = replay(&trace, Setup { policy, cache_pages: Some(10), ..Setup::default() }).stats;
        assert_eq!(stats.accesses, 256, "{policy}");
        assert!(stats.pages_evicted >= 246, "{policy}: {stats:?}");
    }
}

#[test]
fn a_row_that_cannot_be_replayed_is_an_error_with_its_number() {
    let trace = of_records(&[(1, "a", Op::Read, 0, 1), (1, "a", Op::Read, 0, 1 << 40)]);
    let error = fast::replay(&trace, &Setup::default()).expect_err("too long").to_string();
    assert_eq!(error, "made: row 1: 268435456 pages at once; a row may touch 1048576 at most");
    let setup = Setup { ra_pages: (1 << 20) + 1, ..Setup::default() };
    let error = fast::replay(&trace, &setup).expect_err("too large a window").to_string();
    assert!(error.contains("ra_pages is 1048577"), "{error}");
    let far = of_records(&[(1, "a", Op::Read, 0, u64::MAX)]);
    let error = Future::of(&far, PageSize::KIB_4, Writes::LeftOut).expect_err("too many").to_string();
    assert!(error.starts_with("made: 4503599627370496 accesses"), "{error}");
}

#[test]
fn a_table_row_adds_up() {
    let trace = made(Pattern::Sequential, 1000, 1000, 4096);
    let setup = Setup { cache_pages: Some(100), ..Setup::default() };
    let row = replay(&trace, setup).row(&setup);
    assert_eq!((row.policy.as_str(), row.device.as_str()), ("ondemand", "instant"));
    assert_eq!(row.cache_bytes, Some(409_600));
    assert_eq!((row.accesses, row.hits + row.misses, row.bytes_fetched), (1000, 1000, 4_096_000));
    assert!((row.amplification - 1.0).abs() < 1e-9);
    assert!((row.avg_io_bytes * row.requests as f64 - 4_096_000.0).abs() < 1.0);
}

/// The misses of an LRU cache of `frames` pages: the page table is a map, the order a set of times.
fn lru_misses(pages: impl Iterator<Item = u64>, frames: usize) -> u64 {
    let (mut times, mut order) = (BTreeMap::new(), BTreeMap::new());
    let mut misses = 0;
    for (page, now) in pages.zip(0u64..) {
        match times.insert(page, now) {
            Some(before) => drop(order.remove(&before)),
            None => {
                misses += 1;
                if times.len() > frames {
                    let (_, oldest) = order.pop_first().expect("as many as there are pages");
                    times.remove(&oldest);
                }
            }
        }
        order.insert(now, page);
    }
    misses
}

#[test]
fn lru_misses_match_a_simple_lru() {
    for pattern in patterns() {
        let trace = made(pattern.clone(), 20_000, 3_000, 4096);
        for frames in [1, 7, 300, 2_000] {
            let pages = trace.rows().map(|row| row.expect("good").offset / 4096);
            let setup = Setup {
                policy: Policy::None,
                eviction: Eviction::Lru,
                cache_pages: Some(frames),
                ..Setup::default()
            };
            let stats = replay(&trace, setup).stats;
            assert_eq!(stats.misses, lru_misses(pages, frames as usize), "{pattern:?}, {frames} frames");
        }
    }
}

#[test]
fn replays_in_parallel_give_the_same_outcomes() {
    let trace = made(Pattern::Zipf { exponent: 1.0 }, 5_000, 2_000, 4096);
    let mut setups = Vec::new();
    for eviction in Eviction::ALL {
        for cache_pages in [Some(100), Some(1000), None] {
            for policy in [Policy::None, Policy::OnDemand] {
                let setup = Setup { policy, cache_pages, eviction, ..Setup::default() };
                setups.extend([8, 32].map(|ra_pages| Setup { ra_pages, ..setup }));
            }
        }
    }
    let workers = NonZeroUsize::new(3).expect("not 0");
    let outcomes =
        parallel::try_map(&setups, workers, |setup| fast::replay(&trace, setup)).expect("good rows");
    for (setup, outcome) in setups.iter().zip(&outcomes) {
        assert_eq!(*outcome, replay(&trace, *setup), "{setup:?}");
    }
    assert!(fast::replay(&trace, &Setup { ra_pages: (1 << 20) + 1, ..setups[5] }).is_err());
}
