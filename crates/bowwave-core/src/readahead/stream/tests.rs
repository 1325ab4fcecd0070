//! Decisions of `stream` on a store that takes no time: requests for each pattern, and waste under
//! memory pressure.

use std::vec::Vec;

use super::*;
use crate::cache::Cache;
use crate::config::Config;
use crate::event::{Decision, Urgency};
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageRange};
use crate::readahead::{Policy, WasteCounts};
use crate::request::PageAccess;
use crate::stats::Stats;
use crate::time::Instant;

/// The reads of a cache, and their reasons.
#[derive(Default)]
struct Log {
    fills: Vec<(u64, u64)>,
    reasons: Vec<Reason>,
}

impl crate::cache::Observer for Log {
    fn filled(&mut self, _file: FileId, range: PageRange, _urgency: Urgency) {
        self.fills.push((range.start.0, range.end.0));
    }

    fn decided(&mut self, decision: &Decision) {
        self.reasons.push(decision.plan.reason);
    }
}

struct Scene {
    cache: Cache,
    log: Log,
}

impl Scene {
    fn new(file_pages: u64) -> Self {
        Self::with(file_pages, Config { policy: Policy::Stream, ..Config::default() })
    }

    fn with(file_pages: u64, config: Config) -> Self {
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FileId(0), PageCount(file_pages));
        for handle in 0..64 {
            cache.open_handle(HandleId(handle), FileId(0));
        }
        Self { cache, log: Log::default() }
    }

    fn read(&mut self, start: u64, pages: u64) {
        self.read_by(0, start, pages);
    }

    fn read_by(&mut self, handle: u32, start: u64, pages: u64) {
        let range = PageRange::new(start, start + pages);
        self.cache
            .access_instant(Instant(0), PageAccess::read(HandleId(handle), range), &mut self.log)
            .expect("room");
    }

    fn take(&mut self) -> (Vec<(u64, u64)>, Vec<Reason>) {
        let log = core::mem::take(&mut self.log);
        (log.fills, log.reasons)
    }

    fn unread(&self) -> u64 {
        WasteCounts::of(&self.cache.stats()).unread
    }
}

/// Random numbers from a seed.
struct Draws(u64);

impl Draws {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 33) % bound
    }
}

#[test]
fn sequential_reads_are_read_as_by_on_demand_readahead() {
    let mut ours = Scene::new(1 << 30);
    let mut on_demand = Scene::with(1 << 30, Config { policy: Policy::OnDemand, ..Config::default() });
    for page in 0..500 {
        ours.read(page, 1);
        on_demand.read(page, 1);
    }
    assert_eq!(ours.take(), on_demand.take());
}

#[test]
fn random_reads_read_only_their_requests() {
    let mut scene = Scene::new(1 << 30);
    let mut draws = Draws(1);
    for n in 1..1000u64 {
        let state = draws.bits();
        scene.read(state >> 34, 1 + n % 3);
    }
    let stats = scene.cache.stats();
    assert_eq!((stats.pages_readahead, stats.pages_filled), (0, stats.misses));
}

#[test]
fn backward_reads_are_read_ahead() {
    let mut scene = Scene::new(1 << 20);
    for block in (0..512).rev() {
        scene.read(block * 16, 16);
    }
    let (fills, reasons) = scene.take();
    assert!(fills.len() <= 512 / 2 + 8, "{} requests", fills.len());
    assert!(reasons.contains(&Reason::Backward));
    assert_eq!(scene.cache.stats().pages_filled, 512 * 16, "nothing but the file's pages");
}

#[test]
fn strides_are_read_ahead_exactly() {
    for step in [-256i64, -40, 40, 256] {
        let mut scene = Scene::new(1 << 20);
        for n in 0..400 {
            scene.read((200_000 + step * n) as u64, 32);
        }
        let stats = scene.cache.stats();
        assert!(stats.misses <= 32 * 4, "step {step}: {} pages missed", stats.misses);
        let ahead = stats.pages_filled - 400 * 32;
        assert!(ahead <= 2 * 32 + 400 * 32 / 4, "step {step}: {ahead} pages more than requested");
        assert!(scene.take().1.contains(&Reason::Stride));
    }
}

