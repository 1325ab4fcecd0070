//! Object uploads: sequential, published atomically, with errors returned to the writer.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::common::{Directory, random_bytes};
use bowwave_core::Random;
use bowwave_engine::backend::{
    Credentials, ErrorKind, Fault, Faults, Namespace as _, Options as StoreOptions, Rename, Write as _,
    WriteFaults, Writes, open_url,
};
use bowwave_engine::{Engine, Error, File, OpenOptions, Options, Store};
use bowwave_testkit::{S3Fault, S3Server, S3Trouble};

/// Bytes of a part.
const PART: usize = 4096;

/// An object store in a directory, without its latencies.
struct Objects {
    directory: Directory,
    store: Store,
    engine: Engine,
}

impl Objects {
    fn new() -> Self {
        Self::with(Options { cache_bytes: Some(2 << 20), ..Options::default() }, Faults::default())
    }

    fn failing(writes: WriteFaults) -> Self {
        let faults = Faults { seed: 5, writes, ..Faults::default() };
        Self::with(Options { cache_bytes: Some(2 << 20), retries: 3, ..Options::default() }, faults)
    }

    fn with(options: Options, faults: Faults) -> Self {
        let directory = Directory::new();
        let engine = Engine::new(options).expect("valid options");
        let backend = open_url(&url(&directory), &engine.options().store).expect("a directory");
        let backend = Arc::new(Fault::new(backend, faults).expect("chances below one"));
        let store = engine.store_of(backend);
        assert_eq!(store.writes(), Writes::Whole);
        Self { directory, store, engine }
    }

    fn create(&self, name: &str) -> File {
        self.store.create(Path::new(name), 0o644).expect("can be made")
    }

    fn open(&self, name: &str, options: OpenOptions) -> File {
        self.store.open_with(Path::new(name), &options).expect("is there")
    }

    /// The published bytes, without the cache.
    fn seen(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.directory.path().join(name)).ok()
    }

    fn uploads(&self) -> usize {
        let backend = open_url(&url(&self.directory), &self.engine.options().store).expect("a directory");
        backend.stray_uploads().expect("can be listed").len()
    }

    /// The bytes through the cache.
    fn read(&self, name: &str) -> Vec<u8> {
        let file = self.store.open(Path::new(name)).expect("is there");
        let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
        assert_eq!(file.read_at(0, &mut bytes).expect("can be read"), bytes.len());
        bytes
    }
}

fn url(directory: &Directory) -> String {
    let device =
        "s3,part=4KiB,latency=0us,metadata=0us,write_latency=0us,bandwidth=none,total=none,write_total=none";
    format!("emulate:{device}:{}", directory.url())
}

fn kind<T, E: Into<Error>>(result: Result<T, E>) -> Option<ErrorKind> {
    match result.map_err(Into::into) {
        Err(Error::Store(error)) => Some(error.kind()),
        _ => None,
    }
}

const WRITE: OpenOptions = OpenOptions {
    write: true,
    append: false,
    truncate: false,
    create: false,
    exclusive: false,
    mode: 0o644,
    owner: None,
};
const APPEND: OpenOptions = OpenOptions { write: false, append: true, create: true, ..WRITE };

#[test]
fn an_object_of_any_length_is_published_at_close() {
    let objects = Objects::new();
    let mut random = Random::new(1);
    for len in [0, 1, PART - 1, PART, PART + 1, 3 * PART, 10 * PART + 77, 300 * PART + 1] {
        let bytes = random_bytes(random.bits(), len);
        let name = format!("directory/{len}");
        let file = objects.create(&name);
        let mut at = 0;
        while at < len {
            let count = (1 + random.below(3 * PART as u64) as usize).min(len - at);
            assert_eq!(file.write_at(at as u64, &bytes[at..at + count]).expect("accepted"), count);
            at += count;
            assert_eq!(file.size(), at as u64);
        }
        assert_eq!(objects.seen(&name), None);
        drop(file);
        assert!(objects.seen(&name).as_ref() == Some(&bytes), "{len} bytes");
        assert!(objects.read(&name) == bytes, "{len} bytes");
    }
    assert_eq!(objects.uploads(), 0);
}

