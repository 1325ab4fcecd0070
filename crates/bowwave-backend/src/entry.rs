//! What stores say about their entries and about themselves.

use std::ffi::{OsStr, OsString};
use std::time::{Duration, SystemTime};

use crate::Writes;

/// One entry of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Last part of the path; empty for the root.
    pub name: OsString,
    /// File, folder, link, or one of the special files that only file systems have.
    pub kind: EntryKind,
    /// Size in bytes; 0 for folders and special files.
    pub size: u64,
    /// Time of the last modification, where the store knows it.
    pub modified: Option<SystemTime>,
    /// Unix permission bits with set-user-id, set-group-id and sticky, where the store has them.
    pub mode: Option<u32>,
    /// User that owns it, where a store that is no file system knows.
    pub uid: Option<u32>,
    /// Group that owns it, where a store that is no file system knows.
    pub gid: Option<u32>,
    /// When the store was given this version, where `modified` is another time, which a program has set.
    pub uploaded: Option<SystemTime>,
    /// Whether the store may know more of it than a listing tells: mode, owner and time. [`Backend::stat`](crate::Backend::stat)
    /// tells all.
    pub partial: bool,
    /// Identity, where the store tells it in a listing.
    pub identity: Option<Identity>,
    /// The rest of what `stat` shows, where the store is a file system.
    pub unix: Option<Unix>,
}

impl Entry {
    /// An entry of which nothing but name and kind is known.
    #[must_use]
    pub fn new(name: impl Into<OsString>, kind: EntryKind) -> Self {
        Self {
            name: name.into(),
            kind,
            size: 0,
            modified: None,
            mode: None,
            uid: None,
            gid: None,
            uploaded: None,
            partial: false,
            identity: None,
            unix: None,
        }
    }

    /// A folder of which nothing but the name is known.
    pub(crate) fn directory(name: &OsStr) -> Self {
        Self::new(name, EntryKind::Directory)
    }
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An object with bytes.
    File,
    /// A folder (of object stores: a common prefix).
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl EntryKind {
    /// Whether entries of this kind exist by name only: they are shown and can be removed, but have no bytes to open.
    #[must_use]
    pub fn is_special(self) -> bool {
        matches!(self, Self::Fifo | Self::Socket | Self::CharDevice | Self::BlockDevice)
    }
}

/// What only file systems know of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unix {
    /// Device of the file system; with `inode` it names the file, whatever its names are.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Names that the file has (hard links).
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the device that a device file stands for; 0 for all else.
    pub special_device: u64,
    /// Time of the last access.
    pub accessed: SystemTime,
    /// Time of the last change of bytes or attributes.
    pub changed: SystemTime,
    /// Room taken on the device, in blocks of 512 bytes.
    pub blocks: u64,
}

/// What must stay equal for two reads to be of the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// Entity tag, as the server sent it, quotes and weakness mark included.
    pub etag: Option<String>,
    /// Last modification in nanoseconds since the Unix epoch.
    pub modified_ns: Option<i128>,
    /// Device of the file system, for local files.
    pub device: Option<u64>,
    /// Inode number, for local files.
    pub inode: Option<u64>,
    /// Size in bytes.
    pub size: u64,
}

impl Identity {
    /// What an object store or web server does not tell, and which versions cannot be told apart then, as a phrase after
    /// "gives"; `None` for an object with a strong entity tag. Of no meaning for local files.
    #[must_use]
    pub fn weakness(&self) -> Option<&'static str> {
        if self.etag.as_ref().is_some_and(|tag| !tag.starts_with("W/")) {
            return None;
        }
        Some(match self.modified_ns {
            Some(_) => "no strong ETag: versions of one size that replace each other within a second may mix",
            None => "neither an ETag nor a time: versions of one size may mix",
        })
    }
}

/// How a store wants to be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Short name for reports: `file`, `http`, `s3`, `memory`, `emulate:s3` …
    pub kind: String,
    /// Request size in bytes beyond which larger requests no longer pay (about ten times latency × bandwidth
    /// of one connection). A power of two.
    pub request_bytes_best: u64,
    /// Most requests that the store serves at once; the engine keeps no more in flight.
    pub slots: u32,
    /// Alignment in bytes that offsets and buffers must have (1 where anything goes).
    pub alignment: u32,
    /// Typical time to the first byte, for choosing between few large and many small requests.
    pub latency: Duration,
    /// Longest time that the engine waits for a read, all attempts together; `None` for as long as it takes, as the kernel does
    /// with disks.
    pub deadline: Option<Duration>,
    /// Whether one head does all the work, so that places count: neighbouring bytes cost little, far ones a seek.
    pub seeks: bool,
    /// Whether listings tell sizes and times. Where they do not, entries have the size 0 and `stat` tells both.
    pub lists_sizes: bool,
    /// What can be written.
    pub writes: Writes,
    /// Whether a store of [`Writes::Whole`] keeps modes, owners and times of files that programs set.
    pub attributes: bool,
    /// For [`Writes::Whole`] the size of a part in bytes; for [`Writes::Anywhere`] the write size in bytes beyond which
    /// larger ones no longer pay. A power of two; 0 where nothing can be written.
    pub write_part_bytes: u64,
}

impl Profile {
    /// A store that is only read, at its best with requests of 1 MiB, and has nothing else to say: for others to start
    /// from.
    #[must_use]
    pub fn read_only(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            request_bytes_best: 1 << 20,
            slots: 64,
            alignment: 1,
            latency: Duration::ZERO,
            deadline: None,
            seeks: false,
            lists_sizes: true,
            writes: Writes::No,
            attributes: false,
            write_part_bytes: 0,
        }
    }
}

/// What was requested of a store over the network besides the bytes that the engine reads, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkStats {
    /// Requests, retries included.
    pub requests: u64,
    /// Calls (a lookup, a page of a listing, a part of an upload, ...) that were tried again.
    pub retries: u64,
    /// Of the failed attempts, those for silence, a deadline or too low a throughput.
    pub timeouts: u64,
    /// Of the failed attempts, those that the store refused because it is overloaded (429, 503).
    pub throttled: u64,
    /// Calls that failed after all attempts.
    pub gave_up: u64,
    /// Responses whose bytes did not match the store's checksum.
    pub corrupt: u64,
    /// Responses whose bytes were verified by the store's checksum.
    pub verified: u64,
}