/// Regression: a field of rows of 320 000 bytes begins 78 or 79 pages after the one before. After
/// the first distance of 79, each block waited for the store.
#[test]
fn strides_that_are_no_whole_number_of_pages_are_read_ahead() {
    for (row, pages) in [(320_000u64, 64u64), (320_000, 1), (100_100, 1), (16_000, 1), (65_537 * 5, 16)] {
        let mut scene = Scene::new(1 << 20);
        let rows = 2000;
        for n in 0..rows {
            scene.read((40_000_128 + row * n) / 4096, pages);
        }
        let stats = scene.cache.stats();
        assert!(stats.misses <= rows * pages / 5, "rows of {row} bytes: {} pages missed", stats.misses);
        let ahead = stats.pages_filled - rows * pages;
        assert!(ahead <= rows * pages / 5 + 64, "rows of {row} bytes: {ahead} pages more than requested");
    }
}

/// Regression: where distances of 12 and 13 pages take turns, each second block was found, at twice
/// the distance, and the others waited for the store.
#[test]
fn rows_at_distances_that_take_turns_are_one_stride() {
    for row in [51_200u64, 30_720, 50_790, 1_050_000] {
        let mut scene = Scene::new(1 << 30);
        for n in 0..1000 {
            scene.read(row * n / 4096, 1);
        }
        let (plans, misses) = (scene.take().1.len(), scene.cache.stats().misses);
        assert!(
            plans <= 100 && misses <= 60,
            "rows of {row} bytes: {plans} decisions, {misses} pages missed"
        );
    }
}

/// A mount's kernel reads 128 KiB of each MiB, and its first request is larger. Windows of ours may
/// then end exactly where a later block begins.
#[test]
fn strides_that_match_window_sizes_are_no_sequential_stream() {
    for (first, step) in [(64, 256), (32, 128), (64, 512), (128, 1024)] {
        for ra_pages in [256, 4096] {
            let mut scene =
                Scene::with(1 << 20, Config { policy: Policy::Stream, ra_pages, ..Config::default() });
            scene.read(0, first);
            (1..400).for_each(|n| scene.read(n * step, 32));
            let stats = scene.cache.stats();
            let ahead = stats.pages_filled - 400 * 32;
            let bound = 2 * u64::from(ra_pages) + 400 * 32 / 4;
            assert!(ahead <= bound, "{first}, {step}: {ahead} pages more than requested");
            assert!(stats.misses <= 32 * 8, "{first}, {step}: {} pages missed", stats.misses);
        }
    }
}

#[test]
fn interleaved_streams_cost_no_more_than_separate_ones() {
    let pages = 300;
    let apart = |start: u64| {
        let mut scene = Scene::new(1 << 30);
        (start..start + pages).for_each(|page| scene.read(page, 1));
        scene.take().0.len()
    };
    for streams in [2, 3, 8, 31, 32, 33, 64] {
        for handles in [1, streams] {
            for uneven in [0, 7_919] {
                let starts: Vec<u64> =
                    (0..streams).map(|n| n * (1_000_003 + uneven * (n % 7) * (n % 11))).collect();
                let mut scene = Scene::new(1 << 30);
                for page in 0..pages {
                    for (n, start) in starts.iter().enumerate() {
                        scene.read_by(n as u32 % handles as u32, start + page, 1);
                    }
                }
                let together = scene.take().0.len();
                let alone: usize = starts.iter().map(|&start| apart(start)).sum();
                assert!(
                    together <= alone + 2 * streams as usize,
                    "{streams} streams by {handles} handles: {together} requests together, {alone} apart"
                );
            }
        }
    }
}

#[test]
fn reordered_requests_form_one_stream() {
    let mut scene = Scene::new(1 << 20);
    for pair in 0..100 {
        scene.read(pair * 16 + 8, 8);
        scene.read(pair * 16, 8);
    }
    let fills = scene.take().0.len();
    assert!(fills <= 60, "{fills} requests for 1600 pages");
    assert!(scene.unread() <= 2 * 32 + 1600 / 4, "{} pages unread", scene.unread());
}

