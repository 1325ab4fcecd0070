//! A disk cache on a hanging file system: a mount whose process is stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::common::served::Served;
use crate::common::{bowwave, mounting};
use bowwave_backend::{Backend, DiskStats, Options, open_url, read_exact};
use rustix::process::Signal;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a signal without starting a program, which would have to close this process's files on the
/// disk.
fn signal(served: &Served, signal: Signal) {
    served.signal(signal);
    // Threads stop one by one: a running one may still reply, or take a request and hold it.
    while signal == Signal::STOP && !is_stopped(served.id()) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_stopped(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    tasks.map_while(Result::ok).all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}

fn stats(store: &dyn Backend) -> DiskStats {
    store.disk().expect("a disk cache")
}

fn read(store: &dyn Backend, len: usize) -> Vec<u8> {
    let object = store.open(Path::new("")).expect("there");
    read_exact(&*object, 0, len, PATIENCE).expect("readable")
}

/// A source, and a disk that is a mount itself.
struct Bench {
    served: Served,
    top: TempDir,
    want: Vec<u8>,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None` if mounts do not work here.
    fn new() -> Option<Self> {
        let alone = mounting()?;
        let top = tempfile::tempdir().expect("a temporary directory");
        let (source, disk, at) = (top.path().join("source"), top.path().join("disk"), top.path().join("at"));
        fs::create_dir(&disk).expect("writable");
        fs::create_dir(&at).expect("writable");
        let want: Vec<u8> = (0..3_000_003).map(|index: u32| (index % 251) as u8).collect();
        fs::write(&source, &want).expect("writable");
        let old = SystemTime::now() - Duration::from_secs(60);
        fs::File::options().write(true).open(&source).expect("there").set_modified(old).expect("ours");
        let served = Served::start(&disk.display().to_string(), &at, &["--set", "kernel_cache=off"]);
        Some(Self { served, top, want, _alone: alone })
    }

    fn source(&self) -> PathBuf {
        self.top.path().join("source")
    }

    fn cache(&self) -> PathBuf {
        self.top.path().join("at/cache")
    }

    fn open(&self) -> Arc<dyn Backend> {
        let url = format!("disk:directory={},size=64MiB:{}", self.cache().display(), self.source().display());
        open_url(&url, &Options::default()).expect("the disk works")
    }
}

#[test]
fn a_disk_that_hangs_holds_no_read_and_no_close() {
    let Some(bench) = Bench::new() else { return };
    let (want, served) = (&bench.want, &bench.served);
    let store = bench.open();
    let begun = Instant::now();
    while stats(&*store).hits == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is kept: {:?}", stats(&*store));
        assert!(read(&*store, want.len()) == *want);
    }
    let before = stats(&*store);

    signal(served, Signal::STOP);
    let begun = Instant::now();
    assert!(read(&*store, want.len()) == *want);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(10), "{waited:?}");
    let begun = Instant::now();
    for _ in 0..20 {
        assert!(read(&*store, want.len()) == *want);
    }
    // Probes wait a second each while fewer than four threads hang.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let hung = stats(&*store);
    assert_eq!(hung.hits, before.hits);
    assert!((1..=4).contains(&hung.timed_out) && hung.bypassed >= 17, "{hung:?}");
    assert_eq!(hung.errors, before.errors, "{hung:?}");

    let begun = Instant::now();
    drop(store);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    signal(served, Signal::CONT);
    let store = bench.open();
    assert!(read(&*store, want.len()) == *want);
    assert_eq!((stats(&*store).hits, stats(&*store).timed_out), (1, 0), "it works again");
}

/// As long as no thread of another process waits for the disk where the kernel lets no signal
/// through.
#[test]
fn a_process_that_opens_a_cache_on_a_disk_that_hangs_ends_with_an_error() {
    let Some(bench) = Bench::new() else { return };
    let command = || {
        let mut command = bowwave();
        command
            .arg("read")
            .arg(bench.source())
            .args(["--disk-size", "64MiB", "--disk-cache"])
            .arg(bench.cache());
        command
    };
    let status = command().stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("the program is there").success());
    signal(&bench.served, Signal::STOP);
    let begun = Instant::now();
    let mut child =
        command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program is there");
    while child.try_wait().expect("it is ours").is_none() {
        if begun.elapsed() > PATIENCE {
            signal(&bench.served, Signal::CONT);
            panic!("a process waits for a disk that hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("has not answered within 10s"), "{said}");
    signal(&bench.served, Signal::CONT);
    let (status, said) = bench.served.unmount();
    assert!(status.success(), "{said}");
}

#[test]
fn a_mount_whose_disk_cache_hangs_can_be_unmounted() {
    let Some(bench) = Bench::new() else { return };
    let (from, at) = (bench.top.path().join("from"), bench.top.path().join("at2"));
    fs::create_dir(&from).expect("writable");
    fs::create_dir(&at).expect("writable");
    fs::rename(bench.source(), from.join("file")).expect("the same file system");
    let cache = bench.cache().display().to_string();
    let options = ["--set", "kernel_cache=off", "--disk-size", "64MiB", "--disk-cache", &cache];
    let mount = Served::start(&from.display().to_string(), &at, &options);
    // Nothing is written yet: at exit the kernel waits for a file that a thread is writing.
    signal(&bench.served, Signal::STOP);
    assert!(fs::read(at.join("file")).expect("readable") == bench.want, "the store has it");
    let (ended, end) = sync_channel::<()>(0);
    let waited = thread::scope(|scope| {
        // Otherwise a failing test does not end.
        let served = &bench.served;
        scope.spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                signal(served, Signal::CONT);
            }
        });
        let begun = Instant::now();
        let (status, said) = mount.unmount();
        let waited = begun.elapsed();
        drop(ended);
        assert!(status.success(), "{said}");
        waited
    });
    assert!(waited < PATIENCE / 2, "{waited:?}");
    signal(&bench.served, Signal::CONT);
    let (status, said) = bench.served.unmount();
    assert!(status.success(), "{said}");
}
