//! Events of the kernel's tracepoints, and the comparison of the kernel's decisions with ours.

use std::fmt;

use bowwave_core::Advice;

use super::kernel::{Folios, Seen};
use super::patterns::Pattern;
use super::policy::Outcome;
use super::script::{Op, PAGE, Script};

/// An event of `events/readahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// `page_cache_sync_ra`: a page is missing.
    Sync { index: u64, req: u64 },
    /// `page_cache_async_ra`: a page has the mark.
    Async { index: u64, req: u64 },
    /// `page_cache_ra_order`: a window is planned.
    Window { start: u64, size: u64, async_size: u64 },
    /// `page_cache_ra_unbounded`: pages are submitted one by one, the last `lookahead` of them
    /// after the mark.
    Submit { start: u64, size: u64, lookahead: u64 },
}

/// A line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Event(Event),
    /// Written by us: step `.0` of the script begins.
    Step(usize),
    /// `mm_filemap_delete_from_page_cache`: a page or folio was dropped.
    Dropped,
}

impl Line {
    /// Parses a line of a trace; `None` for comments and other events.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, tail) = text.split_once(": ")?;
        let (name, fields) = tail.split_once(": ")?;
        if name == "tracing_mark_write" {
            return fields.trim().strip_prefix("step ")?.parse().ok().map(Self::Step);
        }
        if name == "mm_filemap_delete_from_page_cache" {
            return Some(Self::Dropped);
        }
        let field = |key: &str| {
            fields
                .split_whitespace()
                .find_map(|field| field.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
        };
        Some(Self::Event(match name {
            "page_cache_sync_ra" => Event::Sync { index: field("index")?, req: field("req_count")? },
            "page_cache_async_ra" => Event::Async { index: field("index")?, req: field("req_count")? },
            "page_cache_ra_order" => Event::Window {
                start: field("index")?,
                size: field("size")?,
                async_size: field("async_size")?,
            },
            "page_cache_ra_unbounded" => Event::Submit {
                start: field("index")?,
                size: field("nr_to_read")?,
                lookahead: field("lookahead_size")?,
            },
            _ => return None,
        }))
    }
}

/// Groups events into decisions: the trigger, the window, and its submission.
pub(super) fn decisions(events: &[Event]) -> Vec<&[Event]> {
    let mut starts: Vec<usize> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let begins = match event {
            Event::Sync { .. } | Event::Async { .. } => true,
            // A window follows its trigger at once; without a trigger, a mapped page has faulted.
            Event::Window { .. } => {
                at == 0 || !matches!(events[at - 1], Event::Sync { .. } | Event::Async { .. })
            }
            Event::Submit { .. } => at == 0,
        };
        if begins {
            starts.push(at);
        }
    }
    let ends = starts.iter().copied().skip(1).chain([events.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &events[start..end]).collect()
}

/// In the notation of the paper's tables: `start+size/async_size`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sync { index, req } => write!(f, "miss {index} of {req}"),
            Self::Async { index, req } => write!(f, "mark {index} of {req}"),
            Self::Window { start, size, async_size } => write!(f, "window {start}+{size}/{async_size}"),
            Self::Submit { start, size, lookahead: 0 } => write!(f, "submit {start}+{size}"),
            Self::Submit { start, size, lookahead } => write!(f, "submit {start}+{size}/{lookahead}"),
        }
    }
}

/// Result of a pattern.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) pattern: &'static str,
    pub(super) ra_pages: u64,
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
    /// The kernel's decisions at each step that has any.
    pub(super) kernel: Vec<String>,
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
    theirs.iter().zip(&ours.steps).all(|(theirs, ours)| compared(folios, theirs) == ours.events)
}

/// Decisions of each step that has any, as text.
pub(super) fn by_step<'a>(folios: Folios, steps: impl Iterator<Item = &'a [Event]>) -> Vec<String> {
    let line = |events: &[Event]| {
        let events = compared(folios, events);
        decisions(&events).into_iter().map(|decision| text(Some(decision))).collect::<Vec<_>>().join("; ")
    };
    let steps = steps.enumerate().filter(|(_, events)| !events.is_empty());
    steps.map(|(step, events)| format!("{step}: {}", line(events))).collect()
}

/// Events that are compared.
fn compared(folios: Folios, events: &[Event]) -> Vec<Event> {
    if folios == Folios::Large { planned(events) } else { events.to_vec() }
}