#[test]
fn each_sync_publishes_a_version_and_the_old_one_is_visible_until_then() {
    let objects = Objects::new();
    std::fs::write(objects.directory.path().join("x"), b"old").expect("writable");
    let reader = objects.store.open(Path::new("x")).expect("is there");
    let file = objects.open("x", OpenOptions { truncate: true, ..WRITE });
    file.write_at(0, b"new").expect("accepted");
    assert_eq!(objects.seen("x").as_deref(), Some(&b"old"[..]));
    assert_eq!(objects.read("x"), b"old");
    let mut bytes = [0; 3];
    assert_eq!(reader.read_at(0, &mut bytes).expect("the old one"), 3);
    assert_eq!(&bytes, b"old");
    assert_eq!(kind(file.read_at(0, &mut bytes)), Some(ErrorKind::Unsupported));
    file.sync(false).expect("published");
    assert_eq!(objects.seen("x").as_deref(), Some(&b"new"[..]));
    assert_eq!(objects.read("x"), b"new");
    assert_eq!(file.read_at(0, &mut bytes).expect("published"), 3);
    assert_eq!(&bytes, b"new");
    let tail = random_bytes(2, 2 * PART);
    file.write_at(3, &tail).expect("accepted");
    assert_eq!(objects.read("x"), b"new");
    file.flush().expect("published");
    let want: Vec<u8> = b"new".iter().chain(&tail).copied().collect();
    assert!(objects.read("x") == want);
    file.write_at(want.len() as u64, b"!").expect("accepted");
    drop(file);
    assert!(objects.read("x") == [&want[..], b"!"].concat());
}

#[test]
fn appended_bytes_follow_the_published_ones() {
    let objects = Objects::new();
    let mut random = Random::new(3);
    let mut want = Vec::new();
    for round in 0..40 {
        let more = random_bytes(random.bits(), random.below(2 * PART as u64) as usize);
        let file = objects.open("log", APPEND);
        // Whatever the offset.
        file.write_at(random.below(9), &more).expect("accepted");
        want.extend(&more);
        if round % 3 == 0 {
            file.sync(true).expect("published");
            file.append(b"+").expect("accepted");
            want.push(b'+');
        }
        drop(file);
        assert!(objects.seen("log").expect("published") == want, "round {round}");
    }
}

#[test]
fn unsupported_operations_fail_and_change_nothing() {
    let objects = Objects::new();
    drop(objects.create("x"));
    let file = objects.open("x", WRITE);
    file.write_at(0, b"12345").expect("at the end");
    for (what, result) in [
        ("in the middle", file.write_at(2, b"x").map(drop)),
        ("a hole", file.write_at(6, b"x").map(drop)),
        ("cut", file.set_len(3)),
        ("longer", file.set_len(9)),
        ("room", file.allocate(0, 10, bowwave_engine::backend::Allocate::Punch)),
    ] {
        assert_eq!(kind(result), Some(ErrorKind::Unsupported), "{what}");
    }
    file.set_len(5).expect("as it is");
    let said = file.write_at(2, b"x").expect_err("refused").to_string();
    assert!(said.contains("x: an object is written from front to back: 5 bytes are there"), "{said}");
    assert_eq!(file.write_at(5, b"6").expect("at the end"), 1);
    drop(file);
    assert_eq!(objects.read("x"), b"123456");
    let file = objects.open("x", WRITE);
    file.set_len(0).expect("begun anew");
    assert_eq!(file.size(), 0);
    assert_eq!(objects.read("x"), b"123456");
    file.sync(false).expect("published");
    assert_eq!(objects.read("x"), b"");
}

#[test]
fn all_writers_of_an_object_write_the_same_upload() {
    let objects = Objects::new();
    let first = objects.create("x");
    let second = objects.open("x", APPEND);
    first.write_at(0, b"one ").expect("accepted");
    second.append(b"two ").expect("accepted");
    // The first writer is not done.
    second.flush().expect("nothing went wrong");
    assert_eq!(objects.seen("x"), None);
    first.write_at(8, b"three").expect("at the end");
    first.flush().expect("published");
    assert_eq!(objects.seen("x").as_deref(), Some(&b"one two three"[..]));
    drop((first, second));

    // A truncation begins a new upload; earlier writers can write no more, and their close
    // publishes nothing.
    let first = objects.open("x", OpenOptions { truncate: true, ..WRITE });
    first.write_at(0, b"first").expect("accepted");
    let second = objects.open("x", OpenOptions { truncate: true, ..WRITE });
    assert_eq!(kind(first.write_at(5, b"x")), Some(ErrorKind::Changed));
    second.write_at(0, b"sec").expect("accepted");
    drop(first);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"one two three"[..]));
    second.write_at(3, b"ond").expect("accepted");
    drop(second);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"second"[..]));

    // One handle only began it, and another wrote it: the empty upload is not published over the
    // other.
    let shell = objects.open("x", OpenOptions { truncate: true, ..WRITE });
    let program = objects.open("x", OpenOptions { truncate: true, ..WRITE });
    program.write_at(0, b"by the program").expect("accepted");
    shell.flush().expect("nothing to do");
    drop(program);
    drop(shell);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"by the program"[..]));
}

