//! Disk caches over memory: the contract, restarts, damage, shared directories and limited space.

mod hanging;
mod hostile;
mod mutations;
#[cfg(feature = "http")]
mod web;

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::io::Errno;

use super::quota::Quota;
use super::*;
use crate::conformance::{self, Fixture};
use crate::emulate::{Device, emulate};
use crate::wrap::tests::counted::{Counted, Counts};
use crate::wrap::{Limit, Throttle};
use crate::{ErrorKind, MemoryBackend, pattern, read_exact};

const PATIENCE: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// A cache in `directory` over `memory`, and the counts of requests to the memory.
fn cached(memory: &MemoryBackend, directory: &Path, bytes: u64) -> (DiskCache, Arc<Counts>) {
    let counted = Counted::new(Arc::new(memory.clone()));
    let log = counted.counts();
    // A busy machine must not count as a hanging disk.
    let limits = Limits { answer: PATIENCE, ..Limits::over(Duration::ZERO) };
    let cache =
        DiskCache::with_limits(Arc::new(counted), "memory:".to_owned(), directory, bytes, limits, PATIENCE);
    (cache.expect("a directory of our own"), log)
}

/// A disk that hangs or fails on request.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<Disk>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Disk {
    hangs: bool,
    fails: Option<Errno>,
    /// Threads that hang.
    held: usize,
}

impl Gate {
    /// Called by every open of a file.
    pub(super) fn pass(&self) -> std::result::Result<(), Errno> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.held += 1;
        self.changed.notify_all();
        while state.hangs {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held -= 1;
        state.fails.map_or(Ok(()), Err)
    }

    fn hang(&self, hangs: bool) {
        self.state.lock().expect("no panic holds it").hangs = hangs;
        self.changed.notify_all();
    }

    fn fail(&self, error: Option<Errno>) {
        self.state.lock().expect("no panic holds it").fails = error;
    }

    fn held(&self) -> usize {
        self.state.lock().expect("no panic holds it").held
    }

    /// Waits until `held` threads hang.
    fn wait_for(&self, held: usize) {
        let state = self.state.lock().expect("no panic holds it");
        let (_state, timeout) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.held < held)
            .expect("no panic holds it");
        assert!(!timeout.timed_out(), "no thread uses the disk");
    }
}

/// The disk of a cache.
fn gate(cache: &DiskCache) -> Arc<Gate> {
    Arc::clone(&cache.tier.reads.directory().gate)
}

/// Waits until all bytes read are in the directory.
fn settle(cache: &DiskCache) {
    let begun = Instant::now();
    while cache.tier.writes.queued() > 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is written");
        thread::sleep(Duration::from_millis(1));
    }
}

fn stats(cache: &DiskCache) -> DiskStats {
    cache.disk().expect("it is one")
}

fn bytes(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    pattern::fill(1 << 40, seed << 30, &mut bytes);
    bytes
}

fn read(cache: &DiskCache, path: &str, offset: u64, len: usize) -> Vec<u8> {
    let object = cache.open(path.as_ref()).expect("is there");
    let len = len.min(usize::try_from(object.size().saturating_sub(offset)).expect("small"));
    read_exact(&*object, offset, len, PATIENCE).expect("readable")
}

/// The files of segments.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let subdirectories = fs::read_dir(directory)
        .expect("a directory")
        .map(|subdirectory| subdirectory.expect("readable").path());
    let subdirectories =
        subdirectories.filter(|subdirectory| subdirectory.is_dir() && !subdirectory.ends_with("live"));
    subdirectories
        .flat_map(|subdirectory| fs::read_dir(subdirectory).expect("a directory"))
        .map(|entry| entry.expect("readable").path())
        .collect()
}

