//! The throughput under a limit on async requests.
//!
//! A store of many servers behind a link may be slow without being busy, and throughput may grow
//! with each connection. So the useful number is measured. The limit begins low and grows by one
//! with each completed async request, like TCP's window. A limit that was halved because demand is
//! slow is restored if throughput falls.

/// Throughput by window.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    /// Sync requests were never slow so far.
    starting: bool,
    /// Whether the limit held back async requests in this window.
    binding: bool,
    /// Bytes completed in this window.
    done: u64,
    /// Recent maximum of bytes a second.
    rate_max: u64,
    /// The recent halving whose effect is not known yet.
    halved: Option<Halved>,
    /// Windows until the limit may be halved again.
    hold: u32,
}

/// A halved limit.
#[derive(Clone, Copy, Debug)]
struct Halved {
    /// The limit before.
    limit: u32,
    /// Windows since.
    windows: u32,
}

/// Windows after which a halving is judged: in the first one, requests from before it complete.
const SETTLED_WINDOWS: u32 = 2;
/// Minimum throughput after a halving, in percent of the recent maximum. Relative to the throughput
/// before it, several halvings could each cost a little.
const KEPT_PERCENT: u64 = 85;
/// The maximum falls by one in this many each window: by half in about four seconds.
const FORGET_SHARE: u64 = 64;
/// Windows without another halving after one that cost too much: 2 s.
const HOLD_WINDOWS: u32 = 20;

impl Gain {
    pub(super) const fn new() -> Self {
        Self { starting: true, binding: false, done: 0, rate_max: 0, halved: None, hold: 0 }
    }

    /// The limit holds back an async request.
    pub(super) const fn refused(&mut self) {
        self.binding = true;
    }

    /// A request has completed. Returns whether the limit grows by one.
    pub(super) const fn done(&mut self, bytes: u64, is_async: bool) -> bool {
        self.done = self.done.saturating_add(bytes);
        is_async && self.starting && self.binding
    }

    /// A window has ended. Returns the limit to restore, if halving it cost too much.
    pub(super) fn turn(&mut self, passed_ns: u64) -> Option<u32> {
        let bytes = u128::from(core::mem::take(&mut self.done));
        let rate = u64::try_from(bytes * 1_000_000_000 / u128::from(passed_ns.max(1))).unwrap_or(u64::MAX);
        self.rate_max = rate.max(self.rate_max - self.rate_max / FORGET_SHARE);
        let was_binding = core::mem::take(&mut self.binding);
        self.hold = self.hold.saturating_sub(1);
        let halved = self.halved.as_mut()?;
        halved.windows += 1;
        let Halved { limit, windows } = *halved;
        if windows < SETTLED_WINDOWS {
            return None;
        }
        self.halved = None;
        // If the limit held back no request, fewer bytes were requested.
        let cost = was_binding && rate < self.rate_max / 100 * KEPT_PERCENT;
        if cost {
            self.hold = HOLD_WINDOWS;
        }
        cost.then_some(limit)
    }

    /// Sync requests were slow in the last window. Returns whether to halve the limit.
    pub(super) fn halves(&mut self, limit: u32) -> bool {
        self.starting = false;
        if self.hold > 0 || self.halved.is_some() {
            return false;
        }
        self.halved = Some(Halved { limit, windows: 0 });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 100_000_000;
    const MB: u64 = 1_000_000;

    /// A window in which `bytes` bytes completed and the limit held back more.
    fn window(gain: &mut Gain, bytes: u64) -> Option<u32> {
        gain.refused();
        gain.done(bytes, true);
        gain.turn(WINDOW_NS)
    }

    #[test]
    fn it_grows_with_each_async_request_that_comes_back_until_demand_is_slow() {
        let mut gain = Gain::new();
        assert!(!gain.done(MB, true), "nothing had to wait");
        gain.refused();
        assert!(gain.done(MB, true) && gain.done(MB, true) && !gain.done(MB, false));
        gain.turn(WINDOW_NS);
        assert!(gain.halves(32));
        gain.refused();
        assert!(!gain.done(MB, true));
    }

    #[test]
    fn what_costs_a_sixth_is_taken_back_and_tried_again_after_two_seconds() {
        let mut gain = Gain::new();
        window(&mut gain, 6 * MB);
        assert!(gain.halves(32));
        assert_eq!(window(&mut gain, 6 * MB), None, "what was at the device comes back");
        assert!(!gain.halves(16), "one thing at a time");
        assert_eq!(window(&mut gain, 5 * MB), Some(32));
        for _ in 1..HOLD_WINDOWS {
            window(&mut gain, 6 * MB);
            assert!(!gain.halves(32));
        }
        window(&mut gain, 6 * MB);
        assert!(gain.halves(32));
    }

    #[test]
    fn what_costs_nothing_is_given_up_further() {
        let mut gain = Gain::new();
        window(&mut gain, 6 * MB);
        for limit in [32, 16, 8] {
            assert!(gain.halves(limit));
            assert_eq!((window(&mut gain, 6 * MB), window(&mut gain, 6 * MB)), (None, None));
        }
    }

    #[test]
    fn what_costs_a_little_each_time_is_not_given_up_bit_by_bit() {
        let mut gain = Gain::new();
        window(&mut gain, 100 * MB);
        assert!(gain.halves(32));
        assert_eq!((window(&mut gain, 90 * MB), window(&mut gain, 90 * MB)), (None, None));
        assert!(gain.halves(16));
        assert_eq!((window(&mut gain, 78 * MB), window(&mut gain, 78 * MB)), (None, Some(16)));
    }

    #[test]
    fn fewer_bytes_below_the_limit_restore_nothing() {
        let mut gain = Gain::new();
        window(&mut gain, 6 * MB);
        assert!(gain.halves(32));
        window(&mut gain, 6 * MB);
        gain.done(MB, true);
        assert_eq!(gain.turn(WINDOW_NS), None);
        assert!(gain.halves(16));
    }
}
