//! When and in which order written pages go to the store, and what happens if the store rejects
//! them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use bowwave_engine::backend::{MemoryBackend, Profile, Wrapped, Writes, open_url};
use bowwave_engine::{Algorithm, Engine, ErrorKind, File, Namespace as _, OpenOptions, Options, Store, Work};

use crate::common::gate::{Bench, Gate, MIB};
use crate::common::moody::Mood;
use crate::common::{Directory, directory_store, small, until};

/// A device that serves one request at a time, with a head.
fn disk() -> Profile {
    Profile { slots: 1, seeks: true, writes: Writes::Anywhere, ..Profile::read_only("gate") }
}

/// 8 MiB may be dirty; write-back begins at 4 MiB.
fn options(scheduler: Algorithm) -> Options {
    Options {
        scheduler,
        dirty_bytes: Some(8 * MIB),
        dirty_background_bytes: Some(4 * MIB),
        ..Bench::options()
    }
}

/// Keeps the gate open while files are closed.
fn close(gate: &Gate, files: Vec<File>) {
    let closing = thread::spawn(move || drop(files));
    while !closing.is_finished() {
        gate.drain(0);
        thread::yield_now();
    }
    closing.join().expect("no panic");
}

#[test]
fn an_fsync_overtakes_a_bulk_writer_with_the_deadline_scheduler_only() {
    for scheduler in [Algorithm::Deadline, Algorithm::Noop] {
        let mut bench = Bench::with(options(scheduler), disk());
        let (bulk, small) = (bench.open_write("a"), bench.open_write("b"));
        bulk.write_at(0, &vec![1; 7 << 20]).expect("room");
        small.write_at(0, &[2; 4096]).expect("room");
        bench.start(move || small.sync(true).expect("the store takes it"));
        bench.gate.came(1);
        let gate = bench.gate.clone();
        let order = bench.end(1);
        let place = order.iter().position(|request| request.0 == 'B').expect("it was written");
        match scheduler {
            Algorithm::Noop => assert!(place > 0, "{order:?}"),
            _ => assert_eq!(place, 0, "{order:?}"),
        }
        close(&gate, vec![bulk]);
    }
}

#[test]
fn a_bulk_writer_waits_for_the_store_and_memory_does_not_grow() {
    let mut bench = Bench::with(options(Algorithm::Deadline), disk());
    let bulk = bench.open_write("a");
    bench.start(move || {
        assert_eq!(bulk.write_at(0, &vec![1; 24 << 20]).expect("room"), 24 << 20);
        bulk.sync(true).expect("the store takes it");
    });
    let engine = bench.engine.clone();
    until("the writer waits", || engine.stats().cache.writes_throttled > 0);
    let dirty = engine.stats().cache.pages_dirtied;
    assert_eq!(dirty, 2048, "8 MiB and no more");
    bench.end(0);
    let stats = engine.stats();
    assert_eq!((stats.cache.pages_written, stats.store.bytes_written), (6144, 24 << 20));
    assert!(stats.store.requests <= 6144 / 256, "in large requests: {}", stats.store.requests);
    assert!(engine.latencies().device(Work::WriteBack).count > 0);
    assert!(engine.latencies().device(Work::SyncWrite).count > 0);
}

#[test]
fn a_sync_waits_for_write_outs_in_flight_and_promotes_them() {
    let mut bench = Bench::with(options(Algorithm::Deadline), disk());
    let file = Arc::new(bench.open_write("a"));
    file.write_at(0, &vec![1; 5 << 20]).expect("room");
    bench.gate.came(1);
    let syncing = Arc::clone(&file);
    let worker = thread::spawn(move || syncing.sync(true).expect("the store takes it"));
    bench.workers.push(worker);
    let store = bench.store.clone();
    until("the rest is asked for", || store.stats().scheduler.added >= 5);
    assert!(!bench.workers[0].is_finished());
    let gate = bench.gate.clone();
    bench.end(0);
    assert!(!file.is_dirty());
    close(&gate, vec![Arc::into_inner(file).expect("nobody else has it")]);
}

