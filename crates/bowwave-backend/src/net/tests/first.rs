//! Bytes that come with the open: requests are counted, and no read mixes, fails or hangs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use bowwave_testkit::S3Server;
use bowwave_testkit::hostile::{Checksum, Dialect, Fault, HostileServer, Mode, content};

use super::{PATIENCE, Served, s3};
use crate::conformance::{self, Fixture};
use crate::{
    Backend, Error, ErrorKind, KeepNames, Namespace as _, Object, Options, ReadBuf, ReadSink, Result,
    WillRead, open_url, read_end, read_exact, read_once, start_read,
};

const SIZE: usize = 1 << 20;
const START: WillRead = WillRead::START;
const LAST: WillRead = WillRead::Last { bytes: 64 << 10 };

/// A store each of whose opens requests bytes.
#[derive(Debug)]
struct Eager(Arc<dyn Backend>, WillRead);

impl Backend for Eager {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        // The suite's writers replace these between an open and its first read, which then has
        // bytes of the version that was opened.
        let is_replaced = path.starts_with("whole") || path.starts_with("changing");
        let will_read = if is_replaced { WillRead::Any } else { self.1 };
        self.0.open_to_read(path, will_read)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.0)
    }
}

struct EagerlyServed(Served, WillRead);

impl Fixture for EagerlyServed {
    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.put(path, bytes);
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(Eager(self.0.store(), self.1))
    }

    fn lists(&self) -> bool {
        self.0.lists()
    }
}

#[test]
fn a_bucket_whose_opens_request_bytes_conforms() {
    let range = WillRead::First { start: 3, end: 7 };
    // One after the other they take most of a minute.
    thread::scope(|scope| {
        for will_read in [WillRead::WHOLE, START, LAST, range, WillRead::Last { bytes: 3 }] {
            scope.spawn(move || {
                let (_server, served) = s3("s3://bucket/data", "bucket/data");
                conformance::run(&EagerlyServed(served, will_read));
            });
        }
    });
}

/// A bucket with objects of these sizes, by number.
fn bucket(sizes: &[usize]) -> (S3Server, Arc<dyn Backend>, Served) {
    let (server, served) = s3("s3://bucket", "bucket");
    for (number, size) in sizes.iter().enumerate() {
        served.put(&number.to_string(), &bytes(*size));
    }
    let store = served.store();
    (server, store, served)
}

fn bytes(size: usize) -> Vec<u8> {
    content("bytes", 1, size)
}

/// The requests of `act`, each as its method.
fn methods(server: &S3Server, act: impl FnOnce()) -> Vec<String> {
    let before = server.requests().len();
    act();
    let requests = server.requests().split_off(before);
    requests.iter().map(|request| request.split(' ').next().unwrap_or_default().to_owned()).collect()
}

fn open(store: &dyn Backend, name: &str, will_read: WillRead) -> Arc<dyn Object> {
    store.open_to_read(name.as_ref(), will_read).unwrap()
}

#[test]
fn an_object_that_is_read_whole_is_one_request() {
    let sizes = [1, 4096, 100_000, SIZE, 8 << 20];
    let (server, store, _served) = bucket(&sizes);
    for (number, size) in sizes.into_iter().enumerate() {
        let sent = methods(&server, || {
            let object = open(&*store, &number.to_string(), WillRead::WHOLE);
            assert_eq!(object.size(), size as u64);
            assert!(read_exact(&*object, 0, size, PATIENCE).unwrap() == bytes(size), "{size}");
        });
        assert_eq!(sent, ["GET"], "{size}");
    }
    // In parts, as the engine reads it.
    let sent = methods(&server, || {
        let object = open(&*store, "4", WillRead::WHOLE);
        for (part, expected) in bytes(8 << 20).chunks(512 << 10).enumerate() {
            let read = read_exact(&*object, part as u64 * (512 << 10), 512 << 10, PATIENCE).unwrap();
            assert!(read == expected, "{part}");
        }
    });
    assert_eq!(sent, ["GET"]);
}

