//! Decisions of `range` beyond the golden vectors: budget, advice, congestion, clusters of faults,
//! counters.

use crate::instant_device;
use bowwave_baselines::{CLUSTERS_BEFORE, CLUSTERS_LITERAL};
use bowwave_core::readahead::RangeEvent;
use bowwave_core::{
    Action, Advice, Cache, Clusters, Config, Fault, FileId, HandleId, Instant, PageAccess, PageCount,
    PageIndex, PageRange, Pattern, Policy, RangeConfig, Reason, Trigger,
};

const HANDLE: HandleId = HandleId(0);

/// A cache whose fills complete at once.
struct Bench {
    cache: Cache,
    /// Windows requested without a missing page.
    ahead: u64,
}

impl Bench {
    fn new(config: Config, pages: u64) -> Self {
        let mut cache = Cache::new(config).expect("within bounds");
        cache.open_file(FileId(0), PageCount(pages));
        cache.open_handle(HANDLE, FileId(0));
        Self { cache, ahead: 0 }
    }

    fn with(range: RangeConfig) -> Self {
        Self::new(Config { policy: Policy::Range, ra_pages: 32, range, ..Config::default() }, 1 << 20)
    }

    fn read(&mut self, start: u64, count: u64) -> Vec<(Reason, u64, u64)> {
        self.access(PageAccess::read(HANDLE, PageRange::new(start, start + count)))
    }

    fn touch(&mut self, page: u64, pattern: Pattern) -> Vec<(Reason, u64, u64)> {
        self.fault(HANDLE, Fault { page: PageIndex(page), pattern })
    }

    fn touch_by(&mut self, handle: HandleId, page: u64) -> Vec<(Reason, u64, u64)> {
        self.fault(handle, Fault { page: PageIndex(page), pattern: Pattern::Normal })
    }

    fn fault(&mut self, handle: HandleId, fault: Fault) -> Vec<(Reason, u64, u64)> {
        self.access(PageAccess::fault(handle, fault))
    }

    /// Returns the decisions.
    fn access(&mut self, access: PageAccess) -> Vec<(Reason, u64, u64)> {
        let mut decisions = Vec::new();
        let see = |action: &Action| {
            if let Action::Decided(decision) = action {
                let window = decision.plan.window;
                self.ahead += u64::from(window.size.0 > 0 && decision.trigger == Trigger::Mark);
                decisions.push((decision.plan.reason, window.start.0, window.size.0));
            }
        };
        instant_device::access(&mut self.cache, access, see).expect("no fill fails");
        decisions
    }

    fn counted(&self, stat: RangeEvent) -> u64 {
        stat.of(&self.cache.stats())
    }
}

fn clusters(clusters: Clusters) -> RangeConfig {
    RangeConfig { clusters, ..RangeConfig::default() }
}

#[test]
fn the_third_touch_of_a_cluster_reads_around_itself_with_its_first_page() {
    for (variant, first) in [(Clusters::Fixed, 1012), (CLUSTERS_LITERAL, 1013)] {
        let mut bench = Bench::with(clusters(variant));
        for page in [1000, 1010] {
            assert_eq!(bench.touch(page, Pattern::Normal), [(Reason::Random, page, 1)]);
        }
        assert_eq!(bench.touch(1020, Pattern::Normal), [(Reason::Range, first, 16)]);
        assert!(bench.touch(1021, Pattern::Normal).is_empty());
        assert_eq!(bench.counted(RangeEvent::MmapRangeRead), 1);
        assert_eq!((bench.counted(RangeEvent::Misses), bench.counted(RangeEvent::Hits)), (3, 1));
    }
}

#[test]
fn the_width_of_a_cluster_is_the_window_of_the_next_one() {
    let mut bench = Bench::with(clusters(Clusters::Fixed));
    for page in [5000, 5099, 5030, 90_000, 90_050] {
        bench.touch(page, Pattern::Normal);
    }
    assert_eq!(bench.touch(90_200, Pattern::Normal), [(Reason::Range, 90_150, 100)]);
}

