//! A store in memory, and directories to mount it at.

pub(crate) mod gated;
pub(crate) mod writable;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{
    Backend, Entry, EntryKind, Error, ErrorKind, Identity, Namespace, Object, ReadBuf, ReadSink, Result,
    StatFs,
};
use bowwave_engine::{Engine, EngineStats, Options, Policy, Store};
use bowwave_fuse::{Mount, MountOptions, Told};

/// Prints why a test, or a part of it, does not run here. With `CI=true` that is a failure.
#[expect(clippy::print_stdout, reason = "the harness shows it for skipped tests")]
pub(crate) fn skipped(reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test must run in CI: {reason}");
    println!("skipped: {reason}");
}

/// An empty temporary directory to mount at, removed at the end.
#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    /// `None` where mounts are impossible; see [`skipped`].
    pub(crate) fn new(name: &str) -> Option<Self> {
        bowwave_fuse::is_available().map_err(|reason| skipped(&reason)).ok()?;
        Some(Self::anywhere(name))
    }

    fn anywhere(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bowwave-{name}-{}-{next}", std::process::id()));
        fs::create_dir(&path).expect("the temporary directory is writable");
        Self(path.canonicalize().expect("just made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Never recursive: a mount may still be there.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether the kernel has a mount at `dir`.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    let dir = dir.to_str().expect("test directories are ASCII");
    table.lines().any(|line| line.split(' ').nth(4) == Some(dir))
}

/// A store of the file system's directory or URL, behind a cache of `cache_bytes`.
pub(crate) fn store(url: &str, cache_bytes: u64) -> Store {
    let options = Options { cache_bytes: Some(cache_bytes), ..Options::default() };
    let engine = Engine::new(options).expect("there is memory");
    engine.store(url).expect("the store can be opened")
}

/// A store in memory that fails, blocks and changes on demand. Clones share the content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    nodes: Mutex<BTreeMap<PathBuf, Node>>,
    /// Names in the root's listing that do not exist.
    listed: Mutex<Vec<OsString>>,
    /// The engine of the mount.
    engine: Mutex<Option<Engine>>,
    /// Error of every read, if set.
    pub(crate) failure: Mutex<Option<ErrorKind>>,
    /// If set, every read announces itself and waits for permission.
    gate: Mutex<Option<Arc<Gate>>>,
    /// Offset and length of each read of a file.
    reads: Mutex<Vec<(u64, u64)>>,
    /// Messages for the mount's listener.
    pub(crate) complaints: Mutex<Vec<String>>,
}

#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) arrived: Mutex<Receiver<()>>,
    arrive: SyncSender<()>,
    open: SyncSender<()>,
    pass: Mutex<Receiver<()>>,
}

impl Gate {
    /// Lets `count` reads through.
    pub(crate) fn open(&self, count: usize) {
        for _ in 0..count {
            self.open.send(()).expect("the gate holds the receiver");
        }
    }

    /// Waits for `count` reads to arrive at the gate.
    pub(crate) fn await_arrivals(&self, count: usize) {
        let arrived = self.arrived.lock().expect("no panic holds it");
        for _ in 0..count {
            arrived.recv_timeout(Duration::from_secs(20)).expect("a read should have come");
        }
    }
}

#[derive(Clone, Debug)]
enum Node {
    File { data: Arc<Vec<u8>>, etag: String },
    Directory,
    Link(PathBuf),
}

/// Modification time of every file.
pub(crate) const MODIFIED: Duration = Duration::from_secs(1_000_000_000);

impl Memory {
    /// A tree with an empty root.
    pub(crate) fn new() -> Self {
        let memory = Self::default();
        memory.insert("", Node::Directory);
        memory
    }

    /// A store that is a single object.
    pub(crate) fn single(data: &[u8]) -> Self {
        let memory = Self::default();
        memory.insert("", Node::File { data: Arc::new(data.to_vec()), etag: "1".to_owned() });
        memory
    }

    pub(crate) fn file(&self, path: impl AsRef<Path>, data: &[u8]) -> &Self {
        self.version(path, data, "1")
    }

