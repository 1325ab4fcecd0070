//! Disks that hang: threads of the cache wait where they open a file.

use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::wrap::disk_cache::reads::WORKERS;
use crate::{read_end, start_read};

const LIMITS: Limits = Limits {
    answer: Duration::from_secs(1),
    back_off: Duration::from_millis(100),
    back_off_max: Duration::from_millis(400),
};

/// A cache with short time limits that holds an object of `len` bytes.
fn hasty(directory: &Path, len: u64) -> (DiskCache, Arc<Counts>, Vec<u8>) {
    let memory = MemoryBackend::new();
    let want = bytes(len, 4);
    memory.insert("x", want.as_slice());
    let counted = Counted::new(Arc::new(memory));
    let log = counted.counts();
    let cache =
        DiskCache::with_limits(Arc::new(counted), "x:".to_owned(), directory, 512 * MIB, LIMITS, PATIENCE);
    let cache = cache.expect("a directory of our own");
    assert!(read(&cache, "x", 0, want.len()) == want);
    settle(&cache);
    assert!(read(&cache, "x", 0, want.len()) == want);
    assert_eq!(log.requests(), 1, "it is on the disk");
    (cache, log, want)
}

#[test]
fn a_read_that_times_out_goes_to_the_store_and_later_reads_bypass_the_disk() {
    let directory = temporary();
    let (cache, log, want) = hasty(directory.path(), MIB);
    let gate = gate(&cache);
    gate.hang(true);
    let begun = Instant::now();
    assert!(read(&cache, "x", 0, want.len()) == want);
    assert!(begun.elapsed() >= LIMITS.answer, "the read waited for the disk");
    assert_eq!((log.requests(), stats(&cache).timed_out, stats(&cache).bypassed), (2, 1, 0));
    // Other threads probe the disk, one at a time, until all hang. Then none is left to probe it.
    let begun = Instant::now();
    let mut reads = 1;
    while stats(&cache).timed_out < WORKERS as u64 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", stats(&cache));
        assert!(read(&cache, "x", 0, want.len()) == want);
        reads += 1;
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..50 {
        assert!(read(&cache, "x", 0, want.len()) == want);
        reads += 1;
    }
    let stats_hung = stats(&cache);
    assert_eq!(stats_hung.timed_out, WORKERS as u64, "no further read waited for the disk");
    assert_eq!((stats_hung.hits, stats_hung.bypassed), (1, reads - WORKERS as u64));
    assert_eq!(gate.held(), WORKERS, "no thread was added");
    // The disk works again, and one read detects it.
    gate.hang(false);
    let begun = Instant::now();
    while stats(&cache).hits < 10 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", stats(&cache));
        assert!(read(&cache, "x", 0, want.len()) == want);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(stats(&cache).timed_out, WORKERS as u64);
}

#[test]
fn hundreds_of_reads_of_a_hanging_disk_end_without_more_threads() {
    let directory = temporary();
    let (cache, _, want) = hasty(directory.path(), MIB);
    let gate = gate(&cache);
    gate.hang(true);
    let object = cache.open("x".as_ref()).expect("there");
    let page = |index: u64| index % 256 * 4096;
    let begun = Instant::now();
    let all: Vec<_> =
        (0..500).map(|index| start_read(&*object, page(index), ReadBuf::zeroed(4096))).collect();
    gate.wait_for(WORKERS);
    for (index, heard) in all.into_iter().enumerate() {
        let bytes = read_end(&heard, PATIENCE).unwrap();
        assert!(bytes[..] == *part(&want, page(index as u64), 4096), "{index}");
    }
    assert!(
        begun.elapsed() < LIMITS.answer + Duration::from_secs(5),
        "one limit for all: {:?}",
        begun.elapsed()
    );
    assert_eq!(gate.held(), WORKERS);
    let stats = stats(&cache);
    assert_eq!((stats.misses, stats.timed_out + stats.bypassed), (501, 500), "{stats:?}");
    gate.hang(false);
}

#[test]
fn bytes_that_are_not_written_in_time_are_dropped() {
    let directory = temporary();
    let (cache, _, _) = hasty(directory.path(), MIB);
    let writes = &cache.tier.writes;
    let gate = gate(&cache);
    gate.hang(true);
    let key = Key::new(
        "x:",
        "y".as_ref(),
        &Identity { etag: Some("\"y\"".into()), size: 1 << 40, ..Identity::default() },
    );
    let key = Arc::new(key.expect("a strong entity tag"));
    let store = |count: u64| {
        for index in 0..count {
            let copying = Arc::clone(writes).copying(Box::new(Ignored), Arc::clone(&key), index << 20);
            copying.done(ReadBuf::zeroed(1 << 20), Ok(1 << 20));
        }
    };
    store(100);
    gate.wait_for(1);
    assert_eq!(writes.queued(), 64 << 20, "the queue is limited");
    assert_eq!(stats(&cache).bytes_dropped, 36 * MIB);
    // After four times the limit for reads, bytes queued behind the hanging write are dropped, and
    // no more are queued.
    let begun = Instant::now();
    let mut more = 0;
    while writes.queued() > 1 << 20 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", stats(&cache));
        thread::sleep(Duration::from_millis(10));
        store(1);
        more += 1;
    }
    assert_eq!(writes.queued(), 1 << 20, "the hanging write");
    assert_eq!(stats(&cache).bytes_dropped, (99 + more) * MIB);
    gate.hang(false);
    settle(&cache);
    store(1);
    settle(&cache);
    assert_eq!(stats(&cache).bytes_dropped, (99 + more) * MIB, "a disk that works again is written to again");
}

struct Ignored;

impl ReadSink for Ignored {
    fn progress(&mut self, _: usize) {}

    fn done(self: Box<Self>, _: ReadBuf, _: Result<usize>) {}
}

#[test]
fn closing_a_cache_does_not_wait_for_a_hanging_disk() {
    let directory = temporary();
    for reads_hang in [true, false] {
        let (cache, _, want) = hasty(directory.path(), MIB);
        let gate = gate(&cache);
        gate.hang(true);
        let object = cache.open("x".as_ref()).expect("there");
        let heard = reads_hang.then(|| start_read(&*object, 0, ReadBuf::zeroed(want.len())));
        if reads_hang {
            gate.wait_for(1);
        }
        let begun = Instant::now();
        drop((cache, object));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        // A read in flight ends anyway.
        if let Some(heard) = heard {
            assert!(read_end(&heard, PATIENCE).unwrap() == want);
        }
        gate.hang(false);
    }
}

#[test]
fn opening_a_cache_that_another_process_locks_fails_in_time() {
    let directory = temporary();
    drop(hasty(directory.path(), MIB));
    let used = fs::File::open(directory.path().join("used")).expect("there");
    flock(&used, FlockOperation::LockExclusive).expect("free");
    let memory = Arc::new(MemoryBackend::new());
    let begun = Instant::now();
    let limit = Duration::from_millis(300);
    let opened = DiskCache::with_limits(memory, "x:".to_owned(), directory.path(), 64 * MIB, LIMITS, limit);
    let error = opened.expect_err("the lock is held");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(
        message.contains("has not answered within 300ms") && message.contains("name another directory"),
        "{message}"
    );
}
