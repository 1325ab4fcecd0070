//! `bowwave umount` returns when all written data is in the store, and reports lost data.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, is_installed, mounting, output_with_input, run, umount, until};
use bowwave_testkit::{S3Fault, S3Server, S3Trouble, is_root};
use rustix::process::{Pid, Signal, kill_process};

/// A mount of an S3 server's bucket with one file, `file`.
struct Bucket {
    place: Place,
    server: S3Server,
}

impl Bucket {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
        fs::write(place.store().join("bucket/file"), "bytes").expect("written");
        Self { place, server }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = bowwave();
        command.args(["mount", "s3://bucket"]).arg(self.place.at()).args(options);
        command.args(["--endpoint", &self.server.endpoint(), "--allow-http", "--anonymous"]);
        command.args(["--region", "us-east-1", "--retries", "0"]);
        command
    }

    fn mount(&self) -> Served {
        Served::of(&mut self.command(&[]), &self.place.at())
    }

    fn umount(&self) -> Command {
        umount(&self.place.at())
    }

    /// Changes the mode of the file, which the store gets half a second later, or at the end.
    fn chmod(&self, mode: u32) {
        let file = self.place.at().join("file");
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("accepted");
    }

    /// Injects a fault into copies that store the file's mode.
    fn inject(&self, what: S3Trouble) {
        let part = "/bucket/file".to_owned();
        self.server.inject(S3Fault { method: "PUT", part, after: 0, times: 1000, what });
    }

    /// Waits until a copy has started.
    fn wait_for_copy(&self) {
        let is_copy = |request: &String| request.starts_with("PUT /bucket/file");
        until("a copy begins", || self.server.requests().iter().any(is_copy));
    }

    /// The stored mode of the file, as another mount shows it.
    fn stored_mode(&self) -> u32 {
        let at = self.place.root().join("other");
        fs::create_dir_all(&at).expect("writable");
        let mut command = bowwave();
        command.args(["mount", "s3://bucket"]).arg(&at).args(["--read-only", "--anonymous", "--allow-http"]);
        command.args(["--endpoint", &self.server.endpoint(), "--region", "us-east-1"]);
        let _other = Served::of(&mut command, &at);
        fs::metadata(at.join("file")).expect("there").mode() & 0o777
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// The process id of a background mount, from the output of `mount --daemon`.
fn daemon(command: &mut Command) -> i32 {
    let said = output_with_input(command, b"");
    let said = String::from_utf8(said.stderr).expect("UTF-8");
    let number = said.split("process ").nth(1).and_then(|rest| rest.split(';').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// Whether a process has ended or is ending: it closes its connections a moment before.
fn has_ended(process: i32) -> bool {
    let is_alive = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // In a container, a zombie may never be reaped.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    (0..50).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !is_alive()
    })
}

/// Writes an archive by a child of `tar` whose `close` happens at its exit: the kernel drops the
/// error.
fn write_unseen(place: &Place) {
    fs::write(place.root().join("data"), vec![7; 9 << 20]).expect("writable");
    let mut tar = Command::new("tar");
    tar.arg("czf").arg(place.at().join("data.tgz")).arg("-C").arg(place.root()).arg("data");
    assert!(tar.status().expect("tar is installed").success(), "it does not notice");
}

#[test]
fn umount_names_the_file_whose_upload_failed_and_exits_with_1() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("umount-upload");
    let url = format!("fault:finish_errors=1:emulate:s3:{}", place.store().display());
    for way in ["--foreground", "--daemon"] {
        let mut command = bowwave();
        command.args(["mount", &url]).arg(place.at()).args(["--retries", "0", way]);
        let served = (way == "--foreground").then(|| Served::of(&mut command, &place.at()));
        let process = served.as_ref().map_or_else(|| daemon(&mut command), |served| served.id() as i32);
        write_unseen(&place);
        let (code, line) = failure(&mut umount(&place.at()));
        assert_eq!(code, 1, "{way}: {line}");
        assert!(line.contains("data.tgz was not uploaded, and is lost: "), "{way}: {line}");
        assert!(has_ended(process), "{way}");
        if let Some((status, said)) = served.map(Served::end) {
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("data.tgz was not uploaded, and is lost: "), "{said}");
        }
    }
}

#[test]
fn umount_names_the_file_whose_mode_the_store_refused_and_exits_with_1() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-chmod");
    // The store rejects the copy half a second after the chmod, or at the end of the mount.
    for pause in [Duration::from_millis(1500), Duration::ZERO] {
        let served = bucket.mount();
        bucket.inject(S3Trouble::Refused(403));
        bucket.chmod(0o600);
        thread::sleep(pause);
        let (code, line) = failure(&mut bucket.umount());
        assert_eq!(code, 1, "{line}");
        assert!(line.contains("the mode, owner or time of file is not stored: "), "{line}");
        assert_eq!(served.end().0.code(), Some(1));
    }
}

