//! Mounts of the kernel's table, with their processes; and what a command names: a mount or a
//! process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::sync_channel;
use std::thread;

use bowwave_control::{Error, PATIENCE, Peer, Process, Request, peers};
use rustix::io::Errno;
use serde_json::Value;

use crate::Failure;

/// What a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A mount, by its directory.
    Mount(PathBuf),
    /// A program, or a mount, by its process id.
    Process(u32),
}

impl FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Mount(text.into()), Self::Process))
    }
}

impl Target {
    /// Sends a request.
    pub(crate) fn ask(&self, request: &Request) -> Result<Value, Failure> {
        match self {
            Self::Mount(dir) => {
                let (peer, point) = reach(dir)?;
                peer.ask(request).map_err(|error| match error {
                    Error::Refused(why) => Failure::usage(why),
                    _ => failed!("{}: the mount's process does not respond", point.display()),
                })
            }
            Self::Process(id) => Ok(Process::find(*id).and_then(|process| process.ask(request))?),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(why) => Self::usage(why),
            Error::NoProcess(_) | Error::NoMount(_) => Self::failed(error).try_this("bowwave status"),
            error => Self::failed(error),
        }
    }
}

/// A mount and its state.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// The URL, without secrets.
    pub(crate) url: String,
    /// The user that mounted it.
    pub(crate) user: u32,
    /// Its process.
    pub(crate) state: State,
}

/// State of a mount's process.
#[derive(Debug)]
pub(crate) enum State {
    /// It responded.
    Alive(Value, Peer),
    /// It serves files, but has no control channel for this user.
    Silent,
    /// It does not respond.
    Hung,
    /// It has ended and left the mount behind.
    Dead,
}

/// The mounts of this user; for root, of all users. Removes sockets of ended processes.
pub(crate) fn mounts() -> Result<Vec<Mount>, Failure> {
    let user = rustix::process::geteuid().as_raw();
    let table =
        bowwave_fuse::mounts().map_err(|error| failed!("cannot read the table of mounts: {error}"))?;
    let mut answers = Vec::new();
    for peer in peers().into_iter().filter(Peer::is_mount) {
        if let Ok(answer) = peer.ask(&Request::Status) {
            answers.push((answer, peer));
        }
    }
    let mine = table.into_iter().filter(|mount| user == 0 || mount.user == user);
    Ok(mine
        .map(|mount| {
            let says = |(answer, peer): &(Value, Peer)| {
                peer.user() == mount.user && answer["dir"].as_str().map(Path::new) == Some(&mount.point)
            };
            let state = match answers.iter().position(says) {
                Some(at) => {
                    let (answer, peer) = answers.swap_remove(at);
                    State::Alive(answer, peer)
                }
                None => probe(&mount.point),
            };
            Mount { point: mount.point, url: mount.source, user: mount.user, state }
        })
        .collect())
}

/// The mount at `dir`.
pub(crate) fn mount_at(dir: &Path) -> Result<Mount, Failure> {
    let shown = dir.display();
    let of = |error: io::Error| failed!("{shown}: {error}");
    let mut mounts = mounts()?;
    // The path as given, if it is a mount: a hung mount cannot be resolved.
    let mut point: PathBuf = std::path::absolute(dir).map_err(of)?.components().collect();
    if !mounts.iter().any(|mount| mount.point == point) {
        point = bowwave_fuse::absolute(dir).map_err(of)?;
    }
    // A later mount hides an earlier one.
    mounts.reverse();
    let found = mounts.into_iter().find(|mount| mount.point == point);
    found.ok_or_else(|| Error::NoMount(dir.to_owned()).into())
}

/// The control channel of the mount at `dir`, and its path as the kernel has it.
pub(crate) fn reach(dir: &Path) -> Result<(Peer, PathBuf), Failure> {
    let Mount { point, state, .. } = mount_at(dir)?;
    let shown = point.display();
    let why = match state {
        State::Alive(_, peer) => return Ok((peer, point)),
        State::Dead => "the mount's process has died",
        State::Hung => "the mount does not respond",
        State::Silent => "the mount has no control channel that this user can reach",
    };
    Err(failed!("{shown}: {why}").try_this(format_args!("bowwave status {shown}")))
}

/// State of a mount without a control channel.
fn probe(point: &Path) -> State {
    let (sender, found) = sync_channel(1);
    let path = point.to_owned();
    // A hung mount blocks the thread, which ends with this process.
    let thread = thread::Builder::new().spawn(move || {
        let metadata = fs::symlink_metadata(path);
        let _too_late = sender.send(metadata.map(drop));
    });
    if thread.is_err() {
        return State::Silent;
    }
    match found.recv_timeout(PATIENCE) {
        Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => State::Dead,
        Ok(_) => State::Silent,
        Err(_) => State::Hung,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_anything_else_a_directory() {
        assert_eq!("4711".parse(), Ok(Target::Process(4711)));
        for directory in ["./4711", "/mnt/4711", "data", "4711x", "99999999999"] {
            assert_eq!(directory.parse(), Ok(Target::Mount(directory.into())));
        }
    }
}
