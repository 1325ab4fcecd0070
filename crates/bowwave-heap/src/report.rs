//! What a process leaves for `bowwave run --stats-on-exit`: a line of counters.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "ends the process")]

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::inside::Inside;
use crate::setup::setup;
use crate::{heap, real};

/// Whose counters they are: a child of `vfork` has the same memory, but is not asked.
static OWNER: AtomicU32 = AtomicU32::new(0);
static REPORTED: AtomicBool = AtomicBool::new(false);

/// A child reports for itself.
pub(crate) fn begin_anew() {
    REPORTED.store(false, Ordering::Relaxed);
}

/// This process has what can be reported.
pub(crate) fn own() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// Writes the line, once, if this process has a swap and somebody wants to know.
pub(crate) fn report() {
    let _inside = Inside::enter();
    let Some(path) = &setup().report else { return };
    if OWNER.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let Some(all) = heap::counters() else { return };
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let (stats, load) = (all.swap.stats, all.swap.load);
    let counters: [(&str, u64); 24] = [
        ("swap_allocations", all.allocations),
        ("swap_bytes_allocated", all.bytes),
        ("swap_regions", all.regions),
        ("swap_minor_faults", stats.minor_faults),
        ("swap_major_faults", stats.major_faults),
        ("swap_late", stats.late),
        ("swap_ra", stats.swap_ra),
        ("swap_ra_hit", stats.swap_ra_hit),
        ("swap_mapped_ahead", stats.mapped_ahead),
        ("swap_wasted", stats.wasted),
        ("swap_in", stats.swap_in),
        ("swap_out", stats.swap_out),
        ("swap_dropped", stats.dropped),
        ("swap_zero_out", stats.zero_out),
        ("swap_zero_in", stats.zero_in),
        ("swap_read_errors", stats.read_errors),
        ("swap_write_errors", stats.write_errors),
        ("swap_requests", all.swap.requests),
        ("swap_bytes_read", all.swap.bytes_read),
        ("swap_bytes_written", all.swap.bytes_written),
        ("swap_frames", load.frames),
        ("swap_frames_used", load.frames_used),
        ("swap_slots", load.slots),
        ("swap_slots_used", load.slots_used),
    ];
    let words: Vec<String> = counters.iter().map(|(name, count)| format!("{name}={count}")).collect();
    let line = format!("pid={} {}\n", std::process::id(), words.join(" "));
    // One write to a file open for appending: lines of several processes do not mix. Who wants them misses one otherwise.
    let _uncounted =
        OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Ends the process at once; children of forks often end so.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    report();
    // SAFETY: as the caller says.
    unsafe { real::_exit(status) }
}

/// The same by its other name.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    report();
    // SAFETY: as the caller says; the two are one in the C library.
    unsafe { real::_exit(status) }
}
