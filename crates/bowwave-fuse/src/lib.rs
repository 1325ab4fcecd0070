//! Mounts a store through FUSE.
//!
//! ```text
//!   program --read()---> kernel's page cache --FUSE read---> receiver or worker --> File::read_at
//!           --write()--> past it if write-only --FUSE write--> the same ---------> File::write_at
//! ```
//!
//! Receivers are the threads that read requests from `/dev/fuse`. A receiver runs the request
//! itself, or hands it to a worker thread if no other receiver is free.
//!
//! [`Mount::new`] mounts a [`Store`](bowwave_engine::Store) at a directory. It stays mounted until
//! the [`Mount`] is dropped or `umount` is run. Writes through write-only descriptors bypass the
//! kernel's page cache, on kernels where that is safe. The kernel's page cache keeps pages until
//! the object changes. The kernel's readahead window is small, so that bowwave decides about
//! readahead. ADR 3 and 19 explain the kernel options, with figures.
//!
//! The mount uses the kernel's FUSE interface directly; no C library is linked. Without the
//! privilege to mount, it uses `fusermount3`.
//!
//! A process that maps a file of its own mount shared and writable must call `msync` before
//! `munmap`. Otherwise `munmap` writes the pages out while it holds the lock of the process's memory.
//! The threads that serve the mount can wait for this lock, and then both hang.

mod advise;
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
mod layout;
mod mount;
mod mount_table;
mod operations;
mod options;
mod order;
mod priority;
mod stamps;
mod tables;
mod workers;

pub use advise::advise;
pub use checks::{Lack, allow_other, device, helper, is_available};
pub use error::{Error, Result};
pub use mount::{Announcer, Listener, Mount, ReadCall, ReadEvent, Told, Unmounter, mounted_at, unmount};
pub use mount_table::{Mounted, absolute, mounts};
pub use operations::advice::{AdviceRequest, AdviceScope};
pub use options::{Consistency, KernelCache, Metadata, MountOptions};
