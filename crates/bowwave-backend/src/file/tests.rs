//! Local files: the contract with either carrier, and features of file systems and the kernel.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use bowwave_testkit::is_root;

use crate::conformance::{self, Fixture};
use crate::{
    Allocate, EntryKind, Owner, ReadBuf, Rename, SetAttributes, SetXattr, WriteBuf, chance, read_exact,
    read_once, start_read, write_exact, write_once,
};

fn directory() -> tempfile::TempDir {
    // In the crate's directory, which is on a disk; /tmp is often a tmpfs.
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("the directory is writable")
}

struct Directory {
    root: tempfile::TempDir,
    io: FileIo,
    direct: bool,
}

impl Directory {
    fn new(io: FileIo, direct: bool) -> Self {
        Self { root: directory(), io, direct }
    }

    fn open(&self) -> FileBackend {
        FileBackend::open(self.root.path(), self.io, self.direct, None).expect("the directory is there")
    }
}

impl Fixture for Directory {
    fn put(&self, path: &str, bytes: &[u8]) {
        let place = self.root.path().join(path);
        fs::create_dir_all(place.parent().expect("below the root")).unwrap();
        // In place, so that inode and descriptor stay: the change must show by time or size alone.
        let before = fs::metadata(&place).and_then(|metadata| metadata.modified()).ok();
        fs::write(&place, bytes).unwrap();
        if let Some(before) = before {
            let file = File::options().write(true).open(&place).unwrap();
            file.set_modified(before + Duration::from_nanos(1)).unwrap();
        }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.open())
    }
}

#[test]
fn a_ring_conforms_with_and_without_direct_io_or_says_how_to_do_without() {
    let direct = Directory::new(FileIo::Ring, true);
    match FileBackend::open(direct.root.path(), FileIo::Ring, true, None) {
        Ok(_) => {
            conformance::run(&direct);
            conformance::run(&Directory::new(FileIo::Ring, false));
        }
        // Some kernels and containers have no ring; then it must not be required.
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("FileIo::Auto"), "{error}");
            conformance::run(&Directory::new(FileIo::Auto, true));
        }
    }
}

#[test]
fn more_reads_than_slots_wait() {
    for io in [FileIo::Auto, FileIo::Threads] {
        let directory = Directory::new(io, true);
        let bytes: Vec<u8> = (0..500_000u32).map(|index| (index / 3) as u8).collect();
        directory.put("file", &bytes);
        let store = FileBackend::open(directory.root.path(), io, true, Some(2)).unwrap();
        assert_eq!(store.profile().slots, 2);
        let object = store.open("file".as_ref()).unwrap();
        let reads: Vec<_> =
            (0..300u64).map(|i| (i * 1600, start_read(&*object, i * 1600, ReadBuf::zeroed(1600)))).collect();
        for (offset, heard) in reads {
            let offset = usize::try_from(offset).unwrap();
            assert!(heard.iter().any(|heard| matches!(heard, crate::Heard::Done(buf, Ok(1600))
                if buf.to_vec() == bytes[offset..offset + 1600])));
        }
    }
}

#[test]
fn threads_conform_with_and_without_direct_io() {
    conformance::run(&Directory::new(FileIo::Threads, true));
    conformance::run(&Directory::new(FileIo::Threads, false));
}

#[test]
fn aligned_reads_are_direct_and_other_reads_are_correct() {
    let directory = Directory::new(FileIo::Auto, true);
    let bytes: Vec<u8> = (0..100_000u32).map(|index| (index / 7) as u8).collect();
    directory.put("file", &bytes);
    let file = OpenFile::read(&directory.open().root, "file".as_ref(), true).unwrap();
    let pages = aligned(28);
    if file.direct.is_some() {
        assert!(file.descriptor(4096, pages.is_aligned(4096)).1, "aligned");
        assert!(!file.descriptor(4095, pages.is_aligned(4096)).1, "odd offset");
        assert!(!file.descriptor(4096, ReadBuf::zeroed(4000).is_aligned(4096)).1, "odd length");
    }
    let object = directory.open().open("file".as_ref()).unwrap();
    let heard = start_read(&*object, 4096, pages);
    let end = heard.iter().find_map(|heard| match heard {
        crate::Heard::Done(buf, result) => Some((buf, result)),
        _ => None,
    });
    let (buf, result) = end.expect("each read ends");
    assert_eq!(result.unwrap(), 100_000 - 4096);
    assert!(buf.to_vec()[..100_000 - 4096] == bytes[4096..]);
}

