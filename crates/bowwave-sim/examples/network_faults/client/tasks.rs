//! Tasks: attempts at one request, and their end.

use bowwave_core::network::{Failure, Verdict};

use super::*;

impl Client {
    /// Begins a task.
    pub(super) fn task(&mut self, net: &mut Net<'_>, call: u32, goal: Goal, limits: RetryLimits) {
        let number = self.tasks.len() as u32;
        let now = net.context.now;
        self.tasks.push(Task {
            call,
            goal,
            retry: Retry::new(limits, now),
            limits,
            begun: now,
            first_failure: None,
            earliest: now,
            sent: 0,
            main: None,
            hedge: None,
            hedged: false,
            abandoned: None,
            over: false,
        });
        self.attempt(net, number, false);
    }

    /// A task's next attempt is due.
    pub(crate) fn resume(&mut self, net: &mut Net<'_>, number: u32) {
        if !self.tasks[number as usize].over {
            self.attempt(net, number, false);
        }
    }

    /// A read is late: a second request may be faster.
    pub(crate) fn late(&mut self, net: &mut Net<'_>, number: u32) {
        if self.tasks[number as usize].over {
            return;
        }
        if self.hedging.grant() || self.has(Defect::HedgeUnbounded) {
            self.hedges += 1;
            self.tasks[number as usize].hedged = true;
            net.context.count(Counter::Hedged);
            if self.hedges * 100 > self.small_reads * u64::from(self.settings.hedge_percent) {
                net.context.violated(|| format!("{} of {} reads are hedged", self.hedges, self.small_reads));
            }
            self.attempt(net, number, true);
        }
    }

    /// An attempt has failed.
    pub(super) fn failed(&mut self, net: &mut Net<'_>, (number, hedge): (u32, bool), why: Failed) {
        let task = &mut self.tasks[number as usize];
        let this = if hedge { task.hedge.take() } else { task.main.take() };
        let Some(this) = this else { return };
        net.server.close(this.attempt);
        net.context.note(&Note::Failed { attempt: this.attempt, why: &why });
        let now = net.context.now;
        if hedge {
            // It was one request more, and has no retries. The first try continues, unless it has
            // been given up.
            if let Some(error) = task.abandoned {
                self.finish(net, number, Err(error));
            }
            return;
        }
        task.first_failure.get_or_insert(now);
        let mut got = this.got;
        if let Goal::Part(part) = &mut task.goal
            && !this.provisional
        {
            // The bytes were checked with their head: the next attempt continues behind them.
            part.arrived.extend(this.arrived);
            part.done += got;
            if part.start + part.done >= part.end {
                // Only the end of the body is missing. No request is for nothing.
                let arrived = std::mem::take(&mut part.arrived);
                return self.finish(net, number, Ok(Done::Bytes(arrived)));
            }
        } else {
            got = 0;
        }
        if self.defect == Some(Defect::ProgressResetsRetries) && got > 0 {
            task.retry = Retry::new(task.limits, now);
        }
        let (mut failure, error) = judged(why);
        let retry_after_ns = failure.retry_after_ns.unwrap_or(0);
        if self.defect == Some(Defect::RetryAfterIgnored) {
            failure.retry_after_ns = None;
        }
        match task.retry.failed(now, failure, net.context.random.bits()) {
            Verdict::Again(at) => {
                let pause = retry_after_ns.max(task.limits.pause_min_ns);
                task.earliest = Instant(now.0.saturating_add(pause));
                net.context.note(&Note::Again { task: number, at });
                if at.0 - now.0 > retry_after_ns.max(task.limits.pause_max_ns) {
                    net.context.violated(|| format!("task {number}: pauses until {at:?}"));
                }
                if matches!(why, Failed::Fatal(_)) {
                    net.context.violated(|| format!("task {number}: tries again after {why:?}"));
                }
                net.context.at(at, Event::Resume(number));
            }
            Verdict::GiveUp(end) => {
                let (counter, name) = match end {
                    GiveUp::Permanent => (Counter::Permanent, "permanent"),
                    GiveUp::Attempts => (Counter::Attempts, "attempts"),
                    GiveUp::Time => (Counter::Time, "time"),
                };
                net.context.count(counter);
                self.check_end(&mut net.context, number, end, why);
                let task = &mut self.tasks[number as usize];
                let error = error.unwrap_or(Error::GaveUp(name));
                if task.hedge.is_some() {
                    task.abandoned = Some(error);
                } else {
                    self.finish(net, number, Err(error));
                }
            }
        }
    }