impl Verdict {
    /// Compares the kernel's events with the expected ones, by step.
    pub(super) fn of(
        pattern: &Pattern,
        folios: Folios,
        script: &Script,
        seen: &Seen,
        ours: &Outcome,
    ) -> Self {
        let (mut count, mut differences, mut first) = (0, 0, None);
        for (step, (theirs, ours)) in seen.steps.iter().zip(&ours.steps).enumerate() {
            let theirs = compared(folios, theirs);
            let (theirs, ours) = (decisions(&theirs), decisions(&ours.events));
            count += theirs.len();
            for at in 0..theirs.len().max(ours.len()) {
                let (kernel, policy) = (theirs.get(at).copied(), ours.get(at).copied());
                if kernel != policy {
                    differences += 1;
                    first.get_or_insert_with(|| {
                        let text = format!("step {step}: kernel: {}; ours: {}", text(kernel), text(policy));
                        (text, explain(&script.ops[..=step], kernel, policy))
                    });
                }
            }
        }
        let (cached, cached_ours) = (seen.cached, ours.cached);
        if first.is_none() && cached != cached_ours {
            let text = format!("at the end: kernel: {cached} pages cached; ours: {cached_ours}");
            let kept = cached > cached_ours && drops(&script.ops);
            first = Some((text, kept.then_some(reason::KEPT)));
        }
        let (first, reason) = first.unzip();
        Self {
            pattern: pattern.name,
            ra_pages: script.ra,
            decisions: count,
            differences,
            cached,
            cached_ours,
            first,
            reason: reason.flatten().filter(|_| folios == Folios::Large),
            kernel: by_step(folios, seen.steps.iter().map(Vec::as_slice)),
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

fn text(decision: Option<&[Event]>) -> String {
    match decision {
        None => "nothing".to_owned(),
        Some(events) => events.iter().map(Event::to_string).collect::<Vec<_>>().join(", "),
    }
}

mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_are_read() {
        let line = |text| Line::parse(text);
        assert_eq!(
            line(
                "         bowwave-123   [001] .....  1234.567890: page_cache_sync_ra: dev=7:0 ino=c index=777 \
                 req_count=100 order=0 size=0 async_size=0 ra_pages=640 mmap_miss=0 prev_pos=-1"
            ),
            Some(Line::Event(Event::Sync { index: 777, req: 100 }))
        );
        assert_eq!(
            line(
                "b-1 [001] ..... 1.5: page_cache_ra_order: dev=7:0 ino=c index=4 order=2 size=8 async_size=7 ra_pages=32"
            ),
            Some(Line::Event(Event::Window { start: 4, size: 8, async_size: 7 }))
        );
        assert_eq!(
            line(
                "b-1 [001] ..... 1.5: page_cache_ra_unbounded: dev=7:0 ino=c index=4 nr_to_read=8 lookahead_size=0"
            ),
            Some(Line::Event(Event::Submit { start: 4, size: 8, lookahead: 0 }))
        );
        assert_eq!(line("b-1 [001] ..... 1.5: tracing_mark_write: step 17"), Some(Line::Step(17)));
        assert_eq!(
            line(
                "kswapd0-39 [000] ..... 1.5: mm_filemap_delete_from_page_cache: dev 7:0 ino c pfn=0x1af ofs=4096 order=0"
            ),
            Some(Line::Dropped)
        );
        assert_eq!(line("# tracer: nop"), None);
        assert_eq!(line("b-1 [001] ..... 1.5: page_cache_sync_ra: dev=7:0 ino=c index=x"), None);
    }

    #[test]
    fn a_decision_begins_with_its_trigger_or_a_window_of_its_own() {
        let window = Event::Window { start: 0, size: 4, async_size: 3 };
        let submit = Event::Submit { start: 0, size: 4, lookahead: 3 };
        let (sync, mark) = (Event::Sync { index: 0, req: 1 }, Event::Async { index: 0, req: 1 });
        let lengths = |events: &[Event]| decisions(events).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&[sync, window, submit, mark, window, submit, sync, submit]), [3, 3, 2]);
        assert_eq!(lengths(&[window, submit, window, submit, mark]), [2, 2, 1]);
        assert_eq!(lengths(&[submit, submit]), [2], "forced, in several requests");
        assert!(decisions(&[]).is_empty());
    }

    const MARK: Event = Event::Async { index: 8, req: 1 };

    fn window(start: u64) -> Event {
        Event::Window { start, size: 8, async_size: 8 }
    }

    #[test]
    fn differences_of_folios_are_known_by_their_shape() {
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
