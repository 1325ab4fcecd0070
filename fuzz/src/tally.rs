//! Counts accepted inputs: the share shows whether a target tests more than rejections.

use std::sync::atomic::{AtomicU64, Ordering};

static ALL: AtomicU64 = AtomicU64::new(0);
static ACCEPTED: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Counts an input, and prints the counters whenever they have grown by a sixteenth: libFuzzer
/// exits without running destructors.
pub fn count(accepted: bool) {
    let passed = ACCEPTED.fetch_add(u64::from(accepted), Ordering::Relaxed) + u64::from(accepted);
    let all = ALL.fetch_add(1, Ordering::Relaxed) + 1;
    if all >= NEXT.load(Ordering::Relaxed) {
        NEXT.store(all + (all / 16).max(64), Ordering::Relaxed);
        eprintln!("stat::accepted_inputs: {passed} of {all}");
    }
}