#[test]
fn touches_after_mapped_neighbours_are_no_stride() {
    // A sequential reader that faults at each 40th page, since the others are mapped with it: not a
    // stride.
    let mut bench = Bench::with(clusters(Clusters::Fixed));
    bench.cache.map_by_offset(FileId(0));
    for step in 0..12 {
        let page = 5000 + step * 40;
        let decided = bench.touch(page, Pattern::Normal);
        assert!(decided.iter().all(|decided| decided.0 != Reason::Stride), "{decided:?}");
        let mapped = PageRange::new(page.saturating_sub(10), page + 40);
        bench.cache.mapped(HANDLE, PageIndex(page), mapped);
    }
    assert_eq!(bench.counted(RangeEvent::ReadpageNotConsecutive), 1, "the first one");
    // Its windows have grown by RPCs.
    assert!(bench.touch(5480, Pattern::Normal).iter().all(|decided| decided.0 != Reason::Random));
}

#[test]
fn mapped_pages_that_were_not_reached_do_not_count() {
    let touches = |mapped: bool| {
        let mut bench = Bench::with(clusters(Clusters::Fixed));
        bench.cache.map_by_offset(FileId(0));
        let pages = [5000, 90_000, 40_000, 200_000, 7000].map(|page| {
            let decided = bench.touch(page, Pattern::Normal);
            let count = if mapped { 30 } else { 1 };
            bench.cache.mapped(HANDLE, PageIndex(page), PageRange::new(page, page + count));
            decided
        });
        (pages, bench.counted(RangeEvent::ReadpageNotConsecutive))
    };
    assert_eq!(touches(true), touches(false));
}

#[test]
fn a_reader_of_upward_clusters_gets_the_next_one_at_its_first_touch() {
    let mut bench = Bench::with(clusters(Clusters::Learned));
    bench.cache.map_by_offset(FileId(0));
    // Touches unmapped pages in order, as with a driver that maps up to 64 with each; counts the
    // misses.
    let mut cluster = |start: u64, len: u64| {
        let mut page = start;
        let mut windows = Vec::new();
        while page < start + len {
            windows.extend(bench.touch(page, Pattern::Normal));
            let around = PageRange::new(page.saturating_sub(64), page + 64);
            let mapped = bench.cache.mappable(FileId(0), PageIndex(page), around, PageCount(64));
            bench.cache.mapped(HANDLE, PageIndex(page), mapped);
            page = mapped.end.0;
        }
        windows
    };
    // No cluster is known: half a range at the second adjacent touch.
    assert_eq!(cluster(10_000, 100), [(Reason::Random, 10_000, 1), (Reason::Range, 10_001, 128)]);
    // The last touch seen mapped 64 pages, 129 since the first; a longer cluster gets half of that
    // more.
    assert_eq!(cluster(50_000, 150), [(Reason::Range, 50_000, 129), (Reason::Range, 50_129, 64)]);
    let (short, long) = (cluster(30_000, 40), cluster(90_000, 200));
    assert!(matches!(short[..], [(Reason::Range, 30_000, 129..)]), "{short:?}");
    assert!(matches!(long[..], [(Reason::Range, 90_000, 129..), ..]) && long.len() <= 2, "{long:?}");
}

#[test]
fn clusters_of_one_handle_predict_the_first_of_another() {
    let mut bench = Bench::with(clusters(Clusters::Learned));
    for other in 1..3 {
        bench.cache.open_handle(HandleId(other), FileId(0));
    }
    for page in (10_000..10_100).chain([50_000]) {
        bench.touch(page, Pattern::Normal);
    }
    // Of other threads: inside a cluster, and far from each other.
    assert_eq!(bench.touch_by(HandleId(1), 90_000), [(Reason::Range, 90_000, 100)]);
    assert_eq!(bench.touch_by(HandleId(2), 70_000), [(Reason::Range, 70_000, 100)]);
    assert!(bench.touch_by(HandleId(1), 90_099).is_empty());
    // A reader that touched single pages gets single pages.
    let few = [200_000, 310_000, 190_000].map(|page| bench.touch_by(HandleId(2), page)[0].2);
    assert!(few.iter().all(|&pages| (16..=100).contains(&pages)), "{few:?}");
    assert_eq!(bench.touch_by(HandleId(2), 500_000), [(Reason::Random, 500_000, 1)]);
    // Another file has its own clusters.
    bench.cache.open_file(FileId(1), PageCount(1 << 20));
    bench.cache.open_handle(HandleId(3), FileId(1));
    assert_eq!(bench.touch_by(HandleId(3), 90_000), [(Reason::Random, 90_000, 1)]);
}

