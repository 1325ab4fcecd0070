//! Leaked memory: it is not read or reused while a store may still write to it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bowwave_engine::backend::{
    Backend, Error, ErrorKind, Identity, MemoryBackend, Object, ReadBuf, ReadSink, Result,
};
use bowwave_engine::{Engine, Options};

/// A store that, while `failing`, ends requests but keeps their buffers, as a failed ring does.
#[derive(Clone, Debug)]
struct Keeper {
    memory: MemoryBackend,
    failing: Arc<AtomicBool>,
    retryable: bool,
    kept: Arc<Mutex<Vec<ReadBuf>>>,
    requests: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Kept(Arc<dyn Object>, Keeper);

impl Keeper {
    fn new(bytes: Vec<u8>, retryable: bool) -> Self {
        let memory = MemoryBackend::new();
        memory.insert("a", bytes);
        let failing = Arc::new(AtomicBool::new(true));
        Self { memory, failing, retryable, kept: Arc::default(), requests: Arc::default() }
    }

    /// Writes late, as a kernel may that was never told to stop.
    fn scribble(&self) {
        for buf in self.kept.lock().expect("no panic").iter_mut() {
            let len = buf.len();
            buf.copy_in(0, &vec![0xEE; len]);
        }
    }
}

impl Backend for Keeper {
    fn url(&self) -> &str {
        "keeper:"
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        Ok(Arc::new(Kept(self.memory.open(path)?, self.clone())))
    }
    fn below(&self) -> Option<&dyn Backend> {
        Some(&self.memory)
    }
}

impl Object for Kept {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn identity(&self) -> &Identity {
        self.0.identity()
    }
    fn read(&self, offset: u64, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let Self(object, keeper) = self;
        keeper.requests.fetch_add(1, Ordering::Relaxed);
        if !keeper.failing.load(Ordering::Relaxed) {
            return object.read(offset, buf, sink);
        }
        let kept = buf.split_off(0);
        keeper.kept.lock().expect("no panic").push(kept);
        let error = Error::new(ErrorKind::Io, "the ring has failed").retryable(keeper.retryable);
        sink.done(buf, Err(error));
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
    let file = engine.store_of(Arc::new(keeper.clone())).open(Path::new("a")).expect("it is there");
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
    let file = engine.store_of(Arc::new(keeper.clone())).open(Path::new("a")).expect("it is there");
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
