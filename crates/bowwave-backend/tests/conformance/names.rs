//! Names in stores that accept writes anywhere: directories, links, renames, attributes, hostile
//! names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{PATIENCE, bytes_of, create, put, shown, text_path};
use crate::{
    Attributes, Backend, EntryKind, ErrorKind, Namespace as _, OpenWrite, Rename, Result, SetAttributes,
    SetTime, SetXattr, Write as _, write_exact,
};

pub(super) fn run(store: &dyn Backend) {
    store.create_directory("names".as_ref(), 0o755, None).expect("the root can be written");
    directories(store);
    renames(store);
    directory_renames(store);
    hard_links(store);
    symbolic_links(store);
    special_files(store);
    attributes(store);
    extended_attributes(store);
    room(store);
    odd_names(store);
    hostile_names(store);
}

fn kind<T>(result: Result<T>, what: &str) -> ErrorKind {
    result.map(drop).expect_err(what).kind()
}

fn names(store: &dyn Backend, path: &str) -> Vec<OsString> {
    let entries = store.list(path.as_ref()).unwrap_or_else(|error| panic!("{path}: {error}"));
    entries.into_iter().map(|entry| entry.name).collect()
}

fn directories(store: &dyn Backend) {
    let make = |path: &str| store.create_directory(path.as_ref(), 0o750, None);
    make("names/d").expect("made");
    let entry = shown(store, "names/d");
    assert_eq!((entry.kind, entry.mode), (EntryKind::Directory, Some(0o750)));
    assert_eq!(kind(make("names/d"), "there"), ErrorKind::Exists);
    assert_eq!(kind(make("names/none/d"), "no parent"), ErrorKind::NotFound);
    make("names/d/inner").expect("made");
    put(store, "names/d/file", b"x");
    assert_eq!(names(store, "names/d"), ["file", "inner"]);
    let remove = |path: &str| store.remove_directory(path.as_ref());
    assert_eq!(kind(remove("names/d"), "not empty"), ErrorKind::NotEmpty);
    assert_eq!(kind(remove("names/d/file"), "a file"), ErrorKind::NotADirectory);
    assert_eq!(kind(remove("names/none"), "missing"), ErrorKind::NotFound);
    let remove_file = |path: &str| store.remove_file(path.as_ref());
    assert_eq!(kind(remove_file("names/d/inner"), "a directory"), ErrorKind::IsADirectory);
    assert_eq!(kind(remove_file("names/none"), "missing"), ErrorKind::NotFound);
    remove("names/d/inner").expect("empty");
    remove_file("names/d/file").expect("a file");
    assert!(names(store, "names/d").is_empty());
    remove("names/d").expect("empty now");
    assert_eq!(kind(store.stat("names/d".as_ref()), "gone"), ErrorKind::NotFound);
}

fn renames(store: &dyn Backend) {
    let rename = |from: &str, to: &str, how| {
        store.rename(format!("names/{from}").as_ref(), format!("names/{to}").as_ref(), how)
    };
    put(store, "names/a", b"a");
    put(store, "names/b", b"b");
    assert_eq!(kind(rename("a", "b", Rename::NoReplace), "taken"), ErrorKind::Exists);
    rename("a", "b", Rename::Exchange).expect("exchanged");
    assert_eq!((bytes_of(store, "names/a"), bytes_of(store, "names/b")), (b"b".to_vec(), b"a".to_vec()));
    assert_eq!(kind(rename("a", "none", Rename::Exchange), "both must exist"), ErrorKind::NotFound);
    let open = store.open_write("names/b".as_ref(), &OpenWrite::default()).expect("there");
    rename("a", "b", Rename::Replace).expect("replaced");
    assert_eq!(
        (bytes_of(store, "names/b"), names(store, "names")),
        (b"b".to_vec(), vec![OsString::from("b")])
    );
    write_exact(&*open, 0, b"z", PATIENCE).expect("who has the replaced one open keeps it");
    assert_eq!(bytes_of(store, "names/b"), b"b");
    rename("b", "c", Rename::NoReplace).expect("free");
    assert_eq!(kind(rename("b", "d", Rename::Replace), "gone"), ErrorKind::NotFound);
    assert_eq!(kind(rename("c", "none/c", Rename::Replace), "no parent"), ErrorKind::NotFound);
    assert_eq!(kind(rename("c/x", "d", Rename::Replace), "below a file"), ErrorKind::NotADirectory);
    rename("c", "c", Rename::Replace).expect("to itself");
    assert_eq!(bytes_of(store, "names/c"), b"b");
    store.remove_file("names/c".as_ref()).expect("there");
}

