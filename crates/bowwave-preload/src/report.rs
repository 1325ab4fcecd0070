//! The end of a process: its journal, and its counters for `bowwave run --stats-on-exit`, one line.

use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_interpose::{Inside, leave_counters, say};

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
}

/// Flushes the journal. Writes the line of counters once, if this process has an engine
/// and a report is requested.
pub(crate) fn report() {
    let _inside = Inside::enter();
    // Nothing to do, so no lock: a signal handler may end the process while this thread holds it.
    if !table::is_own() || setup().journal.is_none() && setup().report.is_none() {
        return;
    }
    let Some(service) = *service::lock() else { return };
    let decisions = service.engine().options().decisions.as_ref();
    if let Some(warning) = decisions.and_then(|decisions| decisions.finish()) {
        say(&warning);
    }
    let Some(path) = &setup().report else { return };
    leave_counters(path, || {
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
        counters
    });
}