#[test]
fn umount_returns_when_the_store_has_all_and_the_process_has_ended() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-stored");
    // It queries the process of this mount only.
    let at = bucket.place.root().join("pattern");
    fs::create_dir(&at).expect("writable");
    let other = Served::start("pattern:/", &at, &[]);
    let process = daemon(&mut bucket.command(&["--daemon"]));
    bucket.inject(S3Trouble::Late(Duration::from_secs(2)));
    bucket.chmod(0o600);
    let output = output_with_input(&mut bucket.umount(), b"");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(has_ended(process));
    assert_eq!(bucket.stored_mode(), 0o600);
    assert!(other.unmount().0.success());
}

#[test]
fn the_outcome_of_a_mount_that_is_killed_at_its_end_is_unknown() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-killed");
    let mut served = bucket.mount();
    bucket.inject(S3Trouble::Late(Duration::from_secs(60)));
    bucket.chmod(0o600);
    let umount = spawn(&mut bucket.umount());
    bucket.wait_for_copy();
    served.kill();
    let output = umount.wait_with_output().expect("it ends");
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("ended without a report: what programs wrote last may be lost"), "{line}");
}

#[test]
fn ctrl_c_ends_umount_and_the_mount_still_stores_all() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-interrupt");
    let served = bucket.mount();
    bucket.inject(S3Trouble::Late(Duration::from_secs(3)));
    bucket.chmod(0o600);
    let umount = spawn(&mut bucket.umount());
    bucket.wait_for_copy();
    kill_process(Pid::from_child(&umount), Signal::INT).expect("it waits");
    let output = umount.wait_with_output().expect("it ends");
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{line}");
    let continues = format!("process {} continues to store what programs wrote", served.id());
    assert!(line.contains("is unmounted") && line.contains(&continues), "{line}");
    assert!(served.end().0.success());
    assert_eq!(bucket.stored_mode(), 0o600);
}

#[test]
fn a_terminal_shows_that_umount_waits() {
    let Some(_alone) = mounting() else { return };
    if !is_installed("script") {
        return;
    }
    let bucket = Bucket::new("umount-terminal");
    let served = bucket.mount();
    bucket.inject(S3Trouble::Late(Duration::from_secs(3)));
    bucket.chmod(0o600);
    let umount = bucket.umount();
    let line = format!("'{}' umount '{}'", umount.get_program().display(), bucket.place.at().display());
    let shown = run(Command::new("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm"));
    assert!(shown.contains("waiting until all that was written is in the store"), "{shown}");
    assert!(served.end().0.success());
}

#[test]
fn a_failed_unmount_does_not_wait_or_block_a_later_one() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-busy");
    let served = bucket.mount();
    let open = fs::File::open(bucket.place.at().join("file")).expect("there");
    for _ in 0..20 {
        let (code, line) = failure(&mut bucket.umount());
        assert!(code == 1 && line.contains("a program uses the mount"), "{line}");
    }
    drop(open);
    bucket.inject(S3Trouble::Refused(403));
    bucket.chmod(0o600);
    let (code, line) = failure(&mut bucket.umount());
    assert!(code == 1 && line.contains("file is not stored"), "{line}");
    assert_eq!(served.end().0.code(), Some(1));
}

#[test]
fn a_mount_that_stays_at_another_directory_is_not_waited_for() {
    let Some(_alone) = mounting().filter(|_| is_root()) else { return };
    let bucket = Bucket::new("umount-bind");
    let served = bucket.mount();
    let other = bucket.place.root().join("bound");
    fs::create_dir(&other).expect("writable");
    run(Command::new("mount").arg("--bind").arg(bucket.place.at()).arg(&other));
    let output = output_with_input(&mut bucket.umount(), b"");
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && line.contains(&format!("process {} continues", served.id())),
        "{line}"
    );
    assert_eq!(fs::read(other.join("file")).expect("still served"), b"bytes");
    run(&mut umount(&other));
    assert!(served.end().0.success());
}

#[test]
fn a_mount_without_a_control_channel_is_unmounted_at_once() {
    let Some(_alone) = mounting() else { return };
    let bucket = Bucket::new("umount-silent");
    let mut command = bucket.command(&[]);
    // In a directory unknown to the other command.
    let served = Served::of(command.env("XDG_RUNTIME_DIR", bucket.place.root()), &bucket.place.at());
    bucket.inject(S3Trouble::Late(Duration::from_secs(2)));
    bucket.chmod(0o600);
    let start = Instant::now();
    assert_eq!(run(&mut bucket.umount()), "");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(served.end().0.success());
    assert_eq!(bucket.stored_mode(), 0o600);
}