/// Reads the first page and `more` further ones of 40 files of 100 pages, through handles of their
/// own. Returns how many pages of each file were filled.
fn filled_of_files(more: u64) -> Vec<u64> {
    let mut cache = Cache::new(Config { policy: Policy::Stream, ..Config::default() }).expect("valid");
    let mut draws = Draws(1);
    let read = |file| {
        cache.open_file(FileId(file), PageCount(100));
        cache.open_handle(HandleId(file), FileId(file));
        let before = cache.stats().pages_filled;
        for page in core::iter::once(0).chain((0..more).map(|_| 1 + draws.below(99))) {
            let range = PageRange::new(page, page + 1);
            let access = PageAccess::read(HandleId(file), range);
            cache.access_instant(Instant(0), access, &mut Log::default()).expect("valid");
        }
        cache.stats().pages_filled - before
    };
    (0..40).map(read).collect()
}

#[test]
fn a_small_file_is_read_whole_if_that_takes_no_longer_than_the_expected_requests() {
    let first = |pages| {
        let config = Config { policy: Policy::Stream, ra_pages: 256, ..Config::default() };
        let mut scene = Scene::with(pages, config);
        scene.read(40, 1);
        scene.take().1
    };
    // Without files before, five more requests are expected. They cost as much as 1280 pages.
    assert_eq!((first(1200), first(2000)), (std::vec![Reason::WholeFile], std::vec![Reason::Random]));
}

/// All pages of a small file are read in any order, dropped, and read again: the file may be read
/// whole in each pass over it.
#[test]
fn each_pass_over_a_small_file_may_read_it_whole() {
    let mut scene = Scene::with(200, Config { policy: Policy::Stream, ra_pages: 256, ..Config::default() });
    let mut draws = Draws(1);
    for pass in 0..3 {
        // Begins far from the ends, where programs read headers.
        let mut pages: Vec<u64> = (50..150).collect();
        pages.sort_by_cached_key(|_| draws.bits());
        pages.into_iter().chain(0..50).chain(150..200).for_each(|page| scene.read(page, 1));
        let (fills, reasons) = scene.take();
        assert_eq!(reasons.first(), Some(&Reason::WholeFile), "pass {pass}: {reasons:?}");
        assert_eq!(fills, [(0, 200)], "pass {pass}");
        scene.cache.invalidate(FileId(0), PageRange::new(0, 200));
    }
}

#[test]
fn small_files_are_read_as_those_before_them() {
    let heads = filled_of_files(0);
    assert!(heads.iter().all(|&pages| pages < 10), "{heads:?}");
    let all = filled_of_files(30);
    assert_eq!(all, [100; 40], "all files are read whole");
}

#[test]
fn the_tail_of_a_file_is_read_at_once() {
    let mut scene = Scene::new(100_000);
    scene.read(0, 1);
    scene.read(99_999, 1);
    assert_eq!(
        scene.take(),
        (std::vec![(0, 4), (99_984, 100_000)], std::vec![Reason::Initial, Reason::Tail])
    );
}

#[test]
fn clusters_of_the_usual_length_are_read_at_once() {
    let mut scene = Scene::new(1 << 30);
    let mut draws = Draws(1);
    for _ in 0..20 {
        let state = draws.bits();
        let start = state >> 36;
        (start..start + 64).step_by(4).for_each(|page| scene.read(page, 4));
    }
    scene.take();
    scene.read(777_000_000, 4);
    assert_eq!(
        scene.take(),
        (std::vec![(777_000_000, 777_000_032), (777_000_032, 777_000_064)], std::vec![Reason::Range])
    );
}

/// Clusters of 64 to 256 pages, touched page by page. Waste after their ends uses up the budget;
/// readers must still get readahead.
#[test]
fn clusters_of_varied_lengths_do_not_exhaust_the_waste_budget() {
    let config = Config { policy: Policy::Stream, ra_pages: 256, ..Config::default() };
    let mut scene = Scene::with(1 << 30, config);
    let mut draws = Draws(1);
    let mut wanted = 0;
    for _ in 0..400 {
        let state = draws.bits();
        let (start, pages) = (state >> 36, 64 + (state >> 20) % 193);
        (start..start + pages).for_each(|page| scene.read(page, 1));
        wanted += pages;
    }
    let stats = scene.cache.stats();
    assert!(stats.misses <= 400 * 8, "{} misses of {wanted} pages", stats.misses);
    assert!(scene.unread() <= 16 * 256 + 2 * 256 * 32 + wanted / 4, "{} pages unread", scene.unread());
}

