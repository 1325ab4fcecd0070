//! Files, directories and links read through a real mount equal the tree, and errors have their
//! errno.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Dir, MODIFIED, Memory, pattern};
use bowwave_engine::backend::{Backend, Error, ErrorKind, MemoryBackend, Object};
use bowwave_engine::{Advice, Engine, Options};
use bowwave_fuse::{AdviceRequest, AdviceScope, KernelCache, Mount, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const SIZES: [usize; 6] = [0, 1, 4095, 4096, 4097, 1_000_000];

fn tree_of_sizes() -> Memory {
    let memory = Memory::new();
    memory.directory("a").directory("a/b").directory("a/b/empty");
    for (at, size) in SIZES.into_iter().enumerate() {
        memory.file(format!("{size}"), &pattern(size, at as u8));
        memory.file(format!("a/b/{size}"), &pattern(size, 100 + at as u8));
    }
    memory
}

fn both_caches() -> [MountOptions; 2] {
    [KernelCache::On, KernelCache::Off]
        .map(|kernel_cache| MountOptions { kernel_cache, ..MountOptions::default() })
}

#[test]
fn every_byte_equals_the_source_with_and_without_the_kernels_cache() {
    for options in both_caches() {
        let (Some(dir), memory) = (Dir::new("bytes"), tree_of_sizes()) else { return };
        let _mount = memory.mount_with(&dir, options);
        for (at, size) in SIZES.into_iter().enumerate() {
            for (path, seed) in [(format!("{size}"), at), (format!("a/b/{size}"), 100 + at)] {
                let path = dir.path().join(path);
                let want = pattern(size, seed as u8);
                assert!(fs::read(&path).expect("readable") == want, "{}", path.display());
                let metadata = fs::metadata(&path).expect("there");
                assert_eq!((metadata.len(), metadata.blocks()), (size as u64, size.div_ceil(512) as u64));
                // Odd offsets, including one past the end.
                let file = File::open(&path).expect("readable");
                for offset in [1, 4095, 4097, 77_777, size] {
                    let mut got = vec![0; 5000];
                    let count = file.read_at(&mut got, offset as u64).expect("readable");
                    let rest = want.get(offset..).unwrap_or_default();
                    assert!(got[..count] == rest[..rest.len().min(5000)], "{} at {offset}", path.display());
                }
            }
        }
    }
}

#[test]
fn seek_end_and_read_to_end_work() {
    let (Some(dir), memory) = (Dir::new("seek"), tree_of_sizes()) else { return };
    let _mount = memory.mount(&dir);
    let mut file = File::open(dir.path().join("1000000")).expect("readable");
    assert_eq!(file.seek(SeekFrom::End(-3)).expect("seekable"), 999_997);
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).expect("readable");
    assert_eq!(tail, pattern(1_000_000, 5)[999_997..]);
}

#[test]
fn memory_maps_show_the_source() {
    for options in both_caches() {
        let (Some(dir), memory) = (Dir::new("mmap"), tree_of_sizes()) else { return };
        let _mount = memory.mount_with(&dir, options);
        let file = File::open(dir.path().join("1000000")).expect("readable");
        assert!(mapped(&file, 1_000_000) == pattern(1_000_000, 5));
    }
}

/// Reads a file through a memory map, last page first.
#[expect(unsafe_code, reason = "a memory map has no safe interface")]
fn mapped(file: &File, len: usize) -> Vec<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let mut bytes = vec![0; len];
    // SAFETY: a new mapping at an address chosen by the kernel, of a file that does not change,
    // read within its length and unmapped once.
    unsafe {
        let base =
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, 0).expect("mappable");
        let map = std::slice::from_raw_parts(base.cast::<u8>(), len);
        for start in (0..len).step_by(4096).collect::<Vec<_>>().into_iter().rev() {
            let end = (start + 4096).min(len);
            bytes[start..end].copy_from_slice(&map[start..end]);
        }
        munmap(base, len).expect("mapped above");
    }
    bytes
}

#[test]
fn sixteen_concurrent_readers_get_every_byte() {
    let (Some(dir), memory) = (Dir::new("sixteen"), Memory::new()) else { return };
    for file in 0..4u8 {
        memory.file(format!("{file}"), &pattern(3_000_000, file));
    }
    let _mount = memory.mount(&dir);
    thread::scope(|scope| {
        for reader in 0..16u8 {
            let path = dir.path().join(format!("{}", reader % 4));
            scope.spawn(move || assert!(fs::read(path).expect("readable") == pattern(3_000_000, reader % 4)));
        }
    });
}