#[test]
fn an_object_in_upload_is_listed_and_cannot_be_read() {
    let objects = Objects::new();
    let (path, directory) = (Path::new("directory/x"), Path::new("directory"));
    objects.store.create_directory(directory, 0o755, None).expect("made");
    let file = objects.create("directory/x");
    file.write_at(0, b"abc").expect("accepted");
    assert!(file.upload().expect("an object").is_new() && file.is_dirty());
    assert_eq!(objects.store.stat(path).expect("being made").size, 3);
    let names: Vec<_> =
        objects.store.list(directory).expect("a directory").into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["x"]);
    assert_eq!(kind(objects.store.open(path)), Some(ErrorKind::Busy));
    assert_eq!(kind(objects.store.rename(path, Path::new("y"), Rename::Replace)), Some(ErrorKind::Busy));
    assert_eq!(kind(objects.store.remove_directory(directory)), Some(ErrorKind::NotEmpty));
    let exclusive = OpenOptions { create: true, exclusive: true, ..WRITE };
    assert_eq!(kind(objects.store.open_with(path, &exclusive)), Some(ErrorKind::Exists));
    assert_eq!(kind(objects.store.sync()), Some(ErrorKind::Busy));
    objects.store.remove_file(path).expect("removed");
    assert_eq!(kind(objects.store.stat(path)), Some(ErrorKind::NotFound));
    file.write_at(3, b"to nowhere").expect("as in file systems");
    file.sync(false).expect("as in file systems");
    drop(file);
    assert_eq!((objects.seen("directory/x"), objects.uploads()), (None, 0));
    objects.store.sync().expect("nothing is being written");
}

#[test]
fn an_abandoned_upload_is_not_published() {
    let objects = Objects::new();
    let file = objects.create("x");
    file.write_at(0, &[1; 3 * PART]).expect("accepted");
    file.upload().expect("an object").abandon();
    assert!(file.write_at(3 * PART as u64, b"x").is_err());
    drop(file);
    assert_eq!(objects.seen("x"), None);
    let panicked = thread::scope(|scope| {
        let half = scope.spawn(|| {
            let file = objects.create("x");
            file.write_at(0, b"half").expect("accepted");
            panic!("on purpose");
        });
        half.join().is_err()
    });
    assert!(panicked);
    assert_eq!((objects.seen("x"), objects.uploads()), (None, 0));
}

#[test]
fn writes_to_a_replaced_object_are_discarded() {
    let objects = Objects::new();
    drop(objects.create("x"));
    let moved = objects.create("y");
    moved.write_at(0, b"moved").expect("accepted");
    moved.sync(false).expect("published");
    let writer = objects.open("x", WRITE);
    writer.write_at(0, &[1; 3 * PART]).expect("accepted");
    objects.store.rename(Path::new("y"), Path::new("x"), Rename::Replace).expect("renamed");
    writer.write_at(3 * PART as u64, b"more").expect("as in file systems");
    assert_eq!(kind(moved.write_at(5, b"more")), Some(ErrorKind::Changed));
    drop((writer, moved));
    assert_eq!(objects.seen("x").as_deref(), Some(&b"moved"[..]));
    assert_eq!((objects.seen("y"), objects.uploads()), (None, 0));
}

#[test]
fn the_second_exclusive_creation_of_an_object_fails() {
    let objects = Objects::new();
    let file = objects.open("x", OpenOptions { create: true, exclusive: true, ..WRITE });
    file.write_at(0, b"ours").expect("accepted");
    std::fs::write(objects.directory.path().join("x"), b"theirs").expect("writable");
    assert_eq!(kind(file.flush()), Some(ErrorKind::Exists));
    assert_eq!(kind(file.flush()), None, "each handle hears of it once");
    drop(file);
    assert_eq!(objects.engine.stats().store.objects_lost, 0, "it was told");
    let file = objects.open("z", OpenOptions { create: true, exclusive: true, ..WRITE });
    std::fs::write(objects.directory.path().join("z"), b"theirs").expect("writable");
    drop(file);
    assert_eq!(objects.engine.stats().store.objects_lost, 1);
    assert_eq!(objects.seen("x").as_deref(), Some(&b"theirs"[..]));
    assert_eq!(objects.uploads(), 0);
}

