//! What C hands us: pointers, strings, buffers, numbers.
#![allow(unsafe_code, reason = "follows pointers that C gives")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bowwave_engine::Advice;

use crate::failure::Failure;

/// What a handle points to.
///
/// # Safety
/// NULL, or a handle that this library gave and that is not closed.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("the {what} is NULL")))
}

/// Takes a handle back.
///
/// # Safety
/// NULL, or from [`give`] and not used any more.
pub(crate) unsafe fn take<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Makes a handle.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// A string, if there is one.
///
/// # Safety
/// NULL, or a string that ends with a zero byte and stays as it is.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{what}: not UTF-8")))
}

/// A path; none is the empty one.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> &'a Path {
    if pointer.is_null() {
        return Path::new("");
    }
    // SAFETY: as the caller says.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
}

/// A buffer to be filled.
///
/// # Safety
/// NULL, or `len` bytes that nobody else uses meanwhile.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    if pointer.is_null() && len > 0 {
        return Err(Failure::invalid("the buffer is NULL"));
    }
    if len == 0 {
        return Ok(&mut []);
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("no buffer has {len} bytes")));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), len) })
}

/// `struct bowwave_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct GivenRange {
    pub offset: u64,
    pub len: u64,
}

/// Ranges of a file, in order.
///
/// # Safety
/// NULL, or `count` ranges that stay as they are meanwhile.
pub(crate) unsafe fn ranges<'a>(
    pointer: *const GivenRange,
    count: usize,
) -> Result<&'a [GivenRange], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::invalid("the ranges are NULL"));
    }
    if count > isize::MAX as usize / size_of::<GivenRange>() {
        return Err(Failure::invalid(format!("no program has {count} ranges")));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

impl GivenRange {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> std::ops::Range<u64> {
        let end = if self.len == 0 { u64::MAX } else { self.offset.saturating_add(self.len) };
        self.offset..end
    }
}

/// One of the `BOWWAVE_NORMAL` … of the header.
pub(crate) fn advice(number: c_int) -> Result<Advice, Failure> {
    ADVICE.get(usize::try_from(number).unwrap_or(usize::MAX)).copied().ok_or_else(|| {
        Failure::invalid(format!("{number} is no advice; give BOWWAVE_NORMAL … BOWWAVE_NOREUSE"))
    })
}

/// In the order of the header's numbers.
const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::NoReuse];