    /// A task is given up for a reason, and not before.
    fn check_end(&self, context: &mut Context<'_>, number: u32, end: GiveUp, why: Failed) {
        let task = &self.tasks[number as usize];
        let retry_after_ns =
            if let Failed::Status { retry_after_ns, .. } = why { retry_after_ns } else { None };
        let pause_ns = retry_after_ns.unwrap_or(0).max(task.limits.pause_max_ns);
        let right = match end {
            GiveUp::Permanent => matches!(why, Failed::Fatal(_)),
            GiveUp::Attempts => task.sent == task.limits.attempts_max,
            GiveUp::Time => {
                task.must_end().is_some_and(|end| context.now.0.saturating_add(pause_ns) >= end.0)
            }
        };
        if !right {
            context.violated(|| format!("task {number}: given up by {end:?} after {} attempts", task.sent));
        }
    }

    /// An attempt has brought what its task is for.
    pub(super) fn done(&mut self, net: &mut Net<'_>, (number, hedge): (u32, bool), done: Done) {
        let task = &mut self.tasks[number as usize];
        let this = if hedge { &task.hedge } else { &task.main };
        let begun = this.as_ref().map_or(net.context.now, |this| this.begun);
        let done = match (done, &mut task.goal) {
            (Done::Bytes(arrived), Goal::Part(part)) if !hedge => {
                let mut all = std::mem::take(&mut part.arrived);
                if !all.is_empty() {
                    net.context.count(Counter::ReadContinued);
                }
                all.extend(arrived);
                Done::Bytes(all)
            }
            (done, _) => done,
        };
        if matches!(done, Done::Bytes(_)) {
            self.hedging.took(net.context.now.0 - begun.0);
        }
        if hedge {
            net.context.count(Counter::HedgeWon);
        }
        self.finish(net, number, Ok(done));
    }

    /// Ends a task: requests in flight are abandoned.
    pub(super) fn finish(&mut self, net: &mut Net<'_>, number: u32, result: Result<Done, Error>) {
        self.abandon(&mut net.server, number);
        let task = &self.tasks[number as usize];
        let (call, sent) = (task.call, task.sent);
        net.context.note(&Note::Ended {
            task: number,
            result: &result.as_ref().map(|_| ()).map_err(|&error| error),
        });
        if task.must_end().is_some_and(|end| net.context.now > end) {
            let (limits, begun) = (task.limits, task.begun);
            net.context.violated(|| {
                format!("task {number}: begun at {begun:?}, ended after its deadline: {limits:?}")
            });
        }
        if self.calls[call as usize].must_succeed && sent > 1 {
            net.context.violated(|| format!("task {number}: {sent} attempts at a server without faults"));
        }
        match (result, &self.calls[call as usize].kind) {
            (Ok(Done::Page(page)), _) => self.page(net, call, &page),
            (Ok(Done::Head(version)), Kind::Read(_)) => self.opened(net, call, version),
            (Ok(Done::Bytes(arrived)), _) => self.part_read(net, call, arrived),
            (Ok(Done::Head(_) | Done::Stored), _) => self.over(net, call, Ok(())),
            (Err(error), _) => self.over(net, call, Err(error)),
        }
    }

    /// Closes what a task has in flight.
    pub(crate) fn abandon(&mut self, server: &mut Server, number: u32) {
        let task = &mut self.tasks[number as usize];
        task.over = true;
        for this in [task.main.take(), task.hedge.take()].into_iter().flatten() {
            server.close(this.attempt);
        }
    }
}

/// What an attempt's end means for retrying, and the error if there is no further attempt for its
/// sake.
fn judged(why: Failed) -> (Failure, Option<Error>) {
    let transient = Failure { transient: true, retry_after_ns: None };
    match why {
        Failed::Refused | Failed::Reset | Failed::Truncated | Failed::Slow { .. } | Failed::Deadline => {
            (transient, None)
        }
        Failed::Status { retry_after_ns, .. } => (Failure { retry_after_ns, ..transient }, None),
        Failed::Fatal(error) => (Failure { transient: false, ..transient }, Some(error)),
    }
}
