//! The end of a process: its journal, and its counters for `bowwave run --stats-on-exit`, one line.

use std::sync::atomic::{AtomicU32, Ordering};

use bowwave_interpose::{Inside, leave_counters, say};

use crate::heap;
use crate::setup::setup;

/// The process that owns the counters: a child of `vfork` shares the memory but must not report.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Records that this process has counters.
pub(crate) fn own() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// Flushes the journal. Writes the line of counters once, if this process has a swap and
/// a report is requested.
pub(crate) fn report() {
    let _inside = Inside::enter();
    if OWNER.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    // Nothing to do, so no lock: a signal handler may end the process while this thread holds it.
    if setup().journal.is_none() && setup().report.is_none() {
        return;
    }
    if let Some(warning) = heap::decisions().and_then(|decisions| decisions.finish()) {
        say(&warning);
    }
    let Some(path) = &setup().report else { return };
    let Some(all) = heap::counters() else { return };
    leave_counters(path, || {
        let mut counters = vec![
            ("swap_allocations", all.allocations),
            ("swap_bytes_allocated", all.bytes),
            ("swap_regions", all.regions),
        ];
        counters.extend(bowwave_control::swap_counters(&all.swap));
        counters
    });
}
