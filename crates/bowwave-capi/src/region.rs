//! Files as memory.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use bowwave_region::uffd::Delivery;
use bowwave_region::{MapOptions, Protection};

use crate::failure::{Failure, call};
use crate::given::{advice, buffer, give, handle, path, take};
use crate::store::Store;

/// `bowwave_region`.
#[derive(Debug)]
pub struct Region(pub(crate) bowwave_region::Region);

/// `BOWWAVE_COPY_ON_WRITE`.
pub const COPY_ON_WRITE: c_uint = 1;

/// `BOWWAVE_IN_THREAD`.
pub const IN_THREAD: c_uint = 2;

/// Maps a file, or a part of it, into memory.
///
/// # Safety
/// A store that is open, or NULL; a string that ends with a zero byte, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_map(
    store: *const Store,
    path: *const c_char,
    offset: u64,
    len: u64,
    flags: c_uint,
) -> *mut Region {
    call(|| {
        // SAFETY: as the caller says.
        let (store, path) = unsafe { (handle(store, "store")?, self::path(path)) };
        if flags & !(COPY_ON_WRITE | IN_THREAD) != 0 {
            let known = "give 0, or any of BOWWAVE_COPY_ON_WRITE and BOWWAVE_IN_THREAD";
            return Err(Failure::invalid(format!("flags {flags:#x}: {known}")));
        }
        let protection =
            if flags & COPY_ON_WRITE == 0 { Protection::ReadOnly } else { Protection::CopyOnWrite };
        let delivery = if flags & IN_THREAD == 0 { Delivery::Message } else { Delivery::Signal };
        let end = match len {
            // Looked up once more than needed, but only where a part from the middle is wanted.
            0 if offset > 0 => store.store.stat(path)?.size,
            _ => offset.saturating_add(len),
        };
        let range = (end > 0).then_some(offset..end);
        let options = MapOptions { range, protection, delivery, ..MapOptions::default() };
        Ok(give(Region(bowwave_region::Region::map(&store.store, path, &options)?)))
    })
}

/// Unmaps it.
///
/// # Safety
/// A region whose memory nobody touches any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_unmap(region: *mut Region) {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { take(region) };
        Ok(0)
    });
}

/// The first byte.
///
/// # Safety
/// A region, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_address(region: *const Region) -> *mut c_void {
    // SAFETY: as the caller says.
    call(|| Ok(unsafe { handle(region, "region")? }.0.as_ptr().cast_mut().cast()))
}

/// Bytes.
///
/// # Safety
/// A region, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_size(region: *const Region) -> usize {
    // SAFETY: as the caller says.
    unsafe { region.as_ref() }.map_or(0, |region| region.0.len())
}

/// Fetches and maps bytes.
///
/// # Safety
/// A region, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_populate(region: *const Region, offset: u64, len: u64) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { handle(region, "region")? }.0.populate(offset, len)?;
        Ok(0)
    })
}

/// Copies bytes as the file has them.
///
/// # Safety
/// A region, or NULL; `len` bytes that nobody else uses meanwhile, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_read(
    region: *const Region,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let (region, buf) = unsafe { (handle(region, "region")?, buffer(buf, len)?) };
        region.0.read(offset, buf)?;
        Ok(0)
    })
}

/// Says how bytes will be touched.
///
/// # Safety
/// A region, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_advise(
    region: *const Region,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let region = unsafe { handle(region, "region")? };
        region.0.advise(offset, len, self::advice(advice)?)?;
        Ok(0)
    })
}
