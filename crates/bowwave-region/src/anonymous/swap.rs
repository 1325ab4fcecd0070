//! The driver of the core's pager: feeds page faults in and performs the resulting actions.
//!
//! ```text
//!   page fault ──► kernel ──► handler ──► Pager::touch ──► Zero, Map ───────► the program continues
//!                                            │    Unmap, Write, Drop ──► reclaim ──► Pager::unmapped
//!                                            └──► Read, Write ──► transfers ──► read_done, written
//! ```
//!
//! The pager runs under one lock. Actions that a thread waits for are performed under that lock, in
//! the pager's order. Reclaim is left to a separate thread ([`Reclaim`]), which holds the lock only
//! briefly. Nothing here accesses a region, so serving a fault never causes another one; its
//! buffers and tables are allocated elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use bowwave_backend::descriptors::own;
use bowwave_core::swap::pager::{
    PageId, Pager, PagerAction, PagerError, PagerEvent, PagerLoad, ReadId, RegionAdvice, RegionId, SwapStats,
    SwapTuning, Touch, TouchOutcome,
};
use bowwave_core::{PageCount, PageIndex, PageRange, Urgency, Waiter};
use bowwave_engine::backend::sync::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::buffers::Buffers;
use super::memory::{Memory, Pages};
use super::queue::{MayWait, Queue, now, reading_here};
use super::reclaim::{DROPS_MAX, Reclaim};
use super::recorder::{Recorder, SwapJournal};
use super::space::Space;
use super::spill::OpenSpill;
use super::transfers::{Staged, Transfers};
use crate::error::{Error, Result, report};
use crate::signals::Serves;
use crate::task::Wakeup;
use crate::uffd::SYSTEM_PAGE;

/// State shared by handlers, transfers and regions.
pub(super) struct Shared {
    pub(super) memory: Memory,
    pub(super) buffers: Arc<Buffers>,
    pub(super) queue: Arc<Queue>,
    state: Mutex<State>,
    /// Signals that an idle reclaim thread has work, and that reclaim has progressed for a waiter.
    pub(super) wakeup: Condvar,
    /// Threads that wait for the lock.
    wanting: AtomicU64,
    /// The pager's next deadline in nanoseconds; `u64::MAX` if none.
    deadline: AtomicU64,
    /// Signals that the deadline is earlier than waiters may know.
    earlier: OwnedFd,
    /// Whether the blocked store has been reported.
    complained: AtomicBool,
    /// Pages that could not be read, and the cause.
    failed: Mutex<BTreeMap<u64, String>>,
    budget: Budget,
    /// Open while transfers are possible.
    spill: OpenSpill,
}

/// The state under the lock.
pub(super) struct State {
    pub(super) pager: Pager,
    /// What is recorded of it, if anything.
    pub(super) recorder: Option<Box<Recorder>>,
    space: Space,
    pub(super) regions: HashMap<RegionId, Pages>,
    /// Regions by first page.
    by_place: BTreeMap<u64, RegionId>,
    /// Unused region IDs, and the next new one.
    free_ids: Vec<RegionId>,
    next_id: u32,
    pub(super) transfers: Transfers,
    /// Pages that were read and are not resident yet.
    pub(super) staged: Staged,
    /// Deferred reclaim work.
    pub(super) reclaim: Reclaim,
    /// Output of the pager.
    pub(super) out: Vec<PagerAction>,
    /// A demand read was queued and must be sent before anything else.
    pub(super) demanded: bool,
    /// Self-serving threads that wait, by faulting page.
    sleepers: HashMap<u64, Vec<Arc<Wakeup>>>,
    /// Size of the pager's tables in bytes when its frames were last counted.
    tables: u64,
}

/// Memory for pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Pages, without buffers.
    pub(super) pages: u64,
}

impl Budget {
    /// Maximum resident pages next to tables of `table_bytes` bytes, allocator overhead and
    /// threads.
    pub(super) fn frames(self, table_bytes: u64) -> u64 {
        let tables = (table_bytes + table_bytes / 4).div_ceil(SYSTEM_PAGE as u64) + BESIDE;
        self.pages - tables.min(self.pages / 2)
    }
}