#[test]
fn a_page_in_flight_is_written_without_a_wait_and_written_out_again() {
    let bench = Bench::with(options(Algorithm::Deadline), disk());
    let file = bench.open_write("a");
    file.write_at(0, &vec![1; 5 << 20]).expect("room");
    bench.gate.came(1);
    file.write_at(10, b"new").expect("no wait");
    let mut bytes = [0; 13];
    file.read_at(0, &mut bytes).expect("it is there");
    assert_eq!(&bytes, b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01new");
    let gate = bench.gate.clone();
    close(&gate, vec![file]);
    let log = gate.held().log.clone();
    let first = log.iter().filter(|request| request.1 == 0).count();
    assert_eq!(first, 2, "the first page went twice: {log:?}");
}

#[test]
fn old_dirty_pages_are_written_back() {
    let directory = Directory::new();
    let options = Options { dirty_expire: Duration::from_millis(20), ..small() };
    let engine = Engine::new(options).expect("valid");
    let store = engine.store(&directory.url()).expect("a directory");
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    file.write_at(0, b"some bytes").expect("room");
    until("the directory has it", || directory.bytes("a") == b"some bytes");
    until("it is clean", || !file.is_dirty());
    file.write_at(5, b"BYTES").expect("room");
    until("again", || directory.bytes("a") == b"some BYTES");
}

#[test]
fn a_removed_open_file_is_not_written_out() {
    let (directory, engine, store) = directory_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    file.write_at(0, &[1; 10_000]).expect("room");
    store.remove_file(Path::new("a")).expect("it is there");
    file.write_at(10_000, &[2; 10_000]).expect("room");
    file.flush().expect("nothing to do");
    let mut bytes = vec![0; 20_000];
    assert_eq!(file.read_at(0, &mut bytes).expect("it lives on"), 20_000);
    assert!(bytes[..10_000].iter().all(|&byte| byte == 1) && bytes[10_000..].iter().all(|&byte| byte == 2));
    drop(file);
    assert_eq!(engine.stats().store.bytes_written, 0);
    assert!(!directory.path().join("a").exists());
}

/// An engine over a directory with failures on request.
fn moody_store(options: Options) -> (Directory, Engine, Store, Arc<Mood>) {
    let directory = Directory::new();
    let inner = open_url(&directory.url(), &options.store).expect("a directory");
    let moody = Wrapped::new("moody", inner, Mood::default());
    let mood = Arc::clone(&moody.layer);
    let engine = Engine::new(options).expect("valid");
    let store = engine.store_of(Arc::new(moody));
    (directory, engine, store, mood)
}

#[test]
fn rejected_pages_stay_dirty_and_each_handle_gets_the_error_once() {
    let (directory, engine, store, mood) = moody_store(Options { dirty_bytes: Some(1 << 19), ..small() });
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let other = store.open_with(Path::new("a"), &options).expect("it is there");
    mood.fail_writes(Some(ErrorKind::NoSpace));
    file.write_at(0, &[1; 100_000]).expect("dirty pages have room");
    let error = file.flush().expect_err("the store is full");
    assert_eq!(error.kind(), Some(ErrorKind::NoSpace), "{error}");
    // It also tries, so it may get two errors.
    let error = other.flush().expect_err("the store is full");
    assert_eq!(error.kind(), Some(ErrorKind::NoSpace), "{error}");
    let mut bytes = vec![0; 100_000];
    assert_eq!(file.read_at(0, &mut bytes).expect("nothing is lost"), 100_000);
    assert!(bytes.iter().all(|&byte| byte == 1) && file.is_dirty());
    let taken = file.write_at(100_000, &vec![2; 4 << 20]).expect("some of it has room");
    assert!(taken < 4 << 20, "writers do not wait in vain");
    let error = file.write_at(8 << 20, &vec![2; 4 << 20]).expect_err("there is no room");
    assert_eq!(error.kind(), Some(ErrorKind::NoSpace), "{error}");
    mood.fail_writes(None);
    let _heard_before = file.flush();
    file.flush().expect("there is room now");
    let expected = [vec![1; 100_000], vec![2; taken]].concat();
    assert!(directory.bytes("a") == expected);
    drop((file, other));
    assert_eq!(engine.stats().store.pages_lost, 0);
}

#[test]
fn an_error_without_a_waiter_is_returned_by_the_next_flush() {
    let options = Options { dirty_expire: Duration::from_millis(20), ..small() };
    let (directory, _engine, store, mood) = moody_store(options);
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    mood.fail_writes(Some(ErrorKind::Io));
    file.write_at(0, b"bytes").expect("room");
    // The second attempt begins when the first has failed.
    until("it was tried twice", || mood.asked.load(Ordering::Relaxed) > 1);
    mood.fail_writes(None);
    until("it was tried again", || !file.is_dirty());
    assert_eq!(file.flush().expect_err("the first try failed").kind(), Some(ErrorKind::Io));
    file.flush().expect("told once");
    assert_eq!(directory.bytes("a"), b"bytes");
}

#[test]
fn pages_rejected_to_the_end_are_counted() {
    let (directory, engine, store, mood) = moody_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    mood.fail_writes(Some(ErrorKind::NoSpace));
    file.write_at(0, &[1; 3 * 4096]).expect("dirty pages have room");
    drop(file);
    assert_eq!(engine.stats().store.pages_lost, 3);
    mood.fail_writes(None);
    let again = store.open(Path::new("a")).expect("it is there");
    assert_eq!((again.size(), directory.bytes("a").len()), (0, 0), "it is what the store has");
}

#[test]
fn short_writes_continue_where_the_store_stopped() {
    let (directory, _engine, store, mood) = moody_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    mood.short.store(5, Ordering::Relaxed);
    let bytes: Vec<u8> = (0..200_001u32).map(|at| (at * 7 / 5) as u8).collect();
    file.write_at(0, &bytes).expect("room");
    file.sync(false).expect("the store takes it");
    assert!(directory.bytes("a") == bytes);
}

#[test]
fn short_writes_that_complete_inline_use_a_bounded_amount_of_stack() {
    let moody = Wrapped::new("moody", Arc::new(MemoryBackend::new()), Mood::default());
    let mood = Arc::clone(&moody.layer);
    let store = Engine::new(small()).expect("valid").store_of(Arc::new(moody));
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    mood.most.store(4, Ordering::Relaxed);
    file.write_at(0, &[7; 400_000]).expect("room");
    file.sync(false).expect("the store takes it");
    assert!(mood.asked.load(Ordering::Relaxed) >= 100_000);
}

/// Regression: a read of the last page was completed when the file's bytes had arrived, while the
/// store continued to read. Bytes found there after the file had grown overwrote newer writes.
#[test]
fn a_read_at_the_end_of_a_file_does_not_overwrite_later_writes() {
    for _ in 0..200 {
        let (directory, _engine, store) = directory_store(small());
        std::fs::write(directory.path().join("a"), [9; 3000]).expect("writable");
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = store.open_with(Path::new("a"), &options).expect("it is there");
        file.write_at(3000, &[61; 44]).expect("room");
        file.set_len(8000).expect("room");
        file.flush().expect("room");
        let mut bytes = [0; 44];
        file.read_at(3000, &mut bytes).expect("it is there");
        assert_eq!(bytes, [61; 44]);
    }
}

#[test]
fn a_failed_store_flush_is_returned_by_its_sync() {
    let (directory, _engine, store, mood) = moody_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    file.write_at(0, b"bytes").expect("room");
    mood.fail_syncs(Some(ErrorKind::Io));
    assert_eq!(file.sync(true).expect_err("told to fail").kind(), Some(ErrorKind::Io));
    file.flush().expect("the store has the bytes");
    assert_eq!(directory.bytes("a"), b"bytes");
    mood.fail_syncs(None);
    file.sync(true).expect("no longer");
}

/// Regression: of several fills in one request, only the last was zeroed past the store's end, so a
/// gap that was just overwritten showed earlier contents of its frames.
#[test]
fn a_gap_that_the_store_does_not_have_yet_reads_as_zeros() {
    let (_directory, _engine, store) = directory_store(small());
    let other = store.create(Path::new("other"), 0o644).expect("a new file");
    other.write_at(0, &vec![0xAB; 4 << 20]).expect("room");
    other.flush().expect("room");
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    file.write_at(900_000, b"end").expect("room");
    let mut bytes = vec![1; 900_003];
    assert_eq!(file.read_at(0, &mut bytes).expect("it is there"), bytes.len());
    assert!(bytes[..900_000].iter().all(|&byte| byte == 0));
}

#[test]
fn a_removed_file_keeps_its_written_bytes_for_its_readers() {
    let (_directory, _engine, store) = directory_store(small());
    let writer = store.create(Path::new("a"), 0o644).expect("made");
    let reader = store.open(Path::new("a")).expect("it is there");
    writer.write_at(100_000, &[7; 5000]).expect("written");
    store.remove_file(Path::new("a")).expect("removed");
    assert!(writer.is_dirty(), "nothing has gone to the store yet");
    drop(writer);
    let mut bytes = vec![1; 105_000];
    assert_eq!(reader.read_at(0, &mut bytes).expect("the reader has it"), 105_000);
    assert!(bytes[..100_000].iter().all(|&byte| byte == 0) && bytes[100_000..].iter().all(|&byte| byte == 7));
}
