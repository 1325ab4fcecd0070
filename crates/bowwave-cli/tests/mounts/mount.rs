//! `bowwave mount` and `bowwave umount`: files through the kernel, and every way to end a mount.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::close::close;
use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, is_mounted, mounting, run, umount, until};
use bowwave_testkit::HttpServer;
use bowwave_testkit::hostile::{Dialect, Fault, HostileServer, Mode, Slow};
use rustix::process::Signal;
use serde_json::Value;

/// A place with files in its store, for one test at a time.
struct Directory(Place, #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Directory {
    /// `None` if mounts do not work here.
    fn new(name: &str) -> Option<Self> {
        let alone = mounting()?;
        let place = Place::new(&format!("mount-{name}"));
        fs::create_dir(place.store().join("below")).expect("writable");
        for (name, size) in FILES {
            fs::write(place.store().join(name), bytes(size)).expect("writable");
        }
        Some(Self(place, alone))
    }

    fn from(&self) -> PathBuf {
        self.0.store()
    }

    fn at(&self) -> PathBuf {
        self.0.at()
    }

    fn is_mounted(&self) -> bool {
        is_mounted(&self.at())
    }

    fn mount(&self, options: &[&str]) -> Served {
        Served::start(&self.from().display().to_string(), &self.at(), options)
    }

    /// Asserts that the files at `at` equal those in `from`.
    fn compare(&self) {
        for (name, _) in FILES {
            let (from, at) = (fs::read(self.from().join(name)), fs::read(self.at().join(name)));
            assert!(from.expect("a source") == at.expect("a file of the mount"), "{name} differs");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Only if a test failed halfway.
            let _best_effort = bowwave_fuse::unmount(&self.at());
        }
    }
}

/// Names and sizes of the files.
const FILES: [(&str, usize); 6] =
    [("empty", 0), ("one", 1), ("4095", 4095), ("4096", 4096), ("below/4097", 4097), ("large", 1_000_003)];

/// Bytes with a long period that is unrelated to pages.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

/// A way to end a mount.
type Unmount<'a> = &'a dyn Fn(&Served);

fn succeeds(command: &mut Command) {
    let status = command.status().expect("the program is there");
    assert!(status.success(), "{command:?}: {status}");
}

#[test]
fn files_are_the_same_and_every_way_of_unmounting_leaves_nothing_behind() {
    let Some(directory) = Directory::new("ways") else { return };
    let ways: [(&str, Unmount<'_>); 5] = [
        ("bowwave umount", &|_| assert_eq!(run(&mut umount(&directory.at())), "")),
        ("fusermount3 -u", &|_| succeeds(Command::new("fusermount3").arg("-u").arg(directory.at()))),
        ("umount", &|_| succeeds(Command::new("umount").arg(directory.at()))),
        ("Ctrl-C", &|served| served.signal(Signal::INT)),
        ("SIGTERM", &|served| served.signal(Signal::TERM)),
    ];
    for (way, unmount) in ways {
        if way == "umount" && !rustix::process::getuid().is_root() {
            continue;
        }
        let served = directory.mount(&[]);
        directory.compare();
        unmount(&served);
        let (status, output, said) = served.output();
        assert!(status.success() && output.is_empty() && said.is_empty(), "{way}: {status} {output} {said}");
        assert!(!directory.is_mounted(), "{way}");
        assert_eq!(fs::read_dir(directory.at()).expect("a plain directory again").count(), 0, "{way}");
    }
}

#[test]
fn ctrl_c_ends_a_mount_that_is_in_use() {
    let Some(directory) = Directory::new("use") else { return };
    let served = directory.mount(&[]);
    let file = fs::File::open(directory.at().join("large")).expect("a file of the mount");
    let (code, line) = failure(&mut umount(&directory.at()));
    assert!(code == 1 && line.contains("a program uses the mount"), "{line}");
    served.signal(Signal::INT);
    let (status, ..) = served.output();
    assert!(status.success() && !directory.is_mounted());
    let mut byte = [0];
    assert!(file.read_at(&mut byte, 900_000).is_err(), "what is open reads no more");
}

#[test]
fn a_second_signal_ends_a_mount_that_waits_for_its_store() {
    let Some(directory) = Directory::new("impatient") else { return };
    let server = HostileServer::start(Dialect::S3).expect("loopback");
    let mut mount = bowwave();
    mount.args(["mount", &server.url()]).arg(directory.at()).args(["--timeout", "60s", "--allow-http"]);
    mount.args(["--endpoint", &server.endpoint()]);
    mount.args(["--region", "us-east-1"]);
    mount.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
    let mut served = Served::of(&mut mount, &directory.at());
    server.set_mode(Mode::of(Fault::Slow(Slow::UnreadUpload)));
    let writer = thread::spawn({
        let file = directory.at().join("written");
        move || {
            let mut file = fs::File::create(file).expect("a file of the mount");
            file.write_all(&[1; 4096]).and_then(|()| close(file)).is_ok()
        }
    });
    until("an upload begins", || server.requests().put > 0);
    served.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(500));
    assert!(served.child.try_wait().expect("our child").is_none(), "the first signal waits for the upload");
    let asked = Instant::now();
    served.signal(Signal::TERM);
    let status = served.child.wait().expect("our child");
    assert_eq!(status.signal(), Some(15));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(!writer.join().expect("no panic"), "the write fails");
    assert!(!directory.is_mounted());
}

