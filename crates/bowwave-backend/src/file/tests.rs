//! Local files: the contract with either carrier, and features of file systems.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;
use crate::conformance::{self, Fixture};
use crate::{ReadBuf, read_exact, read_once};

struct Directory {
    root: tempfile::TempDir,
    io: FileIo,
    direct: bool,
}

impl Directory {
    fn new(io: FileIo, direct: bool) -> Self {
        // In the build's own directory, which is on a disk; /tmp is often a tmpfs.
        Self {
            root: tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory can be made"),
            io,
            direct,
        }
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
        let reads: Vec<_> = (0..300u64)
            .map(|i| (i * 1600, crate::start_read(&*object, i * 1600, ReadBuf::zeroed(1600))))
            .collect();
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
    let heard = crate::start_read(&*object, 4096, pages);
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
    let patience = Duration::from_secs(20);
    assert_eq!(read_exact(&*store.open("link".as_ref()).unwrap(), 0, 9, patience).unwrap(), b"bytes");
    assert_eq!(read_exact(&*store.open(odd.as_ref()).unwrap(), 0, 9, patience).unwrap(), b"odd");
}

#[test]
fn opening_a_fifo_fails_and_does_not_wait_for_a_writer() {
    let directory = Directory::new(FileIo::Auto, true);
    let fifo = directory.root.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("coreutils are there");
    assert!(made.success());
    assert_eq!(directory.open().open("fifo".as_ref()).unwrap_err().kind(), ErrorKind::Unsupported);
    let error = FileBackend::open(&fifo, FileIo::Auto, true, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_file_as_root_is_a_store_of_one_object() {
    let directory = Directory::new(FileIo::Auto, true);
    directory.put("file", b"bytes");
    let store = FileBackend::open(directory.root.path().join("file"), FileIo::Auto, true, None).unwrap();
    assert_eq!(store.stat("".as_ref()).unwrap().kind, EntryKind::File);
    assert_eq!(store.open("".as_ref()).unwrap().size(), 5);
    assert_eq!(store.list("".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(store.open("file".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn a_file_that_shrinks_or_is_replaced_has_changed() {
    let directory = Directory::new(FileIo::Auto, true);
    directory.put("file", &[1; 9000]);
    let store = directory.open();
    let object = store.open("file".as_ref()).unwrap();
    File::options().write(true).open(directory.root.path().join("file")).unwrap().set_len(10).unwrap();
    let error = read_once(&*object, 0, 9000, Duration::from_secs(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[test]
fn sparse_files_beyond_4_gib_are_read_at_any_offset() {
    let directory = Directory::new(FileIo::Auto, true);
    let file = File::create(directory.root.path().join("sparse")).unwrap();
    file.set_len(5_000_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 4_999_999_997).unwrap();
    let object = directory.open().open("sparse".as_ref()).unwrap();
    let tail = read_exact(&*object, 4_999_999_990, 100, Duration::from_secs(20)).unwrap();
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
