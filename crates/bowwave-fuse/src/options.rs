//! How to mount.

use std::time::Duration;

/// What the kernel's page cache does with what is read through the mount.
///
/// Why `On` is the default, and what the choice costs, with figures: ADR 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelCache {
    /// The kernel keeps what was read, and drops it when the object has changed. Small reads that hit cost no
    /// request. bowwave sees misses in the kernel's cache only.
    #[default]
    On,
    /// Every `read` comes to bowwave with the offset and length that the program gave, and nothing is kept twice.
    /// Small reads cost a request each; memory maps fault a page at a time.
    Off,
}

/// What becomes of modes, owners and times that programs set on files of stores of whole objects. File systems keep
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Metadata {
    /// Setting them succeeds and changes nothing.
    Ignore,
    /// The store keeps them, where it can ([`Profile::attributes`](bowwave_engine::backend::Profile::attributes)).
    Store,
    /// Setting them fails (`EOPNOTSUPP`), unless they are so already.
    #[default]
    Refuse,
}

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the kernel's page cache does. Default: [`KernelCache::On`].
    pub kernel_cache: KernelCache,
    /// Largest window of the kernel's own readahead in bytes, with [`KernelCache::On`]; at most 1 MiB. Larger
    /// than the kernel's usual 128 KiB needs root; without, the kernel's limit stays. Default: 256 KiB.
    pub kernel_readahead_bytes: u32,
    /// How long the kernel may trust names and attributes, absent names included. Default: 1 s.
    pub ttl: Duration,
    /// Requests served at once; the same number again may wait. From 1 on. Default: 64.
    pub requests_max: usize,
    /// Whether the listener hears of the first file without a strong entity tag: for stores behind a network. Default: no.
    pub caution: bool,
    /// Whether listings of the tree tell sizes and times, so that the kernel may use them. Default: yes.
    pub lists_sizes: bool,
    /// Whether other users may use the mount (for a mount by a user, `/etc/fuse.conf` must allow it). Default: no.
    pub allow_other: bool,
    /// Owner to show for everything. Default: the store's, or where it has none the mounting user.
    pub uid: Option<u32>,
    /// Group to show for everything. Default: the store's, or where it has none the mounting user's.
    pub gid: Option<u32>,
    /// Permission bits of files whose store has none. Default: 0644.
    pub file_mode: Option<u32>,
    /// Permission bits of directories whose store has none. Default: 0755.
    pub dir_mode: Option<u32>,
    /// What becomes of modes, owners and times that programs set. Default: [`Metadata::Refuse`].
    pub metadata: Metadata,
    /// Refuse every change. Default: no; a store that cannot be written is read-only all the same.
    pub read_only: bool,
    /// How long the end of the mount may wait for the store to take what was written. Default: 5 minutes.
    pub write_out_timeout: Duration,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            kernel_cache: KernelCache::On,
            kernel_readahead_bytes: KERNEL_READAHEAD_BYTES,
            ttl: Duration::from_secs(1),
            requests_max: 64,
            caution: false,
            lists_sizes: true,
            allow_other: false,
            uid: None,
            gid: None,
            file_mode: None,
            dir_mode: None,
            metadata: Metadata::Refuse,
            read_only: false,
            write_out_timeout: Duration::from_secs(300),
        }
    }
}

impl MountOptions {
    /// The kernel's readahead window to ask for, in bytes. It may grant less:
    /// [`Mount::kernel_readahead_bytes`](crate::Mount::kernel_readahead_bytes).
    #[must_use]
    pub fn readahead_bytes(&self) -> u32 {
        match self.kernel_cache {
            KernelCache::On => self.kernel_readahead_bytes.min(REQUEST_BYTES_MAX),
            KernelCache::Off => 0,
        }
    }
}

/// Above 128 KiB, so that an unaligned 128 KiB read (33 pages) is one request and not an oversize read that pulls
/// in three times its length; small enough that a fault in a memory map does not read far around itself.
const KERNEL_READAHEAD_BYTES: u32 = 256 << 10;

/// Largest request that the kernel sends: its limit without a sysctl (`fs.fuse.max_pages_limit`, 256 pages).
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;
