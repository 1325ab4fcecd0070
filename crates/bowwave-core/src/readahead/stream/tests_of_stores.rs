//! Decisions of `stream` by the latency of the store: how much is requested at once, and how often
//! the reader waits.

mod disk;
mod rest;

use crate::request::PageAccess;
use alloc::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::cache::Cache;
use crate::config::Config;
use crate::event::{Action, Event, FillError};
use crate::id::{FileId, FillId, HandleId, Waiter};
use crate::page::{PageCount, PageRange};
use crate::readahead::{Policy, WasteCounts};

/// Nanoseconds of a fill: of an object store, and of an SSD.
const FAR_NS: u64 = 30_000_000;
const NEAR_NS: u64 = 100_000;

/// A reader of one file that needs 1 µs per page, and a store with the same latency for every
/// request, except those that begin where the last one ended.
struct Reader {
    cache: Cache,
    fill_ns: u64,
    onward_ns: u64,
    now: u64,
    coming: VecDeque<(u64, FillId)>,
    fills: Vec<(u64, u64)>,
    reasons: Vec<Reason>,
    waits: usize,
    /// Whether the fill of this number fails.
    fails: fn(usize) -> bool,
    ended: usize,
}

impl Reader {
    fn new(fill_ns: u64, ra_pages: u32) -> Self {
        Self::with(fill_ns, Config { policy: Policy::Stream, ra_pages, ..Config::default() })
    }

    fn with(fill_ns: u64, config: Config) -> Self {
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FileId(0), PageCount(1 << 20));
        (0..64).for_each(|handle| cache.open_handle(HandleId(handle), FileId(0)));
        let (coming, fills, reasons) = (VecDeque::new(), Vec::new(), Vec::new());
        let fails = |_| false;
        Self { cache, fill_ns, onward_ns: fill_ns, now: 0, coming, fills, reasons, waits: 0, fails, ended: 0 }
    }

    fn read(&mut self, start: u64, pages: u64) {
        self.try_read(start, pages).expect("no fill fails");
    }

    fn try_read(&mut self, start: u64, pages: u64) -> Result<(), FillError> {
        self.try_read_by(0, start, pages)
    }

    fn try_read_by(&mut self, handle: u32, start: u64, pages: u64) -> Result<(), FillError> {
        self.now += 1000 * pages;
        let mut out = Vec::new();
        while self.coming.front().is_some_and(|&(at, _)| at <= self.now) {
            self.end_one(&mut out);
        }
        let request = PageRange::new(start, start + pages);
        let event = Event::Access { waiter: Waiter(0), access: PageAccess::read(HandleId(handle), request) };
        self.cache.step(Instant(self.now), event, &mut out);
        let mut waited = 0;
        loop {
            let mut woke = None;
            for action in core::mem::take(&mut out) {
                match action {
                    Action::Fill(fill) => {
                        let end = self.fills.last().map(|&(start, pages)| start + pages);
                        let onward = end == Some(fill.range.start.0);
                        let took = if onward { self.onward_ns } else { self.fill_ns };
                        self.coming.push_back((self.now + took, fill.id));
                        self.fills.push((fill.range.start.0, fill.range.count().0));
                    }
                    Action::Decided(decision) => self.reasons.push(decision.plan.reason),
                    Action::Wake { result, .. } => woke = Some(result),
                    _ => {}
                }
            }
            if let Some(result) = woke {
                self.waits += waited;
                let frames = result?;
                self.cache.step(Instant(self.now), Event::Unpin { frames }, &mut out);
                return Ok(());
            }
            waited = 1;
            self.end_one(&mut out);
        }
    }

    fn end_one(&mut self, out: &mut Vec<Action>) {
        let (at, fill) = self.coming.pop_front().expect("a waiting read has a fill in flight");
        self.now = self.now.max(at);
        self.ended += 1;
        let result = if (self.fails)(self.ended) { Err(FillError(1)) } else { Ok(()) };
        self.cache.step(Instant(self.now), Event::Filled { fill, result }, out);
    }

    fn waste(&self) -> WasteCounts {
        WasteCounts::of(&self.cache.stats())
    }
}

