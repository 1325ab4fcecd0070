//! Decisions as JSON, one object each: the lines of `bowwave explain --json`, and of what a running
//! cache writes.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write as _};

use crate::event::Decision;
use crate::page::PageRange;
use crate::readahead::{Detector, Weighed, WeighedCandidate};
use crate::swap::pager::{PageId, SwapDecision, SwapIn, SwapWindow};

/// A decision of a readahead policy.
#[derive(Clone, Copy, Debug)]
pub struct ReadaheadLine<'a> {
    /// Number of the access that led to it.
    pub access: u64,
    /// The process.
    pub pid: u64,
    /// Name of the file.
    pub file: &'a str,
    /// The decision.
    pub decision: &'a Decision,
    /// The ranges that are read.
    pub submitted: &'a [PageRange],
    /// What the policy weighed, for the first of its decisions at a page.
    pub weighed: Option<&'a Weighed>,
}

impl Display for ReadaheadLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { access, pid, file, decision, submitted, weighed } = self;
        let (plan, window) = (decision.plan, decision.plan.window);
        write!(f, r#"{{"access":{access},"pid":{pid},"file":{},"page":{}"#, Text(file), decision.page.0)?;
        write!(f, r#","req_pages":{},"trigger":"{}""#, decision.req_pages.0, decision.trigger.name())?;
        write!(f, r#","reason":"{}","start":{}"#, plan.reason.name(), window.start.0)?;
        write!(f, r#","size":{},"async_size":{}"#, window.size.0, window.async_size.0)?;
        let runs = submitted.iter().map(|range| [range.start.0, range.end.0]);
        write!(f, r#","submitted":{}"#, List(runs, run))?;
        match decision.mark {
            Some(mark) => write!(f, r#","mark":{}"#, mark.0)?,
            None => f.write_str(r#","mark":null"#)?,
        }
        if let Some(scores) = weighed.and_then(|weighed| weighed.scores) {
            let mut detectors = Detector::ALL;
            detectors.sort_unstable_by_key(|detector| detector.name());
            for (at, detector) in detectors.into_iter().enumerate() {
                f.write_str(if at == 0 { r#","detectors":{"# } else { "," })?;
                write!(f, r#""{detector}":{}"#, scores.of(detector))?;
            }
            f.write_char('}')?;
        }
        if let Some(weighed) = weighed {
            write!(f, r#","candidates":{}"#, List(weighed.candidates.iter(), candidate))?;
        }
        f.write_char('}')
    }
}

/// A decision of swap readahead.
#[derive(Clone, Copy, Debug)]
pub struct SwapLine<'a, N> {
    /// Number of the touch that led to it.
    pub access: u64,
    /// The decision.
    pub decision: &'a SwapDecision,
    /// What is read, in the order of slots.
    pub reads: &'a [SwapIn],
    /// Process and region of a page.
    pub name: N,
}

impl<'a, N: Fn(PageId) -> (u64, &'a str)> Display for SwapLine<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, decision, reads, name } = self;
        let (pid, file) = name(decision.page);
        write!(f, r#"{{"access":{access},"pid":{pid},"file":{}"#, Text(file))?;
        write!(f, r#","page":{},"slot":{}"#, decision.page.page.0, decision.slot.0)?;
        let SwapRange { unit, start, stride, count } = SwapRange::of(decision);
        write!(f, r#","reason":"{}","unit":"{unit}","start":{start}"#, decision.reason.name())?;
        write!(f, r#","stride":{stride},"count":{count},"size":{}"#, decision.size)?;
        write!(f, r#","slots":{}"#, List(reads.iter().map(slots), run))?;
        let pages = reads.iter().flat_map(|read| read.pages.iter().copied());
        let page = |id: PageId, f: &mut fmt::Formatter<'_>| {
            let (pid, file) = name(id);
            write!(f, "[{pid},{},{}]", Text(file), id.page.0)
        };
        write!(f, r#","pages":{}}}"#, List(pages, page))
    }
}

/// The window of a decision of swap readahead in numbers.
#[derive(Clone, Copy, Debug)]
pub struct SwapRange {
    /// Unit of `start` and `count`: pages or slots.
    pub unit: &'static str,
    /// The first one.
    pub start: u64,
    /// Distance between two.
    pub stride: i64,
    /// Number of them.
    pub count: u64,
}

impl SwapRange {
    /// The window of a decision.
    pub fn of(decision: &SwapDecision) -> Self {
        match &decision.window {
            SwapWindow::Pages { start, count, stride } => {
                Self { unit: "pages", start: start.0, stride: *stride, count: *count }
            }
            SwapWindow::Slots(slots) => {
                Self { unit: "slots", start: slots.start, stride: 1, count: slots.end - slots.start }
            }
        }
    }
}

/// The half-open range of slots of a read.
pub fn slots(read: &SwapIn) -> [u64; 2] {
    [read.slot.0, read.slot.0 + read.pages.len() as u64]
}

/// A decision of readahead across files.
#[derive(Clone, Copy, Debug)]
pub struct SiblingLine<'a> {
    /// Number of the open that led to it.
    pub access: u64,
    /// The process.
    pub pid: u64,
    /// The opened file.
    pub file: &'a str,
    /// Name of the reason.
    pub reason: &'a str,
    /// The files that are read ahead, in this order.
    pub files: &'a [&'a str],
}

impl Display for SiblingLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, pid, file, reason, files } = self;
        write!(f, r#"{{"access":{access},"pid":{pid},"file":{},"reason":"{reason}""#, Text(file))?;
        write!(f, r#","files":{}}}"#, List(files.iter().copied(), text))
    }
}

/// A string of JSON.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\0'..' ' => write!(f, "\\u{:04x}", letter as u32)?,
                _ => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

/// An array of JSON, with the function that writes an item.
struct List<I, W>(I, W);

impl<I: Iterator + Clone, W: Fn(I::Item, &mut fmt::Formatter<'_>) -> fmt::Result> Display for List<I, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.clone().enumerate() {
            if at > 0 {
                f.write_char(',')?;
            }
            self.1(item, f)?;
        }
        f.write_char(']')
    }
}

fn text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    Text(text).fmt(f)
}

fn candidate(weighed: &WeighedCandidate, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let WeighedCandidate { candidate, pages, gain_ns, verdict } = weighed;
    write!(f, r#"{{"name":"{candidate}","pages":{pages},"gain_us":"#)?;
    match gain_ns {
        Some(gain_ns) => write!(f, "{}", gain_ns / 1000)?,
        None => f.write_str("null")?,
    }
    write!(f, r#","verdict":"{verdict}"}}"#)
}

fn run([start, end]: [u64; 2], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "[{start},{end}]")
}

/// What a running cache adds to a line: when it decided, by which policy, and for which store.
#[derive(Clone, Copy, Debug)]
pub struct Added<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Name of the policy.
    pub policy: &'a str,
    /// URL of the store, if a file of a store was read.
    pub store: Option<&'a str>,
}

impl Added<'_> {
    /// Appends these members to the object that ends `line`.
    pub fn append_to(&self, line: &mut String) {
        let _brace = line.pop();
        let mut add = || {
            write!(line, r#","time_ns":{},"policy":{}"#, self.time_ns, Text(self.policy))?;
            if let Some(store) = self.store {
                write!(line, r#","store":{}"#, Text(store))?;
            }
            line.write_char('}')
        };
        add().expect("a string accepts every write");
    }
}

/// The reads of a decision in the order of slots.
pub fn in_order(mut reads: Vec<SwapIn>) -> Vec<SwapIn> {
    reads.sort_unstable_by_key(|read| read.slot);
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn names_with_any_letter_are_strings_of_json() {
        let text = Text("a\"b\\c\n\r\t\u{8}\u{c}\u{1b}\u{7f}é").to_string();
        assert_eq!(text, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u001b\u{7f}é\"");
        let files = ["x/1", "x/\"2\""];
        let line = SiblingLine { access: 3, pid: 7, file: "x/0", reason: "sequence", files: &files };
        let mut line = line.to_string();
        let own = r#"{"access":3,"pid":7,"file":"x/0","reason":"sequence","files":["x/1","x/\"2\""]"#;
        assert_eq!(line, [own, "}"].concat());
        Added { time_ns: 5, policy: "stream", store: Some("s3://b") }.append_to(&mut line);
        assert_eq!(line, [own, r#","time_ns":5,"policy":"stream","store":"s3://b"}"#].concat());
    }
}
