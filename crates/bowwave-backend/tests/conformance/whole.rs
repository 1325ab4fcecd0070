//! The contract of stores of whole objects: nothing is visible before `finish`, then the whole
//! object.

use std::path::Path;
use std::sync::Arc;

use super::{PATIENCE, bytes_of, create, put, shown};
use crate::{
    Allocate, Backend, EntryKind, ErrorKind, Namespace as _, OpenWrite, Rename, Result, SetAttributes,
    SetXattr, Write as _, WriteBuf, WriteObject, pattern, read_once, start_write, write_once,
};

pub(super) fn run(store: &dyn Backend) {
    let part = usize::try_from(store.profile().write_part_bytes).expect("parts fit into memory");
    assert!(part.is_power_of_two());
    store.create_directory("whole".as_ref(), 0o755, None).expect("the root can be written");
    seen_when_finished(store, part);
    empty(store);
    replaced(store, part);
    abandoned(store, part);
    exclusive(store, part);
    rewritten_before(store, part);
    continued_after(store, part);
    refused(store, part);
    short_in_the_middle(store, part);
    names(store);
    what_it_cannot(store);
    dropped_with_writes_in_flight(store, part);
    uploads(store, part);
}

/// `len` bytes that are unique to `name`.
fn bytes(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern::fill(pattern::seed(name.as_ref()), 0, &mut bytes);
    bytes
}

/// Writes parts from `from` on, concurrently, the last first.
fn write_all(object: &dyn WriteObject, from: usize, part: usize, bytes: &[u8]) {
    let parts: Vec<_> = bytes.chunks(part).enumerate().collect();
    let begun = parts.into_iter().rev().map(|(index, bytes)| {
        let offset = (from + index * part) as u64;
        (bytes, start_write(object, offset, WriteBuf::from_vec(bytes.to_vec())))
    });
    for (bytes, end) in begun.collect::<Vec<_>>() {
        let (buf, result) = end.recv_timeout(PATIENCE).expect("each write ends");
        assert_eq!(result.expect("a part of the object"), bytes.len());
        assert!(buf.to_vec() == bytes, "the buffer comes back as it went");
        assert!(end.recv_timeout(PATIENCE).is_err(), "a write ends once");
    }
}

