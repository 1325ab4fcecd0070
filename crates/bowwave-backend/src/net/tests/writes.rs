//! Writes to a bucket: their requests, and servers that fail. `conformance` tests the contract.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_testkit::{S3Fault, S3Server, S3Trouble};

use super::{PATIENCE, Served, s3};
use crate::conformance::Fixture as _;
use crate::net::object_upload::Location;
use crate::net::open;
use crate::net::plan::Sizes;
use crate::net::ranged::Version;
use crate::net::writer::CloudWriter;
use crate::{
    Backend, EntryKind, ErrorKind, Namespace as _, Object, OpenWrite, Options, Rename, Result, Write as _,
    WriteBuf,
};
use crate::{Credentials, WriteObject, open_url, pattern, read_exact, read_once, start_write};

const PART: usize = 8 << 20;

/// `len` bytes that are unique to `name`.
fn bytes(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern::fill(pattern::seed(name.as_ref()), 0, &mut bytes);
    bytes
}

fn create() -> OpenWrite {
    OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() }
}

pub(super) fn write(object: &dyn WriteObject, offset: usize, bytes: &[u8]) -> Result<usize> {
    let end = start_write(object, offset as u64, WriteBuf::from_vec(bytes.to_vec()));
    end.recv_timeout(PATIENCE).expect("each write ends").1
}

/// Writes all parts at once, the last first.
fn write_all(object: &dyn WriteObject, from: usize, bytes: &[u8]) {
    let parts: Vec<_> = bytes.chunks(PART).enumerate().collect();
    let begun: Vec<_> = parts
        .iter()
        .rev()
        .map(|(index, part)| {
            let offset = (from + index * PART) as u64;
            (part.len(), start_write(object, offset, WriteBuf::from_vec(part.to_vec())))
        })
        .collect();
    for (len, ended) in begun {
        assert_eq!(ended.recv_timeout(PATIENCE).expect("each write ends").1.unwrap(), len);
    }
}

