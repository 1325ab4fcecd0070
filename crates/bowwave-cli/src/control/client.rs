//! The client of `status` and `ctl`: finds mounts and queries their processes.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use std::{fs, thread};

use bowwave_fuse::Mounted;
use rustix::io::Errno;
use serde_json::Value;

use super::directory::{Directory, own_user};
use super::{PATIENCE, RESPONSE_BYTES_MAX, Request, read_line};
use crate::Failure;

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
    Alive(Value),
    /// It serves files, but has no control channel for this user.
    Silent,
    /// It does not respond.
    Hung,
    /// It has ended and left the mount behind.
    Dead,
}

/// The mounts of this user; for root, of all users. Removes sockets of ended processes.
pub(crate) fn mounts() -> Result<Vec<Mount>, Failure> {
    let user = own_user();
    let table =
        bowwave_fuse::mounts().map_err(|error| failed!("cannot read the table of mounts: {error}"))?;
    let mut answers = Vec::new();
    for directory in Directory::all() {
        for name in directory.sockets() {
            if let Some(answer) = ask_at(&directory, &name, &Request::Status).ok().and_then(Result::ok) {
                answers.push((directory.user, answer));
            }
        }
    }
    let mine = table.into_iter().filter(|mount| user == 0 || mount.user == user);
    Ok(mine
        .map(|mount| {
            let says = |(of, answer): &(u32, Value)| {
                *of == mount.user && answer["dir"].as_str().map(Path::new) == Some(&mount.point)
            };
            let state = match answers.iter().position(says) {
                Some(at) => State::Alive(answers.swap_remove(at).1),
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
    mounts.into_iter().find(|mount| mount.point == point).ok_or_else(|| {
        failed!("{shown}: no mount of bowwave that this user may ask is there").try_this("bowwave status")
    })
}

/// Sends a request to the process of the mount at `dir`.
pub(crate) fn ask(dir: &Path, request: &Request) -> Result<Value, Failure> {
    let mount = mount_at(dir)?;
    let shown = mount.point.display();
    let State::Alive(status) = mount.state else {
        let why = match mount.state {
            State::Dead => "the mount's process has died",
            State::Hung => "the mount does not respond",
            _ => "the mount has no control channel that this user can reach",
        };
        return Err(failed!("{shown}: {why}").try_this(format_args!("bowwave status {shown}")));
    };
    let name = format!("mount-{}.sock", status["pid"]);
    for directory in Directory::all().into_iter().filter(|directory| directory.user == mount.user) {
        match ask_at(&directory, &name, request) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(refusal)) => return Err(Failure::usage(refusal)),
            Err(_) => {}
        }
    }
    Err(failed!("{shown}: the mount's process does not respond"))
}

/// Sends a request to a socket; returns the response or the refusal.
fn ask_at(directory: &Directory, name: &str, request: &Request) -> io::Result<Result<Value, String>> {
    response(&mut send(directory, name, request)?)
}

/// Sends a request to a socket.
pub(super) fn send(
    directory: &Directory,
    name: &str,
    request: &Request,
) -> io::Result<BufReader<UnixStream>> {
    let mut stream = match UnixStream::connect(directory.path(name)) {
        // Its process ended without removing it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            directory.remove(name);
            return Err(error);
        }
        connected => connected?,
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid.as_raw() != directory.user {
        return Err(io::Error::other("another user listens there"));
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(BufReader::new(stream))
}

/// The next response, or the refusal.
pub(super) fn response(stream: &mut BufReader<UnixStream>) -> io::Result<Result<Value, String>> {
    let mut response: Value = serde_json::from_str(&read_line(stream, RESPONSE_BYTES_MAX)?)?;
    Ok(match response["error"].take() {
        Value::String(refusal) => Err(refusal),
        _ => Ok(response["ok"].take()),
    })
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

/// A connection to a mount's process, which reports lost data at the end of the mount.
#[derive(Debug)]
pub(crate) struct End {
    stream: BufReader<UnixStream>,
    process: i32,
}

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All written data is in the store.
    Stored,
    /// The process failed with this message, which names the lost data.
    Failed(String),
    /// The process has ended without a report.
    Unknown,
    /// The process was still running when the caller stopped waiting.
    Running,
}

impl End {
    /// Connects to the process of `mount`. `None` if its control channel is unreachable for this
    /// user, or its version does not report its end.
    pub(crate) fn of(mount: &Mounted) -> Option<Self> {
        let request = Request::End { device: mount.device };
        for directory in Directory::all().into_iter().filter(|directory| directory.user == mount.user) {
            for name in directory.sockets() {
                // Processes of other mounts and older versions refuse.
                if let Ok(end) = Self::begin(&directory, &name, &request) {
                    return Some(end);
                }
            }
        }
        None
    }

    fn begin(directory: &Directory, name: &str, request: &Request) -> io::Result<Self> {
        let mut stream = send(directory, name, request)?;
        let process = rustix::net::sockopt::socket_peercred(stream.get_ref())?.pid.as_raw_nonzero().get();
        response(&mut stream)?.map_err(io::Error::other)?;
        Ok(Self { stream, process })
    }

    /// The process id.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// Waits for the end of the process while `keep_waiting` returns true; it is called several
    /// times per second.
    pub(crate) fn wait(mut self, mut keep_waiting: impl FnMut() -> bool) -> Ended {
        if self.stream.get_ref().set_read_timeout(Some(TICK)).is_err() {
            return Ended::Unknown;
        }
        while let Err(error) = self.stream.fill_buf() {
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                _ => return Ended::Unknown,
            }
            if !keep_waiting() {
                return Ended::Running;
            }
        }
        let ended = match response(&mut self.stream) {
            Ok(Ok(_)) => Ended::Stored,
            Ok(Err(message)) => Ended::Failed(message),
            Err(_) => return Ended::Unknown,
        };
        // The connection lasts as long as the process, which frees its memory and files after the
        // report.
        let _closed = read_line(&mut self.stream, RESPONSE_BYTES_MAX);
        ended
    }
}

/// Time between two calls of `keep_waiting`.
const TICK: Duration = Duration::from_millis(100);
