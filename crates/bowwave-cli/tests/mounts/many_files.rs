//! Many small files of a bucket, with real programs: requests are counted at the server. And
//! versions: files that are replaced under readers, in each mode of consistency.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{can_mount, mounting, setting, with_keys};
use bowwave_testkit::hostile::{Dialect, HostileServer, Requests, content};

/// A mounted bucket in memory.
struct Bucket {
    server: HostileServer,
    place: Place,
    mount: Served,
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
        Some(Self { server, place, mount, _alone })
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

/// Versions of one object, with the time at which each was stored.
struct Replaced {
    versions: Mutex<Vec<(u64, Instant)>>,
}

/// A mode of consistency, and a server.
struct Readers {
    mode: &'static str,
    ttl: Duration,
    /// Whether the server shows versions: by entity tags and times, with conditions.
    shows_versions: bool,
}

/// Fails if a file has bytes of no version, or of one that is older than the mode promises.
fn versions_never_mix(mode: &'static str, ttl: Duration) {
    let wrong = wrong_reads(&Readers { mode, ttl, shows_versions: true });
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Readers compare each file with all of its versions while a writer replaces them. Returns what
/// they find until the first wrong read.
fn wrong_reads(how: &Readers) -> Vec<String> {
    const THREADS: u64 = 16;
    const NAMES: usize = 6;
    let (mode, ttl) = (how.mode, how.ttl);
    let wanted = setting("BOWWAVE_VERSION_READS", 1000);
    let ttl_text = format!("{}ms", ttl.as_millis());
    let arguments = ["--consistency", mode, "--ttl", &ttl_text];
    let name = format!("many-{mode}-{}", how.shows_versions);
    let Some(bucket) = Bucket::new(&name, 0, &arguments) else { return Vec::new() };
    if !how.shows_versions {
        bucket.server.set_mode("no-validators".parse().expect("a mode of the server"));
    }
    // From a page to several requests.
    let size = |name: usize, version: u64| {
        let more = if how.shows_versions { version as usize % 3 * 5000 } else { 0 };
        3000 + name * 97_000 + more
    };
    let all: Vec<Replaced> = (0..NAMES).map(|_| Replaced { versions: Mutex::default() }).collect();
    let put = |name: usize, version: u64| {
        bucket.server.put(&key(name), content(&key(name), version, size(name, version)));
        all[name].versions.lock().expect("no panic").push((version, Instant::now()));
    };
    (0..NAMES).for_each(|name| put(name, 1));
    let (at, done, reads) = (bucket.place.at(), AtomicBool::new(false), AtomicU64::new(0));
    let wrong: Mutex<Vec<String>> = Mutex::default();
    let found_wrong = |what: String| {
        wrong.lock().expect("no panic").push(what);
        done.store(true, Ordering::Relaxed);
    };
    let newest_before = |name: usize, time: Instant| {
        let versions = all[name].versions.lock().expect("no panic");
        versions.iter().rev().find(|(_, stored)| *stored <= time).map_or(1, |(version, _)| *version)
    };
    let read_one = |name: usize| {
        let begun = Instant::now();
        let bytes = match fs::read(at.join(key(name))) {
            Ok(bytes) => bytes,
            // Replaced after its first byte was read.
            Err(error) if error.raw_os_error() == Some(STALE) => return,
            Err(error) => return found_wrong(format!("{}: {error}", key(name))),
        };
        let known: Vec<u64> =
            all[name].versions.lock().expect("no panic").iter().map(|(version, _)| *version).collect();
        // One more may be stored and not yet noted.
        let last = known.last().copied().unwrap_or(1);
        let is = |version: &u64| bytes == content(&key(name), *version, size(name, *version));
        let found = (1..=last + 1).rev().find(|version| is(version));
        let Some(found) = found else {
            return found_wrong(format!("{}: {} bytes of no version", key(name), bytes.len()));
        };
        let allowed = begun.checked_sub(ttl).map_or(1, |time| newest_before(name, time));
        if found < allowed {
            found_wrong(format!("version {found} of {}, not {allowed} or later", key(name)));
        }
        reads.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (done, read_one) = (&done, &read_one);
            scope.spawn(move || {
                // A reader that fails ends the writer, too.
                let _ends = Ends(done);
                let mut at = thread as usize;
                while !done.load(Ordering::Relaxed) {
                    at = (at * 5 + 3) % 1009;
                    read_one(at % NAMES);
                }
            });
        }
        let mut version = 1;
        while reads.load(Ordering::Relaxed) < wanted && !done.load(Ordering::Relaxed) {
            version += 1;
            (0..NAMES).for_each(|name| {
                put(name, version);
                thread::sleep(Duration::from_millis(3));
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    // Replaced files are errors of the log.
    drop(bucket);
    wrong.into_inner().expect("no panic")
}

/// Without validators nothing tells versions apart: the readers above must notice it.
#[test]
fn readers_find_mixed_versions_of_a_store_that_does_not_show_them() {
    let wrong = wrong_reads(&Readers { mode: "open", ttl: Duration::ZERO, shows_versions: false });
    assert!(wrong.iter().any(|what| what.contains("of no version")) || !can_mount(), "{wrong:?}");
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
        bucket.server.put(&key(0), content(&key(0), 2, newer));
        let read = fs::read(&path).expect("a file");
        assert!(read == content(&key(0), 2, newer), "{bytes} -> {newer}: {} bytes", read.len());
        bucket.end();
    }
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
