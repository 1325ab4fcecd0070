//! Published decisions of Linux, and edge cases. `bowwave-cli/tests/conformance` compares with a
//! running kernel.

use std::format;
use std::string::String;
use std::vec::Vec;

use bowwave_core::{
    Action, Advice, Cache, Fault, FileId, HandleId, Instant, PageAccess, ReadOutcome, Request, Waiter,
};

use super::*;

const FILE: FileId = FileId(0);
const HANDLE: HandleId = HandleId(0);
const NOW: Instant = Instant(0);

/// A cache with an instant device and one file, read through one handle.
struct Reader {
    cache: Cache,
    lines: Vec<String>,
}

impl Reader {
    fn new(linux: LinuxConfig, pages: u64) -> Self {
        let config = Config { policy: super::linux(linux), ..Config::default() };
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FILE, PageCount(pages));
        cache.open_handle(HANDLE, FILE);
        Self { cache, lines: Vec::new() }
    }

    fn read(&mut self, start: u64, end: u64) -> &mut Self {
        self.request(PageRange::new(start, end).into())
    }

    fn request(&mut self, request: Request) -> &mut Self {
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        if self.cache.access(NOW, Waiter(0), PageAccess::read(HANDLE, request), &mut frames, &mut out)
            == ReadOutcome::Hit
        {
            self.cache.unpin(NOW, &frames, &mut out);
        }
        self.act(out)
    }

    fn fault(&mut self, page: u64, pattern: Pattern) -> &mut Self {
        let mut out = Vec::new();
        self.cache.access(
            NOW,
            Waiter(0),
            PageAccess::fault(HANDLE, Fault { page: PageIndex(page), pattern }),
            &mut Vec::new(),
            &mut out,
        );
        self.act(out)
    }

    fn advise(&mut self, start: u64, end: u64, advice: Advice) -> &mut Self {
        let mut out = Vec::new();
        self.cache.advise(NOW, HANDLE, PageRange::new(start, end), advice, &mut out);
        self.act(out)
    }

    /// Decisions since the last call as `reason@start+size/async`, with `#mark` if the mark is not
    /// the first async page.
    fn decided(&mut self) -> String {
        core::mem::take(&mut self.lines).join(" ")
    }

    fn act(&mut self, mut actions: Vec<Action>) -> &mut Self {
        while !actions.is_empty() {
            let mut more = Vec::new();
            for action in actions {
                match action {
                    Action::Decided(decision) => {
                        let (plan, window) = (decision.plan, decision.plan.window);
                        let mut line = format!("{}@{}+{}", plan.reason.name(), window.start.0, window.size.0);
                        if window.async_size.0 > 0 {
                            line += &format!("/{}", window.async_size.0);
                        }
                        if decision.mark != window.mark() {
                            line += &decision.mark.map_or_else(|| "#".into(), |mark| format!("#{}", mark.0));
                        }
                        self.lines.push(line);
                    }
                    Action::Fill(fill) => self.cache.filled(NOW, fill.id, Ok(()), &mut more),
                    Action::Wake { result, .. } => {
                        self.cache.unpin(NOW, &result.expect("nothing fails"), &mut more);
                    }
                    _ => {}
                }
            }
            actions = more;
        }
        self
    }
}

fn reader() -> Reader {
    Reader::new(LinuxConfig::default(), 1 << 20)
}

/// A file system with folios of up to 2 MiB, as of 6.18.
fn with_folios() -> Reader {
    let linux =
        LinuxConfig { align_end: true, folio_order_max: 9, mark_at_eof: true, ..LinuxConfig::default() };
    Reader::new(linux, 1 << 14)
}

fn one_by_one(reader: &mut Reader, pages: core::ops::Range<u64>) -> String {
    for page in pages {
        reader.read(page, page + 1);
    }
    reader.decided()
}

#[test]
fn v1_sequential_pages_from_the_start_ramp_up() {
    assert_eq!(
        one_by_one(&mut reader(), 0..70),
        "initial@0+4/3 lookahead@4+8/8 lookahead@12+16/16 lookahead@28+32/32 lookahead@60+32/32 lookahead@92+32/32"
    );
}

#[test]
fn v1_with_folios_windows_end_on_their_boundaries() {
    assert_eq!(
        one_by_one(&mut with_folios(), 0..60),
        "initial@0+4/3 lookahead@4+8/8 lookahead@12+4/4 lookahead@16+8/8 lookahead@24+8/8 lookahead@32+16/16 \
         lookahead@48+16/16 lookahead@64+32/32",
        "as 6.18 did on ext4"
    );
}

