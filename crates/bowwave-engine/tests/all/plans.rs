//! Read plans, with real stores, and with stores that hold requests until they are released.

use std::ops::Range;
use std::path::Path;

use bowwave_engine::backend::{Profile, pattern};
use bowwave_engine::{Algorithm, Engine, Options, Policy};

use crate::common::gate::{Bench, KIB, MIB};

/// Records of 64 KiB, scattered, in random order.
fn records(count: u64) -> Vec<Range<u64>> {
    (0..count).map(|n| (n * 37 % count) * 256 * KIB).map(|start| start..start + 64 * KIB).collect()
}

#[test]
fn a_plan_is_read_ahead_exactly_and_nothing_beyond_it() {
    let options = Options {
        cache_bytes: Some(64 << 20),
        policy: Policy::Stream,
        journal_events: 1 << 20,
        ..Options::default()
    };
    let engine = Engine::new(options).expect("valid options");
    let store = engine.store("emulate:s3,latency=20ms,metadata=0:pattern:/").expect("a scheme of ours");
    let file = store.open(Path::new("64MiB")).expect("the pattern has every size");
    // A record, an empty one, one past the end and one across it.
    let (a, b) = (70_000..71_000, 60_000_000..u64::MAX);
    file.plan([a, 7..7, u64::MAX - 1..u64::MAX].into_iter().chain(records(200)).chain(Some(b.clone())))
        .expect("few ranges");
    let seed = pattern::seed("64MiB".as_ref());
    let (mut bytes, mut wanted) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut check = |offset: u64, len: usize| {
        assert_eq!(file.read_at(offset, &mut bytes[..len]).expect("it reads"), len);
        pattern::fill(seed, offset, &mut wanted[..len]);
        assert!(bytes[..len] == wanted[..len], "at {offset}");
    };
    check(70_000, 1000);
    for record in records(200) {
        check(record.start, 64 << 10);
    }
    for offset in (b.start..64 << 20).step_by(10_000) {
        check(offset, usize::try_from((64 << 20) - offset).expect("small").min(10_000));
    }
    let stats = engine.stats();
    let pages = 1 + 200 * 16 + ((64 << 20) - b.start / 4096 * 4096) / 4096;
    assert_eq!(stats.store.bytes_fetched, pages * 4096, "{stats:?}");
    assert_eq!((stats.cache.pages_abandoned, stats.cache.pages_wasted), (0, 0));
    // Without the plan each of 200 records would wait; with it, few do.
    assert!(stats.cache.misses < 100, "{stats:?}");
    file.end_plan();
    for journal in engine.journals() {
        assert!(!journal.is_truncated() && journal.replays(), "the journal leads to other actions");
    }
}

#[test]
fn a_plan_is_requested_in_its_order_and_neighbours_as_one_request() {
    let mut bench = Bench::new(Algorithm::Deadline, Profile { slots: 2, ..Profile::read_only("gate") });
    let file = bench.open("a");
    let kib = |start: u64, len: u64| start * KIB..(start + len) * KIB;
    // The third is adjacent to the fourth.
    file.plan([kib(900, 8), kib(20, 4), kib(3004, 12), kib(3000, 4), kib(500, 4)]).expect("few ranges");
    bench.gate.came(2);
    assert_eq!(
        bench.gate.held().log,
        [('a', 900), ('a', 20)],
        "as many as the store takes, the first ones first"
    );
    bench.read("b", 68);
    bench.gate.release();
    bench.gate.came(3);
    assert_eq!(bench.gate.held().log[2], ('b', 68), "demand overtakes planned reads");
    let gate = bench.gate.clone();
    let rest = bench.end(3);
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(rest.contains(&('a', 3000)) && rest.contains(&('a', 500)), "{rest:?}");
    let joined = gate.held().log.iter().position(|request| *request == ('a', 3000)).expect("found above");
    assert_eq!(gate.held().lengths[joined], 16);
}

#[test]
fn queued_reads_of_an_ended_plan_are_not_sent() {
    let bench = Bench::new(Algorithm::Deadline, Profile { slots: 2, ..Profile::read_only("gate") });
    let file = bench.open("a");
    file.plan((0..20).map(|n| n * MIB..n * MIB + 4 * KIB)).expect("few ranges");
    bench.gate.came(2);
    file.end_plan();
    let engine = bench.engine.clone();
    assert_eq!(bench.end(0).len(), 2);
    let stats = engine.stats();
    assert_eq!((stats.cache.pages_planned, stats.cache.pages_abandoned), (20, 20));
    assert_eq!(stats.store.scheduler.cancelled, 18, "{stats:?}");
}

#[test]
fn a_plan_of_too_many_ranges_is_refused_with_the_number() {
    let engine =
        Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() }).expect("valid options");
    let file = engine.open("pattern:/64GiB").expect("a scheme of ours");
    let ranges = (0..=1u64 << 20).map(|n| n * 8192..n * 8192 + 1);
    let error = file.plan(ranges).expect_err("too many").to_string();
    assert!(error.contains("1048576 ranges"), "{error}");
    // Adjacent in order, they count as one.
    file.plan((0..=1u64 << 20).map(|n| n * 4096..n * 4096 + 4096)).expect("one range");
    assert_eq!(engine.stats().cache.pages_abandoned, 0);
}
