//! `read` and its kin, offsets, and what kernels do with two descriptors.

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
/// `len` bytes at `buf`.
unsafe fn read_at(open: &Open, buf: *mut c_void, len: size_t, offset: off_t) -> Result<isize> {
    let live = open.live()?;
    let file = live.file()?;
    let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    if buf.is_null() && len > 0 {
        return Err(Errno(libc::EFAULT));
    }
    let buf = match len.min(LEN_MAX) {
        0 => &mut [],
        // SAFETY: as the caller says; only written to.
        len => unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) },
    };
    let count = file.read_at(offset, buf).map_err(|error| crate::errno::of_engine(&error))?;
    report::READS.fetch_add(1, Ordering::Relaxed);
    report::BYTES_READ.fetch_add(count as u64, Ordering::Relaxed);
    Ok(isize::try_from(count).expect("no more than the buffer has"))
}

/// Reads into several buffers, one after the other, from an offset.
///
/// # Safety
/// `count` buffers.
unsafe fn read_parts(open: &Open, parts: *const iovec, count: c_int, offset: off_t) -> Result<isize> {
    let count = usize::try_from(count).ok().filter(|&count| count <= PARTS_MAX).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: as the caller says.
    let parts = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, count) } };
    let mut done: isize = 0;
    for part in parts {
        let at = offset.checked_add(done as off_t).ok_or(Errno(libc::EINVAL))?;
        // SAFETY: as the caller says.
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
    let _turn = open.turn();
    // SAFETY: a descriptor.
    let at = unsafe { real::lseek64(fd, 0, libc::SEEK_CUR) };
    if at < 0 {
        return Err(Errno(errno()));
    }
    let count = read(at)?;
    // SAFETY: a descriptor.
    unsafe { real::lseek64(fd, at + count as off_t, libc::SEEK_SET) };
    Ok(count)
}

/// Where an offset leads.
fn seek(open: &Open, fd: c_int, offset: off_t, whence: c_int) -> Result<off_t> {
    let _turn = open.turn();
    let size = off_t::try_from(open.live()?.size()).unwrap_or(off_t::MAX);
    let to = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => {
            // SAFETY: a descriptor.
            let at = unsafe { real::lseek64(fd, 0, libc::SEEK_CUR) };
            Some(at.checked_add(offset).ok_or(Errno(libc::EOVERFLOW))?)
        }
        libc::SEEK_END => Some(size.checked_add(offset).ok_or(Errno(libc::EOVERFLOW))?),
        // All of it is data, and a hole is at the end.
        libc::SEEK_DATA | libc::SEEK_HOLE if (0..size).contains(&offset) => {
            Some(if whence == libc::SEEK_DATA { offset } else { size })
        }
        libc::SEEK_DATA | libc::SEEK_HOLE => return Err(Errno(libc::ENXIO)),
        _ => None,
    };
    let to = to.filter(|&to| to >= 0).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: a descriptor.
    let at = unsafe { real::lseek64(fd, to, libc::SEEK_SET) };
    if at < 0 { Err(Errno(errno())) } else { Ok(at) }
}

/// Defines functions: if the descriptor is ours, what is behind the arrow, else the C library's.
macro_rules! of_descriptor {
    ($($(#[$doc:meta])* $name:ident($fd:ident $(, $argument:ident: $kind:ty)*) -> $result:ty, |$open:ident| $work:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($fd: c_int $(, $argument: $kind)*) -> $result {
            match table::get($fd) {
                Some($open) => served(|| $work),
                // SAFETY: as the caller says.
                None => unsafe { real::$name($fd $(, $argument)*) },
            }
        }
    )*};
}

of_descriptor! {
    /// Reads on.
    read(fd, buf: *mut c_void, len: size_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        read_on(&open, fd, |at| unsafe { read_at(&open, buf, len, at) })
    };
    /// `read` of fortified programs.
    __read_chk(fd, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        read_on(&open, fd, |at| unsafe { read_at(&open, buf, len.min(room), at) })
    };
    /// Reads from an offset.
    pread(fd, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_at(&open, buf, len, offset) }
    };
    /// Reads from any offset.
    pread64(fd, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_at(&open, buf, len, offset) }
    };
    /// `pread` of fortified programs.
    __pread_chk(fd, buf: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_at(&open, buf, len.min(room), offset) }
    };
    /// `pread64` of fortified programs.
    __pread64_chk(fd, buf: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_at(&open, buf, len.min(room), offset) }
    };
    /// Reads on, into several buffers.
    readv(fd, parts: *const iovec, count: c_int) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        read_on(&open, fd, |at| unsafe { read_parts(&open, parts, count, at) })
    };
    /// Reads from an offset into several buffers.
    preadv(fd, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_parts(&open, parts, count, offset) }
    };
    /// Reads from any offset into several buffers.
    preadv64(fd, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t, |open| {
        // SAFETY: as the caller says.
        unsafe { read_parts(&open, parts, count, offset) }
    };
    /// The same, with flags, which are hints.
    preadv2(fd, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, |open| {
        let _hints = flags;
        // SAFETY: as the caller says.
        unsafe {
            if offset == -1 {
                read_on(&open, fd, |at| read_parts(&open, parts, count, at))
            } else {
                read_parts(&open, parts, count, offset)
            }
        }
    };
    /// The same, from any offset.
    preadv64v2(fd, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, |open| {
        let _hints = flags;
        // SAFETY: as the caller says.
        unsafe {
            if offset == -1 {
                read_on(&open, fd, |at| read_parts(&open, parts, count, at))
            } else {
                read_parts(&open, parts, count, offset)
            }
        }
    };
    /// Moves the offset.
    lseek(fd, offset: off_t, whence: c_int) -> off_t, |open| seek(&open, fd, offset, whence);
    /// Moves the offset anywhere.
    lseek64(fd, offset: off_t, whence: c_int) -> off_t, |open| seek(&open, fd, offset, whence);
    /// Says how bytes will be read. Its error is what it returns.
    posix_fadvise(fd, offset: off_t, len: off_t, advice: c_int) -> c_int, |open| Ok(advise(&open, offset, len, advice));
    /// Says how bytes will be read. Its error is what it returns.
    posix_fadvise64(fd, offset: off_t, len: off_t, advice: c_int) -> c_int, |open| Ok(advise(&open, offset, len, advice));
    /// Fetches bytes.
    readahead(fd, offset: off_t, len: size_t) -> ssize_t, |open| {
        let len = off_t::try_from(len).unwrap_or(off_t::MAX);
        match advise(&open, offset, len, libc::POSIX_FADV_WILLNEED) {
            0 => Ok(0),
            number => Err(Errno(number)),
        }
    };
    /// Copies between descriptors: programs then read and write.
    copy_file_range(
        from, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t, |_open| Err(Errno(libc::EXDEV));
    /// Moves to a pipe: programs then read and write.
    splice(
        from, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t, |_open| Err(Errno(libc::EINVAL));
}

macro_rules! sends {
    ($($name:ident)*) => {$(
        /// Copies between descriptors: programs then read and write.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t {
            match table::get(from) {
                Some(_) => served(|| Err(Errno(libc::EINVAL))),
                // SAFETY: as the caller says.
                None => unsafe { real::$name(to, from, offset, len) },
            }
        }
    )*};
}

sends! { sendfile sendfile64 }

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

/// Most bytes of one read, as in Linux.
const LEN_MAX: usize = 0x7FFF_F000;
/// Most buffers of one read, as in Linux.
const PARTS_MAX: usize = 1024;