fn open(store: &dyn Backend, path: &str, how: OpenWrite) -> Arc<dyn WriteObject> {
    store.open_write(path.as_ref(), &how).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn kind<T>(result: Result<T>, what: &str) -> ErrorKind {
    result.map(drop).expect_err(what).kind()
}

fn is_missing(store: &dyn Backend, path: &str) -> bool {
    store.stat(path.as_ref()).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn seen_when_finished(store: &dyn Backend, part: usize) {
    for len in [1, 1000, part - 1, part, part + 1, 3 * part + 17] {
        let (name, all) = ("whole/seen", bytes("seen", len));
        let object = create(store, name);
        assert_eq!(object.size(), 0);
        write_all(&*object, 0, part, &all);
        object.sync(false).expect("has nothing to do");
        assert!(is_missing(store, name), "{len} bytes are seen too early");
        let identity = object.finish().expect("all parts are there");
        assert!(bytes_of(store, name) == all, "{len} bytes");
        assert_eq!((identity.size, shown(store, name).size), (len as u64, len as u64));
        assert_eq!(store.open(name.as_ref()).expect("there").identity(), &identity);
        assert_eq!(object.finish().expect("nothing was written since"), identity);
        let tail =
            read_once(&*object, len as u64 - 1, 1, PATIENCE).expect("the writer reads what is published");
        assert_eq!(tail, all[len - 1..]);
        store.remove_file(name.as_ref()).expect("there");
        assert!(is_missing(store, name));
    }
}

fn empty(store: &dyn Backend) {
    create(store, "whole/empty").finish().expect("made, and finished without a write");
    assert_eq!((shown(store, "whole/empty").size, bytes_of(store, "whole/empty")), (0, vec![]));
    let object = open(store, "whole/empty", OpenWrite::default());
    assert_eq!(write_once(&*object, 0, b"", PATIENCE).expect("an empty write succeeds"), 0);
    write_once(&*object, 0, b"bytes", PATIENCE).expect("continues an empty object");
    object.finish().expect("published");
    assert_eq!(bytes_of(store, "whole/empty"), b"bytes");
    let object = open(store, "whole/empty", OpenWrite { truncate: true, ..OpenWrite::default() });
    assert_eq!(
        (object.size(), bytes_of(store, "whole/empty")),
        (0, b"bytes".to_vec()),
        "until it is finished"
    );
    object.finish().expect("truncated");
    assert_eq!(bytes_of(store, "whole/empty"), b"");
}

fn replaced(store: &dyn Backend, part: usize) {
    let (old, new) = (bytes("old", part + 5), bytes("new", 2 * part));
    let object = create(store, "whole/replaced");
    write_all(&*object, 0, part, &old);
    object.finish().expect("published");
    let reader = store.open("whole/replaced".as_ref()).expect("there");
    let object = open(store, "whole/replaced", OpenWrite { truncate: true, ..OpenWrite::default() });
    assert_eq!(object.size(), 0, "it was cut");
    write_all(&*object, 0, part, &new);
    assert!(bytes_of(store, "whole/replaced") == old, "until it is finished");
    object.finish().expect("published");
    assert!(bytes_of(store, "whole/replaced") == new);
    assert_eq!(kind(read_once(&*reader, 0, 10, PATIENCE), "another version"), ErrorKind::Changed);
    object.set_len(0).expect("an object can be cut to nothing");
    assert!(bytes_of(store, "whole/replaced") == new, "until it is finished");
    object.finish().expect("published");
    assert_eq!(bytes_of(store, "whole/replaced"), b"");
}

fn abandoned(store: &dyn Backend, part: usize) {
    put(store, "whole/kept", b"kept");
    for name in ["whole/kept", "whole/never"] {
        let how = OpenWrite { create: true, truncate: true, ..OpenWrite::default() };
        for len in [10, part + 10] {
            let object = open(store, name, how);
            write_all(&*object, 0, part, &bytes("given up", len));
            drop(object);
            let object = open(store, name, how);
            write_all(&*object, 0, part, &bytes("given up", len));
            object.abort();
            drop(object);
        }
    }
    assert_eq!(bytes_of(store, "whole/kept"), b"kept");
    assert!(is_missing(store, "whole/never"));
    let object = create(store, "whole/anew");
    write_all(&*object, 0, part, &bytes("given up", 2 * part));
    object.abort();
    write_all(&*object, 0, part, b"later");
    object.finish().expect("written since");
    assert_eq!(bytes_of(store, "whole/anew"), b"later");
}

fn exclusive(store: &dyn Backend, part: usize) {
    let how = OpenWrite { create: true, exclusive: true, ..OpenWrite::default() };
    assert_eq!(kind(store.open_write("whole/kept".as_ref(), &how), "there"), ErrorKind::Exists);
    let directory = kind(store.open_write("whole".as_ref(), &how), "a directory");
    assert!(matches!(directory, ErrorKind::IsADirectory | ErrorKind::Exists), "{directory:?}");
    let missing = store.open_write("whole/none".as_ref(), &OpenWrite::default());
    assert_eq!(kind(missing, "not made"), ErrorKind::NotFound);
    for (name, len) in [("whole/first", 10), ("whole/second", part + 10)] {
        let late = create(store, name);
        write_all(&*late, 0, part, &bytes("late", len));
        put(store, name, b"quick");
        let error = late.finish().expect_err("another writer was faster");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Exists, false), "{error}");
        assert_eq!(bytes_of(store, name), b"quick");
    }
    let object = create(store, "whole/once");
    for bytes in [b"first", b"again"] {
        write_all(&*object, 0, part, bytes);
        object.finish().expect("it is exclusive only once");
        assert_eq!(bytes_of(store, "whole/once"), bytes);
    }
}

/// Before `finish`, parts may be replaced and the last one may grow.
fn rewritten_before(store: &dyn Backend, part: usize) {
    let all = bytes("rewritten", 2 * part + 9);
    let object = create(store, "whole/rewritten");
    for end in [7, 1000, part] {
        write_all(&*object, 0, part, &all[..end]);
    }
    for end in [part + 3, 2 * part] {
        write_all(&*object, part, part, &all[part..end]);
    }
    write_all(&*object, 0, part, &vec![0; part]);
    write_all(&*object, 0, part, &all[..part]);
    write_all(&*object, 2 * part, part, &all[2 * part..]);
    object.finish().expect("all parts are there");
    assert!(bytes_of(store, "whole/rewritten") == all);
}

