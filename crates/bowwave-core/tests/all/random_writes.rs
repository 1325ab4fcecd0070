//! Random writers, readers, syncs and truncations, with page contents: no stale reads, no false
//! syncs, no lost bytes.
//!
//! A page has two halves; a half is the number of its write. A failure prints its seed;
//! `BOWWAVE_SEED=… cargo test -p bowwave-core random_writes` repeats it alone.

use std::collections::BTreeMap;

use crate::checked::Checked;
use crate::rng::{Rng, seeds};
use bowwave_core::{
    Action, Base, Config, Event, FileId, FillError, FillId, FrameId, HandleId, PageAccess, PageCount,
    PageIndex, PageRange, Stats, SyncFor, Target, Waiter, WindowTuning, Write, WriteBackConfig, WriteOut,
    WriteOutcome,
};

const SEEDS: u64 = 200;
const STEPS: u32 = 3_000;
const FILES: usize = 3;
/// Longest file, in pages.
const PAGES_MAX: u64 = 60;

type Page = [u64; 2];

#[test]
fn reads_return_written_bytes_and_synced_bytes_are_in_the_store() {
    let (mut total, mut failures) = (Stats::default(), 0);
    for seed in seeds(SEEDS) {
        let mut run = Run::new(seed);
        if let Err(problem) = run.go() {
            panic!("BOWWAVE_SEED={seed}, event {}: {problem}", run.driven.events());
        }
        total += run.driven.cache.stats();
        failures += run.writes_failed;
        run.driven.replay();
    }
    for (what, count) in [
        ("dirtied", total.pages_dirtied),
        ("written", total.pages_written),
        ("discarded", total.pages_discarded),
        ("failed", total.write_outs_failed),
        ("throttled", total.writes_throttled),
        ("evicted", total.pages_evicted),
        ("starved", total.reads_starved),
        ("refused to writers", failures),
    ] {
        assert!(count > 100, "only {count} pages, reads or writes were {what}");
    }
}

/// A waiter and its wait.
enum Wait {
    /// A read of pages, which then held at least this.
    Read(PageRange, Vec<Page>),
    /// Memory for a write from one half to another.
    Write(FileId, u64, u64),
    /// The store must have at least this of a file.
    Sync(FileId, PageRange, Vec<Page>),
    /// A truncation to this many pages.
    Cut(FileId, u64),
}