    pub(crate) fn version(&self, path: impl AsRef<Path>, data: &[u8], etag: &str) -> &Self {
        self.insert(path, Node::File { data: Arc::new(data.to_vec()), etag: etag.to_owned() })
    }

    pub(crate) fn directory(&self, path: impl AsRef<Path>) -> &Self {
        self.insert(path, Node::Directory)
    }

    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        self.insert(path, Node::Link(target.as_ref().to_owned()))
    }

    /// Adds a name, possibly an invalid one, to the root's listing.
    pub(crate) fn listed(&self, name: &str) {
        self.shared.listed.lock().expect("no panic holds it").push(name.into());
    }

    pub(crate) fn remove(&self, path: impl AsRef<Path>) {
        self.shared.nodes.lock().expect("no panic holds it").remove(path.as_ref());
    }

    pub(crate) fn fail(&self, kind: Option<ErrorKind>) {
        *self.shared.failure.lock().expect("no panic holds it") = kind;
    }

    /// Blocks every read from now on.
    pub(crate) fn close_gate(&self) -> Arc<Gate> {
        let (arrive, arrived) = sync_channel(4096);
        let (open, pass) = sync_channel(4096);
        let gate = Arc::new(Gate { arrived: Mutex::new(arrived), arrive, open, pass: Mutex::new(pass) });
        *self.shared.gate.lock().expect("no panic holds it") = Some(Arc::clone(&gate));
        gate
    }

    /// Lets all later reads pass.
    pub(crate) fn remove_gate(&self) {
        *self.shared.gate.lock().expect("no panic holds it") = None;
    }

    /// Pages that the mount has requested from the engine, cached there or not.
    pub(crate) fn pages(&self) -> u64 {
        self.stats().cache.accesses
    }

    /// Reads of the mount from the engine, and the pages of [`pages`](Self::pages).
    pub(crate) fn reads_and_pages(&self) -> (u64, u64) {
        let cache = self.stats().cache;
        (cache.reads, cache.accesses)
    }

    fn stats(&self) -> EngineStats {
        let engine = self.shared.engine.lock().expect("no panic holds it");
        engine.as_ref().expect("mounted").stats()
    }

    /// Bytes of the files that were requested since the last call, as ranges in order without
    /// overlap.
    pub(crate) fn requested(&self) -> Vec<Range<u64>> {
        let mut reads = std::mem::take(&mut *self.shared.reads.lock().expect("no panic holds it"));
        reads.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (offset, len) in reads {
            match ranges.last_mut() {
                Some(last) if offset <= last.end => last.end = last.end.max(offset + len),
                _ => ranges.push(offset..offset + len),
            }
        }
        ranges
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().expect("no panic holds it").clone()
    }

    /// Mounts at `dir` with names and attributes uncached, so that changes are visible immediately.
    pub(crate) fn mount(&self, dir: &Dir) -> Mount {
        self.mount_with(dir, MountOptions { ttl: Duration::ZERO, ..MountOptions::default() })
    }

    pub(crate) fn mount_with(&self, dir: &Dir, options: MountOptions) -> Mount {
        let shared = Arc::clone(&self.shared);
        let listener = Box::new(move |path: &Path, told: Told<'_>| {
            let Told::Failed(error) = told else { return };
            let complaint = format!("{}: {error}", path.display());
            shared.complaints.lock().expect("no panic holds it").push(complaint);
        });
        Mount::with_listener(self.store(), dir.path(), options, listener).expect("mounts can be made here")
    }

    /// This store behind an engine that neither reads ahead nor retries.
    pub(crate) fn store(&self) -> Store {
        self.store_with(Policy::None)
    }

    /// This store behind an engine that does not retry.
    pub(crate) fn store_with(&self, policy: Policy) -> Store {
        let options = Options { cache_bytes: Some(32 << 20), policy, retries: 0, ..Options::default() };
        let engine = Engine::new(options);
        let engine = engine.expect("there is memory");
        let store = engine.store_of(Arc::new(self.clone()));
        *self.shared.engine.lock().expect("no panic holds it") = Some(engine);
        store
    }

    fn insert(&self, path: impl AsRef<Path>, node: Node) -> &Self {
        self.shared.nodes.lock().expect("no panic holds it").insert(path.as_ref().to_owned(), node);
        self
    }

    fn node(&self, path: &Path) -> Result<Node> {
        let nodes = self.shared.nodes.lock().expect("no panic holds it");
        nodes.get(path).cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, "nothing there"))
    }
}

