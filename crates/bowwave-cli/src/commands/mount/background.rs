//! The mount in the background: a separate process; the parent reports its errors before it exits.
//!
//! ```text
//! bowwave mount -d …  ──starts──►  bowwave mount --tell-ready -d …
//!    ▲  waits                        │ opens, mounts
//!    ├──── "ready" on stdout ────────┤ then leaves session, terminal, directory
//!    └──── or exit code, stderr ─────┘
//! ```

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::Args;
use crate::{Failure, output};

/// Starts this command again in the background, and returns when its mount is ready, or with its
/// failure.
///
/// Passes a URL that may contain a secret through the environment: every user can read the
/// arguments for the lifetime of the mount.
pub(super) fn start(args: &Args) -> Result<(), Failure> {
    let url = &args.url;
    let failed = |error: io::Error| failed!("cannot start the mount's process: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut command = Command::new(program);
    command.args(arguments.next()).arg("--tell-ready");
    if may_hold_secret(url) {
        command.args(arguments.map(|argument| without(argument, url))).env(URL_VARIABLE, url);
    } else {
        command.args(arguments);
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = String::new();
    let mut lines = child.stdout.take().map(BufReader::new);
    while let Some(lines) = &mut lines {
        line.clear();
        lines.read_line(&mut line).map_err(failed)?;
        match line.strip_prefix(NOTE) {
            Some(note) => output::note(note.trim_end()),
            None => break,
        }
    }
    if let Some(access) = line.trim_end().strip_prefix(READY) {
        let dir = args.dir.display();
        if !args.log.is_quiet() {
            note!(
                "mounted at {dir}, {access}, by process {}; end it with 'bowwave umount {dir}'",
                child.id()
            );
        }
        return Ok(());
    }
    let mut stderr_text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut stderr_text).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let last = stderr_text.lines().last().unwrap_or_default();
    let message = match last.strip_prefix("bowwave: error: ") {
        Some(message) => message.to_owned(),
        None => format!("the mount's process ended early ({status}) {last}"),
    };
    Err(if status.code() == Some(2) { Failure::usage(message) } else { Failure::failed(message) })
}

/// Re-executes this command with a secret URL in the environment; returns if no argument contains
/// one.
pub(super) fn hide(url: &str) -> Result<(), Failure> {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if !may_hold_secret(url) || !arguments.iter().any(|argument| argument == url) {
        return Ok(());
    }
    let failed = |error: io::Error| failed!("cannot hide the URL: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let own_name = arguments.remove(0);
    let mut command = Command::new(program);
    command.arg0(own_name).args(arguments.into_iter().map(|argument| without(argument, url)));
    Err(failed(command.env(URL_VARIABLE, url).exec()))
}

fn without(argument: OsString, url: &str) -> OsString {
    if argument == url { BY_ENVIRONMENT.into() } else { argument }
}

/// The URL to mount.
pub(super) fn url(args: &Args) -> String {
    match std::env::var(URL_VARIABLE) {
        Ok(url) if args.url == BY_ENVIRONMENT => url,
        _ => args.url.clone(),
    }
}

/// Whether a URL can contain a password or a signature.
fn may_hold_secret(url: &str) -> bool {
    url.contains(['@', '?'])
}

/// Shows a note before the mount is ready; in the background, through the parent process.
pub(super) fn note(tell_ready: bool, note: &str) -> Result<(), Failure> {
    if !tell_ready {
        note!("{note}");
        return Ok(());
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "{NOTE}{note}")
        .and_then(|()| stdout.flush())
        .map_err(|error| failed!("cannot write to standard output: {error}"))
}

/// Leaves the terminal and the current directory, and reports to the parent that the mount is
/// ready, with its `access`.
pub(super) fn detach(access: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| failed!("cannot go to the background: {error}");
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    // A session leader cannot create another session.
    let _already_leader = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))?;
    let mut stdout = io::stdout();
    stdout
        .write_all(format!("{READY}{access}\n").as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))
}

const READY: &str = "ready, ";
const NOTE: &str = "note, ";

/// Replaces the URL in the arguments.
const BY_ENVIRONMENT: &str = "url-by-environment";

/// The environment variable with the URL.
const URL_VARIABLE: &str = "BOWWAVE_MOUNT_URL";
