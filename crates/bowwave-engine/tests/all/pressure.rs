//! Hits are copied under the shard's lock and unpinned at once. Here all causes that take frames
//! from a page run concurrently: eviction, advice, a changed object, memory lent to another shard.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::{MemoryBackend, pattern};
use bowwave_engine::{Advice, Engine, ErrorKind, File, Options};

/// Consecutive reads that bind a thread to a shard, several times over.
const STREAK: u64 = 20_000;

/// Reads about a page at `at` within the first `span` bytes, and checks it.
fn check_one(file: &File, bytes: &[u8], at: u64, span: u64) {
    let mut read = [0xAA; 4096];
    let offset = at.wrapping_mul(7919 * 512) % (span - 4096);
    assert_eq!(file.read_at(offset, &mut read).expect("the pattern never fails"), 4096);
    let offset = usize::try_from(offset).expect("small files");
    assert!(read[..] == bytes[offset..offset + 4096], "wrong bytes at {offset}");
}

/// One thread reads a hot file continuously while others scan past it, drop it, and take its
/// shard's memory.
#[test]
fn hot_pages_read_right_under_eviction_advice_and_lending() {
    let options = Options { cache_bytes: Some(4 << 20), ra_pages: 32, shards: Some(2), ..Options::default() };
    let engine = Engine::new(options).expect("valid options");
    let store = engine.store("pattern:/").expect("a scheme of ours");
    let mut bytes = vec![0; 1 << 20];
    pattern::fill(pattern::seed(Path::new("1MiB")), 0, &mut bytes);
    let hot = store.open(Path::new("1MiB")).expect("the pattern has every size");
    // Files are assigned to the shards in turn: the first scan is on the other shard, the second on
    // the hot one.
    let scans = ["64MiB-a", "64MiB-b"].map(|name| store.open(Path::new(name)).expect("any size"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for scan in &scans {
            let done = &done;
            scope.spawn(move || {
                let mut buf = vec![0; 128 << 10];
                for offset in (0..scan.size()).step_by(buf.len()).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    scan.read_at(offset, &mut buf).expect("the pattern never fails");
                    // Occasional pauses, for the hot reader to bind again.
                    if offset.is_multiple_of(8 << 20) {
                        thread::sleep(Duration::from_millis(3));
                    }
                }
            });
        }
        let (hot, bytes, finished) = (&hot, &bytes, &done);
        scope.spawn(move || {
            while !finished.load(Ordering::Relaxed) {
                hot.advise(0, 0, Advice::DontNeed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let second = scope.spawn(move || (0..STREAK).for_each(|at| check_one(hot, bytes, at * 3, 1 << 20)));
        (0..5 * STREAK).for_each(|at| check_one(hot, bytes, at, 1 << 20));
        second.join().expect("its reads were right");
        done.store(true, Ordering::Relaxed);
    });
    let stats = engine.stats();
    assert!(stats.cache.hits > STREAK && stats.cache.pages_evicted > 0, "{stats:?}");
}

/// Each version of the object is one repeated byte: a read returns one version throughout, and only
/// the one its handle was opened on.
#[test]
fn no_read_of_a_hot_object_mixes_versions_or_outlives_the_change() {
    let memory = MemoryBackend::new();
    memory.insert("a", vec![1; 256 << 10]);
    let engine = Engine::new(Options { cache_bytes: Some(4 << 20), shards: Some(1), ..Options::default() })
        .expect("valid options");
    let store = engine.store_of(Arc::new(memory.clone()));
    let (reads, versions) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut read = [0; 8192];
                while !done.load(Ordering::Relaxed) {
                    let file = store.open(Path::new("a")).expect("it is there");
                    let mut version = None;
                    for at in 0..STREAK / 4 {
                        match file.read_at(at * 4096 % (248 << 10), &mut read) {
                            Ok(count) => assert_eq!(count, read.len()),
                            Err(error) => {
                                assert_eq!(error.kind(), Some(ErrorKind::Changed), "{error}");
                                break;
                            }
                        }
                        let first = *version.get_or_insert(read[0]);
                        assert!(read == [first; 8192], "two versions in one handle");
                        reads.fetch_add(1, Ordering::Relaxed);
                        versions.fetch_or(1 << first, Ordering::Relaxed);
                    }
                }
            });
        }
        for version in 2..32u8 {
            let seen = reads.load(Ordering::Relaxed);
            let patience = Instant::now() + Duration::from_secs(20);
            while reads.load(Ordering::Relaxed) < seen + STREAK / 4 && Instant::now() < patience {
                thread::yield_now();
            }
            memory.insert("a", vec![version; 256 << 10]);
            // A reader with an old handle gets the error when it must request from the store.
            let file = store.open(Path::new("a")).expect("it is there");
            file.advise(0, 0, Advice::DontNeed);
        }
        done.store(true, Ordering::Relaxed);
    });
    let versions = versions.into_inner().count_ones();
    assert!(versions > 5, "{} reads saw {versions} versions only", reads.into_inner());
}