fn directory_renames(store: &dyn Backend) {
    let rename = |from: &str, to: &str| store.rename(from.as_ref(), to.as_ref(), Rename::Replace);
    for directory in ["names/from", "names/from/in", "names/full", "names/empty"] {
        store.create_directory(directory.as_ref(), 0o755, None).expect("made");
    }
    put(store, "names/from/in/deep", b"deep");
    put(store, "names/full/file", b"x");
    put(store, "names/file", b"x");
    assert_eq!(kind(rename("names/from", "names/from/in/side"), "into itself"), ErrorKind::Invalid);
    assert_eq!(kind(rename("names/from", "names/full"), "not empty"), ErrorKind::NotEmpty);
    assert_eq!(kind(rename("names/from", "names/file"), "a file"), ErrorKind::NotADirectory);
    assert_eq!(kind(rename("names/file", "names/empty"), "a directory"), ErrorKind::IsADirectory);
    rename("names/from", "names/empty").expect("an empty directory is replaced");
    assert_eq!(bytes_of(store, "names/empty/in/deep"), b"deep");
    assert_eq!(names(store, "names"), ["empty", "file", "full"]);
    for file in ["names/empty/in/deep", "names/full/file", "names/file"] {
        store.remove_file(file.as_ref()).expect(file);
    }
    for directory in ["names/empty/in", "names/empty", "names/full"] {
        store.remove_directory(directory.as_ref()).expect(directory);
    }
}

fn hard_links(store: &dyn Backend) {
    put(store, "names/one", b"one");
    let link = |from: &str, to: &str| store.link(from.as_ref(), to.as_ref());
    link("names/one", "names/two").expect("linked");
    let unix = |path: &str| shown(store, path).unix.expect("a file system");
    let (one, two) = (unix("names/one"), unix("names/two"));
    assert_eq!((one.device, one.inode, one.links), (two.device, two.inode, 2));
    assert_eq!(kind(link("names/one", "names/two"), "taken"), ErrorKind::Exists);
    assert_eq!(kind(link("names/none", "names/three"), "missing"), ErrorKind::NotFound);
    assert_eq!(kind(link("names", "names/three"), "a directory"), ErrorKind::PermissionDenied);
    let object = store.open_write("names/two".as_ref(), &OpenWrite::default()).expect("there");
    write_exact(&*object, 0, b"t", PATIENCE).expect("written");
    assert_eq!(bytes_of(store, "names/one"), b"tne", "one file, two names");
    // POSIX: a rename between two names of one file does nothing.
    store.rename("names/one".as_ref(), "names/two".as_ref(), Rename::Replace).expect("the same file");
    assert_eq!(unix("names/one").links, 2);
    store.remove_file("names/one".as_ref()).expect("there");
    assert_eq!((unix("names/two").links, bytes_of(store, "names/two")), (1, b"tne".to_vec()));
    store.remove_file("names/two".as_ref()).expect("there");
}

fn symbolic_links(store: &dyn Backend) {
    let long = text_path("", 't', 1000);
    let odd = Path::new(OsStr::from_bytes(b"../odd\xff/nowhere"));
    for target in [Path::new("c"), Path::new("/etc/passwd"), odd, Path::new(&long)] {
        let at = Path::new("names/link");
        store.symlink(target, at, None).expect("made");
        assert_eq!(store.read_link(at).expect("a link"), target);
        let entry = store.stat(at).expect("there");
        assert_eq!((entry.kind, entry.size), (EntryKind::Link, target.as_os_str().len() as u64));
        assert_eq!(kind(store.symlink(target, at, None), "taken"), ErrorKind::Exists);
        let how = OpenWrite { create: true, truncate: true, mode: 0o644, ..OpenWrite::default() };
        store.open_write(at, &how).map(drop).expect_err("a link is not followed for writing");
        let exclusive = OpenWrite { exclusive: true, ..how };
        assert_eq!(kind(store.open_write(at, &exclusive), "taken"), ErrorKind::Exists);
        store.rename(at, "names/moved".as_ref(), Rename::Replace).expect("the link itself");
        store.link("names/moved".as_ref(), at).expect("the link itself");
        assert_eq!(store.read_link(at).expect("a link"), target);
        store.remove_file(at).expect("the link itself");
        store.remove_file("names/moved".as_ref()).expect("the link itself");
    }
}

