//! A machine with readers, a cache and a device.

use bowwave_core::{Config, FileId, Instant, PageSize, Policy, WriteBackConfig};

use super::{Access, AccessOp, Host, Machine, Pace, Process, RecordOptions, Setup, Walk};
use crate::device::InstantDevice;
use crate::faults::Faults;
use crate::queue::{Queue, QueueConfig};

fn machine(config: Config, walk: Walk) -> Machine {
    let queue = Queue::new(Box::new(InstantDevice::default()), QueueConfig::open()).expect("valid");
    let host = Host { call_ns: 1000, wait_ns: 5000, copy_ns_a_kib: 100.0 };
    let record = Some(RecordOptions::default());
    Machine::new(Setup { host, walk, check: true, record, ..Setup::new(config, queue) }).expect("valid")
}

fn sequential(file: FileId, count: u64, bytes: u64) -> Box<dyn Iterator<Item = Access> + Send> {
    Box::new((0..count).map(move |index| Access {
        at: Instant(index * 1_000_000),
        op: AccessOp::Read,
        file,
        offset: index * bytes,
        bytes,
    }))
}

fn run(pace: Pace, depth: u32) -> Machine {
    let mut machine = machine(Config { policy: Policy::None, ..Config::default() }, Walk::AtOnce);
    let file = machine.add_file("a", 1 << 20, 0);
    machine.add_process(Process { start: Instant(0), source: sequential(file, 10, 4096), pace, depth });
    machine.run(None).expect("no invariant is broken");
    machine
}

#[test]
fn a_closed_loop_is_limited_by_the_host_alone() {
    let row = run(Pace::Closed { think_ns: 0 }, 1).summary().row;
    assert_eq!((row.accesses, row.misses, row.requests), (10, 10, 10));
    // Each read: the call, a wait, 4 KiB.
    assert_eq!(row.seconds, 10.0 * (1000.0 + 5000.0 + 400.0) / 1e9);
    assert_eq!(row.latency_ns.max, 6400);
}

#[test]
fn a_rate_limited_reader_starts_at_regular_times() {
    let row = run(Pace::Every { period_ns: 1_000_000 }, 1).summary().row;
    assert_eq!(row.seconds, (9_000_000.0 + 6400.0) / 1e9);
}

#[test]
fn an_open_loop_begins_each_read_at_its_own_time() {
    let run = run(Pace::Open, 1).summary();
    let times: Vec<u64> = (0..10).map(|index| index * 1_000_000).collect();
    assert_eq!(run.reads.time_ns, times);
}

/// Of files of 3 MiB of which a program read 16 KiB each, all bytes were read ahead.
#[test]
fn as_much_is_read_ahead_of_the_next_files_as_was_read_of_those_before() {
    const FILE: u64 = 3 << 20;
    for (offset, bytes) in [(0, 16 << 10), (FILE - (16 << 10), 16 << 10), (0, FILE)] {
        let mut machine = machine(Config { policy: Policy::Stream, ..Config::default() }, Walk::AtOnce);
        let files: Vec<FileId> =
            (0..40).map(|file| machine.add_file(&format!("d/{file:02}"), FILE, file * FILE)).collect();
        let reads = files.into_iter().map(move |file| Access::read(file, offset, bytes));
        machine.add_process(Process::closed(reads));
        machine.run(None).expect("no invariant is broken");
        let row = machine.summary().row;
        assert!(row.amplification <= 1.2, "{offset} {bytes}: {} times the bytes", row.amplification);
        // The first two files show the order.
        assert_eq!(row.misses, 2 * bytes / 4096, "{offset} {bytes}: misses");
    }
}

/// Writes `count` times `bytes` bytes to a file, from its start, and syncs.
fn written(count: u64, bytes: u64, first: u64, size: u64, config: Config) -> (Machine, Vec<u64>) {
    let mut machine = machine(config, Walk::PageByPage);
    let file = machine.add_file("a", size, 0);
    let access =
        move |op, index: u64| Access { at: Instant(0), op, file, offset: first + index * bytes, bytes };
    let writes = (0..count).map(move |index| access(AccessOp::Write, index));
    let source = Box::new(writes.chain([access(AccessOp::Sync, 0)]));
    machine.add_process(Process::closed(source));
    let mut unwritten = Vec::new();
    for until in 1..=50 {
        machine.run(Some(Instant(until * 10_000))).expect("no invariant is broken");
        unwritten.push(machine.cache().pages_unwritten().0);
    }
    machine.run(None).expect("no invariant is broken");
    (machine, unwritten)
}

#[test]
fn writes_stay_in_the_cache_up_to_the_limit_or_a_sync() {
    let write_back = WriteBackConfig { dirty_max: 64, background: 32, ..WriteBackConfig::default() };
    let (machine, unwritten) =
        written(100, 8192, 0, 0, Config { frames: 1000, write_back, ..Config::default() });
    assert_eq!(machine.bytes_written(), 100 * 8192);
    let stats = machine.queue().stats();
    assert_eq!((stats.bytes[0], stats.bytes[1]), (0, 100 * 8192), "each page once, and nothing is read");
    assert!(unwritten.iter().all(|&pages| pages <= 33) && unwritten.contains(&12), "{unwritten:?}");
    assert_eq!((machine.cache().pages_unwritten(), unwritten[49]), ((0, 0), 0));
    assert_eq!(machine.summary().row.seconds, (100.0 * (1000.0 + 800.0) + 1000.0 + 5000.0) / 1e9);
}

