//! Objects written through a mount, by `File` and by real programs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::Dir;
use crate::common::writable::{Directory, errno};
use bowwave_engine::backend::{ErrorKind, Fault, Faults, WriteFaults, open_url};
use bowwave_engine::{Engine, Options, Store};
use bowwave_fuse::{Mount, MountOptions, Told};

const UNSUPPORTED: i32 = 95;
const STALE: i32 = 116;
const BUSY: i32 = 16;

/// A mounted object store in a directory.
struct Objects {
    mount: Option<Mount>,
    dir: Dir,
    directory: Directory,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Objects {
    fn new(name: &str) -> Option<Self> {
        Self::with(name, "64KiB", Faults::default())
    }

    fn with(name: &str, part: &str, faults: Faults) -> Option<Self> {
        let (directory, dir) = (Directory::new(name), Dir::new(name)?);
        let complaints = Arc::<Mutex<Vec<String>>>::default();
        let mount = Some(mounted(&store(&directory, part, faults), &dir, &complaints));
        Some(Self { mount, dir, directory, complaints })
    }

    /// A path in the mount.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The published object, as other clients see it.
    fn seen(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.directory.path().join(path)).ok()
    }

    fn make(&self, path: &str, bytes: &[u8]) {
        fs::write(self.directory.path().join(path), bytes).expect("writable");
    }

    fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("no panic holds it").clone()
    }
}

fn store(directory: &Directory, part: &str, faults: Faults) -> Store {
    let device = format!(
        "s3,part={part},latency=0us,metadata=0us,write_latency=0us,bandwidth=none,total=none,write_total=none"
    );
    // With the default retries, transient faults never persist.
    let engine = Engine::new(Options { cache_bytes: Some(64 << 20), ..Options::default() });
    let engine = engine.expect("there is memory");
    let url = format!("emulate:{device}:file://{}", directory.path().display());
    let backend = open_url(&url, &engine.options().store).expect("a directory");
    engine.store_of(Arc::new(Fault::new(backend, faults).expect("chances below one")))
}

fn mounted(store: &Store, dir: &Dir, complaints: &Arc<Mutex<Vec<String>>>) -> Mount {
    let complaints = Arc::clone(complaints);
    let listener = Box::new(move |path: &Path, told: Told<'_>| {
        let Told::Failed(error) = told else { return };
        let complaint = format!("{}: {error}", path.display());
        complaints.lock().expect("no panic holds it").push(complaint);
    });
    Mount::with_listener(store.clone(), dir.path(), MountOptions::default(), listener)
        .expect("mounts can be made here")
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bowwave_engine::backend::pattern::fill(1 << 40, seed << 30, &mut bytes);
    bytes
}