/// Bytes of segments on the disk. Segments may be removed meanwhile.
fn used_bytes(directory: &Path) -> u64 {
    segments(directory).iter().filter_map(|path| path.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A memory with an object `x` of `len` bytes, and a directory.
fn object(len: u64, seed: u64) -> (MemoryBackend, tempfile::TempDir, Vec<u8>) {
    let (memory, want) = (MemoryBackend::new(), bytes(len, seed));
    memory.insert("x", want.as_slice());
    (memory, temporary(), want)
}

struct Over(MemoryBackend, tempfile::TempDir);

impl Fixture for Over {
    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.insert(path, bytes);
    }

    fn store(&self) -> Arc<dyn Backend> {
        let cache = DiskCache::new(Arc::new(self.0.clone()), self.1.path(), 64 * MIB);
        Arc::new(cache.expect("a directory of ours"))
    }
}

#[test]
fn a_disk_cache_conforms() {
    conformance::run(&Over(MemoryBackend::new(), temporary()));
}

#[test]
fn a_later_process_reads_from_the_disk() {
    let (memory, directory, want) = object(9 * MIB + 77, 1);
    {
        let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
        // Across segments, and to the end, which is within a page.
        for offset in (0..want.len() as u64).step_by(MIB as usize) {
            assert!(read(&cache, "x", offset, MIB as usize)[..] == *part(&want, offset, MIB));
        }
        settle(&cache);
        assert_eq!((log.requests(), stats(&cache).hits, stats(&cache).misses), (10, 0, 10));
        assert_eq!(stats(&cache).bytes_written, want.len() as u64);
    }
    let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
    for (offset, len) in [(0, want.len() as u64), (4096, 4096), (3 * MIB, 2 * MIB), (9 * MIB, 77)] {
        assert!(read(&cache, "x", offset, len as usize)[..] == *part(&want, offset, len), "{offset}, {len}");
    }
    assert_eq!((log.requests(), stats(&cache).hits, stats(&cache).misses), (0, 4, 0));
    // A read that begins within a page goes to the store.
    assert!(read(&cache, "x", 10, 100)[..] == want[10..110]);
    assert_eq!(log.requests(), 1);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert!(segments(directory.path()).iter().all(|path| mode(path) == 0o600));
    assert_eq!(mode(segments(directory.path())[0].parent().expect("a subdirectory")), 0o700);
}

fn part(bytes: &[u8], offset: u64, len: u64) -> &[u8] {
    let offset = usize::try_from(offset).expect("small");
    &bytes[offset..bytes.len().min(offset + usize::try_from(len).expect("small"))]
}

#[test]
fn a_changed_object_is_read_again_and_open_handles_get_no_byte_of_it() {
    let (memory, directory) = (MemoryBackend::new(), temporary());
    let (old, new) = (bytes(MIB, 1), bytes(MIB, 2));
    memory.insert("x", old.as_slice());
    let (cache, _) = cached(&memory, directory.path(), 64 * MIB);
    let held = cache.open("x".as_ref()).expect("is there");
    assert!(read(&cache, "x", 0, MIB as usize) == old);
    settle(&cache);
    memory.insert("x", new.as_slice());
    assert!(read(&cache, "x", 0, MIB as usize) == new);
    settle(&cache);
    assert!(read(&cache, "x", 0, MIB as usize) == new);
    match read_exact(&*held, 0, MIB as usize, PATIENCE) {
        Ok(bytes) => assert!(bytes == old),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Changed),
    }
}

type Damage = fn(&fs::File);

/// Bytes are correct despite flipped bits, truncated files, pages lost in a power failure, and
/// foreign contents.
#[test]
fn damage_is_detected_and_repaired() {
    let (memory, directory, want) = object(6 * MIB, 3);
    let damages: [(&str, Damage); 6] = [
        ("a bit", |file| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 500_000).expect("readable");
            file.write_all_at(&[byte[0] ^ 4], 500_000).expect("writable");
        }),
        ("cut in the data", |file| file.set_len(300_000).expect("writable")),
        ("cut in the checksums", |file| file.set_len(5000).expect("writable")),
        ("empty", |file| file.set_len(0).expect("writable")),
        ("zeros", |file| file.write_all_at(&[0; 100_000], 1_000_000).expect("writable")),
        ("noise at its head", |file| file.write_all_at(&[7; 100], 0).expect("writable")),
    ];
    for (what, damage) in damages {
        let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
        assert!(read(&cache, "x", 0, want.len()) == want, "before {what}");
        settle(&cache);
        for path in segments(directory.path()) {
            damage(&fs::OpenOptions::new().read(true).write(true).open(path).expect("there"));
        }
        let before = log.requests();
        assert!(read(&cache, "x", 0, want.len()) == want, "{what}");
        assert_eq!(log.requests(), before + 1, "{what}: the store is read");
        settle(&cache);
        assert!(read(&cache, "x", 0, want.len()) == want, "after {what}");
        assert_eq!(log.requests(), before + 1, "{what}: it was repaired");
    }
}

#[test]
fn processes_that_share_a_directory_never_exceed_its_size() {
    let (memory, directory) = (MemoryBackend::new(), temporary());
    let limit = 64 * MIB;
    for number in 0..40 {
        memory.insert(format!("{number}"), bytes(5 * MIB, number));
    }
    let (evicted, most) = thread::scope(|scope| {
        let sharers: Vec<_> = (0..3)
            .map(|sharer| {
                let (memory, directory) = (&memory, directory.path());
                scope.spawn(move || {
                    let (cache, _) = cached(memory, directory, limit);
                    for number in (0..40).map(|turn| (turn * 7 + sharer * 13) % 40) {
                        assert!(read(&cache, &format!("{number}"), 0, 5 << 20) == bytes(5 * MIB, number));
                        settle(&cache);
                    }
                    assert_eq!(stats(&cache).errors, 0, "{:?}", stats(&cache));
                    stats(&cache).bytes_evicted
                })
            })
            .collect();
        let mut most = 0;
        while !sharers.iter().all(thread::ScopedJoinHandle::is_finished) {
            most = used_bytes(directory.path()).max(most);
        }
        (sharers.into_iter().map(|sharer| sharer.join().expect("no panic")).sum::<u64>(), most)
    });
    assert!(most <= limit, "{most} bytes taken of {limit}");
    assert!(evicted > 100 * MIB, "{evicted} bytes evicted");
    assert!(used_bytes(directory.path()) > limit / 3, "the space is used: {}", used_bytes(directory.path()));
    // A killed process leaves its lock directory and a count that is too high; both are corrected.
    fs::write(directory.path().join("live/1-0"), "").expect("writable");
    fs::write(directory.path().join("used"), format!("{:020}\n", u64::MAX)).expect("writable");
    let (cache, _) = cached(&memory, directory.path(), limit);
    assert!(!directory.path().join("live/1-0").exists());
    memory.insert("more", bytes(5 * MIB, 99));
    read(&cache, "more", 0, 5 << 20);
    settle(&cache);
    assert_eq!((stats(&cache).bytes_written, stats(&cache).bytes_dropped), (5 * MIB, 0));
    // The directory stays within its size after the restart.
    drop(cache);
    assert!(used_bytes(directory.path()) <= limit);
}