#[test]
fn transient_failures_are_retried() {
    let writes = WriteFaults {
        errors: vec![(ErrorKind::Unavailable, 0.1), (ErrorKind::Throttled, 0.05)],
        finish: vec![(ErrorKind::Unavailable, 0.1)],
        ..WriteFaults::default()
    };
    let faults = Faults { seed: 11, writes, ..Faults::default() };
    let objects =
        Objects::with(Options { cache_bytes: Some(2 << 20), retries: 20, ..Options::default() }, faults);
    let bytes = random_bytes(4, 200 * PART + 5);
    thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let (objects, bytes) = (&objects, &bytes);
            scope.spawn(move || {
                let file = objects.create(name);
                for (index, piece) in bytes.chunks(1000).enumerate() {
                    file.write_at(index as u64 * 1000, piece).expect("accepted");
                }
                file.flush().expect("published");
            });
        }
    });
    for name in ["a", "b", "c", "d"] {
        assert!(objects.seen(name).expect("published") == bytes, "{name}");
    }
    let stats = objects.engine.stats().store;
    assert!(stats.bytes_written >= 4 * bytes.len() as u64, "{stats:?}");
    assert!(stats.retries > 0 && stats.retries <= stats.requests_failed, "{stats:?}");
    assert_eq!(stats.objects_lost, 0);
}

#[test]
fn permanent_failures_are_returned_once_by_each_handle_and_the_object_stays() {
    let writes = WriteFaults {
        errors: vec![(ErrorKind::NoSpace, 0.01), (ErrorKind::Io, 0.01)],
        ..WriteFaults::default()
    };
    let objects = Objects::failing(writes);
    let mut random = Random::new(6);
    let (mut lost, mut kept, mut old) = (0, 0, None);
    for round in 0..120 {
        let bytes = random_bytes(random.bits(), 1 + random.below(40 * PART as u64) as usize);
        let file = objects.open("x", OpenOptions { truncate: true, create: true, ..WRITE });
        let other = objects.open("x", APPEND);
        let mut failed = false;
        let mut at = 0;
        while at < bytes.len() && !failed {
            let end = (at + 5000).min(bytes.len());
            match file.write_at(at as u64, &bytes[at..end]) {
                Ok(count) => at += count,
                Err(_) => failed = true,
            }
        }
        let first = file.flush();
        failed |= first.is_err();
        assert_eq!(failed, other.flush().is_err(), "round {round}: all who have it open hear of it");
        if failed {
            lost += 1;
            assert!(matches!(kind(first), Some(ErrorKind::NoSpace | ErrorKind::Io)), "round {round}");
            assert_eq!((kind(file.flush()), kind(other.sync(false))), (None, None), "round {round}: once");
            drop((file, other));
            assert!(objects.seen("x") == old, "round {round}");
        } else {
            kept += 1;
            drop((file, other));
            assert!(objects.seen("x").as_ref() == Some(&bytes), "round {round}");
            old = Some(bytes);
        }
    }
    assert!(lost > 10 && kept > 10, "{lost} lost, {kept} kept");
    assert_eq!(objects.uploads(), 0);
}

#[test]
fn a_sync_with_a_transient_failure_can_be_retried() {
    let writes = WriteFaults { finish: vec![(ErrorKind::Unavailable, 0.7)], ..WriteFaults::default() };
    let faults = Faults { seed: 3, writes, ..Faults::default() };
    let objects =
        Objects::with(Options { cache_bytes: Some(2 << 20), retries: 0, ..Options::default() }, faults);
    let file = objects.create("x");
    let bytes = random_bytes(8, 3 * PART + 9);
    file.write_at(0, &bytes).expect("accepted");
    let mut tries = 0;
    while let Err(error) = file.sync(false) {
        assert_eq!(kind(Err::<(), _>(error)), Some(ErrorKind::Unavailable));
        assert_eq!(objects.seen("x"), None);
        tries += 1;
    }
    assert!(tries > 0);
    assert!(objects.seen("x").expect("published") == bytes);
}