struct Run {
    rng: Rng,
    driven: Checked,
    write_back: WriteBackConfig,
    /// Contents of frames.
    memory: BTreeMap<FrameId, Page>,
    /// Contents of the store.
    store: Vec<Vec<Page>>,
    /// Written contents.
    truth: Vec<Vec<Page>>,
    /// Files that are being truncated: no writes.
    cut: [bool; FILES],
    stamp: u64,
    next_waiter: u64,
    waiting: BTreeMap<Waiter, Wait>,
    held: Vec<Vec<FrameId>>,
    writes_failed: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let frames = 4 + rng.below(80) as u32;
        let dirty_max = 2 + rng.below(40) as u32;
        let config = Config {
            frames,
            reserve_frames: rng.below(u64::from(frames) / 4) as u32,
            ra_pages: 1 << rng.below(5),
            fill_pages_max: 1 + rng.below(16) as u32,
            policy: bowwave_baselines::ALL[rng.below(bowwave_baselines::ALL.len() as u64) as usize],
            write_back: WriteBackConfig {
                dirty_max,
                background: rng.below(u64::from(dirty_max)) as u32,
                expire_ns: 200,
                out_pages_max: 1 + rng.below(12) as u32,
                in_flight_max: 1 + rng.below(20) as u32,
            },
            ..Config::default()
        };
        let mut run = Self {
            write_back: config.write_back,
            driven: Checked::new(config),
            memory: BTreeMap::new(),
            store: vec![Vec::new(); FILES],
            truth: vec![Vec::new(); FILES],
            cut: [false; FILES],
            stamp: 0,
            next_waiter: 0,
            waiting: BTreeMap::new(),
            held: Vec::new(),
            writes_failed: 0,
            rng,
        };
        for number in 0..FILES as u32 {
            let pages = run.rng.below(PAGES_MAX);
            run.store[number as usize] = (0..pages).map(|_| [run.stamp, run.stamp]).collect();
            run.truth[number as usize] = run.store[number as usize].clone();
            let (file, handle) = (FileId(number), HandleId(number));
            run.step(Event::OpenFile { file, pages: PageCount(pages) }).expect("nothing happens");
            run.step(Event::OpenHandle { handle, file }).expect("nothing happens");
        }
        run
    }

    fn go(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.driven.now += self.rng.below(3);
            match self.rng.below(100) {
                0..30 => self.write()?,
                30..45 => self.read()?,
                45..60 => self.answer_fill(3)?,
                60..80 => self.answer_write_out(6)?,
                80..88 => self.unpin()?,
                88..92 => self.sync()?,
                92 => self.begin_cut()?,
                93 => self.step(Event::Expire)?,
                94 => {
                    let frames = self.rng.below(4) as u32;
                    self.step(Event::Granted { frames })?;
                }
                95 => {
                    let frames = self.rng.below(4) as u32;
                    self.step(Event::Revoked { frames })?;
                }
                96 => {
                    let dirty_max = 2 + self.rng.below(12) as u32;
                    let background = self.rng.below(u64::from(dirty_max)) as u32;
                    let write_back = WriteBackConfig { dirty_max, background, ..self.write_back };
                    let windows = WindowTuning { ra_pages: 8, la_size: u32::MAX, persist: false };
                    self.step(Event::Tuned { windows, write_back })?;
                }
                _ => {
                    let file = FileId(self.rng.below(FILES as u64) as u32);
                    let start = self.rng.below(PAGES_MAX);
                    self.step(Event::Invalidate { file, range: PageRange::new(start, start + 4) })?;
                }
            }
            self.driven.cache.check().map_err(|violation| violation.0)?;
        }
        self.finish()
    }

    /// Everything succeeds from here on: nothing waits, and the store has all bytes.
    fn finish(&mut self) -> Result<(), String> {
        for round in 0.. {
            while self.driven.checker.write_outs().next().is_some()
                || self.driven.checker.fills().next().is_some()
            {
                self.answer_fill(0)?;
                self.answer_write_out(0)?;
            }
            while !self.held.is_empty() {
                self.unpin()?;
            }
            let moved = self.driven.checker.write_outs().next().is_some()
                || self.driven.checker.fills().next().is_some();
            if moved {
                continue;
            }
            if self.waiting.is_empty() {
                break;
            }
            // Rejected pages are retried then.
            self.driven.now += self.write_back.expire_ns;
            self.step(Event::Expire)?;
            if round > 10_000 {
                return Err(format!("{} wait for ever", self.waiting.len()));
            }
        }
        for file in 0..FILES as u32 {
            self.sync_of(FileId(file), PageRange::new(0, u64::MAX))?;
        }
        while self.driven.checker.write_outs().next().is_some() {
            self.answer_write_out(0)?;
        }
        let same = (0..FILES).all(|file| {
            (0..self.truth[file].len()).all(|page| self.stored(file, page as u64) == self.truth[file][page])
        });
        let left = self.driven.cache.pages_unwritten();
        if !same || left != (0, 0) || !self.waiting.is_empty() {
            return Err(format!("the store lacks bytes, or {left:?} pages are dirty"));
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        let file = self.rng.below(FILES as u64) as usize;
        let size = 2 * self.truth[file].len() as u64;
        let from = if self.rng.chance(40) { size } else { self.rng.below(size + 8) };
        let to = (from + 1 + self.rng.below(20)).min(2 * PAGES_MAX);
        if self.cut[file] || from >= to {
            return Ok(());
        }
        self.write_halves(FileId(file as u32), from, to, false)
    }

    fn write_halves(&mut self, file: FileId, from: u64, to: u64, woken: bool) -> Result<(), String> {
        let range = PageRange::new(from / 2, to.div_ceil(2));
        let keeps_head = !from.is_multiple_of(2);
        let keeps_tail = !to.is_multiple_of(2);
        // One at a time, as in engines: a truncation waits for writes to end.
        let waiter = self.waiter(Wait::Write(file, from, to));
        self.step(Event::Write { waiter, write: Write { file, range, keeps_head, keeps_tail, woken } })
    }

    /// The cache returned target frames.
    fn took(&mut self, waiter: Waiter, outcome: WriteOutcome, targets: &[Target]) -> Result<(), String> {
        if outcome == WriteOutcome::Wait {
            return Ok(());
        }
        let Some(Wait::Write(file, from, to)) = self.waiting.remove(&waiter) else {
            return Err(format!("{waiter:?} does not write"));
        };
        match outcome {
            WriteOutcome::Accepted(pages) => {
                let end = to.min((from / 2 + pages) * 2);
                self.stamp += 1;
                let truth = &mut self.truth[file.0 as usize];
                truth.resize(truth.len().max(end.div_ceil(2) as usize), [0, 0]);
                for (target, page) in targets.iter().zip(from / 2..) {
                    let mut bytes = match target.base {
                        Base::Page => *self.memory.get(&target.frame).ok_or("a page without bytes")?,
                        Base::Copy(old) => *self.memory.get(&old).ok_or("an old page without bytes")?,
                        Base::Zeros => [0, 0],
                    };
                    for (half, byte) in (page * 2..).zip(&mut bytes) {
                        if (from..end).contains(&half) {
                            *byte = self.stamp;
                            truth[page as usize][(half % 2) as usize] = self.stamp;
                        }
                    }
                    if bytes != truth[page as usize] {
                        return Err(format!("page {page} holds {bytes:?}, not {:?}", truth[page as usize]));
                    }
                    self.memory.insert(target.frame, bytes);
                }
                // A gap reads as zeros; engines make the store extend the file.
                let stored = &mut self.store[file.0 as usize];
                stored.resize(stored.len().max((from / 2) as usize), [0, 0]);
                if end < to { self.write_halves(file, end, to, false) } else { Ok(()) }
            }
            // Requested, and written another time.
            WriteOutcome::Read(page) => self.read_pages(file, PageRange::new(page.0, page.0 + 1)),
            WriteOutcome::Failed(_) => {
                self.writes_failed += 1;
                Ok(())
            }
            WriteOutcome::Wait => unreachable!("returned above"),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let file = FileId(self.rng.below(FILES as u64) as u32);
        let start = self.rng.below(PAGES_MAX);
        let end = start + 1 + self.rng.below(8);
        self.read_pages(file, PageRange::new(start, end))
    }

    fn read_pages(&mut self, file: FileId, range: PageRange) -> Result<(), String> {
        let range = range.clip(PageIndex(self.truth[file.0 as usize].len() as u64));
        if range.is_empty() || self.cut[file.0 as usize] {
            return Ok(());
        }
        let now = self.truth[file.0 as usize][range.start.0 as usize..range.end.0 as usize].to_vec();
        let waiter = self.waiter(Wait::Read(range, now));
        self.step(Event::Access { waiter, access: PageAccess::read(HandleId(file.0), range) })
    }

    fn sync(&mut self) -> Result<(), String> {
        let file = FileId(self.rng.below(FILES as u64) as u32);
        let start = if self.rng.chance(70) { 0 } else { self.rng.below(PAGES_MAX) };
        let end = if self.rng.chance(70) { u64::MAX } else { start + self.rng.below(20) };
        self.sync_of(file, PageRange::new(start, end))
    }

    fn sync_of(&mut self, file: FileId, range: PageRange) -> Result<(), String> {
        let truth = &self.truth[file.0 as usize];
        let clipped = range.clip(PageIndex(truth.len() as u64));
        let pages = clipped.start.0 as usize..clipped.end.0 as usize;
        // Contents of a file in truncation are undefined.
        let sure = if self.cut[file.0 as usize] { None } else { truth.get(pages) };
        let now = sure.unwrap_or_default().to_vec();
        let waiter = self.waiter(Wait::Sync(file, clipped, now));
        let why = if self.rng.chance(50) { SyncFor::Safety } else { SyncFor::Close };
        self.step(Event::Sync { waiter, file, range, why })
    }

    fn begin_cut(&mut self) -> Result<(), String> {
        let file = self.rng.below(FILES as u64) as usize;
        let writes = |wait: &Wait| matches!(wait, Wait::Write(of, ..) if of.0 as usize == file);
        if self.cut[file] || self.waiting.values().any(writes) {
            return Ok(());
        }
        self.cut[file] = true;
        let pages = self.rng.below(self.truth[file].len() as u64 + 1);
        let waiter = self.waiter(Wait::Cut(FileId(file as u32), pages));
        // Bytes that others wait for may be discarded now.
        for wait in self.waiting.values_mut() {
            match wait {
                Wait::Sync(of, _, held) if of.0 as usize == file => held.clear(),
                Wait::Read(_, held) => held.clear(),
                _ => {}
            }
        }
        let range = PageRange::new(pages, u64::MAX);
        self.step(Event::Discard { waiter, file: FileId(file as u32), range })
    }

    fn end_cut(&mut self, file: FileId, pages: u64) -> Result<(), String> {
        let number = file.0 as usize;
        self.store[number].truncate(pages as usize);
        self.truth[number].truncate(pages as usize);
        self.cut[number] = false;
        self.step(Event::Extended { file, pages: PageCount(pages) })?;
        self.step(Event::Invalidate { file, range: PageRange::new(pages, u64::MAX) })
    }

    fn unpin(&mut self) -> Result<(), String> {
        let Some(index) = self.rng.index(self.held.len()) else { return Ok(()) };
        let frames = self.held.swap_remove(index);
        self.step(Event::Unpin { frames })
    }

    fn answer_fill(&mut self, failing: u64) -> Result<(), String> {
        let fills: Vec<_> = self.driven.checker.fills().copied().collect();
        let Some(fill) = self.rng.pick(&fills).copied() else { return Ok(()) };
        let result = if self.rng.chance(failing) { Err(FillError(1)) } else { Ok(()) };
        if result.is_ok() {
            let frames: Vec<FrameId> = self.driven.cache.fill_frames(fill.id).collect();
            for (frame, page) in frames.into_iter().zip(fill.range.start.0..) {
                self.memory.insert(frame, self.stored(fill.file.0 as usize, page));
            }
        }
        self.step(Event::Filled { fill: FillId(fill.id.0), result })
    }

    fn answer_write_out(&mut self, failing: u64) -> Result<(), String> {
        let outs: Vec<WriteOut> = self.driven.checker.write_outs().copied().collect();
        let Some(out) = self.rng.pick(&outs).copied() else { return Ok(()) };
        let failed = self.rng.chance(failing);
        let frames = self.driven.cache.write_out_frames(out.id).to_vec();
        let file = &mut self.store[out.file.0 as usize];
        // A failed write may have written something.
        let some = if failed { self.rng.below(out.range.count().0 + 1) } else { out.range.count().0 };
        for (frame, page) in frames.iter().zip(out.range.start.0..).take(some as usize) {
            let bytes = *self.memory.get(frame).ok_or("a dirty page without bytes")?;
            if file.len() as u64 <= page {
                file.resize(page as usize + 1, [0, 0]);
            }
            file[page as usize] = bytes;
        }
        let lost = failed && self.rng.chance(20);
        if lost {
            // Unpinned later, like other frames.
            self.held.push(frames);
        }
        let result = match (failed, lost) {
            (true, true) => Err(FillError::ABANDONED),
            (true, false) => Err(FillError(5)),
            (false, _) => Ok(()),
        };
        self.step(Event::WrittenOut { id: out.id, result })
    }

    fn stored(&self, file: usize, page: u64) -> Page {
        self.store[file].get(page as usize).copied().unwrap_or_default()
    }

    fn waiter(&mut self, wait: Wait) -> Waiter {
        let waiter = Waiter(self.next_waiter);
        self.next_waiter += 1;
        self.waiting.insert(waiter, wait);
        waiter
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        for action in self.driven.step(event)? {
            match action {
                Action::Accepted { waiter, outcome, targets } => self.took(waiter, outcome, &targets)?,
                Action::Wake { waiter, result } => self.woken(waiter, result)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn woken(&mut self, waiter: Waiter, result: Result<Vec<FrameId>, FillError>) -> Result<(), String> {
        match (self.waiting.remove(&waiter).ok_or("nobody waits")?, result) {
            (Wait::Read(range, held), Ok(frames)) => {
                for ((frame, page), held) in frames.iter().zip(range.start.0..).zip(&held) {
                    let bytes = self.memory.get(frame).ok_or("a page without bytes was read")?;
                    if bytes.iter().zip(held).any(|(now, then)| now < then) {
                        return Err(format!("page {page} was {held:?} and is read as {bytes:?}"));
                    }
                }
                self.held.push(frames);
                Ok(())
            }
            (Wait::Sync(file, range, held), Ok(_)) => {
                for (page, held) in (range.start.0..).zip(&held) {
                    let bytes = self.stored(file.0 as usize, page);
                    if bytes.iter().zip(held).any(|(now, then)| now < then) {
                        return Err(format!("page {page} was {held:?}, is synced, and stored as {bytes:?}"));
                    }
                }
                Ok(())
            }
            (Wait::Write(file, from, to), Ok(_)) => self.write_halves(file, from, to, true),
            (Wait::Write(..), Err(_)) => {
                self.writes_failed += 1;
                Ok(())
            }
            (Wait::Cut(file, pages), _) => self.end_cut(file, pages),
            (Wait::Read(..) | Wait::Sync(..), Err(_)) => Ok(()),
        }
    }
}