fn read(store: &dyn Backend, path: &str) -> Vec<u8> {
    let object = store.open(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
    let size = usize::try_from(object.size()).unwrap();
    read_exact(&*object, 0, size, PATIENCE).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn bucket() -> (S3Server, Served, Arc<dyn Backend>) {
    let (server, served) = s3("s3://bucket/data", "bucket/data");
    let store = served.store();
    (server, served, store)
}

fn fault(method: &'static str, part: &str, after: u32, times: u32, what: S3Trouble) -> S3Fault {
    S3Fault { method, part: part.to_owned(), after, times, what }
}

fn count(server: &S3Server, what: &str) -> usize {
    server.requests().iter().filter(|request| request.contains(what)).count()
}

#[test]
fn a_small_object_is_one_request_and_is_seen_when_finished() {
    let (server, _served, store) = bucket();
    let object = store.open_write("small".as_ref(), &create()).unwrap();
    assert_eq!(write(&*object, 0, b"bytes").unwrap(), 5);
    assert_eq!(store.stat("small".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    let identity = object.finish().unwrap();
    assert_eq!(read(&*store, "small"), b"bytes");
    assert_eq!(store.open("small".as_ref()).unwrap().identity(), &identity);
    assert_eq!((count(&server, "PUT "), count(&server, "POST ")), (1, 0), "{:?}", server.requests());
    assert_eq!(read_once(&*object, 0, 5, PATIENCE).unwrap(), b"bytes", "the writer reads what is published");
}

/// While the parts of a large object arrive in any order, readers see either the old or the new
/// version.
#[test]
fn an_upload_in_any_order_is_visible_only_as_a_whole() {
    let (server, served, store) = bucket();
    let (old, new) = (bytes("old", 1000), bytes("new", 3 * PART + 4321));
    served.put("object", &old);
    let done = AtomicBool::new(false);
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let watcher = served.store();
        scope.spawn(|| {
            let watcher = watcher;
            while !done.load(Ordering::Relaxed) {
                let object = watcher.open("object".as_ref()).expect("is there all the time");
                let size = usize::try_from(object.size()).unwrap();
                seen.lock().unwrap().push(size);
                // The last bytes differ between versions; the object may be replaced meanwhile.
                match read_exact(&*object, size as u64 - 500, 500, PATIENCE) {
                    Ok(tail) => assert!(tail == old[500..] || tail == new[new.len() - 500..]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error}"),
                }
            }
        });
        let object = store.open_write("object".as_ref(), &OpenWrite { truncate: true, ..create() }).unwrap();
        write_all(&*object, 0, &new);
        assert_eq!(store.stat("object".as_ref()).unwrap().size, 1000, "before it is finished");
        assert_eq!(object.finish().unwrap().size, new.len() as u64);
        done.store(true, Ordering::Relaxed);
    });
    assert!(seen.lock().unwrap().iter().all(|size| [old.len(), new.len()].contains(size)));
    assert!(read(&*store, "object") == new);
    assert_eq!(count(&server, "partNumber="), 4);
    assert_eq!((server.uploads(), server.part_files().unwrap()), (vec![], 0));
}

#[test]
fn an_unfinished_upload_leaves_nothing() {
    let (server, served, store) = bucket();
    served.put("object", b"old");
    for how in ["abort", "drop", "set_len"] {
        let object = store.open_write("object".as_ref(), &OpenWrite { truncate: true, ..create() }).unwrap();
        write_all(&*object, 0, &bytes(how, PART + 1));
        assert_eq!(server.uploads().len(), 1, "{how}");
        match how {
            "abort" => object.abort(),
            "set_len" => object.set_len(0).unwrap(),
            _ => {}
        }
        drop(object);
        wait_for(|| server.uploads().is_empty() && server.part_files().unwrap() == 0);
        assert_eq!(read(&*store, "object"), b"old", "{how}");
    }
}

/// Waits for an action of the store in the background.
fn wait_for(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "does not hold");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_write_after_finish_continues_the_published_version_on_the_server() {
    let (server, _served, store) = bucket();
    let mut all = bytes("continued", 4 * PART);
    let object = store.open_write("object".as_ref(), &create()).unwrap();
    for (from, to) in [(0, 100), (0, PART + 10), (PART, 4 * PART)] {
        write_all(&*object, from, &all[from..to]);
        object.finish().unwrap();
        assert!(read(&*store, "object") == all[..to], "after {to} bytes");
    }
    assert!(server.requests().iter().filter(|r| r.starts_with("GET")).all(|r| !r.contains("partNumber")));
    // A part in the middle: the server copies the others from the published version.
    all[PART..2 * PART].copy_from_slice(&bytes("middle", PART));
    write(&*object, PART, &all[PART..2 * PART]).unwrap();
    object.finish().unwrap();
    assert!(read(&*store, "object") == all);
    drop(object);
    assert_eq!((server.uploads(), server.part_files().unwrap()), (vec![], 0));
}

#[test]
fn unsupported_operations_return_errors_with_a_reason() {
    let (_server, served, store) = bucket();
    served.put("object", &bytes("object", 100));
    let object = store.open_write("object".as_ref(), &OpenWrite::default()).unwrap();
    let check = |result: Result<()>, kind, part: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part) && !error.is_retryable(), "{error}");
    };
    check(object.set_len(50), ErrorKind::Unsupported, "can only be truncated to 0");
    check(object.set_len(200), ErrorKind::Unsupported, "can only be truncated to 0");
    object.set_len(100).unwrap();
    check(object.allocate(0, 10, crate::Allocate::Punch), ErrorKind::Unsupported, "object store");
    check(write(&*object, 100, b"x").map(drop), ErrorKind::Invalid, "write at multiples of");
    check(write(&*object, 0, &vec![0; PART + 1]).map(drop), ErrorKind::Invalid, "write at multiples of");
    check(write(&*object, 0, b"short").map(drop), ErrorKind::Invalid, "not the last");
    check(write(&*object, 5 << 40, b"x").map(drop), ErrorKind::TooLarge, "5 TiB");
    check(
        store.rename("object".as_ref(), "b".as_ref(), Rename::Exchange),
        ErrorKind::Unsupported,
        "exchange",
    );
    check(store.link("object".as_ref(), "b".as_ref()), ErrorKind::Unsupported, "link");
    check(store.open_write("directory\u{7}".as_ref(), &create()).map(drop), ErrorKind::Invalid, "control");
    let long = "x".repeat(1024);
    check(store.open_write(long.as_ref(), &create()).map(drop), ErrorKind::NameTooLong, "1024");
    check(store.open_write("missing".as_ref(), &OpenWrite::default()).map(drop), ErrorKind::NotFound, "");
    check(store.open_write("../x".as_ref(), &create()).map(drop), ErrorKind::NotFound, "relative");
    write(&*object, PART, b"no part before it").unwrap();
    check(object.finish().map(drop), ErrorKind::Invalid, "missing");
    assert_eq!(read(&*store, "object").len(), 100);
}