/// A kernel requests the first 64 pages of 36 columns, which `posix_fadvise` announced. Then eight
/// threads read them, each column to its end.
#[test]
fn announced_runs_are_read_ahead_once_their_length_is_known() {
    const PAGES: u64 = 512;
    let stream = StreamConfig { reader_ahead_pages: 64, ..StreamConfig::default() };
    let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
    let mut reader = Reader::with(FAR_NS, config);
    let columns: Vec<u64> = (0..36).map(|column| column * 3500 + column * column).collect();
    columns.iter().for_each(|&start| reader.read(start, 64));
    let mut waits = Vec::new();
    for eight in columns.chunks(8) {
        let before = reader.waits;
        for at in (64..PAGES).step_by(64) {
            for (thread, start) in (1..).zip(eight) {
                reader.try_read_by(thread, start + at, 64).expect("no fill fails");
            }
        }
        waits.push(reader.waits - before);
    }
    assert!(waits[0] >= 8 && waits[2..].iter().all(|&waits| waits <= 4), "{waits:?}");
    let fetched: u64 = reader.fills.iter().map(|&(_, pages)| pages).sum();
    let wanted = PAGES * columns.len() as u64;
    assert!(fetched * 4 <= wanted * 5, "{fetched} of {wanted}");
}

/// How often a reader of these pages, one by one, waits for a high-latency store.
fn waits(pages: impl Iterator<Item = u64>) -> usize {
    let mut reader = Reader::new(FAR_NS, 256);
    pages.for_each(|page| reader.read(page, 1));
    reader.waits
}

#[test]
fn a_high_latency_store_gets_large_requests_at_once() {
    // The reader waits for requests of 1, 4, 256 and 256 pages, and for readahead in between.
    // Doubling windows would take twice as many steps.
    assert!(waits(1000..2000) <= 7, "{}", waits(1000..2000));
    // At the second run the latency is known: the reader waits for its first page, for 64 pages,
    // and for the rest.
    let two = || (1000..1200).chain(500_000..500_200);
    assert!(waits(two()) <= waits(1000..1200) + 3, "{} and {}", waits(1000..1200), waits(two()));
}

/// Used pages at each wait of a sequential reader of 1 GiB, if `promised` pages may be ahead of it.
fn waits_in_order(mut reader: Reader, promised: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut steps = Vec::new();
    for at in 0..8192 {
        let waits = reader.waits;
        reader.read(at * 32, 32);
        let WasteCounts { consumed, unread, .. } = reader.waste();
        let promised = promised(consumed);
        assert!(unread <= promised, "{unread} pages ahead of {consumed} used, {promised} are promised");
        if reader.waits > waits {
            steps.push(consumed);
        }
    }
    steps
}

#[test]
fn the_distance_of_a_sequential_reader_doubles_with_each_wait_up_to_the_budget() {
    let promised = |consumed: u64| {
        let least = if consumed < 16 * 256 { consumed } else { 16 * 256 };
        2 * 256 + least.max(consumed / 4)
    };
    let expected = [
        32, 288, 1120, 2784, 6112, 10752, 12416, 15392, 17056, 20032, 21856, 25568, 32480, 41120, 51936,
        65440, 82336, 103_456, 129_856,
    ];
    assert_eq!(waits_in_order(Reader::new(FAR_NS, 256), promised), expected);
}

/// Where requests cost only time, it soon has the budget of its file.
#[test]
fn a_sequential_reader_of_an_object_store_has_the_budget_of_its_file() {
    let stream = StreamConfig { slow_window_pages: 64, ..StreamConfig::default() };
    let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
    let promised = |consumed: u64| {
        let shown = if consumed < 4 * 256 { consumed } else { 2 * consumed };
        2 * 256 + shown.min(16 * 256 + consumed / 4)
    };
    let expected = [32, 288, 1120, 3904, 9504, 16512, 25280, 36224, 49920, 67040, 88416, 115_136];
    assert_eq!(waits_in_order(Reader::with(FAR_NS, config), promised), expected);
}

