//! `access_instant` compared with `access` whose fills complete at once: equal decisions, fills,
//! counters, pages and order of eviction, for every policy and eviction.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core instant` repeats it
//! alone.

use crate::instant_device;
use crate::rng::{Rng, seeds};
use bowwave_core::{
    Action, Advice, Cache, Config, Decision, Eviction, Fault, FileId, HandleId, Instant, Observer,
    PageAccess, PageCount, PageIndex, PageRange, Pattern, Policy, RangeConfig, ReadOutcome, Reason, Request,
    Urgency,
};

const SEEDS: u64 = 160;
const EVENTS: u32 = 1_500;
const FILES: u32 = 3;
const HANDLES: u32 = 5;
const FILE_PAGES: u64 = 500;

#[test]
fn an_instant_read_equals_a_read_whose_fills_complete_at_once() {
    let mut total = bowwave_core::Stats::default();
    let mut hits = 0;
    for seed in seeds(SEEDS) {
        let mut run = Run::new(seed);
        for event in 0..EVENTS {
            run.step(event);
        }
        run.empty();
        total += run.fast.stats();
        hits += run.hits;
    }
    // The runs must reach the rare cases.
    for (what, count) in [
        ("whole requests hit", hits),
        ("pages evicted", total.pages_evicted),
        ("pages thrashed", total.pages_thrashed),
        ("pages wasted", total.pages_wasted),
        ("pages refused", total.pages_refused),
        ("pages activated", total.refaults_activated),
    ] {
        assert!(count > 100, "only {count} {what}");
    }
    // Jumps repeat only without other reads for long; a scenario of `stream` covers them.
    for reason in Reason::ALL.into_iter().filter(|&reason| reason != Reason::Jumps) {
        assert!(total.decided(reason) > 25, "{} was decided {} times", reason.name(), total.decided(reason));
    }
}

/// Effects of a read, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    decisions: Vec<Decision>,
    fills: Vec<(FileId, PageRange, Urgency)>,
}

impl Observer for Log {
    fn filled(&mut self, file: FileId, range: PageRange, urgency: Urgency) {
        self.fills.push((file, range, urgency));
    }

    fn decided(&mut self, decision: &Decision) {
        self.decisions.push(*decision);
    }
}

