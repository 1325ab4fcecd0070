//! Regions whose faults are served by the faulting thread, by `SIGBUS`. `soak` checks every byte
//! under pressure.
#![allow(unsafe_code, reason = "accesses mapped memory, handles signals")]
#![allow(clippy::print_stderr, reason = "a child reports progress to its parent")]

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{hint, ptr, thread};

use bowwave_backend::{Fault, Faults, MemoryBackend};
use bowwave_engine::{Engine, ErrorKind, Options, Policy, Store};
use bowwave_region::uffd::{Delivery, Scope};
use bowwave_region::{Error, MapOptions, Protection, Region, Spill, Swap, SwapOptions};
use common::{alone, can_serve, engine, expected, raises_sigbus, succeeds};

fn options() -> MapOptions {
    MapOptions { delivery: Delivery::Signal, ..MapOptions::default() }
}

fn map(store: &Store) -> Region {
    common::map(store, &options())
}

#[test]
fn faulting_threads_serve_themselves_without_handlers() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = engine(8 << 20, Policy::Range);
    let store = engine.store("pattern:/20000001").expect("a pattern");
    let threads = || fs::read_dir("/proc/self/task").expect("it is there").count();
    let before = threads();
    let region = map(&store);
    // Threads of other tests start and end concurrently.
    let names: Vec<String> = fs::read_dir("/proc/self/task")
        .expect("it is there")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .collect();
    assert!(
        !names.iter().any(|name| name.starts_with("bowwave-fault")),
        "{before} threads before: {names:?}"
    );
    thread::scope(|scope| {
        for reader in 0..4 {
            let region = &region;
            scope.spawn(move || {
                for at in (reader * 1000..region.len()).step_by(4000 + reader) {
                    assert_eq!(region.as_slice()[at], expected("20000001", at as u64));
                }
            });
        }
    });
    assert!(region.stats().faults > 0);
}

#[test]
fn a_failed_fetch_raises_the_signal_and_prints_the_cause() {
    alone(
        "a_failed_fetch_raises_the_signal_and_prints_the_cause",
        |status, said| {
            raises_sigbus(status, said);
            assert!(said.contains("cannot read a page of a mapped file at offset 4096"), "{said}");
        },
        || {
            let options = Options { cache_bytes: Some(8 << 20), retries: 1, ..Options::default() };
            let engine = Engine::new(options).expect("a small cache");
            let store = engine.store("fault:errors=1,seed=1:pattern:/1MiB").expect("a pattern");
            hint::black_box(map(&store).as_slice()[5000]);
            unreachable!("the page was read without an error");
        },
    );
}

#[test]
fn a_failed_swap_in_raises_the_signal_and_prints_the_cause() {
    alone(
        "a_failed_swap_in_raises_the_signal_and_prints_the_cause",
        |status, said| {
            raises_sigbus(status, said);
            assert!(said.contains("a page cannot be brought back from the spill"), "{said}");
        },
        || {
            let faults = Faults { errors: vec![(ErrorKind::Io, 1.0)], ..Faults::default() };
            let store = Fault::new(Arc::new(MemoryBackend::new()), faults).expect("a thread");
            let options = SwapOptions {
                memory_bytes: Some(4 << 20),
                delivery: Delivery::Signal,
                ..SwapOptions::default()
            };
            let swap =
                Swap::new(&Spill::store(Arc::new(store), "spill", 48 << 20), &options).expect("a swap");
            let mut region = swap.region(16 << 20).expect("a region");
            region.as_mut_slice().fill(7);
            hint::black_box(region.as_slice().iter().step_by(4096).all(|&byte| byte == 7));
            unreachable!("the pages were read without an error");
        },
    );
}

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn catch(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid data because of SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    CAUGHT.store(address, Ordering::Relaxed);
    // SAFETY: maps a page for the access, which then continues.
    unsafe {
        let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap((address & !4095) as *mut _, 4096, libc::PROT_READ, fixed, -1, 0);
    }
}

#[test]
fn other_signals_go_to_the_previous_handler() {
    alone("other_signals_go_to_the_previous_handler", succeeds, || {
        // SAFETY: a handler that makes one system call.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = catch as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
        let engine = engine(8 << 20, Policy::OnDemand);
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        let region = map(&store);
        assert_eq!(region.as_slice()[70_000], expected("1MiB", 70_000));
        assert_eq!(CAUGHT.load(Ordering::Relaxed), 0, "that was the region's");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("short");
        fs::write(&path, b"short").expect("writable");
        let file = File::open(&path).expect("readable");
        // SAFETY: the page beyond the file's end is accessed once, and then reads as zeros.
        let byte = unsafe {
            let at =
                libc::mmap(ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            at.cast::<u8>().add(5000).read_volatile()
        };
        assert_eq!(byte, 0);
        assert_ne!(CAUGHT.load(Ordering::Relaxed), 0, "that was not");
    });
}

/// Regression: a handler that relied on the next access to end the program lost a signal sent by a
/// process.
#[test]
fn a_sent_signal_ends_the_program_as_before() {
    alone("a_sent_signal_ends_the_program_as_before", raises_sigbus, || {
        raise_with_a_map(libc::SIG_DFL);
        unreachable!("the signal was lost");
    });
}

#[test]
fn a_sent_signal_stays_ignored_and_faults_are_served() {
    alone("a_sent_signal_stays_ignored_and_faults_are_served", succeeds, || {
        raise_with_a_map(libc::SIG_IGN);
    });
}

/// Sends the signal to this process, whose previous action is `before`; then accesses a mapped
/// file.
fn raise_with_a_map(before: libc::sighandler_t) {
    // SAFETY: not a handler of ours.
    unsafe { libc::signal(libc::SIGBUS, before) };
    let engine = engine(8 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/1MiB").expect("a pattern");
    let region = map(&store);
    // SAFETY: takes a number.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(region.as_slice()[5000], expected("1MiB", 5000));
}

/// Signals blocked in the previous handler, one bit each, and how often it ran.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_mask(signal: i32) {
    assert_eq!(signal, libc::SIGBUS);
    BLOCKED.store(blocked(), Ordering::Relaxed);
    RUNS.fetch_add(1, Ordering::Relaxed);
}

/// The signals blocked in this thread, one bit each.
fn blocked() -> usize {
    // SAFETY: the set is written before it is read.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr());
        let set = set.assume_init();
        (1..32)
            .filter(|&signal| libc::sigismember(&raw const set, signal) == 1)
            .map(|signal| 1 << signal)
            .sum()
    }
}