#[test]
fn a_partial_page_write_reads_the_page_first() {
    let (machine, _) = written(1, 6000, 1000, 1 << 20, Config::default());
    let stats = machine.queue().stats();
    assert!(stats.bytes[0] >= 8192 && stats.bytes[1] == 8192, "both pages are changed in part: {stats:?}");
    let (machine, _) = written(1, 6000, 1000, 0, Config::default());
    let stats = machine.queue().stats();
    assert_eq!((stats.requests[0], stats.bytes[1]), (0, 8192), "there is nothing to keep behind the end");
}

#[test]
fn writers_over_the_limit_wait_for_the_device() {
    let write_back = WriteBackConfig { dirty_max: 4, background: 2, ..WriteBackConfig::default() };
    let (machine, _) = written(100, 32_768, 0, 0, Config { frames: 1000, write_back, ..Config::default() });
    assert_eq!((machine.bytes_written(), machine.queue().stats().bytes[1]), (3_276_800, 3_276_800));
    let free = 100.0 * (1000.0 + 3200.0) / 1e9;
    assert!(machine.summary().row.seconds > free + 100.0 * 5000.0 / 1e9, "each waits at least once");
}

#[test]
fn a_read_past_eof_is_short() {
    let mut machine = machine(Config::default(), Walk::PageByPage);
    let file = machine.add_file("a", 10_000, 0);
    let source = sequential(file, 2, 8192);
    machine.add_process(Process::closed(source));
    machine.run(None).expect("no invariant is broken");
    let row = machine.summary().row;
    assert_eq!((row.accesses, row.bytes_fetched), (3, 3 * PageSize::KIB_4.bytes()));
}

#[test]
fn a_run_is_the_same_each_time() {
    let runs = [0, 1].map(|_| run(Pace::Trace, 1).summary());
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn faults_fail_reads_and_break_nothing() {
    let queue = Queue::new(Box::new(InstantDevice::default()), QueueConfig::open()).expect("valid");
    let faults = Faults { seed: 1, failing: 0.3 };
    let setup = Setup { walk: Walk::PageByPage, faults, check: true, ..Setup::new(Config::default(), queue) };
    let mut machine = Machine::new(setup).expect("valid");
    let file = machine.add_file("a", 4 << 20, 0);
    for _ in 0..4 {
        let source = sequential(file, 500, 8192);
        machine.add_process(Process::closed(source));
    }
    machine.run(None).expect("no invariant is broken");
    let row = machine.summary().row;
    assert!(row.reads_failed > 3 && machine.reads().0 == 2000, "{} failed", row.reads_failed);
}

/// Misses when threads read one file together, a page each in turn.
fn misses(shared: bool) -> u64 {
    let mut machine =
        machine(Config { policy: bowwave_baselines::LEGACY, ..Config::default() }, Walk::PageByPage);
    let file = machine.add_file("a", 1 << 20, 0);
    let threads = (0..2u64).map(|thread| Process {
        start: Instant(thread * 3_000_000),
        source: Box::new(sequential(file, 20, 4096).skip(thread as usize).step_by(2)),
        pace: Pace::Every { period_ns: 6_000_000 },
        depth: 1,
    });
    if shared {
        machine.add_threads(threads);
    } else {
        for thread in threads {
            machine.add_process(thread);
        }
    }
    machine.run(None).expect("no invariant is broken");
    machine.summary().row.misses
}

#[test]
fn threads_share_readahead_state_and_processes_do_not() {
    // Together the threads read sequentially, which only a shared state detects: one miss.
    assert_eq!(misses(true), 1);
    assert!(misses(false) > 4, "{}", misses(false));
}

#[test]
fn time_ends_before_nanoseconds_overflow() {
    for pace in [Pace::Every { period_ns: u64::MAX }, Pace::Closed { think_ns: u64::MAX }] {
        let mut machine = machine(Config { policy: Policy::None, ..Config::default() }, Walk::AtOnce);
        let file = machine.add_file("a", 1 << 20, 0);
        machine.add_process(Process { start: Instant(0), source: sequential(file, 3, 4096), pace, depth: 1 });
        machine.run(Some(Instant(u64::MAX))).expect("no invariant is broken");
        assert_eq!(machine.reads().0, 1, "{pace:?}");
        assert_eq!(machine.now(), Machine::END);
    }
}

#[test]
fn a_read_that_fails_gets_nothing() {
    for walk in [Walk::AtOnce, Walk::PageByPage] {
        let queue = Queue::new(Box::new(InstantDevice::default()), QueueConfig::open()).expect("valid");
        let (faults, record) = (Faults { seed: 1, failing: 1.0 }, Some(RecordOptions::default()));
        let setup = Setup { walk, faults, check: true, record, ..Setup::new(Config::default(), queue) };
        let mut machine = Machine::new(setup).expect("valid");
        let file = machine.add_file("a", 1 << 20, 0);
        let source = sequential(file, 3, 8192);
        machine.add_process(Process { start: Instant(0), source, pace: Pace::Trace, depth: 1 });
        machine.run(Some(Instant(5_000_000))).expect("no invariant is broken");
        let run = machine.summary();
        assert_eq!((machine.reads(), run.row.bytes_wanted), ((3, 3), 0), "{walk:?}");
        assert_eq!(run.samples.bytes_delivered.iter().sum::<u64>(), 0, "{walk:?}");
    }
}
