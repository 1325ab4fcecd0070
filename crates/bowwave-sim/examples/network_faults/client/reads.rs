//! Reads: open, then ranges in parts; and what their bytes must be.

use super::*;
use crate::run::SMALL_MAX;
use crate::server::{Version, date};

/// An object that is read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) object: u32,
    /// At most [`SMALL_MAX`] bytes at once.
    pub(crate) small: bool,
    /// Ranges still to be read.
    pub(crate) rounds: u32,
    /// What the server sent at open.
    version: Option<Validators>,
    /// Number of the version that was current then.
    current: u32,
    /// Requested range.
    range: (u64, u64),
    /// Parts of the range that have not arrived.
    missing: u32,
    arrived: Vec<Placed>,
}

impl Read {
    pub(crate) fn new(object: u32, small: bool, rounds: u32) -> Self {
        Self {
            object,
            small,
            rounds,
            version: None,
            current: 0,
            range: (0, 0),
            missing: 0,
            arrived: Vec::new(),
        }
    }
}

impl Client {
    /// The validators have arrived.
    pub(crate) fn opened(&mut self, net: &mut Net<'_>, call: u32, version: Validators) {
        let Kind::Read(read) = &mut self.calls[call as usize].kind else { return };
        read.version = Some(version);
        read.current = net.server.objects[read.object as usize].current();
        self.round(net, call);
    }

    /// Reads the next range of an open object.
    pub(crate) fn round(&mut self, net: &mut Net<'_>, number: u32) {
        let retry = self.settings.retry;
        let Kind::Read(read) = &mut self.calls[number as usize].kind else { return };
        let Some(version) = read.version.clone() else { return };
        let size = version.size.unwrap_or(0);
        let start = net.context.random.below(size.max(1));
        let most = if read.small { SMALL_MAX.min(size - start) } else { size - start };
        let len = net.context.between(1, most);
        let parts = if read.small { 1 } else { net.context.between(1, 4).min(len) };
        read.rounds -= 1;
        read.range = (start, start + len);
        read.missing = parts as u32;
        read.arrived.clear();
        let (object, small) = (read.object, read.small);
        for part in 0..parts {
            let (from, to) = (start + len * part / parts, start + len * (part + 1) / parts);
            let part =
                Part { object, version: version.clone(), start: from, end: to, arrived: Vec::new(), done: 0 };
            let task = self.tasks.len() as u32;
            self.task(net, number, Goal::Part(part), retry);
            if small {
                self.small_reads += 1;
                let late_ns = self.hedging.begin();
                net.context.after(late_ns, Event::Late(task));
            }
        }
    }

    /// A part has arrived.
    pub(super) fn part_read(&mut self, net: &mut Net<'_>, number: u32, arrived: Vec<Placed>) {
        let Kind::Read(read) = &mut self.calls[number as usize].kind else { return };
        read.arrived.extend(arrived);
        read.missing -= 1;
        if read.missing > 0 {
            return;
        }
        self.check_read(net, number);
        let Kind::Read(read) = &self.calls[number as usize].kind else { return };
        if read.rounds == 0 {
            return self.over(net, number, Ok(()));
        }
        let pause = net.context.between(0, 1500) * 1_000_000;
        net.context.after(pause, Event::Round(number));
    }

    /// Bytes that are returned are complete, in place, and of one version as far as validators
    /// show.
    fn check_read(&mut self, net: &mut Net<'_>, call: u32) {
        let Kind::Read(read) = &mut self.calls[call as usize].kind else { return };
        let Some(opened) = &read.version else { return };
        read.arrived.sort_by_key(|placed| placed.at);
        let versions = &net.server.objects[read.object as usize].versions;
        let mut at = read.range.0;
        for placed in &read.arrived {
            if placed.at != at || placed.bytes.offset != at {
                net.context.violated(|| format!("call {call}: {placed:?} stands where byte {at} belongs"));
            }
            let version = &versions[placed.bytes.version as usize];
            if !is_of(opened, version, net.server.behaviour.stale) {
                net.context.violated(|| format!("call {call}: opened {opened:?}, got bytes of {version:?}"));
            }
            at += placed.bytes.len;
        }
        if at != read.range.1 {
            net.context.violated(|| format!("call {call}: {at} ends the bytes of {:?}", read.range));
        }
        net.context.count(Counter::ReadDone);
        let strong = opened.etag.as_ref().is_some_and(|etag| etag.starts_with('"'));
        net.context.count(match (strong, &opened.modified) {
            (true, _) => Counter::ReadStrong,
            (false, Some(_)) => Counter::ReadDated,
            (false, None) => Counter::ReadByNothing,
        });
        let first = read.arrived.first().map(|placed| placed.bytes.version);
        if read.arrived.iter().any(|placed| Some(placed.bytes.version) != first) {
            net.context.count(Counter::ReadMixed);
        }
        if net.server.objects[read.object as usize].current() != read.current {
            net.context.count(Counter::ReadOutlived);
        }
    }
}

/// Whether this version is the opened one, as far as the validators of the open show. Written apart
/// from [`Validators`], to check it. If heads are stale, only the condition tells dates apart: it
/// allows the next second.
fn is_of(opened: &Validators, version: &Version, is_stale: bool) -> bool {
    let same_size = opened.size == Some(version.size);
    let dates = [Some(0), is_stale.then_some(1)].map(|later| Some(date(version.modified? - later?)));
    match (&opened.etag, &opened.modified) {
        (Some(etag), _) if etag.starts_with('"') => version.etag.as_ref() == Some(etag),
        (_, Some(modified)) => dates.iter().flatten().any(|date| date == modified) && same_size,
        (_, None) => same_size,
    }
}