/// After `finish`, a write begins a version that starts as a copy of the published one.
fn continued_after(store: &dyn Backend, part: usize) {
    let all = bytes("continued", 4 * part);
    let object = create(store, "whole/continued");
    let mut identities = Vec::new();
    for (from, to) in [(0, 5), (0, part + 5), (part, part + 6), (part, 2 * part), (2 * part, 4 * part)] {
        write_all(&*object, from, part, &all[from..to]);
        identities.push(object.finish().expect("published"));
        let again = object.finish().expect("nothing was written since");
        assert_eq!(again, identities[identities.len() - 1]);
        assert!(bytes_of(store, "whole/continued") == all[..to], "{from}..{to}");
    }
    identities.dedup();
    assert_eq!(identities.len(), 5, "each version is another");
    drop(object);
    // By another writer, in the middle, after one abort.
    let object = open(store, "whole/continued", OpenWrite::default());
    assert_eq!(object.size(), 4 * part as u64);
    assert_eq!(object.finish().expect("nothing was written"), identities[4]);
    let mut changed = all.clone();
    changed[part..2 * part].copy_from_slice(&bytes("middle", part));
    write_all(&*object, part, part, &changed[part..2 * part]);
    object.abort();
    assert_eq!(object.finish().expect("nothing is left of it"), identities[4]);
    write_all(&*object, part, part, &changed[part..2 * part]);
    assert!(bytes_of(store, "whole/continued") == all);
    object.finish().expect("published");
    assert!(bytes_of(store, "whole/continued") == changed);
}

fn refused(store: &dyn Backend, part: usize) {
    let object = open(store, "whole/kept", OpenWrite::default());
    let write = |offset: usize, len: usize| write_once(&*object, offset as u64, &vec![1; len], PATIENCE);
    assert_eq!(kind(write(1, part), "no multiple of a part"), ErrorKind::Invalid);
    assert_eq!(kind(write(part / 2, 10), "no multiple of a part"), ErrorKind::Invalid);
    assert_eq!(kind(write(0, part + 1), "more than a part"), ErrorKind::Invalid);
    object.set_len(4).expect("it has this size");
    assert_eq!(kind(object.set_len(3), "cut"), ErrorKind::Unsupported);
    assert_eq!(kind(object.set_len(5), "extended"), ErrorKind::Unsupported);
    assert_eq!(kind(object.allocate(0, 4, Allocate::Punch), "punched"), ErrorKind::Unsupported);
    assert_eq!(bytes_of(store, "whole/kept"), b"kept");
    let object = create(store, "whole/hole");
    write_all(&*object, part, part, &bytes("behind a hole", 2 * part));
    assert_eq!(kind(object.finish(), "the first part is missing"), ErrorKind::Invalid);
    assert!(is_missing(store, "whole/hole"));
    write_all(&*object, 0, part, &bytes("in the hole", part));
    object.finish().expect("all parts are there");
    assert_eq!(shown(store, "whole/hole").size, 3 * part as u64);
}

fn names(store: &dyn Backend) {
    let directory = |path: &str| store.create_directory(path.as_ref(), 0o755, None);
    let rename = |from: &str, to: &str, how| store.rename(from.as_ref(), to.as_ref(), how);
    directory("whole/directory").expect("made");
    assert_eq!(shown(store, "whole/directory").kind, EntryKind::Directory);
    assert_eq!(kind(directory("whole/directory"), "there"), ErrorKind::Exists);
    put(store, "whole/directory/a", b"a");
    put(store, "whole/directory/b", b"b");
    assert_eq!(
        kind(rename("whole/directory/a", "whole/directory/b", Rename::NoReplace), "taken"),
        ErrorKind::Exists
    );
    rename("whole/directory/a", "whole/directory/b", Rename::Replace).expect("replaced");
    rename("whole/directory/b", "whole/c", Rename::NoReplace).expect("free");
    assert_eq!(bytes_of(store, "whole/c"), b"a");
    assert_eq!(kind(rename("whole/directory/a", "whole/d", Rename::Replace), "gone"), ErrorKind::NotFound);
    assert_eq!(
        kind(rename("whole/c", "whole/directory", Rename::Replace), "a directory"),
        ErrorKind::IsADirectory
    );
    assert!(store.list("whole/directory".as_ref()).expect("is there, although empty").is_empty());
    put(store, "whole/directory/x", b"x");
    assert_eq!(kind(store.remove_directory("whole/directory".as_ref()), "not empty"), ErrorKind::NotEmpty);
    assert_eq!(kind(store.remove_directory("whole/c".as_ref()), "a file"), ErrorKind::NotADirectory);
    assert_eq!(kind(store.remove_file("whole/directory".as_ref()), "a directory"), ErrorKind::IsADirectory);
    store.remove_file("whole/directory/x".as_ref()).expect("there");
    assert_eq!(kind(store.remove_file("whole/directory/x".as_ref()), "gone"), ErrorKind::NotFound);
    store.remove_directory("whole/directory".as_ref()).expect("empty");
    assert_eq!(kind(store.stat("whole/directory".as_ref()), "gone"), ErrorKind::NotFound);
    for outside in ["../x", "/x", "whole/../x"] {
        let how = OpenWrite { create: true, ..OpenWrite::default() };
        store.open_write(outside.as_ref(), &how).map(drop).expect_err(outside);
        directory(outside).expect_err(outside);
        rename("whole/c", outside, Rename::Replace).expect_err(outside);
        store.remove_file(outside.as_ref()).expect_err(outside);
    }
    store.remove_file("whole/c".as_ref()).expect("nothing has moved it");
}

