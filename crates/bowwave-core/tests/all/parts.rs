//! A read page by page on an instant device makes the same decisions as one whole read.

use bowwave_core::{
    Action, Cache, Config, Decision, FileId, HandleId, Instant, PageCount, PageRange, Part, Policy,
    ReadOutcome, Waiter,
};

const PAGES: u64 = 20_000;

struct Reader {
    cache: Cache,
    decisions: Vec<Decision>,
}

impl Reader {
    fn new(policy: Policy) -> Self {
        let mut cache = Cache::new(Config { policy, ..Config::default() }).expect("valid");
        cache.open_file(FileId(0), PageCount(PAGES));
        cache.open_handle(HandleId(0), FileId(0));
        Self { cache, decisions: Vec::new() }
    }

    fn read(&mut self, request: PageRange, part: PageRange) {
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        let (now, waiter) = (Instant(0), Waiter(0));
        let part = Part { handle: HandleId(0), request: request.into(), pages: part };
        let outcome = self.cache.access(now, waiter, part.into(), &mut frames, &mut out);
        if outcome == ReadOutcome::Hit {
            self.cache.unpin(now, &frames, &mut out);
        }
        while !out.is_empty() {
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Decided(decision) => self.decisions.push(decision),
                    Action::Fill(fill) => self.cache.filled(now, fill.id, Ok(()), &mut out),
                    Action::Wake { result, .. } => {
                        self.cache.unpin(now, &result.expect("nothing fails"), &mut out);
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_read_page_by_page_decides_as_a_whole_read() {
    for policy in bowwave_baselines::ALL {
        let (mut whole, mut parts) = (Reader::new(policy), Reader::new(policy));
        let mut seed = 1u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut at = 0;
        for _ in 0..400 {
            at = if draw(4) == 0 { draw(PAGES) } else { at };
            let request = PageRange::new(at, at + 1 + draw(70));
            whole.read(request, request);
            for page in request.start.0..request.end.0 {
                parts.read(request, PageRange::new(page, page + 1));
            }
            at = request.end.0 % PAGES;
        }
        for (number, (whole, parts)) in whole.decisions.iter().zip(&parts.decisions).enumerate() {
            assert_eq!(whole, parts, "decision {number} of {policy}");
        }
        assert_eq!(whole.decisions.len(), parts.decisions.len(), "{policy}");
        assert!(policy == Policy::None || whole.decisions.len() > 100);
        let (whole, parts) = (whole.cache.stats(), parts.cache.stats());
        assert_eq!((whole.reads, whole.accesses), (parts.reads, parts.accesses), "{policy}");
    }
}
