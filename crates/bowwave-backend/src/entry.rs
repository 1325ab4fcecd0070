//! Entries of stores, and profiles of stores.

use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant, SystemTime};

use crate::Writes;

/// One entry of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Last part of the path; empty for the root.
    pub name: OsString,
    /// File, directory, link, or a special file of a file system.
    pub kind: EntryKind,
    /// Size in bytes; 0 for directories and special files.
    pub size: u64,
    /// Time of the last modification, where the store knows it.
    pub modified: Option<SystemTime>,
    /// Unix permission bits with set-user-id, set-group-id and sticky, where the store has them.
    pub mode: Option<u32>,
    /// Owner, in stores that are no file systems, if known.
    pub uid: Option<u32>,
    /// Group, in stores that are no file systems, if known.
    pub gid: Option<u32>,
    /// When the store received this version, if a program has set another time in `modified`.
    pub uploaded: Option<SystemTime>,
    /// Whether the store may know more than the listing: mode, owner and time.
    /// [`Namespace::stat`](crate::Namespace::stat) returns all.
    pub partial: bool,
    /// Identity, if the listing has it.
    pub identity: Option<Identity>,
    /// Further attributes, if the store is a file system.
    pub unix: Option<Unix>,
    /// Until when it may be used without another request, if the store keeps names
    /// ([`Backend::keep_names`](crate::Backend::keep_names)).
    pub validity: Validity,
}

/// When an [`Entry`] expires. Entries that differ only in this are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validity(pub Option<Instant>);

impl PartialEq for Validity {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Validity {}

/// Objects of at most this many bytes are opened by their version in a listing, and read whole: the
/// response has the checksum and the attributes. It is the kernel's readahead window. Larger:
/// programs that read a few bytes of many files wait for all of each.
pub const SMALL_BYTES: u64 = 256 << 10;

/// How a store keeps names and versions that it knows from listings and lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepNames {
    /// How long names and attributes are used without another request. Zero: each is requested
    /// anew.
    pub ttl: Duration,
    /// Whether objects are opened by their known version, so that only the first read compares it
    /// with the store's.
    pub opens: bool,
    /// Whether to assume that objects of a listing have no stored attributes, once several requests
    /// have shown objects without any, and as long as none has shown some.
    pub assumes_plain: bool,
}

impl Entry {
    /// An entry with only a name and a kind.
    pub fn new(name: impl Into<OsString>, kind: EntryKind) -> Self {
        Self { name: name.into(), kind, ..Self::default() }
    }

    /// A directory with only a name.
    pub(crate) fn directory(name: &OsStr) -> Self {
        Self::new(name, EntryKind::Directory)
    }
}

/// Kind of an [`Entry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An object with bytes.
    #[default]
    File,
    /// A directory (in object stores: a common prefix).
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

/// Attributes that only file systems have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unix {
    /// Device of the file system. With `inode` it identifies the file, whatever its names are.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of names (hard links).
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file; 0 otherwise.
    pub special_device: u64,
    /// Time of the last access.
    pub accessed: SystemTime,
    /// Time of the last change of bytes or attributes.
    pub changed: SystemTime,
    /// Allocated space, in blocks of 512 bytes.
    pub blocks: u64,
}

/// Identity of a version: equal for two reads of the same bytes.
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
    /// The missing validators of an object store or web server, and which versions cannot be
    /// distinguished then, as a phrase after "gives"; `None` for an object with a strong entity
    /// tag. Not for local files.
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

/// How a store should be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Short name for reports: `file`, `http`, `s3`, `memory`, `emulate:s3` …
    pub kind: String,
    /// Request size in bytes beyond which larger requests are no faster (about ten times latency ×
    /// bandwidth of one connection). A power of two.
    pub request_bytes_best: u64,
    /// Most requests that the store serves at once; the engine's limit of requests in flight.
    pub slots: u32,
    /// Alignment of offsets and buffers in bytes (1 if any).
    pub alignment: u32,
    /// Typical time to the first byte (TTFB), to choose between few large and many small requests.
    pub latency: Duration,
    /// Longest wait of the engine for a read, over all attempts; `None` for unlimited, as the
    /// kernel waits for disks.
    pub deadline: Option<Duration>,
    /// Whether the device has a head, so that distances matter: adjacent bytes cost little, distant
    /// ones a seek.
    pub seeks: bool,
    /// Whether listings include sizes and times. Otherwise entries have size 0, and `stat` returns
    /// both.
    pub lists_sizes: bool,
    /// Supported writes.
    pub writes: Writes,
    /// Whether a store of [`Writes::Whole`] stores modes, owners and times that programs set.
    pub attributes: bool,
    /// For [`Writes::Whole`], the size of a part in bytes; for [`Writes::Anywhere`], the write size
    /// in bytes beyond which larger writes are no faster. A power of two; 0 for read-only stores.
    pub write_part_bytes: u64,
}

impl Profile {
    /// A read-only store with a best request size of 1 MiB and defaults otherwise, to derive others
    /// from.
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

/// Network requests of a store since it was opened, except the engine's reads of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkStats {
    /// Requests, retries included.
    pub requests: u64,
    /// Calls (a lookup, a page of a listing, a part of an upload, ...) that were retried.
    pub retries: u64,
    /// Failed attempts that timed out: silence, a deadline or too low a throughput.
    pub timeouts: u64,
    /// Failed attempts that the store rejected because it is overloaded (429, 503).
    pub throttled: u64,
    /// Calls that failed after all attempts.
    pub gave_up: u64,
    /// Responses whose bytes did not match the store's checksum.
    pub corrupt: u64,
    /// Responses whose bytes were verified by the store's checksum.
    pub verified: u64,
}