/// Runs shell commands in the mount; returns their output.
fn sh(at: &Path, script: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-ec", script]).current_dir(at).output().expect("there is a shell");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

#[test]
fn files_of_any_length_are_copied_in_and_out() {
    let Some(objects) = Objects::with("objects-cp", "8MiB", Faults::default()) else { return };
    let source = Directory::new("objects-cp-from");
    for len in [0, 1, 4095, 65_536, 5 << 20, (8 << 20) + 1, 100 << 20] {
        let (from, name) = (source.path().join("file"), format!("{len}"));
        let want = bytes(len, 3);
        fs::write(&from, &want).expect("writable");
        sh(objects.dir.path(), &format!("cp {} {name}; cmp {0} {name}", from.display())).expect("copied");
        assert!(objects.seen(&name).expect("published") == want, "{len} bytes");
        assert!(fs::read(objects.at(&name)).expect("readable") == want, "{len} bytes");
    }
    assert_eq!(objects.complaints(), [""; 0]);
}

#[test]
fn trees_of_small_files_are_created_and_removed() {
    let Some(objects) = Objects::new("objects-tree") else { return };
    let source = Directory::new("objects-tree-from");
    fs::create_dir_all(source.path().join("a/b")).expect("writable");
    for number in 0..150 {
        let place = ["", "a/", "a/b/"][number % 3];
        fs::write(source.path().join(format!("{place}{number}")), bytes(number * 31, number as u64))
            .expect("writable");
    }
    let from = source.path().display();
    let script = format!(
        "mkdir empty; cp -r {from} tree; diff -r {from} tree; tar -C {from} -cf - . | \
         tar --no-same-owner --no-same-permissions -m -xf - -C empty; diff -r {from} empty; mv tree moved; \
         diff -r {from} moved; rm -r moved empty; ls -A"
    );
    assert_eq!(sh(objects.dir.path(), &script).expect("all of it"), "");
    assert_eq!(
        fs::read_dir(objects.directory.path()).expect("readable").count(),
        1,
        "the directory of uploads"
    );
}

#[test]
fn close_and_fsync_publish_despite_inherited_descriptors() {
    let Some(objects) = Objects::new("objects-close") else { return };
    objects.make("x", b"old");
    let mut file = File::create(objects.at("x")).expect("can be made anew");
    file.write_all(b"new").expect("taken");
    assert_eq!(file.metadata().expect("open").len(), 3);
    assert_eq!(objects.seen("x").expect("there"), b"old");
    assert_eq!(fs::read(objects.at("x")).expect("the published version"), b"old");
    file.sync_all().expect("published");
    assert_eq!(objects.seen("x").expect("there"), b"new");
    file.write_all(b" and more").expect("taken");
    assert_eq!(objects.seen("x").expect("there"), b"new");
    drop(file);
    assert_eq!(objects.seen("x").expect("there"), b"new and more");
    assert_eq!(fs::read(objects.at("x")).expect("readable"), b"new and more");

    // Each program closes the descriptor it inherits; the shell owns the object.
    let beneath = objects.directory.path().join("y");
    let script = format!("(/bin/echo one; test ! -e {} && /bin/echo two) > y; cat y", beneath.display());
    assert_eq!(sh(objects.dir.path(), &script).expect("written"), "one\ntwo\n");
    assert_eq!(objects.seen("y").expect("published"), b"one\ntwo\n");
    let script = "/bin/echo three >> y; /bin/echo four >> y; cat y; : > y; touch z; test -f z; cat y z";
    assert_eq!(sh(objects.dir.path(), script).expect("written"), "one\ntwo\nthree\nfour\n");
    assert_eq!(objects.complaints(), [""; 0]);
}

#[test]
fn unsupported_operations_fail_with_a_reason() {
    let Some(objects) = Objects::new("objects-refused") else { return };
    objects.make("x", b"12345");
    let open = || OpenOptions::new().read(true).write(true).open(objects.at("x")).expect("is there");
    let file = open();
    assert_eq!(errno(file.write_at(b"x", 2)), UNSUPPORTED);
    assert!(objects.complaints()[0].contains("x: an object is written from front to back: 5 bytes"));
    assert_eq!(errno(file.set_len(2)), UNSUPPORTED);
    assert_eq!(errno(file.set_len(9)), UNSUPPORTED);
    file.set_len(5).expect("as it is");
    let mut read = [0; 5];
    file.read_exact_at(&mut read, 0).expect("nothing is being written");
    assert_eq!(&read, b"12345");
    file.write_at(b"6", 5).expect("at the end");
    assert_eq!(errno(file.read_at(&mut read, 0)), UNSUPPORTED);
    drop(file);
    assert_eq!(objects.seen("x").expect("published"), b"123456");
    assert_eq!(errno(fs::hard_link(objects.at("x"), objects.at("y"))), UNSUPPORTED);
    assert_eq!(errno(std::os::unix::fs::symlink("x", objects.at("y"))), UNSUPPORTED);
    for (what, works) in [
        ("chmod 644 x", true),
        ("chmod 600 x", false),
        ("touch -d 2001-02-03 x", false),
        ("truncate -s 0 x", true),
        ("truncate -s 0 x", true),
        ("truncate -s 9 x", false),
        ("dd if=/dev/zero of=y bs=64K count=40 2>/dev/null", true),
        ("dd if=/dev/zero of=y bs=4K count=1 seek=3 conv=notrunc 2>/dev/null", false),
    ] {
        assert_eq!(sh(objects.dir.path(), what).is_ok(), works, "{what}");
    }
    assert_eq!(objects.seen("y").expect("published").len(), 40 << 16);
    assert_eq!(objects.seen("x").expect("published"), b"");
}

#[test]
fn two_writers_of_one_file_leave_one_complete_version() {
    let Some(objects) = Objects::new("objects-two") else { return };
    let versions = [bytes(700_000, 1), bytes(500_001, 2)];
    for round in 0..10 {
        let wrote: Vec<bool> = thread::scope(|scope| {
            let objects = &objects;
            let writers: Vec<_> = versions
                .iter()
                .map(|version| {
                    scope.spawn(move || {
                        let Ok(mut file) = File::create(objects.at("x")) else { return false };
                        version.chunks(10_000).all(|piece| file.write_all(piece).is_ok())
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        let seen = objects.seen("x").expect("published");
        let which = versions.iter().position(|version| *version == seen);
        assert!(which.is_some_and(|which| wrote[which]), "round {round}: {} bytes, {wrote:?}", seen.len());
        assert!(fs::read(objects.at("x")).expect("readable") == seen);
    }
}

#[test]
fn names_change_while_a_file_is_written() {
    let Some(objects) = Objects::new("objects-names") else { return };
    let mut file = File::create(objects.at("x")).expect("made");
    file.write_all(&bytes(200_000, 1)).expect("taken");
    assert_eq!(errno(fs::rename(objects.at("x"), objects.at("y"))), BUSY);
    assert_eq!(errno(File::open(objects.at("x"))), BUSY);
    let listed: Vec<_> = fs::read_dir(objects.dir.path()).expect("a directory").collect();
    assert_eq!(listed.len(), 1, "what is being made is listed");
    fs::remove_file(objects.at("x")).expect("given up");
    file.write_all(b"to nowhere").expect("as in file systems");
    drop(file);
    assert_eq!(objects.seen("x"), None);

    objects.make("target", b"old");
    fs::write(objects.at("new"), b"new").expect("written");
    let mut writer = File::create(objects.at("target")).expect("begun");
    writer.write_all(&bytes(100_000, 1)).expect("taken");
    fs::rename(objects.at("new"), objects.at("target")).expect("renamed over");
    assert_eq!(fs::read(objects.at("target")).expect("readable"), b"new");
    drop(writer);
    assert_eq!(objects.seen("target").expect("there"), b"new");
    assert_eq!(objects.seen("new"), None);
    fs::create_dir(objects.at("directory")).expect("made");
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(objects.at("directory/x"));
    assert_eq!(errno(fs::remove_dir(objects.at("directory"))), 39);
    drop(made.expect("made"));
}

#[test]
fn a_reader_of_an_old_version_never_sees_other_bytes() {
    let Some(objects) = Objects::new("objects-versions") else { return };
    let (old, new) = (bytes(3_000_000, 1), bytes(3_000_000, 9));
    objects.make("x", &old);
    let mut reader = File::open(objects.at("x")).expect("is there");
    let mut got = vec![0; 1000];
    reader.read_exact(&mut got).expect("readable");
    fs::write(objects.at("x"), &new).expect("published");
    let mut rest = Vec::new();
    match reader.read_to_end(&mut rest) {
        Ok(_) => {
            let seen: Vec<u8> = got.iter().chain(&rest).copied().collect();
            assert!(old.starts_with(&seen), "{} bytes of no version", seen.len());
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(STALE)),
    }
    assert!(fs::read(objects.at("x")).expect("readable") == new);
    // A handle from before the publication reads the old version to its end.
    let mut writer = File::create(objects.at("x")).expect("begun");
    writer.write_all(&old).expect("taken");
    let mut between = File::open(objects.at("x")).expect("the published one");
    between.seek(SeekFrom::Start(100)).expect("seekable");
    let mut seen = vec![0; 100_000];
    between.read_exact(&mut seen).expect("readable");
    assert!(seen == new[100..100_100]);
    drop(writer);
    let read = between.read_exact(&mut seen);
    assert!(read.is_ok_and(|()| seen == new[100_100..200_100]) || errno(between.read(&mut seen)) == STALE);
    let last = fs::read(objects.at("x")).expect("readable");
    let differs = last.iter().zip(&old).position(|(is, should)| is != should);
    assert!(last == old, "{} bytes, others from {differs:?} on, {:?}", last.len(), objects.complaints());
}

#[test]
fn failures_reach_the_program_and_keep_the_old_object() {
    let writes = WriteFaults {
        errors: vec![(ErrorKind::NoSpace, 0.02), (ErrorKind::Unavailable, 0.05)],
        ..WriteFaults::default()
    };
    let Some(objects) =
        Objects::with("objects-faults", "64KiB", Faults { seed: 4, writes, ..Faults::default() })
    else {
        return;
    };
    let source = Directory::new("objects-faults-from");
    let (mut lost, mut kept, mut old) = (0, 0, None);
    for round in 0..60 {
        let want = bytes(40_000 * (1 + round % 50), round as u64);
        // cp checks the result of close.
        let written = if round % 2 == 0 {
            File::create(objects.at("x")).and_then(|mut file| {
                want.chunks(30_000).try_for_each(|piece| file.write_all(piece))?;
                file.sync_all()
            })
        } else {
            fs::write(source.path().join("x"), &want).expect("writable");
            let copied = sh(objects.dir.path(), &format!("cp {}/x x", source.path().display()));
            copied.map(drop).map_err(|said| {
                assert!(said.contains("No space left on device"), "{said}");
                std::io::Error::from_raw_os_error(28)
            })
        };
        let expected = if written.is_ok() { Some(&want) } else { old.as_ref() };
        let seen = objects.seen("x");
        assert!(seen.as_ref() == expected, "round {round}: {written:?}");
        if written.is_ok() {
            kept += 1;
            old = Some(want);
        } else {
            lost += 1;
            assert_eq!(errno(written), 28, "round {round}");
        }
        assert!(fs::read(objects.at("x")).ok() == old, "round {round}");
    }
    assert!(lost > 5 && kept > 5, "{lost} lost, {kept} kept");
}

#[test]
fn the_end_of_the_mount_publishes_only_closed_objects() {
    let Some(mut objects) = Objects::new("objects-end") else { return };
    fs::write(objects.at("closed"), bytes(300_000, 1)).expect("published");
    sh(objects.dir.path(), "touch empty; : > other").expect("made");
    let mut file = File::create(objects.at("open")).expect("made");
    file.write_all(&bytes(300_000, 2)).expect("taken");
    // A child has a descriptor until `exec` closes it.
    sh(Path::new("/"), "true").expect("it ends well");
    let ended = objects.mount.take().expect("mounted").unmount();
    let said = ended.expect_err("one is not written to its end").to_string();
    assert!(said.contains("was being written, and stays as it was: open"), "{said}");
    drop(file);
    assert_eq!(objects.seen("closed").map(|bytes| bytes.len()), Some(300_000));
    assert_eq!((objects.seen("empty"), objects.seen("other")), (Some(vec![]), Some(vec![])));
    assert_eq!(objects.seen("open"), None);
    let begun = std::time::Instant::now();
    while fs::read_dir(objects.directory.path().join(".bowwave-uploads"))
        .is_ok_and(|mut uploads| uploads.next().is_some())
    {
        assert!(begun.elapsed() < Duration::from_secs(30), "what was begun is given up");
        thread::sleep(Duration::from_millis(5));
    }
}