#[test]
fn a_long_first_read_of_an_object_store_has_two_windows_after_it() {
    let first = |slow_window_pages, seeks, start: u64, pages| {
        let stream = StreamConfig { slow_window_pages, seeks, ..StreamConfig::default() };
        let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
        let mut reader = Reader::with(FAR_NS, config);
        reader.read(start, pages);
        reader.waste().unread
    };
    assert_eq!([255, 256, 300, 1000].map(|pages| first(64, false, 0, pages)), [1, 512, 512, 512]);
    // Elsewhere one window.
    assert_eq!([first(0, false, 0, 256), first(64, true, 0, 256)], [256, 256]);
    assert_eq!(first(64, false, 1000, 256), 0, "such a read elsewhere begins no stream");
}

#[test]
fn a_slow_reader_gets_windows_sized_by_its_pace() {
    let windows = |period_ns: u64| {
        let mut reader = Reader::new(FAR_NS, 256);
        (0..120).for_each(|at| {
            reader.now = reader.now.max(at * period_ns);
            reader.read(at * 16, 16);
        });
        let WasteCounts { consumed, unread, .. } = reader.waste();
        assert_eq!(consumed, 120 * 16);
        (reader.fills.iter().map(|fill| fill.1).max().expect("fills"), unread)
    };
    // At 256 KB/s, 16 TTFB last 30 pages; at 2 MB/s, 240 pages.
    assert_eq!(windows(250_000_000), (64, 96));
    assert_eq!(windows(32_000_000), (256, 336));
}

/// A media player on a slow store: each fill takes 400 ms, and 16 pages last the player 250 ms.
#[test]
fn a_slow_readers_distance_does_not_grow_where_requests_cost_only_time() {
    let ahead = |(reads, slow_window_pages): (u64, u64)| {
        let stream = StreamConfig { slow_window_pages, ..StreamConfig::default() };
        let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
        let mut reader = Reader::with(400_000_000, config);
        (0..reads).for_each(|at| {
            reader.now = reader.now.max(at * 250_000_000);
            reader.read(at * 16, 16);
        });
        reader.waste().unread
    };
    assert_eq!([120, 480].map(|reads| ahead((reads, 0))), [2400, 4592]);
    // The distance that it reached while it caught up stays.
    assert_eq!([120, 480].map(|reads| ahead((reads, 64))), [585, 585]);
}

/// Waste with runs of two to six requests of 64 pages, from a kernel that reads ahead 64 pages
/// itself.
fn in_vain_behind_a_kernel(reader_ahead_pages: u64) -> u64 {
    let stream = StreamConfig { reader_ahead_pages, ..StreamConfig::default() };
    let mut reader =
        Reader::with(FAR_NS, Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() });
    for cluster in 0..60 {
        let start = cluster * 7919 % 60 * 2560;
        let requests = 2 + (cluster * 31) % 5;
        (0..requests).for_each(|request| reader.read(start + request * 64, 64));
    }
    reader.waste().unread
}

#[test]
fn less_is_wasted_behind_a_kernel_that_reads_ahead() {
    assert_eq!([0, 64].map(in_vain_behind_a_kernel), [5657, 4937]);
}

#[test]
fn a_kernels_first_request_counts_as_its_window() {
    let first = |reader_ahead_pages, pages| {
        let stream = StreamConfig { reader_ahead_pages, ..StreamConfig::default() };
        let mut reader = Reader::with(
            FAR_NS,
            Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() },
        );
        reader.read(0, pages);
        reader.fills.iter().map(|fill| fill.1).sum::<u64>()
    };
    // A program's read of 64 KiB arrives as 128 KiB. A program that reads 128 KiB at once is
    // expected to continue.
    assert_eq!([first(0, 16), first(64, 32)], [32, 32]);
    assert_eq!([first(0, 32), first(64, 64)], [256, 256]);
}

