//! Files mapped into memory: each byte is right or an error is reported, whatever the budget, and
//! no thread blocks forever.
#![allow(unsafe_code, reason = "accesses mapped memory, forks")]

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::thread;

use bowwave_engine::backend::pattern;
use bowwave_engine::{Engine, ErrorKind, Options, Policy};
use bowwave_region::uffd::{Delivery, Scope};
use bowwave_region::{Error, FaultOutcome, MapOptions, Protection};
use common::{PAGE, alone, engine, expected, map, raises_sigbus, succeeds};

#[test]
fn a_mapped_file_has_the_files_bytes() {
    for policy in [Policy::None, Policy::OnDemand, bowwave_baselines::LINUX, Policy::Range] {
        let engine = engine(8 << 20, policy);
        let store = engine.store("pattern:/20000001").expect("a pattern");
        let region = map(&store, &MapOptions::default());
        assert_eq!(region.len(), 20_000_001);
        let mut bytes = vec![0; region.len()];
        pattern::fill(pattern::seed(Path::new("20000001")), 0, &mut bytes);
        assert!(region.as_slice() == bytes, "{policy:?}: forwards, through a cache of less than half of it");
        for (at, piece) in region.as_slice().chunks(5000).enumerate().rev() {
            assert!(*piece == bytes[at * 5000..at * 5000 + piece.len()], "{policy:?}: backwards, at {at}");
        }
        let stats = region.stats();
        assert!(
            stats.pages_mapped > 20_000_001 / PAGE * 3 / 2,
            "what does not fit was mapped twice: {stats:?}"
        );
        assert!(engine.stats().frames_used * PAGE <= 8 << 20);
    }
}

#[test]
fn a_mapped_part_has_the_bytes_of_its_offsets() {
    let store = engine(8 << 20, Policy::OnDemand).store("pattern:/1000000").expect("a pattern");
    let part = map(&store, &MapOptions { range: Some(8192..999_999), ..MapOptions::default() });
    assert_eq!(part.len(), 991_807);
    for at in [0, 4095, 4096, 500_000, 991_806] {
        assert_eq!(part.as_slice()[at], expected("1000000", 8192 + at as u64), "{at}");
    }
}

#[test]
fn the_last_faults_are_remembered_as_requested() {
    let store = engine(8 << 20, Policy::None).store("pattern:/1000000").expect("a pattern");
    let region = map(&store, &MapOptions { remembered_faults: 3, ..MapOptions::default() });
    let pages = [10, 3, 200, 7].map(|page| page * PAGE);
    for at in pages {
        region.populate(at, 1).expect("a pattern");
    }
    let faults = region.last_faults();
    assert_eq!(faults.iter().map(|fault| fault.bytes.start).collect::<Vec<_>>(), pages[1..]);
    for fault in &faults {
        assert!(fault.begun <= fault.ended && fault.outcome == FaultOutcome::Miss, "{fault:?}");
    }
    region.populate(pages[3], 1).expect("a pattern");
    assert_eq!(region.last_faults()[2].outcome, FaultOutcome::Hit);
    let forgetful = map(&store, &MapOptions::default());
    forgetful.populate(0, 1).expect("a pattern");
    assert!(forgetful.last_faults().is_empty());
}

#[test]
fn a_failed_fetch_is_an_error_for_calls_and_a_signal_for_accesses() {
    let name = "a_failed_fetch_is_an_error_for_calls_and_a_signal_for_accesses";
    let options = Options { cache_bytes: Some(8 << 20), retries: 1, ..Options::default() };
    let engine = Engine::new(options).expect("a small cache");
    let store = engine.store("fault:errors=1,seed=1:pattern:/1MiB").expect("a pattern");
    let region = map(&store, &MapOptions::default());
    alone(name, raises_sigbus, || {
        std::hint::black_box(region.as_slice()[5000]);
        unreachable!("the page was read without an error");
    });
    let failed = region.populate(4096, 4096).expect_err("every request fails");
    assert!(matches!(failed, Error::Engine(_)), "{failed}");
    assert!(region.read(4096, &mut [0; 10]).is_err());
    let failures = region.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].0, 4096);
}

