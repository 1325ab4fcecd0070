//! Mounts leave no trace however they end, and failures to mount name their cause.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Dir, Memory, is_mounted, pattern};
use bowwave_engine::backend::{Backend, Error, ErrorKind, Object, Result};
use bowwave_engine::{Engine, Options};
use bowwave_fuse::{Mount, MountOptions, unmount};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

fn small() -> Memory {
    let memory = Memory::new();
    memory.file("f", &pattern(3_000_000, 1));
    memory
}

/// The error of mounting `tree` at `dir`.
fn refusal(dir: &Path) -> String {
    let error = Mount::new(small().store(), dir, MountOptions::default()).expect_err("cannot be mounted");
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    line
}

#[test]
fn dropping_unmounts() {
    let Some(dir) = Dir::new("drop") else { return };
    let mount = small().mount(&dir);
    assert!(is_mounted(dir.path()));
    drop(mount);
    assert!(!is_mounted(dir.path()));
}

#[test]
fn unmount_returns_its_result_and_a_second_one_does_nothing() {
    let Some(dir) = Dir::new("twice") else { return };
    let mount = small().mount(&dir);
    let unmounter = mount.unmounter();
    mount.unmount().expect("idle");
    assert!(!is_mounted(dir.path()));
    unmounter.unmount().expect("nothing left to do");
    // It leaves another mount at the same directory alone.
    let other = small().mount(&dir);
    unmounter.unmount().expect("nothing left to do");
    assert!(is_mounted(dir.path()));
    drop(other);
}

#[test]
fn wait_ends_with_every_kind_of_unmount() {
    let by_command = |dir: &Path| unmount(dir).expect("idle");
    let by_kernel = |dir: &Path| match rustix::mount::unmount(dir, UnmountFlags::empty()) {
        Err(Errno::PERM) => by_command(dir),
        result => result.expect("idle"),
    };
    let by_helper = |dir: &Path| {
        let Ok(status) = Command::new("fusermount3").arg("-u").arg(dir).status() else {
            return by_command(dir);
        };
        assert!(status.success());
    };
    for way in [&by_command as &dyn Fn(&Path), &by_kernel, &by_helper] {
        let Some(dir) = Dir::new("wait") else { return };
        let mount = small().mount(&dir);
        thread::scope(|scope| {
            let (ended, end) = sync_channel(1);
            let mount = &mount;
            scope.spawn(move || ended.send(mount.wait()).expect("the test waits"));
            way(dir.path());
            end.recv_timeout(Duration::from_secs(20)).expect("wait returns").expect("a plain end");
        });
        assert!(!is_mounted(dir.path()));
    }
}

/// Whether a forced unmount fails other processes' requests: as root, or with the kernel's control
/// files.
fn can_abort() -> bool {
    let control = fs::read_dir("/sys/fs/fuse/connections").is_ok_and(|mut entries| entries.next().is_some());
    rustix::process::geteuid().is_root() || control
}

#[test]
fn a_mount_in_use_is_ended_by_its_owner_but_not_by_the_command() {
    let Some(dir) = Dir::new("busy") else { return };
    let mount = small().mount(&dir);
    let file = File::open(dir.path().join("f")).expect("readable");
    let error = unmount(dir.path()).expect_err("in use").to_string();
    assert!(error.contains("a program uses the mount") && error.contains("fusermount3 -uz"), "{error}");
    mount.unmount().expect("by force");
    assert!(!is_mounted(dir.path()));
    if can_abort() {
        file.read_at(&mut [0; 10], 2_000_000).expect_err("the mount is gone");
    }
}

#[test]
fn requests_in_flight_do_not_delay_an_unmount() {
    let (Some(dir), memory) = (Dir::new("flight"), small()) else { return };
    for file in 0..12 {
        memory.file(format!("{file}"), &pattern(100, file));
    }
    let mount = memory.mount(&dir);
    let gate = memory.close_gate();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..12)
            .map(|file| {
                let path = dir.path().join(format!("{file}"));
                scope.spawn(move || fs::read(path))
            })
            .collect();
        gate.await_arrivals(12);
        let start = Instant::now();
        mount.unmount().expect("by force");
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(!is_mounted(dir.path()));
        if can_abort() {
            for reader in readers {
                reader.join().expect("no panic").expect_err("the mount went away under it");
            }
        }
        gate.open(12);
    });
}

