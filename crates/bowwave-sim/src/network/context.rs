//! Virtual time, the agenda, random numbers and the log of one run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use bowwave_core::Instant;

use super::met::{Counts, Met};
use super::server::{Fault, Version};
use super::wire::{Message, Request};
use bowwave_core::Random;

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MS;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A call begins.
    Begin(u32),
    /// The next range of an opened object is read.
    Round(u32),
    /// A request, by its attempt, reaches the server.
    Arrive(u32),
    /// The next message for an attempt reaches the client.
    Serve(u32),
    /// Pace or deadline of an attempt are due.
    Timer(u32),
    /// A task's next attempt.
    Resume(u32),
    /// A read is late.
    Late(u32),
    /// An object is replaced.
    Replace(u32),
    /// The server turns honest and stays so.
    Calm,
}

/// A line of the log.
#[derive(Debug, Hash)]
pub(super) enum Note<'a> {
    Begin { call: u32, what: &'static str },
    Sent { attempt: u32, task: u32, hedge: bool, request: &'a Request },
    Fault { attempt: u32, fault: Fault },
    Replaced { object: u32, version: u32, now: &'a Version },
    Received { attempt: u32, message: &'a Message },
    Ignored { attempt: u32 },
    Failed { attempt: u32, why: &'a dyn Reason },
    Again { task: u32, at: Instant },
    Ended { task: u32, result: &'a dyn Reason },
    Over { call: u32, result: &'a dyn Reason },
    Calm,
}

/// What can be printed and hashed behind a reference.
pub(super) trait Reason: fmt::Debug {
    fn feed(&self, hasher: &mut Digest);
}

impl<T: fmt::Debug + Hash> Reason for T {
    fn feed(&self, hasher: &mut Digest) {
        self.hash(hasher);
    }
}

impl Hash for dyn Reason + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut digest = Digest(0);
        self.feed(&mut digest);
        state.write_u64(digest.0);
    }
}

/// Hash of the log: the same in each run with the same seed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// What every part of a run shares.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) random: Random,
    agenda: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    /// Numbers events: those of one time happen in the order in which they were scheduled.
    scheduled: u64,
    counts: &'a mut Counts,
    digest: Digest,
    log: Option<&'a mut dyn Write>,
    broken: Option<String>,
}

impl<'a> Context<'a> {
    pub(super) fn new(seed: u64, counts: &'a mut Counts, log: Option<&'a mut dyn Write>) -> Self {
        Self {
            // Objects have dates before the first event.
            now: Instant(1000 * SECOND),
            random: Random::new(seed),
            agenda: BinaryHeap::with_capacity(64),
            scheduled: 0,
            counts,
            digest: Digest::default(),
            log,
            broken: None,
        }
    }

    pub(super) fn at(&mut self, at: Instant, event: Event) {
        self.agenda.push(Reverse((at.max(self.now), self.scheduled, event)));
        self.scheduled += 1;
    }

    pub(super) fn after(&mut self, ns: u64, event: Event) {
        self.at(Instant(self.now.0.saturating_add(ns)), event);
    }

    /// Moves time to the next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.agenda.pop()?;
        self.now = at;
        self.met(Met::Events);
        Some(event)
    }

    /// Events so far, those to come included.
    pub(super) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    pub(super) fn met(&mut self, met: Met) {
        self.counts.add(met, 1);
    }

    pub(super) fn note(&mut self, note: &Note<'_>) {
        if let Note::Fault { fault, .. } = note {
            self.counts.add_fault(*fault);
        }
        self.now.hash(&mut self.digest);
        note.hash(&mut self.digest);
        if let Some(log) = &mut self.log {
            let since = self.now.0 - 1000 * SECOND;
            // A log that cannot be written shows nothing; the run continues.
            writeln!(log, "{:>12}.{:06} ms  {note:?}", since / MS, since % MS).ok();
        }
    }

    /// Hash of the log.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// An invariant does not hold. The first one counts.
    pub(super) fn broken(&mut self, what: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(what);
    }

    pub(super) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// True in `part` of `whole` cases.
    pub(super) fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.random.below(whole) < part
    }

    /// A number from `least` to `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most.saturating_sub(least) + 1)
    }

    /// One of `choices`.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len() as u64) as usize]
    }
}
