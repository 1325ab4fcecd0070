//! Memory that may be larger than RAM.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use bowwave_region::{RegionAdvice, Spill, SwapOptions, SwapRegion};

use crate::arguments::{drop_handle, hand_over_text, handle, into_handle, path, word};
use crate::counters::hand_over;
use crate::failure::{Failure, call};

/// `bowwave_swap`.
#[derive(Debug)]
pub struct Swap(bowwave_region::Swap);

/// `bowwave_memory`.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    len: usize,
    /// Serialises advice.
    region: Mutex<SwapRegion>,
}

/// `struct bowwave_swap_counters`; the header documents the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SwapCounters {
    pub page_bytes: u64,
    pub frames: u64,
    pub frames_used: u64,
    pub slots: u64,
    pub slots_used: u64,
    pub blocked: u64,
    pub serves_system_calls: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub late: u64,
    pub swap_ra: u64,
    pub swap_ra_hit: u64,
    pub mapped_ahead: u64,
    pub wasted: u64,
    pub swap_in: u64,
    pub swap_out: u64,
    pub dropped: u64,
    pub zero_out: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub requests: u64,
    pub retries: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_open(
    spill: *const c_char,
    spill_bytes: u64,
    memory_bytes: u64,
) -> *mut Swap {
    call(|| {
        if spill.is_null() {
            return Err(Failure::invalid("the spill is NULL: name a file on a disk, or a directory"));
        }
        // SAFETY: guaranteed by the caller.
        let spill = Spill::file(unsafe { path(spill) }, spill_bytes);
        let memory_bytes = (memory_bytes > 0).then_some(memory_bytes);
        let options = SwapOptions { memory_bytes, ..SwapOptions::default() };
        Ok(into_handle(Swap(bowwave_region::Swap::new(&spill, &options)?)))
    })
}

/// Closes a swap. Its memory stays valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_close(swap: *mut Swap) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(swap) };
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_set(
    swap: *const Swap,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (swap, key, value) =
            unsafe { (handle(swap, "swap")?, word(key, "the key")?, word(value, "the value")?) };
        swap.0.set(key, value)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_get(
    swap: *const Swap,
    key: *const c_char,
    value: *mut c_void,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (swap, key) = unsafe { (handle(swap, "swap")?, word(key, "the key")?) };
        let text = swap.0.setting(key)?;
        // SAFETY: guaranteed by the caller.
        unsafe { hand_over_text(&text, value, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_new(swap: *const Swap, len: usize) -> *mut Memory {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let region = unsafe { handle(swap, "swap")? }.0.region(len)?;
        Ok(into_handle(Memory {
            address: region.as_ptr() as usize,
            len: region.len(),
            region: Mutex::new(region),
        }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_free(memory: *mut Memory) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(memory) };
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_address(memory: *const Memory) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(unsafe { handle(memory, "memory")? }.address as *mut c_void))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_size(memory: *const Memory) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { memory.as_ref() }.map_or(0, |memory| memory.len)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_advise(
    memory: *const Memory,
    offset: usize,
    len: usize,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { handle(memory, "memory")? };
        let advice = ADVICE.get(usize::try_from(advice).unwrap_or(usize::MAX)).copied().ok_or_else(|| {
            Failure::invalid(format!("{advice} is no advice; give BOWWAVE_NORMAL … BOWWAVE_NOREUSE"))
        })?;
        let end = if len == 0 { memory.len.max(offset) } else { offset.saturating_add(len) };
        let mut region = memory.region.lock().unwrap_or_else(PoisonError::into_inner);
        region.advise(offset..end, advice)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_counters(
    swap: *const Swap,
    counters: *mut SwapCounters,
    bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let swap = unsafe { handle(swap, "swap")? };
        let report = swap.0.report();
        let (stats, load) = (report.stats, report.load);
        let known = SwapCounters {
            page_bytes: PAGE,
            frames: load.frames,
            frames_used: load.frames_used,
            slots: load.slots,
            slots_used: load.slots_used,
            blocked: u64::from(load.blocked),
            serves_system_calls: u64::from(swap.0.serves_system_calls()),
            minor_faults: stats.minor_faults,
            major_faults: stats.major_faults,
            late: stats.late,
            swap_ra: stats.swap_ra,
            swap_ra_hit: stats.swap_ra_hit,
            mapped_ahead: stats.mapped_ahead,
            wasted: stats.wasted,
            swap_in: stats.swap_in,
            swap_out: stats.swap_out,
            dropped: stats.dropped,
            zero_out: stats.zero_out,
            read_errors: stats.read_errors,
            write_errors: stats.write_errors,
            requests: report.requests,
            retries: report.retries,
            bytes_read: report.bytes_read,
            bytes_written: report.bytes_written,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { hand_over(&known, counters, bytes) }
    })
}

/// In the order of the header's numbers. `NOREUSE` pages may be evicted after their use.
const ADVICE: [RegionAdvice; 6] = [
    RegionAdvice::Normal,
    RegionAdvice::Sequential,
    RegionAdvice::Random,
    RegionAdvice::WillNeed,
    RegionAdvice::DontNeed,
    RegionAdvice::PageOut,
];
/// Page size in bytes.
const PAGE: u64 = 4096;
