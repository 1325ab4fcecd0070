//! Retains events and samples for a report, thinned evenly beyond a maximum.

use std::collections::HashMap;

use bowwave_core::{Cache, Decision, Fill, FillId, Instant, Urgency};

use super::reads::Read;
use super::recorder::RecordOptions;
use crate::queue::{Completed, Queue};
use crate::record::{Run, Samples};
use bowwave_core::Random;

/// Retains the data a report draws.
#[derive(Debug)]
pub(super) struct Events {
    options: RecordOptions,
    run: Run,
    reads: Sample,
    decisions: Sample,
    requests: Sample,
    /// Retained fills in flight: index in the list by identifier.
    in_flight: HashMap<FillId, usize>,
    step: Step,
}

/// The sample being accumulated.
#[derive(Debug, Default)]
struct Step {
    ns: u64,
    end_ns: u64,
    busy_ns: u64,
    bytes_fetched: u64,
    bytes_delivered: u64,
    requests: u64,
    thrashed: u64,
    expired: u64,
    delivered_now: u64,
}

impl Events {
    pub(super) fn new(options: RecordOptions) -> Self {
        let step = Step { ns: options.sample_ns, end_ns: options.sample_ns, ..Step::default() };
        let run = Run { reads_every: 1, decisions_every: 1, requests_every: 1, ..Run::default() };
        Self {
            options,
            run,
            reads: Sample::new(1, options.events_max),
            decisions: Sample::new(2, options.events_max),
            requests: Sample::new(3, options.events_max),
            in_flight: HashMap::new(),
            step,
        }
    }

    pub(super) fn run(&self) -> Run {
        self.run.clone()
    }

    pub(super) fn read(&mut self, read: &Read, latency: u64) {
        self.step.delivered_now += read.bytes;
        let reads = &mut self.run.reads;
        if let Some(picks) = self.reads.thin(reads.time_ns.len()) {
            self.run.reads_every *= 2;
            reads.retain(|index| picks[index]);
        }
        if !self.reads.retains() {
            return;
        }
        reads.time_ns.push(read.start.0);
        reads.latency_ns.push(latency);
        reads.file.push(read.file.0);
        reads.start.push(read.pages.start.0);
        reads.pages.push(u32::try_from(read.pages.count().0).unwrap_or(u32::MAX));
        reads.outcome.push(read.outcome as u8);
    }

    pub(super) fn decision(&mut self, now: Instant, decision: &Decision) {
        let decisions = &mut self.run.decisions;
        if let Some(picks) = self.decisions.thin(decisions.time_ns.len()) {
            self.run.decisions_every *= 2;
            decisions.retain(|index| picks[index]);
        }
        if !self.decisions.retains() {
            return;
        }
        let window = decision.plan.window;
        decisions.time_ns.push(now.0);
        decisions.file.push(decision.file.0);
        decisions.page.push(decision.page.0);
        decisions.reason.push(decision.plan.reason.name().to_owned());
        decisions.start.push(window.start.0);
        decisions.size.push(window.size.0);
        decisions.async_size.push(window.async_size.0);
        decisions.mark.push(decision.mark.map(|page| page.0));
    }

    pub(super) fn request(&mut self, now: Instant, fill: &Fill) {
        let requests = &mut self.run.requests;
        if let Some(picks) = self.requests.thin(requests.queued_ns.len()) {
            self.run.requests_every *= 2;
            requests.retain(|index| picks[index]);
            self.in_flight.retain(|_, place| picks.get(*place).copied().unwrap_or(false));
            self.in_flight.values_mut().for_each(|place| *place /= 2);
        }
        if !self.requests.retains() {
            return;
        }
        self.in_flight.insert(fill.id, requests.queued_ns.len());
        requests.queued_ns.push(now.0);
        requests.started_ns.push(now.0);
        requests.ended_ns.push(now.0);
        requests.file.push(fill.file.0);
        requests.start.push(fill.range.start.0);
        requests.pages.push(u32::try_from(fill.range.count().0).unwrap_or(u32::MAX));
        requests.readahead.push(fill.urgency == Urgency::Readahead);
    }

    /// Drops a request that was cancelled before it started: it has no device time.
    pub(super) fn request_dropped(&mut self, fill: FillId) {
        self.in_flight.remove(&fill);
    }

    pub(super) fn request_ended(&mut self, done: &Completed) {
        if let Some(place) = self.in_flight.remove(&FillId(done.id.0)) {
            self.run.requests.started_ns[place] = done.started.0;
            self.run.requests.ended_ns[place] = done.ended.0;
        }
    }

    /// Advances to `next` and completes the samples before it.
    pub(super) fn pass(&mut self, next: Instant, cache: &Cache, queue: &Queue) {
        while self.step.end_ns <= next.0 {
            self.end_step(cache, queue);
        }
    }

