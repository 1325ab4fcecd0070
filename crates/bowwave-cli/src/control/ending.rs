//! The side of `umount`: how a mount has ended.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bowwave_fuse::Mounted;

use super::client::{response, send};
use super::place::Place;
use super::{RESPONSE_BYTES_MAX, Request, read_line};

/// A connection to the process of a mount, which reports at the end of the mount what was lost.
#[derive(Debug)]
pub(crate) struct End {
    stream: BufReader<UnixStream>,
    process: i32,
}

/// How a mount has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All that programs wrote is in the store.
    Stored,
    /// The process has failed, with this message. It names what was lost.
    Failed(String),
    /// The process has ended without a report.
    Unknown,
    /// The process had not ended when the caller no longer waited.
    Running,
}

impl End {
    /// Connects to the process of `mount`. `None` if it has no control channel that this user can reach, or if its
    /// version does not report its end.
    pub(crate) fn of(mount: &Mounted) -> Option<Self> {
        let request = Request::End { device: mount.device };
        for place in Place::all().into_iter().filter(|place| place.user == mount.user) {
            for name in place.sockets() {
                // The processes of other mounts, and those of older versions, refuse.
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

    /// The number of the process.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// Waits for the end of the process, for as long as `keep_waiting`, which is called several times a second, returns
    /// true.
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
        // The connection lasts as long as the process, which frees its memory and files after the report.
        let _closed = read_line(&mut self.stream, RESPONSE_BYTES_MAX);
        ended
    }
}

/// Time between two calls of `keep_waiting`.
const TICK: Duration = Duration::from_millis(100);
