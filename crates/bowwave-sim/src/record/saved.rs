//! Writes a recording to a file, run by run, with a sample of the events of each run.

use std::io::{self, Write};

use super::{Recording, Row, Run};
use crate::report::thin::pick;

/// Maximum events of all runs in a saved recording, about 45 bytes each. With more, the file takes
/// longer to read than to record again; with fewer, the map of a run has gaps.
pub const EVENTS_SAVED_MAX: usize = 90_000;

/// Minimum events per list of a run, however many runs there are.
const LIST_MIN: usize = 500;

/// Lists of events of a run: reads, decisions, requests.
const LISTS: usize = 3;

impl Run {
    /// Keeps at most `events_max` of each list of events: one of every `n` neighbours, at random
    /// with a fixed seed. `reads_every` and its siblings hold `n`. Samples over time stay.
    pub fn thin(&mut self, events_max: usize) {
        let every = |length: usize| length.div_ceil(events_max.max(1)).max(1);
        let one_of = |of: usize| move |index: usize| index % of == pick(index / of, of);
        let of = every(self.reads.time_ns.len());
        self.reads_every = self.reads_every.saturating_mul(of as u64);
        self.reads.retain(one_of(of));
        let of = every(self.decisions.time_ns.len());
        self.decisions_every = self.decisions_every.saturating_mul(of as u64);
        self.decisions.retain(one_of(of));
        let of = every(self.requests.queued_ns.len());
        self.requests_every = self.requests_every.saturating_mul(of as u64);
        self.requests.retain(one_of(of));
        // Digits past the sixth are noise, and most of the bytes.
        self.samples.busy.iter_mut().for_each(|busy| *busy = (*busy * 1e6).round() / 1e6);
    }
}

/// A recording that is being written to a file. Memory holds one run and not the file.
///
/// ```
/// use bowwave_sim::record::{Recording, Run, Writer};
///
/// let mut writer = Writer::new(Vec::new(), "a trace", "bowwave replay a.csv", Some(1))?;
/// writer.run(Run::default())?;
/// let json = writer.finish(&[])?;
/// let recording: Recording = serde_json::from_slice(&json)?;
/// assert_eq!((recording.title.as_str(), recording.runs.len()), ("a trace", 1));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    events_max: Option<usize>,
    runs: usize,
}

impl<W: Write> Writer<W> {
    /// Starts the file. `sampled` runs share [`EVENTS_SAVED_MAX`] events; with `None`, each run
    /// keeps all its events.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn new(mut out: W, title: &str, command: &str, sampled: Option<usize>) -> io::Result<Self> {
        let events_max = sampled.map(|runs| (EVENTS_SAVED_MAX / LISTS / runs.max(1)).max(LIST_MIN));
        write!(out, "{{\"version\":{}", Recording::VERSION)?;
        if let Some(most) = events_max {
            let note = format!(
                "Each list of events of a run holds at most {most}: one of every reads_every, decisions_every or \
                 requests_every, drawn at random. bowwave replay --save FILE --full keeps all."
            );
            write!(out, ",\"note\":{}", serde_json::to_string(&note)?)?;
        }
        let (title, command) = (serde_json::to_string(title)?, serde_json::to_string(command)?);
        write!(out, ",\"title\":{title},\"command\":{command},\"runs\":[")?;
        Ok(Self { out, events_max, runs: 0 })
    }

    /// Appends a run.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn run(&mut self, mut run: Run) -> io::Result<()> {
        if let Some(most) = self.events_max {
            run.thin(most);
        }
        if self.runs > 0 {
            self.out.write_all(b",\n")?;
        }
        self.runs += 1;
        serde_json::to_writer(&mut self.out, &run).map_err(io::Error::from)
    }

    /// Ends the file with the rows of bounds.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn finish(mut self, bounds: &[Row]) -> io::Result<W> {
        write!(self.out, "],\"bounds\":{}}}", serde_json::to_string(bounds)?)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_run_has_the_sampling_interval() {
        let mut run = Run { reads_every: 2, decisions_every: 1, requests_every: 1, ..Run::default() };
        for event in 0..1001 {
            run.reads.time_ns.push(event);
            run.reads.latency_ns.push(event * 2);
            run.reads.file.push(event as u32 % 2);
            run.reads.start.push(event);
            run.reads.pages.push(1);
            run.reads.outcome.push(0);
        }
        run.thin(100);
        // 1001 events in elevens: 91 of them.
        assert_eq!((run.reads_every, run.reads.time_ns.len(), run.decisions_every), (22, 91, 1));
        let times = &run.reads.time_ns;
        assert!(times.iter().enumerate().all(|(place, time)| time / 11 == place as u64), "{times:?}");
        assert!(times.iter().zip(&run.reads.latency_ns).all(|(time, latency)| time * 2 == *latency));
        let of_file = |file| run.reads.file.iter().filter(|it| **it == file).count();
        assert!(of_file(0) > 30 && of_file(1) > 30, "streams that take turns both stay");
        let before = run.clone();
        run.thin(91);
        assert_eq!(run, before);
    }
}
