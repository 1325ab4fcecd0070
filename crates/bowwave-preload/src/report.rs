//! Counters of a process for `bowwave run --stats-on-exit`, one line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bowwave_interpose::{Inside, leave_counters};

use crate::setup::setup;
use crate::{maps, service, table};

/// Served calls and their bytes.
pub(crate) static READS: AtomicU64 = AtomicU64::new(0);
pub(crate) static BYTES_READ: AtomicU64 = AtomicU64::new(0);

/// A child reports its own counters, without its parent's reads.
pub(crate) fn reset() {
    for counter in [&READS, &BYTES_READ] {
        counter.store(0, Ordering::Relaxed);
    }
    REPORTED.store(false, Ordering::Relaxed);
}

static REPORTED: AtomicBool = AtomicBool::new(false);

/// Writes the line once, if this process has an engine and a report is requested.
pub(crate) fn report() {
    let _inside = Inside::enter();
    let Some(path) = &setup().report else { return };
    let Some(service) = *service::lock() else { return };
    if !table::is_own() || REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let stats = service.engine().stats();
    let regions = maps::counters();
    let mut counters = vec![
        ("reads", READS.load(Ordering::Relaxed)),
        ("bytes_read", BYTES_READ.load(Ordering::Relaxed)),
        ("faults", regions.faults),
        ("pages_mapped", regions.pages_mapped),
        ("pages_poisoned", regions.pages_poisoned),
    ];
    counters.extend(bowwave_control::cache_counters(&stats));
    leave_counters(path, &counters);
}
