//! Compares the kernel's decisions with ours.

use bowwave_core::Advice;
use serde::Serialize;

use super::event::{Event, decisions};
use super::lab::Folios;
use super::ours::Outcome;
use super::patterns::Pattern;
use super::script::{Op, Script};
use super::sys::PAGE;

/// Result of a pattern.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) pattern: &'static str,
    pub(super) folios: &'static str,
    pub(super) ra_pages: u64,
    /// Steps of the script.
    pub(super) steps: usize,
    /// Decisions of the kernel.
    pub(super) decisions: usize,
    /// Decisions that differ, the kernel's or ours.
    pub(super) differences: usize,
    /// Resident pages at the end: the kernel's and ours.
    pub(super) cached: u64,
    pub(super) cached_ours: u64,
    /// The first difference.
    pub(super) first: Option<String>,
    /// Cause of the differences, if known.
    pub(super) reason: Option<&'static str>,
    /// With `--decisions`: the kernel's decisions at each step that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<Vec<String>>,
}

/// Known causes of differences, all from large folios: our cache has single pages, while the kernel
/// handles a folio as a whole. After the first difference the two diverge, so its cause counts.
mod reason {
    pub(super) const HOLE: &str = "the kernel's search for the next hole starts inside the marked folio and \
        counts a page too many, so its window leaves a page out";
    pub(super) const INSIDE: &str =
        "the access begins inside a marked folio, whose mark counts for all of its pages";
    pub(super) const KEPT: &str = "the kernel keeps a folio of which only a part was to be dropped";
}

/// Whether the kernel and our policy decided the same at every step.
pub(super) fn alike(folios: Folios, theirs: &[Vec<Event>], ours: &Outcome) -> bool {
    theirs.iter().zip(&ours.steps).all(|(theirs, ours)| seen(folios, theirs) == ours.events)
}

/// Decisions of each step that has any, as text.
pub(super) fn by_step<'a>(folios: Folios, steps: impl Iterator<Item = &'a [Event]>) -> Vec<String> {
    let told = |events: &[Event]| {
        let seen = seen(folios, events);
        decisions(&seen).into_iter().map(|decision| tell(Some(decision))).collect::<Vec<_>>().join("; ")
    };
    let steps = steps.enumerate().filter(|(_, events)| !events.is_empty());
    steps.map(|(step, events)| format!("{step}: {}", told(events))).collect()
}

/// Events that are compared.
fn seen(folios: Folios, events: &[Event]) -> Vec<Event> {
    if folios == Folios::Large { planned(events) } else { events.to_vec() }
}

impl Verdict {
    /// Compares the kernel's events with the expected ones, by step.
    pub(super) fn of(
        pattern: &Pattern,
        folios: Folios,
        script: &Script,
        theirs: &[Vec<Event>],
        cached: u64,
        ours: &Outcome,
    ) -> Self {
        let (mut count, mut differences, mut first) = (0, 0, None);
        for (step, (theirs, ours)) in theirs.iter().zip(&ours.steps).enumerate() {
            let theirs = seen(folios, theirs);
            let (theirs, ours) = (decisions(&theirs), decisions(&ours.events));
            count += theirs.len();
            for at in 0..theirs.len().max(ours.len()) {
                let (kernel, policy) = (theirs.get(at).copied(), ours.get(at).copied());
                if kernel != policy {
                    differences += 1;
                    first.get_or_insert_with(|| {
                        let told = format!("step {step}: kernel: {}; ours: {}", tell(kernel), tell(policy));
                        (told, explain(&script.ops[..=step], kernel, policy))
                    });
                }
            }
        }
        if first.is_none() && cached != ours.cached {
            let told = format!("at the end: kernel: {cached} pages cached; ours: {}", ours.cached);
            let kept = cached > ours.cached && drops(&script.ops);
            first = Some((told, kept.then_some(reason::KEPT)));
        }
        let (first, reason) = first.unzip();
        Self {
            pattern: pattern.name,
            folios: folios.name(),
            ra_pages: script.ra,
            steps: script.ops.len(),
            decisions: count,
            differences,
            cached,
            cached_ours: ours.cached,
            first,
            reason: reason.flatten().filter(|_| folios == Folios::Large),
            kernel: None,
        }
    }

    /// Whether there is a difference without a known cause.
    pub(super) fn is_unexplained(&self) -> bool {
        self.first.is_some() && self.reason.is_none()
    }
}

/// Explains the last of these steps, if its shape shows the cause.
fn explain(ops: &[Op], kernel: Option<&[Event]>, ours: Option<&[Event]>) -> Option<&'static str> {
    match (kernel, ours) {
        (
            Some([Event::Async { index, req }, Event::Window { start, .. }]),
            Some([Event::Async { index: our_index, req: our_req }, Event::Window { start: our_start, .. }]),
        ) if (index, req) == (our_index, our_req) && *start == our_start + 1 => Some(reason::HOLE),
        (Some([Event::Async { index, .. }, ..]), None) if is_inside(*ops.last()?, *index) => {
            Some(reason::INSIDE)
        }
        (None, Some(_)) if drops(ops) => Some(reason::KEPT),
        _ => None,
    }
}

/// Whether an operation starts inside the folio at `index`; for mapped pages the kernel reports the
/// page itself.
fn is_inside(op: Op, index: u64) -> bool {
    match op {
        Op::Read { offset, .. } => offset / PAGE > index,
        Op::Touch { page, .. } => page == index,
        Op::Advise { .. } | Op::MapAdvise { .. } => false,
    }
}

fn drops(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Advise { advice: Advice::DontNeed, .. }))
}

/// Removes submissions: with large folios they appear only where pages were in the way.
fn planned(events: &[Event]) -> Vec<Event> {
    let mut window = false;
    let mut kept = Vec::new();
    for &event in events {
        match event {
            Event::Window { .. } => window = true,
            Event::Submit { .. } => {}
            Event::Sync { .. } | Event::Async { .. } => window = false,
        }
        if !(window && matches!(event, Event::Submit { .. })) {
            kept.push(event);
        }
    }
    kept
}

fn tell(decision: Option<&[Event]>) -> String {
    match decision {
        None => "nothing".to_owned(),
        Some(events) => events.iter().map(Event::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Event = Event::Async { index: 8, req: 1 };

    fn window(start: u64) -> Event {
        Event::Window { start, size: 8, async_size: 8 }
    }

    #[test]
    fn differences_of_folios_are_told_by_their_shape() {
        let read = [Op::Read { handle: 0, offset: 9 * PAGE, length: PAGE }];
        assert_eq!(explain(&read, Some(&[MARK, window(17)]), Some(&[MARK, window(16)])), Some(reason::HOLE));
        assert_eq!(explain(&read, Some(&[MARK, window(18)]), Some(&[MARK, window(16)])), None);
        assert_eq!(explain(&read, Some(&[MARK, window(16)]), None), Some(reason::INSIDE));
        let read = [Op::Read { handle: 0, offset: 8 * PAGE, length: PAGE }];
        assert_eq!(explain(&read, Some(&[MARK, window(16)]), None), None);
        assert_eq!(explain(&read, None, Some(&[MARK, window(16)])), None);
    }

    #[test]
    fn submissions_of_windows_do_not_count_with_folios() {
        let (miss, submit) =
            (Event::Sync { index: 0, req: 1 }, Event::Submit { start: 0, size: 1, lookahead: 0 });
        assert_eq!(planned(&[MARK, window(8), submit, miss, submit]), [MARK, window(8), miss, submit]);
        assert_eq!(planned(&[submit, submit]), [submit, submit]);
    }
}
