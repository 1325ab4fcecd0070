//! Open files.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};

use bowwave_engine::NamedFile;
use bowwave_engine::backend::WillRead;

pub use crate::arguments::GivenRange;
use crate::arguments::{advice, buffer, drop_handle, handle, into_handle, path, priority, ranges};
use crate::failure::call;
use crate::store::Store;

/// `bowwave_file`.
#[derive(Debug)]
pub struct File(NamedFile);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_open(store: *const Store, path: *const c_char) -> *mut File {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (store, path) = unsafe { (handle(store, "store")?, self::path(path)) };
        Ok(into_handle(File(store.files.open(path, WillRead::Any)?)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_close(file: *mut File) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(file) };
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_size(file: *const File) -> i64 {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(i64::try_from(unsafe { handle(file, "file")? }.0.file().size()).unwrap_or(i64::MAX)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_read_at(
    file: *const File,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (file, buf) = unsafe { (handle(file, "file")?, buffer(buf, len)?) };
        Ok(i64::try_from(file.0.read_at(offset, buf)?).expect("no more than the buffer has"))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_advise(
    file: *const File,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let file = unsafe { handle(file, "file")? };
        file.0.file().advise(offset, len, self::advice(advice)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_priority(file: *const File, priority: c_int) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let file = unsafe { handle(file, "file")? };
        file.0.file().set_priority(self::priority(priority)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_file_plan(
    file: *const File,
    ranges: *const GivenRange,
    count: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (file, ranges) = unsafe { (handle(file, "file")?, self::ranges(ranges, count)?) };
        if ranges.is_empty() {
            file.0.file().end_plan();
        } else {
            file.0.file().plan(ranges.iter().map(GivenRange::bytes))?;
        }
        Ok(0)
    })
}
