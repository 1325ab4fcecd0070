//! The control channel: a socket per mount, used by `bowwave status`, `ctl`, `plan` and `umount`.
//!
//! ```text
//! bowwave mount …   ──serves──►  $XDG_RUNTIME_DIR/bowwave/mount-PID.sock   ◄─requests─  bowwave status, ctl, umount
//! server.rs                        directory.rs: 0700, 0600                          client.rs
//! ```
//!
//! One request per connection, one line of JSON in each direction. [`Request::End`] gets a second
//! line at the end of the mount. Both sides check the other's user.

mod client;
mod directory;
pub(crate) mod persisted;
mod server;

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub(crate) use client::{End, Ended, Mount, State, ask, mount_at, mounts};
pub(crate) use server::{Server, Subject};

/// The directory of this user's sockets, created if needed.
pub(crate) fn directory() -> io::Result<String> {
    directory::Directory::own().map(|directory| directory.path.display().to_string())
}

/// A request to a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
pub(crate) enum Request {
    /// Its store, options and counters.
    Status,
    /// All settings.
    List,
    /// One setting.
    Get {
        /// Its key.
        key: String,
    },
    /// Changes a setting.
    Set {
        /// Its key.
        key: String,
        /// The new value.
        value: String,
    },
    /// Announces files of the mount.
    Plan {
        /// Their paths below the mount point, in the order of their opens.
        files: Vec<String>,
        /// They follow the list before instead of taking its place.
        append: bool,
    },
    /// Keeps the connection until the mount has ended, and then reports lost data.
    End {
        /// Device number (major, minor) of the mount the client means.
        device: (u32, u32),
    },
}

/// A setting of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// Its key.
    pub(crate) key: String,
    /// Its current value.
    pub(crate) value: String,
    /// Its value in a mount without options.
    pub(crate) default: String,
    /// Whether it can be changed while mounted.
    pub(crate) live: bool,
    /// Its description.
    pub(crate) meaning: String,
}

/// Reads a line of at most `bytes_max` bytes within `PATIENCE`, however slowly it arrives.
fn read_line(stream: &mut BufReader<UnixStream>, bytes_max: usize) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.get_ref().set_read_timeout(Some(left))?;
        let read = match stream.fill_buf() {
            Ok([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // Bytes after the newline belong to the next line.
        let count = read.iter().position(|&byte| byte == b'\n').map_or(read.len(), |end| end + 1);
        line.extend_from_slice(&read[..count]);
        stream.consume(count);
        if line.len() > bytes_max {
            return Err(io::Error::other(format!("more than {bytes_max} bytes")));
        }
    }
    String::from_utf8(line).map_err(io::Error::other)
}

/// Longest request.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest response: counters, and 32 errors with reasons of 1 KiB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
