//! Where files lie on a disk, for putting requests in order.

use std::os::fd::AsFd;

use rustix::fs::{fstat, major, minor};

/// Whether a file system lies on a disk that turns, as far as the kernel says; a partition has its disk's word.
pub(super) fn rotates(folder: impl AsFd) -> bool {
    let Ok(stat) = fstat(folder) else { return false };
    let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
    ["", "/.."].iter().any(|whole| {
        let said = std::fs::read_to_string(format!("{device}{whole}/queue/rotational"));
        said.is_ok_and(|said| said.trim() == "1")
    })
}

/// A guess where a file begins, in bytes: file systems put files near their inodes, and number those as they lie; ext4
/// makes one for each 16 KiB. Asking for the real place (`FIEMAP`) costs a system call an open, and a file has more than
/// one.
pub(super) fn of_inode(inode: u64) -> u64 {
    inode.saturating_mul(16 << 10)
}
