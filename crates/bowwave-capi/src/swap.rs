//! Memory that may be larger than memory.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use bowwave_region::{RegionAdvice, Spill, SwapOptions, SwapRegion};

use crate::counters::hand_over;
use crate::failure::{Failure, call};
use crate::given::{give, handle, path, take};

/// `bowwave_swap`.
#[derive(Debug)]
pub struct Swap(bowwave_region::Swap);

/// `bowwave_memory`.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    len: usize,
    /// Advice is given by one thread at a time.
    region: Mutex<SwapRegion>,
}

/// `struct bowwave_swap_counters`; the header says what they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the header has them")]
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

/// Opens a spill, for memory that may be larger than memory.
///
/// # Safety
/// A string that ends with a zero byte, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_open(
    spill: *const c_char,
    spill_bytes: u64,
    memory_bytes: u64,
) -> *mut Swap {
    call(|| {
        if spill.is_null() {
            return Err(Failure::invalid("the spill is NULL: name a file on a disk, or a folder"));
        }
        // SAFETY: as the caller says.
        let spill = Spill::file(unsafe { path(spill) }, spill_bytes);
        let memory_bytes = (memory_bytes > 0).then_some(memory_bytes);
        let options = SwapOptions { memory_bytes, ..SwapOptions::default() };
        Ok(give(Swap(bowwave_region::Swap::new(&spill, &options)?)))
    })
}

/// Closes it. Its memory keeps what it needs.
///
/// # Safety
/// A swap that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_close(swap: *mut Swap) {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { take(swap) };
        Ok(0)
    });
}

/// Memory, all zeros.
///
/// # Safety
/// A swap, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_new(swap: *const Swap, len: usize) -> *mut Memory {
    call(|| {
        // SAFETY: as the caller says.
        let region = unsafe { handle(swap, "swap")? }.0.region(len)?;
        Ok(give(Memory { address: region.as_ptr() as usize, len: region.len(), region: Mutex::new(region) }))
    })
}

/// Gives it back.
///
/// # Safety
/// Memory that nobody touches any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_free(memory: *mut Memory) {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { take(memory) };
        Ok(0)
    });
}

/// The first byte.
///
/// # Safety
/// Memory, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_address(memory: *const Memory) -> *mut c_void {
    // SAFETY: as the caller says.
    call(|| Ok(unsafe { handle(memory, "memory")? }.address as *mut c_void))
}

/// Bytes.
///
/// # Safety
/// Memory, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_size(memory: *const Memory) -> usize {
    // SAFETY: as the caller says.
    unsafe { memory.as_ref() }.map_or(0, |memory| memory.len)
}

/// Says how bytes will be touched, or gives them up.
///
/// # Safety
/// Memory, or NULL; nobody has a use for what it gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory_advise(
    memory: *const Memory,
    offset: usize,
    len: usize,
    advice: c_int,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
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

/// What has happened so far.
///
/// # Safety
/// A swap, or NULL; room for `bytes` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_swap_counters(
    swap: *const Swap,
    counters: *mut SwapCounters,
    bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
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
        // SAFETY: as the caller says.
        unsafe { hand_over(&known, counters, bytes) }
    })
}

/// In the order of the header's numbers. What is used once may go when it has been.
const ADVICE: [RegionAdvice; 6] = [
    RegionAdvice::Normal,
    RegionAdvice::Sequential,
    RegionAdvice::Random,
    RegionAdvice::WillNeed,
    RegionAdvice::DontNeed,
    RegionAdvice::PageOut,
];
/// Bytes of a page.
const PAGE: u64 = 4096;
