//! I/O schedulers to compare `deadline` with: Linux 2.6.29's, and the patch of 2009 as published.

use bowwave_core::schedule::{
    Algorithm, AlgorithmKind, Class, Direction, Group, KnobError, Request, SchedulerConfig,
};

/// Linux 2.6.29's deadline: reads before writes.
///
/// A batch has up to 16 requests in disk order, all reads or all writes. Reads go first, but after
/// two batches of reads a waiting write begins a batch. A batch begins where the last one ended, in
/// disk order. It begins with the oldest request of its direction instead in two cases: the
/// deadline of that request has passed (0.5 s for reads, 5 s for writes), or the next request in
/// disk order is of the other direction.
pub const DEADLINE_RW: Algorithm = Algorithm::Other(&DeadlineRw);

/// The patch "Reduce latencies for synchronous writes" (linux-kernel, 24 April 2009) as published.
///
/// [`Algorithm::Deadline`] follows the text of the patch. The code of the patch does less than its
/// text in two places.
///
/// - **Demotion.** A batch looks for its next request of the same class over at most 16 requests.
///   One found by the sixteenth step is discarded. If all sixteen are of the lower class, the batch
///   continues with the sixteenth as if it were of its class.
/// - **The floor.** When async has waited for two sync batches and is chosen, a sync batch that can
///   continue in disk order still does. Async then waits for two batches again, and in the end for
///   its deadline of 5 s. The patch's own figures show it: random writes that took 1.2 s take 5.4
///   s.
pub const DEADLINE_LITERAL: Algorithm = Algorithm::Other(&DeadlineLiteral);

/// Every scheduler: those of `bowwave-core` and those of this crate, as reports order them.
pub const ALGORITHMS: [Algorithm; 4] = [Algorithm::Noop, DEADLINE_RW, Algorithm::Deadline, DEADLINE_LITERAL];

/// The scheduler of a name, if it is in [`ALGORITHMS`].
pub fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.into_iter().find(|algorithm| algorithm.name() == name)
}

/// Parses the name of a scheduler in [`ALGORITHMS`] and, behind a colon, knobs:
/// `deadline-rw:batch=8`.
///
/// # Errors
/// As [`SchedulerConfig::parse`].
pub fn scheduler(text: &str) -> Result<SchedulerConfig, KnobError> {
    SchedulerConfig::parse(text, &ALGORITHMS)
}

#[derive(Debug)]
struct DeadlineRw;

impl AlgorithmKind for DeadlineRw {
    fn name(&self) -> &'static str {
        "deadline-rw"
    }

    fn group(&self, request: &Request) -> Group {
        match request.direction {
            Direction::Read => Group::Favoured,
            Direction::Write => Group::Other,
        }
    }

    /// Requests of one direction are searched, so the first one is of the batch's group.
    fn next(&self, _batch: Group, _search: usize, _behind: &mut dyn Iterator<Item = Group>) -> Option<usize> {
        Some(0)
    }
}

#[derive(Debug)]
struct DeadlineLiteral;

impl AlgorithmKind for DeadlineLiteral {
    fn name(&self) -> &'static str {
        "deadline-literal"
    }

    fn group(&self, request: &Request) -> Group {
        match self.class(request) {
            Class::Sync => Group::Favoured,
            Class::Async => Group::Other,
        }
    }

    /// Linux 2.6.30 took every read as sync, readahead too.
    fn class(&self, request: &Request) -> Class {
        match request.direction {
            Direction::Read => Class::Sync,
            Direction::Write => request.class(),
        }
    }

    fn merges_to_sync(&self) -> bool {
        false
    }

    /// A batch begins in disk order, whatever the group of the next request, unless the last batch
    /// was of a lower group than the chosen one.
    fn begins_in_disk_order(&self, group: Group, _next: Group, last: Group) -> bool {
        last <= group
    }

    /// A request found by the last step is discarded. If all steps find requests of the lower
    /// group, the batch continues with the last of them, without a demotion.
    fn next(&self, batch: Group, search: usize, behind: &mut dyn Iterator<Item = Group>) -> Option<usize> {
        match behind.take(search).position(|group| group <= batch) {
            Some(step) => (step + 1 < search).then_some(step),
            None => search.checked_sub(1),
        }
    }
}
