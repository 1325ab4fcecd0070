//! Whether reads use the disk: after a time-out they bypass it for a while, then one read at a time
//! probes it.

use std::time::{Duration, Instant};

/// Time limits of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A read that the disk has not completed by then goes to the store.
    pub(super) answer: Duration,
    /// How long reads bypass the disk after a first time-out.
    pub(super) back_off: Duration,
    /// Longest bypass after repeated time-outs: each doubles it up to this.
    pub(super) back_off_max: Duration,
}

impl Limits {
    /// The limits for a store of this typical TTFB. With a larger `answer`, readers wait longer for
    /// a hanging disk; with a smaller one, a busy disk counts as hanging.
    pub(super) fn over(latency: Duration) -> Self {
        Self {
            answer: (4 * latency).max(Duration::from_secs(1)),
            back_off: Duration::from_secs(1),
            back_off_max: Duration::from_secs(60),
        }
    }
}

/// Where a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// To the disk.
    Ask,
    /// To the disk, as its only read.
    Probe,
    /// To the store.
    Bypass,
}

#[derive(Debug)]
enum State {
    Up { since: Instant },
    Down { until: Instant },
    Probing,
}

/// State of a disk, by the results of its reads.
#[derive(Debug)]
pub(super) struct Health {
    limits: Limits,
    state: State,
    /// Bypass after the last time-out.
    back_off: Duration,
}

impl Health {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, state: State::Up { since: now }, back_off: Duration::ZERO }
    }

    /// Where a read that begins now goes; `is_idle` means that a thread is idle.
    pub(super) fn admit(&mut self, now: Instant, is_idle: bool) -> Admission {
        match self.state {
            State::Up { .. } => Admission::Ask,
            State::Down { until } if now >= until && is_idle => {
                self.state = State::Probing;
                Admission::Probe
            }
            State::Down { .. } | State::Probing => Admission::Bypass,
        }
    }

    /// Whether reads use the disk.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The disk completed a probe, even with an error.
    pub(super) fn answered(&mut self, now: Instant) {
        self.state = State::Up { since: now };
    }

    /// The disk did not complete a read in time.
    pub(super) fn timed_out(&mut self, now: Instant) {
        let again = match self.state {
            // Several reads that time out together count once.
            State::Down { .. } => return,
            State::Up { since } => now.saturating_duration_since(since) < self.back_off,
            State::Probing => true,
        };
        let Limits { back_off, back_off_max, .. } = self.limits;
        self.back_off = if again { (2 * self.back_off).clamp(back_off, back_off_max) } else { back_off };
        self.state = State::Down { until: now + self.back_off };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_disk_that_times_out_is_bypassed_and_probed_by_one_read_after_growing_pauses() {
        let mut now = Instant::now();
        let mut health = Health::new(Limits::over(Duration::ZERO), now);
        assert_eq!(health.admit(now, true), Admission::Ask);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            health.timed_out(now);
            health.timed_out(now);
            assert_eq!(health.admit(now + pause * SECOND - SECOND / 2, true), Admission::Bypass, "{pause}");
            now += pause * SECOND;
            assert_eq!(health.admit(now, false), Admission::Bypass, "all threads wait for the disk");
            assert_eq!(health.admit(now, true), Admission::Probe, "{pause}");
            assert_eq!(health.admit(now, true), Admission::Bypass, "one is enough");
            assert!(!health.is_up());
        }
        health.answered(now);
        assert_eq!(health.admit(now, true), Admission::Ask);
        health.timed_out(now + SECOND);
        assert_eq!(health.admit(now + 60 * SECOND, true), Admission::Bypass, "it was up for a moment only");
        assert_eq!(health.admit(now + 61 * SECOND, true), Admission::Probe);
        now += 61 * SECOND;
        health.answered(now);
        now += 61 * SECOND;
        health.timed_out(now);
        assert_eq!(health.admit(now + SECOND, true), Admission::Probe, "it was up for long");
    }

    #[test]
    fn the_time_to_answer_grows_with_the_latency_of_the_store() {
        let answer = |millis| Limits::over(Duration::from_millis(millis)).answer;
        assert_eq!([0, 30, 250, 900].map(answer), [1000, 1000, 1000, 3600].map(Duration::from_millis));
    }
}