#[test]
fn a_mount_in_the_background_is_ready_when_the_command_returns() {
    let Some(directory) = Directory::new("daemon") else { return };
    let mut command = bowwave();
    command.args(["mount", "--daemon"]).arg(directory.from()).arg(directory.at());
    assert_eq!(run(&mut command), "");
    directory.compare();
    // Already mounted: the second process must report it before it exits.
    let (code, line) = failure(&mut command);
    assert!(code == 1 && line.contains("mounted there already"), "{line}");
    run(&mut umount(&directory.at()));
    assert!(!directory.is_mounted());
    let (code, line) = failure(bowwave().args(["mount", "-d", "gopher://x"]).arg(directory.at()));
    assert!(code == 2 && line.contains("unknown scheme"), "{line}");
}

#[test]
fn the_mount_of_a_killed_process_is_reported_and_removed() {
    let Some(directory) = Directory::new("stale") else { return };
    let mut served = directory.mount(&["--ttl", "0"]);
    served.kill();
    assert!(directory.is_mounted(), "the kernel keeps the mount");
    let (code, line) = failure(bowwave().arg("mount").arg(directory.from()).arg(directory.at()));
    assert!(code == 1 && line.contains("bowwave umount"), "{line}");
    run(&mut umount(&directory.at()));
    assert!(!directory.is_mounted());
    let (code, line) = failure(&mut umount(&directory.at()));
    assert!(code == 1 && line.contains("nothing is mounted"), "{line}");
}

#[test]
fn the_final_counters_match_the_reads() {
    let Some(directory) = Directory::new("stats") else { return };
    let url = "emulate:s3,latency=1ms,metadata=0:pattern:/";
    let served = Served::start(url, &directory.at(), &["--stats-on-exit", "--json", "--cache", "16MiB"]);
    let mut expected = vec![0; 1 << 20];
    bowwave_backend::pattern::fill(bowwave_backend::pattern::seed("1MiB".as_ref()), 0, &mut expected);
    assert!(fs::read(directory.at().join("1MiB")).expect("a made-up file") == expected);
    run(&mut umount(&directory.at()));
    let (status, output, _) = served.output();
    let counters: Value = serde_json::from_str(&output).expect("an object");
    assert!(status.success());
    assert_eq!(counters["bytes_fetched"], 1 << 20);
    assert_eq!(counters["pages_used"], counters["pages_readahead"]);
    // Readahead pages were cached or in flight when the kernel requested them.
    let count = |name: &str| counters[name].as_u64().expect("a count");
    assert!(count("hits") + count("late") > 0 && count("requests") < 256, "{counters}");
    // One fill each, by whether it was demand when sent.
    let times = counters["store"]["latency_ns"].as_object().expect("by work");
    let sent: u64 = times.values().filter_map(|times| times["device"]["count"].as_u64()).sum();
    assert!(sent >= count("requests"), "{counters}");
}

