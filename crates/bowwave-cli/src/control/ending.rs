//! The client of `umount`: how a mount ended.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bowwave_fuse::Mounted;

use super::client::{response, send};
use super::place::Place;
use super::{RESPONSE_BYTES_MAX, Request, read_line};

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
        for place in Place::all().into_iter().filter(|place| place.user == mount.user) {
            for name in place.sockets() {
                // Processes of other mounts and older versions refuse.
                if let Ok(end) = Self::begin(&place, &name, &request) {
                    return Some(end);
                }
            }
        }
        None
    }

    fn begin(place: &Place, name: &str, request: &Request) -> io::Result<Self> {
        let mut stream = send(place, name, request)?;
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
