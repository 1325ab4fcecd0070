//! `fopen` and related functions: C library streams over served descriptors.
//!
//! The C library reads its own streams with internal calls, which cannot be interposed. So served
//! streams use `fopencookie`, with functions for reading, seeking and closing.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowwave_engine::backend::sync::Mutex;
use libc::{FILE, off_t, size_t, ssize_t};

use super::open::open_place;
use super::{descriptors, place, read};
use crate::errno::{Errno, Result, errno, served, set_errno};
use crate::setup::Place;
use crate::table;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Descriptors of served streams, by the stream's address.
static STREAMS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());
/// Number of streams: 0 avoids the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// All streams, locked.
pub(super) type Guard = MutexGuard<'static, BTreeMap<usize, c_int>>;

pub(super) fn lock() -> Guard {
    STREAMS.lock()
}

/// The cookie is the descriptor.
unsafe extern "C" fn stream_read(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    unsafe { read::read(cookie as c_int, buf.cast(), len) }
}

unsafe extern "C" fn stream_seek(cookie: *mut c_void, offset: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the C library's in-out argument.
    unsafe {
        let at = read::lseek64(cookie as c_int, *offset, whence);
        if at < 0 {
            return -1;
        }
        *offset = at;
    }
    0
}

unsafe extern "C" fn stream_close(cookie: *mut c_void) -> c_int {
    let fd = cookie as c_int;
    let mut streams = lock();
    streams.retain(|_, &mut other| other != fd);
    COUNT.store(streams.len(), Ordering::Release);
    drop(streams);
    // SAFETY: the stream owns the descriptor.
    unsafe { descriptors::close(fd) }
}

/// Creates a stream that owns a served descriptor.
fn stream(fd: c_int) -> *mut FILE {
    let functions = Functions { read: stream_read, write: None, seek: stream_seek, close: stream_close };
    // SAFETY: functions with static lifetime; the cookie points to no memory.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, c"r".as_ptr(), functions) };
    if !stream.is_null() {
        let mut streams = lock();
        streams.insert(stream as usize, fd);
        COUNT.store(streams.len(), Ordering::Release);
    }
    stream
}

/// The `open` flags of a mode.
///
/// # Safety
/// NULL, or a NUL-terminated string.
unsafe fn flags(mode: *const c_char) -> Result<c_int> {
    // SAFETY: guaranteed by the caller.
    let mode = if mode.is_null() { &[] } else { unsafe { CStr::from_ptr(mode) }.to_bytes() };
    // A character set follows the comma.
    let mode = mode.split(|&letter| letter == b',').next().unwrap_or_default();
    let both = mode.contains(&b'+');
    let access = if both { libc::O_RDWR } else { libc::O_WRONLY };
    let flags = match mode.first() {
        Some(b'r') if both => libc::O_RDWR,
        Some(b'r') => libc::O_RDONLY,
        Some(b'w') => access | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => access | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(flags | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 })
}

/// # Safety
/// As [`flags`].
unsafe fn open_stream(place: &Place, mode: *const c_char) -> *mut FILE {
    served(|| {
        // SAFETY: guaranteed by the caller.
        let fd = open_place(place, unsafe { flags(mode) }?)?;
        let stream = stream(fd);
        if stream.is_null() {
            let cause = errno();
            // SAFETY: just opened, not returned yet.
            unsafe { descriptors::close(fd) };
            return Err(Errno(cause));
        }
        Ok(stream)
    })
}

/// # Safety
/// As [`flags`].
unsafe fn open_descriptor(fd: c_int, mode: *const c_char) -> Result<*mut FILE> {
    // SAFETY: guaranteed by the caller.
    if unsafe { flags(mode) }? & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno(libc::EINVAL));
    }
    let stream = stream(fd);
    if stream.is_null() { Err(Errno(errno())) } else { Ok(stream) }
}

/// The descriptor of a served stream.
fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Acquire) == 0 { None } else { lock().get(&(stream as usize)).copied() }
}

interpose! {
    /// Opens a stream.
    fn [fopen fopen64] (path: *const c_char, mode: *const c_char) -> *mut FILE,
        place(libc::AT_FDCWD, path) => |place| open_stream(&place, mode);
    /// Creates a stream over a descriptor.
    fn [fdopen] (fd: c_int, mode: *const c_char) -> *mut FILE,
        table::get(fd) => |_open| served(|| open_descriptor(fd, mode));
    /// The descriptor of a stream.
    fn [fileno fileno_unlocked] (stream: *mut FILE) -> c_int, descriptor(stream) => |fd| fd;
}

/// Replaces standard input if it is a served descriptor: the C library's own stream would read the
/// placeholder.
pub(crate) fn take_standard_input() {
    if table::get(0).is_none() {
        return;
    }
    unsafe extern "C" {
        static mut stdin: *mut FILE;
    }
    let before = errno();
    let stream = stream(0);
    if !stream.is_null() {
        // SAFETY: before the program starts, so no other thread reads it.
        unsafe { stdin = stream };
    }
    set_errno(before);
}