#[test]
fn requests_max_reads_are_served_concurrently() {
    let (Some(dir), memory) = (Dir::new("at-once"), Memory::new()) else { return };
    for file in 0..40 {
        memory.file(format!("{file}"), b"x");
    }
    let _mount = memory.mount(&dir);
    let gate = memory.close_gate();
    thread::scope(|scope| {
        for file in 0..40 {
            let path = dir.path().join(format!("{file}"));
            scope.spawn(move || assert_eq!(fs::read(path).expect("readable"), b"x"));
        }
        // No read passes before all have arrived.
        gate.await_arrivals(40);
        memory.remove_gate();
        gate.open(40);
    });
}

#[test]
fn directories_list_thousands_of_names_and_non_utf8() {
    let (Some(dir), memory) = (Dir::new("names"), Memory::new()) else { return };
    let odd = PathBuf::from(OsStr::from_bytes(b"odd \xff\xfe name"));
    memory.file(&odd, b"odd").directory("many").directory("none").link("to", &odd);
    let want: BTreeSet<_> = (0..10_000).map(|at| format!("file-{at:05}")).collect();
    for name in &want {
        memory.file(Path::new("many").join(name), name.as_bytes());
    }
    let _mount = memory.mount(&dir);
    let names = |path: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir.path().join(path)).expect("a directory");
        entries.map(|entry| entry.expect("listed").file_name().into()).collect()
    };
    let many = names("many");
    assert_eq!(many.len(), want.len(), "no name twice");
    assert!(many.iter().all(|name| want.contains(name.to_str().expect("ASCII"))));
    assert!(names("none").is_empty());
    assert!(names("").contains(&odd));
    assert_eq!(fs::read(dir.path().join(&odd)).expect("readable"), b"odd");
    assert_eq!(fs::read(dir.path().join("to")).expect("readable"), b"odd");
    assert_eq!(fs::read_link(dir.path().join("to")).expect("a link"), odd);
    assert_eq!(fs::read(dir.path().join("many/file-07777")).expect("readable"), b"file-07777");
    // A listing and a stat report the same attributes.
    for entry in fs::read_dir(dir.path()).expect("a directory") {
        let entry = entry.expect("listed");
        let metadata = fs::symlink_metadata(entry.path()).expect("there");
        assert_eq!(entry.file_type().expect("known"), metadata.file_type());
    }
}