impl Backend for Memory {
    fn url(&self) -> &str {
        "memory://test/only file.bin"
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        match self.node(path)? {
            Node::File { data, etag } => {
                let identity = Identity { etag: Some(etag), size: data.len() as u64, ..Identity::default() };
                Ok(Arc::new(MemoryFile { tree: self.clone(), path: path.to_owned(), data, identity }))
            }
            Node::Directory | Node::Link(_) => Err(Error::new(ErrorKind::IsADirectory, "not a file")),
        }
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }
}

impl Namespace for Memory {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        Ok(entry(path, &self.node(path)?))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        if !matches!(self.node(path)?, Node::Directory) {
            return Err(Error::new(ErrorKind::NotADirectory, "not a directory"));
        }
        let nodes = self.shared.nodes.lock().expect("no panic holds it");
        let children = nodes.iter().filter(|(child, _)| child.parent() == Some(path));
        let mut entries: Vec<_> = children.map(|(child, node)| entry(child, node)).collect();
        if path.as_os_str().is_empty() {
            let listed = self.shared.listed.lock().expect("no panic holds it");
            entries.extend(listed.iter().map(|name| Entry::new(name, EntryKind::File)));
        }
        Ok(entries)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        match self.node(path)? {
            Node::Link(target) => Ok(target),
            _ => Err(Error::new(ErrorKind::Unsupported, "not a link")),
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            blocks: 2,
            blocks_free: 0,
            blocks_available: 0,
            files: 0,
            files_free: 0,
            name_bytes_max: 255,
        })
    }
}

fn entry(path: &Path, node: &Node) -> Entry {
    let (kind, size) = match node {
        Node::File { data, .. } => (EntryKind::File, data.len() as u64),
        Node::Directory => (EntryKind::Directory, 0),
        Node::Link(target) => (EntryKind::Link, target.as_os_str().len() as u64),
    };
    let name = path.file_name().map_or_else(OsString::new, OsString::from);
    let modified = Some(SystemTime::UNIX_EPOCH + MODIFIED);
    Entry { size, modified, ..Entry::new(name, kind) }
}

#[derive(Clone, Debug)]
struct MemoryFile {
    tree: Memory,
    path: PathBuf,
    data: Arc<Vec<u8>>,
    identity: Identity,
}

impl Object for MemoryFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = buf.len() as u64;
        self.tree.shared.reads.lock().expect("no panic holds it").push((offset, len));
        let gate = self.tree.shared.gate.lock().expect("no panic holds it").clone();
        let Some(gate) = gate else { return self.serve(offset, buf, sink) };
        let file = self.clone();
        thread::spawn(move || {
            gate.arrive.send(()).expect("the gate holds the receiver");
            gate.pass.lock().expect("no panic holds it").recv().expect("the gate holds the sender");
            file.serve(offset, buf, sink);
        });
    }
}

impl MemoryFile {
    fn serve(&self, offset: u64, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
        if let Some(kind) = *self.tree.shared.failure.lock().expect("no panic holds it") {
            return sink.done(buf, Err(Error::new(kind, "as the test wants")));
        }
        match self.tree.node(&self.path) {
            Ok(Node::File { etag, .. }) if self.identity.etag.as_ref() == Some(&etag) => {}
            _ => return sink.done(buf, Err(Error::new(ErrorKind::Changed, "another version now"))),
        }
        let rest = &self.data[usize::try_from(offset).expect("small files").min(self.data.len())..];
        // Short reads, so that the engine must request the rest.
        let count = rest.len().min(buf.len()).min(100_000);
        buf.copy_in(0, &rest[..count]);
        sink.done(buf, Ok(count));
    }
}

/// Bytes that differ from page to page and within pages.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 12) as u8 ^ seed).collect()
}
