//! Positions of files on a disk, for request order.

use std::os::fd::AsFd;

use rustix::fs::{fstat, major, minor};

/// Whether a file system lies on a rotating disk, as the kernel reports it; a partition has its
/// disk's flag.
pub(super) fn rotates(directory: impl AsFd) -> bool {
    let Ok(stat) = fstat(directory) else { return false };
    let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
    ["", "/.."].iter().any(|whole| {
        let said = std::fs::read_to_string(format!("{device}{whole}/queue/rotational"));
        said.is_ok_and(|said| said.trim() == "1")
    })
}

/// A guess of a file's offset on the device, in bytes: file systems put files near their inodes and
/// number inodes by position; ext4 creates one for each 16 KiB. The exact offset (`FIEMAP`) costs a
/// system call for each open, and a file has more than one extent.
pub(super) fn of_inode(inode: u64) -> u64 {
    inode.saturating_mul(16 << 10)
}
