//! Leaked memory: it is not read or reused while a store may still write to it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::scripted::Scripted;
use bowwave_engine::backend::{Error, ErrorKind, MemoryBackend, ReadBuf};
use bowwave_engine::{Engine, Options};

/// A store that, while `failing`, ends requests but keeps their buffers, as a failed ring does.
#[derive(Clone, Debug)]
struct Keeper {
    store: Scripted,
    failing: Arc<AtomicBool>,
    kept: Arc<Mutex<Vec<ReadBuf>>>,
    requests: Arc<AtomicU64>,
}

impl Keeper {
    fn new(bytes: Vec<u8>, retryable: bool) -> Self {
        let memory = MemoryBackend::new();
        memory.insert("a", bytes);
        let (failing, kept) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<_>>>::default());
        let requests = Arc::new(AtomicU64::new(0));
        let state = (Arc::clone(&failing), Arc::clone(&kept), Arc::clone(&requests));
        let store = Scripted::new(memory, move |object, offset, mut buf, sink| {
            let (failing, kept, requests) = &state;
            requests.fetch_add(1, Ordering::Relaxed);
            if !failing.load(Ordering::Relaxed) {
                return object.read(offset, buf, sink);
            }
            kept.lock().expect("no panic").push(buf.split_off(0));
            sink.done(buf, Err(Error::new(ErrorKind::Io, "the ring has failed").retryable(retryable)));
        });
        Self { store, failing, kept, requests }
    }

    /// Writes late, as a kernel may that was never told to stop.
    fn scribble(&self) {
        for buf in self.kept.lock().expect("no panic").iter_mut() {
            let len = buf.len();
            buf.copy_in(0, &vec![0xEE; len]);
        }
    }
}

/// Bytes that show their offset.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 * 31 + at % 251) as u8).collect()
}

fn engine() -> Engine {
    let options = Options { cache_bytes: Some(4 << 20), shards: Some(1), ..Options::default() };
    Engine::new(options).expect("valid options")
}

/// Regression: the frames went to other pages while the kernel could still write to them.
#[test]
fn leaked_frames_hold_no_page_until_they_are_back() {
    let source = bytes(16 << 20);
    let keeper = Keeper::new(source.clone(), false);
    let engine = engine();
    let file = engine.store_of(Arc::new(keeper.store.clone())).open(Path::new("a")).expect("it is there");
    let mut read = vec![0; 256 << 10];
    let error = file.read_at(0, &mut read).expect_err("the store fails");
    assert!(error.to_string().contains("the ring has failed"), "{error}");
    let lost = engine.stats().frames_used;
    assert!(lost >= 64, "only {lost} frames are set aside");

    // All other frames are used several times, while the leaked ones are written.
    keeper.failing.store(false, Ordering::Relaxed);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                keeper.scribble();
            }
        });
        for offset in (0..source.len()).step_by(read.len()) {
            file.read_at(offset as u64, &mut read).expect("the store works again");
            assert!(read == source[offset..offset + read.len()], "wrong bytes from {offset}");
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = engine.stats();
    assert!(stats.cache.pages_evicted > 0 && stats.frames_used <= stats.frames, "{stats:?}");

    // Once they are back, they are ordinary frames.
    keeper.kept.lock().expect("no panic").clear();
    let store = engine.store("pattern:/").expect("a scheme of ours");
    drop(file);
    let other = store.open(Path::new("8MiB")).expect("any size");
    for offset in (0..8 << 20).step_by(read.len()) {
        other.read_at(offset, &mut read).expect("the pattern never fails");
    }
    let stats = engine.stats();
    assert_eq!(stats.frames_used, stats.frames, "all frames are in use again: {stats:?}");
}

#[test]
fn a_read_with_leaked_frames_is_retried_with_others() {
    let source = bytes(1 << 20);
    let keeper = Keeper::new(source.clone(), true);
    let engine = engine();
    let file = engine.store_of(Arc::new(keeper.store.clone())).open(Path::new("a")).expect("it is there");
    let mut read = vec![0; 4096];
    // As many attempts as for any failed request, then the error.
    file.read_at(0, &mut read).expect_err("the store keeps failing");
    assert_eq!(keeper.requests.load(Ordering::Relaxed), u64::from(Options::default().retries) + 1);
    keeper.failing.store(false, Ordering::Relaxed);
    file.read_at(0, &mut read).expect("the store works again");
    assert!(read == source[..4096]);
    keeper.scribble();
    file.read_at(0, &mut read).expect("it is cached");
    assert!(read == source[..4096], "the frames are others");
}
