//! `read` and related functions, offsets, and copies between descriptors.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use bowwave_engine::Advice;
use libc::{iovec, off_t, size_t, ssize_t};

use crate::errno::{Errno, Result, errno, served};
use crate::live::Open;
use crate::{real, report, table};

/// Reads from an offset.
///
/// # Safety
/// `buf` is valid for `len` bytes.
unsafe fn read_at(open: &Open, buf: *mut c_void, len: size_t, offset: off_t) -> Result<isize> {
    let live = open.live()?;
    live.file()?;
    let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    if buf.is_null() && len > 0 {
        return Err(Errno(libc::EFAULT));
    }
    let buf = match len.min(LEN_MAX) {
        0 => &mut [],
        // SAFETY: guaranteed by the caller; only written to.
        len => unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) },
    };
    let count = live.read_at(offset, buf)?;
    report::READS.fetch_add(1, Ordering::Relaxed);
    report::BYTES_READ.fetch_add(count as u64, Ordering::Relaxed);
    Ok(isize::try_from(count).expect("no more than the buffer has"))
}

/// Reads into several buffers from an offset.
///
/// # Safety
/// `parts` is valid for `count` buffers.
unsafe fn read_parts(open: &Open, parts: *const iovec, count: c_int, offset: off_t) -> Result<isize> {
    let count = usize::try_from(count).ok().filter(|&count| count <= PARTS_MAX).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: guaranteed by the caller.
    let parts = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, count) } };
    let mut done: isize = 0;
    for part in parts {
        let at = offset.checked_add(done as off_t).ok_or(Errno(libc::EINVAL))?;
        // SAFETY: guaranteed by the caller.
        match unsafe { read_at(open, part.iov_base, part.iov_len, at) } {
            Ok(count) => {
                done += count;
                if (count as usize) < part.iov_len {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Reads from the descriptor's offset and moves it.
fn read_on(open: &Open, fd: c_int, read: impl FnOnce(off_t) -> Result<isize>) -> Result<isize> {
    let _guard = open.offset_lock.lock();
    // SAFETY: takes a descriptor.
    let at = unsafe { real::lseek64(fd, 0, libc::SEEK_CUR) };
    if at < 0 {
        return Err(Errno(errno()));
    }
    let count = read(at)?;
    // SAFETY: takes a descriptor.
    unsafe { real::lseek64(fd, at + count as off_t, libc::SEEK_SET) };
    Ok(count)
}

/// Computes and sets an offset.
fn seek(open: &Open, fd: c_int, offset: off_t, whence: c_int) -> Result<off_t> {
    let _guard = open.offset_lock.lock();
    let size = off_t::try_from(open.live()?.size()).unwrap_or(off_t::MAX);
    let to = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => {
            // SAFETY: takes a descriptor.
            let at = unsafe { real::lseek64(fd, 0, libc::SEEK_CUR) };
            Some(at.checked_add(offset).ok_or(Errno(libc::EOVERFLOW))?)
        }
        libc::SEEK_END => Some(size.checked_add(offset).ok_or(Errno(libc::EOVERFLOW))?),
        // The whole file is data; the only hole is at the end.
        libc::SEEK_DATA | libc::SEEK_HOLE if (0..size).contains(&offset) => {
            Some(if whence == libc::SEEK_DATA { offset } else { size })
        }
        libc::SEEK_DATA | libc::SEEK_HOLE => return Err(Errno(libc::ENXIO)),
        _ => None,
    };
    let to = to.filter(|&to| to >= 0).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: takes a descriptor.
    let at = unsafe { real::lseek64(fd, to, libc::SEEK_SET) };
    if at < 0 { Err(Errno(errno())) } else { Ok(at) }
}

interpose! {
    /// Reads at the descriptor's offset.
    fn [read] (fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t,
        table::get(fd) => |open| served(|| read_on(&open, fd, |at| read_at(&open, buf, len, at)));
    /// `read` for fortified programs.
    fn [__read_chk] (fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t,
        table::get(fd) => |open|
        served(|| read_on(&open, fd, |at| read_at(&open, buf, len.min(room), at)));
    /// Reads from an offset.
    fn [pread pread64] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t,
        table::get(fd) => |open| served(|| read_at(&open, buf, len, offset));
    /// `pread` for fortified programs.
    fn [__pread_chk __pread64_chk] (
        fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t
    ) -> ssize_t,
        table::get(fd) => |open| served(|| read_at(&open, buf, len.min(room), offset));
    /// Reads at the descriptor's offset into several buffers.
    fn [readv] (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t,
        table::get(fd) => |open| served(|| read_on(&open, fd, |at| read_parts(&open, parts, count, at)));
    /// Reads from an offset into several buffers.
    fn [preadv preadv64] (fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        table::get(fd) => |open| served(|| read_parts(&open, parts, count, offset));
    /// As `preadv`, with flags, which are hints. An `offset` of -1 means the descriptor's offset.
    fn [preadv2 preadv64v2] (
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t,
        table::get(fd) => |open| served(|| match offset {
            -1 => read_on(&open, fd, |at| read_parts(&open, parts, count, at)),
            _ => read_parts(&open, parts, count, offset),
        });
    /// Moves the offset.
    fn [lseek lseek64] (fd: c_int, offset: off_t, whence: c_int) -> off_t,
        table::get(fd) => |open| served(|| seek(&open, fd, offset, whence));
    /// Advice on a range of a file. Returns the error number.
    fn [posix_fadvise posix_fadvise64] (fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int,
        table::get(fd) => |open| served(|| Ok(advise(&open, offset, len, advice)));
    /// Prefetches a range.
    fn [readahead] (fd: c_int, offset: off_t, len: size_t) -> ssize_t,
        table::get(fd) => |open| served(|| {
            let len = off_t::try_from(len).unwrap_or(off_t::MAX);
            match advise(&open, offset, len, libc::POSIX_FADV_WILLNEED) {
                0 => Ok(0),
                number => Err(Errno(number)),
            }
        });
    /// Copies between descriptors: rejected, so that programs read and write instead.
    fn [copy_file_range] (
        from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t,
        table::get(from) => |_open| served(|| Err(Errno(libc::EXDEV)));
    /// Moves to a pipe: rejected, so that programs read and write instead.
    fn [splice] (
        from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t,
        table::get(from) => |_open| served(|| Err(Errno(libc::EINVAL)));
    /// Copies between descriptors: rejected, so that programs read and write instead.
    fn [sendfile sendfile64] (to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t,
        table::get(from) => |_open| served(|| Err(Errno(libc::EINVAL)));
}

/// 0, or an error number.
fn advise(open: &Open, offset: off_t, len: off_t, advice: c_int) -> c_int {
    let advice = match advice {
        libc::POSIX_FADV_NORMAL => Advice::Normal,
        libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
        libc::POSIX_FADV_RANDOM => Advice::Random,
        libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
        libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
        libc::POSIX_FADV_NOREUSE => Advice::NoReuse,
        _ => return libc::EINVAL,
    };
    let (Ok(offset), Ok(len)) = (u64::try_from(offset), u64::try_from(len)) else { return libc::EINVAL };
    match open.live().and_then(|live| live.file().map(|file| file.advise(offset, len, advice))) {
        Ok(()) => 0,
        Err(Errno(number)) => number,
    }
}

/// Maximum bytes of a read, as in Linux.
const LEN_MAX: usize = 0x7FFF_F000;
/// Maximum buffers of a read, as in Linux.
const PARTS_MAX: usize = 1024;
