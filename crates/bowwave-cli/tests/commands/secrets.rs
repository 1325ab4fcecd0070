//! Processes that hold credentials cannot be traced, dumped or read by the user's other processes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::common::place::Place;
use crate::common::{bowwave, can_mount, until};

/// A group that no file of root's belongs to.
const GROUP: u32 = 65534;

/// Whether the user's other processes may trace a process: files in `/proc` then belong to its user
/// and group, else to root.
fn is_dumpable(process: u32) -> bool {
    let found = fs::metadata(format!("/proc/{process}/environ")).expect("it runs");
    (found.uid(), found.gid()) != (0, 0)
}

/// The command in a group other than root's, so that owners tell something even to root.
fn grouped(command: &mut Command) -> &mut Command {
    if rustix::process::getegid().is_root() {
        command.gid(GROUP);
    }
    command
}

/// A process that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// `bowwave run` beside a program that tells its number and waits.
fn running(debugging: &str) -> (Running, u32) {
    let mut command = bowwave();
    command.args(["run", "--map", "pattern:/=/shown", "--stats", "--", "sh", "-c", "echo $$; read line"]);
    command
        .env("BOWWAVE_DUMPABLE", debugging)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = grouped(&mut command).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (Running(child), line.trim().parse().expect("a number"))
}

#[test]
fn run_is_not_dumpable_and_the_program_that_it_runs_is() {
    let (run, program) = running("");
    assert!(!is_dumpable(run.0.id()), "it holds the stores' credentials");
    assert!(is_dumpable(program), "the user debugs it");
}

#[test]
fn bowwave_dumpable_opens_a_process_to_debuggers() {
    let (run, _program) = running("1");
    assert!(is_dumpable(run.0.id()));
}

#[test]
fn read_is_not_dumpable() {
    let mut command = bowwave();
    command.args(["read", "emulate:s3,latency=20s,metadata=0:pattern:/1MiB"]);
    command.env_remove("BOWWAVE_DUMPABLE").stdout(Stdio::null()).stderr(Stdio::null());
    let child = Running(grouped(&mut command).spawn().expect("it starts"));
    until("it is protected", || !is_dumpable(child.0.id()));
}

#[test]
fn cp_and_ls_are_not_dumpable() {
    for arguments in [
        &["cp", "emulate:s3,latency=20s,metadata=0:pattern:/1MiB", "-"][..],
        &["ls", "emulate:s3,metadata=20s:pattern:/1MiB"],
    ] {
        let mut command = bowwave();
        command.args(arguments).env_remove("BOWWAVE_DUMPABLE").stdout(Stdio::null()).stderr(Stdio::null());
        let child = Running(grouped(&mut command).spawn().expect("it starts"));
        until("it is protected", || !is_dumpable(child.0.id()));
    }
}

#[test]
fn a_mount_in_the_background_is_not_dumpable_and_works() {
    if !can_mount() {
        return;
    }
    let place = Place::new("secrets");
    let at = place.at();
    fs::write(place.store().join("file"), b"bytes").expect("writable");
    let mut command = bowwave();
    command.arg("mount").arg(place.store()).arg(&at).arg("--daemon").env_remove("BOWWAVE_DUMPABLE");
    let output = grouped(&mut command).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let number = said.split("by process ").nth(1).and_then(|rest| rest.split(';').next()).expect("it tells");
    let number: u32 = number.parse().expect("a number");
    let is_protected = !is_dumpable(number);
    // A mount is for its own user and group.
    let mut shell = Command::new("sh");
    shell.args(["-c", "cd \"$1\" && cat file && printf more > new", "sh"]).arg(&at);
    let used = grouped(&mut shell).output().expect("it starts");
    assert!(bowwave().arg("umount").arg(&at).status().expect("it starts").success());
    assert!(is_protected, "the daemon holds credentials for as long as it lives");
    assert_eq!((used.status.success(), used.stdout.as_slice()), (true, b"bytes".as_slice()), "{used:?}");
    until("it is written", || fs::read(place.store().join("new")).is_ok_and(|bytes| bytes == b"more"));
}
