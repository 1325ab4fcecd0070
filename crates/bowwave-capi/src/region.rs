//! Mapped files.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use bowwave_engine::Namespace as _;
use bowwave_region::uffd::Delivery;
use bowwave_region::{MapOptions, Protection};

use crate::arguments::{advice, buffer, drop_handle, handle, into_handle, path};
use crate::failure::{Failure, call};
use crate::store::Store;

/// `bowwave_region`.
#[derive(Debug)]
pub struct Region(pub(crate) bowwave_region::Region);

/// `BOWWAVE_COPY_ON_WRITE`.
pub const COPY_ON_WRITE: c_uint = 1;

/// `BOWWAVE_IN_THREAD`.
pub const IN_THREAD: c_uint = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_map(
    store: *const Store,
    path: *const c_char,
    offset: u64,
    len: u64,
    flags: c_uint,
) -> *mut Region {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (store, path) = unsafe { (handle(store, "store")?, self::path(path)) };
        if flags & !(COPY_ON_WRITE | IN_THREAD) != 0 {
            let known = "give 0, or any of BOWWAVE_COPY_ON_WRITE and BOWWAVE_IN_THREAD";
            return Err(Failure::invalid(format!("flags {flags:#x}: {known}")));
        }
        let protection =
            if flags & COPY_ON_WRITE == 0 { Protection::ReadOnly } else { Protection::CopyOnWrite };
        let delivery = if flags & IN_THREAD == 0 { Delivery::Message } else { Delivery::Signal };
        let end = match len {
            // From an offset to the end: needs a lookup of the size.
            0 if offset > 0 => store.files.store().stat(path).map_err(bowwave_engine::Error::from)?.size,
            _ => offset.saturating_add(len),
        };
        let range = (end > 0).then_some(offset..end);
        let options = MapOptions { range, protection, delivery, ..MapOptions::default() };
        Ok(into_handle(Region(bowwave_region::Region::map(store.files.store(), path, &options)?)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_unmap(region: *mut Region) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(region) };
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_address(region: *const Region) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(unsafe { handle(region, "region")? }.0.as_ptr().cast_mut().cast()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_size(region: *const Region) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { region.as_ref() }.map_or(0, |region| region.0.len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_populate(region: *const Region, offset: u64, len: u64) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { handle(region, "region")? }.0.populate(offset, len)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_read(
    region: *const Region,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (region, buf) = unsafe { (handle(region, "region")?, buffer(buf, len)?) };
        region.0.read(offset, buf)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_advise(
    region: *const Region,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let region = unsafe { handle(region, "region")? };
        region.0.advise(offset, len, self::advice(advice)?)?;
        Ok(0)
    })
}