#[test]
fn a_mount_whose_process_was_killed_is_recognised_and_can_be_cleared() {
    let Some(dir) = Dir::new("killed") else { return };
    let program = std::env::current_exe().expect("this test");
    let mut child = Command::new(program)
        .args(["--exact", "lifecycle::child_mounts_and_waits", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be run again");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.any(|line| line.is_ok_and(|line| line.contains("mounted")));
    child.kill().expect("running");
    child.wait().expect("a child");
    assert!(ready, "the child ended early");

    let error = fs::metadata(dir.path()).expect_err("nobody answers");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTCONN));
    let line = refusal(dir.path());
    assert!(line.contains("bowwave umount") && line.contains("fusermount3 -u"), "{line}");
    unmount(dir.path()).expect("the remedy works");
    assert!(!is_mounted(dir.path()));
    drop(small().mount(&dir));
}

const CHILD_DIR: &str = "BOWWAVE_TEST_DIR";

/// Not a test by itself: the test above runs it as a child process and kills it.
#[test]
#[expect(clippy::print_stdout, reason = "reports to the parent")]
fn child_mounts_and_waits() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let mount =
        Mount::new(small().store(), Path::new(&dir), MountOptions::default()).expect("the parent checked");
    println!("mounted");
    mount.wait().expect("killed while waiting");
}

#[test]
fn mount_points_that_cannot_be_used_are_refused_with_their_remedy() {
    let Some(dir) = Dir::new("refused") else { return };
    let missing = dir.path().join("missing");
    assert!(refusal(&missing).contains(&format!("mkdir -p {}", missing.display())));

    let file = dir.path().join("file");
    fs::write(&file, b"x").expect("writable");
    assert!(refusal(&file).contains("not a directory"));
    assert!(refusal(dir.path()).contains("not empty"));
    fs::remove_file(&file).expect("writable");

    let mount = small().mount(&dir);
    assert!(refusal(dir.path()).contains("mounted there already (fuse.bowwave)"));
    assert!(refusal(dir.path()).contains("bowwave umount"));
    drop(mount);
    assert!(refusal(Path::new("/proc")).contains("mounted there already (proc)"));
}

#[test]
fn only_bowwave_mounts_are_unmounted() {
    let Some(dir) = Dir::new("foreign") else { return };
    let line = unmount(dir.path()).expect_err("nothing mounted").to_string();
    assert!(line.contains("nothing is mounted there"), "{line}");
    let line = unmount(Path::new("/proc")).expect_err("not ours").to_string();
    assert!(line.contains("not a bowwave mount (proc)"), "{line}");
    assert!(unmount(&dir.path().join("missing")).is_err());
}

#[test]
fn mount_points_may_be_given_through_links_and_dots() {
    let (Some(dir), Some(links)) = (Dir::new("target"), Dir::new("links")) else { return };
    let link = links.path().join("a link");
    std::os::unix::fs::symlink(dir.path(), &link).expect("writable");
    for given in [
        link.clone(),
        dir.path().join("."),
        dir.path().join("../x/..").join(dir.path().file_name().expect("named")),
    ] {
        let given = if given.exists() { given } else { dir.path().to_owned() };
        let mount = Mount::new(small().store(), &given, MountOptions::default()).expect("the same directory");
        assert_eq!(mount.point(), dir.path());
        unmount(&given).expect("found again");
        mount.wait().expect("a plain end");
    }
    fs::remove_file(link).expect("writable");
}

#[test]
fn a_store_without_a_readable_root_is_not_mounted() {
    let Some(dir) = Dir::new("broken") else { return };
    let engine = Engine::new(Options::default()).expect("there is memory");
    let store = engine.store_of(Arc::new(Broken));
    let line = Mount::new(store, dir.path(), MountOptions::default()).expect_err("broken").to_string();
    assert_eq!(line, "broken://store: no credentials: set them");
    assert!(!is_mounted(dir.path()));
}

/// A store that rejects every request.
#[derive(Debug)]
struct Broken;

impl Backend for Broken {
    fn url(&self) -> &str {
        "broken://store"
    }

    fn open(&self, _path: &Path) -> Result<Arc<dyn Object>> {
        Err(Error::new(ErrorKind::Unauthenticated, "no credentials: set them"))
    }
}

#[test]
fn the_kernels_readahead_is_set_where_that_is_allowed() {
    let Some(dir) = Dir::new("readahead") else { return };
    let options = MountOptions { kernel_readahead_bytes: 512 << 10, ..MountOptions::default() };
    let mount = small().mount_with(&dir, options);
    let want = if rustix::process::geteuid().is_root() { 512 << 10 } else { 128 << 10 };
    assert_eq!(mount.kernel_readahead_bytes(), Some(want));
}
