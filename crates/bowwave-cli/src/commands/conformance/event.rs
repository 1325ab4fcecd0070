//! Events of the kernel's tracepoints, and the same events of our policy.

use std::fmt;

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

#[cfg(test)]
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
        assert_eq!(lengths(&[submit, submit]), [2], "forced in pieces");
        assert!(decisions(&[]).is_empty());
    }
}
