//! A store that holds requests until a test releases them.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bowwave_engine::backend::{
    Layer, MemoryBackend, Object, Profile, ReadBuf, ReadSink, Wrapped, WrappedObject, WrappedWriteObject,
    WriteBuf, WriteSink,
};
use bowwave_engine::{Algorithm, Engine, File, OpenOptions, Options, Policy, Store};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// Much longer than any step takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Holds requests. Files `a`, `b` and `c` have 32 MiB of sevens, whatever is written to them. On
/// the device `a` lies first, then `b`, then `c`.
#[derive(Debug)]
pub(crate) struct Gate {
    profile: Profile,
    held: Mutex<Held>,
    came: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Requests in order of arrival: the file's name, a capital for a write, and the offset in KiB.
    pub(crate) log: Vec<(char, u64)>,
    /// Their lengths in KiB.
    pub(crate) lengths: Vec<u64>,
    pub(crate) waiting: Vec<Request>,
}

/// A held request.
pub(crate) enum Request {
    Read(ReadBuf, Box<dyn ReadSink>),
    Write(WriteBuf, Box<dyn WriteSink>),
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl Request {
    /// Carries it out.
    fn go(self) {
        match self {
            Self::Read(mut buf, sink) => {
                let len = buf.len();
                buf.copy_in(0, &vec![7; len]);
                sink.done(buf, Ok(len));
            }
            Self::Write(buf, sink) => {
                let len = buf.len();
                sink.done(buf, Ok(len));
            }
        }
    }
}

impl Gate {
    pub(crate) fn store(profile: Profile) -> Wrapped<Self> {
        let memory = MemoryBackend::new();
        for name in ["a", "b", "c"] {
            memory.insert(name, vec![7; 32 << 20]);
        }
        let gate = Self { profile, held: Mutex::default(), came: Condvar::new() };
        Wrapped::new("gate", Arc::new(memory), gate)
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic")
    }

    /// Waits until `count` requests have arrived in total.
    pub(crate) fn came(&self, count: usize) {
        let enough = |held: &mut Held| held.log.len() < count;
        let (held, timeout) = self.came.wait_timeout_while(self.held(), PATIENCE, enough).expect("no panic");
        assert!(!timeout.timed_out(), "{:?} came, not {count}", held.log);
    }

    /// Releases the oldest held request.
    pub(crate) fn release(&self) {
        let request = self.held().waiting.remove(0);
        request.go();
    }

    /// Releases requests one by one; returns each that arrived after the first `from`.
    pub(crate) fn drain(&self, from: usize) -> Vec<(char, u64)> {
        while !self.held().waiting.is_empty() {
            self.release();
        }
        self.held().log[from..].to_vec()
    }

    fn hold(&self, name: char, offset: u64, len: usize, request: Request) {
        let mut held = self.held();
        held.log.push((name, offset / KIB));
        held.lengths.push(len as u64 / KIB);
        held.waiting.push(request);
        self.came.notify_all();
    }
}

impl Layer for Gate {
    fn profile(&self, _memory: Profile) -> Profile {
        self.profile.clone()
    }
    fn place(&self, path: &Path, _inner: &dyn Object) -> u64 {
        (u64::from(name(path)) - u64::from('a')) << 40
    }
    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.hold(name(&object.path), offset, buf.len(), Request::Read(buf, sink));
    }
    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let name = name(&object.read.path).to_ascii_uppercase();
        self.hold(name, offset, buf.len(), Request::Write(buf, sink));
    }
}

fn name(path: &Path) -> char {
    path.to_str().and_then(|path| path.chars().next()).expect("a letter")
}

/// An engine before a gate.
pub(crate) struct Bench {
    pub(crate) gate: Arc<Gate>,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    pub(crate) workers: Vec<JoinHandle<()>>,
}

impl Bench {
    /// Without readahead, and with nothing that prevents write-out.
    pub(crate) fn new(scheduler: Algorithm, profile: Profile) -> Self {
        Self::with(Options { scheduler, ..Self::options() }, profile)
    }

    pub(crate) fn options() -> Options {
        Options { cache_bytes: Some(128 << 20), policy: Policy::None, shards: Some(1), ..Options::default() }
    }

    pub(crate) fn with(options: Options, profile: Profile) -> Self {
        let gated = Gate::store(profile);
        let gate = Arc::clone(&gated.layer);
        let engine = Engine::new(options).expect("valid options");
        let store = engine.store_of(Arc::new(gated));
        Self { gate, store, engine, workers: Vec::new() }
    }

    pub(crate) fn open(&self, name: &str) -> File {
        self.store.open(Path::new(name)).expect("opens")
    }

    pub(crate) fn open_write(&self, name: &str) -> File {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        self.store.open_with(Path::new(name), &options).expect("opens")
    }

    /// Fills and write-outs queued so far.
    pub(crate) fn added(&self) -> u64 {
        self.store.stats().scheduler.added
    }

    /// Runs `work` in its own thread, and waits until its request is queued.
    pub(crate) fn start(&mut self, work: impl FnOnce() + Send + 'static) {
        let before = self.added();
        self.workers.push(thread::spawn(work));
        self.until(|bench| bench.added() > before);
    }

    /// Reads 4 KiB at an offset in KiB.
    pub(crate) fn read(&mut self, name: &str, kib: u64) {
        let file = self.open(name);
        self.start(move || {
            let mut bytes = [0; 4096];
            assert_eq!(file.read_at(kib * KIB, &mut bytes).expect("it reads"), 4096);
            assert_eq!(bytes, [7; 4096]);
        });
    }

    pub(crate) fn until(&self, happened: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !happened(self) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.store.stats());
            thread::yield_now();
        }
    }

    /// Releases all requests; returns those that arrived after the first `from`.
    pub(crate) fn end(self, from: usize) -> Vec<(char, u64)> {
        let busy = |bench: &Self| bench.workers.iter().any(|worker| !worker.is_finished());
        while busy(&self) {
            self.gate.drain(0);
            thread::yield_now();
        }
        for worker in self.workers {
            worker.join().expect("it goes right");
        }
        self.gate.drain(from)
    }
}