#[test]
fn failed_parts_return_errors_and_can_be_written_again() {
    let (server, _served, store) = bucket();
    let all = bytes("retried", 2 * PART + 5);
    for what in [S3Trouble::Refused(503), S3Trouble::Refused(500), S3Trouble::Reset, S3Trouble::AnswerLost] {
        // For all attempts at a part.
        server.inject(fault("PUT", "partNumber=2", 0, 7, what));
        let object = store.open_write("object".as_ref(), &create()).unwrap();
        write(&*object, 0, &all[..PART]).unwrap();
        let error = write(&*object, PART, &all[PART..2 * PART]).unwrap_err();
        assert!(error.is_retryable(), "{what:?}: {error}");
        write(&*object, 2 * PART, &all[2 * PART..]).unwrap();
        let error = object.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what:?}: {error}");
        write(&*object, PART, &all[PART..2 * PART]).unwrap();
        object.finish().unwrap_or_else(|error| panic!("{what:?}: {error}"));
        assert!(read(&*store, "object") == all, "{what:?}");
        store.remove_file("object".as_ref()).unwrap();
    }
    assert_eq!((server.uploads(), server.part_files().unwrap()), (vec![], 0));
}

#[test]
fn an_upload_that_cannot_begin_is_begun_by_the_next_write() {
    let (server, _served, store) = bucket();
    server.inject(fault("POST", "uploads=", 0, 7, S3Trouble::Refused(503)));
    let object = store.open_write("object".as_ref(), &create()).unwrap();
    let all = bytes("begun", PART + 1);
    assert_eq!(write(&*object, 0, &all[..PART]).unwrap_err().kind(), ErrorKind::Throttled);
    write_all(&*object, 0, &all);
    object.finish().unwrap();
    assert!(read(&*store, "object") == all);
}

/// Publishing is retried, and also succeeds if an earlier attempt did and its response was lost.
#[test]
fn publishing_survives_network_faults() {
    let (server, served, store) = bucket();
    for what in [S3Trouble::Refused(503), S3Trouble::Reset, S3Trouble::AnswerLost, S3Trouble::ErrorInBody] {
        for (len, exclusive) in [(PART + 9, false), (PART + 9, true), (77, false), (77, true)] {
            if what == S3Trouble::ErrorInBody && len < PART {
                continue;
            }
            let name = format!("{what:?}-{len}-{exclusive}");
            let (method, part) =
                if len < PART { ("PUT", name.clone()) } else { ("POST", "uploadId=".to_owned()) };
            server.inject(fault(method, &part, 0, 2, what));
            let object = store.open_write(name.as_ref(), &OpenWrite { exclusive, ..create() }).unwrap();
            write_all(&*object, 0, &bytes(&name, len));
            let identity = object.finish().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(identity.size, len as u64, "{name}");
            assert!(read(&*store, &name) == bytes(&name, len), "{name}");
        }
    }
    assert_eq!((server.uploads(), server.part_files().unwrap()), (vec![], 0));
    drop(served);
}