#[test]
fn the_next_mount_reads_pages_from_the_disk_cache() {
    let Some(directory) = Directory::new("disk") else { return };
    let kept = std::env::temp_dir().join(format!("bowwave-mount-kept-{}", std::process::id()));
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    let large = fs::File::options().write(true).open(directory.from().join("large")).expect("there");
    large.set_modified(old).expect("ours");
    let want = fs::read(directory.from().join("large")).expect("there");
    let url = format!("emulate:s3,latency=1ms,metadata=0:{}", directory.from().display());
    let disk = kept.display().to_string();
    let options =
        ["--stats-on-exit", "--json", "--cache", "16MiB", "--disk-cache", &disk, "--disk-size", "64MiB"];
    let pass = || {
        let served = Served::start(&url, &directory.at(), &options);
        assert!(fs::read(directory.at().join("large")).expect("a file of the store") == want);
        run(&mut umount(&directory.at()));
        let (status, output, said) = served.output();
        assert!(status.success(), "{said}");
        let counters: Value = serde_json::from_str(&output).expect("an object");
        ["hits", "misses", "bytes_read", "bytes_written", "errors"]
            .map(|name| counters["disk"][name].as_u64())
    };
    let bytes = Some(want.len() as u64);
    let [hits, misses, read, written, errors] = pass();
    assert!(
        misses > Some(0) && (hits, read, written, errors) == (Some(0), Some(0), bytes, Some(0)),
        "{written:?}"
    );
    let [hits, misses, read, written, errors] = pass();
    assert!(
        hits > Some(0) && (misses, read, written, errors) == (Some(0), bytes, Some(0), Some(0)),
        "{read:?}"
    );
    fs::remove_dir_all(&kept).expect("it was made");
    let (code, said) = failure(bowwave().args(["mount", "pattern:/", "/tmp", "--disk-cache", "/a,b"]));
    assert!(code == 2 && said.contains("no comma"), "{said}");
}

#[test]
fn a_store_that_fails_gives_an_error_and_says_why() {
    let Some(directory) = Directory::new("fails") else { return };
    let served = directory.mount(&["--ttl", "0"]);
    let file = fs::File::open(directory.at().join("large")).expect("a file of the mount");
    // Another version of the file: the opened one no longer exists.
    fs::write(directory.from().join("large"), bytes(5)).expect("writable");
    let mut byte = [0];
    let error = file.read_at(&mut byte, 900_000).expect_err("the old bytes are gone");
    assert_eq!(error.raw_os_error(), Some(116), "ESTALE, not {error}");
    drop(file);
    assert_eq!(fs::read(directory.at().join("large")).expect("the new version"), bytes(5));
    run(&mut umount(&directory.at()));
    let (_, _, said) = served.output();
    assert!(said.contains("has changed"), "{said}");
}

#[test]
fn written_data_is_in_the_store_however_the_mount_ends() {
    let Some(directory) = Directory::new("writes") else { return };
    let ways: [Unmount<'_>; 3] = [
        &|_| assert_eq!(run(&mut umount(&directory.at())), ""),
        &|served| served.signal(Signal::INT),
        &|served| served.signal(Signal::TERM),
    ];
    for (way, unmount) in ways.into_iter().enumerate() {
        let served = directory.mount(&[]);
        let (at, from) = (directory.at().join(format!("{way}")), directory.from().join(format!("{way}")));
        fs::create_dir(&at).expect("writable");
        fs::write(at.join("f"), bytes(700_001)).expect("room");
        fs::rename(at.join("f"), at.join("g")).expect("just made");
        // Still open and not synced when a signal ends the mount.
        let mut open = (way > 0).then(|| fs::File::create(at.join("open")).expect("made"));
        if let Some(file) = &mut open {
            file.write_all(&bytes(300_000)).expect("room");
        }
        unmount(&served);
        let (status, _, said) = served.output();
        assert!(status.success() && said.is_empty(), "{status} {said}");
        assert!(fs::read(from.join("g")).expect("there") == bytes(700_001));
        if open.is_some() {
            assert!(fs::read(from.join("open")).expect("there") == bytes(300_000), "way {way}");
        }
    }
}