#[test]
fn repeating_jumps_are_predicted() {
    let mut scene = Scene::new(1 << 30);
    let jumps = [5_000, 90, 700, 40_000, 333, 8_192, 77, 1_000, 64, 12_345];
    let mut page = 1_000_000;
    for n in 0..100 {
        scene.read(page, 2);
        page += jumps[n % 10];
    }
    let stats = scene.cache.stats();
    assert!(stats.misses <= 2 * 25, "{} pages missed of 200", stats.misses);
    assert!(scene.unread() <= 2, "{} pages unread", scene.unread());
}

/// A cache with files of one handle each.
fn cache(policy: Policy, file_pages: u64, files: u32, config: Config) -> Cache {
    let mut cache = Cache::new(Config { policy, ..config }).expect("valid");
    for file in 0..files {
        cache.open_file(FileId(file), PageCount(file_pages));
        cache.open_handle(HandleId(file), FileId(file));
    }
    cache
}

/// Reads a file; returns the reasons of decisions.
fn read(cache: &mut Cache, file: u32, start: u64, pages: u64) -> Vec<Reason> {
    let mut log = Log::default();
    let range = PageRange::new(start, start + pages);
    cache.access_instant(Instant(0), PageAccess::read(HandleId(file), range), &mut log).expect("room");
    log.reasons
}

/// Streams of one file each, read in turn, with 32 frames each. Returns the readahead evicted
/// unread, in thousandths of all pages read, and the mean pages of a request.
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
    cache.check().expect("the invariants hold");
    let Stats { pages_readahead, pages_used, pages_filled, fills, .. } = cache.stats();
    let wasted = pages_readahead - pages_used - u64::from(cache.frames_unread());
    (wasted * 1000 / pages_filled, pages_filled / fills)
}

#[test]
fn many_streams_under_memory_pressure_waste_little_and_keep_requests_long() {
    let (wasted, pages) = pressed(Policy::Stream);
    let (on_demand, _) = pressed(Policy::OnDemand);
    assert!(
        wasted <= 20,
        "{wasted} thousandths of the pages were evicted unread; {on_demand} by on-demand readahead"
    );
    assert!(on_demand > 100, "memory is not short: {on_demand}");
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
    assert_eq!(kept(&cache), 64, "after three times the memory");
    (3..7).for_each(|at| turn(&mut cache, at));
    assert_eq!(kept(&cache), 0, "its reader does not return");
    cache.check().expect("the invariants hold");
}

#[test]
fn unread_readahead_without_a_reader_is_evicted() {
    let config = Config { frames: 2048, ra_pages: 64, ..Config::default() };
    let mut cache = cache(Policy::Stream, 1 << 20, 3, config);
    (0..64).for_each(|block| drop(read(&mut cache, 0, block * 16, 16)));
    cache.close_handle(Instant(0), HandleId(0), &mut Vec::new());
    (0..160).for_each(|at| drop(read(&mut cache, 1, at * 16, 16)));
    assert!(!cache.is_cached(FileId(0), PageIndex(1030)), "the file has no handle");
    // Scans of 512 pages that end anywhere: readahead after their ends soon counts as waste.
    let (mut draws, mut most) = (Draws(1), 0);
    for scan in 0..400 {
        let start = draws.below(1 << 10) * 1024;
        (0..32).for_each(|at| drop(read(&mut cache, 2, start + at * 16, 16)));
        most = if scan < 50 { 0 } else { most.max(cache.frames_unread()) };
    }
    assert!(most < 2048 / 2, "{most} pages of 2048 are unread");
    cache.check().expect("the invariants hold");
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
    // The last pages of the first file, after its last mark: the policy did not see them used.
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
        let wasted = pages_readahead - pages_used;
        assert!(wasted * 50 <= pages_filled, "seed {seed}: {wasted} pages wasted of {pages_filled}");
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
    let wasted = pages_readahead - pages_used;
    assert!(wasted * 100 <= pages_filled, "{wasted} pages wasted of {pages_filled}");
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
    let wasted = pages_readahead - pages_used;
    assert!(wasted * 4 <= pages_filled - wasted, "{wasted} pages wasted of {pages_filled}");
}
