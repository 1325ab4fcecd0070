//! Random drivers against the invariants: any order of reads, completions, failures, advice,
//! invalidation, closing, lending.
//!
//! A failure prints its seed; `BOWWAVE_SEED=… cargo test -p bowwave-core random_events`
//! repeats it alone.

use std::collections::BTreeMap;

use crate::checked::Checked;
use crate::rng::{Rng, seeds};
use bowwave_baselines::LinuxConfig;
use bowwave_core::{
    Action, Advice, Cache, Clusters, Config, Event, Eviction, Fault, FileId, FillError, FillId, FrameId,
    HandleId, PageAccess, PageCount, PageIndex, PageRange, Part, Pattern, Pins, Policy, RangeConfig, Reason,
    Request, Waiter, WindowTuning, WriteBackConfig,
};

const SEEDS: u64 = 320;
const EVENTS: u32 = 5_000;
/// Full checks after each event would take most of the time.
const FULL_CHECK_EVERY: u32 = 16;

#[test]
fn a_million_random_events_keep_every_invariant() {
    let mut total = bowwave_core::Stats::default();
    let mut fast_hits = 0;
    for seed in seeds(SEEDS) {
        let mut run = Run::new(seed);
        if let Err(problem) = run.go() {
            panic!("BOWWAVE_SEED={seed}, event {}: {problem}", run.driven.events());
        }
        total += run.driven.cache.stats();
        fast_hits += run.fast_hits;
        run.replay();
    }
    assert!(fast_hits > 10_000, "only {fast_hits} hits of the fast path");
    // The runs must reach the rare cases.
    for (what, count) in [
        ("hits", total.hits),
        ("late", total.late),
        ("promoted", total.fills_promoted),
        ("failed", total.fills_failed),
        ("evicted", total.pages_evicted),
        ("thrashed", total.pages_thrashed),
        ("wasted", total.pages_wasted),
        ("refused", total.pages_refused),
        ("activated", total.refaults_activated),
        ("starved", total.reads_starved),
    ] {
        assert!(count > 100, "only {count} pages or fills were {what}");
    }
    // Jumps repeat only without other reads for long; a scenario of `stream` covers them.
    for reason in Reason::ALL.into_iter().filter(|&reason| reason != Reason::Jumps) {
        assert!(total.decided(reason) > 20, "{} was decided {} times", reason.name(), total.decided(reason));
    }
}