#[test]
fn a_read_only_mount_says_so_and_changes_nothing() {
    let Some(directory) = Directory::new("sealed") else { return };
    let served = directory.mount(&["--read-only"]);
    assert!(served.ready.contains("read-only,"), "{}", served.ready);
    let error = fs::write(directory.at().join("new"), b"x").expect_err("read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let (status, said) = served.unmount();
    assert!(status.success() && said.is_empty(), "{said}");
    let served = Served::start("pattern:/", &directory.at(), &[]);
    assert!(served.ready.contains("read-only (this store cannot be written)"), "{}", served.ready);
    let error = fs::write(directory.at().join("new"), b"x").expect_err("read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    run(&mut umount(&directory.at()));
}

#[test]
fn modes_are_those_that_programs_request_whatever_the_umask_of_the_mount() {
    let Some(directory) = Directory::new("umask") else { return };
    let served = directory.mount(&[]);
    let script =
        "umask 0; touch f; mkdir d; mkfifo p; umask 027; touch g; mkdir e; stat -c '%n %a' f d p g e";
    let output =
        Command::new("sh").args(["-c", script]).current_dir(directory.at()).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "f 666\nd 777\np 666\ng 640\ne 750\n");
    run(&mut umount(&directory.at()));
    drop(served);
}

#[test]
fn a_password_in_a_url_is_not_for_others_to_see() {
    let Some(directory) = Directory::new("secret") else { return };
    let server = HttpServer::start(&directory.from()).expect("loopback");
    let url = server.url().replace("http://", "http://user:hidden@");
    let mut command = bowwave();
    // The server returns 404 for its directories.
    command.args(["mount", "--daemon", "--no-index", &url]).arg(directory.at());
    let said = command.output().expect("bowwave starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let number = said.split("process ").nth(1).and_then(|rest| rest.split(';').next()).expect("its number");
    let arguments = fs::read(format!("/proc/{number}/cmdline")).expect("it runs");
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    for shown in [&said, &arguments, &mounts] {
        assert!(!shown.contains("hidden"), "{shown}");
    }
    assert_eq!(fs::read(directory.at().join("4096")).expect("readable"), bytes(4096));
    run(&mut umount(&directory.at()));

    // In the foreground, too, once it serves.
    let mut command = bowwave();
    command.args(["mount", "--ttl", "0", &format!("{url}4096?token=hidden")]).arg(directory.at());
    let served = Served::of(&mut command, &directory.at());
    let arguments = fs::read(format!("/proc/{}/cmdline", served.id())).expect("it runs");
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    assert!(arguments.contains("--ttl"), "{arguments}");
    for shown in [&served.ready, &arguments, &mounts] {
        assert!(!shown.contains("hidden"), "{shown}");
    }
    assert_eq!(fs::read(directory.at().join("4096")).expect("readable"), bytes(4096));
    assert!(served.unmount().0.success());
}

#[test]
fn weak_tags_are_reported_once_or_refused_with_require_version() {
    let Some(directory) = Directory::new("weak") else { return };
    // Its tags are weak.
    let server = HttpServer::start(&directory.from()).expect("loopback");
    let said_by = |url: &str, options: &[&str], is_read: bool| {
        let served = Served::start(url, &directory.at(), options);
        for name in ["4096", "4095"] {
            assert_eq!(fs::read(directory.at().join(name)).is_ok(), is_read, "{url} {options:?} {name}");
        }
        served.signal(Signal::TERM);
        served.output().2
    };
    let said = said_by(&server.url(), &["--read-only", "--no-index"], true);
    assert_eq!(said.matches("--require-version").count(), 1, "{said}");
    let read = bowwave().args(["read", &format!("{}4096", server.url())]).output().expect("bowwave starts");
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(read.status.success() && said.matches("--require-version").count() == 1, "{said}");
    let said = said_by(&server.url(), &["--read-only", "--no-index", "--require-version"], false);
    assert!(said.contains("no strong entity tag"), "{said}");
    let said = said_by(&directory.from().display().to_string(), &[], true);
    assert!(!said.contains("--require-version"), "{said}");
}
