//! Decisions of `stream` under memory pressure and with random reads.

use crate::request::PageAccess;
use std::vec::Vec;

use super::*;
use crate::cache::Cache;
use crate::config::Config;
use crate::event::Decision;
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageRange};
use crate::readahead::Policy;
use crate::stats::Stats;

/// Decisions of a cache.
#[derive(Default)]
struct Reasons(Vec<Reason>);

impl crate::cache::Observer for Reasons {
    fn decided(&mut self, decision: &Decision) {
        self.0.push(decision.plan.reason);
    }
}

fn cache(policy: Policy, file_pages: u64, files: u32, config: Config) -> Cache {
    let mut cache = Cache::new(Config { policy, ..config }).expect("valid");
    for file in 0..files {
        cache.open_file(FileId(file), PageCount(file_pages));
        cache.open_handle(HandleId(file), FileId(file));
    }
    cache
}

fn read(cache: &mut Cache, file: u32, start: u64, pages: u64) -> Vec<Reason> {
    let mut reasons = Reasons::default();
    let range = PageRange::new(start, start + pages);
    cache.access_instant(Instant(0), PageAccess::read(HandleId(file), range), &mut reasons).expect("room");
    reasons.0
}

/// A repeatable pseudo-random sequence.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Streams of one file each, in turns, with 32 frames each. Returns the readahead evicted unread,
/// in thousandths of all pages read, and the mean pages of a request.
fn pressed(policy: Policy) -> (u64, u64) {
    const STREAMS: u32 = 64;
    let config = Config { frames: STREAMS * 32, ra_pages: 256, ..Config::default() };
    let mut cache = cache(policy, 1 << 20, STREAMS, config);
    // Staggered starts, so that not all streams need a window at once.
    for round in 0..512 {
        for stream in (0..STREAMS).filter(|&stream| round >= u64::from(stream) * 4) {
            read(&mut cache, stream, (round - u64::from(stream) * 4) * 8, 8);
        }
    }
    cache.check().expect("sound");
    let Stats { pages_readahead, pages_used, pages_filled, fills, .. } = cache.stats();
    let lost = pages_readahead - pages_used - u64::from(cache.frames_unread());
    (lost * 1000 / pages_filled, pages_filled / fills)
}

#[test]
fn many_streams_under_memory_pressure_waste_little_and_keep_requests_long() {
    let (lost, pages) = pressed(Policy::Stream);
    let (lost_by_others, _) = pressed(Policy::OnDemand);
    assert!(
        lost <= 20,
        "{lost} thousandths of the pages were evicted unread; {lost_by_others} by on-demand readahead"
    );
    assert!(lost_by_others > 100, "memory is not short: {lost_by_others}");
    assert!(pages >= 24, "{pages} pages a request, of 32 that a stream has");
}

/// Readers run in bursts: while one is paused, another reads several times the size of memory.
#[test]
fn readahead_of_a_paused_reader_outlasts_used_pages() {
    let mut cache =
        cache(Policy::Stream, 1 << 20, 2, Config { frames: 2048, ra_pages: 64, ..Config::default() });
    (0..64).for_each(|block| drop(read(&mut cache, 0, block * 16, 16)));
    let ahead: Vec<u64> =
        (1024..1024 + 64).filter(|&page| cache.is_cached(FileId(0), PageIndex(page))).collect();
    assert_eq!(ahead.len(), 64, "a window is ahead");
    let kept =
        |cache: &Cache| ahead.iter().filter(|&&page| cache.is_cached(FileId(0), PageIndex(page))).count();
    let turn = |cache: &mut Cache, turn: u64| {
        (0..128).for_each(|at| drop(read(cache, 1, (turn * 128 + at) * 16, 16)))
    };
    (0..3).for_each(|at| turn(&mut cache, at));
    assert_eq!(kept(&cache), 64, "after three times as much as memory holds");
    (3..7).for_each(|at| turn(&mut cache, at));
    assert_eq!(kept(&cache), 0, "its reader does not come back");
    cache.check().expect("sound");
}