#[test]
fn random_touches_predict_nothing() {
    let (mut fixed, mut learned) =
        (Bench::with(clusters(Clusters::Fixed)), Bench::with(clusters(Clusters::Learned)));
    for turn in 0..400u64 {
        // Random pages, and sometimes adjacent ones downward.
        let page = if turn % 8 < 5 { turn * 48_271 % 100_003 * 10 } else { 500_000 - turn % 8 * 20 };
        assert_eq!(learned.touch(page, Pattern::Normal), fixed.touch(page, Pattern::Normal), "turn {turn}");
    }
}

#[test]
fn reads_of_a_cache_in_front_distinguish_clusters_from_streams() {
    let with = |fault_bytes| {
        let range = RangeConfig { fault_bytes, whole_bytes: 0, ..clusters(Clusters::Learned) };
        Bench::new(Config { policy: Policy::Range, ra_pages: 4096, range, ..Config::default() }, 1 << 20)
    };
    // The kernel's reads for a fault: 64 pages around it, and twice 64 more in order.
    let cluster = |bench: &mut Bench, start: u64| -> u64 {
        (0..3).flat_map(|step| bench.read(start + step * 64, 64)).map(|decided| decided.2).sum()
    };
    let mut bench = with(64 << 12);
    let pages: Vec<u64> = [10_000, 50_000, 30_000, 90_000].map(|start| cluster(&mut bench, start)).into();
    assert!(pages.iter().all(|&pages| (192..=384).contains(&pages)), "{pages:?}");
    // The longest cluster, with the kernel's half window before it and up to two windows after it.
    let most = (0..6).flat_map(|step| bench.read(200_000 + step * 64, 64)).map(|decided| decided.2).max();
    assert!(most < Some(1024), "{most:?}");
    // The same reads by a program are a stream.
    let pages = cluster(&mut with(0), 10_000);
    assert!(pages > 1024, "{pages}");
    // So are reads that begin with a short one, or continue for long.
    let mut bench = with(64 << 12);
    bench.read(9_996, 4);
    let pages = cluster(&mut bench, 10_000);
    assert!(pages > 1024, "{pages}");
    let mut bench = with(64 << 12);
    let most = (0..20).flat_map(|step| bench.read(10_000 + step * 64, 64)).map(|decided| decided.2).max();
    assert!(most > Some(1024), "{most:?}");
}

/// Regression: a kernel's reads around faults arrive reordered, and shorter where pages are cached.
/// Such a reader was taken for a stream and got 32 MiB at a time.
#[test]
fn late_reads_of_a_cache_in_front_make_no_stream_of_clusters() {
    let clusters_alone =
        [(231_594, 64), (231_658, 62), (231_720, 64), (231_784, 64), (190_440, 64), (190_504, 64)];
    let in_their_own_cluster =
        [(231_594, 64), (231_720, 64), (231_658, 62), (231_784, 64), (231_848, 64), (231_912, 64)];
    let in_the_one_before = [
        [(190_440, 64), (190_504, 64), (190_568, 64), (221_367, 64), (190_632, 64), (221_431, 61)],
        [(221_492, 64), (221_556, 64), (221_620, 64), (221_684, 64), (57_905, 64), (57_969, 63)],
    ];
    let every_other_one_first =
        [(5_000, 64), (10_000, 64), (10_128, 64), (10_256, 64), (10_064, 64), (10_192, 64)];
    for reads in
        [&clusters_alone[..], &every_other_one_first, &in_their_own_cluster, in_the_one_before.as_flattened()]
    {
        let range = RangeConfig { fault_bytes: 64 << 12, whole_bytes: 0, ..clusters(Clusters::Learned) };
        let config = Config { policy: Policy::Range, ra_pages: 8192, range, ..Config::default() };
        let mut bench = Bench::new(config, 1 << 20);
        let most =
            reads.iter().flat_map(|&(start, count)| bench.read(start, count)).map(|decided| decided.2).max();
        assert!(most <= Some(256), "{most:?}: {reads:?}");
    }
}