fn special_files(store: &dyn Backend) {
    let make = |path: &str, kind| store.create_node(path.as_ref(), kind, 0o620, 0, None);
    for (path, what) in [
        ("names/fifo", EntryKind::Fifo),
        ("names/socket", EntryKind::Socket),
        ("names/empty", EntryKind::File),
    ] {
        make(path, what).expect("made");
        let entry = shown(store, path);
        assert_eq!((entry.kind, entry.size, entry.mode), (what, 0, Some(0o620)), "{path}");
        assert_eq!(kind(make(path, what), "taken"), ErrorKind::Exists);
        if what != EntryKind::File {
            store.open(path.as_ref()).map(drop).expect_err("has no bytes");
            store.open_write(path.as_ref(), &OpenWrite::default()).map(drop).expect_err("has no bytes");
        }
        store.remove_file(path.as_ref()).expect("there");
    }
    assert_eq!(kind(make("names/x", EntryKind::Directory), "another call's"), ErrorKind::Invalid);
}

fn attributes(store: &dyn Backend) {
    let object = create(store, "names/attributes");
    let set = |attributes: SetAttributes| store.set_attributes("names/attributes".as_ref(), &attributes);
    let look = || shown(store, "names/attributes");
    set(SetAttributes { mode: Some(0o4751), ..SetAttributes::default() }).expect("ours");
    assert_eq!(look().mode, Some(0o4751));
    let early = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    let late = early + Duration::from_secs(86_400);
    let at = |time| Some(SetTime::At(time));
    set(SetAttributes { accessed: at(early), modified: at(late), ..SetAttributes::default() }).expect("ours");
    let times = || (look().unix.expect("a file system").accessed, look().modified.expect("a file system"));
    assert_eq!(times(), (early, late), "to the nanosecond");
    set(SetAttributes { modified: at(early), ..SetAttributes::default() }).expect("ours");
    assert_eq!(times(), (early, early), "the other one stays");
    set(SetAttributes::default()).expect("ours");
    assert_eq!((look().mode, times()), (Some(0o751), (early, early)), "no change, but set-user-id goes");
    let before = SystemTime::now() - Duration::from_secs(1);
    set(SetAttributes { accessed: Some(SetTime::Now), ..SetAttributes::default() }).expect("ours");
    assert!(times().0 > before && times().1 == early);
    let handle = object.attributes().expect("a file system");
    store.remove_file("names/attributes".as_ref()).expect("there");
    by_handle(handle, early);
}

/// The same through a handle of an unlinked file.
fn by_handle(handle: &dyn Attributes, time: SystemTime) {
    let owner = handle.stat().expect("open").unix.expect("a file system");
    let attributes = SetAttributes {
        mode: Some(0o600),
        uid: Some(owner.uid),
        gid: Some(owner.gid),
        accessed: None,
        modified: Some(SetTime::At(time)),
    };
    handle.set(&attributes).expect("ours");
    let entry = handle.stat().expect("open");
    assert_eq!((entry.mode, entry.modified, entry.name.is_empty()), (Some(0o600), Some(time), true));
}

