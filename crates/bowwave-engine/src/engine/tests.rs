//! Tests that need the engine's internals.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bowwave_core::Policy;

use super::*;

/// Regression: a shard released the memory of frames outside its lock. Frames that were lent again
/// and filled at that moment turned to zeros under their pages.
///
/// The release here waits until another thread has done just that, which the lock must prevent.
#[test]
fn frames_lent_again_keep_their_bytes() {
    const PAGES: u32 = 16;
    let options =
        Options { cache_bytes: Some(2 << 20), shards: Some(1), policy: Policy::None, ..Options::default() };
    let engine = Engine::new(options).expect("valid options");
    let file = Arc::new(engine.open("pattern:/4MiB").expect("a scheme of ours"));
    let mut bytes = vec![0; 4096];
    let mut read = |offset: u64| {
        file.read_at(offset, &mut bytes).expect("the pattern never fails");
        bytes.clone()
    };
    let expected: Vec<Vec<u8>> = (0..u64::from(PAGES)).map(|page| read(page << 12)).collect();
    // All frames are in use, the first pages' frames by other pages. (Read again, they would stay.)
    for page in u64::from(PAGES)..1024 {
        read(page << 12);
    }

    let before = engine.stats().store.requests;

    let (done, is_done) = mpsc::sync_channel(1);
    let (other, again) = (engine.clone(), Arc::clone(&file));
    let lend_and_fill = move || {
        let mut effects = Vec::new();
        other.inner.shards[0].grant(PAGES, &mut effects);
        other.inner.perform(0, effects);
        let mut bytes = vec![0; 4096];
        for page in 0..u64::from(PAGES) {
            again.read_at(page << 12, &mut bytes).expect("the pattern never fails");
        }
        done.send(()).ok();
    };
    let (started, is_started) = mpsc::sync_channel(1);
    let release_waits = move || {
        started.send(thread::spawn(lend_and_fill)).expect("the test listens");
        // With the lock held this times out; the other thread continues after the release.
        is_done.recv_timeout(Duration::from_millis(300)).ok();
    };
    *engine.inner.shards[0].arena.before_release.0.lock().expect("no panic") = Some(Box::new(release_waits));
    let mut effects = Vec::new();
    assert_eq!(engine.inner.shards[0].revoke(PAGES, 1, &mut effects), PAGES);
    engine.inner.perform(0, effects);
    is_started.recv().expect("the release was waited for").join().expect("its reads succeed");

    let requests = engine.stats().store.requests;
    assert_eq!(requests, before + u64::from(PAGES), "the first pages were not there, and came");
    for (page, expected) in (0..).zip(&expected) {
        assert!(read(page << 12) == *expected, "page {page} lost its bytes");
    }
    assert_eq!(engine.stats().store.requests, requests, "they were hits, in the frames lent again");
}

/// Regression: after a panic under a shard's lock, the next reader waited for itself.
#[test]
fn reads_go_on_after_a_panic_under_a_lock() {
    let engine = Engine::new(Options { shards: Some(1), ..Options::default() }).expect("valid options");
    let file = engine.open("pattern:/64KiB").expect("a scheme of ours");
    let other = engine.clone();
    let panics = move || other.inner.shards[0].with_cache(|_| panic!("this test panics under the lock"));
    thread::spawn(panics).join().expect_err("it panicked");
    let (done, is_done) = mpsc::sync_channel(1);
    thread::spawn(move || done.send(file.read_at(0, &mut [0; 4096]).ok()));
    let read = is_done.recv_timeout(Duration::from_secs(10)).expect("the read ends");
    assert_eq!(read, Some(4096));
}