/// One random driver and its state.
struct Run {
    rng: Rng,
    driven: Checked,
    /// Hits of the fast path.
    fast_hits: u64,
    files: Vec<Option<PageCount>>,
    handles: Vec<Option<FileId>>,
    next_waiter: u64,
    /// Reads not woken, with their handles.
    waiting: BTreeMap<Waiter, HandleId>,
    /// Frames of completed reads that are still pinned.
    held: Vec<Vec<FrameId>>,
    /// Position of each handle's sequential reader.
    cursors: BTreeMap<HandleId, u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let frames = if rng.chance(5) { Config::UNLIMITED } else { 8 + rng.below(200) as u32 };
        let config = Config {
            frames,
            reserve_frames: rng.below(u64::from(frames.min(40)) / 2) as u32,
            ra_pages: 1 << rng.below(7),
            fill_pages_max: if rng.chance(50) { u32::MAX } else { 1 + rng.below(16) as u32 },
            eviction: if rng.chance(80) { Eviction::TwoList } else { Eviction::ALL[rng.below(3) as usize] },
            policy: {
                let policy = bowwave_baselines::ALL[rng.below(bowwave_baselines::ALL.len() as u64) as usize];
                let linux = LinuxConfig {
                    io_pages: rng.below(100) as u32,
                    align_end: rng.chance(50),
                    folio_order_max: rng.below(10) as u8,
                    mark_at_eof: rng.chance(50),
                };
                if policy == bowwave_baselines::LINUX { bowwave_baselines::linux(linux) } else { policy }
            },
            range: RangeConfig {
                range_bytes: [0, 1 << 16, 1 << 17, 1 << 20][rng.below(4) as usize],
                // Otherwise every file here would be small.
                whole_bytes: if rng.chance(25) { 1 << 20 } else { 0 },
                file_bytes_max: 1 << (20 + rng.below(8)),
                clusters: [Clusters::Suited, Clusters::Learned, bowwave_baselines::CLUSTERS_BEFORE]
                    [rng.below(3) as usize],
                fault_bytes: if rng.chance(30) { 16 << 10 } else { 0 },
            },
            ..Config::default()
        };
        Self {
            rng,
            driven: Checked::new(config),
            fast_hits: 0,
            files: vec![None; 4],
            handles: vec![None; 6],
            next_waiter: 0,
            waiting: BTreeMap::new(),
            held: Vec::new(),
            cursors: BTreeMap::new(),
        }
    }

    fn go(&mut self) -> Result<(), String> {
        for step in 0..EVENTS {
            self.driven.now += self.rng.below(3);
            match self.pick() {
                Some(Event::Access { waiter, access })
                    if self.rng.chance(50) && self.try_hit(waiter, access)? => {}
                Some(event) => self.step(event)?,
                None => {}
            }
            if step % FULL_CHECK_EVERY == 0 {
                self.driven.cache.check().map_err(|violation| violation.0)?;
            }
        }
        self.drain()
    }

    /// Completes all fills and unpins all frames: then no read may wait, and no frame may be in
    /// use.
    fn drain(&mut self) -> Result<(), String> {
        while self.driven.cache.fills_in_flight() > 0 || !self.held.is_empty() {
            if let Some(frames) = self.held.pop() {
                self.step(Event::Unpin { frames })?;
            }
            let fill = self.driven.checker.fills().next().map(|fill| fill.id);
            if let Some(fill) = fill {
                self.step(Event::Filled { fill, result: Ok(()) })?;
            }
            self.driven.cache.check().map_err(|violation| violation.0)?;
        }
        match self.driven.checker.reads_waiting() {
            0 => Ok(()),
            left => Err(format!("I2: {left} reads wait for ever")),
        }
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        if let Event::Filled { fill, result: Err(FillError::ABANDONED) } = event {
            // Unpinned later, like other frames.
            self.held.push(self.driven.cache.fill_frames(fill).collect());
        }
        for action in self.driven.step(event)? {
            if let Action::Wake { waiter, result } = action {
                self.waiting.remove(&waiter);
                if let Ok(frames) = result {
                    self.held.push(frames);
                }
            }
        }
        Ok(())
    }

    /// Tries the fast path; returns whether it was a hit. The log gets the equivalent `access`, and
    /// `unpin` if pins are skipped, so the replay takes the slow path.
    fn try_hit(&mut self, waiter: Waiter, access: PageAccess) -> Result<bool, String> {
        let mut frames = Vec::new();
        let pins = if self.rng.chance(50) { Pins::Held } else { Pins::Skipped };
        if !self.driven.cache.try_hit(access, pins, &mut frames) {
            return Ok(false);
        }
        self.waiting.remove(&waiter);
        let answer = vec![Action::Wake { waiter, result: Ok(frames.clone()) }];
        let mut calls = vec![(Event::Access { waiter, access }, answer)];
        match pins {
            Pins::Held => self.held.push(frames),
            Pins::Skipped => calls.push((Event::Unpin { frames }, Vec::new())),
        }
        for (event, out) in calls {
            self.driven.record(event, &out)?;
        }
        self.fast_hits += 1;
        Ok(true)
    }

    /// The next event, if it is possible now.
    fn pick(&mut self) -> Option<Event> {
        match self.rng.below(100) {
            0..50 => self.pick_read(),
            50..80 => self.pick_answer(),
            80..90 => {
                let index = self.rng.index(self.held.len())?;
                Some(Event::Unpin { frames: self.held.swap_remove(index) })
            }
            90..93 => self.pick_advice(),
            93 => {
                let file = self.open_file()?;
                let start = self.rng.below(300);
                let range = PageRange::new(start, start + self.rng.below(60));
                Some(Event::Invalidate { file, range })
            }
            94 => Some(Event::Congestion { congested: self.rng.chance(30) }),
            95 => Some(Event::Granted { frames: self.rng.below(8) as u32 }),
            96 => Some(Event::Revoked { frames: self.rng.below(8) as u32 }),
            97 => {
                let [ra_pages, la_size] = [64, 40].map(|below| self.rng.below(below) as u32);
                let windows = WindowTuning { ra_pages, la_size, persist: self.rng.chance(30) };
                Some(Event::Tuned { windows, write_back: WriteBackConfig::default() })
            }
            98 if self.rng.below(256) == 0 => {
                let policies = [Policy::None, Policy::OnDemand, Policy::Range, Policy::Stream];
                let policy = policies[self.rng.below(4) as usize];
                Some(Event::PolicySet { policy, range: RangeConfig::default() })
            }
            _ => self.pick_open_or_close(),
        }
    }

    fn pick_read(&mut self) -> Option<Event> {
        let handle = self.open_handle()?;
        let cursor = self.cursors.entry(handle).or_default();
        let length = 1 + if self.rng.chance(80) { self.rng.below(6) } else { self.rng.below(90) };
        // Every third handle mostly reads with a stride.
        let strided = handle.0.is_multiple_of(3) && self.rng.chance(90);
        let length = if strided { 2 } else { length };
        let start = match self.rng.below(10) {
            _ if strided => *cursor + 18,
            0 => self.rng.below(400),
            1 => cursor.saturating_sub(self.rng.below(8)),
            2 => *cursor + self.rng.below(3),
            3 if self.rng.chance(20) => 0,
            _ => *cursor,
        };
        *cursor = if start > 400 { 0 } else { start + length };
        let waiter = Waiter(self.next_waiter);
        self.next_waiter += 1;
        self.waiting.insert(waiter, handle);
        if self.rng.chance(10) {
            let pattern = [Pattern::Normal, Pattern::Sequential, Pattern::Random][self.rng.below(3) as usize];
            return Some(Event::Access {
                waiter,
                access: PageAccess::fault(handle, Fault { page: PageIndex(start), pattern }),
            });
        }
        let ends_inside = self.rng.chance(20);
        let request = Request { range: PageRange::new(start, start + length), ends_inside };
        if self.rng.chance(15) {
            let first = start + self.rng.below(length);
            let pages = PageRange::new(first, first + 1 + self.rng.below(start + length - first));
            return Some(Event::Access { waiter, access: Part { handle, request, pages }.into() });
        }
        Some(Event::Access { waiter, access: PageAccess::read(handle, request) })
    }

    fn pick_answer(&mut self) -> Option<Event> {
        let fills: Vec<FillId> = self.driven.checker.fills().map(|fill| fill.id).collect();
        let fill = fills[self.rng.index(fills.len())?];
        let result = match self.rng.below(100) {
            0..12 => Err(FillError(self.rng.below(9) as u16)),
            12..15 => Err(FillError::ABANDONED),
            _ => Ok(()),
        };
        Some(Event::Filled { fill, result })
    }

    fn pick_advice(&mut self) -> Option<Event> {
        let handle = self.open_handle()?;
        let start = self.rng.below(300);
        let range = PageRange::new(start, start + self.rng.below(100));
        let all = [
            Advice::Normal,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::DontNeed,
            Advice::Copied,
            Advice::NoReuse,
        ];
        if self.rng.chance(5) {
            let pages = if self.rng.chance(30) { u64::MAX } else { self.rng.below(100) };
            return Some(Event::Allowed { pages });
        }
        if self.rng.chance(40) {
            let ranges = (0..self.rng.below(8)).map(|_| {
                let start = self.rng.below(380);
                PageRange::new(start, start + self.rng.below(20))
            });
            return Some(Event::SetReadPlan { handle, ranges: ranges.collect() });
        }
        Some(Event::Advise { handle, range, advice: all[self.rng.below(6) as usize] })
    }

    fn pick_open_or_close(&mut self) -> Option<Event> {
        if self.rng.chance(60) {
            let number = self.rng.index(self.handles.len())?;
            let handle = HandleId(number as u32);
            if self.handles[number].is_none() {
                let file = self.open_file()?;
                self.handles[number] = Some(file);
                return Some(Event::OpenHandle { handle, file });
            }
            // The driver closes a handle only after the reads through it.
            if self.rng.chance(60) || self.waiting.values().any(|&other| other == handle) {
                return None;
            }
            self.handles[number] = None;
            return Some(Event::CloseHandle { handle });
        }
        let number = self.rng.index(self.files.len())?;
        let file = FileId(number as u32);
        if self.files[number].is_none() {
            let pages = PageCount(self.rng.below(400));
            self.files[number] = Some(pages);
            return Some(Event::OpenFile { file, pages });
        }
        if self.rng.chance(60)
            || self.handles.contains(&Some(file))
            || self.driven.checker.fills().any(|fill| fill.file == file)
        {
            return None;
        }
        self.files[number] = None;
        Some(Event::CloseFile { file })
    }

    fn open_file(&mut self) -> Option<FileId> {
        let number = self.rng.index(self.files.len())?;
        self.files[number].map(|_| FileId(number as u32))
    }

    fn open_handle(&mut self) -> Option<HandleId> {
        let number = self.rng.index(self.handles.len())?;
        self.handles[number].map(|_| HandleId(number as u32))
    }

    /// I8; and the fast path for hits leaves the same cache behind as `access` alone: the same
    /// actions, counters and pages, and the same order of eviction.
    fn replay(&mut self) {
        let (mut cache, mut out) = (self.driven.replay(), Vec::new());
        loop {
            assert_eq!(cache.stats(), self.driven.cache.stats(), "the replay counts differently");
            assert_eq!(self.cached(&cache), self.cached(&self.driven.cache), "the replay has other pages");
            let limit = cache.frame_limit();
            for cache in [&mut cache, &mut self.driven.cache] {
                cache.revoke(1, &mut out);
            }
            if cache.frame_limit() == limit || limit > 1000 {
                break;
            }
        }
    }

    /// The pages of open files that `cache` has.
    fn cached(&self, cache: &Cache) -> Vec<(FileId, PageIndex)> {
        let files = (0..).map(FileId).zip(&self.files).filter_map(|(file, pages)| Some((file, (*pages)?)));
        let pages = files.flat_map(|(file, pages)| (0..pages.0).map(move |page| (file, PageIndex(page))));
        pages.filter(|&(file, page)| cache.is_cached(file, page)).collect()
    }
}
