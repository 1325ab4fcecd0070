//! Many small files of a bucket, with real programs: requests are counted at the server. And
//! versions: files that are replaced under readers, in each mode of consistency.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{mounting, setting, until, with_keys};
use bowwave_testkit::hostile::{Dialect, HostileServer, Recorded, Requests, content};
use serde_json::Value;

mod opened_again;

/// A mounted bucket in memory. The first field is dropped first: the mount, then its directory.
struct Bucket {
    mount: Served,
    server: HostileServer,
    place: Place,
    _alone: MutexGuard<'static, ()>,
}

impl Bucket {
    /// `None` if mounts do not work here.
    fn new(name: &str, files: usize, arguments: &[&str]) -> Option<Self> {
        let (_alone, place) = (mounting()?, Place::new(name));
        let server = HostileServer::start(Dialect::S3).expect("loopback has free ports");
        (0..files).for_each(|number| server.put(&key(number), content(&key(number), 1, BYTES)));
        let mut command = with_keys(("any", "any"));
        command.env("AWS_REGION", "us-east-1").args(["mount", &server.url()]).arg(place.at());
        command.args(["--endpoint", &server.endpoint(), "--allow-http"]).args(arguments);
        let mount = Served::of(&mut command, &place.at());
        Some(Self { mount, server, place, _alone })
    }

    /// The requests of a script in the mount.
    fn requests(&self, script: &str) -> Requests {
        let before = self.server.requests();
        let output = Command::new("sh").args(["-ec", script]).current_dir(self.place.at()).output();
        let output = output.expect("sh is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{script}: {said}");
        self.server.requests().since(&before)
    }

    /// The requests in their order, for messages.
    fn log(&self) -> String {
        let line = |request: &Recorded| {
            let range = request.headers.iter().find(|(name, _)| name == "range");
            let range = range.map_or("", |(_, value)| value);
            format!("{} {} {range}\n", request.method, request.target)
        };
        self.server.recorded().iter().map(line).collect()
    }

    fn end(self) {
        let (status, said) = self.mount.unmount();
        assert!(status.success() && !said.contains("error"), "{said}");
    }
}

const BYTES: usize = 100_000;
const FILES: u64 = 60;

fn key(number: usize) -> String {
    format!("many/{number:03}")
}

#[test]
fn small_files_are_one_request_each_to_read() {
    let Some(bucket) = Bucket::new("many-cat", FILES as usize, &["--ttl", "1h"]) else { return };
    let sent = bucket.requests("for file in many/*; do cat $file > /dev/null; done");
    assert_eq!(sent.get, FILES, "{sent:?}");
    // The root, its directory and its marker.
    assert!(sent.total() <= FILES + 6, "{sent:?}");
    // Without a listing by the program, in another order.
    let again = bucket.requests("for file in many/007 many/059 many/000; do cat $file > /dev/null; done");
    assert_eq!(again.total(), 0, "{again:?}");
    bucket.end();
}

