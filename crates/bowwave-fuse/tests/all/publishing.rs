//! What programs see while an object is published: during the close itself, and while the mount
//! still processes the previous close.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::Dir;
use crate::common::gated::{Gate, Gated};
use crate::common::writable::{Directory, errno};
use bowwave_engine::backend::{ErrorKind, Fault, Faults, WriteFaults, open_url};
use bowwave_engine::{Engine, Options};
use bowwave_fuse::{Mount, MountOptions};

const NO_SPACE: i32 = 28;
const NOT_THERE: i32 = 2;
const STALE: i32 = 116;

/// A mounted object store in a directory, behind a gate.
struct Objects {
    _mount: Mount,
    dir: Dir,
    directory: Directory,
    gate: Arc<Gate>,
}

impl Objects {
    fn new(name: &str, writes: WriteFaults) -> Option<Self> {
        let (directory, dir, gate) = (Directory::new(name), Dir::new(name)?, Arc::<Gate>::default());
        let engine = Engine::new(Options { cache_bytes: Some(64 << 20), retries: 2, ..Options::default() });
        let engine = engine.expect("there is memory");
        let device = "s3,part=64KiB,latency=0us,metadata=0us,write_latency=0us,bandwidth=none,total=none,\
                      write_total=none";
        let url = format!("emulate:{device}:file://{}", directory.path().display());
        let backend = open_url(&url, &engine.options().store).expect("a directory");
        let faults = Faults { writes, ..Faults::default() };
        let inner = Arc::new(Fault::new(backend, faults).expect("chances up to one"));
        let gated = Gated { inner, looks: Arc::clone(&gate), removals: Arc::default() };
        let store = engine.store_of(Arc::new(gated));
        let mount = Mount::new(store, dir.path(), MountOptions::default()).expect("mounts can be made here");
        Some(Self { _mount: mount, dir, directory, gate })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The published object, as other clients see it.
    fn seen(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.directory.path().join(path)).ok()
    }

    fn make(&self, path: &str, bytes: &[u8]) {
        fs::write(self.directory.path().join(path), bytes).expect("writable");
    }
}

impl Drop for Objects {
    /// A mount with a held request would not end.
    fn drop(&mut self) {
        self.gate.open();
    }
}

#[test]
fn readers_see_the_published_object_while_its_last_writer_is_released() {
    let Some(objects) = Objects::new("publishing-window", WriteFaults::default()) else { return };
    let (old, new) = (vec![b'o'; 30_000], vec![b'n'; 100_000]);
    objects.make("x", &old);
    let mut writer = File::create(objects.at("x")).expect("begun");
    let holder = File::open(objects.at("x")).expect("the published one");
    let mut got = vec![0; old.len()];
    holder.read_exact_at(&mut got, 0).expect("readable");
    assert!(got == old);
    writer.write_all(&new).expect("taken");
    // The close has returned and the mount has dropped the writer, but the store's response is
    // still held.
    objects.gate.shut();
    drop(writer);
    objects.gate.wait();
    let reader = File::open(objects.at("x")).expect("the new one");
    assert_eq!(reader.metadata().expect("open").len(), 100_000);
    assert_eq!(holder.metadata().expect("open").len(), 100_000, "of the file that is there");
    let mut got = vec![0; new.len()];
    reader.read_exact_at(&mut got, 0).expect("readable");
    assert!(got == new);
    assert_eq!(fs::metadata(objects.at("x")).expect("there").len(), 100_000);
    assert!(fs::read(objects.at("x")).expect("readable") == new);
    objects.gate.open();
    assert_eq!(reader.metadata().expect("open").len(), 100_000);
    assert!(fs::read(objects.at("x")).expect("readable") == new);
}

#[test]
fn readers_see_the_previous_object_while_a_failed_version_is_released() {
    let writes = WriteFaults { errors: vec![(ErrorKind::NoSpace, 1.0)], ..WriteFaults::default() };
    let Some(objects) = Objects::new("publishing-failed", writes) else { return };
    let old = vec![b'o'; 300_000];
    objects.make("x", &old);
    let read = |file: &File| {
        let mut got = vec![0; old.len()];
        file.read_exact_at(&mut got, 0).expect("readable");
        assert!(got == old);
    };
    let mut writer = File::create(objects.at("x")).expect("begun");
    writer.write_all(&[b'n'; 1000]).expect("taken");
    // The kernel sees a size that is never published.
    assert_eq!(writer.metadata().expect("open").len(), 1000);
    let holder = File::open(objects.at("x")).expect("the published one");
    assert_eq!(errno(writer.sync_all()), NO_SPACE);
    objects.gate.shut();
    drop(writer);
    objects.gate.wait();
    let reader = File::open(objects.at("x")).expect("the published one");
    read(&reader);
    assert_eq!(
        (reader.metadata().expect("open").len(), holder.metadata().expect("open").len()),
        (300_000, 300_000)
    );
    objects.gate.open();
    for _ in 0..20 {
        assert_eq!(holder.metadata().expect("open").len(), 300_000);
        read(&holder);
        read(&reader);
        read(&File::open(objects.at("x")).expect("there"));
    }
    // A failed new object leaves nothing, and its name can be reused.
    for _ in 0..2 {
        let mut writer = File::create(objects.at("new")).expect("begun");
        writer.write_all(b"new").expect("taken");
        assert_eq!(errno(writer.sync_all()), NO_SPACE);
        drop(writer);
        assert_eq!(errno(File::open(objects.at("new"))), NOT_THERE);
    }
}