#[test]
fn a_low_latency_store_gets_at_least_a_window_at_a_time() {
    let mut reader = Reader::new(NEAR_NS, 32);
    (0..4096).for_each(|at| reader.read(at * 4, 4));
    assert!(reader.waits > 0, "the reader is faster than the store");
    let short: Vec<_> =
        reader.fills.iter().skip_while(|fill| fill.1 < 32).filter(|fill| fill.1 < 32).collect();
    assert!(short.is_empty(), "{short:?}");
}

/// Three of twenty columns of 640 pages in each row group, read in requests of 64 pages. The second
/// and third request of column `swapped` change places, as a kernel's readahead does now and then.
/// Returns how often the reader of 60 columns waits.
fn waits_for_columns(swapped: Option<u64>) -> usize {
    let stream = StreamConfig { reader_ahead_pages: 64, ..StreamConfig::default() };
    let mut reader =
        Reader::with(FAR_NS, Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() });
    for column in 0..60 {
        let start = column / 3 * 11_718 + column % 3 * 4_101;
        for request in 0..10 {
            let request = match request {
                1 | 2 if swapped == Some(column) => 3 - request,
                request => request,
            };
            reader.read(start + request * 64, 64);
        }
    }
    reader.waits
}

#[test]
fn two_reordered_requests_are_no_jump() {
    let in_order = waits_for_columns(None);
    for column in 0..12 {
        let waits = waits_for_columns(Some(column));
        assert!(waits <= in_order + 3, "{waits} waits, {in_order} in order; column {column}");
    }
}

/// Behind a kernel that reads ahead 64 pages, with this many frames.
fn mounted_in(frames: u32) -> Reader {
    let stream = StreamConfig { reader_ahead_pages: 64, ..StreamConfig::default() };
    Reader::with(
        FAR_NS,
        Config { policy: Policy::Stream, frames, ra_pages: 256, stream, ..Config::default() },
    )
}

/// Regression: if only the end of a request was missing, only that end was considered, and the
/// request before it appeared far away.
#[test]
fn reordered_requests_under_memory_pressure_are_no_jump() {
    for frames in (3000..3064).step_by(7) {
        let mut reader = mounted_in(frames);
        for at in 0..600 {
            // Swaps each third and fourth request.
            let request = if at % 4 > 1 { at ^ 1 } else { at };
            reader.read(request * 64, 64);
        }
        let begun = reader.reasons.iter().skip(1).filter(|&&reason| reason == Reason::Random).count();
        let ranges = reader.reasons.iter().filter(|&&reason| reason == Reason::Range).count();
        assert_eq!((begun, ranges), (0, 0), "{frames} frames");
    }
}

/// How often a reader of runs of 3200 pages waits for each run, if memory holds half of one.
fn waits_for_long_runs(starts: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut reader = mounted_in(2000);
    let run = |start: u64| {
        let before = reader.waits;
        (0..50).for_each(|request| reader.read(start + request * 64, 64));
        reader.waits - before
    };
    starts.map(run).collect()
}

/// Regression: the part of a run that did not fit was read in 50 sequential requests.
#[test]
fn the_rest_of_a_run_is_read_when_memory_allows() {
    let waits = waits_for_long_runs((0..24).map(|run| run * 11 % 24 * 40_000 + run * run % 7 * 5000));
    assert!(waits[4..].iter().all(|&waits| waits <= 6), "{waits:?}");
}

/// The same for strided runs.
#[test]
fn a_strided_block_is_read_as_far_as_memory_allows() {
    let waits = waits_for_long_runs((0..24).map(|run| run * 40_000));
    assert!(waits[4..].iter().all(|&waits| waits <= 6), "{waits:?}");
}

