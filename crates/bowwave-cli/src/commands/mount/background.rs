//! The mount in the background: a process of its own, whose errors are told before we go.
//!
//! ```text
//!   bowwave mount -d …  ──starts──►  bowwave mount --tell-ready -d …
//!         ▲  waits                        │ opens, mounts
//!         ├──── "ready" on stdout ────────┤ then leaves session, terminal and folder
//!         └──── or exit code, stderr ─────┘
//! ```

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Failure, output};

/// Starts this command again in the background, and returns when its mount is ready, or with its failure.
pub(super) fn start(dir: &Path) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::failed(format_args!("cannot start the mount's process: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut child = Command::new(program)
        .args(arguments.next())
        .arg("--tell-ready")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    }
    if line == READY {
        let dir = dir.display();
        output::note(format_args!(
            "mounted at {dir} by process {}; end it with 'bowwave umount {dir}'",
            child.id()
        ));
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let last = said.lines().last().unwrap_or_default();
    let message = match last.strip_prefix("bowwave: error: ") {
        Some(message) => message.to_owned(),
        None => format!("the mount's process ended early ({status}) {last}"),
    };
    Err(if status.code() == Some(2) { Failure::usage(message) } else { Failure::failed(message) })
}

/// Leaves the terminal and the folder we were started from, and tells who started us that the mount is ready.
pub(super) fn detach() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format_args!("cannot go to the background: {error}"));
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    // The leader of a session, which we may be already, cannot found another.
    let _already_leader = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))?;
    let mut stdout = io::stdout();
    stdout.write_all(READY.as_bytes()).and_then(|()| stdout.flush()).map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))
}

const READY: &str = "ready\n";