#[test]
fn v3_sequential_pages_from_the_middle_start_small() {
    assert_eq!(
        one_by_one(&mut reader(), 1000..1029),
        "random@1000+1 miss@1001+4/3 lookahead@1005+8/8 lookahead@1013+16/16 lookahead@1029+32/32"
    );
    assert_eq!(
        one_by_one(&mut with_folios(), 1000..1060),
        "random@1000+1 miss@1001+4/3 lookahead@1005+7/7 lookahead@1012+12/12 lookahead@1024+24/24 \
         lookahead@1048+8/8 lookahead@1056+16/16 lookahead@1072+16/16",
        "as 6.18 did on ext4"
    );
}

#[test]
fn v4_v5_two_interleaved_streams_are_both_served() {
    for (first, second, align_end, count) in
        [(0, 10_000, false, 13), (0, 10_000, true, 14), (5_000, 10_000, false, 16), (5_000, 10_000, true, 16)]
    {
        let mut reader = Reader::new(LinuxConfig { align_end, ..LinuxConfig::default() }, 1 << 20);
        for page in 0..48 {
            reader.read(first + page, first + page + 1).read(second + page, second + page + 1);
        }
        assert_eq!(reader.lines.len(), count, "{}", reader.decided());
    }
}

#[test]
fn v6_a_request_larger_than_the_window_is_half_ahead() {
    assert_eq!(
        reader().read(777, 877).decided(),
        "oversize@777+32/16 lookahead@809+32/32 lookahead@841+32/32 lookahead@873+32/32 \
         lookahead@905+32/32"
    );
}

#[test]
fn requests_larger_than_the_window_may_use_the_best_request_of_the_device() {
    let mut reader = Reader::new(LinuxConfig { io_pages: 64, ..LinuxConfig::default() }, 1 << 20);
    assert_eq!(reader.read(777, 827).decided(), "random@777+50", "within 64 pages, so not oversize");
    assert_eq!(
        reader.read(2000, 2100).decided(),
        "oversize@2000+64/32 lookahead@2064+64/64 lookahead@2128+64/64"
    );
}

#[test]
fn unaligned_reads_are_sequential_if_they_continue_at_the_last_byte() {
    let read = |ends_inside, start| {
        let mut reader = reader();
        reader.request(Request { range: PageRange::new(100, 102), ends_inside });
        reader.read(start, start + 1).decided()
    };
    // Page 102 is sequential whether the last read ended inside page 101 or at its end. Page 103 is
    // sequential only in the second case, since the position is then on page 102.
    assert_eq!(read(true, 102), "random@100+2 miss@102+4/3");
    assert_eq!(read(false, 102), "random@100+2 miss@102+4/3");
    assert_eq!(read(true, 103), "random@100+2 random@103+1");
    assert_eq!(read(false, 103), "random@100+2 miss@103+4/3");
}

#[test]
fn cached_history_counts_as_a_stream() {
    let scene = |history: u64, page: u64| {
        let mut reader = reader();
        reader.advise(page - history, page, Advice::WillNeed).read(5000, 5001);
        reader.decided();
        reader.read(page, page + 2).decided()
    };
    assert_eq!(scene(2, 700), "random@700+2", "no more history than the request");
    assert_eq!(scene(3, 700), "context@700+5/1");
    assert_eq!(scene(32, 700), "context@700+32/1");
    assert_eq!(scene(10, 10), "context@10+22/1", "cached from the start counts twice");
    assert_eq!(scene(32, 32), "context@32+32/1", "but not if the scan ends before it sees the start");
}

#[test]
fn random_advice_reads_the_request_and_follows_old_marks() {
    let mut reader = Reader::new(LinuxConfig { io_pages: 64, ..LinuxConfig::default() }, 1 << 20);
    reader.read(0, 1).advise(0, 0, Advice::Random);
    assert_eq!(reader.read(1, 2).decided(), "initial@0+4/3 lookahead@4+8/8");
    assert_eq!(reader.read(300, 310).read(310, 311).decided(), "forced@300+10 forced@310+1");
    assert_eq!(reader.read(1000, 1100).decided(), "forced@1000+64 forced@1064+36");
    reader.advise(0, 0, Advice::Normal);
    assert_eq!(reader.read(1100, 1101).decided(), "miss@1100+4/3");
}

