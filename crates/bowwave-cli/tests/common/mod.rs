//! Runs the program.

#![allow(dead_code, reason = "each test program uses its part of this")]

pub(crate) mod cells;
pub(crate) mod close;
pub(crate) mod explained;
pub(crate) mod place;
pub(crate) mod rng;
pub(crate) mod served;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_region::uffd::{Delivery, Scope, Uffd};
use bowwave_testkit::{InstalledServer, program, skipped};
use place::Place;

/// The program under test, without arguments.
pub(crate) fn bowwave() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bowwave"))
}

/// Standard output of a command that must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    run_with_input(command, b"")
}

/// As [`run`], with `input` on standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> String {
    let output = output_with_input(command, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// The output of a command with `input` on standard input.
pub(crate) fn output_with_input(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("bowwave starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // Inputs are smaller than a pipe, or the command fails before it reads them; only its output
    // counts.
    let _it_may_be_gone = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// Exit code and message of a command that must fail with one line.
pub(crate) fn failure(command: &mut Command) -> (i32, String) {
    let output = output_with_input(command, b"");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{command:?}");
    assert!(stderr.starts_with("bowwave: error: ") && stderr.lines().count() == 1, "{command:?}: {stderr}");
    (output.status.code().expect("no signal"), stderr)
}

/// Waits until something has happened in another process or thread.
pub(crate) fn until(what: &str, happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not yet: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A number from the environment: length or seed of a test.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// Whether a program is installed; prints why not.
pub(crate) fn is_installed(name: &str) -> bool {
    program(name).inspect_err(skipped).is_ok()
}

/// versitygw for `place`, with the bucket `bucket`; `None` if not installed.
pub(crate) fn gateway(place: &Place) -> Option<InstalledServer> {
    fs::create_dir_all(place.store().join("bucket")).expect("the directory is ours");
    is_installed("versitygw").then(|| InstalledServer::versitygw(&place.store()).expect("it starts"))
}

/// `bowwave` with these S3 keys, without the machine's own.
pub(crate) fn with_keys((key, secret): (&str, &str)) -> Command {
    let mut command = bowwave();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
    command
}

/// `bowwave umount`.
pub(crate) fn umount(at: &Path) -> Command {
    let mut command = bowwave();
    command.arg("umount").arg(at);
    command
}

/// An empty directory for the test called `name`.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _may_be_missing = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("writable");
    path
}

/// Whether mounts work here; prints why not.
pub(crate) fn can_mount() -> bool {
    match bowwave_fuse::is_available() {
        Ok(()) => true,
        Err(reason) => {
            skipped(&reason);
            false
        }
    }
}

/// Whether memory can be swapped here, for system calls, too; says why not.
pub(crate) fn can_swap() -> bool {
    let opened = Uffd::open(Scope::All, Delivery::Message);
    if let Err(error) = &opened {
        skipped(&format_args!("no userfaultfd that serves system calls here: {error}"));
    }
    opened.is_ok()
}

/// Peak resident memory of a process, in bytes, code included; `None` if it has ended.
pub(crate) fn peak_memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Whether the kernel has a mount at `at`.
pub(crate) fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("every Linux has it");
    let at = at.display().to_string();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&at))
}

/// The lock of tests that mount; `None`, with the reason printed, if mounts do not work here.
pub(crate) fn mounting() -> Option<MutexGuard<'static, ()>> {
    can_mount().then(one_at_a_time)
}

/// Serializes tests that read files of a mount.
///
/// A process started by another test holds all open files until it has executed its program; a
/// mount with an open file is busy.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
