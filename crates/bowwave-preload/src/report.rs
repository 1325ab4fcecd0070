//! What a process leaves for `bowwave run --stats-on-exit`: a line of counters.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "ends the process")]

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::inside::Inside;
use crate::setup::setup;
use crate::{maps, real, service, table};

/// Calls that were served and their bytes.
pub(crate) static READS: AtomicU64 = AtomicU64::new(0);
pub(crate) static BYTES_READ: AtomicU64 = AtomicU64::new(0);

/// A child reports for itself, its parent's reads apart.
pub(crate) fn begin_anew() {
    for counter in [&READS, &BYTES_READ] {
        counter.store(0, Ordering::Relaxed);
    }
    REPORTED.store(false, Ordering::Relaxed);
}

static REPORTED: AtomicBool = AtomicBool::new(false);

/// Writes the line, once, if this process has an engine and somebody wants to know.
pub(crate) fn report() {
    let _inside = Inside::enter();
    let Some(path) = &setup().report else { return };
    let Some(service) = *service::lock() else { return };
    if !table::is_own() || REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let stats = service.engine().stats();
    let regions = maps::counters();
    let counters: [(&str, u64); 18] = [
        ("reads", READS.load(Ordering::Relaxed)),
        ("bytes_read", BYTES_READ.load(Ordering::Relaxed)),
        ("faults", regions.faults),
        ("pages_mapped", regions.pages_mapped),
        ("pages_poisoned", regions.pages_poisoned),
        ("page_bytes", stats.page_bytes),
        ("accesses", stats.cache.accesses),
        ("hits", stats.cache.hits),
        ("late", stats.cache.late),
        ("misses", stats.cache.misses),
        ("pages_readahead", stats.cache.pages_readahead),
        ("pages_used", stats.cache.pages_used),
        ("pages_wasted", stats.cache.pages_wasted),
        ("pages_evicted", stats.cache.pages_evicted),
        ("requests", stats.store.requests),
        ("requests_failed", stats.store.requests_failed),
        ("retries", stats.store.retries),
        ("bytes_fetched", stats.store.bytes_fetched),
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