fn extended_attributes(store: &dyn Backend) {
    put(store, "names/xattr", b"x");
    let path = Path::new("names/xattr");
    let (one, two) = (OsStr::new("user.one"), OsStr::new("user.two"));
    match store.set_xattr(path, one, b"first", SetXattr::Replace) {
        // A file system without extended attributes.
        Err(error) if error.kind() == ErrorKind::Unsupported => return,
        result => assert_eq!(kind(result, "not there"), ErrorKind::NoAttribute),
    }
    let large = vec![7; 1000];
    store.set_xattr(path, one, &large, SetXattr::Create).expect("new");
    store.set_xattr(path, two, b"", SetXattr::Any).expect("new");
    assert_eq!(kind(store.set_xattr(path, one, b"", SetXattr::Create), "there"), ErrorKind::Exists);
    let read = |name| store.xattr(path, name);
    assert_eq!((read(one).expect("set"), read(two).expect("set")), (large, Vec::new()));
    let mut list = store.list_xattrs(path).expect("listed");
    list.retain(|name| name.as_bytes().starts_with(b"user."));
    list.sort();
    assert_eq!(list, [one, two]);
    store.set_xattr(path, one, b"second", SetXattr::Replace).expect("there");
    assert_eq!(read(one).expect("set"), b"second");
    store.remove_xattr(path, one).expect("there");
    assert_eq!(kind(read(one), "gone"), ErrorKind::NoAttribute);
    assert_eq!(kind(store.remove_xattr(path, one), "gone"), ErrorKind::NoAttribute);
    store.remove_file(path).expect("there");
}

fn room(store: &dyn Backend) {
    match store.statfs() {
        Ok(room) => {
            assert!(room.block_bytes > 0 && room.blocks >= room.blocks_free, "{room:?}");
            assert!(room.blocks_free >= room.blocks_available && room.name_bytes_max >= 255, "{room:?}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
}

/// Unusual but valid names.
fn odd_names(store: &dyn Backend) {
    let longest = OsString::from(text_path("", 'l', 255));
    let odd: [&[u8]; 7] = [b"\xff\xfe", b"two\nlines", b" ", b"back\\slash", b"-rf", b"...", b"%2e%2e"];
    let odd = odd.map(|bytes| OsString::from_vec(bytes.to_vec()));
    for name in odd.into_iter().chain([longest]) {
        let path: PathBuf = Path::new("names").join(&name);
        let how = OpenWrite { create: true, exclusive: true, mode: 0o644, ..OpenWrite::default() };
        let object = store.open_write(&path, &how).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        write_exact(&*object, 0, b"odd", PATIENCE).expect("written");
        assert_eq!(names(store, "names"), [name], "as it was given");
        store.remove_file(&path).expect("there");
    }
}

/// Names that lead elsewhere, and invalid names.
fn hostile_names(store: &dyn Backend) {
    let too_long = text_path("names/", 'x', 256);
    let outside =
        ["../x", "/etc/passwd", "names/../../x", ".", "..", "names/..", "names/nul\0byte", &too_long];
    put(store, "names/ours", b"ours");
    for path in outside {
        let at = Path::new(path);
        let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
        let ours = Path::new("names/ours");
        let calls: [(&str, Result<()>); 14] = [
            ("open", store.open(at).map(drop)),
            ("stat", store.stat(at).map(drop)),
            ("open_write", store.open_write(at, &create).map(drop)),
            ("create_directory", store.create_directory(at, 0o755, None)),
            ("remove_file", store.remove_file(at)),
            ("remove_directory", store.remove_directory(at)),
            ("rename from", store.rename(at, "names/x".as_ref(), Rename::Replace)),
            ("rename to", store.rename(ours, at, Rename::Replace)),
            ("link from", store.link(at, "names/x".as_ref())),
            ("link to", store.link(ours, at)),
            ("symlink", store.symlink("x".as_ref(), at, None)),
            ("create_node", store.create_node(at, EntryKind::Fifo, 0o644, 0, None)),
            ("set_attributes", store.set_attributes(at, &SetAttributes::default())),
            ("set_xattr", store.set_xattr(at, "user.x".as_ref(), b"x", SetXattr::Any)),
        ];
        for (call, result) in calls {
            assert!(result.is_err(), "{call} {path:?}");
        }
    }
    assert_eq!(kind(store.stat(too_long.as_ref()), "no name is so long"), ErrorKind::NameTooLong);
    for root in
        [store.remove_directory("".as_ref()), store.rename("".as_ref(), "x".as_ref(), Rename::Replace)]
    {
        root.expect_err("the root stays where it is");
    }
    assert_eq!(names(store, "names"), ["ours"], "nothing was made by the way");
    store.remove_file("names/ours".as_ref()).expect("there");
}