#[test]
fn a_program_that_opens_files_in_any_order_lists_their_directory() {
    let Some(bucket) = Bucket::new("many-open", FILES as usize, &["--ttl", "1h"]) else { return };
    let at = bucket.place.at();
    let before = bucket.server.requests();
    for step in 0..FILES as usize {
        let number = step * 37 % FILES as usize;
        let read = fs::read(at.join(key(number))).expect("a file of the bucket");
        assert!(read == content(&key(number), 1, BYTES), "{number}");
    }
    for number in 0..20 {
        let missing = fs::read(at.join(format!("many/none{number}"))).expect_err("not there");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
    let sent = bucket.server.requests().since(&before);
    assert_eq!(sent.get, FILES, "{sent:?}");
    assert!(sent.total() <= FILES + 10, "{sent:?}");
    bucket.end();
}

#[test]
fn a_walk_through_directories_is_read_ahead_into_the_next_one() {
    let Some(bucket) = Bucket::new("many-tree", 1, &["--ttl", "1h"]) else { return };
    let key = |directory: u64, file: u64| format!("tree/{directory}/{file:02}");
    for (directory, file) in (0..4).flat_map(|directory| (0..16).map(move |file| (directory, file))) {
        bucket.server.put(&key(directory, file), content(&key(directory, file), 1, 1000));
    }
    let begun = bucket.server.requests();
    let sent = bucket.requests("ls tree > /dev/null; cat tree/0/* tree/1/* > /dev/null");
    assert!((32..=64).contains(&sent.get), "{sent:?}");
    let sent = || bucket.server.requests().since(&begun);
    until("tree/2 is read ahead", || sent().get >= 48);
    bucket.requests("cat tree/2/* tree/3/* > /dev/null");
    let sent = sent();
    // The directories are these four, the one above and the root, each looked up or listed.
    assert!(
        sent.get == 64 && sent.list <= 8,
        "each file and each directory is one request: {sent:?}\n{}",
        bucket.log()
    );
    bucket.end();
}

/// The directory is listed for the second lookup in it, after the first open.
#[test]
fn an_open_before_the_listing_of_its_directory_counts() {
    let Some(bucket) = Bucket::new("many-before", 1, &["--ttl", "1h"]) else { return };
    for number in 0..64 {
        bucket.server.put(&format!("chunks/{number}"), vec![1; 1000]);
    }
    let begun = bucket.server.requests();
    bucket.requests("cat chunks/0 chunks/1 > /dev/null");
    let sent = || bucket.server.requests().since(&begun);
    let deadline = Instant::now() + Duration::from_secs(20);
    while sent().get < 4 {
        assert!(Instant::now() < deadline, "chunks 2 and 3 are not read ahead: {:?}", sent());
        thread::sleep(Duration::from_millis(5));
    }
    bucket.end();
}

#[test]
fn a_file_beside_one_that_was_read_whole_is_read_whole() {
    const SIZE: usize = 2 << 20;
    let Some(bucket) = Bucket::new("many-whole", 1, &["--ttl", "1h"]) else { return };
    (0..4).for_each(|number| bucket.server.put(&format!("whole/{number}"), vec![number; SIZE]));
    let fetched = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
        let output = command.args(["status", "--json"]).arg(bucket.place.at()).output().expect("it runs");
        let status: Value = serde_json::from_slice(&output.stdout).expect("an object");
        status["counters"]["bytes_fetched"].as_u64().expect("a count")
    };
    bucket.requests("cat whole/0 > /dev/null");
    assert_eq!(fetched(), SIZE as u64);
    let mut file = fs::File::open(bucket.place.at().join("whole/2")).expect("a file of the bucket");
    file.read_exact(&mut [0; 4096]).expect("its first page");
    until("all of it is fetched", || fetched() == 2 * SIZE as u64);
    drop(file);
    bucket.end();
}

