//! A read page by page on an instant device makes the same decisions as one whole read.

use crate::instant_device;
use bowwave_core::{Action, Cache, Config, Decision, FileId, HandleId, PageCount, PageRange, Part, Policy};

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
        let part = Part { handle: HandleId(0), request: request.into(), pages: part };
        let see = |action: &Action| {
            if let Action::Decided(decision) = action {
                self.decisions.push(*decision);
            }
        };
        instant_device::access(&mut self.cache, part.into(), see).expect("no fill fails");
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
