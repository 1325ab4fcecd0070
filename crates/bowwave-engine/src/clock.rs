//! Real time, as the core represents it.

use std::time::Duration;

use bowwave_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since boot, in steps of the kernel's tick (1 to 10 ms).
///
/// A precise clock costs 40 to 50 ns, ten times a hit's decision. The core orders events and ages
/// pages, for which a tick suffices.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let elapsed = Duration::try_from(time).unwrap_or_default();
    // 2^64 ns are 584 years.
    Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// As [`now`], exact to the nanosecond, for requests to a store: there 50 ns are negligible.
pub(crate) fn precise() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let elapsed = Duration::try_from(time).unwrap_or_default();
    Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// A [`precise`] time for the standard library, which counts the same clock from an unknown start.
pub(crate) fn instant(time: Instant) -> std::time::Instant {
    let (now, here) = (precise(), std::time::Instant::now());
    match time.0.checked_sub(now.0) {
        Some(ahead) => here.checked_add(Duration::from_nanos(ahead)).unwrap_or(here),
        None => here,
    }
}
