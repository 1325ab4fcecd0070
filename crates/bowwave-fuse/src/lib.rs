//! The mount: a tree as files, through FUSE.
//!
//! ```text
//!   program --read()---> kernel's page cache --FUSE read---> receiver or worker --> OpenFile::read_at
//!           --write()--> past it, who only writes -FUSE write-> the same, at once --> OpenFile::write_at
//! ```
//!
//! [`Mount::new`] shows a [`Tree`] at a directory until it is unmounted from either side. The kernel's page cache
//! keeps what was read for as long as the object stays the same; its readahead is kept small, so that what to
//! read ahead is decided beneath. Which of the kernel's switches are used, and why, with figures: ADR 3 and 20.
//!
//! The mount speaks FUSE by the system calls of the kernel; no C library is linked. Where the process may not
//! mount, `fusermount3` does.

mod attributes;
mod buffers;
mod checks;
mod deferred;
mod descriptors;
mod device;
mod errno;
mod error;
mod filesystem;
mod finish;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handles;
mod inodes;
mod kernel;
mod lanes;
mod layout;
mod mount;
mod mount_table;
mod operations;
mod options;
mod order;
mod stamps;
mod store;
mod tree;

pub use checks::{Lack, allow_other, device, helper, is_available};
pub use error::{Error, Result};
pub use mount::{Listener, Mount, Told, Unmounter, mounted_at, unmount};
pub use mount_table::{Mounted, absolute, mounts};
pub use options::{KernelCache, Metadata, MountOptions};
pub use tree::{NewFile, OpenFile, Tree};