#[test]
fn a_large_object_that_is_read_whole_is_read_by_several_requests() {
    let size = (9 << 20) + 17;
    let (server, store, _served) = bucket(&[size]);
    let sent = methods(&server, || {
        let object = open(&*store, "0", WillRead::WHOLE);
        assert!(read_exact(&*object, 0, size, PATIENCE).unwrap() == bytes(size));
    });
    assert_eq!(sent, ["GET", "GET"]);
}

#[test]
fn the_first_range_comes_with_the_open() {
    let (server, store, _served) = bucket(&[SIZE, 1000]);
    let expected = bytes(SIZE);
    let last = SIZE as u64 - (64 << 10);
    let middle = WillRead::First { start: 4096, end: 12_288 };
    for (will_read, at, len) in [(START, 0, 256 << 10), (LAST, last, 64 << 10), (middle, 4096, 8192)] {
        let mut opened = None;
        let mut sent = methods(&server, || opened = Some(open(&*store, "0", will_read)));
        let object = opened.expect("it is there");
        assert_eq!(object.size(), SIZE as u64);
        let read = |at: u64, len: usize| {
            let found = read_exact(&*object, at, len, PATIENCE).unwrap();
            assert!(found == expected[at as usize..at as usize + len], "{will_read:?} {at}");
        };
        sent.extend(methods(&server, || read(at, len)));
        sent.sort();
        assert_eq!(sent, ["GET", "HEAD"], "{will_read:?}");
        assert_eq!(methods(&server, || read(at, len)), ["GET"], "again");
    }
    // All of a small object, and the beginning of a longer read.
    for (name, size, requests) in [("1", 1000, 2), ("0", SIZE, 3)] {
        let sent = methods(&server, || {
            let object = open(&*store, name, START);
            assert!(read_exact(&*object, 0, SIZE, PATIENCE).unwrap() == bytes(size), "{name}");
        });
        assert_eq!(sent.len(), requests, "{name}: {sent:?}");
    }
    // The end of an object from a page before it on.
    let sent = methods(&server, || {
        let object = open(&*store, "0", WillRead::Last { bytes: 70_000 });
        let read = read_exact(&*object, last, 64 << 10, PATIENCE).unwrap();
        assert!(read == expected[last as usize..]);
    });
    assert_eq!(sent.len(), 2, "{sent:?}");
}

#[test]
fn empty_and_missing_objects_and_directories_are_told_apart() {
    let (server, store, served) = bucket(&[0]);
    served.put("directory/file", b"bytes");
    for will_read in [WillRead::WHOLE, START, LAST] {
        let object = open(&*store, "0", will_read);
        assert_eq!(read_exact(&*object, 0, 10, PATIENCE).unwrap(), b"");
        for (name, kind) in [("none", ErrorKind::NotFound), ("directory", ErrorKind::IsADirectory)] {
            let mut sent = methods(&server, || {
                let error = store.open_to_read(name.as_ref(), will_read).unwrap_err();
                assert_eq!(error.kind(), kind, "{will_read:?}: {error}");
            });
            sent.dedup();
            let expected = if will_read == WillRead::WHOLE { 1 } else { 2 };
            assert!(sent.len() <= expected + 1, "{name} {will_read:?}: {sent:?}");
        }
    }
}

