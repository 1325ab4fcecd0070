//! The run over time: rates, request sizes, device load.

use serde::Serialize;

use crate::record::{Run, Samples};

/// Maximum steps of a picture; more are joined.
const STEPS_MAX: usize = 250;

/// A run over time. Lists have one value per step.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Pace {
    /// End of each step, seconds.
    time: Vec<f64>,
    /// Share of the step the device was busy, 0 to 1.
    busy: Vec<f64>,
    /// Maximum requests at the device or waiting for it.
    queued: Vec<u32>,
    /// Maximum async requests among them; empty if not recorded.
    queued_async: Vec<u32>,
    /// Requests dispatched past their deadlines; empty if not recorded.
    expired: Vec<u32>,
    /// Bytes per second read from the device.
    fetched: Vec<f64>,
    /// Bytes per second delivered to readers.
    delivered: Vec<f64>,
    /// Mean bytes of a request; `None` in a step without requests.
    request: Vec<Option<f64>>,
    /// Pages per second evicted unused and then missed; empty if not recorded.
    thrashed: Vec<f64>,
    /// Recorded steps in one shown.
    #[serde(skip)]
    pub(super) joined: usize,
    /// Highest delivered rate of a step, in bytes per second.
    #[serde(skip)]
    pub(super) delivered_max: f64,
    /// Smallest mean request of a step, in bytes, after the first tenth of the time.
    #[serde(skip)]
    pub(super) request_min: Option<f64>,
    /// Pages evicted unused and then missed, and the second when that began; `None` if never.
    #[serde(skip)]
    pub(super) thrashing: Option<(u64, f64)>,
    /// Mean requests at the device or waiting.
    #[serde(skip)]
    pub(super) queued_mean: f64,
    /// Whether there are any samples.
    #[serde(skip)]
    pub(super) is_empty: bool,
}

impl Pace {
    /// Joins adjacent samples until they fit the picture.
    pub(super) fn of(run: &Run) -> Self {
        let samples = &run.samples;
        let count = samples.time_ns.len();
        let joined = count.div_ceil(STEPS_MAX).max(1);
        let mut pace = Self { joined, is_empty: count == 0, ..Self::default() };
        let mut from_ns = 0;
        for first in (0..count).step_by(joined) {
            pace.join(samples, first, (first + joined).min(count), from_ns);
            from_ns = samples.time_ns[(first + joined).min(count) - 1];
        }
        pace.queued_mean =
            samples.queued.iter().map(|&queued| f64::from(queued)).sum::<f64>() / count.max(1) as f64;
        pace.thrashing = samples.thrashed.iter().position(|pages| *pages > 0).map(|first| {
            let all = samples.thrashed.iter().fold(0, |sum: u64, pages| sum.saturating_add(*pages));
            (all, samples.time_ns[first] as f64 / 1e9)
        });
        pace.delivered_max = pace.delivered.iter().copied().fold(0.0, f64::max);
        pace.request_min =
            pace.request.iter().skip(pace.request.len() / 10).flatten().copied().reduce(f64::min);
        pace
    }

    /// Appends the samples `first` to `end` as one step that starts at `from_ns`.
    fn join(&mut self, samples: &Samples, first: usize, end: usize, from_ns: u64) {
        let (mut busy, mut fetched, mut delivered, mut requests, mut queued) = (0.0, 0_u64, 0_u64, 0_u64, 0);
        let mut before = from_ns;
        for index in first..end {
            let step = samples.time_ns[index].saturating_sub(before) as f64;
            before = samples.time_ns[index];
            busy += samples.busy[index] * step;
            fetched = fetched.saturating_add(samples.bytes_fetched[index]);
            delivered = delivered.saturating_add(samples.bytes_delivered[index]);
            requests += u64::from(samples.requests[index]);
            queued = queued.max(samples.queued[index]);
        }
        let nanoseconds = before.saturating_sub(from_ns) as f64;
        if nanoseconds <= 0.0 {
            return;
        }
        let seconds = nanoseconds / 1e9;
        self.time.push(before as f64 / 1e9);
        self.busy.push(short(busy / nanoseconds));
        self.queued.push(queued);
        self.fetched.push(short(fetched as f64 / seconds));
        self.delivered.push(short(delivered as f64 / seconds));
        if let Some(pages) = samples.thrashed.get(first..end) {
            let pages = pages.iter().fold(0, |sum: u64, pages| sum.saturating_add(*pages));
            self.thrashed.push(short(pages as f64 / seconds));
        }
        if let Some(queued) = samples.queued_async.get(first..end) {
            self.queued_async.push(queued.iter().copied().max().unwrap_or(0));
        }
        if let Some(expired) = samples.expired.get(first..end) {
            self.expired.push(expired.iter().copied().fold(0, u32::saturating_add));
        }
        self.request.push((requests > 0).then(|| short(fetched as f64 / requests as f64)));
    }
}

/// Four significant digits: more are invisible.
fn short(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_samples_keep_bytes_and_busy_time() {
        let count = 2000;
        let mut run = Run::default();
        for index in 1..=count {
            run.samples.time_ns.push(index * 1_000_000);
            run.samples.busy.push(if index % 2 == 0 { 1.0 } else { 0.0 });
            run.samples.queued.push(index as u32 % 7);
            run.samples.bytes_fetched.push(4096);
            run.samples.bytes_delivered.push(1000);
            run.samples.requests.push(1);
            run.samples.queued_async.push(index as u32 % 3);
            run.samples.expired.push(u32::from(index <= 3));
        }
        let pace = Pace::of(&run);
        assert_eq!((pace.time.len(), pace.joined), (250, 8));
        assert!(pace.busy.iter().all(|busy| *busy == 0.5), "{:?}", pace.busy);
        assert!(pace.delivered.iter().all(|rate| (*rate - 1e6).abs() < 1.0), "{:?}", pace.delivered);
        assert_eq!(pace.request[0], Some(4096.0));
        assert_eq!((pace.expired[0], pace.expired[1], pace.queued_async[0]), (3, 0, 2));
    }

    #[test]
    fn a_shown_figure_has_four_digits() {
        assert_eq!([0.0, 1234.56, 0.000_123_456].map(short), [0.0, 1235.0, 0.000_123_5]);
    }
}
