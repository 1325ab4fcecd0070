//! The limit of readahead in flight: exact to the page for any reads, and no reader waits for it.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core ahead` repeats it
//! alone.

use crate::rng::{Rng, seeds};
use bowwave_core::{
    Action, Advice, Cache, Config, Event, FileId, FillId, HandleId, Instant, PageAccess, PageCount,
    PageRange, Policy, Waiter,
};

const FILE_PAGES: u64 = 4000;
const HANDLES: u64 = 4;

/// Readers of a file, and a store that completes requests in any order.
struct Run {
    rng: Rng,
    cache: Cache,
    limit: u64,
    fills: Vec<FillId>,
    next_waiter: u64,
    waiting: u64,
    cursors: [u64; HANDLES as usize],
    /// Most pages of readahead requested by one step.
    most: u64,
}

impl Run {
    fn new(seed: u64, limit: u64) -> Self {
        let mut rng = Rng(seed);
        let config = Config {
            frames: 400 + rng.below(1000) as u32,
            reserve_frames: 16,
            ra_pages: 1 << rng.below(8),
            fill_pages_max: 64,
            policy: bowwave_baselines::ALL[seed as usize % bowwave_baselines::ALL.len()],
            ..Config::default()
        };
        let mut run = Self {
            rng,
            cache: Cache::new(config).expect("within bounds"),
            limit,
            fills: Vec::new(),
            next_waiter: 0,
            waiting: 0,
            cursors: [0; HANDLES as usize],
            most: 0,
        };
        run.step(Event::OpenFile { file: FileId(0), pages: PageCount(FILE_PAGES) });
        (0..HANDLES as u32).for_each(|handle| {
            run.step(Event::OpenHandle { handle: HandleId(handle), file: FileId(0) });
        });
        run.step(Event::Allowed { pages: limit });
        run
    }

    fn step(&mut self, event: Event) {
        let (before, limit) = (self.cache.pages_ahead(), self.limit);
        let mut out = Vec::new();
        self.cache.step(Instant(0), event, &mut out);
        let after = self.cache.pages_ahead();
        assert!(after <= limit.max(before), "{after} pages are ahead, {before} were, {limit} may be");
        self.most = self.most.max(after);
        for action in out {
            match action {
                Action::Fill(fill) => self.fills.push(fill.id),
                Action::Wake { result, .. } => {
                    self.waiting -= 1;
                    let frames = result.expect("memory is enough and nothing fails");
                    self.step(Event::Unpin { frames });
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self) {
        if let Some(at) = self.rng.index(self.fills.len()) {
            let fill = self.fills.swap_remove(at);
            self.step(Event::Filled { fill, result: Ok(()) });
        }
    }

    fn act(&mut self) {
        let handle = self.rng.below(HANDLES);
        match self.rng.below(100) {
            0..45 => self.answer(),
            45..48 => {
                let start = self.rng.below(FILE_PAGES);
                let ranges = (0..5).map(|n| PageRange::new(start + n * 40, start + n * 40 + 30)).collect();
                self.step(Event::SetReadPlan { handle: HandleId(handle as u32), ranges });
            }
            48..50 => {
                self.limit = self.rng.below(300);
                self.step(Event::Allowed { pages: self.limit });
            }
            _ => {
                let cursor = &mut self.cursors[handle as usize];
                if self.rng.chance(5) || *cursor >= FILE_PAGES {
                    *cursor = self.rng.below(FILE_PAGES);
                }
                let length = 1 + self.rng.below(8);
                let request = PageRange::new(*cursor, *cursor + length);
                *cursor += length;
                self.next_waiter += 1;
                self.waiting += 1;
                let waiter = Waiter(self.next_waiter);
                self.step(Event::Access {
                    waiter,
                    access: PageAccess::read(HandleId(handle as u32), request),
                });
            }
        }
    }
}

#[test]
fn readahead_in_flight_stays_within_its_limit_and_every_reader_finishes() {
    let mut much = 0;
    for seed in seeds(160) {
        let mut run = Run::new(seed, 40);
        (0..2000).for_each(|_| run.act());
        run.cache.check().unwrap_or_else(|violation| panic!("BOWWAVE_SEED={seed}: {}", violation.0));
        while !run.fills.is_empty() {
            run.answer();
        }
        assert_eq!((run.waiting, run.cache.pages_ahead()), (0, 0), "BOWWAVE_SEED={seed}");
        much += u64::from(run.most > 60);
    }
    assert!(much > 80, "only {much} runs had much readahead in flight");
}

#[test]
fn with_a_limit_of_zero_nothing_is_read_ahead() {
    for seed in seeds(40) {
        let mut run = Run::new(seed, 0);
        for _ in 0..400 {
            run.answer();
            let start = run.rng.below(FILE_PAGES);
            run.next_waiter += 1;
            run.waiting += 1;
            let (waiter, request) = (Waiter(run.next_waiter), PageRange::new(start, start + 3));
            run.step(Event::Access { waiter, access: PageAccess::read(HandleId(0), request) });
        }
        assert_eq!(run.cache.stats().pages_readahead, 0, "BOWWAVE_SEED={seed}");
    }
}

/// A small rest of the limit is not worth a request, unless it is all that is needed.
#[test]
fn a_rest_smaller_than_a_request_is_unused() {
    let ahead = |pages: u64, file_pages: u64| {
        let mut cache = Cache::new(Config { policy: Policy::OnDemand, ..Config::default() }).expect("valid");
        cache.open_file(FileId(0), PageCount(file_pages));
        cache.open_handle(HandleId(0), FileId(0));
        cache.allow_ahead(pages);
        let (range, mut out) = (PageRange::new(0, 100), Vec::new());
        cache.advise(Instant(0), HandleId(0), range, Advice::WillNeed, &mut out);
        cache.pages_ahead()
    };
    assert_eq!([u64::MAX, 100, 99, 16, 15, 0].map(|pages| ahead(pages, 1000)), [100, 100, 96, 16, 0, 0]);
    assert_eq!(ahead(15, 12), 12, "the file has no more, so that is all that is wanted");
}
