//! The client of `status` and `ctl`: finds mounts and queries their processes.

use std::fs;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::io::Errno;
use serde_json::Value;

use super::place::{Place, own_user};
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
    for place in Place::all() {
        for name in place.sockets() {
            if let Some(answer) = ask_at(&place, &name, &Request::Status).ok().and_then(Result::ok) {
                answers.push((place.user, answer));
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
                None => look(&mount.point),
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
    for place in Place::all().into_iter().filter(|place| place.user == mount.user) {
        match ask_at(&place, &name, request) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(refusal)) => return Err(Failure::usage(refusal)),
            Err(_) => {}
        }
    }
    Err(failed!("{shown}: the mount's process does not respond"))
}

/// Sends a request to a socket; returns the response or the refusal.
fn ask_at(place: &Place, name: &str, request: &Request) -> io::Result<Result<Value, String>> {
    response(&mut send(place, name, request)?)
}

/// Sends a request to a socket.
pub(super) fn send(place: &Place, name: &str, request: &Request) -> io::Result<BufReader<UnixStream>> {
    let mut stream = match UnixStream::connect(place.path(name)) {
        // Its process ended without removing it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            place.remove(name);
            return Err(error);
        }
        connected => connected?,
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid.as_raw() != place.user {
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
fn look(point: &Path) -> State {
    let (tell, told) = sync_channel(1);
    let path = point.to_owned();
    // A hung mount blocks the thread, which ends with this process.
    let looking = thread::Builder::new().spawn(move || {
        let looked = fs::symlink_metadata(path);
        let _too_late = tell.send(looked.map(drop));
    });
    if looking.is_err() {
        return State::Silent;
    }
    match told.recv_timeout(PATIENCE) {
        Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => State::Dead,
        Ok(_) => State::Silent,
        Err(_) => State::Hung,
    }
}
