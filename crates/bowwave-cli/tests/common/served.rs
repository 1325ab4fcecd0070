//! A mount in a separate process, which can be killed.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::bowwave;
use rustix::process::{Pid, Signal, kill_process};

/// A ready mount in the foreground. On drop it is killed and unmounted.
pub(crate) struct Served {
    pub(crate) child: Child,
    /// Its output until it was ready.
    pub(crate) ready: String,
    at: PathBuf,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Served {
    /// Mounts `url` at the empty directory `at` and waits until it is ready.
    pub(crate) fn start(url: &str, at: &Path, options: &[&str]) -> Self {
        Self::of(bowwave().args(["mount", url]).arg(at).args(options), at)
    }

    /// Runs `command`, which mounts at `at` in the foreground, and waits until it is ready.
    pub(crate) fn of(command: &mut Command, at: &Path) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is there");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut ready = String::new();
        while !ready.contains(" is mounted at ") {
            let count = stderr.read_line(&mut ready).expect("UTF-8");
            assert!(count > 0, "{command:?}: {ready}");
        }
        let said = Arc::new(Mutex::new(String::new()));
        let reader = thread::spawn({
            let said = Arc::clone(&said);
            move || drain(stderr, &said)
        });
        Self { child, ready, at: at.to_owned(), said, reader: Some(reader) }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output since it was ready.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// SIGKILL only: the kernel keeps the dead mount.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Unmounts with `umount` and waits for the end; returns exit status and output. `umount` has
    /// the same status.
    pub(crate) fn unmount(self) -> (ExitStatus, String) {
        let asked = bowwave().arg("umount").arg(&self.at).output().expect("bowwave starts");
        let (status, said) = self.end();
        let stderr = String::from_utf8_lossy(&asked.stderr);
        assert_eq!(asked.status.success(), status.success(), "umount: {stderr}, mount: {said}");
        (status, said)
    }

    /// Waits for the end of its process; returns exit status and standard error since it was ready.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        let (status, _, said) = self.output();
        (status, said)
    }

    /// As [`end`](Self::end), with standard output as the second part.
    pub(crate) fn output(mut self) -> (ExitStatus, String, String) {
        let mut output = String::new();
        let mut stdout = self.child.stdout.take().expect("a pipe");
        stdout.read_to_string(&mut output).expect("UTF-8");
        let status = self.child.wait().expect("it ends");
        self.reader.take().expect("not yet joined").join().expect("it only reads");
        (status, output, self.said())
    }
}

/// Drains standard error, so that it never blocks on a full pipe.
fn drain(stderr: BufReader<ChildStderr>, said: &Mutex<String>) {
    for line in stderr.lines().map_while(Result::ok) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&line);
        said.push('\n');
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_ended = self.child.wait();
        let _may_be_gone =
            Command::new("fusermount3").args(["-u", "-z"]).arg(&self.at).stderr(Stdio::null()).status();
    }
}
