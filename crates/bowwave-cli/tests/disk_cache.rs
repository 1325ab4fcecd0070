//! A disk cache on a real file system that stops answering: a mount whose process is stopped.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_backend::{Backend, DiskStats, Options, open_url, read_exact};
use common::served::Served;
use common::{bowwave, can_mount, one_at_a_time};

const PATIENCE: Duration = Duration::from_secs(60);

fn signal(served: &Served, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(served.id().to_string()).status();
    assert!(status.expect("every system has it").success(), "{name}");
}

fn stats(store: &dyn Backend) -> DiskStats {
    store.disk().expect("a disk cache")
}

fn read(store: &dyn Backend, len: usize) -> Vec<u8> {
    let object = store.open(Path::new("")).expect("there");
    read_exact(&*object, 0, len, PATIENCE).expect("readable")
}

#[test]
fn a_disk_that_hangs_holds_no_read_no_close_and_no_new_process() {
    if !can_mount() {
        return;
    }
    let _alone = one_at_a_time();
    let top = tempfile::tempdir().expect("a temporary directory");
    let (source, disk, at) = (top.path().join("source"), top.path().join("disk"), top.path().join("at"));
    fs::create_dir(&disk).expect("writable");
    fs::create_dir(&at).expect("writable");
    let want: Vec<u8> = (0..3_000_003).map(|index: u32| (index % 251) as u8).collect();
    fs::write(&source, &want).expect("writable");
    let old = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(&source).expect("there").set_modified(old).expect("ours");
    let served = Served::start(&disk.display().to_string(), &at, &["--kernel-cache", "off"]);
    let url = format!("disk:folder={},size=64MiB:{}", at.join("cache").display(), source.display());
    let open = || -> Arc<dyn Backend> { open_url(&url, &Options::default()).expect("the disk works") };

    let store = open();
    let begun = Instant::now();
    while stats(&*store).hits == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is kept: {:?}", stats(&*store));
        assert!(read(&*store, want.len()) == want);
    }
    let before = stats(&*store);

    signal(&served, "STOP");
    let begun = Instant::now();
    assert!(read(&*store, want.len()) == want);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(10), "{waited:?}");
    let begun = Instant::now();
    for _ in 0..20 {
        assert!(read(&*store, want.len()) == want);
    }
    // Probes wait for a second each, while fewer than four threads hang.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let hung = stats(&*store);
    assert_eq!(hung.hits, before.hits);
    assert!((1..=4).contains(&hung.timed_out) && hung.bypassed >= 17, "{hung:?}");
    assert_eq!(hung.errors, before.errors, "{hung:?}");

    let begun = Instant::now();
    let mut child = bowwave()
        .arg("read")
        .arg(&source)
        .args(["--disk-size", "64MiB", "--disk-cache"])
        .arg(at.join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    while child.try_wait().expect("it is ours").is_none() {
        assert!(begun.elapsed() < PATIENCE, "a process waits for a disk that hangs");
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("has not answered within 10s"), "{said}");

    let begun = Instant::now();
    drop(store);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    signal(&served, "CONT");
    let store = open();
    assert!(read(&*store, want.len()) == want);
    assert_eq!((stats(&*store).hits, stats(&*store).timed_out), (1, 0), "it works again");
    drop(store);
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
}
