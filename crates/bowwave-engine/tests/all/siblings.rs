//! Readahead across the files of a directory, for any owner of a store.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::{Entry, KeepNames, WillRead};
use bowwave_engine::{
    Advice, Engine, File, ManyFiles, Options, Result, SiblingFile, SiblingReadahead, SiblingTree, Store,
    backend,
};
use bowwave_testkit::hostile::{Calls, Dialect, Fault, HostileServer, Mode};

/// A bucket with small files in its directory `many`, and a store that keeps their names.
fn bucket() -> (HostileServer, Arc<Store>) {
    let server = HostileServer::start(Dialect::S3).expect("loopback has free ports");
    for at in 0..40 {
        server.put(&path(at), vec![7; 20_000]);
    }
    let store = store_of(&server)().expect("a store");
    let kept = KeepNames { ttl: Duration::from_mins(1), opens: true, assumes_plain: true };
    assert!(store.backend().keep_names(kept).is_some());
    (server, Arc::new(store))
}

/// Opens stores of a bucket, all in one engine.
fn store_of(server: &HostileServer) -> impl Fn() -> Result<Store> + Send + Sync + 'static {
    let store = backend::Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        anonymous: true,
        ..backend::Options::default()
    };
    let options = Options { cache_bytes: Some(64 << 20), store, ..Options::default() };
    let (engine, url) = (Engine::new(options).expect("valid options"), server.url());
    move || engine.store(&url)
}

/// A program that opens files of a bucket one after another. The bucket has `count` files of `size`
/// bytes in its directory `many`.
fn many(count: usize, size: usize) -> (HostileServer, ManyFiles) {
    let server = HostileServer::start(Dialect::S3).expect("loopback has free ports");
    for at in 0..count {
        server.put(&path(at), vec![7; size]);
    }
    let again = store_of(&server);
    let files = ManyFiles::new(again().expect("a store"), 1, again);
    (server, files)
}

/// Reads the files from `from` on until one is opened without a HEAD, by a listing. Returns the
/// first one that was not read.
fn read_until_by_name(server: &HostileServer, files: &ManyFiles, from: usize, size: usize) -> usize {
    for at in from..from + 20 {
        let heads = server.requests().head;
        read_named(files, &path(at), 7, size);
        if server.requests().head == heads {
            return at + 1;
        }
        // The listing comes in the background.
        thread::sleep(Duration::from_millis(20));
    }
    panic!("no file of 20 was opened by a listing: {:?}", server.requests());
}

/// Opens and reads a file, and compares its bytes.
fn read_named(files: &ManyFiles, name: &str, byte: u8, size: usize) {
    let mut bytes = vec![0; size + 1];
    let file = files.open(Path::new(name), WillRead::START).expect("a file");
    assert_eq!(file.read_at(0, &mut bytes).expect("honest"), size, "{name}");
    assert!(bytes[..size].iter().all(|&found| found == byte), "{name} has other bytes");
}

fn path(at: usize) -> String {
    format!("many/{at:02}")
}

fn started(store: &Arc<Store>) -> SiblingReadahead {
    let siblings = SiblingReadahead::new(store, 1, 0);
    siblings.start(Arc::downgrade(store) as Weak<dyn SiblingTree>);
    siblings
}

