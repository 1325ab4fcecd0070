//! Decisions of `stream` by how far away a store is: what is asked for at once, and how often its reader has to wait.

use crate::request::PageAccess;
use alloc::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::cache::Cache;
use crate::config::Config;
use crate::event::{Action, Event};
use crate::id::{FileId, FillId, HandleId, Waiter};
use crate::page::{PageCount, PageRange};
use crate::readahead::{Account, Policy};

/// An object store, and a drive without moving parts.
const FAR_NS: u64 = 30_000_000;
const NEAR_NS: u64 = 100_000;

/// A reader of one file, who takes a microsecond for a page, and a store that takes as long for any request.
struct Reader {
    cache: Cache,
    fill_ns: u64,
    now: u64,
    coming: VecDeque<(u64, FillId)>,
    fills: Vec<(u64, u64)>,
    reasons: Vec<Reason>,
    waits: usize,
}

impl Reader {
    fn new(fill_ns: u64, ra_pages: u32) -> Self {
        Self::with(fill_ns, Config { policy: Policy::Stream, ra_pages, ..Config::default() })
    }

    fn with(fill_ns: u64, config: Config) -> Self {
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FileId(0), PageCount(1 << 20));
        cache.open_handle(HandleId(0), FileId(0));
        let (coming, fills, reasons) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { cache, fill_ns, now: 0, coming, fills, reasons, waits: 0 }
    }

    fn read(&mut self, start: u64, pages: u64) {
        self.now += 1000 * pages;
        let mut out = Vec::new();
        while self.coming.front().is_some_and(|&(at, _)| at <= self.now) {
            self.end_one(&mut out);
        }
        let request = PageRange::new(start, start + pages);
        let event = Event::Access { waiter: Waiter(0), access: PageAccess::read(HandleId(0), request) };
        self.cache.step(Instant(self.now), event, &mut out);
        let mut waited = 0;
        loop {
            let mut woke = None;
            for action in core::mem::take(&mut out) {
                match action {
                    Action::Fill(fill) => {
                        self.coming.push_back((self.now + self.fill_ns, fill.id));
                        self.fills.push((fill.range.start.0, fill.range.count().0));
                    }
                    Action::Decided(decision) => self.reasons.push(decision.plan.reason),
                    Action::Wake { result, .. } => woke = Some(result.expect("no fill fails")),
                    _ => {}
                }
            }
            if let Some(frames) = woke {
                self.cache.step(Instant(self.now), Event::Unpin { frames }, &mut out);
                self.waits += waited;
                return;
            }
            waited = 1;
            self.end_one(&mut out);
        }
    }

    fn end_one(&mut self, out: &mut Vec<Action>) {
        let (at, fill) = self.coming.pop_front().expect("who waits, waits for something");
        self.now = self.now.max(at);
        self.cache.step(Instant(self.now), Event::Filled { fill, result: Ok(()) }, out);
    }

    fn account(&self) -> Account {
        Account::of(&self.cache.stats())
    }
}

/// How often a reader of these pages, one by one, has to wait for a store that is far away.
fn waits(pages: impl Iterator<Item = u64>) -> usize {
    let mut reader = Reader::new(FAR_NS, 256);
    pages.for_each(|page| reader.read(page, 1));
    reader.waits
}

#[test]
fn a_store_that_is_far_away_is_asked_for_much_at_once() {
    // Pages 1, 4, 256 and 256, and what is asked for meanwhile; windows that double take twice as many steps.
    assert!(waits(1000..2000) <= 7, "{}", waits(1000..2000));
    // From the second run on it is known how far away it is: its first page, 64, and what is behind them.
    let two = || (1000..1200).chain(500_000..500_200);
    assert!(waits(two()) <= waits(1000..1200) + 3, "{} and {}", waits(1000..1200), waits(two()));
}