#[test]
fn an_object_without_writes_is_published_at_its_last_close() {
    let Some(objects) = Objects::new("publishing-empty", WriteFaults::default()) else { return };
    for round in 0..50 {
        let name = format!("made-{round}");
        drop(File::create(objects.at(&name)).expect("made"));
        assert_eq!(objects.seen(&name).as_deref(), Some(&b""[..]), "round {round}");
        assert_eq!(fs::read(objects.at(&name)).expect("readable"), b"");
        objects.make("cut", b"before");
        drop(OpenOptions::new().write(true).truncate(true).open(objects.at("cut")).expect("cut"));
        assert_eq!(objects.seen("cut").as_deref(), Some(&b""[..]), "round {round}");
        assert_eq!(fs::metadata(objects.at("cut")).expect("there").len(), 0);
    }
    // Another open descriptor may still write.
    objects.make("x", b"old");
    let mut one = File::create(objects.at("x")).expect("begun");
    drop(one.try_clone().expect("a second descriptor"));
    let other = OpenOptions::new().write(true).open(objects.at("x")).expect("the same draft");
    drop(other);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"old"[..]), "not an empty one in between");
    one.write_all(b"new").expect("taken");
    drop(one);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"new"[..]));
    // A reader does not delay publishing.
    let reader = File::open(objects.at("x")).expect("there");
    File::create(objects.at("x")).expect("cut").set_len(0).expect("as it is");
    assert_eq!(objects.seen("x").as_deref(), Some(&b""[..]));
    drop(reader);
    // A shell opens the file, duplicates it as its output, and closes the first descriptor.
    let beneath = objects.directory.path().join("shell");
    let script =
        format!("test ! -e {0} && /bin/echo one > shell && : > empty && test -e {0}", beneath.display());
    let done = Command::new("sh").args(["-ec", &script]).current_dir(objects.dir.path()).output();
    let done = done.expect("there is a shell");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!((objects.seen("shell"), objects.seen("empty")), (Some(b"one\n".to_vec()), Some(Vec::new())));
}

#[test]
fn a_repeatedly_written_object_can_always_be_read_opened_and_listed() {
    let Some(objects) = Objects::new("publishing-soak", WriteFaults::default()) else { return };
    let version = |number: usize| vec![b'a' + (number % 26) as u8; 1 + number * 977];
    fs::write(objects.at("x"), version(0)).expect("published");
    let (done, path) = (AtomicBool::new(false), objects.at("x"));
    let look = || {
        while !done.load(Ordering::Relaxed) {
            fs::metadata(&path).expect("there is a version at any time");
            let names = fs::read_dir(objects.dir.path()).expect("a directory");
            let names: Vec<_> = names.map(|entry| entry.expect("readable").file_name()).collect();
            assert_eq!(names, ["x"]);
            let mut file = File::open(&path).expect("there is a version at any time");
            file.metadata().expect("what is open can be looked at");
            let mut read = Vec::new();
            match file.read_to_end(&mut read) {
                // A writer that truncates may move the end, as on a disk.
                Ok(_) => assert!(read.windows(2).all(|pair| pair[0] == pair[1]), "bytes of two versions"),
                // The version was replaced during the read.
                Err(error) => assert_eq!(error.raw_os_error(), Some(STALE)),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(look);
        }
        let _stop = Stop(&done);
        for number in 1..200 {
            // Alternates between a new version, an append of nothing, and a writer that reads its
            // own writes.
            fs::write(&path, version(number % 120)).expect("published");
            drop(OpenOptions::new().append(true).open(&path).expect("there"));
            let file = OpenOptions::new().read(true).write(true).truncate(true).open(&path).expect("there");
            (&file).write_all(&version(number % 110)).expect("taken");
            file.metadata().expect("open");
        }
    });
}

/// Stops the other threads also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
