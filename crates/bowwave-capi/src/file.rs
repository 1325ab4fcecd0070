//! Open files.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_void};

use crate::failure::call;
pub use crate::given::GivenRange;
use crate::given::{advice, buffer, give, handle, path, ranges, take};
use crate::store::Store;

/// `bowwave_file`.
#[derive(Debug)]
pub struct File(bowwave_engine::File);

/// Opens a file of a store for reading.
///
/// # Safety
/// A store that is open, or NULL; a string that ends with a zero byte, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_open(store: *const Store, path: *const c_char) -> *mut File {
    call(|| {
        // SAFETY: as the caller says.
        let (store, path) = unsafe { (handle(store, "store")?, self::path(path)) };
        Ok(give(File(store.store.open(path)?)))
    })
}

/// Closes a file.
///
/// # Safety
/// A file that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_close(file: *mut File) {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { take(file) };
        Ok(0)
    });
}

/// Bytes of a file.
///
/// # Safety
/// A file that is open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_size(file: *const File) -> i64 {
    // SAFETY: as the caller says.
    call(|| Ok(i64::try_from(unsafe { handle(file, "file")? }.0.size()).unwrap_or(i64::MAX)))
}

/// Reads up to `len` bytes from an offset.
///
/// # Safety
/// A file that is open, or NULL; `len` bytes that nobody else uses meanwhile, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_read_at(
    file: *const File,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    call(|| {
        // SAFETY: as the caller says.
        let (file, buf) = unsafe { (handle(file, "file")?, buffer(buf, len)?) };
        Ok(i64::try_from(file.0.read_at(offset, buf)?).expect("no more than the buffer has"))
    })
}

/// Says how bytes will be read.
///
/// # Safety
/// A file that is open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_advise(
    file: *const File,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file, "file")? };
        file.0.advise(offset, len, self::advice(advice)?);
        Ok(0)
    })
}

/// Says which bytes will be read, in order.
///
/// # Safety
/// A file that is open, or NULL; `count` ranges that stay as they are meanwhile, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_plan(
    file: *const File,
    ranges: *const GivenRange,
    count: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let (file, ranges) = unsafe { (handle(file, "file")?, self::ranges(ranges, count)?) };
        if ranges.is_empty() {
            file.0.end_plan();
        } else {
            file.0.plan(ranges.iter().map(GivenRange::bytes))?;
        }
        Ok(0)
    })
}
