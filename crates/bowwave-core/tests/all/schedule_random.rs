//! Schedulers under any order of adding, promoting, cancelling, dispatching and completing, against
//! their published rules and against a second, plain implementation of each.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core schedule_random` repeats
//! it alone.

use std::collections::BTreeMap;

use crate::rng::{Rng, seeds};
use crate::schedule_model::Model;
use bowwave_baselines::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::schedule::{
    Algorithm, Class, Direction, Dispatch, DispatchId, Priority, Reason, Request, RequestId, Scheduler,
    SchedulerConfig,
};
use bowwave_core::{Instant, Urgency};

const SEEDS: u64 = 800;
const STEPS: u32 = 5_000;
const MS: u64 = 1_000_000;
const BLOCK: u64 = 4096;

#[test]
fn a_million_steps_of_each_kind_follow_the_rules_and_the_model() {
    let seeds = seeds(SEEDS);
    let alone = seeds.len() == 1;
    let mut reached = BTreeMap::new();
    for seed in seeds {
        let mut run = Run::new(seed);
        for step in 0..STEPS {
            run.step().unwrap_or_else(|problem| panic!("BOWWAVE_SEED={seed}, step {step}: {problem}"));
        }
        run.drain().unwrap_or_else(|problem| panic!("BOWWAVE_SEED={seed}, at the end: {problem}"));
        let stats = run.scheduler.stats();
        for reason in Reason::ALL {
            *reached.entry(reason.name()).or_insert(0) += stats.dispatched_for(reason);
        }
        for (what, count) in [
            ("merged", stats.merged),
            ("closed", stats.closed),
            ("promoted", stats.promoted),
            ("cancelled", stats.cancelled),
            ("late", stats.late),
        ] {
            *reached.entry(what).or_insert(0) += count;
        }
    }
    // The runs are worth something only if they reach the rare cases.
    for (what, count) in reached {
        assert!(alone || count > 300, "only {count} were {what}");
    }
}

struct Run {
    rng: Rng,
    /// One priority, and no limit on async requests at the device, so that the published rules hold
    /// as they are.
    plain: bool,
    config: SchedulerConfig,
    scheduler: Scheduler,
    model: Model,
    now: u64,
    /// Not yet completed or cancelled, with their first bytes.
    open: Vec<(RequestId, u64)>,
    at_device: Vec<(DispatchId, Vec<RequestId>)>,
    rules: Rules,
    added: u64,
    ended: u64,
}

/// What the published rules bound, counted from outside.
#[derive(Default)]
struct Rules {
    /// Requests since a batch began.
    batch: u32,
    /// Batches of the favoured group begun in succession while the other waited.
    favoured: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let algorithm = ALGORITHMS[rng.below(4) as usize];
        let plain = algorithm != Algorithm::Deadline || rng.chance(50);
        let config = SchedulerConfig {
            favoured_expire_ns: rng.below(50) * MS,
            other_expire_ns: rng.below(500) * MS,
            batch_requests: 1 + rng.below(16) as u32,
            starved_max: rng.below(4) as u32,
            batch_contiguous: rng.chance(20),
            merge_back: rng.chance(80),
            merge_front: rng.chance(80),
            request_bytes_max: (1 + rng.below(8)) * BLOCK,
            seeks: rng.chance(85),
            aging_ns: (1 + rng.below(300)) * MS,
            async_depth_max: if plain { u32::MAX } else { 1 + rng.below(4) as u32 },
            async_beside_max: if plain { u32::MAX } else { 1 + rng.below(6) as u32 },
            sync_slowdown_max: u32::MAX,
            ..SchedulerConfig::of(algorithm)
        };
        Self {
            rng,
            plain,
            scheduler: Scheduler::new(config.clone()).unwrap(),
            model: Model::new(config.clone()),
            config,
            now: 0,
            open: Vec::new(),
            at_device: Vec::new(),
            rules: Rules::default(),
            added: 0,
            ended: 0,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.rng.below(3) * MS;
        match self.rng.below(100) {
            0..45 => self.add(),
            45..48 => self.promote(),
            48..50 => self.promote_alone(),
            50..55 => self.cancel(),
            55..90 if self.at_device.len() < 6 => self.dispatch().map(|_| ()),
            _ => self.complete(),
        }?;
        let waiting = (self.scheduler.waiting(), self.scheduler.at_device());
        let expected = (self.model.waiting.len(), self.at_device.len());
        if waiting == expected { Ok(()) } else { Err(format!("{waiting:?} wait and went, not {expected:?}")) }
    }

