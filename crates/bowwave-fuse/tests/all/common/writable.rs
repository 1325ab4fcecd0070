//! A directory of this machine, mounted for writing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowwave_fuse::{Mount, MountOptions};

use super::{Dir, skipped, store};

/// The mount, its source directory, and a plain directory on the same file system for comparison.
#[derive(Debug)]
pub(crate) struct Writable {
    _mount: Mount,
    dir: Dir,
    source: Directory,
    plain: Directory,
}

/// A temporary directory, removed recursively.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let dir = Dir::anywhere(name);
        let path = dir.path().to_owned();
        std::mem::forget(dir);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing is ever mounted below it.
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

impl Writable {
    /// Mounts a new directory in several ways, where mounts are possible.
    pub(crate) fn each(name: &str, test: impl Fn(&Self)) {
        for options in
            [MountOptions::default(), MountOptions { ttl: Duration::ZERO, ..MountOptions::default() }]
        {
            let Some(store) = Self::new(name, options) else { return };
            test(&store);
        }
        // With a tiny cache, so that pages are written out and read again.
        let Some(store) = Self::with_cache(name, MountOptions::default(), 1 << 20) else { return };
        test(&store);
    }

    /// Through a large cache.
    pub(crate) fn new(name: &str, options: MountOptions) -> Option<Self> {
        Self::with_cache(name, options, 64 << 20)
    }

    /// Through a cache of `cache_bytes`.
    pub(crate) fn with_cache(name: &str, options: MountOptions, cache_bytes: u64) -> Option<Self> {
        let (source, plain, dir) = (Directory::new(name), Directory::new(name), Dir::new(name)?);
        let store = store(source.path().to_str().expect("ASCII"), cache_bytes);
        let mount = Mount::new(store, dir.path(), options).expect("mounts can be made here");
        Some(Self { _mount: mount, dir, source, plain })
    }

    /// A path in the mount.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The same path in the source directory.
    pub(crate) fn beneath(&self, path: impl AsRef<Path>) -> PathBuf {
        self.source.path().join(path)
    }

    /// The same path in the plain directory.
    pub(crate) fn plain(&self, path: impl AsRef<Path>) -> PathBuf {
        self.plain.path().join(path)
    }

    /// Performs `act` in the plain directory and in the mount, and asserts equal results. Returns
    /// the result.
    pub(crate) fn same<R: PartialEq + std::fmt::Debug>(&self, what: &str, act: impl Fn(&Path) -> R) -> R {
        let want = act(self.plain.path());
        let got = act(self.dir.path());
        assert_eq!(got, want, "{what}: left is the mount, right the file system beneath");
        got
    }
}

/// The error number of a result, or 0.
pub(crate) fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().expect("from the system"))
}

/// Comparable properties of a file: mode, links, owner, group, size, device.
pub(crate) fn shape(path: &Path) -> io::Result<(u32, u64, u32, u32, u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    let size = if metadata.is_dir() { 0 } else { metadata.size() };
    Ok((metadata.mode(), metadata.nlink(), metadata.uid(), metadata.gid(), size, metadata.rdev()))
}

/// Modification and change time in nanoseconds.
pub(crate) fn times(path: &Path) -> (i128, i128) {
    let metadata = fs::symlink_metadata(path).expect("there");
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    (
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    )
}

/// Waits for the next tick of the clock with which file systems stamp.
pub(crate) fn next_tick(beside: &Path) {
    let stamp = || {
        let path = beside.join("tick");
        File::create(&path).expect("writable");
        let stamp = times(&path);
        fs::remove_file(&path).expect("just made");
        stamp
    };
    let before = stamp();
    while stamp() == before {}
}

/// Whether this process is root, which may change owners; see [`skipped`].
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped("only root changes owners and acts for other users");
    }
    is_root
}