/// Whatever is read of the bytes that came with an open, in whatever order and how often.
#[test]
fn reads_in_any_order_get_their_bytes() {
    let (_server, store, _served) = bucket(&[SIZE]);
    let expected = bytes(SIZE);
    let part = 128 << 10;
    let orders: [&[usize]; 8] = [
        &[0, 0],
        &[0, 1, 1, 0, 2],
        &[1, 0],
        &[2, 1, 0],
        &[0, 2, 1],
        &[7, 0, 6, 1, 5],
        &[0, 1, 2, 3, 4, 5, 6, 7],
        &[3, 3, 0, 0, 1, 1],
    ];
    for will_read in [WillRead::WHOLE, START, LAST, WillRead::First { start: part, end: 3 * part }] {
        for order in orders {
            let object = open(&*store, "0", will_read);
            // All at once, and one after another.
            let started: Vec<_> = order
                .iter()
                .map(|&number| start_read(&*object, number as u64 * part, ReadBuf::zeroed(part as usize)))
                .collect();
            for (number, heard) in order.iter().zip(started) {
                assert!(
                    read_end(&heard, PATIENCE).unwrap()
                        == expected[number * part as usize..][..part as usize],
                    "{order:?}"
                );
            }
            let object = open(&*store, "0", will_read);
            for number in order {
                let read = read_exact(&*object, *number as u64 * part, part as usize, PATIENCE).unwrap();
                assert!(
                    read == expected[number * part as usize..][..part as usize],
                    "{will_read:?} {order:?}"
                );
            }
        }
    }
}

/// A read that waits for the one before it must not hold the slot that this one needs.
#[test]
fn reads_in_turn_end_with_one_connection() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    server.put("object", bytes(SIZE));
    let store = open_url(&server.url(), &Options { connections: Some(1), ..options(&server) }).unwrap();
    let part = SIZE / 16;
    for _ in 0..50 {
        let object = open(&*store, "object", WillRead::WHOLE);
        let start = |at: usize| start_read(&*object, at as u64, ReadBuf::zeroed(part));
        let started: Vec<_> = (0..SIZE).step_by(part).map(|at| (at, start(at))).collect();
        for (at, heard) in started {
            assert!(read_end(&heard, PATIENCE).unwrap() == bytes(SIZE)[at..at + part], "{at}");
        }
    }
}

/// A read that is no longer wanted from its beginning on.
struct Unwanted(std::sync::mpsc::SyncSender<()>);

impl ReadSink for Unwanted {
    fn progress(&mut self, _: usize) {}

    fn done(self: Box<Self>, _: ReadBuf, _: Result<usize>) {
        self.0.send(()).ok();
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::new(AtomicBool::new(true)))
    }
}

#[test]
fn reads_behind_a_dropped_one_send_their_own_requests() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    let size = 600_000;
    server.put("slow", bytes(size));
    let options = Options { timeout: Duration::from_secs(5), ..options(&server) };
    let store = open_url(&server.url(), &options).unwrap();
    // The first body stops half way, so its read can be dropped there.
    server.set_mode("silent-in-body,calls=reads,first=1".parse().unwrap());
    let object = open(&*store, "slow", WillRead::WHOLE);
    let (sender, dropped) = std::sync::mpsc::sync_channel(1);
    object.read(0, ReadBuf::zeroed(400_000), Box::new(Unwanted(sender)));
    let heard = start_read(&*object, 400_000, ReadBuf::zeroed(200_000));
    assert!(read_end(&heard, PATIENCE).unwrap() == bytes(size)[400_000..]);
    assert!(dropped.recv_timeout(PATIENCE).is_err(), "its sink was dropped");
    assert!(read_exact(&*object, 0, size, PATIENCE).unwrap() == bytes(size));
}

/// A bucket whose names are kept, as a mount keeps them.
fn bucket_with_names(sizes: &[usize]) -> (S3Server, Arc<dyn Backend>, Served) {
    let (server, _, served) = bucket(sizes);
    // Lookups that have attributes are a HEAD; others are listings.
    let options = Options { attributes: true, ..served.options.clone() };
    let store = open_url(&served.url, &options).unwrap();
    let names = KeepNames { ttl: Duration::from_secs(3600), opens: true, assumes_plain: false };
    assert!(store.keep_names(names).is_some());
    (server, store, served)
}

fn look_up(store: &dyn Backend, name: &str) -> u64 {
    store.lookup(name.as_ref(), LAST).unwrap().size
}