/// Waits until the server has had this number of GETs.
fn wait_for(server: &HostileServer, gets: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while server.requests().get < gets {
        assert!(Instant::now() < until, "{:?}", server.requests());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Few files are requested as without readahead, and others once, before their open.
#[test]
fn small_files_that_a_program_opens_one_after_another_are_read_ahead() {
    // A listing is valid for a second: on a busy machine, another try.
    for _attempt in 0..5 {
        let (server, files) = many(60, 20_000);
        (0..3).for_each(|at| read_named(&files, &path(at), 7, 20_000));
        let sent = server.requests();
        assert_eq!((sent.head, sent.get, sent.list), (3, 3, 0), "{sent:?}");
        let begun = Instant::now();
        let mut at = read_until_by_name(&server, &files, 3, 20_000);
        for _ in 0..4 {
            read_named(&files, &path(at), 7, 20_000);
            at += 1;
        }
        // Files that were not opened yet.
        wait_for(&server, at as u64 + 4);
        (at..60).for_each(|at| read_named(&files, &path(at), 7, 20_000));
        let (took, sent) = (begun.elapsed(), server.requests());
        assert!(u128::from(sent.list) <= 2 + took.as_millis() / 500, "{sent:?} in {took:?}");
        if took < Duration::from_millis(700) {
            assert_eq!(sent.get, 60, "each file is requested once: {sent:?}");
            assert!(sent.head < 25 && sent.list == 1, "{sent:?}");
            return;
        }
    }
}

#[test]
fn a_small_file_among_many_is_opened_in_its_current_version() {
    let (server, files) = many(30, 20_000);
    let mut at = read_until_by_name(&server, &files, 0, 20_000);
    // Replaced after the listing, and not in memory: the store compares the version.
    at += 9;
    server.put(&path(at), vec![8; 30_000]);
    read_named(&files, &path(at), 8, 30_000);
    // What is in memory may be what a listing has shown, for as long as it is valid.
    for at in 0..30 {
        server.put(&path(at), vec![9; 10_000]);
    }
    thread::sleep(Duration::from_secs(3));
    (0..30).for_each(|at| read_named(&files, &path(at), 9, 10_000));
}

#[test]
fn a_program_sees_what_it_has_changed_among_many_files() {
    let (server, files) = many(30, 20_000);
    let at = read_until_by_name(&server, &files, 0, 20_000);
    for at in [0, at - 1, at + 5] {
        files.changed(Path::new(&path(at)));
        server.put(&path(at), vec![8; 30_000]);
        read_named(&files, &path(at), 8, 30_000);
    }
    files.changed(Path::new("many"));
    for at in 0..30 {
        server.put(&path(at), vec![9; 10_000]);
        read_named(&files, &path(at), 9, 10_000);
    }
}

/// A listing that lacks a file does not say that it does not exist.
#[test]
fn a_file_that_was_just_created_among_many_is_opened() {
    let (server, files) = many(20, 20_000);
    read_until_by_name(&server, &files, 0, 20_000);
    for at in 20..30 {
        assert!(files.open(Path::new(&path(at)), WillRead::START).is_err(), "it does not exist yet");
        server.put(&path(at), vec![9; 10_000]);
        read_named(&files, &path(at), 9, 10_000);
    }
}

#[test]
fn many_large_files_and_a_large_directory_cost_no_more_requests_than_few() {
    for (count, size) in [(20, 1 << 20), (1100, 100)] {
        let (server, files) = many(count, size);
        (0..20).for_each(|at| read_named(&files, &path(at), 7, size));
        let sent = server.requests();
        assert!(sent.head == 20 && sent.list == 1, "{count} files of {size} bytes: {sent:?}");
    }
}

/// The large ones are opened without the listing, so they are not read ahead with it either.
#[test]
fn large_files_between_small_ones_are_requested_once() {
    let (server, files) = many(60, 20_000);
    for at in (8..60).step_by(5) {
        server.put(&path(at), vec![7; 300_000]);
    }
    for at in 0..60 {
        read_named(&files, &path(at), 7, if at >= 8 && at % 5 == 3 { 300_000 } else { 20_000 });
        // The listing, and what is read ahead, come in the background.
        thread::sleep(Duration::from_millis(10));
    }
    let sent = server.requests();
    assert!(sent.list >= 1 && sent.head < 60, "no file was opened by a listing: {sent:?}");
    let of_large: u64 = (8..60).step_by(5).map(|at| bytes_of(&server, &path(at), 300_000)).sum();
    // Requests end with pages.
    assert!(of_large <= 11 * 304_000, "{of_large} bytes of 11 files of 300,000: {sent:?}");
}

/// Bytes of an object of this size that were requested.
fn bytes_of(server: &HostileServer, path: &str, size: u64) -> u64 {
    let is_it = |target: &str| target.split('?').next().is_some_and(|target| target.ends_with(path));
    let recorded = server.recorded();
    let gets = recorded.iter().filter(|sent| sent.method == "GET" && is_it(&sent.target));
    gets.map(|sent| {
        let range = sent.headers.iter().find(|(name, _)| name == "range").map(|(_, range)| range.as_str());
        let (first, last) = range
            .and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
            .map_or((0, size - 1), |(first, last)| {
                (first.parse().expect("a number"), last.parse().expect("one"))
            });
        last.min(size - 1) + 1 - first
    })
    .sum()
}

#[test]
fn a_bucket_that_refuses_listings_is_read_as_before() {
    let (server, files) = many(20, 20_000);
    server.set_mode(Mode { calls: Calls::Lists, ..Mode::of(Fault::Status(403, None)) });
    (0..20).for_each(|at| read_named(&files, &path(at), 7, 20_000));
    let sent = server.requests();
    assert!((sent.head, sent.get) == (20, 20) && sent.list == 1, "{sent:?}");
}

/// The whole interface: what a program opens, reads and closes.
#[test]
fn small_files_that_a_program_reads_in_order_are_requested_before_their_open() {
    let (server, store) = bucket();
    let siblings = started(&store);
    store.list(Path::new("many")).expect("a directory");
    let listed = server.requests();
    let mut bytes = vec![0; 20_000];
    let mut read = |at: usize| {
        let path = PathBuf::from(path(at));
        let file = store.open(&path).expect("a file");
        siblings.request(&path, &file);
        siblings.opened(&*store, &path, &file);
        assert_eq!(file.read_at(0, &mut bytes).expect("honest"), bytes.len());
        file
    };
    let open: Vec<_> = (0..3).map(&mut read).collect();
    wait_for(&server, listed.get + 6);
    for at in 3..40 {
        read(at);
    }
    drop(open);
    let sent = server.requests().since(&listed);
    assert_eq!((sent.get, sent.head), (40, 0), "each file is requested once");
}

/// Regression: the directory above was listed, which counted as the program's listing of it.
#[test]
fn a_walk_goes_on_only_in_directories_that_a_program_has_listed() {
    let (server, store) = bucket();
    for directory in ["a", "b", "c"] {
        (0..10).for_each(|at| server.put(&format!("tree/{directory}/{at}"), vec![7; 1000]));
    }
    for is_listed in [false, true] {
        let siblings = started(&store);
        let before = server.requests();
        if is_listed {
            siblings.listed(Path::new("tree"));
        }
        for directory in ["a", "b"] {
            let directory = PathBuf::from(format!("tree/{directory}"));
            store.list(&directory).expect("a directory");
            siblings.listed(&directory);
            for at in 0..10 {
                let path = directory.join(at.to_string());
                let file = store.open(&path).expect("a file");
                siblings.opened(&*store, &path, &file);
                file.read_at(0, &mut [0; 1000]).expect("honest");
                siblings.read(SiblingFile::at(&path), &file, 0, 1000);
                siblings.closed(SiblingFile::at(&path));
            }
        }
        if is_listed {
            wait_for(&server, before.get + 1);
        } else {
            thread::sleep(Duration::from_millis(100));
            assert_eq!(server.requests().since(&before).list, 2, "those of the program");
        }
    }
    assert!(server.recorded().iter().any(|request| request.target.starts_with("/data/tree/c/")));
}

/// The list may have any order.
#[test]
fn announced_files_are_requested_without_any_open() {
    let (server, store) = bucket();
    let siblings = started(&store);
    let paths = [31, 7, 22].map(|at| PathBuf::from(path(at)));
    siblings.announce(paths.to_vec(), false).expect("a short list");
    wait_for(&server, 3);
    let sent = server.requests();
    for path in &paths {
        let file = store.open(path).expect("a file");
        siblings.opened(&*store, path, &file);
        assert_eq!(file.read_at(0, &mut [0; 20_000]).expect("honest"), 20_000);
    }
    assert_eq!(server.requests().since(&sent).get, 0, "all bytes are there");
    siblings.announce(vec![PathBuf::from("many/09")], false).expect("a short list");
    wait_for(&server, 4);
    let error = siblings.announce(vec![PathBuf::from("many/01"); 2_000_000], false).expect_err("too long");
    assert!(error.to_string().contains("announced files"), "{error}");
    let (path, sent) = (PathBuf::from("many/09"), server.requests());
    siblings.opened(&*store, &path, &store.open(&path).expect("a file"));
    assert_eq!(server.requests().since(&sent).get, 0, "the list before stays");
}

/// A store in which a program opens, reads and closes each file just before a thread of readahead
/// has it.
struct Overtaken {
    store: Arc<Store>,
    siblings: OnceLock<Weak<SiblingReadahead>>,
}

impl SiblingTree for Overtaken {
    fn store(&self) -> &Store {
        &self.store
    }

    fn known(&self, directory: &Path) -> Option<Vec<Entry>> {
        SiblingTree::known(&*self.store, directory)
    }

    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        SiblingTree::list(&*self.store, directory)
    }

    fn open(&self, path: &Path, will_read: WillRead) -> Result<File> {
        let file = SiblingTree::open(&*self.store, path, will_read);
        if let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) {
            read_whole(&siblings, &self.store, path);
        }
        file
    }
}

