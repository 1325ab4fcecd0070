//! Arguments from C: pointers, strings, buffers, numbers.
#![allow(unsafe_code, reason = "dereferences pointers from C")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bowwave_engine::{Advice, Priority};

use crate::failure::Failure;

/// Dereferences a handle.
///
/// # Safety
/// NULL, or an open handle of this library.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("the {what} is NULL")))
}

/// Drops a handle.
///
/// # Safety
/// NULL, or a handle from [`into_handle`] that is no longer in use.
pub(crate) unsafe fn drop_handle<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Creates a handle.
pub(crate) fn into_handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// An optional string.
///
/// # Safety
/// NULL, or a NUL-terminated string that is valid and unchanged during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{what}: not UTF-8")))
}

/// A string that must not be NULL.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn word<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(pointer, what)? }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Copies a text and its NUL into the caller's buffer.
///
/// # Safety
/// NULL, or `size` bytes for exclusive use.
pub(crate) unsafe fn hand_over_text(text: &str, to: *mut c_void, size: usize) -> Result<c_int, Failure> {
    if to.is_null() || size <= text.len() {
        return Err(Failure::invalid(format!("the value needs {} bytes", text.len() + 1)));
    }
    // SAFETY: guaranteed by the caller; the text and its NUL fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len());
        to.cast::<u8>().add(text.len()).write(0);
    }
    Ok(0)
}

/// A path; NULL is the empty path.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> &'a Path {
    if pointer.is_null() {
        return Path::new("");
    }
    // SAFETY: guaranteed by the caller.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
}

/// An output buffer.
///
/// # Safety
/// NULL, or `len` bytes for exclusive use.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    if pointer.is_null() && len > 0 {
        return Err(Failure::invalid("the buffer is NULL"));
    }
    if len == 0 {
        return Ok(&mut []);
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("the length, {len} bytes, is too large")));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), len) })
}

/// `struct bowwave_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GivenRange {
    pub offset: u64,
    pub len: u64,
}

/// Ranges of a file, in the order in which they will be read.
///
/// # Safety
/// NULL, or `count` ranges that are valid and unchanged during `'a`.
pub(crate) unsafe fn ranges<'a>(
    pointer: *const GivenRange,
    count: usize,
) -> Result<&'a [GivenRange], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { array(pointer, count, "ranges") }
}

/// Pointers to strings.
///
/// # Safety
/// NULL, or `count` pointers that are valid and unchanged during `'a`.
pub(crate) unsafe fn strings<'a>(
    pointer: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<&'a [*const c_char], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { array(pointer, count, what) }
}

/// An array from C. `what` names the elements in errors, in the plural.
///
/// # Safety
/// NULL, or `count` values that are valid and unchanged during `'a`.
unsafe fn array<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::invalid(format!("the {what} are NULL")));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::invalid(format!("no program has {count} {what}")));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

impl GivenRange {
    /// First byte and end; a length of 0 means to the end of the file.
    pub(crate) fn bytes(&self) -> std::ops::Range<u64> {
        let end = if self.len == 0 { u64::MAX } else { self.offset.saturating_add(self.len) };
        self.offset..end
    }
}

/// Converts one of the header's advice numbers, `BOWWAVE_NORMAL` and following.
pub(crate) fn advice(number: c_int) -> Result<Advice, Failure> {
    ADVICE.get(usize::try_from(number).unwrap_or(usize::MAX)).copied().ok_or_else(|| {
        Failure::invalid(format!("{number} is not an advice value; give BOWWAVE_NORMAL … BOWWAVE_NOREUSE"))
    })
}

/// Converts one of the header's priorities, `BOWWAVE_REALTIME` and following.
pub(crate) fn priority(number: c_int) -> Result<Priority, Failure> {
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    place.and_then(|place| Priority::ALL.get(place)).copied().ok_or_else(|| {
        Failure::invalid(format!("{number} is not a priority; give BOWWAVE_REALTIME … BOWWAVE_IDLE"))
    })
}

/// In the order of the header's numbers.
const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::NoReuse];