    /// Each block once at a time, as the cache asks.
    fn add(&mut self) -> Result<(), String> {
        let start = self.rng.below(120) * BLOCK;
        if self.open.iter().any(|&(_, other)| other == start) {
            return Ok(());
        }
        let request = Request {
            start,
            end: start + BLOCK,
            direction: if self.rng.chance(60) { Direction::Read } else { Direction::Write },
            // Where places mean nothing, objects lie side by side; where they do, each has its own.
            object: start / BLOCK / 60,
            urgency: if self.rng.chance(50) { Urgency::Demand } else { Urgency::Readahead },
            priority: Priority::ALL
                [if self.plain { 1 } else { [1, 1, 1, 1, 0, 2][self.rng.below(6) as usize] }],
        };
        let before = self.scheduler.waiting();
        let added = self.scheduler.add(Instant(self.now), request);
        let expected = before + 1 - usize::from(added.merged) - usize::from(added.closed);
        if self.scheduler.waiting() != expected {
            return Err(format!("{added:?}, but {} wait, not {expected}", self.scheduler.waiting()));
        }
        self.model.add(Instant(self.now), request, added.id);
        self.open.push((added.id, start));
        self.added += 1;
        Ok(())
    }

    fn promote(&mut self) -> Result<(), String> {
        let Some(&(id, _)) = self.rng.pick(&self.open) else { return Ok(()) };
        let waits = self.scheduler.promote(Instant(self.now), id);
        let expected = self.model.promote(Instant(self.now), id);
        if waits == expected { Ok(()) } else { Err(format!("promoted {waits}, not {expected}")) }
    }

