//! Counters.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::c_int;

use bowwave_engine::EngineStats;
use bowwave_region::RegionStats;

use crate::arguments::handle;
use crate::failure::{Failure, call};
use crate::region::Region;
use crate::store::Store;

/// Declares a structure of counters from the header: its fields in the header's order, and the
/// expression that computes each.
macro_rules! counters {
    (
        $(#[$about:meta])*
        pub struct $name:ident($($from:ident: $type:ty),*) { $($field:ident: $value:expr,)* }
    ) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name { $(pub $field: u64,)* }

        impl $name {
            /// Name and offset of each field, in order.
            pub const FIELDS: &[(&str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!(Self, $field))),*];

            pub(crate) fn of($($from: $type),*) -> Self {
                Self { $($field: $value,)* }
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// `struct bowwave_counters`; the header documents the fields.
    pub struct Counters(stats: &EngineStats) {
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
    }
}

counters! {
    /// `struct bowwave_region_counters`.
    pub struct RegionCounters(stats: &RegionStats) {
        faults: stats.faults,
        pages_mapped: stats.pages_mapped,
        pages_unmapped: stats.pages_unmapped,
        pages_poisoned: stats.pages_poisoned,
    }
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
        let known = Counters::of(&stats);
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
        let known = RegionCounters::of(&stats);
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