#[test]
fn a_private_map_keeps_its_writes() {
    let (size, bytes) = ("16MiB", 16u64 << 20);
    let engine = engine(4 << 20, Policy::OnDemand);
    let store = engine.store(&format!("pattern:/{size}")).expect("a pattern");
    let mut region =
        map(&store, &MapOptions { protection: Protection::CopyOnWrite, ..MapOptions::default() });
    let slice = region.as_mut_slice().expect("it is writable");
    for at in (0..bytes as usize).step_by(3 * 4096) {
        slice[at] = !slice[at];
    }
    // Read everything again, so that pages without a private copy are evicted and fetched again.
    for round in 0..2 {
        for at in (0..bytes).step_by(1024) {
            let mut right = expected(size, at);
            if at % (3 * 4096) == 0 {
                right = !right;
            }
            assert_eq!(region.as_slice()[at as usize], right, "round {round}, at {at}");
        }
    }
    let mut byte = [0];
    region.read(0, &mut byte).expect("readable");
    assert_eq!(byte[0], expected(size, 0), "the file is as it was");
    let mut plain = map(&store, &MapOptions::default());
    assert!(plain.as_mut_slice().is_none());
}

#[test]
fn populated_pages_do_not_fault_and_a_large_file_uses_no_memory() {
    let engine = engine(64 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/1TiB").expect("a pattern");
    let region = map(&store, &MapOptions::default());
    let middle = 512u64 << 30;
    region.populate(middle, 32 << 20).expect("it can be had");
    let before = region.stats().faults;
    let sum: u64 =
        (0..32u64 << 20).step_by(4096).map(|at| u64::from(region.as_slice()[(middle + at) as usize])).sum();
    let right: u64 = (0..32u64 << 20).step_by(4096).map(|at| u64::from(expected("1TiB", middle + at))).sum();
    assert_eq!(sum, right);
    assert_eq!(region.stats().faults, before);
    assert_eq!(region.as_slice()[region.len() - 1], expected("1TiB", (1 << 40) - 1));
}

#[test]
fn system_calls_get_the_bytes_or_an_error() {
    let engine = engine(8 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/1MiB").expect("a pattern");
    let mut null = File::create("/dev/null").expect("it is there");
    let directory = tempfile::tempdir().expect("a temporary directory");
    for scope in [Scope::All, Scope::Program] {
        let region = map(&store, &MapOptions { scope: Some(scope), ..MapOptions::default() });
        assert_eq!(region.serves_system_calls(), scope == Scope::All);
        let path = directory.path().join("copy");
        let mut copy = File::create(&path).expect("writable");
        let written = copy.write_all(&region.as_slice()[..100_000]);
        match scope {
            Scope::All => {
                written.expect("the kernel's touches are served");
                assert!(fs::read(&path).expect("readable") == region.as_slice()[..100_000]);
            }
            Scope::Program => {
                assert_eq!(written.expect_err("it is missing").raw_os_error(), Some(libc::EFAULT));
                region.populate(0, 100_000).expect("it can be had");
                copy.write_all(&region.as_slice()[..100_000]).expect("now it is there");
            }
        }
    }
    null.write_all(b"x").expect("a sink");
}

#[test]
fn a_child_has_no_region_memory_and_the_parent_continues() {
    alone("a_child_has_no_region_memory_and_the_parent_continues", succeeds, || {
        let engine = engine(8 << 20, Policy::OnDemand);
        let store = engine.store("pattern:/8MiB").expect("a pattern");
        let region = map(&store, &MapOptions::default());
        assert_eq!(region.as_slice()[0], expected("8MiB", 0));
        thread::scope(|scope| {
            let region = &region;
            let reader = scope.spawn(move || {
                for at in (0..8 << 20).step_by(1000) {
                    assert_eq!(region.as_slice()[at], expected("8MiB", at as u64));
                }
            });
            // SAFETY: the child makes one access, which ends it.
            unsafe {
                let child = libc::fork();
                assert!(child >= 0);
                if child == 0 {
                    std::hint::black_box(region.as_ptr().read_volatile());
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert!(
                    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
                    "status {status}"
                );
            }
            reader.join().expect("the parent's readers are served");
        });
    });
}

#[test]
fn a_changed_object_is_an_error_and_never_a_mixture() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("file");
    fs::write(&path, vec![1; 4 << 20]).expect("room");
    let engine = engine(1 << 20, Policy::None);
    let store = engine.store(&format!("file://{}", path.display())).expect("a file");
    let region = map(&store, &MapOptions::default());
    assert_eq!(region.as_slice()[0], 1);
    fs::write(&path, vec![2; 4 << 20]).expect("room");
    let changed = region.populate(2 << 20, 4096).expect_err("it is another file now");
    let Error::Engine(bowwave_engine::Error::Store(error)) = &changed else { panic!("{changed}") };
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[test]
fn regions_are_mapped_and_unmapped_while_others_are_read() {
    let engine = engine(16 << 20, Policy::OnDemand);
    let store = engine.store("pattern:/32MiB").expect("a pattern");
    let steady = map(&store, &MapOptions::default());
    thread::scope(|scope| {
        for reader in 0..2usize {
            let (store, steady) = (&store, &steady);
            scope.spawn(move || {
                for round in 0..30 {
                    let region = map(store, &MapOptions::default());
                    for at in (reader * 1000..32 << 20).step_by(1 << 20) {
                        assert_eq!(region.as_slice()[at], expected("32MiB", at as u64), "round {round}");
                        assert_eq!(steady.as_slice()[at], region.as_slice()[at]);
                    }
                }
            });
        }
    });
    drop(steady);
    assert!(engine.stats().frames_used * PAGE <= 16 << 20);
}

#[test]
fn threads_in_separate_clusters_do_not_look_random() {
    let requests = |streams| {
        let engine = engine(64 << 20, Policy::Range);
        let store = engine.store("pattern:/1GiB").expect("a pattern");
        let streams = NonZeroUsize::new(streams).expect("not 0");
        let region = map(&store, &MapOptions { streams, ..MapOptions::default() });
        // The threads alternate, page by page, each in its quarter of the file.
        let turn = Mutex::new(0);
        let passed = Condvar::new();
        thread::scope(|scope| {
            for reader in 0..4 {
                let (region, turn, passed) = (&region, &turn, &passed);
                scope.spawn(move || {
                    for page in 0..256usize {
                        let mut now = turn.lock().expect("nobody panics");
                        while *now % 4 != reader {
                            now = passed.wait(now).expect("nobody panics");
                        }
                        let at = (reader << 28) + ((page / 128 * 64) << 20) + page % 128 * 4096;
                        assert_eq!(region.as_slice()[at], expected("1GiB", at as u64));
                        *now += 1;
                        passed.notify_all();
                    }
                });
            }
        });
        engine.stats().store.requests
    };
    let (one, own) = (requests(1), requests(256));
    assert!(own * 10 < one, "{own} requests of four streams, {one} of one");
}

/// A program whose mappings are regions may unmap a part: mapping around a fault then meets a hole.
#[test]
fn pages_around_an_unmapped_part_are_mapped_correctly() {
    for delivery in [Delivery::Message, Delivery::Signal] {
        let engine = engine(8 << 20, Policy::OnDemand);
        let store = engine.store("pattern:/4MiB").expect("a pattern");
        let region = map(&store, &MapOptions { delivery, ..MapOptions::default() });
        // All pages are cached, so that each fault maps as much as possible on either side.
        region.read(0, &mut vec![0; 4 << 20]).expect("it can be had");
        for hole in [(1 << 20)..(1 << 20) + 4096, (2 << 20)..(2 << 20) + 65_536] {
            // SAFETY: a part of the region that is no longer accessed.
            let gone = unsafe { libc::munmap(region.as_ptr().add(hole.start) as *mut _, hole.len()) };
            assert_eq!(gone, 0);
            for at in [hole.start - 1, hole.end, hole.start - 300_000, hole.end + 300_000] {
                // SAFETY: inside the region, and not in the hole.
                let byte = unsafe { region.as_ptr().add(at).read_volatile() };
                assert_eq!(byte, expected("4MiB", at as u64), "{delivery:?}, at {at}");
            }
        }
        assert!(region.stats().pages_mapped > 100, "{delivery:?}: {:?}", region.stats());
    }
}
