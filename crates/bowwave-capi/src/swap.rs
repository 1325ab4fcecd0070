//! Memory that may be larger than RAM.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};

use bowwave_engine::backend::sync::Mutex;
use bowwave_region::{RegionAdvice, Spill, SwapOptions, SwapRegion, SwapReport};

use crate::arguments::{drop_handle, hand_over_text, handle, into_handle, path, word};
use crate::counters::{counters, hand_over};
use crate::failure::{Failure, call};

/// `bowwave_swap`.
#[derive(Debug)]
pub struct Swap(pub(crate) bowwave_region::Swap);

/// `bowwave_memory`.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    len: usize,
    /// Serialises advice.
    region: Mutex<SwapRegion>,
}

counters! {
    /// `struct bowwave_swap_counters`; the header documents the fields.
    pub struct SwapCounters(swap: &bowwave_region::Swap, report: &SwapReport) {
        page_bytes: PAGE,
        frames: report.load.frames,
        frames_used: report.load.frames_used,
        slots: report.load.slots,
        slots_used: report.load.slots_used,
        blocked: u64::from(report.load.blocked),
        serves_system_calls: u64::from(swap.serves_system_calls()),
        minor_faults: report.stats.minor_faults,
        major_faults: report.stats.major_faults,
        late: report.stats.late,
        swap_ra: report.stats.swap_ra,
        swap_ra_hit: report.stats.swap_ra_hit,
        mapped_ahead: report.stats.mapped_ahead,
        wasted: report.stats.wasted,
        swap_in: report.stats.swap_in,
        swap_out: report.stats.swap_out,
        dropped: report.stats.dropped,
        zero_out: report.stats.zero_out,
        read_errors: report.stats.read_errors,
        write_errors: report.stats.write_errors,
        requests: report.requests,
        retries: report.retries,
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
    }
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
            Failure::invalid(format!(
                "{advice} is not an advice value; give BOWWAVE_NORMAL … BOWWAVE_NOREUSE"
            ))
        })?;
        let end = if len == 0 { memory.len.max(offset) } else { offset.saturating_add(len) };
        let mut region = memory.region.lock();
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
        let known = SwapCounters::of(&swap.0, &swap.0.report());
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
