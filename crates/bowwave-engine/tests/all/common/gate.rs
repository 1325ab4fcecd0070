//! A store that holds requests until a test releases them.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bowwave_engine::backend::{
    Backend, Identity, MemoryBackend, Namespace, Object, OpenWrite, Profile, ReadBuf, ReadSink, Result,
    Write, WriteBuf, WriteObject, WriteSink,
};
use bowwave_engine::{Algorithm, Engine, File, OpenOptions, Options, Policy, Store};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// Much longer than any step takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Holds requests. Files `a`, `b` and `c` have 32 MiB of sevens, whatever is written to them. On
/// the device `a` lies first, then `b`, then `c`.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    memory: MemoryBackend,
    profile: Profile,
    shared: Arc<(Mutex<Held>, Condvar)>,
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

#[derive(Debug)]
struct Gated {
    object: Arc<dyn Object>,
    name: char,
    gate: Gate,
}

impl Gate {
    pub(crate) fn new(profile: Profile) -> Self {
        let memory = MemoryBackend::new();
        for name in ["a", "b", "c"] {
            memory.insert(name, vec![7; 32 << 20]);
        }
        Self { memory, profile, shared: Arc::default() }
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.shared.0.lock().expect("no panic")
    }

    /// Waits until `count` requests have arrived in total.
    pub(crate) fn came(&self, count: usize) {
        let enough = |held: &mut Held| held.log.len() < count;
        let (held, timeout) =
            self.shared.1.wait_timeout_while(self.held(), PATIENCE, enough).expect("no panic");
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

    fn object(&self, path: &Path) -> Result<Gated> {
        let name = path.to_str().and_then(|path| path.chars().next()).expect("a letter");
        Ok(Gated { object: self.memory.open(path)?, name, gate: self.clone() })
    }
}

impl Backend for Gate {
    fn url(&self) -> &str {
        "gate:"
    }
    fn profile(&self) -> Profile {
        self.profile.clone()
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        Ok(Arc::new(self.object(path)?))
    }
    fn namespace(&self) -> Option<&dyn Namespace> {
        self.memory.namespace()
    }
    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }
}

impl Write for Gate {
    fn open_write(&self, path: &Path, _how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        Ok(Arc::new(self.object(path)?))
    }
}

impl Gated {
    fn hold(&self, name: char, offset: u64, len: usize, request: Request) {
        let mut held = self.gate.held();
        held.log.push((name, offset / KIB));
        held.lengths.push(len as u64 / KIB);
        held.waiting.push(request);
        self.gate.shared.1.notify_all();
    }
}

impl Object for Gated {
    fn size(&self) -> u64 {
        self.object.size()
    }
    fn identity(&self) -> &Identity {
        self.object.identity()
    }
    fn place(&self) -> u64 {
        (u64::from(self.name) - u64::from('a')) << 40
    }
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.hold(self.name, offset, buf.len(), Request::Read(buf, sink));
    }
}

impl WriteObject for Gated {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.hold(self.name.to_ascii_uppercase(), offset, buf.len(), Request::Write(buf, sink));
    }
    fn sync(&self, _data_only: bool) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, _len: u64) -> Result<()> {
        unreachable!("no test cuts a file")
    }
    fn finish(&self) -> Result<Identity> {
        Ok(self.object.identity().clone())
    }
}

/// An engine before a gate.
pub(crate) struct Bench {
    pub(crate) gate: Gate,
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
        let gate = Gate::new(profile);
        let engine = Engine::new(options).expect("valid options");
        let store = engine.store_of(Arc::new(gate.clone()));
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