#[test]
fn stat_returns_the_attributes_of_the_tree() {
    let (Some(dir), memory) = (Dir::new("attributes"), tree_of_sizes()) else { return };
    let _mount = memory.mount(&dir);
    let file = fs::metadata(dir.path().join("4097")).expect("there");
    let directory = fs::metadata(dir.path().join("a")).expect("there");
    assert_eq!((file.permissions().mode() & 0o7777, directory.permissions().mode() & 0o7777), (0o644, 0o755));
    assert_eq!(
        (file.uid(), file.gid()),
        (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
    );
    assert_eq!(file.modified().expect("known"), SystemTime::UNIX_EPOCH + MODIFIED);
    let statfs = rustix::fs::statvfs(dir.path()).expect("mounted");
    assert_eq!((statfs.f_blocks * statfs.f_frsize, statfs.f_bavail, statfs.f_namemax), (8192, 0, 255));
    let table = fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    let line =
        table.lines().find(|line| line.contains(dir.path().to_str().expect("ASCII"))).expect("mounted");
    assert!(line.contains(" - fuse.bowwave memory://test/only\\040file.bin ro,"), "{line}");
}

#[test]
fn a_single_object_is_a_directory_with_one_file() {
    let (Some(dir), memory) = (Dir::new("single"), Memory::single(b"all there is")) else { return };
    let _mount = memory.mount(&dir);
    let names: Vec<_> = fs::read_dir(dir.path())
        .expect("a directory")
        .map(|entry| entry.expect("listed").file_name())
        .collect();
    assert_eq!(names, ["only file.bin"]);
    assert_eq!(fs::read(dir.path().join("only file.bin")).expect("readable"), b"all there is");
    assert_eq!(fs::read(dir.path().join("other")).expect_err("absent").kind(), IoErrorKind::NotFound);
}

/// A store without a namespace: a name is what opens.
#[derive(Debug)]
struct Nameless(MemoryBackend);

impl Backend for Nameless {
    fn url(&self) -> &str {
        "nameless:"
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>, Error> {
        self.0.open(path)
    }
}

#[test]
fn a_store_without_a_namespace_is_read_by_name() {
    let (Some(dir), memory) = (Dir::new("nameless"), MemoryBackend::new()) else { return };
    memory.insert("directory/object", b"bytes".to_vec());
    let engine = Engine::new(Options::default()).expect("there is memory");
    let store = engine.store_of(Arc::new(Nameless(memory)));
    let mount = Mount::new(store, dir.path(), MountOptions::default()).expect("mounts can be made here");
    assert!(mount.is_read_only());
    let at = |path: &str| dir.path().join(path);
    assert_eq!(fs::read(at("directory/object")).expect("there"), b"bytes");
    assert_eq!(fs::metadata(at("directory/object")).expect("there").len(), 5);
    assert!(fs::metadata(at("directory")).expect("there").is_dir());
    assert_eq!(fs::read(at("directory/other")).expect_err("absent").kind(), IoErrorKind::NotFound);
    let listed = fs::read_dir(at("directory")).and_then(|mut entries| entries.next().expect("an answer"));
    assert_eq!(Errno::from_io_error(&listed.expect_err("it cannot list")), Some(Errno::NOTSUP));
}

#[test]
fn changes_fail_as_read_only() {
    let (Some(dir), memory) = (Dir::new("read-only"), tree_of_sizes()) else { return };
    let _mount = memory.mount(&dir);
    let (file, new) = (dir.path().join("1"), dir.path().join("new"));
    let attempts: [(&str, std::io::Result<()>); 8] = [
        ("create", File::create(&new).map(drop)),
        ("write", OpenOptions::new().write(true).open(&file).map(drop)),
        ("mkdir", fs::create_dir(&new)),
        ("remove", fs::remove_file(&file)),
        ("rmdir", fs::remove_dir(dir.path().join("a/b/empty"))),
        ("rename", fs::rename(&file, &new)),
        ("link", fs::hard_link(&file, &new)),
        ("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o777))),
    ];
    for (what, result) in attempts {
        assert_eq!(result.expect_err(what).kind(), IoErrorKind::ReadOnlyFilesystem, "{what}");
    }
}

#[test]
fn missing_names_and_wrong_kinds_have_their_errno() {
    let (Some(dir), memory) = (Dir::new("kinds"), tree_of_sizes()) else { return };
    let _mount = memory.mount_with(&dir, MountOptions::default());
    let read = |path: &str| fs::read(dir.path().join(path)).expect_err(path).kind();
    assert_eq!(read("absent"), IoErrorKind::NotFound);
    assert_eq!(read("absent/deeper"), IoErrorKind::NotFound);
    assert_eq!(read("a"), IoErrorKind::IsADirectory);
    assert_eq!(read("1/deeper"), IoErrorKind::NotADirectory);
    let listed = fs::read_dir(dir.path().join("1")).expect_err("a file");
    assert_eq!(listed.kind(), IoErrorKind::NotADirectory);
    assert_eq!(memory.complaints(), Vec::<String>::new(), "these are everyday answers");
}

#[test]
fn store_errors_reach_the_reader_as_errno_and_the_listener_as_text() {
    for options in both_caches() {
        let (Some(dir), memory) = (Dir::new("errors"), tree_of_sizes()) else { return };
        let _mount = memory.mount_with(&dir, options);
        for (kind, errno) in [
            (ErrorKind::Io, Errno::IO),
            (ErrorKind::Truncated, Errno::IO),
            (ErrorKind::Throttled, Errno::IO),
            (ErrorKind::TimedOut, Errno::TIMEDOUT),
            (ErrorKind::PermissionDenied, Errno::ACCESS),
            (ErrorKind::Unauthenticated, Errno::ACCESS),
        ] {
            memory.fail(Some(kind));
            let error = fs::read(dir.path().join("1000000")).expect_err("fails");
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{kind:?}");
        }
        assert!(memory.complaints().contains(&"1000000: as the test wants".to_owned()));
        // The failure leaves no stale state.
        memory.fail(None);
        assert!(fs::read(dir.path().join("1000000")).expect("readable again") == pattern(1_000_000, 5));
    }
}

#[test]
fn extended_attributes_are_unsupported() {
    let (Some(dir), memory) = (Dir::new("xattr"), tree_of_sizes()) else { return };
    let _mount = memory.mount(&dir);
    let error = rustix::fs::getxattr(dir.path().join("1"), "user.x", &mut [0u8; 8]).expect_err("none");
    assert_eq!(error, Errno::NOTSUP);
}

#[test]
fn advice_of_a_descriptor_and_of_a_file_reach_the_mount() {
    let policy = bowwave_engine::Policy::OnDemand;
    let options = Options { cache_bytes: Some(64 << 20), policy, ..Options::default() };
    let engine = Engine::new(options).expect("there is memory");
    let Some(dir) = Dir::new("advice") else { return };
    let options = MountOptions { kernel_cache: KernelCache::Off, ..MountOptions::default() };
    let mount = Mount::new(engine.store("pattern:/").expect("a store"), dir.path(), options);
    let _mount = mount.expect("mounts can be made here");
    let open = || File::open(dir.path().join("33554432")).expect("readable");
    let mut at = 0;
    let mut read_ahead = |file: &File| {
        let before = engine.stats().cache.pages_readahead;
        at += 2 << 20;
        for page in 0..4 {
            file.read_exact_at(&mut [0; 4096], at + page * 4096).expect("readable");
        }
        engine.stats().cache.pages_readahead - before
    };
    let advise = |file: &File, advice, scope| {
        let request = AdviceRequest { offset: 0, len: 0, advice, scope };
        bowwave_fuse::advise(file, request)
    };
    let (first, second) = (open(), open());
    assert!(read_ahead(&first) > 0 && read_ahead(&second) > 0);
    advise(&first, Advice::Random, AdviceScope::Handle).expect("advice");
    assert_eq!(read_ahead(&first), 0);
    assert!(read_ahead(&second) > 0, "it is for the descriptor alone");
    advise(&first, Advice::Random, AdviceScope::File).expect("advice");
    assert_eq!((read_ahead(&second), read_ahead(&open())), (0, 0), "it is for later descriptors, too");
    advise(&first, Advice::Normal, AdviceScope::File).expect("advice");
    assert!(read_ahead(&second) > 0 && read_ahead(&open()) > 0);

    let range =
        AdviceRequest { offset: 24 << 20, len: 64 << 10, advice: Advice::WillNeed, scope: AdviceScope::File };
    let hits = || engine.stats().cache.hits + engine.stats().cache.late;
    bowwave_fuse::advise(&first, range).expect("advice");
    let before = hits();
    first.read_exact_at(&mut [0; 64 << 10], 24 << 20).expect("readable");
    assert_eq!(hits() - before, 16, "all of it was requested before");
    bowwave_fuse::advise(&first, AdviceRequest { advice: Advice::DontNeed, ..range }).expect("advice");
    let misses = engine.stats().cache.misses;
    first.read_exact_at(&mut [0; 4096], 24 << 20).expect("readable");
    assert_eq!(engine.stats().cache.misses - misses, 1, "it was dropped");

    let elsewhere = File::open("/proc/self/exe").expect("it runs");
    let refused = bowwave_fuse::advise(&elsewhere, range).expect_err("no mount of ours");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOTTY));
}

#[test]
fn pages_that_the_kernel_has_leave_the_cache() {
    const LEN: usize = 8 << 20;
    for (kernel_cache, direct) in
        [(KernelCache::On, false), (KernelCache::On, true), (KernelCache::Off, false)]
    {
        let options = Options { cache_bytes: Some(64 << 20), ..Options::default() };
        let engine = Engine::new(options).expect("there is memory");
        let Some(dir) = Dir::new("one-copy") else { return };
        let options = MountOptions { kernel_cache, ..MountOptions::default() };
        let mount = Mount::new(engine.store("pattern:/").expect("a store"), dir.path(), options);
        let _mount = mount.expect("mounts can be made here");
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let path = dir.path().join(LEN.to_string());
        let file = File::from(rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty()).expect("opens"));
        let mut bytes = vec![0; LEN];
        file.read_exact_at(&mut bytes, 0).expect("readable");
        let fetched = engine.stats().store.bytes_fetched;
        let mut again = vec![0; LEN];
        file.read_exact_at(&mut again, 0).expect("readable");
        assert!(bytes == again, "the same bytes");
        assert_eq!(engine.stats().store.bytes_fetched, fetched, "one of the caches has them");
        let kept = || engine.stats().frames_used;
        if kernel_cache == KernelCache::Off || direct {
            assert_eq!(kept(), LEN as u64 / 4096, "{kernel_cache:?}, direct: {direct}");
        } else {
            // The last pages are dropped after their reply.
            let until = Instant::now() + Duration::from_secs(10);
            while kept() > 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(kept(), 0, "the kernel has them");
        }
    }
}

#[test]
fn ordinary_programs_work() {
    let (Some(dir), memory) = (Dir::new("programs"), tree_of_sizes()) else { return };
    let _mount =
        memory.mount_with(&dir, MountOptions { ttl: Duration::from_secs(60), ..MountOptions::default() });
    let run = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).current_dir(dir.path()).output().expect("installed");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(run("find", &[".", "-type", "f"]).lines().count(), 2 * SIZES.len());
    assert_eq!(run("du", &["-sb", "--apparent-size", "a/b"]).split('\t').next(), Some("1012289"));
    assert!(run("ls", &["-lR", "."]).contains("-rw-r--r--"));
    assert!(run("wc", &["-c", "1000000"]).starts_with("1000000 "));
    run("cmp", &["4096", "4096"]);
}
