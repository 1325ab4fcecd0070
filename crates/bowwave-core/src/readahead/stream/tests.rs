//! Decisions of `stream`, checked by the reads that reach the store.

use crate::request::PageAccess;
use std::vec::Vec;

use super::*;
use crate::cache::Cache;
use crate::config::Config;
use crate::event::{Decision, Urgency};
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageRange};
use crate::readahead::Policy;
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

use crate::readahead::WasteCounts;

#[test]
fn sequential_reads_are_read_as_by_on_demand_readahead() {
    let mut ours = Scene::new(1 << 30);
    let mut others_waste = Scene::with(1 << 30, Config { policy: Policy::OnDemand, ..Config::default() });
    for page in 0..500 {
        ours.read(page, 1);
        others_waste.read(page, 1);
    }
    assert_eq!(ours.take(), others_waste.take());
}

#[test]
fn random_reads_read_only_their_requests() {
    let mut scene = Scene::new(1 << 30);
    let mut state = 1u64;
    for n in 1..1000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
        assert!(ahead <= 2 * 32 + 400 * 32 / 4, "step {step}: {ahead} pages more than asked for");
        assert!(scene.take().1.contains(&Reason::Stride));
    }
}

/// A kernel's mount reads 128 KiB of each MiB. Its first window is larger, and from its end to the
/// second block is exactly one of our windows.
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
            assert!(ahead <= bound, "{first}, {step}: {ahead} pages more than asked for");
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

#[test]
fn a_small_file_is_read_whole_at_the_second_read() {
    let mut scene = Scene::new(100);
    scene.read(40, 1);
    scene.read(7, 1);
    assert_eq!(scene.take().1, [Reason::Random, Reason::WholeFile]);
    assert_eq!(scene.cache.stats().pages_filled, 100);
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
    let mut state = 1u64;
    for _ in 0..20 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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

/// Clusters of 64 to 256 pages, touched page by page. Waste behind their ends uses up the budget;
/// readers must still get readahead.
#[test]
fn clusters_of_varied_lengths_do_not_exhaust_the_waste_budget() {
    let config = Config { policy: Policy::Stream, ra_pages: 256, ..Config::default() };
    let mut scene = Scene::with(1 << 30, config);
    let mut state = 1u64;
    let mut wanted = 0;
    for _ in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