#[test]
fn random_advice_keeps_the_doubled_window() {
    let mut reader = reader();
    reader.advise(0, 0, Advice::Sequential).advise(0, 0, Advice::Random);
    assert_eq!(reader.read(300, 400).decided(), "forced@300+64 forced@364+36");
    assert_eq!(
        reader.fault(9000, Pattern::Sequential).decided(),
        "forced@9000+64",
        "a fault requests a window"
    );
    assert_eq!(reader.fault(5000, Pattern::Normal).decided(), "around@4968+64/16", "and may be read around");
    reader.advise(0, 0, Advice::Normal);
    assert_eq!(
        reader.read(700, 800).decided(),
        "oversize@700+32/16 lookahead@732+32/32 lookahead@764+32/32 lookahead@796+32/32 \
         lookahead@828+32/32"
    );
}

#[test]
fn will_need_reads_at_most_one_optimal_request() {
    assert_eq!(reader().advise(5, 500, Advice::WillNeed).decided(), "forced@5+32");
    assert_eq!(reader().advise(5, 10, Advice::WillNeed).decided(), "forced@5+5");
}

#[test]
fn a_window_that_reaches_the_end_of_the_file_has_no_mark() {
    let mut reader = Reader::new(LinuxConfig::default(), 100);
    assert_eq!(reader.read(95, 96).read(96, 97).decided(), "random@95+1 miss@96+4/3#");
    let mut reader = Reader::new(LinuxConfig::default(), 101);
    assert_eq!(reader.read(95, 96).read(96, 97).decided(), "random@95+1 miss@96+4/3");
    let linux = LinuxConfig { mark_at_eof: true, ..LinuxConfig::default() };
    let mut reader = Reader::new(linux, 99);
    assert_eq!(
        reader.read(95, 96).read(96, 97).read(97, 98).decided(),
        "random@95+1 miss@96+4/3#96 interleaved@99+8/8#",
        "6.18 marks a clipped window where the state does not expect it"
    );
    let mut reader = with_folios();
    assert_eq!(
        one_by_one(&mut reader, (1 << 14) - 4..1 << 14),
        "random@16380+1 miss@16381+4/3 lookahead@16385+7/7#",
        "6.18 with large folios marks it and plans an empty window"
    );
}

#[test]
fn a_mark_without_a_later_hole_plans_nothing() {
    let mut reader = reader();
    reader
        .read(0, 1)
        .advise(0, 32, Advice::WillNeed)
        .advise(32, 64, Advice::WillNeed)
        .read(900, 901)
        .read(901, 902);
    reader.decided();
    assert_eq!(reader.read(1, 2).decided(), "interleaved@1+0");
}

#[test]
fn a_mapped_fault_reads_around_until_too_many_miss() {
    let mut reader = reader();
    assert_eq!(reader.fault(5, Pattern::Normal).decided(), "around@0+32/8");
    assert_eq!(reader.fault(1000, Pattern::Normal).decided(), "around@984+32/8");
    assert_eq!(reader.fault(1001, Pattern::Normal).decided(), "");
    assert_eq!(reader.fault(1008, Pattern::Normal).decided(), "lookahead@1016+32/32");
    // Two misses and two hits so far.
    for page in 1..=100 {
        reader.fault(10_000 + page * 100, Pattern::Normal);
    }
    assert!(!reader.decided().contains("random"), "100 misses are allowed");
    assert_eq!(reader.fault(50_000, Pattern::Normal).decided(), "random@50000+1");
    reader.fault(1002, Pattern::Normal).fault(1003, Pattern::Normal);
    assert_eq!(reader.fault(60_000, Pattern::Normal).decided(), "around@59984+32/8", "two hits compensate");
}

#[test]
fn a_random_mapping_reads_single_pages_and_keeps_marks() {
    let mut reader = reader();
    reader.fault(1000, Pattern::Normal);
    reader.decided();
    assert_eq!(reader.fault(500, Pattern::Random).fault(1008, Pattern::Random).decided(), "random@500+1");
    assert_eq!(reader.fault(1008, Pattern::Normal).decided(), "lookahead@1016+32/32");
}

#[test]
fn a_sequential_mapping_reads_windows_as_reads_do() {
    let mut reader = reader();
    reader.fault(0, Pattern::Sequential);
    assert_eq!(reader.decided(), "initial@0+32/16");
    assert_eq!(reader.fault(16, Pattern::Sequential).decided(), "lookahead@32+32/32");
    assert_eq!(reader.fault(700, Pattern::Sequential).decided(), "random@700+32");
}
