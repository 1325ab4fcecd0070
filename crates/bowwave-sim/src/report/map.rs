//! Offset over time: reads, readahead windows and lookahead marks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::column::Column;
use super::{thin, units};
use crate::record::Run;

/// Maximum files of a run to choose from, those with the most reads first.
const FILES_MAX: usize = 40;

/// Reads per retained decision.
const READS_A_DECISION: usize = 6;

/// The map of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Map {
    files: Vec<ShownFile>,
    reads: ShownReads,
    windows: Windows,
    /// Names of the reasons in `windows.reason`.
    reasons: Vec<String>,
    /// Recorded reads of all files, by outcome.
    #[serde(skip)]
    recorded: [u64; 3],
    /// Recorded decisions.
    #[serde(skip)]
    decided: u64,
    #[serde(skip)]
    files_left_out: usize,
    #[serde(skip)]
    reads_every: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ShownFile {
    name: String,
    /// Reads recorded.
    reads: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ShownReads {
    time: Column,
    latency: Column,
    /// Index into the map's files.
    file: Column,
    start: Column,
    pages: Column,
    outcome: Column,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Windows {
    time: Column,
    /// Start of the last read in the window.
    until: Column,
    file: Column,
    start: Column,
    size: Column,
    ahead: Column,
    /// The marked page plus 1, 0 without a mark.
    mark: Column,
    reason: Column,
}

impl Map {
    /// Samples at most about `quota` reads and decisions of `run`.
    pub(super) fn of(run: &Run, quota: usize) -> Self {
        let (files, number_of) = files(run);
        let mut map = Self {
            files_left_out: number_of.iter().filter(|number| number.is_none()).count(),
            files,
            decided: run.decisions.time_ns.len() as u64,
            reads_every: run.reads_every.max(1),
            ..Self::default()
        };
        run.reads.outcome.iter().for_each(|outcome| map.recorded[usize::from(*outcome) % 3] += 1);
        map.take_reads(run, &number_of);
        map.take_windows(run, &number_of);
        map.thin(quota);
        map
    }

    /// Number of reads and decisions in the map.
    pub(super) fn shown(&self) -> usize {
        self.reads.time.0.len() + self.windows.time.0.len()
    }

    /// Thins to at most about `quota` reads and decisions.
    pub(super) fn thin(&mut self, quota: usize) {
        let outcomes: Vec<u8> = self.reads.outcome.0.iter().map(|outcome| *outcome as u8).collect();
        let kept = thin::keep(&outcomes, quota);
        if kept.len() < outcomes.len() {
            let ShownReads { time, latency, file, start, pages, outcome } = &mut self.reads;
            for column in [time, latency, file, start, pages, outcome] {
                thin::select(&mut column.0, &kept);
            }
        }
        let decisions = self.windows.time.0.len();
        let kept = thin::keep(&vec![0; decisions], quota / READS_A_DECISION);
        if kept.len() < decisions {
            let Windows { time, until, file, start, size, ahead, mark, reason } = &mut self.windows;
            for column in [time, until, file, start, size, ahead, mark, reason] {
                thin::select(&mut column.0, &kept);
            }
        }
    }

    /// Describes the sampling of the map.
    pub(super) fn sampling(&self) -> String {
        let mut shown = [0_u64; 3];
        self.reads.outcome.0.iter().for_each(|outcome| shown[*outcome as usize % 3] += 1);
        let all: u64 = self.recorded.iter().sum();
        let mut text = if self.shown() as u64 == all + self.decided {
            format!(
                "Shows every recorded read ({}) and decision ({})",
                units::count(all),
                units::count(self.decided)
            )
        } else {
            let part = |index: usize| {
                format!("{} of {}", units::count(shown[index]), units::count(self.recorded[index]))
            };
            format!(
                "Shows {} hits, {} late reads, {} misses and {} of {} windows, picked evenly over time",
                part(0),
                part(1),
                part(2),
                units::count(self.windows.time.0.len() as u64),
                units::count(self.decided)
            )
        };
        if self.files_left_out > 0 {
            text += &format!(
                "; the {} files with the most reads can be chosen, {} others are left out",
                self.files.len(),
                units::count(self.files_left_out as u64)
            );
        }
        if self.reads_every > 1 {
            text += &format!("; the recording itself holds one of {} reads", units::count(self.reads_every));
        }
        text + "."
    }

    fn take_reads(&mut self, run: &Run, number_of: &[Option<u64>]) {
        let (from, to) = (&run.reads, &mut self.reads);
        for index in 0..from.time_ns.len() {
            let Some(file) = number_of[from.file[index] as usize] else { continue };
            to.time.0.push(from.time_ns[index]);
            to.latency.0.push(from.latency_ns[index]);
            to.file.0.push(file);
            to.start.0.push(from.start[index]);
            to.pages.0.push(u64::from(from.pages[index]));
            to.outcome.0.push(u64::from(from.outcome[index]));
        }
    }

    fn take_windows(&mut self, run: &Run, number_of: &[Option<u64>]) {
        let until = last_uses(run);
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        let (from, to) = (&run.decisions, &mut self.windows);
        for index in 0..from.time_ns.len() {
            let Some(file) = number_of[from.file[index] as usize] else { continue };
            let next = reasons.len() as u64;
            let reason = *reasons.entry(&from.reason[index]).or_insert(next);
            to.time.0.push(from.time_ns[index]);
            to.until.0.push(until[index]);
            to.file.0.push(file);
            to.start.0.push(from.start[index]);
            to.size.0.push(from.size[index]);
            to.ahead.0.push(from.async_size[index]);
            to.mark.0.push(from.mark[index].map_or(0, |page| page + 1));
            to.reason.0.push(reason);
        }
        let mut names = vec![String::new(); reasons.len()];
        for (name, number) in reasons {
            names[number as usize] = units::visible(name);
        }
        self.reasons = names;
    }
}

/// The files to choose from, and the index among them for each file of the run.
fn files(run: &Run) -> (Vec<ShownFile>, Vec<Option<u64>>) {
    let mut reads = vec![0_u64; run.files.len()];
    run.reads.file.iter().for_each(|file| reads[*file as usize] += 1);
    let mut order: Vec<usize> = (0..reads.len()).collect();
    order.sort_by_key(|&file| std::cmp::Reverse(reads[file]));
    order.truncate(FILES_MAX);
    let mut number_of = vec![None; reads.len()];
    let mut shown = Vec::with_capacity(order.len());
    for (number, file) in order.into_iter().enumerate() {
        number_of[file] = Some(number as u64);
        shown.push(ShownFile { name: units::visible(&run.files[file]), reads: reads[file] });
    }
    (shown, number_of)
}

/// For each decision, the start of the last read in its window before another window replaced it.
fn last_uses(run: &Run) -> Vec<u64> {
    let (reads, decisions) = (&run.reads, &run.decisions);
    let mut until = decisions.time_ns.clone();
    // By file and first page: the newest window there.
    let mut windows: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    let mut next = 0;
    for read in 0..reads.time_ns.len() {
        while next < decisions.time_ns.len() && decisions.time_ns[next] <= reads.time_ns[read] {
            windows.insert((decisions.file[next], decisions.start[next]), next);
            next += 1;
        }
        let (file, page) = (reads.file[read], reads.start[read]);
        let Some((_, &window)) = windows.range((file, 0)..=(file, page)).next_back() else { continue };
        if page - decisions.start[window] < decisions.size[window] {
            until[window] = reads.time_ns[read];
        }
    }
    until
}
