//! Regions under all loads at once. `BOWWAVE_SOAK_TOUCHES=10000000` runs for minutes instead of
//! seconds; `BOWWAVE_SEED` repeats a run.
#![allow(unsafe_code, reason = "forks")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bowwave_core::Random;
use bowwave_engine::{Engine, Options, Policy};
use bowwave_region::MapOptions;
use bowwave_region::uffd::{Delivery, Scope};
use common::{Watchdog, can_serve, expected, map, mapped_bytes, peek, resident_bytes, setting};

const THREADS: u64 = 8;
/// Resident bytes allowed beyond the budget: requests in flight, and pages evicted next.
const SLACK: u64 = 64 << 20;

fn touches() -> u64 {
    setting("BOWWAVE_SOAK_TOUCHES", 200_000)
}

fn seed() -> u64 {
    setting("BOWWAVE_SEED", 5)
}

/// Half of the accesses are near each other, half anywhere.
fn place(random: &mut Random, turn: u64, bytes: u64) -> u64 {
    let number = random.bits();
    if number.is_multiple_of(2) {
        ((turn / 64 * 7_919) << 20 | number & 0xF_FFFF) % bytes
    } else {
        number % bytes
    }
}

/// A child that exits at once, like an old `posix_spawn`: it must neither wait for pages nor keep
/// any.
fn fork_and_wait() {
    // SAFETY: the child makes one system call, which is safe after a fork of a multithreaded
    // process.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status}");
    }
}

#[test]
fn every_byte_is_right_with_a_tenth_of_the_memory_failing_requests_and_forks() {
    touch_while_requests_fail_and_children_come_and_go(Delivery::Message);
}

#[test]
fn every_byte_is_right_when_threads_serve_themselves() {
    touch_while_requests_fail_and_children_come_and_go(Delivery::Signal);
}

fn touch_while_requests_fail_and_children_come_and_go(delivery: Delivery) {
    if !can_serve(Scope::Program) {
        return;
    }
    let (seed, touches) = (seed(), touches());
    let (size, bytes) = if touches > 1_000_000 { ("1GiB", 1u64 << 30) } else { ("256MiB", 256 << 20) };
    let budget = bytes / 10;
    let options = Options { cache_bytes: Some(budget), policy: Policy::Range, seed, ..Options::default() };
    let engine = Engine::new(options).expect("a small cache");
    let store = engine.store(&format!("fault:errors=0.01,seed={seed}:pattern:/{size}")).expect("a pattern");
    let region = map(&store, &MapOptions { delivery, ..MapOptions::default() });
    let (done, over) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let _watchdog = Watchdog::new("touches", &done);
    let (resident, mapped) = thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|reader| {
                let (region, done) = (&region, &done);
                scope.spawn(move || {
                    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(reader));
                    for turn in 0..touches / THREADS {
                        let at = place(&mut random, turn, bytes);
                        let byte = region.as_slice()[at as usize];
                        assert_eq!(byte, expected(size, at), "at {at}, BOWWAVE_SEED={seed}");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let (region, done, over) = (&region, &done, &over);
        let observer = scope.spawn(move || {
            let (mut resident, mut mapped, mut forked_at) = (0, 0, 0);
            while !over.load(Ordering::Relaxed) {
                resident = resident_bytes(region).max(resident);
                mapped = mapped_bytes(region).max(mapped);
                if done.load(Ordering::Relaxed) > forked_at + touches / 50 {
                    forked_at = done.load(Ordering::Relaxed);
                    fork_and_wait();
                }
            }
            (resident, mapped)
        });
        let outcomes: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        let seen = observer.join().expect("it only looks");
        assert!(outcomes.iter().all(Result::is_ok), "BOWWAVE_SEED={seed}");
        seen
    });
    assert!(region.failures().is_empty(), "requests were tried again: {:?}", region.failures());
    let stats = (region.stats(), engine.stats());
    assert!(stats.0.pages_unmapped > 0 && stats.0.cache.pages_evicted > 0, "no pressure: {stats:?}");
    assert!(stats.1.store.requests_failed > 0, "no request has failed: {stats:?}");
    assert!(mapped > 0 && mapped <= resident + SLACK, "{mapped} mapped, {resident} in memory");
    assert!(resident <= budget + SLACK, "{resident} bytes in memory, of {budget}");
    assert!(stats.1.frames_used * common::PAGE <= budget, "{stats:?}");
    println_once(&format!(
        "{touches} touches told by {delivery:?}, {} faults, at most {} MiB in memory and {} MiB mapped of a budget of {} MiB, {} requests of {} failed",
        stats.0.faults,
        resident >> 20,
        mapped >> 20,
        budget >> 20,
        stats.1.store.requests_failed,
        stats.1.store.requests
    ));
}

#[expect(clippy::print_stdout, reason = "reports the result of a soak")]
fn println_once(line: &str) {
    println!("{line}");
}

#[test]
fn without_retries_every_byte_is_right_or_its_page_is_reported() {
    if !can_serve(Scope::All) {
        return;
    }
    let (seed, touches, size, bytes) = (seed(), touches() / 10, "64MiB", 64u64 << 20);
    let options = Options {
        cache_bytes: Some(bytes / 10),
        policy: Policy::Range,
        retries: 0,
        seed,
        ..Options::default()
    };
    let engine = Engine::new(options).expect("a small cache");
    let store = engine.store(&format!("fault:errors=0.01,seed={seed}:pattern:/{size}")).expect("a pattern");
    let region = map(&store, &MapOptions { scope: Some(Scope::All), ..MapOptions::default() });
    let (done, base) = (Arc::new(AtomicU64::new(0)), region.as_ptr() as usize);
    let _watchdog = Watchdog::new("errors", &done);
    let refused = thread::scope(|scope| {
        let readers = (0..THREADS).map(|reader| {
            let done = &done;
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(reader));
                let mut refused = BTreeSet::new();
                for turn in 0..touches / THREADS {
                    let at = place(&mut random, turn, bytes);
                    match peek(base + at as usize) {
                        Ok(byte) => assert_eq!(byte, expected(size, at), "at {at}, BOWWAVE_SEED={seed}"),
                        Err(libc::EFAULT) => drop(refused.insert(at / common::PAGE * common::PAGE)),
                        Err(error) => panic!("errno {error} at {at}"),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                refused
            })
        });
        let readers: Vec<_> = readers.collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("it is right")).collect::<BTreeSet<u64>>()
    });
    let reported: BTreeSet<u64> = region.failures().into_iter().map(|(page, _)| page).collect();
    assert!(!refused.is_empty(), "one of a hundred requests fails");
    assert!(refused.is_subset(&reported), "{:?}", refused.difference(&reported).collect::<Vec<_>>());
    let page = *refused.first().expect("there are some");
    assert!(region.populate(page, 1).is_err(), "it stays an error");
}

