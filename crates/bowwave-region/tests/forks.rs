//! Regions in children of `fork`, copies of regions, and accesses that wait for a failing store.
#![allow(unsafe_code, reason = "accesses mapped memory, forks")]

mod common;

use std::fs;
use std::time::Duration;

use bowwave_engine::{Engine, ErrorKind, Options, Policy};
use bowwave_region::uffd::Delivery;
use bowwave_region::{Error, MapOptions, Protection, Region};
use common::{PAGE, alone, engine, expected, map, raises_sigbus, succeeds};

const BYTES: usize = 8 << 20;

/// Forks, and runs `child` with the region that it maps again at the same address.
fn in_child(parents: Region, url: &str, child: impl FnOnce(Region)) -> Region {
    // SAFETY: no other thread of this program holds a lock that the child takes: those of the
    // engine are not its own.
    let process = unsafe { libc::fork() };
    assert!(process >= 0);
    if process == 0 {
        let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            bowwave_engine::backend::forked();
            let own = engine(1 << 20, Policy::OnDemand);
            let store = own.store(url).expect("it was there for the parent");
            // SAFETY: a kept region, used first here; this process has no thread that uses it.
            let region = unsafe { parents.map_in_child(&store) }.expect("userfaultfd works");
            assert_eq!(region.as_ptr(), parents.as_ptr());
            child(region);
        }));
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(i32::from(is_right.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of our own.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    parents
}

#[test]
fn a_child_maps_a_kept_region_again_and_so_does_its_child() {
    alone("a_child_maps_a_kept_region_again_and_so_does_its_child", succeeds, || {
        let url = "pattern:/8MiB";
        let parents = engine(1 << 20, Policy::OnDemand);
        let store = parents.store(url).expect("a pattern");
        for protection in [Protection::ReadOnly, Protection::CopyOnWrite] {
            let mut region = map(&store, &MapOptions { protection, ..MapOptions::default() });
            region.keep_in_children();
            let written = 3_000_000..3_009_000;
            if let Some(bytes) = region.as_mut_slice() {
                bytes[written.clone()].fill(7);
            }
            let is_written = |at| protection == Protection::CopyOnWrite && written.contains(&at);
            let check = |region: &Region| {
                for at in (0..BYTES).step_by(1_001).chain(written.clone()) {
                    let byte = if is_written(at) { 7 } else { expected("8MiB", at as u64) };
                    assert_eq!(region.as_slice()[at], byte, "{protection:?}, at {at}");
                }
            };
            let region = in_child(region, url, |region| {
                check(&region);
                drop(in_child(region, url, |region| check(&region)));
            });
            check(&region);
        }
    });
}

#[test]
fn a_kept_region_is_inaccessible_in_a_child_until_it_is_mapped() {
    alone("a_kept_region_is_inaccessible_in_a_child_until_it_is_mapped", succeeds, || {
        let store = engine(1 << 20, Policy::OnDemand).store("pattern:/8MiB").expect("a pattern");
        let protection = Protection::CopyOnWrite;
        let mut region = map(&store, &MapOptions { protection, ..MapOptions::default() });
        region.keep_in_children();
        region.as_mut_slice().expect("it is writable")[5] = 7;
        for at in [5, 1 << 20] {
            // SAFETY: the child makes one access, which ends it.
            let process = unsafe { libc::fork() };
            if process == 0 {
                std::hint::black_box(region.as_slice()[at]);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for a child of our own.
            assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status}");
        }
    });
}

#[test]
fn a_child_of_a_changed_object_keeps_what_was_written_and_gets_no_other_byte() {
    alone("a_child_of_a_changed_object_keeps_what_was_written_and_gets_no_other_byte", succeeds, || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).expect("room");
        let url = format!("file://{}", path.display());
        let store = engine(1 << 20, Policy::None).store(&url).expect("a file");
        let protection = Protection::CopyOnWrite;
        let mut region = map(&store, &MapOptions { protection, ..MapOptions::default() });
        region.keep_in_children();
        region.as_mut_slice().expect("it is writable")[..4096].fill(7);
        fs::write(&path, vec![2; 1 << 20]).expect("room");
        in_child(region, &url, |region| {
            assert_eq!(region.as_slice()[..4096], [7; 4096]);
            let changed = region.populate(500_000, 4096).expect_err("it is another file now");
            let Error::Engine(bowwave_engine::Error::Store(error)) = &changed else { panic!("{changed}") };
            assert_eq!(error.kind(), ErrorKind::Changed);
            assert!(changed.to_string().contains(&url), "{changed}");
        });
    });
}