/// A short part must be the last one.
fn short_in_the_middle(store: &dyn Backend, part: usize) {
    let object = create(store, "whole/short");
    write_all(&*object, part, part, &bytes("second", part));
    assert_eq!(kind(write_once(&*object, 0, b"short", PATIENCE), "not the last"), ErrorKind::Invalid);
    write_all(&*object, 0, part, &bytes("first", part));
    object.finish().expect("all is there now");
    assert!(bytes_of(store, "whole/short") == [bytes("first", part), bytes("second", part)].concat());
}

fn what_it_cannot(store: &dyn Backend) {
    put(store, "whole/object", b"bytes");
    put(store, "whole/full/object", b"bytes");
    let at = "whole/object".as_ref();
    let mode = SetAttributes { mode: Some(0), ..SetAttributes::default() };
    for (error, wanted) in [
        (store.symlink("object".as_ref(), "whole/x".as_ref(), None), ErrorKind::Unsupported),
        (store.link(at, "whole/x".as_ref()), ErrorKind::Unsupported),
        (store.create_node("whole/x".as_ref(), EntryKind::Fifo, 0o644, 0, None), ErrorKind::Unsupported),
        (store.set_attributes(at, &mode), ErrorKind::Unsupported),
        (store.set_xattr(at, "user.x".as_ref(), b"x", SetXattr::Any), ErrorKind::Unsupported),
        (store.rename(at, "whole/seen".as_ref(), Rename::Exchange), ErrorKind::Unsupported),
        // It would take many requests, and be visible half done.
        (store.rename("whole/full".as_ref(), "whole/x".as_ref(), Rename::Replace), ErrorKind::CrossDevice),
    ] {
        let error = error.expect_err("an object store has no such thing");
        assert_eq!(error.kind(), wanted, "{error}");
    }
    assert!(is_missing(store, "whole/x"));
}

/// An unfinished upload is listed and can be aborted; its bytes are not visible.
fn uploads(store: &dyn Backend, part: usize) {
    let listed = || {
        let mut uploads = store.stray_uploads().expect("listed");
        uploads.retain(|upload| upload.path == Path::new("whole/upload/here"));
        uploads
    };
    let object = create(store, "whole/upload/here");
    write_all(&*object, 0, part, &bytes("upload", part));
    let found = listed();
    assert_eq!(found.len(), 1);
    assert!(is_missing(store, "whole/upload/here") && is_missing(store, "whole/upload"));
    store.abort_upload(&found[0]).expect("there");
    assert_eq!(listed(), []);
    // Some servers report it missing, others accept the abort.
    if let Err(error) = store.abort_upload(&found[0]) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    object.finish().expect_err("its parts are gone");
    drop(object);
    assert!(is_missing(store, "whole/upload/here"));
}

fn dropped_with_writes_in_flight(store: &dyn Backend, part: usize) {
    let object = create(store, "whole/dropped");
    let writes: Vec<_> = (0..4u64)
        .map(|index| start_write(&*object, index * part as u64, WriteBuf::from_vec(vec![1; part])))
        .collect();
    drop(object);
    for end in writes {
        // It may succeed or fail, but it ends.
        let (buf, _) = end.recv_timeout(PATIENCE).expect("each write ends");
        assert_eq!(buf.len(), part);
    }
    assert!(is_missing(store, "whole/dropped"));
}