#[test]
fn unread_readahead_without_a_reader_is_evicted() {
    let config = Config { frames: 2048, ra_pages: 64, ..Config::default() };
    let mut cache = cache(Policy::Stream, 1 << 20, 3, config);
    (0..64).for_each(|block| drop(read(&mut cache, 0, block * 16, 16)));
    cache.close_handle(Instant(0), HandleId(0), &mut Vec::new());
    (0..160).for_each(|at| drop(read(&mut cache, 1, at * 16, 16)));
    assert!(!cache.is_cached(FileId(0), PageIndex(1030)), "nobody has the file open");
    // Scans of 512 pages that end anywhere: readahead behind their ends soon counts as waste.
    let (mut draws, mut most) = (Draws(1), 0);
    for scan in 0..400 {
        let start = draws.below(1 << 10) * 1024;
        (0..32).for_each(|at| drop(read(&mut cache, 2, start + at * 16, 16)));
        most = if scan < 50 { 0 } else { most.max(cache.frames_unread()) };
    }
    assert!(most < 2048 / 2, "{most} pages of 2048 are ahead of nobody");
    cache.check().expect("sound");
}

#[test]
fn a_lone_stream_does_not_drop_its_used_pages() {
    // A quarter of the file fits. At the end its last pages are cached, as without readahead.
    let config = Config { frames: 4096, ra_pages: 256, ..Config::default() };
    let mut cache = cache(Policy::Stream, 16_384, 1, config);
    (0..1024).for_each(|block| drop(read(&mut cache, 0, block * 16, 16)));
    let kept =
        (16_384 - 4096 + 600..16_384).filter(|&page| cache.is_cached(FileId(0), PageIndex(page))).count();
    assert_eq!(kept, 4096 - 600);
}

#[test]
fn an_evicted_used_page_is_no_thrashing() {
    let config = Config { frames: 2048, ra_pages: 64, ..Config::default() };
    let mut cache = cache(Policy::Stream, 8192, 2, config);
    (0..512).for_each(|block| drop(read(&mut cache, 0, block * 16, 16)));
    // Another file fills the memory.
    (0..512).for_each(|block| drop(read(&mut cache, 1, block * 16, 16)));
    // The last pages of the first file, behind its last mark: the policy did not see them used.
    let reasons = read(&mut cache, 0, 8192 - 48, 16);
    assert_eq!(reasons, [Reason::Random]);
}

#[test]
fn random_blocks_read_little_more_than_their_requests() {
    // A small file: one read in a few dozen is adjacent to an earlier one.
    for seed in 1..8 {
        let mut draws = Draws(seed);
        let mut cache =
            cache(Policy::Stream, 8192, 1, Config { frames: 4096, ra_pages: 256, ..Config::default() });
        (0..4000).for_each(|_| drop(read(&mut cache, 0, draws.below(512) * 16, 16)));
        let Stats { pages_filled, pages_readahead, pages_used, .. } = cache.stats();
        let vain = pages_readahead - pages_used;
        assert!(vain * 50 <= pages_filled, "seed {seed}: {vain} pages in vain of {pages_filled}");
    }
}

#[test]
fn transactions_read_only_their_requests() {
    // Rows of 2 pages anywhere; one in ten is a range of up to four rows.
    let mut draws = Draws(3);
    let mut cache = cache(Policy::Stream, 1 << 22, 1, Config::default());
    for _ in 0..30_000 {
        let row = draws.below(1 << 20) * 4;
        let rows = if draws.below(10) == 0 { 1 + draws.below(4) } else { 1 };
        (0..rows).for_each(|n| drop(read(&mut cache, 0, row + n * 2, 2)));
    }
    let Stats { pages_filled, pages_readahead, pages_used, .. } = cache.stats();
    let vain = pages_readahead - pages_used;
    assert!(vain * 100 <= pages_filled, "{vain} pages in vain of {pages_filled}");
}

#[test]
fn byte_aligned_runs_are_predicted() {
    // Three of twenty columns of 2,400,000 bytes, in reads of 128 KiB.
    let mut cache = cache(Policy::Stream, 1 << 20, 1, Config { ra_pages: 256, ..Config::default() });
    for group in 0..20u64 {
        for column in [0, 7, 14] {
            let (start, end) = (group * 48_000_000 + column * 2_400_000, 2_400_000);
            for piece in (0..end).step_by(131_072) {
                let first = (start + piece) / 4096;
                let last = (start + end.min(piece + 131_072) - 1) / 4096;
                read(&mut cache, 0, first, last + 1 - first);
            }
        }
    }
    let Stats { misses, pages_filled, pages_readahead, pages_used, .. } = cache.stats();
    // The first seven runs miss their first pages; later runs rarely miss.
    assert!(misses <= 700, "{misses} pages missed");
    let vain = pages_readahead - pages_used;
    assert!(vain * 4 <= pages_filled - vain, "{vain} pages in vain of {pages_filled}");
}
