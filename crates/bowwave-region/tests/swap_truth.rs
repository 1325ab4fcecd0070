//! Data written to a swap is read back unchanged, whatever is evicted, read back or fails.
//!
//! `BOWWAVE_SWAP_OPS` sets the number of operations, `BOWWAVE_SWAP_SEED` their seed,
//! `BOWWAVE_SWAP_MEMORY` the bytes of memory.
#![allow(clippy::print_stderr, reason = "reports skipped tests and how to reproduce failures")]

mod swap_model;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::{
    Backend, Error, ErrorKind, Fault, Faults, FileBackend, FileIo, Layer, MemoryBackend, Wrapped,
    WrappedWriteObject, WriteBuf, WriteFaults, WriteSink,
};
use bowwave_region::uffd::Delivery;
use bowwave_region::{Spill, Swap, SwapReport, SwapVec};
use swap_model::{Model, Run, number, skipped, swap, swap_told};

/// Bytes of memory.
fn memory() -> u64 {
    number("BOWWAVE_SWAP_MEMORY", 4 << 20)
}

/// Eight times the memory.
fn len() -> usize {
    8 * memory() as usize
}

fn spill_bytes() -> u64 {
    12 * memory()
}

/// Writes and reads a region at random, and returns its counters.
fn run(swap: &Swap, ops: u64) -> SwapReport {
    let region = swap.region(len()).expect("a region");
    let done = AtomicU64::new(0);
    let seed = number("BOWWAVE_SWAP_SEED", 1);
    let ops = number("BOWWAVE_SWAP_OPS", ops);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| print_progress(&over, &done, ops));
        Run { region: &region, ops, seed, done: &done }.check(&mut Model::new(&region));
        over.store(true, Ordering::Relaxed);
    });
    let report = region.report();
    assert!(report.stats.swap_in > 0 && report.stats.swap_out > 0, "it went out and came back: {report:?}");
    assert!(report.load.frames_used <= report.load.frames, "{report:?}");
    report
}

/// Prints progress every half minute.
fn print_progress(over: &AtomicBool, done: &AtomicU64, ops: u64) {
    let mut last = Instant::now();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
        if last.elapsed() > Duration::from_secs(30) {
            last = Instant::now();
            eprintln!("{} of {ops} operations", done.load(Ordering::Relaxed));
        }
    }
}

#[test]
fn writes_are_read_back_despite_swapping() {
    write_and_read(Delivery::Message);
}

#[test]
fn writes_are_read_back_by_threads_that_serve_themselves() {
    write_and_read(Delivery::Signal);
}

fn write_and_read(delivery: Delivery) {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(swap) = swap_told(delivery, &Spill::file(directory.path(), spill_bytes()), memory()) else {
        return;
    };
    let report = run(&swap, 30_000);
    assert!(report.tracks_writes, "a process that is its own may look at its page table: {report:?}");
    assert!(report.stats.dropped > 0, "what was not written to is not written out again: {report:?}");
}

#[test]
fn writes_are_read_back_from_a_store_that_completes_inline() {
    let Some(swap) = swap(&Spill::store(Arc::new(MemoryBackend::new()), "spill", spill_bytes()), memory())
    else {
        return;
    };
    run(&swap, 30_000);
}

#[test]
fn failing_one_request_in_a_hundred_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = FileBackend::open(directory.path(), FileIo::Auto, true, None).expect("a directory");
    let faulty = Arc::new(Fault::new(Arc::new(file), one_in_a_hundred()).expect("a thread"));
    let Some(swap) = swap(&Spill::store(Arc::clone(&faulty) as _, "spill", spill_bytes()), memory()) else {
        return;
    };
    let report = run(&swap, 30_000);
    assert!(faulty.faults() > 100 && report.retries > 0, "{} faults, {report:?}", faulty.faults());
}

/// Writes fail often enough that transfers always pause. The only accessing thread waits for them.
#[test]
fn a_failing_transfer_is_retried_without_another_fault() {
    for delivery in [Delivery::Message, Delivery::Signal] {
        let faults = Faults {
            writes: WriteFaults { errors: vec![(ErrorKind::Io, 0.3)], ..WriteFaults::default() },
            ..Faults::default()
        };
        let faulty = Arc::new(Fault::new(Arc::new(MemoryBackend::new()), faults).expect("a thread"));
        let spill = Spill::store(Arc::clone(&faulty) as _, "spill", spill_bytes());
        let Some(swap) = swap_told(delivery, &spill, memory()) else { return };
        let (tell, told) = sync_channel(1);
        // In a separate thread, which a lost retry would block forever.
        thread::spawn(move || {
            let mut vec = SwapVec::new(&swap);
            (0..2 * memory() / 8).for_each(|word| vec.push(word).expect("address space"));
            tell.send(swap.report()).expect("the test waits");
        });
        let report = told.recv_timeout(Duration::from_secs(60)).expect("no retry is lost");
        assert!(report.retries > 100, "{report:?}");
    }
}

/// Reads and writes that fail or complete partially.
fn one_in_a_hundred() -> Faults {
    Faults {
        seed: number("BOWWAVE_SWAP_SEED", 1),
        errors: vec![(ErrorKind::Io, 0.01)],
        short: 0.01,
        writes: WriteFaults { errors: vec![(ErrorKind::Io, 0.01)], short: 0.01, ..WriteFaults::default() },
        ..Faults::default()
    }
}