/// What the mount does for a program whose kernel keeps the pages.
fn read_whole(siblings: &SiblingReadahead, store: &Store, path: &Path) {
    let file = store.open(path).expect("a file");
    siblings.request(path, &file);
    let open = siblings.opened(store, path, &file);
    assert_eq!(file.read_at(0, &mut [0; 20_000]).expect("honest"), 20_000);
    file.advise(0, 0, Advice::DontNeed);
    drop(open);
}

/// Regression: a thread requested what a program had read since the thread had opened the file.
#[test]
fn a_file_that_a_program_has_read_meanwhile_is_not_requested_again() {
    let (server, store) = bucket();
    store.list(Path::new("many")).expect("a directory");
    let siblings = Arc::new(SiblingReadahead::new(&store, 1, 0));
    let overtaken = Arc::new(Overtaken { store, siblings: OnceLock::new() });
    overtaken.siblings.set(Arc::downgrade(&siblings)).expect("it is new");
    siblings.start(Arc::downgrade(&overtaken) as Weak<dyn SiblingTree>);
    let before = server.requests();
    // All but the first two are read by the program in the threads of readahead.
    for at in 0..2 {
        read_whole(&siblings, &overtaken.store, Path::new(&path(at)));
    }
    wait_for(&server, before.get + 40);
    siblings.announce(vec![PathBuf::from(path(0))], false).expect("a short list");
    wait_for(&server, before.get + 41);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(server.requests().since(&before).get, 41, "one request for each read of the program");
}
