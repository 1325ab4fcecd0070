//! The client side of the control channel.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;

use crate::directory::{Directory, Name};
use crate::protocol::{PATIENCE, RESPONSE_BYTES_MAX, Request, read_line};
use crate::{Error, Result};

/// A socket of a mount or a program.
#[derive(Clone, Debug)]
pub struct Peer {
    directory: Arc<Directory>,
    file: String,
    name: Name,
}

/// All sockets that this user may send requests to: its own, and for root those of all users.
pub fn peers() -> Vec<Peer> {
    let mut peers = Vec::new();
    for directory in Directory::all().into_iter().map(Arc::new) {
        for file in directory.sockets() {
            if let Some(name) = Name::parse(&file) {
                peers.push(Peer { directory: Arc::clone(&directory), file, name });
            }
        }
    }
    peers
}

impl Peer {
    /// Its user.
    pub fn user(&self) -> u32 {
        self.directory.user
    }

    /// The process id, by its name.
    pub fn process(&self) -> u32 {
        self.name.process
    }

    /// Whether it is a mount's.
    pub fn is_mount(&self) -> bool {
        self.name.is_mount
    }

    /// Sends a request. Removes the socket of an ended process.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason; [`Error::NoProcess`] if the process has ended,
    /// [`Error::Silent`] if it does not respond.
    pub fn ask(&self, request: &Request) -> Result<Value> {
        let asked = send(&self.directory, &self.file, request).and_then(|mut stream| response(&mut stream));
        match asked {
            Ok(answer) => answer.map_err(Error::Refused),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(Error::NoProcess(self.process()))
            }
            Err(_) => Err(Error::Silent(self.process())),
        }
    }
}

/// Sends a request to a socket.
fn send(directory: &Directory, name: &str, request: &Request) -> io::Result<BufReader<UnixStream>> {
    let mut stream = match connect(&directory.path(name), PATIENCE) {
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

/// Connects within `patience`. A blocking connect could wait without end: a stopped process does
/// not accept, and the queue of its listener fills up.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + patience;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Err(Errno::AGAIN) if Instant::now() < deadline => thread::sleep(CONNECT_PAUSE),
            connected => break connected?,
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The next response, or the refusal.
fn response(stream: &mut BufReader<UnixStream>) -> io::Result<std::result::Result<Value, String>> {
    let mut response: Value = serde_json::from_str(&read_line(stream, RESPONSE_BYTES_MAX)?)?;
    Ok(match response["error"].take() {
        Value::String(refusal) => Err(refusal),
        _ => Ok(response["ok"].take()),
    })
}

/// A connection to a mount's process, which reports lost data at the end of the mount.
#[derive(Debug)]
pub struct End {
    stream: BufReader<UnixStream>,
    process: i32,
}

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
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
    /// Connects to the process of the mount of `user` with this device number (major, minor).
    /// `None` if its control channel is unreachable for this user, or its version does not report
    /// its end.
    pub fn of(user: u32, device: (u32, u32)) -> Option<Self> {
        let request = Request::End { device };
        let mounts = peers().into_iter().filter(|peer| peer.is_mount() && peer.user() == user);
        // Processes of other mounts and older versions refuse.
        mounts.into_iter().find_map(|peer| Self::begin(&peer.directory, &peer.file, &request).ok())
    }

    fn begin(directory: &Directory, name: &str, request: &Request) -> io::Result<Self> {
        let mut stream = send(directory, name, request)?;
        let process = rustix::net::sockopt::socket_peercred(stream.get_ref())?.pid.as_raw_nonzero().get();
        response(&mut stream)?.map_err(io::Error::other)?;
        Ok(Self { stream, process })
    }

    /// The process id.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Waits for the end of the process while `keep_waiting` returns true; it is called several
    /// times per second.
    pub fn wait(mut self, mut keep_waiting: impl FnMut() -> bool) -> Ended {
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

/// Time between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `bowwave status` waited for a program that was stopped, once others had filled
    /// the queue of its socket.
    #[test]
    fn a_listener_whose_queue_is_full_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("bowwave-queue-{}", std::process::id()));
        let flags = SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        let address = SocketAddrUnix::new(&path).expect("a short path");
        rustix::net::bind(&listener, &address).expect("a free name");
        rustix::net::listen(&listener, 0).expect("it listens");
        let first = connect(&path, Duration::from_secs(2));
        let second = connect(&path, Duration::from_millis(20));
        std::fs::remove_file(&path).expect("it was bound");
        assert!(first.is_ok(), "{first:?}");
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
