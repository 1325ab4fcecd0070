//! Gives memory of the cache back while the system is short of memory, and takes it again.
//!
//! Linux reports the time that tasks wait for memory (pressure stall information), and counts
//! refaults. Only both together mean that memory is short: a control group whose pages are mostly
//! files that were read once makes tasks wait, too, but loses nothing. A control group (v2) has
//! reports of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Frames given back, and the last look at the report.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// Reports of waits and of refaults.
    waits: PathBuf,
    counters: PathBuf,
    /// Frames that the cache may use without pressure.
    frames: u32,
    given: u32,
    /// The last look, and when it was.
    last: Option<(Seen, Instant)>,
    calm_since: Option<Instant>,
}

/// The reports of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Time that some task has waited so far, in µs.
    waited: u64,
    /// Pages that were evicted and faulted in again so far.
    refaults: u64,
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
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
        // A group without the memory controller has no `memory.stat`; its memory counts in the
        // next group above that has.
        let of_groups = Path::new(group.unwrap_or("")).ancestors().map(|group| {
            let of = |report| PathBuf::from(format!("/sys/fs/cgroup{}/memory.{report}", group.display()));
            (of("pressure"), of("stat"))
        });
        let of_system = ("/proc/pressure/memory".into(), "/proc/vmstat".into());
        let (waits, counters) = of_groups
            .chain([of_system])
            .find(|(waits, counters): &(PathBuf, PathBuf)| seen(waits, counters).is_some())?;
        Some(Self { waits, counters, frames, given: 0, last: None, calm_since: None })
    }

    /// Reads the reports.
    pub(crate) fn look(&mut self) -> Step {
        seen(&self.waits, &self.counters).map_or(Step::Keep, |seen| self.judge(seen, Instant::now()))
    }

    /// Frames were given back.
    pub(crate) fn gave(&mut self, frames: u32) {
        self.given += frames;
    }

    /// Decides by the difference to the last look.
    fn judge(&mut self, seen: Seen, now: Instant) -> Step {
        let Some((before, since)) = self.last.replace((seen, now)) else { return Step::Keep };
        let waited = seen.waited.saturating_sub(before.waited);
        let share = waited as f64 / now.duration_since(since).as_micros().max(1) as f64;
        let refaults = seen.refaults.saturating_sub(before.refaults);
        if share >= SHORT_SHARE && refaults >= SHORT_PAGES {
            self.calm_since = None;
            let least = (self.frames / KEPT_SHARE).max(1);
            let left = self.frames - self.given;
            let give = (left / 2).min(left.saturating_sub(least));
            return if give > 0 { Step::Give(give) } else { Step::Keep };
        }
        if share > CALM_SHARE && refaults >= SHORT_PAGES / 8 {
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

fn seen(waits: &Path, counters: &Path) -> Option<Seen> {
    let waited = waited(&fs::read_to_string(waits).ok()?)?;
    Some(Seen { waited, refaults: refaults(&fs::read_to_string(counters).ok()?)? })
}

/// Total time that some task has waited, in µs.
fn waited(report: &str) -> Option<u64> {
    let some = report.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// Refaults of files and of anonymous memory. Kernels before 5.9 count only those of files, so
/// pages that were swapped in count, too; newer ones count these twice.
fn refaults(counters: &str) -> Option<u64> {
    let counts = counters
        .lines()
        .filter_map(|line| line.strip_prefix("workingset_refault").or_else(|| line.strip_prefix("pswpin")));
    let counts: Option<Vec<u64>> = counts.map(|rest| rest.split(' ').nth(1)?.parse().ok()).collect();
    counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
}

/// Time between two looks. Longer: memory is given back late. Shorter: more wake-ups.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Share of time that tasks wait for memory at which frames are given back, half of them each time.
const SHORT_SHARE: f64 = 0.1;
/// Refaults between two looks below which memory is not short, however long tasks wait. More: a
/// slow disk brings fewer pages back. Fewer: a program that starts counts as a shortage.
const SHORT_PAGES: u64 = 32;
/// Share of time up to which the system is calm. With fewer refaults than an eighth of
/// [`SHORT_PAGES`] it is calm, too.
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
        assert_eq!(waited(report), Some(123_456));
        assert_eq!(waited("full avg10=0.00 total=99\n"), None);
        assert_eq!(waited(""), None);
    }

    #[test]
    fn refaults_are_those_of_files_and_of_anonymous_memory() {
        let counters = "anon 5\nworkingset_refault_anon 3\nworkingset_refault_file 40\nworkingset_nodes 9\n";
        assert_eq!(refaults(counters), Some(43));
        assert_eq!(refaults("nr_free_pages 7\nworkingset_refault 12\npswpin 5\n"), Some(17));
        assert_eq!(refaults("nr_free_pages 7\n"), None);
        assert_eq!(refaults("workingset_refault many\n"), None);
    }

    fn pressure() -> Pressure {
        let nowhere = PathBuf::new();
        Pressure {
            waits: nowhere.clone(),
            counters: nowhere,
            frames: 1600,
            given: 0,
            last: None,
            calm_since: None,
        }
    }

    /// Regression: a mount gave memory back in a group full of pages that were read once.
    #[test]
    fn waits_without_refaults_are_no_shortage() {
        let (mut pressure, mut now) = (pressure(), Instant::now());
        for look in 1..=10 {
            now += LOOK_EVERY;
            let seen = Seen { waited: look * 400_000, refaults: look * (SHORT_PAGES - 1) };
            assert_eq!(pressure.judge(seen, now), Step::Keep);
        }
        // What was given back before is used again.
        pressure.given = 800;
        for look in 11..=21 {
            now += LOOK_EVERY;
            pressure.judge(Seen { waited: look * 400_000, refaults: 10 * (SHORT_PAGES - 1) }, now);
        }
        assert_eq!(pressure.given, 700);
    }

    #[test]
    fn a_shortage_halves_the_cache_down_to_a_rest_and_calm_restores_it() {
        let (mut pressure, mut now) = (pressure(), Instant::now());
        let mut seen = Seen { waited: 0, refaults: 0 };
        let mut look = |pressure: &mut Pressure, share: f64| {
            now += LOOK_EVERY;
            seen.waited += (LOOK_EVERY.as_micros() as f64 * share) as u64;
            seen.refaults += SHORT_PAGES;
            let step = pressure.judge(seen, now);
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
