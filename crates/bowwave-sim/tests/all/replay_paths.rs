//! The two ways a trace is replayed agree, and no run beats the bounds that are printed beside it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Eviction, Policy};
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::fast::Writes;
use bowwave_sim::oracle::Future;
use bowwave_sim::record::Row;
use bowwave_sim::replay::{ReplayOptions, ReplayPace, Workload};
use bowwave_sim::sweep::{Case, Common};
use bowwave_trace::binary::Trace;
use bowwave_trace::generate::{Pattern, Spec};
use bowwave_trace::{Op, Record};

/// A policy as another crate has it.
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../../bowwave-core/examples/policy.rs"]
mod policy;

fn workload(pattern: Pattern, block_bytes: u64, op: Op) -> Workload {
    let spec = Spec { pattern, rows: 3000, file_bytes: 16 << 20, block_bytes, gap_ns: 1000, seed: 3 };
    let records = spec.records().expect("in bounds").map(|record| Record { op, ..record });
    Workload::new(Trace::of(records, "made").expect("in bounds"), None).expect("good rows")
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
    ]
}

fn run(workload: &Workload, case: &Case, common: &Common) -> Row {
    run_at(ReplayPace::Closed, workload, case, common)
}

fn run_at(pace: ReplayPace, workload: &Workload, case: &Case, common: &Common) -> Row {
    let options = ReplayOptions { pace, ..ReplayOptions::default() };
    workload.run(case, common, options, &Arc::new(AtomicU64::new(0))).expect("it runs").row
}

#[test]
fn without_time_the_fast_replay_and_the_machine_count_the_same() {
    for pattern in patterns() {
        for op in [Op::Read, Op::Load] {
            let workload = workload(pattern.clone(), 4096, op);
            for policy in bowwave_baselines::ALL.into_iter().chain([policy::DOUBLING]) {
                for (cache_bytes, eviction) in [
                    (None, Eviction::TwoList),
                    (Some(1 << 20), Eviction::Lru),
                    (Some(1 << 20), Eviction::TwoList),
                ] {
                    let device = "instant".to_owned();
                    let case = Case { policy, cache_bytes, device, ..Case::default() };
                    let fast = run(&workload, &case, &Common { eviction, ..Common::default() });
                    // A checked run is the machine's; at times of their own, reads find nothing in
                    // flight.
                    let checked = Common { eviction, check: true, ..Common::default() };
                    let machine = run_at(ReplayPace::Trace, &workload, &case, &checked);
                    assert_eq!(fast.seconds, 0.0, "the fast replay has no time");
                    assert!(machine.seconds > 0.0, "the machine has");
                    // A machine stops when its readers have ended, be there still readahead to
                    // begin: no more than two windows, each one request, but for blocks at an even
                    // distance, which are one each.
                    let left_out = fast.bytes_fetched - machine.bytes_fetched;
                    assert!(left_out <= 2 * 32 * 4096, "{fast:?} {machine:?}");
                    let begun = match pattern {
                        Pattern::Strided { .. } => 2.max(left_out / 4096),
                        _ => 2,
                    };
                    assert!(fast.requests - machine.requests <= begun, "{fast:?} {machine:?}");
                    // What was left out was not wasted.
                    let planned =
                        |row: &Row| row.pages_wasted + (fast.bytes_fetched - row.bytes_fetched) / 4096;
                    let rest = |row: &Row| {
                        let pages = (row.pages_used, planned(row), row.pages_thrashed);
                        (row.accesses, row.hits, row.late, row.misses, row.bytes_wanted, pages)
                    };
                    assert_eq!(rest(&fast), rest(&machine), "{pattern:?}, {op:?}, {case:?}, {eviction}");
                }
            }
        }
    }
}

#[test]
fn no_run_beats_its_bounds() {
    for device in ["hdd", "nvme", "ssd", "s3-steady", "lustre", "hdd:bus_mb_s=10", "nvme:depth=1"] {
        let limits =
            DeviceSpec::open(device, &ALGORITHMS).expect("a device").limits().expect("it takes time");
        for pattern in patterns() {
            let workload = workload(pattern.clone(), 16 << 10, Op::Read);
            let future = Future::of(workload.trace(), Config::default().page_size, Writes::LeftOut)
                .expect("good rows");
            for cache_bytes in [None, Some(1 << 20)] {
                let case = Case {
                    policy: Policy::OnDemand,
                    ra_pages: 256,
                    cache_bytes,
                    device: device.to_owned(),
                    ..Case::default()
                };
                let bound = future.bound(case.frames().unwrap_or(Config::UNLIMITED));
                let best = bound.oracle(&limits);
                for policy in [Policy::None, Policy::OnDemand] {
                    let row = run(&workload, &Case { policy, ..case.clone() }, &Common::default());
                    assert!(
                        row.accesses == best.accesses && row.bytes_fetched >= best.bytes_fetched,
                        "{case:?}"
                    );
                    assert!(
                        row.seconds >= best.seconds,
                        "{pattern:?} {case:?}: {} < {}",
                        row.seconds,
                        best.seconds
                    );
                    assert!(row.misses + row.pages_used + row.late >= bound.misses, "{case:?}");
                }
            }
        }
    }
}