#[test]
fn announced_files_are_read_ahead_in_their_order() {
    let Some(bucket) = Bucket::new("many-plan", 200, &["--ttl", "1h"]) else { return };
    let order = (0..200).map(|step| key(step * 37 % 200));
    let at = bucket.place.at();
    let plan = |list: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
        let mut running = command
            .arg("plan")
            .args([at.as_path(), "-".as_ref()])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        running.stdin.take().expect("a pipe").write_all(list.as_bytes()).expect("it reads");
        let output = running.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Paths below the mount, with it, and empty lines.
    let list: String = order.clone().map(|key| format!("./{key}\n\n")).collect();
    let list = list.replacen("./", &format!("{}/", at.display()), 1);
    assert_eq!(plan(&list), (Some(0), String::new()));
    let deadline = Instant::now() + Duration::from_secs(20);
    while bucket.server.requests().get < 128 {
        assert!(Instant::now() < deadline, "{:?}", bucket.server.requests());
        thread::sleep(Duration::from_millis(5));
    }
    // Up to a window ahead of the opens.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(bucket.server.requests().get, 128);
    for (step, key) in order.enumerate() {
        assert!(fs::read(at.join(&key)).expect("a file") == content(&key, 1, BYTES), "{step}: {key}");
    }
    assert_eq!(bucket.server.requests().get, 200, "each is one request");

    // As from a program, with the same limits and errors.
    bowwave_control::announce(&at, [at.join("many/001")], false).expect("announced");
    for (list, part) in [(["/elsewhere/file"], "is not in"), (["many/../other"], "not a path below")] {
        let refused = bowwave_control::announce(&at, list, true).expect_err("refused").to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let elsewhere = bowwave_control::announce(bucket.place.root(), ["a"], false);
    assert_eq!(elsewhere, Err(bowwave_control::Error::NoMount(bucket.place.root().to_owned())));
    let (status, said) = plan("many/001\n/elsewhere/file\n");
    assert!(status == Some(1) && said.contains("-:2: '/elsewhere/file' is not in"), "{said}");
    let (status, said) = plan("many/../other\n");
    assert!(status == Some(2) && said.contains("many/../other: not a path below the mount point"), "{said}");
    bucket.end();
}

#[test]
fn few_empty_directories_are_listed_ahead_of_a_walk() {
    let Some(bucket) = Bucket::new("many-empty", 1, &["--ttl", "1h"]) else { return };
    for number in 0..100 {
        let files = if number < 2 { 0..16 } else { 0..0 };
        bucket.server.put(&format!("tree/{number:02}/"), Vec::new());
        files.for_each(|file| bucket.server.put(&format!("tree/{number:02}/{file:02}"), vec![1; 1000]));
    }
    let begun = bucket.server.requests();
    bucket.requests("ls tree > /dev/null; cat tree/00/* tree/01/* > /dev/null");
    let sent = || bucket.server.requests().since(&begun).list;
    // Until no more arrive.
    let (mut before, mut same) = (sent(), 0);
    while same < 30 {
        thread::sleep(Duration::from_millis(10));
        (before, same) = if sent() == before { (before, same + 1) } else { (sent(), 0) };
    }
    // 32 for the files in them, as many ahead of those, and five that the program needs.
    assert!(before < 80, "{before} listings of 100 directories");
    bucket.end();
}

#[test]
fn copied_and_removed_trees_are_one_request_a_file() {
    let Some(bucket) = Bucket::new("many-cp", 0, &["--ttl", "1h"]) else { return };
    let from = bucket.place.root().join("from");
    fs::create_dir_all(&from).expect("writable");
    for number in 0..FILES as usize {
        fs::write(from.join(format!("{number:03}")), content(&key(number), 1, BYTES)).expect("writable");
    }
    let sent = bucket.requests(&format!("cp -r {} up", from.display()));
    // One more is the marker of the directory.
    assert_eq!(sent.put, FILES + 1, "{sent:?}");
    assert!(sent.total() * 10 <= FILES * 11 + 10, "{sent:?}");
    for number in 0..FILES as usize {
        let object = bucket.server.object(&format!("up/{number:03}")).expect("published");
        assert!(*object == content(&key(number), 1, BYTES), "{number}");
    }
    let sent = bucket.requests("rm -r up");
    assert_eq!(sent.delete, FILES + 1, "{sent:?}");
    assert!(sent.total() * 10 <= FILES * 11 + 10, "{sent:?}");
    assert!(bucket.server.names("up").is_empty());
    bucket.end();
}

#[test]
fn a_long_listing_of_known_files_sends_no_request_for_each() {
    let Some(bucket) = Bucket::new("many-ls", FILES as usize, &["--ttl", "1h"]) else { return };
    let first = bucket.requests("ls -lR . > /dev/null");
    assert!(first.list <= 20, "{first:?}");
    let stated = bucket.server.requests().head;
    let files = bucket.requests("find . -type f | wc -l > /dev/null");
    assert_eq!(files.total(), 0, "{files:?} after {stated} lookups");
    let second = bucket.requests("ls -lR . > /dev/null; find . > /dev/null; du -s . > /dev/null");
    let last = bucket.server.recorded().into_iter().map(|request| request.target).next_back();
    assert_eq!(second.total(), 0, "{second:?} {last:?}");
    bucket.end();
}

/// The listing takes longer than names live.
#[test]
fn find_over_a_large_directory_sends_its_listing_alone() {
    let Some(bucket) = Bucket::new("many-find", 0, &["--ttl", "10ms"]) else { return };
    let objects = setting("BOWWAVE_MANY_OBJECTS", 10_000);
    (0..objects).for_each(|number| bucket.server.put(&format!("large/{number:06}"), Vec::new()));
    let sent = bucket.requests(&format!("test $(find large -type f | wc -l) = {objects}"));
    let pages = objects.div_ceil(1000);
    // The root, the directory and its marker.
    assert!(sent.total() * 10 <= pages * 11 + 60 && sent.list <= pages + 4, "{sent:?}");
    bucket.end();
}

/// The names expire while a program asks for their attributes. Each would be a request. Instead,
/// there is one page each time names run out.
#[test]
fn a_long_listing_of_a_large_directory_sends_pages_and_no_request_for_each_file() {
    // A few expiries of three or four requests each, even if the machine takes three times as long.
    let Some(bucket) = Bucket::new("many-long", 0, &["--ttl", "300ms"]) else { return };
    let objects = setting("BOWWAVE_MANY_OBJECTS", 10_000);
    (0..objects).for_each(|number| bucket.server.put(&format!("large/{number:06}"), Vec::new()));
    let sent = bucket.requests(&format!("test $(ls -lR large | grep -c ^-) = {objects}"));
    assert!(sent.total() * 100 <= objects, "{sent:?}");
    bucket.end();
}

#[test]
fn files_in_order_are_read_ahead_and_each_is_requested_once() {
    let order: Vec<usize> = (0..FILES as usize).collect();
    read_ahead("many-order", &order);
}

#[test]
fn files_in_no_order_are_read_ahead_and_each_is_requested_once() {
    // 37 has no divisor in common with the number of files, so each comes once.
    let order: Vec<usize> = (0..FILES as usize).map(|step| step * 37 % FILES as usize).collect();
    read_ahead("many-shuffled", &order);
}

/// Reads all files but the last ten in an order. Others are requested before they are opened, and
/// none twice.
fn read_ahead(name: &str, order: &[usize]) {
    let Some(bucket) = Bucket::new(name, FILES as usize, &["--ttl", "1h"]) else { return };
    let at = bucket.place.at();
    assert_eq!(fs::read_dir(at.join("many")).expect("a directory").count(), FILES as usize);
    let (opened, rest) = order.split_at(FILES as usize - 10);
    let before = bucket.server.requests();
    let mut most = 0;
    for (done, &number) in opened.iter().enumerate() {
        let read = fs::read(at.join(key(number))).expect("a file of the bucket");
        assert!(read == content(&key(number), 1, BYTES), "{number}");
        let ahead = bucket.server.requests().since(&before).get - (done as u64 + 1);
        assert!(ahead <= done as u64 + 1, "waste: {ahead} after {done}");
        most = most.max(ahead);
    }
    assert!(most > 2, "nothing was read ahead");
    rest.iter().for_each(|&number| {
        let read = fs::read(at.join(key(number))).expect("a file of the bucket");
        assert!(read == content(&key(number), 1, BYTES), "{number}");
    });
    let sent = bucket.server.requests().since(&before);
    assert_eq!(sent.get, FILES, "{sent:?}");
    bucket.end();
}

/// Of files of which a program read 16 KiB each, all bytes were read ahead.
#[test]
fn only_the_parts_of_files_that_programs_read_are_read_ahead() {
    let Some(bucket) = Bucket::new("many-parts", 0, &["--ttl", "1h"]) else { return };
    let fetched = || {
        let mut status = crate::common::bowwave();
        let status = crate::common::run(status.args(["status", "--json"]).arg(bucket.place.at()));
        let status: Value = serde_json::from_str(&status).expect("JSON");
        status["counters"]["bytes_fetched"].as_u64().expect("a number")
    };
    for (directory, offset) in [("heads", 0), ("tails", LARGE - PART)] {
        let key = |number: u64| format!("{directory}/{number:02}");
        (0..40).for_each(|number| bucket.server.put(&key(number), content(&key(number), 1, LARGE)));
        let at = bucket.place.at();
        assert_eq!(fs::read_dir(at.join(directory)).expect("a directory").count(), 40);
        let (before, bytes_before) = (bucket.server.requests(), fetched());
        let mut most = 0;
        for number in 0..40 {
            let mut read = vec![0; PART];
            let file = fs::File::open(at.join(key(number))).expect("a file of the bucket");
            file.read_exact_at(&mut read, offset as u64).expect("readable");
            assert!(read == content(&key(number), 1, LARGE)[offset..offset + PART], "{directory} {number}");
            most = most.max(bucket.server.requests().since(&before).get.saturating_sub(number + 1));
        }
        assert!(most > 2, "{directory}: nothing was read ahead");
        let (sent, bytes) = (bucket.server.requests().since(&before), fetched() - bytes_before);
        // The kernel reads up to 128 KiB for the program.
        assert!(bytes <= 42 * (128 << 10), "{directory}: {bytes} bytes, {sent:?}");
    }
    bucket.end();
}

const LARGE: usize = 2_000_000;
const PART: usize = 16 << 10;

#[test]
fn a_mount_has_192_mib_by_default() {
    let Some(bucket) = Bucket::new("many-memory", 0, &[]) else { return };
    let mut ctl = crate::common::bowwave();
    let listed = crate::common::run(ctl.arg("ctl").arg(bucket.place.at()).arg("list"));
    let cache = listed.lines().find(|line| line.starts_with("cache")).expect("it is listed");
    let number: f64 = cache
        .split_whitespace()
        .find_map(|word| word.strip_suffix("MiB")?.parse().ok())
        .unwrap_or_else(|| panic!("{cache}"));
    assert!(number <= 192.0, "{cache}");
    bucket.end();
}

/// Sets a flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Readers of files that a writer replaces.
struct Race {
    bucket: Bucket,
    mode: &'static str,
    ttl: Duration,
    /// Whether the server shows versions: by entity tags and times, with conditions.
    shows_versions: bool,
    /// The versions of each file, with the time at which each was stored.
    versions: Vec<Mutex<Vec<(u64, Instant)>>>,
    reads: AtomicU64,
    wrong: Mutex<Vec<String>>,
    done: AtomicBool,
}

impl Race {
    /// `None` if mounts do not work here.
    fn new(mode: &'static str, ttl: Duration, shows_versions: bool) -> Option<Self> {
        let ttl_text = format!("{}ms", ttl.as_millis());
        let arguments = ["--consistency", mode, "--ttl", &ttl_text];
        let bucket = Bucket::new(&format!("many-{mode}-{shows_versions}"), 0, &arguments)?;
        if !shows_versions {
            bucket.server.set_mode("replaced-same-tag-other-size".parse().expect("a mode of the server"));
        }
        let versions = (0..REPLACED).map(|_| Mutex::default()).collect();
        let (reads, wrong, done) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
        Some(Self { bucket, mode, ttl, shows_versions, versions, reads, wrong, done })
    }

    /// Compares `wanted` reads of 16 threads with the versions. Returns the wrong ones.
    fn run(self, wanted: u64) -> Vec<String> {
        (0..REPLACED).for_each(|file| self.put(file, 1));
        thread::scope(|scope| {
            for thread in 0..16 {
                let race = &self;
                scope.spawn(move || {
                    // A reader that fails ends the writer, too.
                    let _ends = Ends(&race.done);
                    let mut at = thread;
                    while !race.done.load(Ordering::Relaxed) {
                        at = (at * 5 + 3) % 1009;
                        race.read(at % REPLACED);
                    }
                });
            }
            let mut version = 1;
            while self.reads.load(Ordering::Relaxed) < wanted && !self.done.load(Ordering::Relaxed) {
                version += 1;
                (0..REPLACED).for_each(|file| {
                    self.put(file, version);
                    thread::sleep(Duration::from_millis(3));
                });
            }
            self.done.store(true, Ordering::Relaxed);
        });
        // Replaced files are errors of the log.
        drop(self.bucket);
        self.wrong.into_inner().expect("no panic")
    }

    fn put(&self, file: usize, version: u64) {
        self.bucket.server.put(&key(file), self.content(file, version));
        self.bucket.server.forget_versions(&key(file));
        self.versions[file].lock().expect("no panic").push((version, Instant::now()));
    }

    /// From a page to several requests.
    fn content(&self, file: usize, version: u64) -> Vec<u8> {
        let more = if self.shows_versions { version as usize % 3 * 5000 } else { 0 };
        content(&key(file), version, 3000 + file * 97_000 + more)
    }

    fn read(&self, file: usize) {
        let begun = Instant::now();
        let bytes = match fs::read(self.bucket.place.at().join(key(file))) {
            Ok(bytes) => bytes,
            // Replaced after its first byte was read.
            Err(error) if error.raw_os_error() == Some(STALE) => return,
            Err(error) => return self.is_wrong(format!("{}: {error}", key(file))),
        };
        let known = self.versions[file].lock().expect("no panic").clone();
        // One more may be stored and not yet noted.
        let last = known.last().map_or(1, |(version, _)| *version);
        let found = (1..=last + 1).rev().find(|version| bytes == self.content(file, *version));
        let Some(found) = found else {
            return self.is_wrong(format!("{}: {} bytes of no version", key(file), bytes.len()));
        };
        let allowed = begun.checked_sub(self.ttl).and_then(|time| {
            known.iter().rev().find(|(_, stored)| *stored <= time).map(|(version, _)| *version)
        });
        if found < allowed.unwrap_or(1) {
            self.is_wrong(format!("version {found} of {}, not {allowed:?} or later", key(file)));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn is_wrong(&self, what: String) {
        self.wrong.lock().expect("no panic").push(format!("{}: {what}", self.mode));
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Files that are replaced.
const REPLACED: usize = 6;

/// Fails if a file has bytes of no version, or of one that is older than the mode promises.
fn versions_never_mix(mode: &'static str, ttl: Duration) {
    let Some(race) = Race::new(mode, ttl, true) else { return };
    let wrong = race.run(setting("BOWWAVE_VERSION_READS", 1000));
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// If all versions have one entity tag, no comparison tells them apart: the readers above notice
/// it.
#[test]
fn readers_notice_a_store_that_does_not_show_versions() {
    let Some(race) = Race::new("open", Duration::ZERO, false) else { return };
    let wrong = race.run(1_000_000);
    let is_mixed_or_old = |what: &String| what.contains("of no version") || what.contains("or later");
    assert!(wrong.iter().any(is_mixed_or_old), "{wrong:?}");
}

/// ESTALE.
const STALE: i32 = 116;

#[test]
fn strict_reads_are_of_one_version_that_is_current_at_the_open() {
    versions_never_mix("strict", Duration::ZERO);
}

#[test]
fn close_to_open_reads_are_of_one_version_that_is_current_at_the_open() {
    versions_never_mix("open", Duration::ZERO);
}

#[test]
fn reads_within_the_time_to_live_are_of_one_version_and_no_older() {
    versions_never_mix("ttl", Duration::from_millis(200));
}

/// A file is replaced between its open and its first read. Small files were read by the open.
#[test]
fn a_file_that_is_replaced_before_its_first_byte_is_read_is_read_as_one_version() {
    for (bytes, newer, version) in [(1000, 2000, 1), (100_000, 90_000, 1), (900_000, 1_200_000, 2)] {
        let Some(bucket) = Bucket::new("many-first", 0, &["--ttl", "1h"]) else { return };
        bucket.server.put(&key(0), content(&key(0), 1, bytes));
        let path = bucket.place.at().join(key(0));
        let names = fs::read_dir(path.parent().expect("a directory")).expect("a directory").count();
        assert_eq!(names, 1);
        let file = fs::File::open(&path).expect("a file");
        bucket.server.put(&key(0), content(&key(0), 2, newer));
        let read = read_all(file);
        let want = content(&key(0), version, if version == 1 { bytes } else { newer });
        assert!(read == want, "{bytes} -> {newer}: {} bytes", read.len());
        bucket.end();
    }
}

/// A file is replaced between the lookup of its directory and its open.
#[test]
fn a_file_that_was_replaced_since_its_listing_is_opened_as_the_new_version() {
    for (bytes, newer) in [(1000, 2000), (100_000, 90_000), (900_000, 1_200_000), (2_000_000, 500_000)] {
        let Some(bucket) = Bucket::new("many-listed", 0, &["--ttl", "1h"]) else { return };
        bucket.server.put(&key(0), content(&key(0), 1, bytes));
        let path = bucket.place.at().join(key(0));
        assert_eq!(fs::metadata(&path).expect("a file").len(), bytes as u64);
        // An open within a second of a lookup reads what the lookup has shown.
        thread::sleep(Duration::from_millis(1100));
        bucket.server.put(&key(0), content(&key(0), 2, newer));
        let read = fs::read(&path).expect("a file");
        assert!(read == content(&key(0), 2, newer), "{bytes} -> {newer}: {} bytes", read.len());
        bucket.end();
    }
}

#[test]
fn the_end_of_a_parquet_file_comes_with_its_lookup() {
    const SIZE: usize = 900_000;
    let Some(bucket) = Bucket::new("many-ends", 0, &["--ttl", "1h"]) else { return };
    let put = |key: &str| bucket.server.put(key, content(key, 1, SIZE));
    let part = |number: usize| format!("part{number}/table.parquet");
    put("table.parquet");
    (0..40).for_each(|number| put(&part(number)));
    let before = bucket.server.requests();
    let file = fs::File::open(bucket.place.at().join("table.parquet")).expect("a file");
    let (start, mut end) = (SIZE - (64 << 10), vec![0; 64 << 10]);
    file.read_exact_at(&mut end, start as u64).expect("its end");
    assert!(end == content("table.parquet", 1, SIZE)[start..]);
    let sent = bucket.server.requests().since(&before);
    assert_eq!((sent.head, sent.get), (1, 1), "{sent:?}");
    drop(file);
    // A program that reads no end: four, and one lookup in 16.
    for number in 0..40 {
        let path = bucket.place.at().join(part(number));
        assert_eq!(fs::metadata(path).expect("a file").len(), SIZE as u64);
    }
    let sent = bucket.server.requests().since(&before);
    assert!(sent.get <= 1 + 4 + 3, "{sent:?}");
    bucket.end();
}

/// The kernel has all of a version that was replaced within the time to live.
#[test]
fn a_known_version_that_the_kernel_has_is_read_as_one_version() {
    let Some(bucket) = Bucket::new("many-kept", 0, &["--ttl", "3s"]) else { return };
    (0..8).for_each(|file| bucket.server.put(&key(file), content(&key(file), 1, 900_000)));
    let is_kept = |file: usize| {
        let (key, path) = (key(file), bucket.place.at().join(key(file)));
        assert!(fs::read(&path).expect("a file") == content(&key, 1, 900_000));
        bucket.server.put(&key, content(&key, 2, 700_000));
        thread::sleep(Duration::from_millis(1100));
        let known = fs::read(&path);
        let is_kept = known.as_ref().is_ok_and(|read| *read == content(&key, 1, 900_000));
        let is_whole = |read: &Vec<u8>| is_kept || *read == content(&key, 2, 700_000);
        let is_stale = |error: &std::io::Error| error.raw_os_error() == Some(STALE);
        assert!(known.as_ref().map_or_else(is_stale, is_whole), "a mixture");
        thread::sleep(Duration::from_secs(3));
        assert!(fs::read(&path).expect("a file") == content(&key, 2, 700_000), "older than `--ttl`");
        is_kept
    };
    // The kernel may drop pages at any time, also where much memory is free.
    assert!((0..8).any(is_kept), "the version that the kernel has is read for `--ttl`");
    bucket.end();
}

fn read_all(mut file: fs::File) -> Vec<u8> {
    use std::io::Read as _;
    let (mut all, mut part) = (Vec::new(), vec![0; 128 << 10]);
    loop {
        match file.read(&mut part).expect("no error before the first byte") {
            0 => return all,
            count => all.extend_from_slice(&part[..count]),
        }
    }
}

#[test]
fn the_mode_of_consistency_is_shown_by_ctl() {
    let Some(bucket) = Bucket::new("many-ctl", 0, &["--consistency", "open"]) else { return };
    let listed =
        crate::common::run(crate::common::bowwave().args(["ctl"]).arg(bucket.place.at()).arg("list"));
    assert!(listed.contains("consistency") && listed.contains("open"), "{listed}");
    bucket.end();
}