/// A kernel reads the pages of a failed request one by one. Regression: pages of failed fills
/// counted as evicted unread, so readahead shrank to nothing and each page became a request.
#[test]
fn failed_windows_are_read_again_in_windows() {
    let reader = |fails: fn(usize) -> bool| {
        let mut reader = Reader::new(FAR_NS, 256);
        reader.fails = fails;
        for start in (0..2048).step_by(32) {
            if reader.try_read(start, 32).is_err() {
                (start..start + 32).for_each(|page| while reader.try_read(page, 1).is_err() {});
            }
        }
        reader
    };
    for (fails, single_max) in [((|n| n % 4 == 0) as fn(usize) -> bool, 0), (|n| n % 3 == 0, 16)] {
        let reader = reader(fails);
        assert!(!reader.reasons.contains(&Reason::Thrash), "{:?}", reader.reasons);
        let single = reader.fills.iter().filter(|fill| fill.1 == 1).count();
        assert!(reader.fills.len() <= 130 && single <= single_max, "{:?}", reader.fills);
        let (WasteCounts { unread, .. }, stats) = (reader.waste(), reader.cache.stats());
        assert!(stats.pages_failed > 0 && unread <= 16 * 256, "{unread} pages unread, {stats:?}");
    }
}

/// Regression: each retry requested twice as much readahead from a broken store as the one before.
#[test]
fn a_store_that_keeps_failing_gets_demand_requests_only() {
    let mut reader = Reader::new(FAR_NS, 256);
    let fills = |reader: &mut Reader, start: u64| {
        let before = reader.fills.len();
        for page in start..start + 32 {
            assert!(reader.try_read(page, 1).is_err(), "each fill fails");
        }
        reader.fills[before..].to_vec()
    };
    reader.fails = |_| true;
    // A window, the page that its reader waits for, and no further window.
    assert_eq!(fills(&mut reader, 0)[..2], [(0, 4), (0, 1)]);
    assert_eq!(reader.fills[2..], (1..32).map(|page| (page, 1)).collect::<Vec<_>>());
    reader.fails = |_| false;
    (0..2048).step_by(32).for_each(|start| reader.read(start, 32));
    reader.ended = 0;
    reader.fails = |_| true;
    let in_stream = fills(&mut reader, 1 << 16);
    assert!(in_stream.iter().filter(|fill| fill.1 > 1).count() <= 2, "{in_stream:?}");
}

/// The pages `0..count` in an order without runs and strides.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    shuffled(3, count)
}

fn shuffled(seed: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut random = crate::Random::new(seed);
    let mut pages: Vec<u64> = (0..count).collect();
    for last in (1..pages.len()).rev() {
        pages.swap(last, random.below(last as u64 + 1) as usize);
    }
    pages.into_iter()
}

#[test]
fn the_rest_of_a_place_is_read_after_a_few_reads_there() {
    // Sixteen clusters of 256 pages, far apart; of each, three quarters in random order.
    let clusters = |place: u64| scattered(256).take(192).map(move |page| place * 4096 + 256 + page);
    let mut reader = Reader::new(FAR_NS, 256);
    (1..=16).flat_map(clusters).for_each(|page| reader.read(page, 1));
    let waits = reader.waits;
    assert!(waits <= 16 * 16, "{waits} waits for {} reads", 16 * 192);
}

/// Of each cluster, reads 40 of its 64 blocks of four pages, in random order. Returns waits, and
/// pages fetched per page read.
fn clusters(starts: impl Iterator<Item = u64>) -> (usize, f64) {
    let mut reader = Reader::new(FAR_NS, 256);
    let mut wanted = 0;
    for start in starts {
        for piece in shuffled(start, 64).take(40) {
            reader.read(start + 4 * piece, 4);
            wanted += 4;
        }
    }
    (reader.waits, reader.cache.stats().pages_filled as f64 / f64::from(wanted))
}

/// 24 clusters of 40 reads each.
#[test]
fn a_cluster_is_read_at_once_after_a_few_reads_or_after_clusters_like_it() {
    let (waits, read) = clusters((1..25).map(|number| number * number * 256 * 7));
    assert!(waits <= 36 && read <= 1.65, "aligned: {waits} waits, {read} x");
    let (waits, read) = clusters((1..25).map(|number| number * number * 1801 + 77));
    assert!(waits <= 24 * 8 && read <= 2.4, "not aligned: {waits} waits, {read} x");
}