#[test]
fn what_is_ahead_of_a_reader_in_order_doubles_with_each_wait_until_a_share_of_what_was_read_is_more() {
    let mut reader = Reader::new(FAR_NS, 256);
    let mut steps = Vec::new();
    // 1 GiB.
    for at in 0..8192 {
        let waits = reader.waits;
        reader.read(at * 32, 32);
        let Account { consumed, unread } = reader.account();
        let least = if consumed < 16 * 256 { consumed } else { 16 * 256 };
        let promised = 2 * 256 + least.max(consumed / 4);
        assert!(
            unread <= promised,
            "{unread} pages ahead of a reader of {consumed}, {promised} are promised"
        );
        if reader.waits > waits {
            steps.push(consumed);
        }
    }
    let expected = [
        32, 288, 1120, 2784, 6112, 10752, 12416, 15392, 17056, 20032, 21856, 25568, 32480, 41120, 51936,
        65440, 82336, 103_456, 129_856,
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_slow_reader_gets_windows_that_last_for_a_while_and_no_longer_ones() {
    let windows = |period_ns: u64| {
        let mut reader = Reader::new(FAR_NS, 256);
        (0..120).for_each(|at| {
            reader.now = reader.now.max(at * period_ns);
            reader.read(at * 16, 16);
        });
        let Account { consumed, unread } = reader.account();
        assert_eq!(consumed, 120 * 16);
        (reader.fills.iter().map(|fill| fill.1).max().expect("fills"), unread)
    };
    // 256 KB a second, of which 16 first bytes take 30 pages, and 2 MB a second, of which they take 240.
    assert_eq!(windows(250_000_000), (64, 96));
    assert_eq!(windows(32_000_000), (256, 336));
}

/// Players of a slow store that is busy: their first fills take long, whatever it takes later.
#[test]
fn where_requests_cost_only_time_what_a_slow_reader_has_ahead_does_not_grow() {
    let ahead = |(reads, slow_window_pages): (u64, u64)| {
        let stream = StreamConfig { slow_window_pages, ..StreamConfig::default() };
        let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
        let mut reader = Reader::with(400_000_000, config);
        (0..reads).for_each(|at| {
            reader.now = reader.now.max(at * 250_000_000);
            reader.read(at * 16, 16);
        });
        reader.account().unread
    };
    assert_eq!([120, 480].map(|reads| ahead((reads, 0))), [2400, 4592]);
    // What it had when it still caught up, it keeps.
    assert_eq!([120, 480].map(|reads| ahead((reads, 64))), [585, 585]);
}

/// Clusters of 64 to 256 pages as a kernel asks for them, which reads ahead by 64 pages: what is read in vain.
fn in_vain_behind_a_kernel(reader_ahead_pages: u64) -> u64 {
    let stream = StreamConfig { reader_ahead_pages, ..StreamConfig::default() };
    let mut reader =
        Reader::with(FAR_NS, Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() });
    for cluster in 0..60 {
        let start = cluster * 7919 % 60 * 2560;
        let requests = 2 + (cluster * 31) % 5;
        (0..requests).for_each(|request| reader.read(start + request * 64, 64));
    }
    reader.account().unread
}

#[test]
fn behind_a_kernel_that_reads_ahead_less_is_read_in_vain() {
    assert_eq!([0, 64].map(in_vain_behind_a_kernel), [5657, 4937]);
}

#[test]
fn a_kernels_first_request_is_its_window_already() {
    let first = |reader_ahead_pages, pages| {
        let stream = StreamConfig { reader_ahead_pages, ..StreamConfig::default() };
        let mut reader = Reader::with(
            FAR_NS,
            Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() },
        );
        reader.read(0, pages);
        reader.fills.iter().map(|fill| fill.1).sum::<u64>()
    };
    // 64 KiB are asked for as 128 KiB, and who reads 128 KiB at once reads on.
    assert_eq!([first(0, 16), first(64, 32)], [32, 32]);
    assert_eq!([first(0, 32), first(64, 64)], [256, 256]);
}

#[test]
fn a_store_that_is_near_is_not_asked_for_less_than_a_window_at_a_time() {
    let mut reader = Reader::new(NEAR_NS, 32);
    (0..4096).for_each(|at| reader.read(at * 4, 4));
    assert!(reader.waits > 0, "the reader is faster than the store");
    let short: Vec<_> =
        reader.fills.iter().skip_while(|fill| fill.1 < 32).filter(|fill| fill.1 < 32).collect();
    assert!(short.is_empty(), "{short:?}");
}

/// Columns of 640 pages in requests of 64, three of twenty in each group, of which the second and the third request of one column
/// change places, as those of a kernel's readahead do now and then: how often the reader of 60 columns has to wait.
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
fn two_requests_that_change_places_are_no_jump() {
    let in_order = waits_for_columns(None);
    for column in 0..12 {
        let waits = waits_for_columns(Some(column));
        assert!(waits <= in_order + 3, "{waits} waits, {in_order} in order; column {column}");
    }
}

/// Behind a kernel that reads ahead by 64 pages, with so many frames.
fn mounted_in(frames: u32) -> Reader {
    let stream = StreamConfig { reader_ahead_pages: 64, ..StreamConfig::default() };
    Reader::with(
        FAR_NS,
        Config { policy: Policy::Stream, frames, ra_pages: 256, stream, ..Config::default() },
    )
}

/// Of a request of which all but the end is there the end alone was looked at, so that the one that should have come before it
/// seemed far away.
#[test]
fn requests_that_change_places_where_memory_ends_windows_anywhere_are_no_jump() {
    for frames in (3000..3064).step_by(7) {
        let mut reader = mounted_in(frames);
        for at in 0..600 {
            // Each third and fourth.
            let request = if at % 4 > 1 { at ^ 1 } else { at };
            reader.read(request * 64, 64);
        }
        let begun = reader.reasons.iter().skip(1).filter(|&&reason| reason == Reason::Random).count();
        let ranges = reader.reasons.iter().filter(|&&reason| reason == Reason::Range).count();
        assert_eq!((begun, ranges), (0, 0), "{frames} frames");
    }
}

/// How often a reader of runs of 3200 pages, who has room for half of one, waits for each.
fn waits_for_long_runs(starts: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut reader = mounted_in(2000);
    let run = |start: u64| {
        let before = reader.waits;
        (0..50).for_each(|request| reader.read(start + request * 64, 64));
        reader.waits - before
    };
    starts.map(run).collect()
}

/// What did not fit was asked for by one request after the other, 50 of them.
#[test]
fn of_a_run_for_which_there_is_no_room_the_rest_is_read_as_soon_as_there_is() {
    let waits = waits_for_long_runs((0..24).map(|run| run * 11 % 24 * 40_000 + run * run % 7 * 5000));
    assert!(waits[4..].iter().all(|&waits| waits <= 6), "{waits:?}");
}

/// The same of runs at even distances.
#[test]
fn of_a_block_for_which_there_is_no_room_is_read_what_fits() {
    let waits = waits_for_long_runs((0..24).map(|run| run * 40_000));
    assert!(waits[4..].iter().all(|&waits| waits <= 6), "{waits:?}");
}
