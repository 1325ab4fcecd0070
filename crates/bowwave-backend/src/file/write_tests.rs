//! Writing local files: what only file systems have, and what only the kernel can say.

#![expect(clippy::print_stderr, reason = "tests that cannot run everywhere say so")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{Allocate, ReadBuf, WriteBuf, chance, read_once, start_read, write_exact, write_once};

const PATIENCE: Duration = Duration::from_secs(20);

fn directory() -> tempfile::TempDir {
    // In the build's own directory, which is on a disk; /tmp is often a tmpfs.
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory can be made")
}

fn store(root: &Path) -> FileBackend {
    FileBackend::open(root, FileIo::Auto, true, None).expect("the directory is there")
}

fn create(mode: u32) -> OpenWrite {
    OpenWrite { create: true, mode, ..OpenWrite::default() }
}

/// Whether tests may act for others. They say so if not, and show less.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: files for other owners are not tried");
    }
    is_root
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
fn what_is_made_belongs_to_whom_it_is_made_for() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let store = store(directory.path());
    let owner = Some(Owner { uid: 12_345, gid: 23_456 });
    // The directory is root's and nobody else's: the mount has checked who may do this.
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
fn the_group_of_a_directory_with_the_set_group_id_bit_goes_to_what_is_made_in_it() {
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
    assert_eq!(look("shared/file"), (12_345, 555, 0o770), "no set-group-id for who is not of the group");
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

/// A full file system of its own; needs root. What does not fit fails as such, and what was there stays.
#[test]
fn a_full_file_system_says_so() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "bowwave-test"])
        .arg(directory.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("a tmpfs cannot be mounted here: a full file system is not tried");
        return;
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

/// Takes the file system away again, whatever happens.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn directories_deeper_than_a_path_may_be_long_are_reached() {
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
fn a_store_of_one_file_is_written_at_its_root_and_has_nothing_below() {
    let directory = directory();
    fs::write(directory.path().join("file"), b"bytes").unwrap();
    let store = store(&directory.path().join("file"));
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
fn opening_special_files_for_writing_acts_on_nothing() {
    let directory = directory();
    let store = store(directory.path());
    store.create_node("fifo".as_ref(), EntryKind::Fifo, 0o644, 0, None).unwrap();
    let truncate = OpenWrite { truncate: true, ..create(0o644) };
    assert_eq!(store.open_write("fifo".as_ref(), &truncate).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_reader_from_before_a_write_hears_of_the_change() {
    let directory = directory();
    fs::write(directory.path().join("file"), [1; 9000]).unwrap();
    let store = store(directory.path());
    let before = store.open("file".as_ref()).unwrap();
    let object = store.open_write("file".as_ref(), &OpenWrite::default()).unwrap();
    write_exact(&*object, 9000, b"longer", PATIENCE).unwrap();
    assert_eq!(read_once(&*before, 0, 10, PATIENCE).unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(read_once(&*object, 8999, 10, PATIENCE).unwrap(), b"\x01longer");
}

/// Direct reads beside buffered writes of the same blocks, on many threads: each read sees a write that had ended before it.
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
                    let heard = start_read(&*object, block * 4096, aligned_page());
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

/// Random writes, some past the kernel's cache and some through it, some both, by either carrier; each is seen by a plain
/// read of the file right after it ended.
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
    let mut buf = WriteBuf::from_vec(vec![byte; len + 4096]);
    let base = buf.segments()[0].iov_base.addr();
    let mut inner = buf.split_off(base.next_multiple_of(4096) - base);
    drop(inner.split_off(len));
    inner
}

#[test]
fn large_writes_go_past_the_kernels_cache_but_for_their_tails() {
    let directory = directory();
    let store = store(directory.path());
    let file =
        OpenFile::write(&store.root.at("file".as_ref()).unwrap(), &create(0o644), Some(256 << 10)).unwrap();
    if file.direct.is_none() {
        return;
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

fn aligned_page() -> ReadBuf {
    let mut buf = ReadBuf::zeroed(8192);
    let base = buf.segments()[0].iov_base.addr();
    let mut page = buf.split_off(base.next_multiple_of(4096) - base);
    drop(page.split_off(4096));
    page
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

/// The descriptor by which it was to be opened again was closed before, and that it then was not direct was taken for the file
/// system's will.
#[test]
fn a_file_that_is_there_already_is_written_past_the_cache_as_a_new_one_is() {
    let directory = directory();
    let store = store(directory.path());
    let open = |how| OpenFile::write(&store.root.at("file".as_ref()).unwrap(), &how, Some(0)).unwrap();
    let new = open(create(0o644));
    let again = open(OpenWrite::default());
    assert_eq!(again.direct.is_some(), new.direct.is_some());
}