/// 500 rows of 16 columns of a page. Streams of that many rows would evict each other.
#[test]
fn the_next_column_of_many_cells_is_read_with_the_same_stride() {
    let mut reader = Reader::new(FAR_NS, 256);
    reader.cache.set_pages(FileId(0), PageCount(500 * 16));
    (0..16)
        .flat_map(|column| (0..500).map(move |row| row * 16 + column))
        .for_each(|page| reader.read(page, 1));
    assert!(reader.waits <= 16 * 16, "{} waits", reader.waits);
    assert_eq!(reader.cache.stats().pages_filled, 500 * 16, "each page once");
}

/// Regression: the first column was read ahead to its end, and its last reads were hits. So the
/// reader seemed to go back by fewer blocks than it did, and each row became a stream.
#[test]
fn a_column_whose_last_cells_were_hits_is_followed_by_the_next_one() {
    let mut reader = Reader::new(FAR_NS, 256);
    (0..10).flat_map(|column| (0..50).map(move |row| row * 2040 + column)).for_each(|page| {
        reader.read(page, 1);
    });
    assert!(reader.waits <= 30, "{} waits for ten columns", reader.waits);
}

/// Regression: the stream of the second pass merged with that of the first, which had come to the
/// end of the file, so every further read waited. 11 MiB by 16 KiB, 4 MiB of memory.
#[test]
fn a_file_larger_than_memory_is_read_ahead_in_each_pass() {
    let config = Config { policy: Policy::Stream, ra_pages: 256, frames: 1024, ..Config::default() };
    let mut reader = Reader::with(FAR_NS, config);
    reader.cache.set_pages(FileId(0), PageCount(2816));
    let mut pass = || {
        let before = reader.waits;
        (0..704).for_each(|read| reader.read(read * 4, 4));
        reader.waits - before
    };
    let first = pass();
    for _ in 0..3 {
        let waits = pass();
        assert!(waits <= 2 * first, "{waits} waits, and {first} in the first pass");
    }
}

/// Regression: marks, fills and misses of a pass were those of streams of earlier passes. The file
/// of the last test, downward, and up and down in turn.
#[test]
fn a_file_larger_than_memory_is_read_ahead_in_each_pass_downward() {
    let config = Config { policy: Policy::Stream, ra_pages: 256, frames: 1024, ..Config::default() };
    for in_turn in [false, true] {
        let mut reader = Reader::with(FAR_NS, config.clone());
        reader.cache.set_pages(FileId(0), PageCount(2816));
        let waits: Vec<usize> = (0..8)
            .map(|pass| {
                let before = reader.waits;
                let upward = in_turn && pass % 2 == 0;
                (0..704).for_each(|read| reader.read(if upward { read } else { 703 - read } * 4, 4));
                reader.waits - before
            })
            .collect();
        let most = 2 * waits[0].max(waits[1]);
        assert!(waits.iter().all(|&waits| waits <= most), "in turn: {in_turn}: {waits:?} waits");
    }
}

/// Reads at random in a small file are often near each other by chance.
#[test]
fn random_reads_of_a_small_file_show_no_clusters() {
    for seed in 0..20 {
        let mut random = crate::Random::new(seed);
        let mut reader = Reader::new(FAR_NS, 256);
        reader.cache.set_pages(FileId(0), PageCount(1 << 17));
        (0..2000).for_each(|_| reader.read(random.below(1 << 15) * 4, 4));
        let stats = reader.cache.stats();
        assert!(stats.pages_readahead <= 80, "seed {seed}: {} pages", stats.pages_readahead);
    }
}

#[test]
fn random_reads_of_a_large_file_make_no_places() {
    let mut random = crate::Random::new(5);
    let mut reader = Reader::new(FAR_NS, 256);
    (0..2000).for_each(|_| reader.read(1 + random.below(1 << 19) * 2, 1));
    let stats = reader.cache.stats();
    assert!(stats.pages_filled <= 2020, "{} pages for 2000 reads", stats.pages_filled);
}

#[test]
fn large_requests_are_worth_no_place() {
    // A request of 200 pages takes as long as its pages: reading others with it saves nothing.
    let mut reader = Reader::new(FAR_NS, 256);
    for page in scattered(64).map(|block| block * 300) {
        reader.read(page, 200);
    }
    let stats = reader.cache.stats();
    assert!(stats.pages_filled <= 64 * 200 + 1024, "{} pages", stats.pages_filled);
}

