//! The limit of async requests at the device, so that a deep device queue does not delay demand.
//!
//! After Kyber (Linux), which limits each kind of request by measured latency. Kyber needs targets
//! in milliseconds. Here the target is relative to the best average time of sync requests beside at
//! most one async request. The best is forgotten slowly, since a device may become slower. While it
//! is unknown, the limit falls. Where throughput grows with every request at the device, the limit
//! also follows the [throughput](super::gain).

use super::gain::Gain;
use crate::time::Instant;

/// The limit, and its measurements.
#[derive(Clone, Debug)]
pub(super) struct AsyncDepth {
    max: u32,
    slowdown_max: u32,
    /// Averages up to this never count as slow.
    fast_ns: u64,
    now: u32,
    window_ends: Instant,
    /// Sync requests that ended in this window.
    all: Sum,
    /// Sync requests of `all` dispatched while at most one async request was at the device.
    alone: Sum,
    /// The lowest average of `alone` over a window.
    best_ns: u64,
    /// Successive windows without sync requests.
    silent: u32,
    /// Maximum bytes of an async request, and its bounds.
    bytes: u64,
    bytes_bounds: (u64, u64),
    /// If the limit follows the throughput.
    gain: Option<Gain>,
    window_start: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn average(self) -> Option<u64> {
        self.ns.checked_div(self.count)
    }
}

/// Length of a window. Shorter: too few requests of a disk. Longer: people notice the delays.
const WINDOW_NS: u64 = 100_000_000;
/// The best average grows by one in this many each window, so that it follows a device that becomes
/// slower by half within seconds.
const FORGET_SHARE: u64 = 64;
/// The same if the limit follows the throughput. It then hardly ever falls to one, so the best is
/// rarely measured and must be remembered for longer. It doubles in a minute.
const FORGET_SHARE_BY_GAIN: u64 = 1024;
/// Windows without sync requests until the limit grows: 2 s, so that it is kept between the syncs
/// of a program that syncs each second.
const SILENT_WINDOWS: u32 = 20;

impl AsyncDepth {
    pub(super) const fn new(max: u32, slowdown_max: u32, fast_ns: u64) -> Self {
        Self {
            max,
            slowdown_max,
            fast_ns,
            now: max,
            window_ends: Instant(0),
            all: Sum { count: 0, ns: 0 },
            alone: Sum { count: 0, ns: 0 },
            best_ns: u64::MAX,
            silent: 0,
            bytes: u64::MAX,
            bytes_bounds: (u64::MAX, u64::MAX),
            gain: None,
            window_start: Instant(0),
        }
    }

    /// Begins with `start`, if that is below the maximum, and follows the throughput.
    pub(super) fn by_gain(self, start: u32) -> Self {
        if start < self.max { Self { now: start, gain: Some(Gain::new()), ..self } } else { self }
    }

    /// Once the limit is one, splits async requests from `max` down to `min` bytes: one long
    /// request can make sync ones slow.
    pub(super) const fn shortening(self, min: u64, max: u64) -> Self {
        Self { bytes: max, bytes_bounds: (min, max), ..self }
    }

    /// Maximum bytes of an async request.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether another async request may go to the device, which has `at_device`.
    pub(super) fn may_dispatch(&mut self, now: Instant, at_device: u32) -> bool {
        self.turn(now);
        at_device < self.now
    }

    /// An async request waits although the device could take it.
    pub(super) const fn refused(&mut self) {
        if let Some(gain) = &mut self.gain {
            gain.refused();
        }
    }

    /// The device has completed a request.
    pub(super) fn done(&mut self, bytes: u64, is_async: bool) {
        if self.gain.as_mut().is_some_and(|gain| gain.done(bytes, is_async)) {
            self.now = (self.now + 1).min(self.max);
        }
    }

    /// Maximum async requests at the device.
    pub(super) const fn limit(&self) -> u32 {
        self.now
    }

    /// Records the time of a sync request at the device, and whether it was dispatched beside at
    /// most one async one.
    pub(super) fn sync_done(&mut self, now: Instant, took_ns: u64, alone: bool) {
        self.turn(now);
        for sum in [Some(&mut self.all), alone.then_some(&mut self.alone)].into_iter().flatten() {
            sum.count += 1;
            sum.ns = sum.ns.saturating_add(took_ns);
        }
    }

