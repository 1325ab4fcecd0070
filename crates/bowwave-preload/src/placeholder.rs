//! The kernel object behind a served descriptor.
//!
//! A memory object opened write-only and sealed against writes: `read`, `write` and `mmap` that
//! bypass the C library fail instead of returning zeros. Its offset is the file's, so processes
//! that share it (`dup`, `fork`, `exec`) also share the offset. Its content describes the file, for
//! programs that inherit it.
#![allow(unsafe_code, reason = "creates descriptors")]

use std::ffi::{CString, OsStr, c_int, c_void};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::errno::{Errno, Result, errno};
use crate::live::Open;
use crate::setup::{Place, setup};
use crate::{real, table};

/// Creates a descriptor for `open`.
pub(crate) fn make(open: Arc<Open>, size: u64, close_on_exec: bool) -> Result<c_int> {
    let description = description(&open);
    let memory = check(real::memfd_create(NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING))?;
    let filled = fill(memory, &description, size).and_then(|()| {
        let path = CString::new(format!("/proc/self/fd/{memory}")).expect("no zero in it");
        let flags = libc::O_WRONLY | if close_on_exec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: a NUL-terminated string.
        check(unsafe { real::open64(path.as_ptr(), flags, 0) })
    });
    // SAFETY: our own, not returned yet.
    unsafe { real::close(memory) };
    let fd = filled?;
    if table::put(fd, open) {
        return Ok(fd);
    }
    // SAFETY: as above.
    unsafe { real::close(fd) };
    Err(Errno(libc::EMFILE))
}

fn fill(memory: c_int, description: &[u8], size: u64) -> Result<()> {
    let size = i64::try_from(size.max(description.len() as u64)).unwrap_or(i64::MAX);
    // SAFETY: a buffer and its length; our own descriptor.
    unsafe {
        if libc::write(memory, description.as_ptr().cast::<c_void>(), description.len())
            != description.len() as isize
        {
            return Err(Errno(libc::ENOMEM));
        }
        check(libc::ftruncate64(memory, size))?;
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        check(real::fcntl(memory, libc::F_ADD_SEALS, seals.into()))?;
    }
    Ok(())
}

/// Adopts descriptors that this program inherited.
pub(crate) fn adopt_inherited() {
    let Ok(directory) = fs::read_dir("/proc/self/fd") else { return };
    for entry in directory.flatten() {
        let is_ours =
            fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str().as_bytes().starts_with(LINK));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(fd)) = (is_ours, number)
            && let Some(open) = inherited(&entry.path())
        {
            table::put(fd, Arc::new(open));
        }
    }
}

fn inherited(path: &std::path::Path) -> Option<Open> {
    let mut description = Vec::new();
    fs::File::open(path).ok()?.take(DESCRIPTION_MAX).read_to_end(&mut description).ok()?;
    let mut parts = description.split(|&byte| byte == 0);
    let (url, prefix, version) = (parts.next()?, parts.next()?, parts.next()?);
    let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
    let map = setup().maps.iter().position(|map| map.url.as_bytes() == url && map.prefix == prefix)?;
    let version = std::str::from_utf8(version).ok()?.parse().ok()?;
    Some(Open::inherited(Place { map, path }, version))
}

/// Description of the file: URL, prefix, version and path, each NUL-terminated.
fn description(open: &Open) -> Vec<u8> {
    let map = &setup().maps[open.place.map];
    let version = open.version().to_string();
    let parts = [map.url.as_bytes(), &map.prefix, version.as_bytes(), open.place.path.as_os_str().as_bytes()];
    let mut description = Vec::new();
    for part in parts {
        description.extend_from_slice(part);
        description.push(0);
    }
    description
}

fn check(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Errno(errno())) } else { Ok(result) }
}

const NAME: &std::ffi::CStr = c"bowwave-run";
/// Its link in `/proc/self/fd`.
const LINK: &[u8] = b"/memfd:bowwave-run";
/// Maximum size of a description in bytes; longer than any URL and path.
const DESCRIPTION_MAX: u64 = 64 << 10;