/// Regression: the first windows covered several blocks, so the stride was learned as four blocks
/// and their gaps. Nothing was read ahead for it, and its reads began no other stream.
#[test]
fn a_stride_of_blocks_that_are_not_read_is_given_up() {
    let mut reader = Reader::new(FAR_NS, 256);
    (0..384).for_each(|block| (0..3).for_each(|page| reader.read(block * 129 + page, 1)));
    let waits = reader.waits;
    // There would be fewer if the first windows did not use up the budget. If the wrong stride
    // stays, there are 1027.
    assert!(waits <= 900, "{waits} waits for 1152 reads");
}

/// Waits and unused pages of 200 runs of these lengths, read page by page.
fn short_runs(pages: impl Fn(u64) -> u64) -> (usize, u64) {
    let mut reader = Reader::new(FAR_NS, 256);
    for run in scattered(200) {
        let start = 1000 + run * 1000;
        (start..start + pages(run)).for_each(|page| reader.read(page, 1));
    }
    (reader.waits, reader.waste().unread)
}

#[test]
fn short_runs_of_known_length_are_read_at_their_first_miss() {
    let (waits, unused) = short_runs(|_| 6);
    assert!(waits <= 230 && unused <= 400, "{waits} waits for 200 runs, {unused} pages unused");
}

#[test]
fn runs_that_seldom_continue_are_read_ahead_where_a_request_takes_as_long_as_many_pages() {
    // Two of three have two pages, the others sixteen.
    let (waits, unused) = short_runs(|run| if run % 3 == 0 { 16 } else { 2 });
    assert!(waits <= 320 && unused <= 1400, "{waits} waits for 200 runs, {unused} pages unused");
}

/// Waits, and pages filled, of 200 blocks of a stride that are read in `pieces` requests each.
fn blocks_in_pieces(pieces: u64, request: u64, stride: u64) -> (usize, u64) {
    let mut reader = Reader::new(FAR_NS, 256);
    for block in 0..200 {
        (0..pieces).for_each(|piece| reader.read(block * stride + piece * request, request));
    }
    (reader.waits, reader.cache.stats().pages_filled)
}

/// Regression: the window of a block covered the next blocks, whose reads were hits and counted as
/// read in order. So strides and lengths of runs were learned from every second block, and most of
/// each window was wasted.
#[test]
fn blocks_of_a_stride_are_found_within_a_window() {
    for (pieces, request, stride) in [(2, 4, 300), (3, 4, 36), (2, 4, 24), (8, 16, 384), (2, 1, 74)] {
        let (waits, filled) = blocks_in_pieces(pieces, request, stride);
        let used = 200 * pieces * request;
        let unused = filled.saturating_sub(used);
        assert!(waits <= 40, "{pieces} x {request} each {stride}: {waits} waits");
        assert!(unused <= 768 + used / 2, "{pieces} x {request} each {stride}: {unused} beside {used}");
    }
}

/// Readahead of a strided reader that stops: at most half of its pages, or two windows.
#[test]
fn a_strided_reader_that_stops_wastes_at_most_half() {
    for blocks in [16, 32, 64, 128, 256, 1000] {
        let mut reader = Reader::new(FAR_NS, 256);
        (0..blocks).for_each(|block| reader.read(block * 256, 16));
        let (used, unread) = (16 * blocks, reader.waste().unread);
        assert!(unread <= 512.max(used / 2), "{unread} pages in vain after {used}");
    }
}

#[test]
fn a_reader_that_skips_once_within_readahead_is_read_ahead_as_before() {
    let waits = |skip: u64| {
        let mut reader = Reader::new(FAR_NS, 256);
        (0..300).for_each(|at| reader.read(at * 16, 16));
        (300..1000).for_each(|at| reader.read(skip + at * 16, 16));
        reader.waits
    };
    let in_order = waits(0);
    for skip in [64, 200, 1000] {
        assert!(waits(skip) <= in_order + 2, "{} waits, {in_order} in order", waits(skip));
    }
}