#[test]
fn before_document_003_each_fault_was_single_until_four_were_sequential() {
    let mut bench = Bench::with(clusters(CLUSTERS_BEFORE));
    for page in [1000, 1010, 1025, 1060] {
        assert_eq!(bench.touch(page, Pattern::Normal), [(Reason::Random, page, 1)]);
    }
    for page in 2000..2003 {
        assert_eq!(bench.touch(page, Pattern::Normal), [(Reason::Random, page, 1)]);
    }
    // The window of 32 begins at 1984; its rest is read.
    assert_eq!(bench.touch(2003, Pattern::Normal), [(Reason::Readahead, 2003, 13)]);
}

#[test]
fn advice_of_a_mapping_overrides_the_pattern() {
    let mut bench = Bench::with(RangeConfig::default());
    assert_eq!(bench.touch(5000, Pattern::Sequential), [(Reason::Range, 5000, 248)]);
    for page in [9000, 9001, 9002, 9003] {
        assert_eq!(bench.touch(page, Pattern::Random), [(Reason::Random, page, 1)]);
    }
}

#[test]
fn a_handle_with_random_advice_reads_its_requests() {
    let mut bench = Bench::with(RangeConfig::default());
    let range = PageRange::new(0, 0);
    bench.cache.advise(Instant(0), HANDLE, range, Advice::Random, &mut Vec::new());
    for start in [0, 40, 80] {
        assert_eq!(bench.read(start, 40), [(Reason::Forced, start, 40)]);
    }
}

#[test]
fn a_full_budget_leaves_requests_and_no_small_readahead() {
    let config =
        Config { policy: Policy::Range, ra_pages: 32, frames: 200, reserve_frames: 190, ..Config::default() };
    let mut bench = Bench::new(config, 1 << 20);
    for start in (0..200).step_by(4) {
        let decided = bench.read(start, 4);
        assert!(
            decided.iter().all(|&(_, first, size)| first >= start && first + size <= start + 4),
            "{decided:?}"
        );
    }
    assert_eq!(bench.cache.stats().pages_readahead, 0);
    assert!(bench.counted(RangeEvent::HitMaxReadaheadIssue) > 0);
}

#[test]
fn a_congested_device_gets_no_readahead_without_a_waiter() {
    let run = |congested| {
        let mut bench = Bench::with(RangeConfig::default());
        bench.cache.set_congested(congested);
        let decided: Vec<_> = (0..20).flat_map(|step| bench.read(step * 40, 40)).collect();
        let deferred = decided.iter().filter(|decided| decided.0 == Reason::Deferred).count();
        (bench.ahead, deferred)
    };
    let (idle, congested) = (run(false), run(true));
    assert!(idle.0 > 0 && idle.1 == 0, "{idle:?}");
    assert!(congested.0 == 0 && congested.1 > 0, "{congested:?}");
}

#[test]
fn pages_evicted_before_their_use_reset_the_window_and_are_counted() {
    let mut bench = Bench::with(RangeConfig::default());
    for start in (0..40).step_by(4) {
        bench.read(start, 4);
    }
    let before = bench.counted(RangeEvent::MissInsideWindow);
    bench.cache.invalidate(FileId(0), PageRange::new(40, 60));
    assert_eq!(bench.read(40, 4), [(Reason::Random, 40, 4)]);
    assert_eq!(bench.counted(RangeEvent::MissInsideWindow), before + 1);
}

#[test]
fn a_page_shared_by_two_handles_is_fresh_once() {
    let mut bench = Bench::with(RangeConfig::default());
    bench.cache.open_handle(HandleId(1), FileId(0));
    bench.read(0, 8);
    bench.read(8, 8);
    let hits = bench.counted(RangeEvent::Hits);
    bench.read(16, 1);
    bench.read(16, 1);
    assert_eq!(bench.counted(RangeEvent::Hits), hits + 1);
}
