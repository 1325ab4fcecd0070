//! Names that a mount keeps: requests are counted exactly.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_testkit::S3Server;
use bowwave_testkit::hostile::{Checksum, Dialect, HostileServer};

use super::writes::write;
use super::{Served, s3};
use crate::conformance::Fixture as _;
use crate::{
    Backend, ErrorKind, KeepNames, Namespace as _, OpenWrite, Options, SMALL_BYTES, SetAttributes, WillRead,
    open_url, read_exact, read_once,
};

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(20);

/// A bucket of `files` objects in `d`, whose names are kept for an hour.
fn bucket(files: usize, attributes: bool) -> (S3Server, Served, Arc<dyn Backend>) {
    let (server, served) = s3("s3://bucket/data", "bucket/data");
    (0..files).for_each(|number| served.put(&name(number), name(number).as_bytes()));
    let options = Options { attributes, ..served.options.clone() };
    let store = open_url(&served.url, &options).unwrap();
    assert!(store.keep_names(KeepNames { ttl: HOUR, opens: true, assumes_plain: false }).is_some());
    (server, served, store)
}

fn name(number: usize) -> String {
    format!("d/file{number:03}")
}

/// The requests of `act`, each as its method and query.
fn requests(server: &S3Server, act: impl FnOnce()) -> Vec<String> {
    let before = server.requests().len();
    act();
    server.requests().split_off(before)
}

fn read(store: &dyn Backend, path: &str) -> Vec<u8> {
    let object = store.open(path.as_ref()).unwrap();
    read_exact(&*object, 0, usize::try_from(object.size()).unwrap(), PATIENCE).unwrap()
}

fn create(store: &dyn Backend, path: &str, bytes: &[u8]) {
    let how = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    let object = store.writer().unwrap().open_write(path.as_ref(), &how).unwrap();
    write(&*object, 0, bytes).unwrap();
    object.finish().unwrap();
}

/// A mount begins with several `stat` of its root. Each was two requests: one for an object, and
/// one for names below it.
#[test]
fn the_root_is_requested_once_each_time_its_name_expires() {
    let (server, _served, store) = bucket(1, true);
    let stat = || store.stat(Path::new("")).unwrap().validity.0.unwrap();
    let sent = requests(&server, || {
        assert!(store.probe().unwrap().is_none());
        assert_eq!(stat(), stat());
    });
    assert_eq!(sent.len(), 2, "{sent:?}");
    let ttl = Duration::from_nanos(1);
    store.keep_names(KeepNames { ttl, opens: true, assumes_plain: false });
    let sent = requests(&server, || {
        for _ in 0..3 {
            // Longer than that time to live, because the requests took longer.
            std::thread::sleep(stat().saturating_duration_since(Instant::now()));
        }
        stat();
    });
    assert!([6, 8].contains(&sent.len()), "the first may be that of before: {sent:?}");
}

#[test]
fn attributes_that_the_root_gets_are_shown_at_once() {
    let (_server, _served, store) = bucket(1, true);
    let mode = || store.stat(Path::new("")).unwrap().mode;
    assert_eq!(mode(), None);
    let private = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    store.set_attributes(Path::new(""), &private).unwrap();
    assert_eq!(mode().map(|mode| mode & 0o777), Some(0o700));
}

