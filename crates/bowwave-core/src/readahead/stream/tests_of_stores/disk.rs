//! Decisions of `stream` on a disk, whose head serves one request after the other.

use super::{Reader, scattered};
use crate::config::Config;
use crate::readahead::{Policy, StreamConfig};

/// A reader of a store with or without a head, where a request takes 8 ms.
fn reader(seeks: bool) -> Reader {
    let stream = StreamConfig { seeks, ..StreamConfig::default() };
    let config = Config { policy: Policy::Stream, ra_pages: 256, stream, ..Config::default() };
    Reader::with(8_000_000, config)
}

/// Pages read ahead but not used, of 200 runs of 2 to 32 requests, and how often their reader
/// waits. A request that continues a run takes `onward_ns`, another one 8 ms.
fn in_vain_of_runs(request: u64, seeks: bool, onward_ns: u64) -> (u64, usize) {
    let mut reader = Reader { onward_ns, ..reader(seeks) };
    let mut random = crate::Random::new(5);
    for start in scattered(200).map(|run| run * 1000) {
        let requests = 2 << random.below(5);
        (0..requests).for_each(|at| reader.read(start + at * request, request));
    }
    (reader.waste().unread, reader.waits)
}

#[test]
fn readahead_that_is_not_used_becomes_short_where_it_delays_other_requests() {
    let (wasted, waits) = in_vain_of_runs(1, false, 8_000_000);
    let (wasted_by_seeks, waits_by_seeks) = in_vain_of_runs(1, true, 8_000_000);
    assert!(waits_by_seeks <= waits, "{waits_by_seeks} waits, and {waits} without");
    assert!(3 * wasted_by_seeks <= 2 * wasted, "{wasted_by_seeks} pages, and {wasted} without");
}

#[test]
fn a_disk_whose_head_is_there_already_needs_less_readahead() {
    let (wasted, _) = in_vain_of_runs(16, true, 8_000_000);
    let (wasted_onward, _) = in_vain_of_runs(16, true, 200_000);
    assert!(4 * wasted_onward <= 3 * wasted, "{wasted_onward} pages, and {wasted} where each request seeks");
}

#[test]
fn readahead_on_a_disk_comes_back_after_any_waste() {
    let mut reader = reader(true);
    for start in scattered(3000).map(|run| run * 200) {
        (start..start + 4).for_each(|page| reader.read(page, 1));
    }
    let before = reader.waits;
    (700_000..704_000).for_each(|page| reader.read(page, 1));
    let waits = reader.waits - before;
    assert!(waits <= 4000 / 16, "{waits} waits for 4000 pages in order");
}

/// If extensions of demand requests were refused, too, readers of longer requests would get no
/// readahead after much waste.
#[test]
fn readahead_of_longer_requests_comes_back_on_a_disk() {
    for request in [4, 16, 64] {
        let mut reader = reader(true);
        for start in scattered(3000).map(|run| run * 200) {
            (start..start + 4).for_each(|page| reader.read(page, 1));
        }
        let before = reader.waits;
        (0..16_000 / request).for_each(|at| reader.read(700_000 + at * request, request));
        let waits = (reader.waits - before) as u64;
        assert!(waits <= 16_000 / request / 4, "{waits} waits for 16000 pages by {request}");
    }
}

/// A readahead request as long as the demand request that it saves takes as long: it gains time
/// only because the reader works meanwhile.
#[test]
fn requests_as_long_as_windows_are_read_ahead_on_a_disk() {
    let mut reader = reader(true);
    // They show what a short request costs.
    scattered(20).for_each(|page| reader.read(1_000_000 + page * 1000, 1));
    let before = reader.waits;
    (1..101).for_each(|request| reader.read(request * 256, 256));
    let waits = reader.waits - before;
    assert!(waits <= 50, "{waits} waits for 100 requests");
}