#[test]
fn a_failed_publication_is_invisible_and_can_be_retried() {
    let (server, _served, store) = bucket();
    server.inject(fault("POST", "uploadId=", 0, 7, S3Trouble::Refused(503)));
    let object = store.open_write("object".as_ref(), &create()).unwrap();
    let all = bytes("late", PART + 1);
    write_all(&*object, 0, &all);
    let error = object.finish().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Throttled, true), "{error}");
    assert_eq!(store.stat("object".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    object.finish().unwrap();
    assert!(read(&*store, "object") == all);
}

#[test]
fn errors_never_hold_secrets() {
    let (server, _served, store) = bucket();
    server.inject(fault("PUT", "", 0, 100, S3Trouble::Refused(403)));
    let object = store.open_write("object".as_ref(), &create()).unwrap();
    write(&*object, 0, b"bytes").unwrap();
    let errors = [
        object.finish().unwrap_err(),
        write(&*object, PART, b"x").unwrap_err(),
        store.create_directory("directory".as_ref(), 0o755, None).unwrap_err(),
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        for secret in [S3Server::SECRET_ACCESS_KEY, "Signature", "AWS4-HMAC", S3Server::ACCESS_KEY_ID] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[test]
fn directories_have_markers_and_stay_when_emptied() {
    let (server, served, store) = bucket();
    let kind = |path: &str| store.stat(path.as_ref()).map(|entry| entry.kind);
    let names = |path: &str| -> Vec<_> {
        store
            .list(path.as_ref())
            .unwrap()
            .into_iter()
            .map(|entry| entry.name.into_string().unwrap())
            .collect()
    };
    served.put("file", b"x");
    store.create_directory("made".as_ref(), 0o755, None).unwrap();
    assert_eq!((kind("made").unwrap(), names("made")), (EntryKind::Directory, vec![]));
    assert!(server.requests().contains(&"PUT /bucket/data/made/".to_owned()), "{:?}", server.requests());
    assert_eq!(names(""), ["file", "made"]);
    for taken in ["made", "file"] {
        let error = store.create_directory(taken.as_ref(), 0o755, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    }
    assert_eq!(
        store.create_directory("no/parent".as_ref(), 0o755, None).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        store.create_directory("file/x".as_ref(), 0o755, None).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );

    served.put("implied/by/this", b"x");
    assert_eq!(store.remove_directory("implied/by".as_ref()).unwrap_err().kind(), ErrorKind::NotEmpty);
    assert_eq!(store.remove_directory("file".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(store.remove_directory("none".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.remove_file("implied".as_ref()).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(store.remove_file("none".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    // As `rm -r`: each directory still exists when it is removed.
    store.remove_file("implied/by/this".as_ref()).unwrap();
    assert_eq!((kind("implied/by").unwrap(), names("implied/by")), (EntryKind::Directory, vec![]));
    store.remove_directory("implied/by".as_ref()).unwrap();
    store.remove_directory("implied".as_ref()).unwrap();
    store.remove_directory("made".as_ref()).unwrap();
    store.remove_file("file".as_ref()).unwrap();
    assert_eq!(names(""), Vec::<String>::new(), "the root stays, too");
    assert_eq!(store.remove_directory("".as_ref()).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn a_rename_copies_on_the_server() {
    let (server, served, store) = bucket();
    let large = bytes("large", PART + 100);
    served.put("a/large", &large);
    served.put("a/small", b"small");
    served.put("b/taken", b"taken");
    let rename = |from: &str, to: &str, how| store.rename(from.as_ref(), to.as_ref(), how);
    let kind = |result: Result<()>| result.unwrap_err().kind();
    rename("a/large", "b/large", Rename::Replace).unwrap();
    assert!(read(&*store, "b/large") == large);
    assert_eq!(count(&server, "GET /bucket/data/a/large"), 0, "no byte is downloaded");
    assert_eq!(kind(rename("a/small", "b/taken", Rename::NoReplace)), ErrorKind::Exists);
    rename("a/small", "b/new", Rename::NoReplace).unwrap();
    rename("b/new", "b/taken", Rename::Replace).unwrap();
    assert_eq!(read(&*store, "b/taken"), b"small");
    assert_eq!(kind(rename("b/new", "b/x", Rename::Replace)), ErrorKind::NotFound);
    assert_eq!(kind(rename("b/taken", "b", Rename::Replace)), ErrorKind::IsADirectory);
    assert_eq!(store.stat("a".as_ref()).unwrap().kind, EntryKind::Directory, "stays, although empty");
    // Only empty directories can be renamed; others fail as across file systems.
    rename("a", "c", Rename::Replace).unwrap();
    assert_eq!(store.stat("c".as_ref()).unwrap().kind, EntryKind::Directory);
    assert_eq!(kind(rename("a", "d", Rename::Replace)), ErrorKind::NotFound);
    assert_eq!(kind(rename("b", "d", Rename::Replace)), ErrorKind::CrossDevice);
    assert_eq!(kind(rename("b", "b/below", Rename::Replace)), ErrorKind::Invalid);
    assert_eq!(kind(rename("c", "b", Rename::Replace)), ErrorKind::NotEmpty);
    assert_eq!(kind(rename("c", "b/taken", Rename::Replace)), ErrorKind::NotADirectory);
}

/// Requests escape keys in different ways; all must name the same key.
#[test]
fn odd_names_are_the_same_key_to_every_request() {
    let (_server, served, store) = bucket();
    for name in ["a b", "a+b", "100%41", "a&b=c?d#e", "é ü 漢", "'\"<>", "~-_.!*()", "...", "back\\slash"]
    {
        store.create_directory(name.as_ref(), 0o755, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (file, moved) = (format!("{name}/{name}"), format!("{name}/{name} moved"));
        let object = store.open_write(file.as_ref(), &create()).unwrap();
        write_all(&*object, 0, &bytes(name, PART + 1));
        object.finish().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            fs::read(served.directory.path().join("bucket/data").join(&file)).unwrap().len(),
            PART + 1
        );
        // Copies of parts have the source's key in a header.
        store.rename(file.as_ref(), moved.as_ref(), Rename::NoReplace).unwrap();
        store.rename(moved.as_ref(), file.as_ref(), Rename::Replace).unwrap();
        assert!(read(&*store, &file) == bytes(name, PART + 1), "{name}");
        let object = store.open_write(moved.as_ref(), &create()).unwrap();
        write(&*object, 0, &vec![0; PART]).unwrap();
        let uploads = store.stray_uploads().unwrap();
        assert_eq!(uploads.iter().map(|upload| upload.path.to_str().unwrap()).collect::<Vec<_>>(), [&moved]);
        store.abort_upload(&uploads[0]).unwrap();
        store.remove_file(file.as_ref()).unwrap();
        store.remove_directory(name.as_ref()).unwrap();
        assert_eq!(store.list("".as_ref()).unwrap(), [], "{name}");
    }
}

#[test]
fn renames_and_directories_survive_a_throttling_server() {
    let (server, served, store) = bucket();
    served.put("directory/a", b"a");
    for method in ["HEAD", "GET", "PUT", "DELETE"] {
        for what in [S3Trouble::Refused(503), S3Trouble::Reset] {
            server.inject(fault(method, "", 0, 2, what));
            store.rename("directory/a".as_ref(), "directory/b".as_ref(), Rename::Replace).unwrap();
            server.inject(fault(method, "", 0, 2, what));
            store.rename("directory/b".as_ref(), "directory/a".as_ref(), Rename::NoReplace).unwrap();
            server.inject(fault(method, "", 0, 2, what));
            store.create_directory("made".as_ref(), 0o755, None).unwrap();
            server.inject(fault(method, "", 0, 2, what));
            store.remove_directory("made".as_ref()).unwrap();
        }
    }
    // A server without conditional requests cannot create exclusively; a retry does not help.
    server.inject(fault("PUT", "/new", 0, 1, S3Trouble::Refused(501)));
    let object = store.open_write("new".as_ref(), &OpenWrite { exclusive: true, ..create() }).unwrap();
    write(&*object, 0, b"x").unwrap();
    let error = object.finish().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unsupported, false), "{error}");
}

#[test]
fn a_rename_whose_copy_fails_leaves_the_old_name() {
    let (server, served, store) = bucket();
    served.put("old", b"bytes");
    server.inject(fault("PUT", "/new", 0, 100, S3Trouble::ErrorInBody));
    store.rename("old".as_ref(), "new".as_ref(), Rename::Replace).unwrap_err();
    assert_eq!(read(&*store, "old"), b"bytes");
    assert_eq!(store.stat("new".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn stray_uploads_are_listed_in_pages_and_aborted() {
    let (server, served, store) = bucket();
    let outside = open_url("s3://bucket/data-of-others", &served.options).unwrap();
    let mut open: Vec<_> = (0..12)
        .map(|index| (Arc::clone(&store), format!("directory/{}", index % 7)))
        .chain([(outside, "x".to_owned())])
        .map(|(store, name)| {
            let object = store.open_write(name.as_ref(), &create()).unwrap();
            write(&*object, PART, b"begins an upload").unwrap();
            object
        })
        .collect();
    let uploads = store.stray_uploads().unwrap();
    assert_eq!(uploads.len(), 12, "{uploads:?}");
    assert!(count(&server, "key-marker=") >= 2, "in pages");
    let now = SystemTime::now();
    for upload in &uploads {
        assert!(upload.path.starts_with("directory"), "{upload:?}");
        let age = now.duration_since(upload.begun.unwrap()).unwrap_or_default();
        assert!(age < Duration::from_secs(600), "{upload:?}");
        store.abort_upload(upload).unwrap();
    }
    assert_eq!(store.stray_uploads().unwrap(), []);
    assert_eq!(server.uploads().len(), 1, "uploads of others stay");
    assert_eq!(store.abort_upload(&uploads[0]).unwrap_err().kind(), ErrorKind::NotFound);
    // The writer of an aborted upload gets an error.
    let error = write(&*open[0], 0, &vec![0; PART]).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::NotFound, false), "{error}");
    open.clear();
}

/// Slots that grow after two parts, so that small objects have large slots.
const GROWING: Sizes = Sizes { part: PART as u64, singles: 2, copy: 2 * PART as u64, copied_singly: 4 };

/// A writer of `data/object` with such slots.
fn growing(served: &Served, published: Option<&dyn Object>, fresh: bool) -> CloudWriter {
    let backend = open::open("s3://bucket", "s3", "//bucket", &served.options).unwrap();
    let key = object_store::path::Path::from("data/object");
    let name = Arc::from("s3://bucket/data/object");
    let place = Location { cloud: Arc::clone(&backend.cloud), key, name, sizes: GROWING };
    let published = published.map(|_| {
        let meta = backend.look("data/object".as_ref()).unwrap().expect("an object");
        Arc::new(Version::of_object(&place.cloud, &place.name, meta))
    });
    CloudWriter::new(place, backend.gate.clone(), published, fresh, false, Default::default())
}

#[test]
fn slots_of_several_parts_are_gathered_and_sent_once() {
    let (server, served, store) = bucket();
    let all = bytes("gathered", 7 * PART + 99);
    let object = growing(&served, None, true);
    write_all(&object, 0, &all);
    // Parts 2 and 3, 4 and 5 are sent together, after their writes have ended; 6 and the short last
    // one wait for later parts.
    let begun = Instant::now();
    while count(&server, "partNumber=") < 4 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", server.requests());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(count(&server, "partNumber="), 4);
    object.finish().unwrap();
    assert!(read(&*store, "object") == all);
    assert_eq!(count(&server, "partNumber="), 5);
    // The last part again, longer, and more parts: the server copies the others.
    let before = server.requests().len();
    let longer = [&all[..], &bytes("more", 2 * PART)].concat();
    write_all(&object, 7 * PART, &longer[7 * PART..]);
    object.finish().unwrap();
    assert!(read(&*store, "object") == longer);
    let requests = &server.requests()[before..];
    let copies =
        requests.iter().filter(|r| (1..=4).any(|part| r.contains(&format!("partNumber={part}&")))).count();
    assert_eq!(copies, 4, "7 parts are copied as three slots of two and one of one: {requests:?}");
    assert_eq!(requests.iter().filter(|r| r.starts_with("PUT")).count(), 4 + 3, "{requests:?}");
    // Bytes copied in large slots cannot be written again.
    write(&object, 9 * PART, &vec![1; PART]).unwrap();
    let error = write(&object, 0, &vec![1; PART]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_slot_that_cannot_be_sent_is_kept_and_sent_when_finished() {
    let (server, served, store) = bucket();
    let all = bytes("kept", 4 * PART);
    server.inject(fault("PUT", "partNumber=3", 0, 6, S3Trouble::Refused(503)));
    let object = growing(&served, None, true);
    write_all(&object, 0, &all);
    object.finish().unwrap();
    assert!(read(&*store, "object") == all);
    // If it cannot be sent at all, finishing fails, and the object is unchanged.
    let other = bytes("other", 4 * PART);
    server.inject(fault("PUT", "partNumber=3", 0, 14, S3Trouble::Refused(503)));
    let object = growing(&served, None, true);
    write_all(&object, 0, &other);
    let error = object.finish().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Throttled, true), "{error}");
    assert!(read(&*store, "object") == all);
    object.finish().unwrap();
    assert!(read(&*store, "object") == other);
}

#[test]
fn missing_parts_of_a_slot_come_from_the_earlier_version() {
    let (_server, served, store) = bucket();
    let mut all = bytes("before", 3 * PART + 7);
    served.put("object", &all);
    let now = store.open("object".as_ref()).unwrap();
    let object = growing(&served, Some(&*now), false);
    all.truncate(3 * PART);
    all.extend(bytes("after", PART / 2));
    write(&object, 3 * PART, &all[3 * PART..]).unwrap();
    object.finish().unwrap();
    assert!(read(&*store, "object") == all, "part 2 shares a slot with part 3");
    // A hole is no slot.
    let object = growing(&served, None, true);
    for part in [0, 1, 3] {
        write(&object, part * PART, &all[..PART]).unwrap();
    }
    assert_eq!(object.finish().unwrap_err().kind(), ErrorKind::Invalid);
}

/// Google's XML interface, as far as the test server supports it; the client copies parts.
#[test]
fn another_cloud_is_written_without_copies_of_parts() {
    let directory = tempfile::tempdir().unwrap();
    let server = S3Server::start_open(directory.path(), &["bucket"]).unwrap();
    fs::create_dir(directory.path().join("bucket/data")).unwrap();
    let options = Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(Credentials::Google { service_account_key: NO_KEY.to_owned() }),
        ..Options::default()
    };
    let store = open::open("gs://bucket", "gs", "//bucket", &options).unwrap();
    let all = bytes("google", 2 * PART + 7);
    let object = store.open_write("data/object".as_ref(), &create()).unwrap();
    write_all(&*object, 0, &all[..PART + 3]);
    object.finish().unwrap();
    write_all(&*object, PART, &all[PART..]);
    object.finish().unwrap();
    assert!(read(&store, "data/object") == all);
    store.create_directory("data/directory".as_ref(), 0o755, None).unwrap();
    store.remove_file("data/object".as_ref()).unwrap();
    store.remove_directory("data/directory".as_ref()).unwrap();
    assert_eq!(store.list("data".as_ref()).unwrap(), []);
    assert_eq!(store.stray_uploads().unwrap(), []);
}

/// A key file for a server without authentication.
const NO_KEY: &str = r#"{"private_key":"x","private_key_id":"x","client_email":"x","disable_oauth":true}"#;
