//! Regression tests with misbehaving stores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::common::scripted::Scripted;
use bowwave_engine::backend::{Error, ErrorKind, Identity, MemoryBackend, Profile, ReadBuf, ReadSink};
use bowwave_engine::{Engine, Options, Policy, Store};

/// A store of objects of this size, without validators, whose reads the test defines.
fn store(size: u64, read: impl Fn(u64, ReadBuf, Box<dyn ReadSink>) + Send + Sync + 'static) -> Store {
    let memory = MemoryBackend::new();
    for name in ["a", "object"] {
        memory.insert(name, Vec::new());
    }
    let odd = Scripted {
        identity: Some(Identity { size, ..Identity::default() }),
        profile: Profile { slots: 1, ..Profile::read_only("odd") },
        ..Scripted::new(memory, move |_, offset, buf, sink| read(offset, buf, sink))
    };
    let options = Options { cache_bytes: Some(8 << 20), policy: Policy::None, ..Options::default() };
    Engine::new(options).expect("valid options").store_of(Arc::new(odd))
}

fn serve(byte: u8, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
    let len = buf.len();
    buf.copy_in(0, &vec![byte; len]);
    sink.done(buf, Ok(len));
}

/// Regression: a request with a dropped sink was never completed; its reader hung, and its slot
/// leaked.
#[test]
fn a_request_that_the_store_drops_is_retried() {
    let requests = AtomicU64::new(0);
    let store = store(1 << 20, move |_, buf, sink| {
        if requests.fetch_add(1, Ordering::Relaxed) > 0 {
            serve(7, buf, sink);
        }
    });
    let mut bytes = [0; 10];
    store.open(Path::new("a")).expect("opens").read_at(0, &mut bytes).expect("the second try succeeds");
    assert_eq!(bytes, [7; 10]);
}

/// Regression: a store that panicked left the queue marked as busy, and every later read hung.
#[test]
fn a_panicking_store_does_not_block_later_reads() {
    let requests = AtomicU64::new(0);
    let store = store(1 << 20, move |_, buf, sink| {
        assert!(requests.fetch_add(1, Ordering::Relaxed) > 0, "a bug of the store");
        serve(7, buf, sink);
    });
    let file = store.open(Path::new("a")).expect("opens");
    let mut bytes = [0; 10];
    let first = catch_unwind(AssertUnwindSafe(|| file.read_at(0, &mut [0; 10]).is_ok()));
    assert!(first.is_err(), "the panic is the reader's who sent the request");
    file.read_at(500_000, &mut bytes).expect("the store works again");
    assert_eq!(bytes, [7; 10]);
}

/// Regression: a store that panicked in a retry ended the retry thread, and later retries hung. If
/// the reader requested again before the panicking thread had released the request, no thread sent
/// the new request.
#[test]
fn a_panic_in_a_retry_does_not_end_retries() {
    let requests = AtomicU64::new(0);
    let store = store(1 << 20, move |_, buf, sink| match requests.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => sink.done(buf, Err(Error::new(ErrorKind::Io, "try again").retryable(true))),
        1 => panic!("a bug of the store"),
        _ => serve(7, buf, sink),
    });
    let file = store.open(Path::new("a")).expect("opens");
    let (told, read) = sync_channel(1);
    std::thread::spawn(move || {
        for page in 0..20 {
            let mut bytes = [0; 10];
            let outcome =
                file.read_at(page * 4096, &mut bytes).map(|_| bytes).map_err(|error| error.to_string());
            told.send(outcome).expect("the test waits");
        }
    });
    for _ in 0..20 {
        assert_eq!(read.recv_timeout(Duration::from_secs(20)), Ok(Ok([7; 10])));
    }
}

/// Regression: an identity with only a size counted as proof of an unchanged object, so a new open
/// read old bytes.
#[test]
fn without_validators_each_open_reads_again() {
    let byte = Arc::new(AtomicU8::new(1));
    let now = Arc::clone(&byte);
    let store = store(4096, move |_, buf, sink| serve(now.load(Ordering::Relaxed), buf, sink));
    let mut read = [0];
    store.open(Path::new("a")).expect("opens").read_at(0, &mut read).expect("it reads");
    byte.store(2, Ordering::Relaxed);
    store.open(Path::new("a")).expect("opens").read_at(0, &mut read).expect("it reads");
    assert_eq!(read, [2]);
}

/// Regression: the last page's end wrapped to zero for sizes near 2^64, which a server can claim.
#[test]
fn impossible_sizes_are_refused() {
    for size in [u64::MAX, u64::MAX - 4095, 1 << 63] {
        let store = store(size, |_, buf, sink| serve(7, buf, sink));
        let error = store.open(Path::new("a")).expect_err("no file is that long");
        assert_eq!(error.kind(), Some(ErrorKind::Protocol));
    }
    let store = store((1 << 63) - 1, |_, buf, sink| serve(7, buf, sink));
    let file = store.open(Path::new("a")).expect("just below");
    let mut bytes = [0; 100];
    assert_eq!(file.read_at((1 << 63) - 11, &mut bytes).expect("it reads"), 10);
    assert_eq!(file.read_at(u64::MAX, &mut bytes).expect("past the end"), 0);
}

/// Regression: closing notes of one busy file displaced a file that was closed once.
#[test]
fn a_file_closed_once_stays_while_another_is_reopened_repeatedly() {
    let engine =
        Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() }).expect("valid options");
    let store = engine.store("pattern:/").expect("a scheme of ours");
    let read =
        |name: &str| store.open(Path::new(name)).expect("opens").read_at(0, &mut [0]).expect("it reads");
    read("4097");
    for _ in 0..40_000 {
        read("4096");
    }
    let before = store.stats().requests;
    read("4097");
    assert_eq!(store.stats().requests, before, "two files fit into any cache");
}

/// Regression: the handle of a damaged object returned `Changed` at its next read.
#[test]
fn a_damaged_object_stays_damaged_for_its_handle() {
    let store = store(1 << 20, |offset, buf, sink| match offset {
        0 => serve(1, buf, sink),
        _ => {
            let error = Error::new(ErrorKind::Corrupt, "odd:object: the bytes do not match").retryable(false);
            sink.done(buf, Err(error));
        }
    });
    let file = store.open("object".as_ref()).expect("an object");
    let mut page = [0; 4096];
    file.read_at(0, &mut page).expect("right bytes");
    for _ in 0..2 {
        let error = file.read_at(512 << 10, &mut page).expect_err("damaged").to_string();
        assert_eq!(error, "odd:object: the bytes do not match");
    }
    let error = file.read_at(0, &mut page).expect_err("of a damaged object").to_string();
    assert_eq!(error, "odd:object: the bytes do not match");
}