#[test]
fn a_read_larger_than_the_cache_reads_every_page() {
    let workload = workload(Pattern::Sequential, 128 << 10, Op::Read);
    for device in ["instant", "nvme"] {
        let case = Case {
            policy: Policy::None,
            ra_pages: 4,
            cache_bytes: Some(64 << 10),
            device: device.to_owned(),
            ..Case::default()
        };
        let row = run(&workload, &case, &Common { check: device != "instant", ..Common::default() });
        // The generator's file is shorter than what 3000 rows of it read, so it wraps around.
        assert_eq!((row.reads_failed, row.accesses), (0, 3000 * 32), "{device}");
        assert_eq!(row.bytes_fetched, row.bytes_wanted, "{device}");
        assert_eq!(row.bytes_fetched, 3000 * 32 * 4096, "{device}");
        assert!(row.requests >= 3000 * 2, "{device}: more than the cache holds at once: {row:?}");
    }
}

/// Programs advise to the end of a file by the largest length there is.
#[test]
fn advice_past_eof_neither_extends_the_file_nor_reads_more() {
    let to_the_end = i64::MAX as u64;
    let rows = [
        ("a", Op::WillNeed, 0, to_the_end),
        ("a", Op::Read, 8192, 4096),
        ("b", Op::Sequential, 0, to_the_end),
        ("b", Op::Read, 0, 4096),
        ("c", Op::Evict, 1 << 50, to_the_end),
    ];
    let records = (0..).zip(rows).map(|(time_ns, (file, op, offset, length))| Record {
        time_ns,
        pid: 1,
        op,
        file: file.to_owned(),
        offset,
        length,
    });
    let trace = Trace::of(records, "made").expect("in bounds");
    let workload = Workload::new(trace, None).expect("the files are short");
    let case = Case { policy: Policy::OnDemand, ..Case::default() };
    for pace in [ReplayPace::Closed, ReplayPace::Trace] {
        let row = run_at(pace, &workload, &case, &Common::default());
        assert_eq!((row.reads_failed, row.bytes_fetched), (0, 3 * 4096 + 4096), "{pace:?}");
    }
}

/// The same reads, told of beforehand: as much is read, and far sooner; nobody reads past the end
/// for a plan that goes there.
#[test]
fn a_trace_with_a_read_plan_rarely_waits_for_the_store() {
    let reads: Vec<u64> = (0..400u64).map(|n| n * 149 % 400 * (1 << 20)).collect();
    let run_with = |planned: bool, device: &str| {
        let plan = reads.iter().copied().filter(|_| planned).map(|offset| (Op::Plan, offset, 32 << 10));
        let past_the_end = planned.then_some((Op::Plan, 1 << 40, u64::MAX >> 1));
        let rows = plan.chain(past_the_end).chain(reads.iter().map(|&offset| (Op::Read, offset, 32 << 10)));
        let records = rows.map(|(op, offset, length)| Record {
            time_ns: 0,
            pid: 1,
            op,
            file: "a".into(),
            offset,
            length,
        });
        let trace = Trace::of(records, "made").expect("in bounds");
        let case = Case { policy: Policy::None, ra_pages: 256, device: device.to_owned(), ..Case::default() };
        let workload = Workload::new(trace, None).expect("a short file");
        run(&workload, &case, &Common { check: device != "instant", ..Common::default() })
    };
    for device in ["instant", "s3-steady"] {
        let [untold, told] = [false, true].map(|planned| run_with(planned, device));
        assert_eq!((told.bytes_fetched, told.bytes_wanted), (400 << 15, 400 << 15), "{device}");
        assert_eq!(untold.bytes_fetched, told.bytes_fetched, "{device}");
        assert!(untold.misses == 3200 && told.misses < 320, "{device}: {told:?}");
        assert!(told.seconds * 30.0 <= untold.seconds, "{device}: {told:?} {untold:?}");
    }
}

/// A trace as a mount records it: a thread reads a header, and a second one begins after that.
fn recorded(rows: &[(u64, u64, Op, u64)]) -> Trace {
    let records = rows.iter().map(|&(time_ns, pid, op, offset)| Record {
        time_ns,
        pid,
        op,
        file: "a".into(),
        offset,
        length: 4096,
    });
    Trace::of(records, "made").expect("in bounds")
}

#[test]
fn at_the_pace_of_think_a_read_begins_after_the_end_of_the_one_before_as_in_the_trace() {
    const MS: u64 = 1_000_000;
    let trace = recorded(&[
        (7 * MS, 1, Op::Read, 0),
        (9 * MS, 1, Op::Done, 0),
        // The second thread begins 5 ms after that, the first one goes on after 8 ms.
        (14 * MS, 2, Op::Read, 100 << 20),
        (17 * MS, 1, Op::Read, 200 << 20),
        (20 * MS, 2, Op::Done, 100 << 20),
        (21 * MS, 1, Op::Done, 200 << 20),
    ]);
    let case = Case {
        policy: Policy::None,
        device: "s3-steady:first_byte_ms=30,total_mb_s=0".to_owned(),
        ..Case::default()
    };
    let workload = Workload::new(trace, None).expect("good rows");
    let at = |pace| run_at(pace, &workload, &case, &Common::default()).seconds;
    // Two round trips and 8 ms of thought; at its own times, the recorder's store counts.
    let (think, closed) = (at(ReplayPace::Think), at(ReplayPace::Closed));
    assert!((0.068..0.072).contains(&think), "{think}");
    assert!((0.060..0.064).contains(&closed), "{closed}");
}

#[test]
fn a_trace_without_ends_of_reads_has_no_think_times() {
    let workload = Workload::new(recorded(&[(0, 1, Op::Read, 0)]), None).expect("good rows");
    let options = ReplayOptions { pace: ReplayPace::Think, ..ReplayOptions::default() };
    let error = workload.check(options).expect_err("no row `done`").to_string();
    assert!(error.contains("bowwave mount --trace"), "{error}");
}