#[test]
fn a_changing_object_shows_no_byte_of_the_new_version() {
    if !can_serve(Scope::All) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("file");
    let bytes = 16u64 << 20;
    fs::write(&path, vec![1; bytes as usize]).expect("room");
    let engine = common::engine(bytes / 10, Policy::Range);
    let store = engine.store(&format!("file://{}", path.display())).expect("a file");
    let region = map(&store, &MapOptions { scope: Some(Scope::All), ..MapOptions::default() });
    let (done, changed, base) =
        (Arc::new(AtomicU64::new(0)), AtomicBool::new(false), region.as_ptr() as usize);
    let _watchdog = Watchdog::new("a changing object", &done);
    thread::scope(|scope| {
        for reader in 0..THREADS {
            let (done, changed) = (&done, &changed);
            scope.spawn(move || {
                let (mut random, mut turn, mut refused) = (Random::new(seed().wrapping_add(reader)), 0, 0);
                // Until evictions were refused, which must happen: a tenth of the file fits.
                while refused < 100 {
                    let was_changed = changed.load(Ordering::Acquire);
                    match peek(base + place(&mut random, turn, bytes) as usize) {
                        Ok(byte) => assert_eq!(byte, 1, "a byte of another version"),
                        Err(error) => {
                            assert_eq!(error, libc::EFAULT);
                            refused += 1;
                            assert!(was_changed || changed.load(Ordering::Acquire), "too soon");
                        }
                    }
                    turn += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 10_000 {
            thread::yield_now();
        }
        changed.store(true, Ordering::Release);
        fs::write(&path, vec![2; bytes as usize]).expect("room");
    });
    assert!(region.failures().iter().any(|(_, cause)| cause.contains("changed")), "{:?}", region.failures());
}

#[test]
fn accesses_to_an_unmapped_region_do_not_block() {
    if !can_serve(Scope::All) {
        return;
    }
    let engine = common::engine(8 << 20, Policy::None);
    let store = engine.store("emulate:s3,latency=500ms:pattern:/64MiB").expect("a pattern");
    let done = Arc::new(AtomicU64::new(0));
    let _watchdog = Watchdog::new("a region taken away", &done);
    for _ in 0..3 {
        let region = map(&store, &MapOptions { scope: Some(Scope::All), ..MapOptions::default() });
        let base = region.as_ptr() as usize;
        thread::scope(|scope| {
            let readers: Vec<_> =
                (0..4).map(|reader| scope.spawn(move || peek(base + (reader << 20)))).collect();
            while region.stats().faults < 4 {
                thread::yield_now();
            }
            drop(region);
            for reader in readers {
                // The store has not responded, unless the machine was very slow.
                let outcome = reader.join().expect("it does not panic");
                assert!(outcome.is_ok() || outcome == Err(libc::EFAULT), "{outcome:?}");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

#[test]
fn a_region_larger_than_memory_is_accessible_everywhere() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = common::engine(4 << 20, Policy::Range);
    let store = engine.store("pattern:/8TiB").expect("a pattern");
    let region = map(&store, &MapOptions::default());
    let mut random = Random::new(seed());
    for _ in 0..2000 {
        let at = random.below(8 << 40);
        assert_eq!(region.as_slice()[at as usize], expected("8TiB", at));
    }
    assert!(mapped_bytes(&region) <= (4 << 20) + (1 << 20), "{}", mapped_bytes(&region));
}