impl Shared {
    pub(super) fn new(
        memory: Memory,
        buffers: Arc<Buffers>,
        spill: OpenSpill,
        (pager, recorder): (Pager, Option<Box<Recorder>>),
        budget: Budget,
    ) -> Result<Arc<Self>> {
        let queue = Queue::new(Arc::clone(&spill.object), &spill.profile);
        let state = State {
            tables: pager.table_bytes(),
            pager,
            recorder,
            space: Space::new(memory.pages()),
            regions: HashMap::new(),
            by_place: BTreeMap::new(),
            free_ids: Vec::new(),
            next_id: 0,
            transfers: Transfers::default(),
            staged: Staged::default(),
            reclaim: Reclaim::default(),
            out: Vec::new(),
            demanded: false,
            sleepers: HashMap::new(),
        };
        let shared = Arc::new(Self {
            memory,
            buffers,
            queue,
            state: Mutex::new(state),
            wakeup: Condvar::new(),
            wanting: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            earlier: event()?,
            complained: AtomicBool::new(false),
            failed: Mutex::default(),
            budget,
            spill,
        });
        let ends: Arc<dyn super::queue::Ends> = Arc::clone(&shared) as _;
        shared.queue.set_ends(Arc::downgrade(&ends));
        Ok(shared)
    }