fn read_last(object: &dyn Object) -> Vec<u8> {
    let last = object.size().saturating_sub(64 << 10);
    read_exact(object, last, (object.size() - last) as usize, PATIENCE).unwrap()
}

#[test]
fn the_end_of_an_object_comes_with_its_lookup() {
    for size in [SIZE, 300_001] {
        let (server, store, _served) = bucket_with_names(&[size]);
        let expected = bytes(size).split_off(size.saturating_sub(64 << 10));
        let mut sent = methods(&server, || assert_eq!(look_up(&*store, "0"), size as u64));
        sent.extend(methods(&server, || {
            let object = open(&*store, "0", WillRead::Any);
            assert!(read_last(&*object) == expected, "{size}");
        }));
        sent.sort();
        assert_eq!(sent, ["GET", "HEAD"], "{size}");
        // Each of these bytes belongs to one read.
        let sent = methods(&server, || assert!(read_last(&*open(&*store, "0", WillRead::Any)) == expected));
        assert_eq!(sent, ["GET"], "{size}");
    }
}

#[test]
fn a_lookup_that_sends_no_request_requests_no_bytes() {
    let (server, store, _served) = bucket_with_names(&[SIZE]);
    look_up(&*store, "0");
    assert_eq!(methods(&server, || assert_eq!(look_up(&*store, "0"), SIZE as u64)), [""; 0]);
    let missing = || {
        let error = store.lookup("1".as_ref(), LAST).expect_err("no such object");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    };
    missing();
    assert_eq!(methods(&server, missing), [""; 0]);
}

#[test]
fn lookups_request_bytes_again_once_an_open_has_some() {
    let (server, store, _served) = bucket_with_names(&[SIZE]);
    let gets = || {
        let before = server.requests().len();
        store.forget_name("0".as_ref(), Duration::ZERO);
        look_up(&*store, "0");
        let sent = server.requests().split_off(before);
        sent.iter().filter(|sent| sent.starts_with("GET") && !sent.contains("list-type")).count()
    };
    let counts: Vec<usize> = (0..33).map(|_| gets()).collect();
    // The third is answered by a listing of the directory.
    assert_eq!(counts[..6].iter().sum::<usize>(), 4, "{counts:?}");
    assert_eq!(counts[6..].iter().sum::<usize>(), 1, "one in sixteen: {counts:?}");
    read_last(&*open(&*store, "0", WillRead::Any));
    assert_eq!(gets(), 1);
}

/// The lookup's bytes are of the version that it showed, so a later version has none of them.
#[test]
fn an_object_that_is_replaced_after_its_lookup_has_no_bytes_of_it() {
    let (_server, store, served) = bucket_with_names(&[SIZE]);
    look_up(&*store, "0");
    let other = content("other", 1, SIZE);
    served.put("0", &other);
    store.forget_name("0".as_ref(), Duration::ZERO);
    let object = open(&*store, "0", WillRead::Any);
    assert!(read_last(&*object) == other[SIZE - (64 << 10)..]);
}

#[test]
fn bytes_of_a_lookup_that_no_read_takes_are_requested_again_later() {
    let (server, store, _served) = bucket_with_names(&[SIZE, SIZE]);
    look_up(&*store, "0");
    // Its name is looked up again, and its bytes have waited for too long.
    thread::sleep(Duration::from_millis(2500));
    let sent = methods(&server, || {
        assert!(read_last(&*open(&*store, "0", WillRead::Any)) == bytes(SIZE)[SIZE - (64 << 10)..]);
    });
    assert_eq!(sent.iter().filter(|&method| method == "GET").count(), 1, "{sent:?}");
}