    fn promote_alone(&mut self) -> Result<(), String> {
        let Some(&(id, start)) = self.rng.pick(&self.open) else { return Ok(()) };
        let renamed = self.scheduler.promote_alone(Instant(self.now), id);
        if renamed.is_some() != self.model.promote_alone(Instant(self.now), id, renamed) {
            return Err(format!("{id:?} became {renamed:?}"));
        }
        if let Some(renamed) = renamed {
            self.open.retain(|&(other, _)| other != id);
            self.open.push((renamed, start));
        }
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), String> {
        let Some(&(id, _)) = self.rng.pick(&self.open) else { return Ok(()) };
        let gone = self.scheduler.cancel(id).is_some();
        if gone != self.model.cancel(id) {
            return Err(format!("cancelled {gone}"));
        }
        if gone {
            self.open.retain(|&(other, _)| other != id);
            self.ended += 1;
            if self.scheduler.cancel(id).is_some() || self.scheduler.promote(Instant(self.now), id) {
                return Err("a cancelled request is still known".to_owned());
            }
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Result<bool, String> {
        let heads = [0, 1].map(|group| {
            let heads = (0..3).filter_map(|lane| self.model.head(lane, group));
            heads.map(|item| (item.deadline, item.request.start)).collect::<Vec<_>>()
        });
        let bytes = if self.rng.chance(50) { u64::MAX } else { self.rng.below(6) * BLOCK };
        let dispatch = match bytes {
            u64::MAX => self.scheduler.dispatch(Instant(self.now)),
            _ => self.scheduler.dispatch_up_to(Instant(self.now), |_| bytes),
        };
        let expected = self.model.dispatch(Instant(self.now), bytes);
        let (dispatch, (item, reason)) = match (dispatch, expected) {
            (None, None) => return Ok(false),
            (Some(dispatch), Some(expected)) => (dispatch, expected),
            (dispatch, expected) => return Err(format!("{dispatch:?}, not {expected:?}")),
        };
        let parts: Vec<_> = self.scheduler.parts(dispatch.id).collect();
        let expected: Vec<_> = item.parts.iter().map(|part| part.0).collect();
        if dispatch.request != item.request || parts != expected || dispatch.reason != reason {
            return Err(format!("{dispatch:?} of {parts:?}, not {item:?} for {reason:?}"));
        }
        if parts.len() > 1 && (parts.len() as u64 - 1) * BLOCK >= bytes {
            return Err(format!("{} blocks, but {bytes} bytes were enough", parts.len()));
        }
        self.covers(&dispatch, &parts)?;
        self.obeys(&dispatch, &heads)?;
        self.at_device.push((dispatch.id, parts));
        Ok(true)
    }

    /// A merged request is exactly the bytes of its parts.
    fn covers(&self, dispatch: &Dispatch, parts: &[RequestId]) -> Result<(), String> {
        let mut at = dispatch.request.start;
        for part in parts {
            let start = self.open.iter().find(|(id, _)| id == part).map(|&(_, start)| start);
            if start != Some(at) {
                return Err(format!("{dispatch:?} has a part at {start:?} where {at} is next"));
            }
            at += BLOCK;
        }
        if at == dispatch.request.end && dispatch.request.bytes() <= self.config.request_bytes_max {
            Ok(())
        } else {
            Err(format!("{dispatch:?} does not end at {at}, or is too long"))
        }
    }

    /// The rules that the descriptions state, without the model's help: the length of a batch,
    /// whose deadline a batch begins with, and how long the other group may be passed over.
    fn obeys(&mut self, dispatch: &Dispatch, heads: &[Vec<(u64, u64)>; 2]) -> Result<(), String> {
        let batch = matches!(dispatch.reason, Reason::Batch | Reason::Demoted);
        self.rules.batch = if batch { self.rules.batch + 1 } else { 1 };
        if !self.plain {
            return Ok(());
        }
        if self.rules.batch > self.config.batch_requests {
            return Err(format!("{} requests in a batch", self.rules.batch));
        }
        if batch || [Algorithm::Noop, DEADLINE_LITERAL].contains(&self.config.algorithm) {
            return Ok(());
        }
        let group = match self.config.algorithm {
            algorithm if algorithm == DEADLINE_RW => dispatch.request.direction as usize,
            _ => usize::from(dispatch.class == Class::Async),
        };
        // A batch begins with what has expired of its group, so that a deadline is missed by no
        // more than the batches under way and the other group's turn.
        let expired = heads[group].iter().any(|&(deadline, _)| deadline < self.now);
        let head = (dispatch.deadline.expect("has one").0, dispatch.request.start);
        if expired && !heads[group].contains(&head) {
            return Err(format!("{dispatch:?} goes before {heads:?}, expired at {}", self.now));
        }
        self.rules.favoured = if group == 0 && !heads[1].is_empty() { self.rules.favoured + 1 } else { 0 };
        if self.rules.favoured > self.config.starved_max + 1 {
            return Err(format!("{} batches of the favoured group in succession", self.rules.favoured));
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), String> {
        if self.at_device.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.at_device.len() as u64) as usize;
        let (id, parts) = self.at_device.swap_remove(at);
        if !self.scheduler.complete(Instant(self.now), id) || self.scheduler.complete(Instant(self.now), id) {
            return Err(format!("{id:?} was not completed once"));
        }
        let before = self.open.len();
        self.open.retain(|(id, _)| !parts.contains(id));
        if before - self.open.len() != parts.len() {
            return Err(format!("{parts:?} had ended before"));
        }
        self.ended += parts.len() as u64;
        self.model.at_device.retain(|item| item.parts[0].0 != parts[0]);
        Ok(())
    }

    /// Everything comes to an end.
    fn drain(&mut self) -> Result<(), String> {
        while !self.open.is_empty() {
            self.now += MS;
            if !self.dispatch()? && self.at_device.is_empty() {
                return Err(format!("{} are never dispatched", self.open.len()));
            }
            if self.rng.chance(70) {
                self.complete()?;
            }
        }
        if self.added == self.ended && self.scheduler.waiting() == 0 && self.scheduler.at_device() == 0 {
            Ok(())
        } else {
            Err(format!("{} were added and {} ended", self.added, self.ended))
        }
    }
}