    /// Applies `change` to the pager and performs the resulting actions; reclaim is only queued.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let _aborts = Aborts;
        let mut state = self.lock();
        let result = change(&mut state);
        loop {
            let done = state.carry_out(self);
            let deadline = state.pager.next_deadline().map_or(u64::MAX, |at| at.0);
            if deadline < self.deadline.swap(deadline, Ordering::Relaxed) {
                signal(&self.earlier);
            }
            self.note_blocked(deadline != u64::MAX);
            let begins = done && state.reclaim.begins();
            drop(state);
            self.queue.run();
            if begins {
                self.wakeup.notify_all();
            }
            if done {
                return result;
            }
            state = self.lock();
        }
    }

    /// As `step`, and waits for the resulting reclaim: pages to be evicted are then unreachable.
    fn step_and_wait(&self, pages: Option<&Pages>, change: impl FnOnce(&mut State)) {
        self.step(change);
        if let Some(pages) = pages {
            self.lock().drop_now(self, pages);
        }
        self.wait_for_reclaim();
    }

    /// A program accesses a page, and the kernel waits for the result.
    pub(super) fn touched(&self, page: u64, store: bool) {
        self.step(|state| {
            if state.touched(self, page, store) == Some(TouchOutcome::Go) {
                // After the action that maps it.
                state.out.push(PagerAction::Wake { waiter: Waiter(page), result: Ok(()) });
            }
        });
    }

    /// Notifies the pager of passed time.
    pub(super) fn expire(&self) {
        if now().0 >= self.deadline.load(Ordering::Relaxed) {
            self.step(|state| state.apply(PagerEvent::Expired));
        }
    }

    /// Readable when [`patience`](Self::patience) has become shorter; reset by
    /// [`Shared::reset_earlier`].
    pub(super) fn earlier(&self) -> BorrowedFd<'_> {
        self.earlier.as_fd()
    }

    /// Resets [`earlier`](Self::earlier). The caller then reads its patience again.
    pub(super) fn reset_earlier(&self) {
        let _nothing_if_another_has = rustix::io::read(&self.earlier, &mut [0; 8]);
    }

    /// Time until [`expire`](Self::expire) must be called; `None` if never.
    pub(super) fn patience(&self) -> Option<Duration> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        (deadline != u64::MAX).then(|| Duration::from_nanos(deadline.saturating_sub(now().0)))
    }

    /// Adds a region of `pages` zeroed pages.
    pub(super) fn add_region(&self, pages: u64) -> Result<(RegionId, Pages)> {
        self.step(|state| {
            let Some(range) = state.space.take(pages) else {
                let message = format!(
                    "no address space for a region of {pages} pages; let SwapOptions::address_bytes be larger"
                );
                return Err(Error::Range(message));
            };
            let id = state.free_ids.pop().unwrap_or_else(|| {
                state.next_id += 1;
                RegionId(state.next_id - 1)
            });
            let base = PageIndex((self.memory.address(range.start) / SYSTEM_PAGE) as u64);
            if let Err(error) = state.add(id, base, PageCount(pages)) {
                state.space.give(range);
                state.free_ids.push(id);
                return Err(Error::Range(error.to_string()));
            }
            state.regions.insert(id, range.clone());
            state.by_place.insert(range.start, id);
            Ok((id, range))
        })
    }

    pub(super) fn remove_region(&self, region: RegionId) {
        let pages = self.lock().regions.get(&region).cloned();
        self.step_and_wait(pages.as_ref(), |state| {
            state.apply(PagerEvent::RegionRemoved { region });
        });
    }

    pub(super) fn advise(&self, region: RegionId, pages: PageRange, advice: RegionAdvice) {
        if advice != RegionAdvice::DontNeed {
            self.step(|state| state.apply(PagerEvent::Advised { region, pages, advice }));
            return;
        }
        // In parts: queued actions also use memory while their pages still do.
        let mut rest = pages;
        while !rest.is_empty() {
            let part = rest.clip(PageIndex(rest.start.0.saturating_add(ACTIONS_KEPT as u64)));
            let place = self.lock().pages(region, part);
            self.step_and_wait(Some(&place), |state| {
                state.apply(PagerEvent::Advised { region, pages: part, advice });
            });
            rest.start = part.end;
        }
    }

    /// Whether the spill is on a rotating disk.
    pub(super) fn seeks(&self) -> bool {
        self.spill.profile.seeks
    }

    pub(super) fn tuning(&self) -> SwapTuning {
        self.lock().pager.tuning()
    }

    /// Changes settings; an error says what fits, and nothing changes.
    pub(super) fn tune(
        &self,
        change: impl FnOnce(&mut SwapTuning) -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        self.step(|state| {
            let mut tuning = state.pager.tuning();
            change(&mut tuning)?;
            state.tune(tuning).map_err(|error| error.to_string())
        })
    }

    pub(super) fn region_stats(&self, region: RegionId) -> SwapStats {
        self.lock().pager.region_stats(region).copied().unwrap_or_default()
    }

    pub(super) fn stats(&self) -> (SwapStats, PagerLoad) {
        let state = self.lock();
        (*state.pager.stats(), state.pager.load())
    }

    pub(super) fn journal(&self) -> Option<SwapJournal> {
        self.lock().recorder.as_ref()?.journal.clone()
    }

    /// Pages that could not be read: number and cause.
    pub(super) fn failures(&self) -> BTreeMap<u64, String> {
        self.failed.lock().clone()
    }

    /// Records why a page cannot be read.
    pub(super) fn fail(&self, page: u64, cause: &str) {
        self.failed.lock().insert(page, cause.to_owned());
    }

    /// Reports, once each, that the store rejects writes and that it accepts them again.
    fn note_blocked(&self, blocked: bool) {
        if blocked != self.complained.swap(blocked, Ordering::Relaxed) {
            let what = if blocked {
                "takes no pages (full, or failing): memory cannot grow until it does; make room"
            } else {
                "takes pages again"
            };
            report(format_args!("bowwave: the spill {what}"));
        }
    }

    /// Takes the lock with priority over the reclaim thread.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        if let Some(state) = self.state.try_lock() {
            return state;
        }
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Yields the lock: it is unfair and goes to the first taker, not to waiters.
    pub(super) fn yield_lock(&self) {
        for _ in 0..YIELDS {
            if self.wanting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("memory", &self.memory)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Serves for Shared {
    fn serve_here(&self, address: usize, write: bool) -> bool {
        let Some(page) = self.memory.page_at(address) else { return false };
        let served = reading_here(MayWait::Always, || {
            self.step(|state| {
                let outcome = state.touched(self, page, write)?;
                // In the same step: a completion may map the page at its end.
                let wakeup = (outcome == TouchOutcome::Wait).then(Arc::<Wakeup>::default);
                if let Some(wakeup) = &wakeup {
                    state.sleepers.entry(page).or_default().push(Arc::clone(wakeup));
                }
                Some(wakeup)
            })
        });
        let Some(wakeup) = served else { return false };
        if let Some(wakeup) = wakeup {
            while !wakeup.wait_timeout(self.patience().map_or(POLL, |patience| patience.min(POLL))) {
                self.expire();
            }
        }
        !self.failed.lock().contains_key(&page)
    }
}

impl State {
    /// A program accesses a page; `None` if it is not in a region.
    fn touched(&mut self, shared: &Shared, page: u64, store: bool) -> Option<TouchOutcome> {
        let touch = if store { Touch::Store } else { Touch::Load };
        let Some(id) = self.page_id(page) else {
            // The region was removed or never existed.
            self.poison(shared, page);
            return None;
        };
        let before = self.out.len();
        let outcome = self.touch(Waiter(page), id, touch);
        // Actions are joined with the last one before them.
        let new = &self.out[before.saturating_sub(1)..];
        if outcome == TouchOutcome::Go && !new.iter().any(|action| maps(action, id)) {
            shared.memory.map_again(page);
        }
        Some(outcome)
    }

    /// Wakes threads that wait for a page.
    fn wake(&mut self, shared: &Shared, page: u64) {
        shared.memory.wake_pages(&(page..page + 1));
        for wakeup in self.sleepers.remove(&page).into_iter().flatten() {
            wakeup.notify();
        }
    }

    /// Poisons a page and reports the cause, if known.
    fn poison(&mut self, shared: &Shared, page: u64) {
        if let Some(cause) = shared.failed.lock().get(&page) {
            report(format_args!("bowwave: a page cannot be brought back from the spill: {cause}"));
        }
        retry_forever(|| shared.memory.poison(&(page..page + 1)));
        self.wake(shared, page);
    }

    /// Performs the pager's actions except reclaim. Returns whether all are done; otherwise a
    /// demand read must be sent before the rest.
    fn carry_out(&mut self, shared: &Shared) -> bool {
        loop {
            self.take_in(shared);
            if std::mem::take(&mut self.demanded) {
                return false;
            }
            self.start_starved(shared);
            self.fit(shared);
            if self.out.is_empty() {
                // Release the memory that the actions of a removed region took.
                self.out.shrink_to(ACTIONS_KEPT);
                return true;
            }
        }
    }

    /// Performs actions that a thread waits for, and queues reclaim. The two may be reordered: no
    /// page is in both, except pages to be freed, and pages whose write-out has not begun. The
    /// latter may be mapped: writes to them then count as not stored.
    pub(super) fn take_in(&mut self, shared: &Shared) {
        let mut out = std::mem::take(&mut self.out);
        for action in out.drain(..) {
            match action {
                PagerAction::Zero { region, pages, .. } => {
                    let pages = self.pages(region, pages);
                    self.free_frames_for(shared, &pages);
                    retry_forever(|| shared.memory.zero(&pages));
                }
                PagerAction::Map { region, pages, .. } => self.map(shared, region, pages),
                PagerAction::Wake { waiter: Waiter(page), result } => match result {
                    Ok(()) => self.wake(shared, page),
                    Err(PagerError::Read(_) | PagerError::RegionRemoved) => self.poison(shared, page),
                },
                PagerAction::Read(read) => {
                    self.demanded |= read.urgency == Urgency::Demand;
                    self.start_read(shared, read);
                }
                PagerAction::Promote { id: ReadId(name) } => self.promote(shared, name),
                PagerAction::Drop { region, pages } => {
                    let pages = self.pages(region, pages);
                    self.staged.forget(&pages);
                    self.reclaim.add_drops(pages);
                    self.reclaim.free_excess(|run| retry_forever(|| shared.memory.free(&run)));
                }
                PagerAction::Unmap { .. } | PagerAction::Write(_) | PagerAction::Retired { .. } => {
                    self.reclaim.push(action);
                }
                PagerAction::Decided(_) => {}
            }
        }
        self.out = out;
    }

    /// Divides the memory between the tables and the pages.
    fn fit(&mut self, shared: &Shared) {
        let tables = self.pager.table_bytes();
        if tables != self.tables {
            self.tables = tables;
            self.apply(PagerEvent::FramesSet { frames: shared.budget.frames(tables) });
        }
    }

    /// Prepares pages to become resident: frees their old content first, and as many pages besides.
    pub(super) fn free_frames_for(&mut self, shared: &Shared, pages: &Pages) {
        self.drop_now(shared, pages);
        self.reclaim.free(pages.end - pages.start, |run| retry_forever(|| shared.memory.free(&run)));
    }

    /// Frees those of these pages that are queued to be freed.
    pub(super) fn drop_now(&mut self, shared: &Shared, pages: &Pages) {
        self.reclaim.free_of(pages, |run| retry_forever(|| shared.memory.free(&run)));
    }

    /// The place of a region's pages.
    pub(super) fn pages(&self, region: RegionId, pages: PageRange) -> Pages {
        let first = self.regions.get(&region).expect("the pager knows no other regions").start;
        first + pages.start.0..first + pages.end.0
    }

    /// The place of a page.
    pub(super) fn place(&self, id: PageId) -> u64 {
        self.pages(id.region, PageRange::from_start(id.page, PageCount(1))).start
    }

    /// The region and page at a place.
    fn page_id(&self, page: u64) -> Option<PageId> {
        let (&start, region) = self.by_place.range(..=page).next_back()?;
        let inside = page < self.regions.get(region)?.end;
        inside.then_some(PageId { region: *region, page: PageIndex(page - start) })
    }

    /// Nothing of a region is in flight any more: its place is free.
    pub(super) fn retired(&mut self, shared: &Shared, region: RegionId) {
        let Some(pages) = self.regions.remove(&region) else { return };
        self.by_place.remove(&pages.start);
        // All of it is freed now, and must not be freed later under another region.
        self.reclaim.free_of(&pages, |_| {});
        // Including the markers of poisoned pages.
        retry_forever(|| shared.memory.clear(&pages));
        self.space.give(pages);
        self.free_ids.push(region);
    }
}

/// Whether an action maps a page.
fn maps(action: &PagerAction, id: PageId) -> bool {
    match action {
        PagerAction::Map { region, pages, .. } | PagerAction::Zero { region, pages, .. } => {
            *region == id.region && (pages.start..pages.end).contains(&id.page)
        }
        _ => false,
    }
}

/// An event that a thread can poll next to other descriptors; reads do not block.
pub(super) fn event() -> Result<OwnedFd> {
    own(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).map_err(|error| Error::System {
        wanted: "make an event",
        error: error.into(),
        hint: "",
    })
}

/// Makes an [`event`] readable.
pub(super) fn signal(event: &OwnedFd) {
    let told = rustix::io::write(event, &1u64.to_ne_bytes());
    debug_assert!(told.is_ok(), "{told:?}");
}

/// Aborts the process on a panic under the lock: all threads that access a region would block
/// forever.
pub(super) struct Aborts;

impl Drop for Aborts {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Retries until it works: the only failure is lack of kernel memory, and no step may be skipped.
pub(super) fn retry_forever(mut work: impl FnMut() -> io::Result<()>) {
    let mut tries = 0u64;
    while let Err(error) = work() {
        if tries.is_multiple_of(REPORT_EACH) {
            report(format_args!("bowwave: the kernel does not move pages: {error}; trying again"));
        }
        tries += 1;
        thread::sleep(PAUSE);
    }
}

/// Capacity of the action queues kept between steps, in actions.
pub(super) const ACTIONS_KEPT: usize = 1024;
/// Pages for thread stacks, temporary allocations and the store's rings, and pages that wait to be
/// freed. Temporary allocations fragment the heap: in a soak of ten minutes all but the last item
/// reached 2 MB, half of it in the first minute.
const BESIDE: u64 = 320 + DROPS_MAX;
/// Polling interval of a self-serving thread that waits.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How often the reclaim thread yields to threads that want the lock.
const YIELDS: u32 = 64;
/// A persistent failure is reported once in this many tries.
const REPORT_EACH: u64 = 1000;
/// Pause between retries.
const PAUSE: Duration = Duration::from_millis(1);
