//! Requests and responses: one line of JSON each.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A request to a mount or a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
pub enum Request {
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

/// A setting of a mount or a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// Its current value.
    pub value: String,
    /// Its value without options.
    pub default: String,
    /// Whether it can be changed now.
    pub live: bool,
    /// Its description.
    pub meaning: String,
}

/// Reads a line of at most `bytes_max` bytes within `PATIENCE`, however slowly it arrives.
pub(crate) fn read_line(stream: &mut BufReader<UnixStream>, bytes_max: usize) -> io::Result<String> {
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
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest response: counters, and 32 errors with reasons of 1 KiB.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// How long either side waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(2);