#[test]
fn many_writers_with_little_memory_all_finish() {
    let faults = Faults { writes: WriteFaults::default(), ..Faults::default() };
    let directory_options = Options { cache_bytes: Some(1 << 20), shards: Some(1), ..Options::default() };
    let objects = Objects::with(directory_options, faults);
    let held: Vec<File> = (0..50).map(|n| objects.create(&format!("held-{n}"))).collect();
    for file in &held {
        // Incomplete parts, which only more writes send.
        file.write_at(0, &[9; 100]).expect("accepted");
    }
    let bytes = random_bytes(9, 100 * PART);
    thread::scope(|scope| {
        for writer in 0..16 {
            let (objects, bytes) = (&objects, &bytes);
            scope.spawn(move || {
                let file = objects.create(&format!("busy-{writer}"));
                for (index, piece) in bytes.chunks(PART / 2 + 1).enumerate() {
                    file.write_at((index * (PART / 2 + 1)) as u64, piece).expect("accepted");
                }
                file.flush().expect("published");
            });
        }
    });
    drop(held);
    for writer in 0..16 {
        assert!(objects.read(&format!("busy-{writer}")) == bytes);
    }
    for n in 0..50 {
        assert_eq!(objects.read(&format!("held-{n}")), [9; 100]);
    }
}

/// An engine for a server, and the store.
fn on_server(server: &S3Server) -> (Engine, Store) {
    let store = StoreOptions {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(Credentials::Amazon {
            access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
            secret_access_key: S3Server::SECRET_ACCESS_KEY.to_owned(),
            session_token: None,
        }),
        ..StoreOptions::default()
    };
    let options = Options { cache_bytes: Some(64 << 20), retries: 3, store, ..Options::default() };
    let engine = Engine::new(options).expect("valid options");
    let store = engine.store("s3://bucket").expect("the server is there");
    (engine, store)
}

#[test]
fn objects_of_several_parts_reach_a_server_that_fails_now_and_then() {
    let directory = Directory::new();
    let server = S3Server::start(directory.path(), &["bucket"]).expect("loopback has free ports");
    let (_engine, store) = on_server(&server);
    let seen = |name: &str| std::fs::read(directory.path().join("bucket").join(name)).ok();
    for (method, part, what) in [
        ("PUT", "partNumber", S3Trouble::Refused(503)),
        ("PUT", "partNumber", S3Trouble::Reset),
        ("PUT", "partNumber", S3Trouble::AnswerLost),
        ("POST", "uploadId", S3Trouble::ErrorInBody),
        ("PUT", "small", S3Trouble::Refused(500)),
    ] {
        server.inject(S3Fault { method, part: part.to_owned(), after: 1, times: 1, what });
    }
    let bytes = random_bytes(21, (20 << 20) + 12_345);
    for round in 0..3 {
        let file = store.create(Path::new("directory/large"), 0o644).expect("can be made");
        for (index, piece) in bytes.chunks(1 << 20).enumerate() {
            file.write_at((index << 20) as u64, piece).expect("accepted");
        }
        if round == 0 {
            assert_eq!(seen("directory/large"), None);
        }
        file.flush().expect("published");
        assert!(seen("directory/large").expect("published") == bytes, "round {round}");
        // The earlier version is copied on the server, or sent again in part.
        file.append(b"and more").expect("accepted");
        file.sync(false).expect("published");
        assert!(seen("directory/large").expect("published") == [&bytes[..], b"and more"].concat());
        let small = store.create(Path::new("small"), 0o644).expect("can be made");
        small.write_at(0, b"small").expect("accepted");
        small.flush().expect("published");
        assert_eq!(seen("small").expect("published"), b"small");
    }
    // A permanent rejection.
    let refused = S3Trouble::Refused(403);
    server.inject(S3Fault {
        method: "PUT",
        part: "partNumber=2".to_owned(),
        after: 0,
        times: 1000,
        what: refused,
    });
    let file = store.create(Path::new("directory/large"), 0o644).expect("can be begun");
    let written = bytes.chunks(1 << 20).enumerate().map(|(i, piece)| file.write_at((i << 20) as u64, piece));
    let failed = written.filter_map(Result::err).count();
    let flushed = file.flush();
    assert_eq!(kind(flushed), Some(ErrorKind::PermissionDenied), "{failed} writes failed");
    drop((file, store));
    assert!(seen("directory/large").expect("as it was").ends_with(b"and more"));
    assert_eq!((server.uploads(), server.part_files().expect("readable")), (vec![], 0));
}