    fn end_step(&mut self, cache: &Cache, queue: &Queue) {
        let Step { ns, end_ns, .. } = self.step;
        let stats = queue.stats();
        let thrashed = cache.stats().pages_thrashed;
        let (samples, step) = (&mut self.run.samples, &mut self.step);
        samples.time_ns.push(end_ns);
        let busy_ns = queue.busy_ns(Instant(end_ns));
        samples.busy.push((busy_ns.saturating_sub(step.busy_ns) as f64 / ns as f64).min(1.0));
        samples.queued.push(u32::try_from(queue.len()).unwrap_or(u32::MAX));
        samples.bytes_fetched.push(stats.bytes[0] - step.bytes_fetched);
        samples.bytes_delivered.push(step.delivered_now - step.bytes_delivered);
        samples.requests.push(u32::try_from(stats.requests[0] - step.requests).unwrap_or(u32::MAX));
        samples.thrashed.push(thrashed - step.thrashed);
        step.thrashed = thrashed;
        let queued_async: u32 = stats.classes.iter().skip(1).step_by(2).map(|class| class.now).sum();
        samples.queued_async.push(queued_async);
        samples.expired.push(u32::try_from(stats.expired - step.expired).unwrap_or(u32::MAX));
        step.expired = stats.expired;
        step.busy_ns = busy_ns;
        step.bytes_fetched = stats.bytes[0];
        step.bytes_delivered = step.delivered_now;
        step.requests = stats.requests[0];
        step.end_ns += ns;
        if samples.time_ns.len() >= (self.options.samples_max.max(2) & !1) {
            halve(samples);
            step.ns *= 2;
            // The next step must end on a multiple of the new length.
            step.end_ns = samples.time_ns.last().copied().unwrap_or(0) + step.ns;
        }
    }
}

/// Chooses which events of a list to retain: one of each `every`, at random. Every second one would
/// alias: with two alternating streams it would show only one.
#[derive(Debug)]
struct Sample {
    random: Random,
    events_max: usize,
    every: u64,
    seen: u64,
    /// The retained event of the current group.
    chosen: u64,
}

impl Sample {
    fn new(seed: u64, events_max: usize) -> Self {
        // Events are thinned in pairs.
        let events_max = events_max.max(2) & !1;
        Self { random: Random::new(seed), events_max, every: 1, seen: 0, chosen: 0 }
    }

    /// Called before an event: if the list is full, returns which events stay, one of each pair.
    fn thin(&mut self, length: usize) -> Option<Vec<bool>> {
        if length < self.events_max || !self.seen.is_multiple_of(self.every) {
            return None;
        }
        self.every *= 2;
        let mut picks = Vec::with_capacity(length);
        while picks.len() < length {
            let first = self.random.below(2) == 0;
            picks.extend([first, !first]);
        }
        Some(picks)
    }

    /// Whether to retain the next event.
    fn retains(&mut self) -> bool {
        let place = self.seen % self.every;
        if place == 0 {
            self.chosen = self.random.below(self.every);
        }
        self.seen += 1;
        place == self.chosen
    }
}

/// Merges pairs of samples; their number is even.
fn halve(samples: &mut Samples) {
    let pairs = samples.time_ns.len() / 2;
    for pair in 0..pairs {
        let (a, b) = (2 * pair, 2 * pair + 1);
        samples.time_ns[pair] = samples.time_ns[b];
        samples.busy[pair] = f64::midpoint(samples.busy[a], samples.busy[b]);
        samples.queued[pair] = samples.queued[b];
        samples.bytes_fetched[pair] = samples.bytes_fetched[a] + samples.bytes_fetched[b];
        samples.bytes_delivered[pair] = samples.bytes_delivered[a] + samples.bytes_delivered[b];
        samples.thrashed[pair] = samples.thrashed[a] + samples.thrashed[b];
        samples.requests[pair] = samples.requests[a].saturating_add(samples.requests[b]);
        samples.queued_async[pair] = samples.queued_async[b];
        samples.expired[pair] = samples.expired[a].saturating_add(samples.expired[b]);
    }
    samples.retain(|index| index < pairs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_retains_every_interleaved_stream() {
        let (mut sample, mut retained) = (Sample::new(1, 100), Vec::new());
        for event in 0..100_000u64 {
            if let Some(picks) = sample.thin(retained.len()) {
                crate::record::retain(&mut retained, &|index| picks[index]);
            }
            if sample.retains() {
                retained.push(event);
            }
            assert!(retained.len() <= 100);
        }
        assert!(retained.len() >= 48 && retained.is_sorted(), "{}", retained.len());
        let of = |stream| retained.iter().filter(|event| *event % 2 == stream).count();
        assert!(of(0) > 10 && of(1) > 10, "{} and {}", of(0), of(1));
        // One in each group of `every`, so no time span is empty.
        let every = sample.every;
        assert!(
            retained.iter().enumerate().all(|(place, event)| event / every == place as u64),
            "{retained:?}"
        );
    }
}