#[test]
fn links_odd_names_and_special_files_are_listed_as_they_are() {
    let directory = Directory::new(FileIo::Auto, true);
    directory.put("file", b"bytes");
    let odd = OsStr::from_bytes(b"odd\xff\xfe");
    fs::write(directory.root.path().join(odd), b"odd").unwrap();
    symlink("file", directory.root.path().join("link")).unwrap();
    symlink("nowhere", directory.root.path().join("broken")).unwrap();
    let _socket = UnixListener::bind(directory.root.path().join("socket")).unwrap();
    let store = directory.open();
    let names: Vec<_> = store.list("".as_ref()).unwrap().into_iter().map(|e| (e.name, e.kind)).collect();
    let wanted = [
        (OsStr::new("broken"), EntryKind::Link),
        (OsStr::new("file"), EntryKind::File),
        (OsStr::new("link"), EntryKind::Link),
        (odd, EntryKind::File),
        (OsStr::new("socket"), EntryKind::Socket),
    ];
    assert_eq!(names, wanted.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(store.stat("link".as_ref()).unwrap().kind, EntryKind::Link);
    assert_eq!(store.read_link("link".as_ref()).unwrap(), Path::new("file"));
    assert_eq!(store.read_link("file".as_ref()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(store.open("broken".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.open("socket".as_ref()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(store.stat("socket".as_ref()).unwrap().kind, EntryKind::Socket);
    assert_eq!(read_exact(&*store.open("link".as_ref()).unwrap(), 0, 9, PATIENCE).unwrap(), b"bytes");
    assert_eq!(read_exact(&*store.open(odd.as_ref()).unwrap(), 0, 9, PATIENCE).unwrap(), b"odd");
}

#[test]
fn opening_a_fifo_fails_and_does_not_wait() {
    let directory = directory();
    let store = store(directory.path());
    store.create_node("fifo".as_ref(), EntryKind::Fifo, 0o644, 0, None).unwrap();
    let truncate = OpenWrite { truncate: true, ..create(0o644) };
    let root = FileBackend::open(directory.path().join("fifo"), FileIo::Auto, true, None);
    for error in [
        store.open("fifo".as_ref()).map(drop).unwrap_err(),
        store.open_write("fifo".as_ref(), &truncate).map(drop).unwrap_err(),
        root.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_file_that_shrinks_or_is_replaced_has_changed() {
    let directory = Directory::new(FileIo::Auto, true);
    directory.put("file", &[1; 9000]);
    let store = directory.open();
    let object = store.open("file".as_ref()).unwrap();
    File::options().write(true).open(directory.root.path().join("file")).unwrap().set_len(10).unwrap();
    let error = read_once(&*object, 0, 9000, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[test]
fn sparse_files_beyond_4_gib_are_read_at_any_offset() {
    let directory = Directory::new(FileIo::Auto, true);
    let file = File::create(directory.root.path().join("sparse")).unwrap();
    file.set_len(5_000_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 4_999_999_997).unwrap();
    let object = directory.open().open("sparse".as_ref()).unwrap();
    let tail = read_exact(&*object, 4_999_999_990, 100, PATIENCE).unwrap();
    assert_eq!(tail, b"\0\0\0\0\0\0\0end");
}

/// A buffer of `pages` aligned pages.
fn aligned(pages: usize) -> ReadBuf {
    let mut buf = ReadBuf::zeroed((pages + 1) * 4096);
    let base = buf.segments()[0].iov_base.addr();
    let mut inner = buf.split_off(base.next_multiple_of(4096) - base);
    drop(inner.split_off(pages * 4096));
    assert!(inner.is_aligned(4096));
    inner
}

const PATIENCE: Duration = Duration::from_secs(20);

fn store(root: &Path) -> FileBackend {
    FileBackend::open(root, FileIo::Auto, true, None).expect("the directory is there")
}

fn create(mode: u32) -> OpenWrite {
    OpenWrite { create: true, mode, ..OpenWrite::default() }
}

#[test]
fn links_that_lead_outside_are_not_followed_by_any_call() {
    let (directory, outside) = (directory(), directory());
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    fs::create_dir(directory.path().join("in")).unwrap();
    fs::write(directory.path().join("in/file"), b"inside").unwrap();
    symlink(outside.path(), directory.path().join("absolute")).unwrap();
    let up = Path::new("..").join(outside.path().file_name().unwrap());
    symlink(&up, directory.path().join("relative")).unwrap();
    symlink("/proc/self/root", directory.path().join("magic")).unwrap();
    symlink(outside.path().join("secret"), directory.path().join("last")).unwrap();
    symlink("in", directory.path().join("inside")).unwrap();
    let store = store(directory.path());
    for way in ["absolute", "relative", "magic"] {
        let path = Path::new(way).join("secret");
        for error in [
            store.open(&path).map(drop).unwrap_err(),
            store.stat(&path).map(drop).unwrap_err(),
            store.list(way.as_ref()).map(drop).unwrap_err(),
            store.open_write(&path, &create(0o644)).map(drop).unwrap_err(),
            store.remove_file(&path).unwrap_err(),
            store.create_directory(&Path::new(way).join("new"), 0o755, None).unwrap_err(),
            store.rename("in/file".as_ref(), &path, Rename::Replace).unwrap_err(),
            store.link("in/file".as_ref(), &Path::new(way).join("new")).unwrap_err(),
            store.sync_directory(way.as_ref()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::CrossDevice, "{way}: {error}");
            assert!(error.to_string().contains("leads out of the store"), "{way}: {error}");
        }
    }
    assert_eq!(store.open("last".as_ref()).map(drop).unwrap_err().kind(), ErrorKind::CrossDevice);
    // Never followed, so where they lead does not matter.
    assert_eq!(store.open_write("last".as_ref(), &create(0o644)).unwrap_err().errno(), Some(libc::ELOOP));
    store.set_attributes("last".as_ref(), &SetAttributes { uid: None, ..SetAttributes::default() }).unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    assert_eq!(store.set_attributes("last".as_ref(), &mode).unwrap_err().errno(), Some(libc::EOPNOTSUPP));
    store.remove_file("last".as_ref()).unwrap();
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let inside = store.open("inside/file".as_ref()).unwrap();
    assert_eq!(read_once(&*inside, 0, 9, PATIENCE).unwrap(), b"inside", "links that stay inside are fine");
}

#[test]
fn the_directory_is_held_by_handle_not_by_name() {
    let directory = directory();
    let (here, there) = (directory.path().join("here"), directory.path().join("there"));
    fs::create_dir(&here).unwrap();
    let store = store(&here);
    fs::rename(&here, &there).unwrap();
    fs::create_dir(&here).unwrap();
    write_exact(&*store.open_write("x".as_ref(), &create(0o644)).unwrap(), 0, b"x", PATIENCE).unwrap();
    assert!(there.join("x").exists() && !here.join("x").exists());
}

#[test]
fn a_created_entry_belongs_to_its_requested_owner() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let store = store(directory.path());
    let owner = Some(Owner { uid: 12_345, gid: 23_456 });
    // Only root can access the directory: the mount has checked the permissions.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    store.open_write("file".as_ref(), &OpenWrite { owner, ..create(0o400) }).unwrap();
    store.create_directory("directory".as_ref(), 0o755, owner).unwrap();
    store.symlink("x".as_ref(), "link".as_ref(), owner).unwrap();
    store.create_node("fifo".as_ref(), EntryKind::Fifo, 0o644, 0, owner).unwrap();
    // Device 1:3 is what /dev/null is.
    let null = rustix::fs::makedev(1, 3);
    store.create_node("null".as_ref(), EntryKind::CharDevice, 0o644, null, owner).unwrap();
    for name in ["file", "directory", "link", "fifo", "null"] {
        let unix = store.stat(name.as_ref()).unwrap().unix.unwrap();
        assert_eq!((unix.uid, unix.gid), (12_345, 23_456), "{name}");
    }
    assert_eq!(store.stat("null".as_ref()).unwrap().unix.unwrap().special_device, null);
    store.open_write("ours".as_ref(), &create(0o644)).unwrap();
    let ours = fs::metadata(directory.path().join("ours")).unwrap();
    assert_eq!((ours.uid(), ours.gid()), (0, rustix::process::getegid().as_raw()), "as before");
    let give = SetAttributes { uid: Some(7), gid: Some(8), ..SetAttributes::default() };
    store.set_attributes("link".as_ref(), &give).unwrap();
    let unix = store.stat("link".as_ref()).unwrap().unix.unwrap();
    assert_eq!((unix.uid, unix.gid), (7, 8), "the link itself");
}

#[test]
fn entries_of_a_set_group_id_directory_get_its_group() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let store = store(directory.path());
    store.create_directory("shared".as_ref(), 0o755, Some(Owner { uid: 0, gid: 555 })).unwrap();
    let set = SetAttributes { mode: Some(0o2775), ..SetAttributes::default() };
    store.set_attributes("shared".as_ref(), &set).unwrap();
    let owner = Some(Owner { uid: 12_345, gid: 23_456 });
    store.open_write("shared/file".as_ref(), &OpenWrite { owner, ..create(0o2770) }).unwrap();
    store.create_directory("shared/directory".as_ref(), 0o755, owner).unwrap();
    let look = |name: &str| {
        let entry = store.stat(Path::new(name)).unwrap();
        let unix = entry.unix.unwrap();
        (unix.uid, unix.gid, entry.mode.unwrap())
    };
    assert_eq!(look("shared/directory"), (12_345, 555, 0o2755), "and the bit with it");
    assert_eq!(look("shared/file"), (12_345, 555, 0o770), "no set-group-id for an owner outside the group");
}

#[test]
fn the_kernels_own_error_numbers_come_through() {
    let directory = directory();
    let store = store(directory.path());
    store.create_directory("d".as_ref(), 0o755, None).unwrap();
    store.open_write("d/f".as_ref(), &create(0o644)).unwrap();
    let long = "n".repeat(256);
    let replace = Rename::Replace;
    for (error, errno) in [
        (store.stat("none".as_ref()).unwrap_err(), libc::ENOENT),
        (store.remove_directory("d".as_ref()).unwrap_err(), libc::ENOTEMPTY),
        (store.remove_file("d".as_ref()).unwrap_err(), libc::EISDIR),
        (store.create_directory("d".as_ref(), 0o755, None).unwrap_err(), libc::EEXIST),
        (store.create_directory(long.as_ref(), 0o755, None).unwrap_err(), libc::ENAMETOOLONG),
        (store.rename("d".as_ref(), "d/f/x".as_ref(), replace).unwrap_err(), libc::ENOTDIR),
        (store.rename("d".as_ref(), "d/x".as_ref(), replace).unwrap_err(), libc::EINVAL),
        (store.link("d".as_ref(), "e".as_ref()).unwrap_err(), libc::EPERM),
        (store.remove_directory("".as_ref()).unwrap_err(), libc::EBUSY),
        (store.xattr("d".as_ref(), "user.none".as_ref()).unwrap_err(), libc::ENODATA),
        (store.open("d".as_ref()).unwrap_err(), libc::EISDIR),
    ] {
        assert_eq!(error.errno(), Some(errno), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

/// On a full file system of its own; needs root. Writes that do not fit fail, and earlier bytes
/// stay.
#[test]
fn a_full_file_system_returns_no_space() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "bowwave-test"])
        .arg(directory.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return bowwave_testkit::skipped("a tmpfs cannot be mounted here");
    }
    let (store, place) = (store(directory.path()), directory.path().to_owned());
    let unmount = Unmount(place);
    let object = store.open_write("big".as_ref(), &create(0o644)).unwrap();
    let error = write_exact(&*object, 0, &vec![7; 2 << 20], PATIENCE).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NoSpace, Some(libc::ENOSPC)), "{error}");
    let room = store.statfs().unwrap();
    assert_eq!((room.blocks * room.block_bytes, room.blocks_available), (1 << 20, 0));
    let reserve = Allocate::Reserve { keep_size: false };
    assert_eq!(object.allocate(0, 2 << 20, reserve).unwrap_err().kind(), ErrorKind::NoSpace);
    object.set_len(4096).unwrap();
    write_exact(&*object, 4096, b"fits", PATIENCE).unwrap();
    drop((object, store, unmount));
}

/// Unmounts the file system on drop.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn directories_deeper_than_path_max_are_reached() {
    let directory = directory();
    let store = store(directory.path());
    let part = "d".repeat(200);
    let mut path = PathBuf::new();
    for _ in 0..30 {
        path.push(&part);
        store.create_directory(&path, 0o755, None).unwrap();
    }
    let file = path.join("file");
    write_exact(&*store.open_write(&file, &create(0o644)).unwrap(), 0, b"deep", PATIENCE).unwrap();
    assert_eq!(read_once(&*store.open(&file).unwrap(), 0, 9, PATIENCE).unwrap(), b"deep");
    assert_eq!(store.list(&path).unwrap().len(), 1);
    store.remove_file(&file).unwrap();
    while path.pop() && !path.as_os_str().is_empty() {
        store.remove_directory(&path.join(&part)).unwrap();
    }
}

#[test]
fn a_file_as_root_is_a_store_of_one_object() {
    let directory = directory();
    fs::write(directory.path().join("file"), b"bytes").unwrap();
    let store = store(&directory.path().join("file"));
    assert_eq!(store.stat("".as_ref()).unwrap().kind, EntryKind::File);
    assert_eq!(store.open("".as_ref()).unwrap().size(), 5);
    assert_eq!(store.list("".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(store.open("file".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
    let object = store.open_write("".as_ref(), &OpenWrite::default()).unwrap();
    write_exact(&*object, 5, b" more", PATIENCE).unwrap();
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"bytes more");
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    store.set_attributes("".as_ref(), &mode).unwrap();
    assert_eq!(store.stat("".as_ref()).unwrap().mode, Some(0o600));
    let below = store.open_write("x".as_ref(), &create(0o644)).unwrap_err();
    assert_eq!(below.errno(), Some(libc::ENOTDIR));
    assert_eq!(store.remove_file("".as_ref()).unwrap_err().errno(), Some(libc::EBUSY));
}

#[test]
fn a_reader_opened_before_a_write_fails_as_changed() {
    let directory = directory();
    fs::write(directory.path().join("file"), [1; 9000]).unwrap();
    let store = store(directory.path());
    let before = store.open("file".as_ref()).unwrap();
    let object = store.open_write("file".as_ref(), &OpenWrite::default()).unwrap();
    write_exact(&*object, 9000, b"longer", PATIENCE).unwrap();
    assert_eq!(read_once(&*before, 0, 10, PATIENCE).unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(read_once(&*object, 8999, 10, PATIENCE).unwrap(), b"\x01longer");
}

/// Direct reads beside buffered writes of the same blocks, on many threads: each read sees writes
/// that ended before it began.
#[test]
fn direct_reads_see_buffered_writes_that_ended_before() {
    let directory = directory();
    let store = store(directory.path());
    let object = store.open_write("file".as_ref(), &create(0o644)).unwrap();
    let (blocks, rounds) = (16u64, 40u8);
    object.set_len(blocks * 4096).unwrap();
    std::thread::scope(|scope| {
        for block in 0..blocks {
            let object = Arc::clone(&object);
            scope.spawn(move || {
                for round in 1..=rounds {
                    let bytes = [round; 4096];
                    assert_eq!(write_once(&*object, block * 4096, &bytes, PATIENCE).unwrap(), 4096);
                    let heard = start_read(&*object, block * 4096, aligned(1));
                    let read = heard.iter().find_map(|heard| match heard {
                        crate::Heard::Done(buf, result) => Some((buf.to_vec(), result.unwrap())),
                        _ => None,
                    });
                    assert!(read.unwrap() == (bytes.to_vec(), 4096), "block {block}, round {round}");
                }
            });
        }
    });
}

/// Random writes by either carrier, direct, buffered or both: a plain read of the file sees each of
/// them after its end.
#[test]
fn direct_and_buffered_writes_make_one_file() {
    for (io, seed) in [(FileIo::Auto, 1), (FileIo::Threads, 2)] {
        let directory = directory();
        let store = FileBackend::open(directory.path(), io, true, None).unwrap();
        let object = store.open_write("file".as_ref(), &create(0o644)).unwrap();
        let mut wanted = Vec::new();
        for step in 0..60u64 {
            let draw = |salt: u64, below: u64| chance::draw(seed * 100 + salt, step) % below;
            // Half of the writes begin at a block, half of the buffers at a page.
            let offset = if draw(1, 2) == 0 { draw(2, 300) * 4096 } else { draw(2, 1_200_000) };
            let len = if draw(3, 3) == 0 { draw(4, 200) * 4096 } else { draw(4, 900_000) } as usize;
            let skip = if draw(5, 2) == 0 { 0 } else { 7 };
            let mut buf = aligned_write(len + skip, step as u8 + 1);
            let buf = buf.split_off(skip);
            let ended = crate::start_write(&*object, offset, buf).recv_timeout(PATIENCE).unwrap();
            assert_eq!(ended.1.unwrap(), len, "seed {seed}, step {step}");
            let end = usize::try_from(offset).unwrap() + len;
            if len > 0 {
                wanted.resize(wanted.len().max(end), 0);
                wanted[end - len..end].fill(step as u8 + 1);
            }
            assert!(fs::read(directory.path().join("file")).unwrap() == wanted, "seed {seed}, step {step}");
        }
        object.sync(true).unwrap();
    }
}

fn aligned_write(len: usize, byte: u8) -> WriteBuf {
    let mut buf = aligned(len.div_ceil(4096));
    drop(buf.split_off(len));
    buf.fill_with(0..len, |_, bytes| bytes.fill(byte));
    WriteBuf::from_read(buf)
}

#[test]
fn large_writes_are_direct_except_for_their_tails() {
    let directory = directory();
    let store = store(directory.path());
    let file =
        OpenFile::write(&store.root.at("file".as_ref()).unwrap(), &create(0o644), Some(256 << 10)).unwrap();
    if file.direct.is_none() {
        return bowwave_testkit::skipped("this file system has no direct writes");
    }
    let file = Arc::new(file);
    let plan = |offset: u64, len: usize| {
        let mut request = Request::write(Arc::clone(&file), offset, aligned_write(len, 1), Box::new(Ignored));
        let mut parts = Vec::new();
        while request.done < len {
            parts.push((request.part(), request.descriptor().1));
            request.done = request.part().end;
        }
        parts
    };
    let (mib, large) = (1 << 20, (1 << 20) + 300_000);
    assert_eq!(plan(0, mib), [(0..mib, true)]);
    assert_eq!(
        plan(8192, large),
        [(0..mib, true), (mib..mib + 299_008, true), (mib + 299_008..large, false)]
    );
    assert_eq!(plan(100, mib), [(0..mib, false)], "no block begins there");
    assert_eq!(plan(0, 128 << 10), [(0..128 << 10, false)], "small");
}

struct Ignored;

impl crate::WriteSink for Ignored {
    fn done(self: Box<Self>, _: WriteBuf, _: Result<usize>) {}
}

#[test]
fn extended_attributes_of_a_link_are_its_own() {
    let directory = directory();
    fs::write(directory.path().join("file"), b"x").unwrap();
    let store = store(directory.path());
    store.symlink("file".as_ref(), "link".as_ref(), None).unwrap();
    let name = OsStr::new("user.x");
    // The kernel keeps none of these for links.
    let error = store.set_xattr("link".as_ref(), name, b"x", SetXattr::Any).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EPERM), "{error}");
    assert_eq!(store.list_xattrs("file".as_ref()).unwrap(), Vec::<OsString>::new());
}

/// Regression: the descriptor for the reopen was closed before it, and the failed direct open was
/// mistaken for a file system without direct I/O.
#[test]
fn an_existing_file_is_written_directly_as_a_new_one_is() {
    let directory = directory();
    let store = store(directory.path());
    let open = |how| OpenFile::write(&store.root.at("file".as_ref()).unwrap(), &how, Some(0)).unwrap();
    let new = open(create(0o644));
    let again = open(OpenWrite::default());
    assert_eq!(again.direct.is_some(), new.direct.is_some());
}
