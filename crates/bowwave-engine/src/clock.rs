//! Real time as the core wants it.

use std::time::Duration;

use bowwave_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started, in steps of the kernel's tick (1 to 10 ms).
///
/// A precise clock costs 40 to 50 ns, ten times a hit's decision; the core orders events and ages pages, for which a
/// tick is fine.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let elapsed = Duration::try_from(time).unwrap_or_default();
    // 2^64 ns are 584 years.
    Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// The same to the nanosecond, for what goes to a store: there 50 ns are nothing.
pub(crate) fn precise() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let elapsed = Duration::try_from(time).unwrap_or_default();
    Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// A [`precise`] time as the standard library has it, which counts the same clock from an unknown beginning.
pub(crate) fn instant(time: Instant) -> std::time::Instant {
    let (now, here) = (precise(), std::time::Instant::now());
    match time.0.checked_sub(now.0) {
        Some(ahead) => here.checked_add(Duration::from_nanos(ahead)).unwrap_or(here),
        None => here,
    }
}
