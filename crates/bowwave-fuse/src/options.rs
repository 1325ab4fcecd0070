//! Options of a mount.

use std::time::Duration;

use bowwave_engine::backend::KeepNames;

/// How the kernel's page cache is used for reads.
///
/// ADR 3 explains why `On` is the default, and the costs, with figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelCache {
    /// The kernel caches pages and drops them when the object has changed. Small reads that hit its
    /// cache send no request; bowwave sees only its misses.
    #[default]
    On,
    /// Every `read` reaches bowwave with the program's offset and length, and no page is cached
    /// twice. Each small read costs a request; memory maps fault one page at a time.
    Off,
}

/// How modes, owners and times that programs set on objects are handled. File systems store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Metadata {
    /// Setting them succeeds without effect.
    Ignore,
    /// The store keeps them, if it supports that
    /// ([`Profile::attributes`](bowwave_engine::backend::Profile::attributes)).
    Store,
    /// Setting them fails (`EOPNOTSUPP`), unless they already have the value.
    #[default]
    Refuse,
}

/// How old the names, attributes and versions that programs see may be, on a store behind a
/// network. On a file system, each open compares the file's version in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Each lookup and each open sends a request to the store. The kernel keeps no names and
    /// attributes.
    Strict,
    /// Each open sends a request to the store (close-to-open). Names and attributes are kept for
    /// [`MountOptions::ttl`].
    Open,
    /// Names, attributes and versions are kept for [`MountOptions::ttl`], and a listing is as good
    /// as a lookup. An open within that time sends no HEAD: the first GET compares the version.
    #[default]
    Ttl,
}

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Use of the kernel's page cache. Default: [`KernelCache::On`].
    pub kernel_cache: KernelCache,
    /// Maximum window of the kernel's own readahead in bytes, with [`KernelCache::On`]; at most 1
    /// MiB. More than the kernel's usual 128 KiB needs root; otherwise the kernel's limit applies.
    /// Default: 256 KiB.
    pub kernel_readahead_bytes: u32,
    /// How long names and attributes may be cached, including negative lookups. Default: 1 s.
    pub ttl: Duration,
    /// What may be used within this time. Default: [`Consistency::Ttl`].
    pub consistency: Consistency,
    /// Requests served at once. The kernel sends at most twice as many (`max_background`). At least
    /// 1. Default: 64.
    pub requests_max: usize,
    /// Report the first file whose versions cannot be distinguished, once; for stores behind a
    /// network. Default: no.
    pub warns_unversioned: bool,
    /// Tell the listener of each read when it begins and when it has ended, and of readahead by a
    /// file's own table. Default: no.
    pub tells_reads: bool,
    /// Whether directory listings have sizes and times that the kernel may use. Default: yes.
    pub lists_sizes: bool,
    /// Whether other users may use the mount. For a mount by a user, `/etc/fuse.conf` must allow
    /// it. Default: no.
    pub allow_other: bool,
    /// Owner of entries that have no stored owner. Also replaces a file system's owners, if this or
    /// `gid` is given. Default: the file system's owner, else the mounting user.
    pub uid: Option<u32>,
    /// Group of entries, likewise.
    pub gid: Option<u32>,
    /// Permission bits of files whose store has none. Default: 0644.
    pub file_mode: Option<u32>,
    /// Permission bits of directories whose store has none. Default: 0755.
    pub dir_mode: Option<u32>,
    /// How modes, owners and times that programs set are handled. Default: [`Metadata::Refuse`].
    pub metadata: Metadata,
    /// With [`Metadata::Store`] and [`Consistency::Ttl`], on a private mount: listings of a bucket
    /// are taken to have all attributes, once eight objects had none stored and as long as no
    /// object shows any. A `stat` of an object then sends no request. Default: no.
    pub assumes_plain: bool,
    /// Reject every change. Default: no. A mount of a store that cannot be written is always
    /// read-only.
    pub read_only: bool,
    /// How long the end of the mount may wait for the store to accept dirty data. Default: 5
    /// minutes.
    pub write_out_timeout: Duration,
    /// Most events in the journal of readahead across files
    /// ([`Mount::sibling_journal`](crate::Mount::sibling_journal)); 0 for no journal. Default: 0.
    pub journal_events: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            kernel_cache: KernelCache::On,
            kernel_readahead_bytes: KERNEL_READAHEAD_BYTES,
            ttl: Duration::from_secs(1),
            consistency: Consistency::Ttl,
            requests_max: 64,
            warns_unversioned: false,
            tells_reads: false,
            lists_sizes: true,
            allow_other: false,
            uid: None,
            gid: None,
            file_mode: None,
            dir_mode: None,
            metadata: Metadata::Refuse,
            assumes_plain: false,
            read_only: false,
            write_out_timeout: Duration::from_secs(300),
            journal_events: 0,
        }
    }
}

impl MountOptions {
    /// How the store keeps names for this mount.
    pub(crate) fn keep_names(&self) -> KeepNames {
        match self.consistency {
            Consistency::Strict => KeepNames::default(),
            Consistency::Open => KeepNames { ttl: self.ttl, opens: false, assumes_plain: false },
            Consistency::Ttl => {
                // Permissions of others must be known.
                let assumes_plain = self.assumes_plain && !self.allow_other;
                KeepNames { ttl: self.ttl, opens: true, assumes_plain }
            }
        }
    }

    /// The kernel readahead window to request, in bytes. The kernel may grant less:
    /// [`Mount::kernel_readahead_bytes`](crate::Mount::kernel_readahead_bytes).
    pub fn readahead_bytes(&self) -> u32 {
        match self.kernel_cache {
            KernelCache::On => self.kernel_readahead_bytes.min(REQUEST_BYTES_MAX),
            KernelCache::Off => 0,
        }
    }
}

/// More than 128 KiB, so that an unaligned 128 KiB read (33 pages) is one request. A smaller window
/// makes the kernel treat such a read as oversize, and read three times its length. A larger one
/// makes faults in maps read far around.
const KERNEL_READAHEAD_BYTES: u32 = 256 << 10;

/// Maximum request size in bytes: the kernel's default limit (`fs.fuse.max_pages_limit`, 256
/// pages).
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;
