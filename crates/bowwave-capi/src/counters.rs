//! Counters.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::c_int;

use crate::arguments::handle;
use crate::failure::{Failure, call};
use crate::region::Region;
use crate::store::Store;

/// `struct bowwave_counters`; the header documents the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub page_bytes: u64,
    pub frames: u64,
    pub frames_used: u64,
    pub reads: u64,
    pub accesses: u64,
    pub hits: u64,
    pub late: u64,
    pub misses: u64,
    pub pages_readahead: u64,
    pub pages_used: u64,
    pub pages_wasted: u64,
    pub pages_evicted: u64,
    pub requests: u64,
    pub requests_failed: u64,
    pub retries: u64,
    pub bytes_fetched: u64,
    pub pages_planned: u64,
    pub pages_abandoned: u64,
}

/// `struct bowwave_region_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionCounters {
    pub faults: u64,
    pub pages_mapped: u64,
    pub pages_unmapped: u64,
    pub pages_poisoned: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_store_counters(
    store: *const Store,
    counters: *mut Counters,
    bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let stats = unsafe { handle(store, "store")? }.engine.stats();
        let known = Counters {
            page_bytes: stats.page_bytes,
            frames: stats.frames,
            frames_used: stats.frames_used,
            reads: stats.cache.reads,
            accesses: stats.cache.accesses,
            hits: stats.cache.hits,
            late: stats.cache.late,
            misses: stats.cache.misses,
            pages_readahead: stats.cache.pages_readahead,
            pages_used: stats.cache.pages_used,
            pages_wasted: stats.cache.pages_wasted,
            pages_evicted: stats.cache.pages_evicted,
            requests: stats.store.requests,
            requests_failed: stats.store.requests_failed,
            retries: stats.store.retries,
            bytes_fetched: stats.store.bytes_fetched,
            pages_planned: stats.cache.pages_planned,
            pages_abandoned: stats.cache.pages_abandoned,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { hand_over(&known, counters, bytes) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_region_counters(
    region: *const Region,
    counters: *mut RegionCounters,
    bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let stats = unsafe { handle(region, "region")? }.0.stats();
        let known = RegionCounters {
            faults: stats.faults,
            pages_mapped: stats.pages_mapped,
            pages_unmapped: stats.pages_unmapped,
            pages_poisoned: stats.pages_poisoned,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { hand_over(&known, counters, bytes) }
    })
}

/// Copies as much of `known` as fits into the caller's structure, and zeros the rest of it.
///
/// # Safety
/// `to` is valid for a write of `bytes` bytes, or NULL.
pub(crate) unsafe fn hand_over<T>(known: &T, to: *mut T, bytes: usize) -> Result<c_int, Failure> {
    if to.is_null() {
        return Err(Failure::invalid("the counters are NULL"));
    }
    if !bytes.is_multiple_of(size_of::<u64>()) {
        return Err(Failure::invalid(format!("counters of {bytes} bytes: give sizeof of the structure")));
    }
    // SAFETY: guaranteed by the caller; `T` has only 64-bit integers, for which zero is valid.
    unsafe {
        to.cast::<u8>().write_bytes(0, bytes);
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(known).cast::<u8>(),
            to.cast(),
            bytes.min(size_of::<T>()),
        );
    }
    Ok(0)
}