#[test]
fn bytes_that_no_read_takes_are_requested_again_later() {
    let (server, store, _served) = bucket(&[SIZE]);
    let object = open(&*store, "0", START);
    thread::sleep(Duration::from_millis(2500));
    let sent = methods(&server, || {
        assert!(read_exact(&*object, 0, SIZE, PATIENCE).unwrap() == bytes(SIZE));
    });
    assert_eq!(sent, ["GET"]);
}

#[test]
fn an_object_that_is_replaced_after_its_open_is_changed_and_not_mixed() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    let store = open_url(&server.url(), &options(&server)).unwrap();
    let part = 200_000;
    for will_read in [WillRead::WHOLE, START] {
        server.put("old", bytes(SIZE));
        let object = open(&*store, "old", will_read);
        server.put("old", content("other", 1, SIZE));
        match read_exact(&*object, 0, part, PATIENCE) {
            Ok(read) => assert!(read == bytes(SIZE)[..part], "{will_read:?}"),
            // The request beside the HEAD found the new version.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{will_read:?}"),
        }
        let error = read_exact(&*object, 0, part, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{will_read:?}");
    }
}

fn options(server: &HostileServer) -> Options {
    Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        anonymous: true,
        timeout: Duration::from_millis(800),
        ..Options::default()
    }
}

#[test]
fn a_flipped_byte_is_found_by_the_checksum_of_the_response() {
    for checksum in Checksum::ALL {
        let server = HostileServer::start(Dialect::S3).unwrap();
        server.set_checksum(Some(checksum));
        let store = open_url(&server.url(), &options(&server)).unwrap();
        server.set_mode("flip,first=1".parse().unwrap());
        let object = open(&*store, "read/small", WillRead::WHOLE);
        let error = read_once(&*object, 0, 9000, PATIENCE).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Corrupt, true), "{error}");
        assert_eq!(read_once(&*object, 0, 9000, PATIENCE).unwrap(), *server.object("read/small").unwrap());
        assert_eq!(server.requests().head, 0, "the response has it");
    }
}

/// Right bytes of one version or an error, soon, from every server.
#[test]
fn no_fault_of_a_server_mixes_versions_or_hangs_a_read() {
    let faults: Vec<_> =
        Fault::all().filter(|(_, fault)| !matches!(fault, Fault::List(_) | Fault::Upload(_))).collect();
    // Few at a time: other tests run beside them.
    for faults in faults.chunks(8) {
        thread::scope(|scope| {
            for (name, fault) in faults {
                scope.spawn(move || {
                    for will_read in [WillRead::WHOLE, START, LAST] {
                        read_all(name, *fault, will_read);
                    }
                });
            }
        });
    }
}

fn read_all(name: &str, fault: Fault, will_read: WillRead) {
    let server = HostileServer::start(Dialect::S3).unwrap();
    let options = Options { retries: 1, ..options(&server) };
    let store = open_url(&server.url(), &options).unwrap();
    server.set_mode(Mode::of(fault));
    let key = "read/object";
    let opened = store.open_to_read(key.as_ref(), will_read);
    let Ok(object) = opened else { return };
    let len = 300_000.min(object.size() as usize);
    let places = [0, object.size() - len as u64, 0];
    let reads = places.map(|at| (at, read_once(&*object, at, len, PATIENCE)));
    let is_of = |version: &[u8]| {
        reads.iter().all(|(at, read)| {
            let same =
                |bytes: &Vec<u8>| version.get(*at as usize..).is_some_and(|rest| rest.starts_with(bytes));
            read.as_ref().map_or(true, same)
        })
    };
    let hung = |error: &Error| error.to_string().starts_with("no response from the store within");
    for (at, read) in &reads {
        assert!(!read.as_ref().is_err_and(hung), "{name} {will_read:?} at {at}");
    }
    // Versions that cannot be told apart are allowed to mix, and bytes without a checksum to flip.
    let is_told = !matches!(fault, Fault::Flip) && object.identity().weakness().is_none();
    assert!(!is_told || server.versions(key).iter().any(|version| is_of(version)), "{name} {will_read:?}");
}