    /// Ends a window that is over: halves the limit if sync requests were slow, else raises it by
    /// one; doubles it if there were none for long.
    fn turn(&mut self, now: Instant) {
        if now < self.window_ends || self.slowdown_max == u32::MAX {
            return;
        }
        self.window_ends = Instant(now.0.saturating_add(WINDOW_NS));
        let passed = now.0 - core::mem::replace(&mut self.window_start, now).0;
        let given_back = self.gain.as_mut().and_then(|gain| gain.turn(passed));
        self.now = given_back.unwrap_or(self.now);
        let Some(average) = self.all.average() else {
            self.silent = self.silent.saturating_add(1);
            if self.silent > SILENT_WINDOWS {
                self.now = self.now.saturating_mul(2).min(self.max);
                self.bytes = self.bytes.saturating_mul(2).min(self.bytes_bounds.1);
            }
            return;
        };
        self.silent = 0;
        let share = if self.gain.is_some() { FORGET_SHARE_BY_GAIN } else { FORGET_SHARE };
        self.best_ns = self.best_ns.saturating_add(self.best_ns / share);
        if let Some(alone) = self.alone.average() {
            self.best_ns = self.best_ns.min(alone);
        }
        (self.all, self.alone) = (Sum::default(), Sum::default());
        let slow = average > self.fast_ns
            && (self.best_ns == u64::MAX || average > self.best_ns.saturating_mul(self.slowdown_max.into()));
        if let Some(gain) = &mut self.gain
            && slow
            && !gain.halves(self.now)
        {
            return;
        }
        match (slow, self.now) {
            (true, 1) => self.bytes = (self.bytes / 2).max(self.bytes_bounds.0),
            (true, _) => self.now /= 2,
            (false, _) if self.bytes < self.bytes_bounds.1 => {
                self.bytes = self.bytes.saturating_mul(2).min(self.bytes_bounds.1);
            }
            (false, _) => self.now = (self.now + 1).min(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ten sync requests of `took_ms` in each of `windows` windows from `at` on.
    fn feed(depth: &mut AsyncDepth, at: &mut u64, windows: u64, took_ms: u64) {
        for _ in 0..windows * 10 {
            *at += 10 * MS;
            depth.sync_done(Instant(*at), took_ms * MS, true);
        }
    }

    #[test]
    fn slow_sync_requests_shrink_it_to_one_and_fast_ones_and_silence_let_it_grow() {
        let (mut depth, mut at) = (AsyncDepth::new(32, 2, 0), 0);
        feed(&mut depth, &mut at, 3, 5);
        assert_eq!(depth.limit(), 32, "twice the best is the bound, and this is the best");
        feed(&mut depth, &mut at, 7, 50);
        assert_eq!(depth.limit(), 1, "half of it each window, and never none");
        assert!(depth.may_dispatch(Instant(at), 0) && !depth.may_dispatch(Instant(at), 1));
        feed(&mut depth, &mut at, 4, 6);
        assert!((3..=5).contains(&depth.limit()), "{}", depth.limit());
        let before = depth.limit();
        for window in 1..20 {
            depth.may_dispatch(Instant(at + window * 100 * MS), 0);
        }
        assert!(depth.limit() <= before + 1, "it is kept between syncs of each second");
        for window in 20..28 {
            depth.may_dispatch(Instant(at + window * 100 * MS), 0);
        }
        assert_eq!(depth.limit(), 32);
    }

    #[test]
    fn the_last_one_is_shortened_and_lengthened_before_it_gets_company_again() {
        let (mut depth, mut at) = (AsyncDepth::new(4, 2, 0).shortening(32, 256), 0);
        feed(&mut depth, &mut at, 3, 5);
        feed(&mut depth, &mut at, 3, 50);
        assert_eq!((depth.limit(), depth.bytes()), (1, 256));
        feed(&mut depth, &mut at, 9, 50);
        assert_eq!((depth.limit(), depth.bytes()), (1, 32));
        feed(&mut depth, &mut at, 3, 5);
        assert_eq!((depth.limit(), depth.bytes()), (1, 128));
        feed(&mut depth, &mut at, 4, 5);
        assert!(depth.limit() > 1 && depth.bytes() == 256);
    }

    #[test]
    fn it_goes_down_until_it_is_known_what_sync_requests_take_alone() {
        let (mut depth, mut at) = (AsyncDepth::new(32, 2, 0), 0);
        while depth.limit() > 1 {
            at += 10 * MS;
            depth.sync_done(Instant(at), 200 * MS, false);
            assert!(at < 1000 * MS, "half of it each window");
        }
        feed(&mut depth, &mut at, 5, 10);
        let grown = depth.limit();
        assert!((3..=6).contains(&grown), "{grown}");
    }

    #[test]
    fn a_device_that_became_slower_for_good_gets_its_depth_back() {
        let (mut depth, mut at) = (AsyncDepth::new(32, 2, 0), 0);
        feed(&mut depth, &mut at, 3, 5);
        feed(&mut depth, &mut at, 20, 30);
        assert_eq!(depth.limit(), 1);
        feed(&mut depth, &mut at, 130, 30);
        assert_eq!(depth.limit(), 32);
    }

    #[test]
    fn what_is_fast_in_itself_is_not_slow_beside_something_faster() {
        let (mut depth, mut at) = (AsyncDepth::new(32, 2, 20 * MS), 0);
        feed(&mut depth, &mut at, 3, 1);
        feed(&mut depth, &mut at, 30, 19);
        assert_eq!(depth.limit(), 32);
        feed(&mut depth, &mut at, 30, 90);
        assert_eq!(depth.limit(), 1);
    }

    #[test]
    fn without_a_bound_on_slowdown_it_stays() {
        let (mut depth, mut at) = (AsyncDepth::new(32, u32::MAX, 0), 0);
        feed(&mut depth, &mut at, 3, 1);
        feed(&mut depth, &mut at, 30, 500);
        assert_eq!(depth.limit(), 32);
    }
}
