//! What a limit on async requests is worth: bytes that come through under it.
//!
//! A store of many servers behind a link is slow for reasons of its own, and each of its connections may carry as much as the
//! last. How many pay is found out: the limit begins low and grows by one with each async request that comes back, as the
//! window of TCP does; and what is given up because demand is slow is taken back if less comes through without it.

/// The windows of a limit.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    /// Sync requests were never slow so far.
    starting: bool,
    /// Whether more async requests than the limit wanted to go, in this window.
    binding: bool,
    /// Bytes that came back in this window.
    done: u64,
    /// Most bytes a second of one lately.
    rate_max: u64,
    /// What was given up lately.
    abandoned: Option<GivenUp>,
    /// Windows until the limit may be halved again.
    hold: u32,
}

/// A limit that was halved.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    limit: u32,
    /// Windows since.
    windows: u32,
}

/// In the first window after it was halved, requests come back that went to the device before.
const SETTLED_WINDOWS: u32 = 2;
/// With half of them, at least so many percent must come through. Not of what it was before: several halves might cost a little each.
const KEPT_PERCENT: u64 = 85;
/// The most that came through is forgotten by this part of it in a window: by half in some four seconds.
const FORGET_SHARE: u64 = 64;
/// Windows after which it is tried again, if less did: 2 s.
const HOLD_WINDOWS: u32 = 20;

impl Gain {
    pub(super) const fn new() -> Self {
        Self { starting: true, binding: false, done: 0, rate_max: 0, abandoned: None, hold: 0 }
    }

    /// An async request stays behind because of the limit.
    pub(super) const fn refused(&mut self) {
        self.binding = true;
    }

    /// A request has come back. Whether there may be one more.
    pub(super) const fn done(&mut self, bytes: u64, is_async: bool) -> bool {
        self.done = self.done.saturating_add(bytes);
        is_async && self.starting && self.binding
    }

    /// A window of so long is over. The limit before it was halved, if that has cost too much.
    pub(super) fn turn(&mut self, passed_ns: u64) -> Option<u32> {
        let bytes = u128::from(core::mem::take(&mut self.done));
        let rate = u64::try_from(bytes * 1_000_000_000 / u128::from(passed_ns.max(1))).unwrap_or(u64::MAX);
        self.rate_max = rate.max(self.rate_max - self.rate_max / FORGET_SHARE);
        let was_binding = core::mem::take(&mut self.binding);
        self.hold = self.hold.saturating_sub(1);
        let abandoned = self.abandoned.as_mut()?;
        abandoned.windows += 1;
        let GivenUp { limit, windows } = *abandoned;
        if windows < SETTLED_WINDOWS {
            return None;
        }
        self.abandoned = None;
        // If the limit kept nothing back, fewer bytes were asked for.
        let cost = was_binding && rate < self.rate_max / 100 * KEPT_PERCENT;
        if cost {
            self.hold = HOLD_WINDOWS;
        }
        cost.then_some(limit)
    }

    /// Sync requests were slow in the window that is over: whether the limit of then is to be halved.
    pub(super) fn halves(&mut self, limit: u32) -> bool {
        self.starting = false;
        if self.hold > 0 || self.abandoned.is_some() {
            return false;
        }
        self.abandoned = Some(GivenUp { limit, windows: 0 });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 100_000_000;
    const MB: u64 = 1_000_000;

    /// A window in which so many bytes came back and more wanted to go.
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
    fn fewer_bytes_that_nobody_held_back_were_not_asked_for() {
        let mut gain = Gain::new();
        window(&mut gain, 6 * MB);
        assert!(gain.halves(32));
        window(&mut gain, 6 * MB);
        gain.done(MB, true);
        assert_eq!(gain.turn(WINDOW_NS), None);
        assert!(gain.halves(16));
    }
}
