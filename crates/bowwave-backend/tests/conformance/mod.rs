//! The contract of stores, as one suite for any store's tests.
//!
//! A [`Fixture`] fills a store; [`run`] checks the contract of [`Backend`] and [`Object`]. Failures
//! panic, as in tests. For a store of your own, add the feature in `Cargo.toml`,
//!
//! ```toml
//! [dev-dependencies]
//! bowwave-backend = { version = "*", features = ["conformance"] }
//! ```
//!
//! and call `bowwave_backend::conformance::run(&fixture)` in a test.

mod anywhere;
mod names;
mod whole;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::{
    Backend, Entry, EntryKind, ErrorKind, Heard, Namespace as _, Object, OpenWrite, ReadBuf, Write as _,
    WriteObject, Writes, pattern, read_end, read_exact, start_read, start_read_here, write_exact,
};

/// A store under test, and how to change its contents.
pub trait Fixture {
    /// Puts an object at `path`, in place of any other, with a new identity.
    fn put(&self, path: &str, bytes: &[u8]);

    /// A store with the objects that were put.
    fn store(&self) -> Arc<dyn Backend>;

    /// Whether the store can list directories.
    fn lists(&self) -> bool {
        true
    }
}

/// Runs all checks.
///
/// # Panics
/// At the first violation of the contract.
pub fn run(fixture: &dyn Fixture) {
    let objects = contents();
    for (path, bytes) in &objects {
        fixture.put(path, bytes);
    }
    let store = fixture.store();
    for (path, bytes) in &objects {
        let object = store.open(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
        describes(&*store, path, &*object, bytes);
        ranges(&*object, bytes);
        past_the_end(&*object, bytes);
        on_this_thread(&*object, bytes);
    }
    let large = objects["sizes/1000000"].as_slice();
    let object = store.open("sizes/1000000".as_ref()).expect("was there a moment ago");
    scattered_buffers(&*object, large);
    concurrent(&object, large);
    wrong_kinds(fixture, &*store);
    if fixture.lists() {
        listing(&*store, &objects);
    }
    change_under_a_reader(fixture, &*store);
    dropped_with_reads_in_flight(fixture, large);
    writes(&*store);
}

/// `read_here` returns the same bytes, whichever thread reads.
fn on_this_thread(object: &dyn Object, bytes: &[u8]) {
    for (offset, len) in [(0, bytes.len() + 1), (bytes.len() / 3, bytes.len() / 2), (bytes.len() + 9, 5)] {
        let heard = start_read_here(object, offset as u64, ReadBuf::zeroed(len));
        let read =
            read_end(&heard, PATIENCE).unwrap_or_else(|error| panic!("{len} bytes from {offset}: {error}"));
        let wanted = bytes.get(offset..).unwrap_or_default();
        assert!(
            read.len() <= wanted.len().min(len) && read.is_empty() == (wanted.len().min(len) == 0),
            "{} from {offset}",
            read.len()
        );
        assert!(read == wanted[..read.len()], "{len} bytes from {offset}");
    }
}

/// The store must support the writes of its profile.
fn writes(store: &dyn Backend) {
    let profile = store.profile();
    match profile.writes {
        Writes::No => {
            let create = OpenWrite { create: true, ..OpenWrite::default() };
            let error = store.open_write("new".as_ref(), &create).map(drop).expect_err("it is only read");
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            let error = store.remove_file("Z".as_ref()).expect_err("it is only read");
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            store.stat("Z".as_ref()).expect("is there still");
        }
        Writes::Anywhere => {
            assert!(profile.write_part_bytes.is_power_of_two());
            anywhere::run(store);
            names::run(store);
        }
        Writes::Whole => whole::run(store),
    }
}

/// The objects of the suite: path and bytes.
fn contents() -> BTreeMap<String, Vec<u8>> {
    let sizes = [0usize, 1, 4095, 4096, 4097, 1_000_000].map(|size| (format!("sizes/{size}"), size));
    let others =
        [("a b+c%41&é", 10), ("directory/inner/deep", 100), ("directory/z", 5), ("directory.d", 6), ("Z", 7)];
    sizes
        .into_iter()
        .chain(others.map(|(name, size)| (name.to_owned(), size)))
        .map(|(path, size)| {
            let mut bytes = vec![0; size];
            pattern::fill(pattern::seed(path.as_ref()), 0, &mut bytes);
            (path, bytes)
        })
        .collect()
}

fn describes(store: &dyn Backend, path: &str, object: &dyn Object, bytes: &[u8]) {
    let entry = store.stat(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!((entry.kind, entry.size), (EntryKind::File, bytes.len() as u64), "{path}");
    assert_eq!(Some(entry.name.as_os_str()), Path::new(path).file_name(), "{path}");
    assert_eq!(object.size(), bytes.len() as u64, "{path}");
    assert_eq!(object.identity().size, object.size(), "{path}");
    let again = store.open(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(object.identity(), again.identity(), "{path}: unchanged, so equal");
}

fn ranges(object: &dyn Object, bytes: &[u8]) {
    let size = bytes.len();
    let mut cuts = vec![(0, size), (0, 1), (size / 2, size), (size.saturating_sub(1), size)];
    cuts.extend([(1, 4096), (4095, 4097), (4096, 8192), (12_288, 12_289), (0, 4096), (4096, 999_424)]);
    for (from, to) in cuts {
        let (from, to) = (from.min(size), to.min(size).max(from.min(size)));
        let read = read_exact(object, from as u64, to - from, PATIENCE)
            .unwrap_or_else(|e| panic!("{from}..{to}: {e}"));
        assert!(read == bytes[from..to], "{from}..{to} of {size} differs");
    }
}

fn past_the_end(object: &dyn Object, bytes: &[u8]) {
    let size = bytes.len() as u64;
    let (from, want) = (size.saturating_sub(3), bytes.len().min(3));
    let (_, buf, result) = whole(start_read(object, from, ReadBuf::zeroed(4096)));
    let count = result.expect("a read across the end gives the bytes up to it");
    assert!(count <= want && (count > 0 || want == 0), "{count} of {want}");
    assert_eq!(buf.to_vec()[..count], bytes[bytes.len() - want..][..count]);
    for offset in [size, size + 1, size + 4096, u64::MAX - 4096] {
        let (_, buf, result) = whole(start_read(object, offset, ReadBuf::zeroed(4096)));
        assert_eq!(result.expect("a read behind the end is empty, not wrong"), 0, "at {offset} of {size}");
        assert_eq!(buf.len(), 4096);
    }
    let (_, _, result) = whole(start_read(object, 0, ReadBuf::zeroed(0)));
    assert_eq!(result.expect("an empty read succeeds"), 0);
}

/// A buffer of pieces of odd sizes is filled as one.
fn scattered_buffers(object: &dyn Object, bytes: &[u8]) {
    let mut first = ReadBuf::zeroed(5000);
    drop(first.split_off(4099));
    let (_, buf, result) = whole(start_read(object, 77, first));
    let count = result.expect("readable");
    assert!(count > 0 && buf.to_vec()[..count] == bytes[77..77 + count]);
}

/// Sixteen concurrent reads; each reports progress in order, reported bytes are final, and each
/// read ends once.
fn concurrent(object: &Arc<dyn Object>, bytes: &[u8]) {
    let reads: Vec<_> = (0..16usize)
        .map(|index| {
            let offset = index * 61_003;
            (offset, start_read(&**object, offset as u64, ReadBuf::zeroed(200_000)))
        })
        .collect();
    for (offset, heard) in reads {
        let (progress, buf, result) = whole(heard);
        let count = result.unwrap_or_else(|error| panic!("at {offset}: {error}"));
        assert!(count > 0 && count <= 200_000.min(bytes.len() - offset), "{count} at {offset}");
        assert!(progress.is_sorted_by(|a, b| a < b), "progress grows: {progress:?}");
        assert!(progress.last().is_none_or(|&last| last <= count), "{progress:?} and then {count}");
        assert!(buf.to_vec()[..count] == bytes[offset..offset + count], "{count} bytes at {offset} differ");
    }
}

fn wrong_kinds(fixture: &dyn Fixture, store: &dyn Backend) {
    let kind = |result: crate::Result<()>, what: &str| result.expect_err(what).kind();
    let open = |path: &str| store.open(path.as_ref()).map(|_| ());
    let stat = |path: &str| store.stat(path.as_ref()).map(|_| ());
    for missing in ["missing", "directory/missing", "no/directory"] {
        assert_eq!(kind(open(missing), missing), ErrorKind::NotFound, "open {missing}");
        assert_eq!(kind(stat(missing), missing), ErrorKind::NotFound, "stat {missing}");
    }
    for outside in ["../x", "/etc/passwd", "directory/../../x", "."] {
        kind(open(outside), outside);
        kind(stat(outside), outside);
    }
    let below_a_file = kind(open("Z/below"), "a file has nothing below it");
    let list = |path: &str| store.list(path.as_ref()).map(|_| ());
    if fixture.lists() {
        assert!(matches!(below_a_file, ErrorKind::NotFound | ErrorKind::NotADirectory), "{below_a_file:?}");
        assert_eq!(kind(open("directory"), "directory"), ErrorKind::IsADirectory);
        assert_eq!(kind(open(""), "the root"), ErrorKind::IsADirectory);
        for directory in ["", "directory", "directory/inner"] {
            let entry =
                store.stat(directory.as_ref()).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
            assert_eq!((entry.kind, entry.size), (EntryKind::Directory, 0), "{directory:?}");
        }
        assert_eq!(kind(list("Z"), "a file"), ErrorKind::NotADirectory);
        assert_eq!(kind(list("missing"), "missing"), ErrorKind::NotFound);
    } else {
        assert_eq!(kind(list(""), "cannot list"), ErrorKind::Unsupported);
    }
}

fn listing(store: &dyn Backend, objects: &BTreeMap<String, Vec<u8>>) {
    let names = |path: &str| {
        let entries = store.list(path.as_ref()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        entries.into_iter().map(|entry| (entry.name, entry.kind, entry.size)).collect::<Vec<_>>()
    };
    let file = |name: &str, size: u64| (OsStr::new(name).to_owned(), EntryKind::File, size);
    let directory = |name: &str| (OsStr::new(name).to_owned(), EntryKind::Directory, 0);
    let root = names("");
    let wanted = [
        file("Z", 7),
        file("a b+c%41&é", 10),
        directory("directory"),
        file("directory.d", 6),
        directory("sizes"),
    ];
    assert_eq!(root, wanted);
    assert_eq!(names("directory"), [directory("inner"), file("z", 5)]);
    let mut sizes: Vec<_> =
        objects.iter().filter_map(|(path, bytes)| Some((path.strip_prefix("sizes/")?, bytes))).collect();
    sizes.sort_unstable();
    assert_eq!(
        names("sizes"),
        sizes.iter().map(|(name, bytes)| file(name, bytes.len() as u64)).collect::<Vec<_>>()
    );
}

/// After a change, an object opened before returns no more bytes; a new open returns the new bytes.
fn change_under_a_reader(fixture: &dyn Fixture, store: &dyn Backend) {
    fixture.put("changing", &[1; 300_000]);
    let object = store.open("changing".as_ref()).expect("was just put");
    assert!(read_exact(&*object, 0, 300_000, PATIENCE).expect("unchanged") == [1; 300_000]);
    fixture.put("changing", &[2; 300_000]);
    for (offset, len) in [(0, 10), (100_000, 200_000), (299_999, 1)] {
        let error =
            read_exact(&*object, offset, len, PATIENCE).expect_err("bytes of two versions must not meet");
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    }
    let anew = store.open("changing".as_ref()).expect("is there still");
    assert_ne!(anew.identity(), object.identity());
    assert!(read_exact(&*anew, 0, 300_000, PATIENCE).expect("new version") == [2; 300_000]);
    fixture.put("changing", &[3; 400_000]);
    let error = read_exact(&*anew, 0, 10, PATIENCE).expect_err("a change of size is a change");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

/// Reads in flight end, each once, although store and object were dropped.
fn dropped_with_reads_in_flight(fixture: &dyn Fixture, bytes: &[u8]) {
    let store = fixture.store();
    let object = store.open("sizes/1000000".as_ref()).expect("is there");
    let reads: Vec<_> = (0..8).map(|_| start_read(&*object, 0, ReadBuf::zeroed(1_000_000))).collect();
    drop((object, store));
    for heard in reads {
        let (_, buf, result) = whole(heard);
        if let Ok(count) = result {
            assert!(buf.to_vec()[..count] == bytes[..count]);
        }
    }
}

/// The entry at `path`.
fn shown(store: &dyn Backend, path: &str) -> Entry {
    store.stat(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All bytes of the object at `path`, through a new open.
fn bytes_of(store: &dyn Backend, path: &str) -> Vec<u8> {
    let object = store.open(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
    let size = usize::try_from(object.size()).expect("the suite's objects are small");
    read_exact(&*object, 0, size, PATIENCE).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A new object at `path`, open for writing.
fn create(store: &dyn Backend, path: &str) -> Arc<dyn WriteObject> {
    let how = OpenWrite { create: true, exclusive: true, mode: 0o644, ..OpenWrite::default() };
    store.open_write(path.as_ref(), &how).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A new object at `path` with these bytes.
fn put(store: &dyn Backend, path: &str, bytes: &[u8]) {
    let object = create(store, path);
    write_exact(&*object, 0, bytes, PATIENCE).unwrap_or_else(|error| panic!("{path}: {error}"));
    object.finish().unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// `prefix` and `count` times `letter`.
fn text_path(prefix: &str, letter: char, count: usize) -> String {
    std::iter::once(prefix.to_owned()).chain(std::iter::repeat_n(letter.to_string(), count)).collect()
}

/// All events of a sink; its end must come exactly once.
fn whole(heard: Receiver<Heard>) -> (Vec<usize>, ReadBuf, crate::Result<usize>) {
    let (mut progress, mut end) = (Vec::new(), None);
    loop {
        match heard.recv_timeout(PATIENCE) {
            Ok(Heard::Progress(bytes)) => {
                assert!(end.is_none(), "progress after the end");
                progress.push(bytes);
            }
            Ok(Heard::Done(buf, result)) => {
                assert!(end.replace((buf, result)).is_none(), "a read ended twice");
            }
            Ok(Heard::Dropped) | Err(_) => break,
        }
    }
    let (buf, result) = end.expect("each read ends");
    (progress, buf, result)
}

/// Limit of each wait; only a broken store takes so long.
const PATIENCE: Duration = Duration::from_secs(20);