#[test]
fn a_copy_has_what_was_written_and_returns_errors() {
    let store = engine(1 << 20, Policy::OnDemand).store("pattern:/8MiB").expect("a pattern");
    let protection = Protection::CopyOnWrite;
    let options = MapOptions { protection, ..MapOptions::default() };
    let mut region = map(&store, &options);
    region.as_mut_slice().expect("it is writable")[3_000_000..3_009_000].fill(7);
    let mut copy = vec![0; BYTES];
    region.copy(0, &mut copy).expect("the store works");
    for (at, &byte) in
        copy.iter().enumerate().step_by(997).chain(copy.iter().enumerate().skip(3_008_000).take(2000))
    {
        let is_written = (3_000_000..3_009_000).contains(&at);
        assert_eq!(byte, if is_written { 7 } else { expected("8MiB", at as u64) }, "at {at}");
    }
    assert!(matches!(region.copy(BYTES as u64 - 1, &mut [0; 2]), Err(Error::Range(_))));
    let failing = Engine::new(Options { cache_bytes: Some(8 << 20), retries: 0, ..Options::default() });
    let store = failing.expect("a small cache").store("fault:errors=1:pattern:/1MiB").expect("a pattern");
    for protection in [Protection::ReadOnly, Protection::CopyOnWrite] {
        let region = map(&store, &MapOptions { protection, ..MapOptions::default() });
        assert!(matches!(region.copy(0, &mut [0; 10]), Err(Error::Engine(_))), "{protection:?}");
    }
}

#[test]
fn a_failed_call_may_be_repeated() {
    let options =
        Options { cache_bytes: Some(8 << 20), retries: 0, policy: Policy::None, ..Options::default() };
    let store = Engine::new(options).expect("a small cache");
    let store = store.store("fault:errors=0.5,seed=3:pattern:/1MiB").expect("a pattern");
    let region = map(&store, &MapOptions::default());
    let mut failed = 0;
    for page in 0..100 {
        while region.populate(page * PAGE, PAGE).is_err() {
            failed += 1;
            assert!(region.failures().iter().any(|failure| failure.0 == page * PAGE));
        }
        assert_eq!(region.as_slice()[(page * PAGE) as usize], expected("1MiB", page * PAGE));
    }
    assert!(failed > 5 && region.failures().is_empty(), "{failed}: {:?}", region.failures());
}

#[test]
fn an_access_waits_for_a_store_that_fails_for_a_while() {
    alone("an_access_waits_for_a_store_that_fails_for_a_while", succeeds, || {
        let options =
            Options { cache_bytes: Some(8 << 20), retries: 0, policy: Policy::None, ..Options::default() };
        let store = Engine::new(options).expect("a small cache");
        let store = store.store("fault:errors=0.5,seed=3:pattern:/1MiB").expect("a pattern");
        for delivery in [Delivery::Message, Delivery::Signal] {
            let retry_for = Duration::from_secs(30);
            let region = map(&store, &MapOptions { delivery, retry_for, ..MapOptions::default() });
            for at in (0..1 << 20).step_by(64 << 10) {
                assert_eq!(region.as_slice()[at], expected("1MiB", at as u64), "{delivery:?}");
            }
            assert!(region.failures().is_empty(), "{delivery:?}: {:?}", region.failures());
        }
    });
}

#[test]
fn an_access_to_a_store_that_stays_away_ends_and_says_why() {
    let test = "an_access_to_a_store_that_stays_away_ends_and_says_why";
    let check = |status, said: &str| {
        raises_sigbus(status, said);
        for text in ["at offset 4096 of fault:", "is repeated, for 1s", "its reader gets SIGBUS"] {
            assert!(said.contains(text), "{text}: {said}");
        }
    };
    alone(test, check, || {
        let options = Options { cache_bytes: Some(8 << 20), retries: 0, ..Options::default() };
        let store = Engine::new(options).expect("a small cache");
        let store = store.store("fault:errors=1:pattern:/1MiB").expect("a pattern");
        let retry_for = Duration::from_secs(1);
        let region = map(&store, &MapOptions { retry_for, ..MapOptions::default() });
        std::hint::black_box(region.as_slice()[5000]);
        unreachable!("the page was read without an error");
    });
}
