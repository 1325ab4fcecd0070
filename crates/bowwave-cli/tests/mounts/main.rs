//! Mounts, run as a user runs them, one test at a time.

#[path = "../common/mod.rs"]
mod common;

mod disk_cache;
mod hostile;
mod journal;
mod log;
mod many_files;
mod memory;
mod metadata;
mod mount;
mod priority;
mod read_servers;
mod real_writes;
mod server;
mod status;
mod threads;
mod trace;
mod umount;