#[test]
fn a_full_disk_blocks_growth_and_loses_nothing() {
    let full = Arc::default();
    let store = Filling::over(MemoryBackend::new(), &full, None);
    let Some(swap) = swap(&Spill::store(store, "spill", spill_bytes()), memory()) else { return };
    let (report, blocked) = run_while_filling(&swap, &full, 30_000);
    assert!(report.stats.write_errors > 0 && blocked > 0, "{blocked}, {report:?}");
}

/// The error arrives while the only accessing thread waits for memory: no other access triggers
/// another try.
#[test]
fn a_late_rejection_is_retried() {
    for delivery in [Delivery::Message, Delivery::Signal] {
        let full = Arc::default();
        let delay = Some(Duration::from_millis(20));
        let store = Filling::over(MemoryBackend::new(), &full, delay);
        let spill = Spill::store(store, "spill", spill_bytes());
        let Some(swap) = swap_told(delivery, &spill, memory()) else { return };
        // In a separate thread, abandoned if it never continues.
        let (tell, told) = sync_channel(1);
        thread::spawn(move || {
            let mut vec = SwapVec::new(&swap);
            for round in 0..3 {
                full.store(true, Ordering::Relaxed);
                let full = Arc::clone(&full);
                let empties = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(100));
                    full.store(false, Ordering::Relaxed);
                });
                let words = memory() / 4;
                (round * words..(round + 1) * words).for_each(|word| vec.push(word).expect("address space"));
                empties.join().expect("it only sleeps");
            }
            assert!(swap.report().stats.write_errors > 0, "{:?}", swap.report());
            assert!(vec.iter().copied().eq(0..vec.len() as u64));
            tell.send(()).expect("the test waits");
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()), "{delivery:?}");
    }
}

#[test]
fn a_failing_and_full_store_loses_nothing() {
    fail_and_fill(Delivery::Message);
}

#[test]
fn a_failing_and_full_store_loses_nothing_of_self_serving_threads() {
    fail_and_fill(Delivery::Signal);
}

fn fail_and_fill(delivery: Delivery) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = FileBackend::open(directory.path(), FileIo::Auto, true, None).expect("a directory");
    let full = Arc::default();
    let filling = Filling::over(file.with_all_writes_direct(), &full, None);
    let faulty = Arc::new(Fault::new(filling, one_in_a_hundred()).expect("a thread"));
    let spill = Spill::store(Arc::clone(&faulty) as _, "spill", spill_bytes());
    let Some(swap) = swap_told(delivery, &spill, memory()) else { return };
    let (report, blocked) = run_while_filling(&swap, &full, 30_000);
    assert!(faulty.faults() > 100 && report.retries > 0, "{} faults, {report:?}", faulty.faults());
    assert!(report.stats.write_errors > 0 && blocked > 0, "{blocked}, {report:?}");
    eprintln!("{} faults, held up {blocked} times: {report:?}", faulty.faults());
}

/// As `run`, while the store is full at times. Also returns how often the swap was blocked by that.
fn run_while_filling(swap: &Swap, full: &AtomicBool, ops: u64) -> (SwapReport, u64) {
    let (over, blocked) = (AtomicBool::new(false), AtomicU64::new(0));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            // Full whenever something was written since; empty again once the swap has noticed.
            let mut written = 0;
            while !over.load(Ordering::Relaxed) {
                let report = swap.report();
                if report.load.blocked {
                    blocked.fetch_add(1, Ordering::Relaxed);
                    full.store(false, Ordering::Relaxed);
                    written = report.stats.swap_out;
                } else if report.stats.swap_out > written + 2000 {
                    full.store(true, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
            full.store(false, Ordering::Relaxed);
        });
        let report = run(swap, ops);
        over.store(true, Ordering::Relaxed);
        report
    });
    (report, blocked.into_inner())
}

#[test]
fn a_swap_works_without_privileges() {
    const CHILD: &str = "BOWWAVE_SWAP_CHILD";
    const NAME: &str = "a_swap_works_without_privileges";
    if std::env::var_os(CHILD).is_some() {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(swap) = swap(&Spill::file(directory.path(), spill_bytes()), memory()) else { return };
        assert!(!swap.serves_system_calls(), "that is a privilege");
        assert!(run(&swap, 30_000).tracks_writes);
        eprintln!("done without privileges");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        // Every other test of this file runs without privileges then.
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("its name"));
    let child = child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1").uid(NOBODY).gid(NOBODY);
    match child.env("RUST_BACKTRACE", "0").current_dir("/").output() {
        // Other users may have no access to the build directory.
        Err(error) => skipped(&format!("the user `nobody` cannot run this program: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            assert!(said.contains("done without privileges") || said.contains("skipped:"), "{said}");
        }
    }
}

/// A store that can be full.
#[derive(Debug)]
struct Filling {
    full: Arc<AtomicBool>,
    /// Delay of that error; another thread then reports it.
    delay: Option<Duration>,
}

impl Filling {
    fn over(
        inner: impl Backend + 'static,
        full: &Arc<AtomicBool>,
        delay: Option<Duration>,
    ) -> Arc<Wrapped<Self>> {
        Arc::new(Wrapped::new("filling", Arc::new(inner), Self { full: Arc::clone(full), delay }))
    }
}

impl Layer for Filling {
    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        if !self.full.load(Ordering::Relaxed) {
            return object.inner.write(offset, buf, sink);
        }
        let refuse = || sink.done(buf, Err(Error::new(ErrorKind::NoSpace, "no room is left")));
        match self.delay {
            None => refuse(),
            Some(delay) => drop(thread::spawn(move || {
                thread::sleep(delay);
                refuse();
            })),
        }
    }
}

/// The user `nobody`.
const NOBODY: u32 = 65534;