struct Run {
    seed: u64,
    rng: Rng,
    slow: Cache,
    fast: Cache,
    cursors: Vec<u64>,
    hits: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let frames = if rng.chance(10) { Config::UNLIMITED } else { 8 + rng.below(300) as u32 };
        let config = Config {
            frames,
            reserve_frames: rng.below(u64::from(frames.min(40)) / 2) as u32,
            ra_pages: 1 << rng.below(7),
            fill_pages_max: if rng.chance(50) { u32::MAX } else { 1 + rng.below(16) as u32 },
            policy: bowwave_baselines::ALL[seed as usize % bowwave_baselines::ALL.len()],
            // Otherwise every file here would be small.
            range: RangeConfig {
                whole_bytes: if rng.chance(25) { 4 << 20 } else { 0 },
                ..RangeConfig::default()
            },
            eviction: Eviction::ALL[seed as usize / bowwave_baselines::ALL.len() % Eviction::ALL.len()],
            ..Config::default()
        };
        let [mut slow, mut fast] = [(); 2].map(|()| Cache::new(config.clone()).expect("within bounds"));
        for cache in [&mut slow, &mut fast] {
            for file in 0..FILES {
                cache.open_file(FileId(file), PageCount(FILE_PAGES));
            }
            for handle in 0..HANDLES {
                cache.open_handle(HandleId(handle), FileId(handle % FILES));
            }
        }
        Self { seed, rng, slow, fast, cursors: vec![0; HANDLES as usize], hits: 0 }
    }

    fn step(&mut self, event: u32) {
        let handle = self.rng.below(u64::from(HANDLES)) as u32;
        match self.rng.below(100) {
            0..80 => self.read(HandleId(handle)),
            80..90 => self.fault(HandleId(handle)),
            90..92 => {
                let advice = [
                    Advice::Normal,
                    Advice::Sequential,
                    Advice::Random,
                    Advice::WillNeed,
                    Advice::DontNeed,
                    Advice::Copied,
                    Advice::NoReuse,
                ][self.rng.below(7) as usize];
                let start = self.rng.below(FILE_PAGES);
                let range = PageRange::new(start, start + self.rng.below(60));
                for cache in [&mut self.slow, &mut self.fast] {
                    let mut out = Vec::new();
                    cache.advise(Instant(0), HandleId(handle), range, advice, &mut out);
                    instant_device::complete(cache, out, |_| ());
                }
            }
            92 => {
                let ranges: Vec<_> = (0..self.rng.below(6))
                    .map(|_| {
                        let start = self.rng.below(FILE_PAGES);
                        PageRange::new(start, start + self.rng.below(30))
                    })
                    .collect();
                for cache in [&mut self.slow, &mut self.fast] {
                    let mut out = Vec::new();
                    cache.set_read_plan(Instant(0), HandleId(handle), &ranges, &mut out).expect("few ranges");
                    instant_device::complete(cache, out, |_| ());
                }
            }
            93 => {
                let start = self.rng.below(FILE_PAGES);
                let range = PageRange::new(start, start + self.rng.below(60));
                self.slow.invalidate(FileId(handle % FILES), range);
                self.fast.invalidate(FileId(handle % FILES), range);
            }
            94 => {
                let congested = self.rng.chance(30);
                self.slow.set_congested(congested);
                self.fast.set_congested(congested);
            }
            95 => {
                let frames = self.rng.below(8) as u32;
                for cache in [&mut self.slow, &mut self.fast] {
                    cache.grant(Instant(0), frames, &mut Vec::new());
                }
            }
            96 => self.revoke(self.rng.0 as u32 % 8),
            _ => {
                for cache in [&mut self.slow, &mut self.fast] {
                    cache.close_handle(Instant(0), HandleId(handle), &mut Vec::new());
                    cache.open_handle(HandleId(handle), FileId(handle % FILES));
                }
            }
        }
        self.compare(event.is_multiple_of(8));
    }

    fn read(&mut self, handle: HandleId) {
        let cursor = &mut self.cursors[handle.0 as usize];
        let length = 1 + if self.rng.chance(85) { self.rng.below(5) } else { self.rng.below(90) };
        // Every third handle mostly reads with a stride.
        let strided = handle.0.is_multiple_of(3) && self.rng.chance(90);
        let length = if strided { 2 } else { length };
        let start = match self.rng.below(10) {
            _ if strided => *cursor + 18,
            0 => self.rng.below(FILE_PAGES),
            1 => cursor.saturating_sub(self.rng.below(30)),
            2 => *cursor + self.rng.below(3),
            3 if self.rng.chance(20) => 0,
            _ => *cursor,
        };
        *cursor = if start > FILE_PAGES { 0 } else { start + length };
        let range =
            Request { range: PageRange::new(start, start + length), ends_inside: self.rng.chance(20) };
        let (mut expected, mut found) = (Log::default(), Log::default());
        let access = PageAccess::read(handle, range);
        let slow = expected.access(&mut self.slow, access);
        let fast = self.fast.access_instant(Instant(0), access, &mut found).ok();
        self.hits += u64::from(fast == Some(ReadOutcome::Hit));
        assert_eq!(fast, slow, "BOWWAVE_SEED={}: {range:?}", self.seed);
        assert_eq!(found, expected, "BOWWAVE_SEED={}: {range:?}", self.seed);
    }

    fn fault(&mut self, handle: HandleId) {
        let cursor = &mut self.cursors[handle.0 as usize];
        *cursor = if self.rng.chance(30) { self.rng.below(FILE_PAGES) } else { *cursor + self.rng.below(3) };
        let pattern = [Pattern::Normal, Pattern::Sequential, Pattern::Random][self.rng.below(3) as usize];
        let fault = Fault { page: PageIndex(*cursor), pattern };
        let (mut expected, mut found) = (Log::default(), Log::default());
        let access = PageAccess::fault(handle, fault);
        let slow = expected.access(&mut self.slow, access).is_some();
        let fast = self.fast.access_instant(Instant(0), access, &mut found).is_ok();
        assert_eq!((fast, &found), (slow, &expected), "BOWWAVE_SEED={}: {fault:?}", self.seed);
    }

    fn compare(&self, pages: bool) {
        let seed = self.seed;
        assert_eq!(self.fast.stats(), self.slow.stats(), "BOWWAVE_SEED={seed}");
        assert_eq!(self.fast.frames_used(), self.slow.frames_used(), "BOWWAVE_SEED={seed}");
        if pages {
            self.fast.check().unwrap_or_else(|violation| panic!("BOWWAVE_SEED={seed}: {}", violation.0));
            assert_eq!(resident(&self.fast), resident(&self.slow), "BOWWAVE_SEED={seed}");
        }
    }

    fn revoke(&mut self, frames: u32) {
        for cache in [&mut self.slow, &mut self.fast] {
            cache.revoke(frames, &mut Vec::new());
        }
    }

    /// Takes the frames back one by one, which shows the order of eviction.
    fn empty(&mut self) {
        loop {
            let before = self.fast.frame_limit();
            self.revoke(1);
            self.compare(true);
            if self.fast.frame_limit() == before || before > 1000 {
                break;
            }
        }
    }
}

/// The resident pages.
fn resident(cache: &Cache) -> Vec<(u32, u64)> {
    let pages = (0..FILES).flat_map(|file| (0..FILE_PAGES).map(move |page| (file, page)));
    pages.filter(|&(file, page)| cache.is_cached(FileId(file), PageIndex(page))).collect()
}

impl Log {
    /// An access by a driver with an instant device; none if it failed.
    fn access(&mut self, cache: &mut Cache, access: PageAccess) -> Option<ReadOutcome> {
        let see = |action: &Action| match action {
            Action::Decided(decision) => self.decisions.push(*decision),
            Action::Fill(fill) => self.fills.push((fill.file, fill.range, fill.urgency)),
            _ => {}
        };
        instant_device::access(cache, access, see)
    }
}

/// Exactly the least recently used page is evicted, compared with a linear search.
#[test]
fn lru_is_exact() {
    for frames in [1, 2, 7, 50] {
        let mut rng = Rng(u64::from(frames));
        let config = Config { frames, policy: Policy::None, eviction: Eviction::Lru, ..Config::default() };
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FileId(0), PageCount(FILE_PAGES));
        cache.open_handle(HandleId(0), FileId(0));
        cache.open_handle(HandleId(1), FileId(0));
        let mut model: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            let reach = 1 + rng.below(80);
            let page = rng.below(reach);
            let place = model.iter().position(|&other| other == page);
            let handle = HandleId(rng.below(2) as u32);
            let outcome = cache.access_instant(
                Instant(0),
                PageAccess::read(handle, PageRange::new(page, page + 1)),
                &mut (),
            );
            assert_eq!(outcome == Ok(ReadOutcome::Hit), place.is_some());
            if let Some(place) = place {
                model.remove(place);
            } else if model.len() == frames as usize {
                model.remove(0);
            }
            model.push(page);
        }
        assert!(cache.stats().pages_evicted > 0);
    }
}