/// Maps a file after `handler` was installed for the signal, with these flags and `SIGUSR1` in its
/// mask.
fn map_after(handler: extern "C" fn(i32), flags: i32) -> Region {
    // SAFETY: a handler that makes system calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR1);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
    let engine = engine(8 << 20, Policy::OnDemand);
    map(&engine.store("pattern:/1MiB").expect("a pattern"))
}

fn raise() {
    // SAFETY: takes a number.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn a_forwarded_signal_has_the_mask_of_its_handler() {
    alone("a_forwarded_signal_has_the_mask_of_its_handler", succeeds, || {
        let _region = map_after(note_mask, 0);
        let before = blocked();
        raise();
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), before | 1 << libc::SIGBUS | 1 << libc::SIGUSR1);
        assert_eq!(blocked(), before, "restored");
    });
}

#[test]
fn a_forwarded_signal_with_nodefer_is_not_blocked() {
    alone("a_forwarded_signal_with_nodefer_is_not_blocked", succeeds, || {
        let _region = map_after(note_mask, libc::SA_NODEFER);
        let before = blocked();
        raise();
        assert_eq!(BLOCKED.load(Ordering::Relaxed), before | 1 << libc::SIGUSR1);
    });
}

#[test]
fn a_handler_with_resethand_gets_one_signal_and_the_next_ends_the_program() {
    alone(
        "a_handler_with_resethand_gets_one_signal_and_the_next_ends_the_program",
        |status, said| {
            raises_sigbus(status, said);
            assert!(said.contains("one signal, and the region works"), "{said}");
        },
        || {
            let region = map_after(note_mask, libc::SA_RESETHAND);
            raise();
            assert_eq!(RUNS.load(Ordering::Relaxed), 1);
            assert_eq!(region.as_slice()[70_000], expected("1MiB", 70_000));
            eprintln!("one signal, and the region works");
            raise();
            unreachable!("the handler ran twice, or the signal was lost");
        },
    );
}

#[test]
fn system_calls_are_restarted_if_the_predecessor_restarts_them() {
    alone("system_calls_are_restarted_if_the_predecessor_restarts_them", succeeds, || {
        let _region = map_after(note_mask, libc::SA_RESTART);
        // SAFETY: the structure is written before it is read.
        let flags = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action);
            action.sa_flags
        };
        assert_ne!(flags & libc::SA_RESTART, 0);
    });
}

#[test]
fn system_calls_fail_until_the_pages_are_mapped() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = engine(8 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/1MiB").expect("a pattern");
    let region = map(&store);
    assert!(!region.serves_system_calls());
    let mut copy = tempfile::tempfile().expect("a temporary file");
    let refused = copy.write_all(&region.as_slice()[..100_000]).expect_err("it is missing");
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    region.populate(0, 100_000).expect("it can be had");
    copy.write_all(&region.as_slice()[..100_000]).expect("now it is there");
    let both = MapOptions { scope: Some(Scope::All), ..options() };
    let refused = Region::map(&store, "".as_ref(), &both).expect_err("the kernel cannot be told by a signal");
    assert!(matches!(refused, Error::Range(_)) && refused.to_string().contains("messages"), "{refused}");
}

#[test]
fn a_fault_does_not_consume_its_threads_park_token() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = engine(8 << 20, Policy::OnDemand);
    let store = engine.store("emulate:s3,latency=20ms,metadata=0:pattern:/1MiB").expect("a pattern");
    let region = map(&store);
    thread::current().unpark();
    // Waits for the store inside the signal handler.
    assert_eq!(region.as_slice()[300_000], expected("1MiB", 300_000));
    let parked = std::time::Instant::now();
    thread::park_timeout(Duration::from_secs(60));
    assert!(parked.elapsed() < Duration::from_secs(30), "the token is gone");
}

#[test]
fn private_copies_stay_while_regions_are_mapped_and_unmapped() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = engine(8 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/16MiB").expect("a pattern");
    let own = MapOptions { protection: Protection::CopyOnWrite, ..options() };
    let mut kept = common::map(&store, &own);
    for round in 0..20u8 {
        let region = map(&store);
        let bytes = kept.as_mut_slice().expect("it may be written to");
        for at in (usize::from(round)..16 << 20).step_by(100_000) {
            assert_eq!(region.as_slice()[at], expected("16MiB", at as u64), "round {round}");
            bytes[at] = round;
        }
    }
    for round in 0..20u8 {
        assert!(kept.as_slice()[usize::from(round)..].iter().step_by(100_000).all(|&byte| byte == round));
    }
}