#[test]
fn a_directory_is_listed_once_after_two_lookups_and_answers_all_others() {
    let (server, _served, store) = bucket(40, false);
    let sent = requests(&server, || {
        for number in [7, 3, 39, 0, 20, 21, 7] {
            assert_eq!(store.stat(name(number).as_ref()).unwrap().size, 9);
        }
        for missing in ["d/none", "d/file00", "d/file0000"] {
            assert_eq!(store.stat(missing.as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(store.list("d".as_ref()).unwrap().len(), 40);
    });
    // Two names alone, then the directory.
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(sent.iter().all(|request| request.starts_with("GET /bucket/?")), "{sent:?}");
}

#[test]
fn a_lookup_is_one_request_for_a_file_a_directory_and_nothing() {
    let (server, _served, store) = bucket(2, false);
    for (path, is_there) in [("d", true), ("none", false)] {
        let sent = requests(&server, || assert_eq!(store.stat(path.as_ref()).is_ok(), is_there));
        assert_eq!(sent.len(), 1, "{path}: {sent:?}");
    }
    let sent = requests(&server, || assert_eq!(store.stat(name(1).as_ref()).unwrap().size, 9));
    assert_eq!(sent.len(), 1, "{sent:?}");
}

#[test]
fn a_listed_file_is_opened_and_read_with_one_request() {
    let (server, _served, store) = bucket(5, false);
    store.list("d".as_ref()).unwrap();
    let sent = requests(&server, || assert_eq!(read(&*store, &name(3)), name(3).as_bytes()));
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].starts_with("GET /bucket/data/d/file003"), "{sent:?}");
}

#[test]
fn a_large_file_is_opened_without_a_request_while_its_listing_is_new() {
    let (server, served, store) = bucket(1, false);
    served.put("d/large", &vec![5; 2 * SMALL_BYTES as usize]);
    let open = || drop(store.open("d/large".as_ref()).unwrap());
    store.list("d".as_ref()).unwrap();
    assert_eq!(requests(&server, open).len(), 0);
    std::thread::sleep(Duration::from_millis(1100));
    let sent = requests(&server, open);
    assert!(sent.len() == 1 && sent[0].starts_with("HEAD"), "{sent:?}");
}

#[test]
fn a_directory_without_a_marker_is_not_asked_for_its_attributes() {
    let (server, _served, store) = bucket(2, true);
    let sent =
        requests(&server, || assert!(store.stat("d".as_ref()).is_ok() && store.stat("d".as_ref()).is_ok()));
    // No object, and a directory.
    assert_eq!(sent.len(), 2, "{sent:?}");
}

#[test]
fn attributes_of_a_listed_file_come_with_its_bytes() {
    let (server, _served, store) = bucket(5, true);
    let listed = store.list("d".as_ref()).unwrap();
    assert!(listed.iter().all(|entry| entry.partial));
    let sent = requests(&server, || {
        read(&*store, &name(3));
        assert!(!store.stat(name(3).as_ref()).unwrap().partial);
    });
    assert_eq!(sent.len(), 1, "{sent:?}");
}

#[test]
fn objects_without_stored_attributes_are_looked_up_eight_times_and_not_again_until_one_has_some() {
    let (server, served, store) = bucket(60, true);
    served.put("e/other", b"in another directory");
    assert!(store.keep_names(KeepNames { ttl: HOUR, opens: true, assumes_plain: true }).is_some());
    store.list("d".as_ref()).unwrap();
    let partial = |number| store.lookup(name(number).as_ref(), WillRead::Any).unwrap().partial;
    for number in (0..14).step_by(2) {
        assert!(partial(50), "{number}");
        store.stat(name(number).as_ref()).unwrap();
    }
    store.stat(name(30).as_ref()).unwrap();
    let sent = requests(&server, || {
        assert!((31..60).all(|number| !partial(number)));
        assert!(store.list("d".as_ref()).unwrap().iter().all(|entry| !entry.partial));
    });
    assert_eq!(sent.len(), 0, "{sent:?}");
    assert!(!store.lookup("d".as_ref(), WillRead::Any).unwrap().partial);
    assert!(store.list("e".as_ref()).unwrap().iter().all(|entry| !entry.partial));
    let sent = requests(&server, || assert!(store.stat(name(59).as_ref()).is_ok()));
    assert_eq!(sent.len(), 1, "`stat` still looks it up: {sent:?}");
    // Our own writer stores a mode.
    create(&*store, "d/new", b"new");
    assert!(partial(58));
}

#[test]
fn a_replaced_object_is_changed_at_its_first_read_and_the_next_open_has_the_new_version() {
    let (server, served, store) = bucket(5, false);
    store.list("d".as_ref()).unwrap();
    let object = store.open(name(3).as_ref()).unwrap();
    served.put(&name(3), b"of another size");
    let error = read_exact(&*object, 0, 9, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    let sent = requests(&server, || assert_eq!(read(&*store, &name(3)), b"of another size"));
    assert_eq!(sent.len(), 2, "a lookup and a read: {sent:?}");
}

#[test]
fn new_objects_are_one_request_each_and_so_are_removed_ones() {
    let (server, _served, store) = bucket(0, true);
    let names = |count: usize| (0..count).map(|number| format!("new/file{number:02}"));
    store.list("".as_ref()).ok();
    let sent = requests(&server, || store.create_directory("new".as_ref(), 0o755, None).unwrap());
    assert!(sent.len() <= 3, "{sent:?}");
    let sent = requests(&server, || {
        for name in names(20) {
            assert_eq!(store.stat(name.as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
            create(&*store, &name, b"bytes");
            assert_eq!(store.stat(name.as_ref()).unwrap().size, 5);
        }
    });
    // The first two uploads are looked up.
    assert_eq!(sent.len(), 22, "{sent:?}");
    let sent = requests(&server, || {
        assert_eq!(store.list("new".as_ref()).unwrap().len(), 20);
        names(20).for_each(|name| store.remove_file(name.as_ref()).unwrap());
        assert_eq!(store.stat("new/file00".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    });
    assert_eq!(sent.len(), 20, "{sent:?}");
    assert!(sent.iter().all(|request| request.starts_with("DELETE ")), "{sent:?}");
    store.remove_directory("new".as_ref()).unwrap();
    assert_eq!(store.stat("new".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn without_a_time_to_live_each_lookup_and_each_open_is_a_request() {
    let (server, _served, store) = bucket(3, false);
    store.keep_names(KeepNames::default());
    for _ in 0..3 {
        let sent = requests(&server, || drop(store.stat(name(1).as_ref()).unwrap()));
        assert_eq!(sent.len(), 1, "{sent:?}");
        let sent = requests(&server, || drop(store.open(name(1).as_ref()).unwrap()));
        assert_eq!(sent.len(), 1, "{sent:?}");
    }
}

#[test]
fn with_close_to_open_each_open_is_a_request_and_lookups_are_kept() {
    let (server, served, store) = bucket(3, false);
    assert!(store.keep_names(KeepNames { ttl: HOUR, opens: false, assumes_plain: false }).is_some());
    store.list("d".as_ref()).unwrap();
    for length in 1..4 {
        served.put(&name(1), &vec![b'x'; length]);
        let sent = requests(&server, || {
            assert_eq!(store.open(name(1).as_ref()).unwrap().size(), length as u64);
            assert_eq!(store.stat(name(1).as_ref()).unwrap().size, length as u64);
        });
        assert_eq!(sent.len(), 1, "{sent:?}");
    }
}

#[test]
fn a_listing_from_before_our_change_does_not_undo_it() {
    let (_server, _served, store) = bucket(3, false);
    store.list("d".as_ref()).unwrap();
    let path: &Path = "d/file001".as_ref();
    store.remove_file(path).unwrap();
    create(&*store, "d/new", b"bytes");
    let names: Vec<_> = store.list("d".as_ref()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["file000", "file002", "new"]);
    store.rename("d/new".as_ref(), path, crate::Rename::Replace).unwrap();
    let names: Vec<_> = store.list("d".as_ref()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["file000", "file001", "file002"]);
    assert_eq!(read(&*store, "d/file001"), b"bytes");
}

/// Lists a directory and those below, each before those in it, as `find` does.
fn walk(store: &dyn Backend, path: &Path, listed: &mut Vec<String>) {
    listed.push(path.display().to_string());
    for entry in store.namespace().unwrap().list(path).unwrap() {
        if entry.kind == crate::EntryKind::Directory {
            walk(store, &path.join(entry.name), listed);
        }
    }
}

/// Waits until all listings ahead have ended.
fn settled(server: &S3Server) -> usize {
    loop {
        let sent = server.requests().len();
        std::thread::sleep(Duration::from_millis(200));
        if server.in_flight() == 0 && server.requests().len() == sent {
            return sent;
        }
    }
}

#[test]
fn directories_of_a_tree_are_listed_ahead_of_a_program_that_walks_it() {
    let (server, served, store) = bucket(0, false);
    for number in 0..50 {
        served.put(&format!("tree/{}/{number:02}/file", number / 10), b"bytes");
    }
    let before = server.requests().len();
    for number in 0..3 {
        assert_eq!(settled(&server), before + number, "none is listed ahead");
        let path = ["tree", "tree/0", "tree/0/00"][number];
        assert_eq!(store.list(path.as_ref()).unwrap().len(), [5, 10, 1][number]);
    }
    assert_eq!(settled(&server), before + 5, "two are listed ahead");
    let mut listed = Vec::new();
    walk(&*store, "tree".as_ref(), &mut listed);
    assert_eq!(listed.len(), 56);
    let sent = server.requests().split_off(before);
    assert_eq!(settled(&server), before + 56, "each once: {sent:?}");
    // In the next time to live, all are known.
    walk(&*store, "tree".as_ref(), &mut listed);
    assert_eq!(settled(&server), before + 56);
    // A change of ours is not undone, and a file of a directory that was listed ahead is opened.
    create(&*store, "tree/4/49/new", b"new");
    assert_eq!(store.list("tree/4/49".as_ref()).unwrap().len(), 2);
    assert_eq!(read(&*store, "tree/4/48/file"), b"bytes");
}

#[test]
fn a_program_that_leaves_a_tree_costs_two_listings() {
    let (server, served, store) = bucket(0, false);
    (0..50).for_each(|number| served.put(&format!("tree/{number:02}/file"), b"bytes"));
    let before = server.requests().len();
    for path in ["tree", "tree/00", "tree/01"] {
        store.list(path.as_ref()).unwrap();
    }
    for path in ["tree/40", "tree/30", "tree/20"] {
        store.list(path.as_ref()).unwrap();
    }
    assert_eq!(settled(&server), before + 8);
}

/// A store that keeps names of a server whose faults begin later.
fn hostile(dialect: Dialect) -> (HostileServer, Arc<dyn Backend>) {
    let server = HostileServer::start(dialect).unwrap();
    let options = Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        anonymous: true,
        timeout: Duration::from_millis(800),
        ..Options::default()
    };
    let store = open_url(&server.url(), &options).unwrap();
    assert!(store.keep_names(KeepNames { ttl: HOUR, opens: true, assumes_plain: false }).is_some());
    (server, store)
}

#[test]
fn a_flipped_byte_of_a_listed_object_is_detected() {
    for dialect in [Dialect::S3, Dialect::Google] {
        for checksum in Checksum::ALL {
            let (server, store) = hostile(dialect);
            server.set_checksum(Some(checksum));
            store.list("read".as_ref()).unwrap();
            let object = store.open("read/small".as_ref()).unwrap();
            server.set_mode("flip".parse().unwrap());
            let error = read_once(&*object, 0, 9000, PATIENCE).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{dialect:?} {checksum:?}: {error}");
        }
    }
}

#[test]
fn an_encoded_body_of_a_listed_object_is_refused() {
    let (server, store) = hostile(Dialect::S3);
    store.list("read".as_ref()).unwrap();
    let object = store.open("read/small".as_ref()).unwrap();
    assert!(!object.is_confirmed());
    server.set_mode("range-gzip".parse().unwrap());
    let error = read_once(&*object, 10, 20, PATIENCE).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[test]
fn a_lookup_works_without_listings() {
    for mode in ["list-cut-off", "list-laughs", "silent-after-head", "status-503,calls=lists"] {
        let (server, store) = hostile(Dialect::S3);
        server.set_mode(mode.parse().unwrap());
        for name in ["one", "small", "page", "medium"] {
            let found = store.stat(name.as_ref()).unwrap_or_else(|error| panic!("{mode}: {error}"));
            assert_eq!(found.size, server.object(name).unwrap().len() as u64, "{mode}: {name}");
        }
    }
}

#[test]
fn an_upload_that_the_store_discards_is_an_error() {
    let (server, store) = hostile(Dialect::S3);
    server.set_mode("upload-discarded".parse().unwrap());
    for number in 0..3 {
        let path = format!("write/{number}");
        let how = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
        let object = store.writer().unwrap().open_write(path.as_ref(), &how).unwrap();
        write(&*object, 0, b"bytes").unwrap();
        assert!(object.finish().is_err(), "{number}");
    }
}

#[test]
fn a_listing_that_lookups_use_is_renewed_before_it_expires() {
    let (server, _served, store) = bucket(5, false);
    let ttl = Duration::from_secs(2);
    assert!(store.keep_names(KeepNames { ttl, opens: true, assumes_plain: false }).is_some());
    store.list("d".as_ref()).unwrap();
    let sent = requests(&server, || {
        // Two and a half times to live.
        for _ in 0..50 {
            let entry = store.lookup(name(3).as_ref(), WillRead::Any).unwrap();
            assert!(entry.validity.0.unwrap() > Instant::now());
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // No lookup sends a request of its own, and a listing is sent each 1.5 s or more.
    let is_listing = |request: &String| request.contains("delimiter") && !request.contains("max-keys");
    assert!(sent.iter().all(is_listing) && (2..=3).contains(&sent.len()), "{sent:?}");
}

#[test]
fn an_unused_listing_is_not_renewed() {
    let (server, _served, store) = bucket(5, false);
    let ttl = Duration::from_millis(400);
    assert!(store.keep_names(KeepNames { ttl, opens: true, assumes_plain: false }).is_some());
    store.list("d".as_ref()).unwrap();
    let sent = requests(&server, || std::thread::sleep(Duration::from_millis(800)));
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn a_directory_is_listed_at_its_first_lookup_once_listings_of_others_paid() {
    let (server, served, store) = bucket(0, false);
    let put = |directory: &str| (0..9).for_each(|n| served.put(&format!("{directory}/{n}"), b"x"));
    ["a", "b", "c"].into_iter().for_each(put);
    let look = |directory: &str| {
        requests(&server, || {
            (0..9).for_each(|n| assert!(store.stat(format!("{directory}/{n}").as_ref()).is_ok()));
        })
    };
    assert_eq!(["a", "b", "c"].map(|directory| look(directory).len()), [3, 3, 1]);
}
