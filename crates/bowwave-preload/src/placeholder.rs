//! The kernel's side of a descriptor of ours.
//!
//! A memory object opened for writing only and sealed against it: `read`, `write` and `mmap` that reach the kernel by another
//! way than the C library fail, rather than bring zeros. Its offset is the file's, so that all who share it (`dup`, `fork`,
//! `exec`) share the offset as well. It holds a few lines that say what it stands for, for programs that inherit it.
#![allow(unsafe_code, reason = "makes descriptors")]

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

/// Makes a descriptor that stands for `open`.
pub(crate) fn make(open: Arc<Open>, size: u64, close_on_exec: bool) -> Result<c_int> {
    let words = words(&open);
    // SAFETY: a name that ends, and flags.
    let memory =
        check(unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    let filled = fill(memory, &words, size).and_then(|()| {
        let path = CString::new(format!("/proc/self/fd/{memory}")).expect("no zero in it");
        let flags = libc::O_WRONLY | if close_on_exec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: a string that ends.
        check(unsafe { real::open64(path.as_ptr(), flags, 0) })
    });
    // SAFETY: ours, and not handed out.
    unsafe { real::close(memory) };
    let fd = filled?;
    if table::put(fd, open) {
        return Ok(fd);
    }
    // SAFETY: as above.
    unsafe { real::close(fd) };
    Err(Errno(libc::EMFILE))
}

fn fill(memory: c_int, words: &[u8], size: u64) -> Result<()> {
    let size = i64::try_from(size.max(words.len() as u64)).unwrap_or(i64::MAX);
    // SAFETY: a buffer and its length; a descriptor of ours.
    unsafe {
        if libc::write(memory, words.as_ptr().cast::<c_void>(), words.len()) != words.len() as isize {
            return Err(Errno(libc::ENOMEM));
        }
        check(libc::ftruncate64(memory, size))?;
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        check(real::fcntl(memory, libc::F_ADD_SEALS, seals.into()))?;
    }
    Ok(())
}

/// Takes up descriptors that this program was started with.
pub(crate) fn take_up_inherited() {
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
    let mut words = Vec::new();
    fs::File::open(path).ok()?.take(WORDS_MAX).read_to_end(&mut words).ok()?;
    let mut parts = words.split(|&byte| byte == 0);
    let (url, prefix, version) = (parts.next()?, parts.next()?, parts.next()?);
    let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
    let map = setup().maps.iter().position(|map| map.url.as_bytes() == url && map.prefix == prefix)?;
    let version = std::str::from_utf8(version).ok()?.parse().ok()?;
    Some(Open::inherited(Place { map, path }, version))
}

/// What it stands for: URL, prefix, version and path, each with a zero behind it.
fn words(open: &Open) -> Vec<u8> {
    let map = &setup().maps[open.place.map];
    let version = open.version().to_string();
    let parts = [map.url.as_bytes(), &map.prefix, version.as_bytes(), open.place.path.as_os_str().as_bytes()];
    let mut words = Vec::new();
    for part in parts {
        words.extend_from_slice(part);
        words.push(0);
    }
    words
}

fn check(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Errno(errno())) } else { Ok(result) }
}

const NAME: &std::ffi::CStr = c"bowwave-run";
/// What `/proc/self/fd` shows of it.
const LINK: &[u8] = b"/memfd:bowwave-run";
/// No URL and paths are longer.
const WORDS_MAX: u64 = 64 << 10;
