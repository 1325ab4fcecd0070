//! What fuzzers call: readers of bytes that servers and disks hold, apart from network and disk.

pub use crate::net::fuzz::{
    Dialect, Entry, Page, check_response, explain, is_path, list, parts, redirect, times,
};
pub use crate::wrap::fuzz_disk_segment as read_segment;
