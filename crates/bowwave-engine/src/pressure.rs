//! Gives memory of the cache back while the system is short of memory, and takes it again.
//!
//! Linux reports the time that tasks wait for memory (pressure stall information). A control group
//! (v2) has a report of its own.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Frames given back, and the last look at the report.
#[derive(Debug)]
pub(crate) struct Pressure {
    report: PathBuf,
    /// Frames that the cache may use without pressure.
    frames: u32,
    given: u32,
    /// Waits so far, in µs, and when they were read.
    last: Option<(u64, Instant)>,
    calm_since: Option<Instant>,
}

/// What to do with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Keep,
    /// Give frames back to the system.
    Give(u32),
    /// Use frames again that were given back.
    Use(u32),
}

impl Pressure {
    /// For a cache of `frames` frames; `None` if the system reports no pressure.
    pub(crate) fn new(frames: u32) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let of_group = group.map(|path| PathBuf::from(format!("/sys/fs/cgroup/{path}/memory.pressure")));
        let reports = of_group.into_iter().chain([PathBuf::from("/proc/pressure/memory")]);
        let report = reports
            .into_iter()
            .find(|path| fs::read_to_string(path).is_ok_and(|text| waits(&text).is_some()))?;
        Some(Self { report, frames, given: 0, last: None, calm_since: None })
    }

    /// Reads the report.
    pub(crate) fn look(&mut self) -> Step {
        let waited = fs::read_to_string(&self.report).ok().and_then(|text| waits(&text));
        waited.map_or(Step::Keep, |waited| self.judge(waited, Instant::now()))
    }

    /// Frames were given back.
    pub(crate) fn gave(&mut self, frames: u32) {
        self.given += frames;
    }

    /// Decides, when tasks have waited for `waited` µs in total.
    fn judge(&mut self, waited: u64, now: Instant) -> Step {
        let Some((before, since)) = self.last.replace((waited, now)) else { return Step::Keep };
        let share =
            waited.saturating_sub(before) as f64 / now.duration_since(since).as_micros().max(1) as f64;
        if share >= SHORT_SHARE {
            self.calm_since = None;
            let least = (self.frames / KEPT_SHARE).max(1);
            let left = self.frames - self.given;
            let give = (left / 2).min(left.saturating_sub(least));
            return if give > 0 { Step::Give(give) } else { Step::Keep };
        }
        if share > CALM_SHARE {
            self.calm_since = None;
            return Step::Keep;
        }
        let calm_since = *self.calm_since.get_or_insert(now);
        if self.given == 0 || now.duration_since(calm_since) < CALM_MIN {
            return Step::Keep;
        }
        let again = (self.frames / USED_AGAIN_SHARE).clamp(1, self.given);
        self.given -= again;
        Step::Use(again)
    }
}

/// Total time that some task has waited, in µs.
fn waits(report: &str) -> Option<u64> {
    let some = report.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// Time between two looks. Longer: memory is given back late. Shorter: more wake-ups.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Share of time that tasks wait for memory at which frames are given back, half of them each time.
const SHORT_SHARE: f64 = 0.1;
/// Share of time up to which the system is calm.
const CALM_SHARE: f64 = 0.01;
/// How long the system is calm before frames are used again. Shorter: memory swings.
const CALM_MIN: Duration = Duration::from_secs(5);
/// One in this many frames always stays: readers need windows.
const KEPT_SHARE: u32 = 8;
/// One in this many frames is used again with each calm look.
const USED_AGAIN_SHARE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_time_that_some_task_waited() {
        let report = "some avg10=0.31 avg60=0.12 avg300=0.04 total=123456\n\
                      full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(waits(report), Some(123_456));
        assert_eq!(waits("full avg10=0.00 total=99\n"), None);
        assert_eq!(waits(""), None);
    }

    #[test]
    fn waits_for_memory_halve_the_cache_down_to_a_rest_and_calm_restores_it() {
        let mut pressure =
            Pressure { report: PathBuf::new(), frames: 1600, given: 0, last: None, calm_since: None };
        let (mut now, mut waited) = (Instant::now(), 0);
        let mut look = |pressure: &mut Pressure, share: f64| {
            now += LOOK_EVERY;
            waited += (LOOK_EVERY.as_micros() as f64 * share) as u64;
            let step = pressure.judge(waited, now);
            if let Step::Give(frames) = step {
                pressure.gave(frames);
            }
            step
        };
        assert_eq!(look(&mut pressure, 0.9), Step::Keep, "nothing to compare with");
        let gives: Vec<_> = (0..5).map(|_| look(&mut pressure, 0.5)).collect();
        assert_eq!(gives[..3], [Step::Give(800), Step::Give(400), Step::Give(200)]);
        assert_eq!(gives[3..], [Step::Keep, Step::Keep], "an eighth stays");
        assert_eq!(look(&mut pressure, 0.05), Step::Keep, "neither short nor calm");
        let steps: Vec<_> = (0..40).map(|_| look(&mut pressure, 0.0)).collect();
        assert!(steps[..10].iter().all(|&step| step == Step::Keep), "{steps:?}");
        assert_eq!(steps[10], Step::Use(100));
        assert_eq!((pressure.given, steps[39]), (0, Step::Keep), "all is used again");
        assert_eq!(look(&mut pressure, 0.2), Step::Give(800), "and given back again");
    }
}