/// Regression: each process counted as one step of this process's size.
#[test]
fn reservations_of_processes_with_other_sizes_are_counted() {
    let directory = temporary();
    let quota = |bytes| Quota::open(directory.path(), bytes, Arc::default()).expect("a directory of our own");
    let (mut small, mut large) = (quota(64 * MIB), quota(640 * MIB));
    let check = |one: &Quota, other: &mut Quota, step: u64| {
        // The rest of a step is too small by one byte, so another step is reserved: this process
        // may write two steps less one byte.
        assert!(other.take(step - segment::SEGMENT_FILE + 1).expect("writable"));
        assert!(other.take(segment::SEGMENT_FILE).expect("writable"));
        let others = one.others().expect("readable");
        assert!(others >= step + segment::SEGMENT_FILE - 1, "{others}");
    };
    check(&small, &mut large, 10 * MIB);
    check(&large, &mut small, segment::SEGMENT_FILE);
    drop(large);
    assert_eq!(small.others().expect("readable"), 0, "a process that has ended writes nothing");
}

#[test]
fn a_disk_that_fails_is_counted_and_no_read_fails() {
    let (memory, directory, want) = object(MIB, 5);
    let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
    read(&cache, "x", 0, MIB as usize);
    settle(&cache);
    for (turn, error) in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::AGAIN].into_iter().enumerate() {
        gate(&cache).fail(Some(error));
        assert!(read(&cache, "x", 0, MIB as usize) == want, "{error}");
        settle(&cache);
        let turns = turn as u64 + 1;
        let stats = stats(&cache);
        // The read, and the write of the store's bytes.
        assert_eq!((stats.errors, stats.bytes_dropped), (2 * turns, turns * MIB), "{error}: {stats:?}");
        assert_eq!(log.requests(), turns + 1);
    }
    gate(&cache).fail(None);
    assert!(read(&cache, "x", 0, MIB as usize) == want);
    assert_eq!((log.requests(), stats(&cache).hits), (5, 1), "the disk is used again once it works");
}

/// Regression: a throttle and emulated devices over a disk cache did not pass on its counters.
#[test]
fn wrappers_of_a_disk_cache_pass_on_its_counters() {
    let (memory, directory) = (MemoryBackend::new(), temporary());
    memory.insert("file", vec![7; 100]);
    let cache: Arc<dyn Backend> = Arc::new(cached(&memory, directory.path(), 64 * MIB).0);
    let emulated = |part| {
        let mut device = Device::free("free").expect("known");
        device.part = part;
        emulate(Arc::clone(&cache), device).expect("a thread can be started")
    };
    let stores: [Arc<dyn Backend>; 5] = [
        Arc::new(Throttle::new(Arc::clone(&cache), 1 << 30).expect("a thread can be started")),
        emulated(None),
        emulated(Some(MIB)),
        Arc::new(Limit::new(Arc::clone(&cache), 2)),
        Arc::new(Counted::new(Arc::clone(&cache))),
    ];
    for store in stores {
        let requests = |store: &dyn Backend| store.disk().map(|stats| stats.hits + stats.misses);
        let before = requests(&*cache);
        let object = store.open(Path::new("file")).expect("it is there");
        read_exact(&*object, 0, 100, PATIENCE).expect("readable");
        assert!(requests(&*store) > before, "{}: {before:?}", store.url());
    }
}

#[test]
fn directories_of_others_and_too_few_bytes_are_rejected() {
    let directory = temporary();
    fs::write(directory.path().join("thesis.tex"), "").expect("writable");
    let open = |path: &Path, bytes| DiskCache::new(Arc::new(MemoryBackend::new()), path, bytes).map(drop);
    let error = open(directory.path(), 64 * MIB).expect_err("not ours");
    assert!(error.to_string().contains("other files in it"), "{error}");
    let error = open(&directory.path().join("new"), 1 << 20).expect_err("too small");
    assert!(error.to_string().contains("at least 64MiB"), "{error}");
    let error = open(&directory.path().join("thesis.tex"), 64 * MIB).expect_err("a file");
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    open(&directory.path().join("a/b/c"), 64 * MIB).expect("made");
}
