//! The driver of the core's pager: touches go in, what is to be done comes out, and is done.
//!
//! ```text
//!   a touch ──► kernel ──► handler ──► Pager::touch ──► Zero, Map ─────────► the program goes on
//!                                          │    Unmap, Write, Drop ──► room ──► Pager::unmapped
//!                                          └──► Read, Write ──► transfers ──► read_done, written
//! ```
//!
//! The pager is asked under one lock, and what someone waits for is done under it at once, in the order that the pager says. What makes
//! room is left to a thread of its own ([`Room`]), which holds the lock for moments only. Nothing here touches a region, so that
//! serving a touch never needs another one; and what serving needs (buffers, tables) is not in one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bowwave_core::swap::pager::{
    PageId, Pager, PagerAction, PagerError, PagerLoad, ReadId, RegionAdvice, RegionId, SwapStats, Touch,
    TouchOutcome,
};
use bowwave_core::{PageCount, PageIndex, PageRange, Urgency, Waiter};
use rustix::event::{EventfdFlags, eventfd};

use super::buffers::Buffers;
use super::memory::{Memory, Pages};
use super::queue::{MayWait, Queue, now, reading_here};
use super::room::{DROPS_MAX, Room};
use super::space::Space;
use super::spill::OpenSpill;
use super::transfers::{Staged, Transfers};
use crate::error::{Error, Result, report};
use crate::signals::Serves;
use crate::task::Bell;
use crate::uffd::SYSTEM_PAGE;

/// What handlers, transfers and regions share.
pub(super) struct Shared {
    pub(super) memory: Memory,
    pub(super) buffers: Arc<Buffers>,
    pub(super) queue: Arc<Queue>,
    state: Mutex<State>,
    /// Rung when there is room to be made while nobody does, and when some was made that someone waits for.
    pub(super) bell: Condvar,
    /// Threads that want the lock.
    wanting: AtomicU64,
    /// When the pager wants to be looked at again, in nanoseconds; `u64::MAX` if it does not.
    deadline: AtomicU64,
    /// Rung when that is earlier than who waits may know.
    earlier: OwnedFd,
    /// That the store takes nothing has been said.
    complained: AtomicBool,
    /// Pages that could not be had, and why.
    failed: Mutex<BTreeMap<u64, String>>,
    budget: Budget,
    /// Open as long as anything may be transferred.
    _spill: OpenSpill,
}

/// What the lock is around.
pub(super) struct State {
    pub(super) pager: Pager,
    space: Space,
    regions: HashMap<RegionId, Pages>,
    /// By first page.
    by_place: BTreeMap<u64, RegionId>,
    /// Names that no region has any more, and the first that none had yet.
    free_ids: Vec<RegionId>,
    next_id: u32,
    pub(super) transfers: Transfers,
    /// What was read and is not in memory yet.
    pub(super) staged: Staged,
    /// What makes room, and can wait.
    pub(super) room: Room,
    /// Where the pager answers.
    pub(super) out: Vec<PagerAction>,
    /// A read that someone waits for has come up, and is to be sent before anything else is done.
    pub(super) demanded: bool,
    /// Threads that serve themselves and wait, by the page that they have touched.
    sleepers: HashMap<u64, Vec<Arc<Bell>>>,
    /// Bytes that the pager's tables had when its frames were counted last.
    tables: u64,
}

/// What memory there is for pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Pages, beside the buffers.
    pub(super) pages: u64,
}

impl Budget {
    /// Pages that may be in memory, beside tables of so many bytes, and what it takes to hand those out, and the threads that serve.
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
        pager: Pager,
        budget: Budget,
    ) -> Result<Arc<Self>> {
        let queue = Queue::new(Arc::clone(&spill.object), &spill.profile);
        let state = State {
            tables: pager.table_bytes(),
            pager,
            space: Space::new(memory.pages()),
            regions: HashMap::new(),
            by_place: BTreeMap::new(),
            free_ids: Vec::new(),
            next_id: 0,
            transfers: Transfers::default(),
            staged: Staged::default(),
            room: Room::default(),
            out: Vec::new(),
            demanded: false,
            sleepers: HashMap::new(),
        };
        let shared = Arc::new(Self {
            memory,
            buffers,
            queue,
            state: Mutex::new(state),
            bell: Condvar::new(),
            wanting: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            earlier: event()?,
            complained: AtomicBool::new(false),
            failed: Mutex::default(),
            budget,
            _spill: spill,
        });
        let ends: Arc<dyn super::queue::Ends> = Arc::clone(&shared) as _;
        shared.queue.tell(Arc::downgrade(&ends));
        Ok(shared)
    }

    /// Has `change` done to the pager and everything that follows, but for what makes room: that begins.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let _aborts = Aborts;
        let mut state = self.lock();
        let result = change(&mut state);
        loop {
            let done = state.carry_out(self);
            let deadline = state.pager.next_deadline().map_or(u64::MAX, |at| at.0);
            if deadline < self.deadline.swap(deadline, Ordering::Relaxed) {
                ring(&self.earlier);
            }
            self.note_blocked(deadline != u64::MAX);
            let begins = done && state.room.begins();
            drop(state);
            self.queue.pump();
            if begins {
                self.bell.notify_all();
            }
            if done {
                return result;
            }
            state = self.lock();
        }
    }

    /// The same, and waits until what was to be done for it is: nobody reaches a page any more that is to go.
    fn step_through(&self, pages: Option<&Pages>, change: impl FnOnce(&mut State)) {
        self.step(change);
        if let Some(pages) = pages {
            self.lock().drop_now(self, pages);
        }
        self.wait_for_room();
    }

    /// A program touches a page, and the kernel waits for word of it.
    pub(super) fn touched(&self, page: u64, store: bool) {
        self.step(|state| {
            if state.touched(self, page, store) == Some(TouchOutcome::Go) {
                // Behind what maps it.
                state.out.push(PagerAction::Wake { waiter: Waiter(page), result: Ok(()) });
            }
        });
    }

    /// Time has passed.
    pub(super) fn expire(&self) {
        if now().0 >= self.deadline.load(Ordering::Relaxed) {
            self.step(|state| state.pager.expire(now(), &mut state.out));
        }
    }

    /// What can be read from when [`patience`](Self::patience) has become less meanwhile; by [`Shared::heed`].
    pub(super) fn earlier(&self) -> BorrowedFd<'_> {
        self.earlier.as_fd()
    }

    /// Who calls this asks for its patience anew.
    pub(super) fn heed(&self) {
        let _nothing_if_another_has = rustix::io::read(&self.earlier, &mut [0; 8]);
    }

    /// How long until [`expire`](Self::expire) is to be called; none if never.
    pub(super) fn patience(&self) -> Option<Duration> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        (deadline != u64::MAX).then(|| Duration::from_nanos(deadline.saturating_sub(now().0)))
    }

    /// A region of `pages` pages, all zeroes.
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
            if let Err(error) = state.pager.add_region(id, base, PageCount(pages)) {
                state.space.give(&range);
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
        self.step_through(pages.as_ref(), |state| {
            state.pager.remove_region(now(), region, &mut state.out);
        });
    }

    pub(super) fn advise(&self, region: RegionId, pages: PageRange, advice: RegionAdvice) {
        if advice != RegionAdvice::DontNeed {
            self.step(|state| state.pager.advise(now(), region, pages, advice, &mut state.out));
            return;
        }
        // Piece by piece: what is to be done for pages takes memory, too, while they still do.
        let mut rest = pages;
        while !rest.is_empty() {
            let piece = rest.clip(PageIndex(rest.start.0.saturating_add(ACTIONS_KEPT as u64)));
            let place = self.lock().pages(region, piece);
            self.step_through(Some(&place), |state| {
                state.pager.advise(now(), region, piece, advice, &mut state.out);
            });
            rest.start = piece.end;
        }
    }

    pub(super) fn region_stats(&self, region: RegionId) -> (SwapStats, u64) {
        let state = self.lock();
        let stats = state.pager.region_stats(region).copied().unwrap_or_default();
        (stats, state.pager.region_frames(region))
    }

    pub(super) fn stats(&self) -> (SwapStats, PagerLoad) {
        let state = self.lock();
        (*state.pager.stats(), state.pager.load())
    }

    /// Pages that could not be had: their number, and why.
    pub(super) fn failures(&self) -> BTreeMap<u64, String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why a page cannot be had.
    pub(super) fn fail(&self, page: u64, cause: &str) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(page, cause.to_owned());
    }

    /// Says, once each time, that the store takes nothing, and that it does again.
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

    /// The lock, before the thread that makes room has it again.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        if let Ok(state) = self.state.try_lock() {
            return state;
        }
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Lets others have the lock, which goes to whoever asks first and not to who waits.
    pub(super) fn give_way(&self) {
        for _ in 0..GIVE_WAY {
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
                // In the same step: what brings the page may be done at its end.
                let bell = (outcome == TouchOutcome::Wait).then(Arc::<Bell>::default);
                if let Some(bell) = &bell {
                    state.sleepers.entry(page).or_default().push(Arc::clone(bell));
                }
                Some(bell)
            })
        });
        let Some(bell) = served else { return false };
        if let Some(bell) = bell {
            while !bell.wait_for(self.patience().map_or(LOOK, |patience| patience.min(LOOK))) {
                self.expire();
            }
        }
        !self.failed.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&page)
    }
}

impl State {
    /// A program touches a page; none if it has no right to.
    fn touched(&mut self, shared: &Shared, page: u64, store: bool) -> Option<TouchOutcome> {
        let touch = if store { Touch::Store } else { Touch::Load };
        let Some(id) = self.page_id(page) else {
            // The region is gone, or never was.
            self.poison(shared, page);
            return None;
        };
        Some(self.pager.touch(now(), Waiter(page), id, touch, &mut self.out))
    }

    /// Wakes who waits for a page.
    fn wake(&mut self, shared: &Shared, page: u64) {
        shared.memory.wake_pages(&(page..page + 1));
        for bell in self.sleepers.remove(&page).into_iter().flatten() {
            bell.ring();
        }
    }

    /// Makes a page fatal to touch, and says why, if it is known.
    fn poison(&mut self, shared: &Shared, page: u64) {
        if let Some(cause) = shared.failed.lock().unwrap_or_else(PoisonError::into_inner).get(&page) {
            report(format_args!("bowwave: a page cannot be brought back from the spill: {cause}"));
        }
        insist(|| shared.memory.poison(&(page..page + 1)));
        self.wake(shared, page);
    }

    /// Does what the pager has said, but for what makes room; whether that is all. If not, a read has come up that someone waits
    /// for: it is to be sent before the rest is done.
    fn carry_out(&mut self, shared: &Shared) -> bool {
        loop {
            self.take_in(shared);
            if std::mem::take(&mut self.demanded) {
                return false;
            }
            self.start_starved(shared);
            self.fit(shared);
            if self.out.is_empty() {
                // What a whole region that went away took is not kept for the next.
                self.out.shrink_to(ACTIONS_KEPT);
                return true;
            }
        }
    }

    /// Does what someone waits for, and lines up the rest. They may pass each other: no page is in both, but for those that are to be given
    /// back, and a page whose write-out has not begun may be mapped, for what is written to it then counts as not stored.
    pub(super) fn take_in(&mut self, shared: &Shared) {
        let mut out = std::mem::take(&mut self.out);
        for action in out.drain(..) {
            match action {
                PagerAction::Zero { region, pages, .. } => {
                    let pages = self.pages(region, pages);
                    self.make_way(shared, &pages);
                    insist(|| shared.memory.zero(&pages));
                }
                PagerAction::Map { region, pages, .. } => self.map(shared, region, pages),
                PagerAction::Wake { waiter: Waiter(page), result } => match result {
                    Ok(()) => self.wake(shared, page),
                    Err(PagerError::Read(_) | PagerError::Gone) => self.poison(shared, page),
                },
                PagerAction::Read(read) => {
                    self.demanded |= read.urgency == Urgency::Demand;
                    self.start_read(shared, read);
                }
                PagerAction::Promote { id: ReadId(name) } => self.promote(shared, name),
                PagerAction::Drop { region, pages } => {
                    let pages = self.pages(region, pages);
                    self.staged.forget(&pages);
                    self.room.give_back(&pages);
                    self.room.catch_up(|run| insist(|| shared.memory.free(&run)));
                }
                PagerAction::Unmap { .. } | PagerAction::Write(_) | PagerAction::Retired { .. } => {
                    self.room.line_up(action);
                }
                PagerAction::Decided(_) => {}
            }
        }
        self.out = out;
    }

    /// Has the tables and the pages have the memory together.
    fn fit(&mut self, shared: &Shared) {
        let tables = self.pager.table_bytes();
        if tables != self.tables {
            self.tables = tables;
            self.pager.set_frames(now(), shared.budget.frames(tables), &mut self.out);
        }
    }

    /// Pages that are to come into memory: what was there before goes first, and as much besides as they take.
    pub(super) fn make_way(&mut self, shared: &Shared, pages: &Pages) {
        self.drop_now(shared, pages);
        self.room.free(pages.end - pages.start, |run| insist(|| shared.memory.free(&run)));
    }

    /// Gives back what is to be given back of these pages.
    pub(super) fn drop_now(&mut self, shared: &Shared, pages: &Pages) {
        self.room.free_of(pages, |run| insist(|| shared.memory.free(&run)));
    }

    /// Where pages of a region are.
    pub(super) fn pages(&self, region: RegionId, pages: PageRange) -> Pages {
        let first = self.regions.get(&region).expect("the pager knows no other regions").start;
        first + pages.start.0..first + pages.end.0
    }

    /// Where a page is.
    pub(super) fn place(&self, id: PageId) -> u64 {
        self.pages(id.region, PageRange::from_start(id.page, PageCount(1))).start
    }

    /// Whose a page is.
    fn page_id(&self, page: u64) -> Option<PageId> {
        let (&start, region) = self.by_place.range(..=page).next_back()?;
        let inside = page < self.regions.get(region)?.end;
        inside.then_some(PageId { region: *region, page: PageIndex(page - start) })
    }

    /// Nothing of a region is in flight: its place is free again.
    pub(super) fn retired(&mut self, shared: &Shared, region: RegionId) {
        let Some(pages) = self.regions.remove(&region) else { return };
        self.by_place.remove(&pages.start);
        // All of it goes; and none of it when it is another's.
        self.room.free_of(&pages, |_| {});
        // With the marks of pages that were not to be had.
        insist(|| shared.memory.clear(&pages));
        self.space.give(&pages);
        self.free_ids.push(region);
    }
}

/// Something that a thread can wait for beside other descriptors; reading it waits for nothing.
pub(super) fn event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| Error::System {
        wanted: "make an event",
        error: error.into(),
        hint: "",
    })
}

/// Has an [`event`] be readable.
pub(super) fn ring(event: &OwnedFd) {
    let told = rustix::io::write(event, &1u64.to_ne_bytes());
    debug_assert!(told.is_ok(), "{told:?}");
}

/// Ends the process when what is done under the lock panics: all that touch a region would wait for ever.
pub(super) struct Aborts;

impl Drop for Aborts {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Tries until it works: what can fail here is memory of the kernel's, and nothing may be left undone.
pub(super) fn insist(mut work: impl FnMut() -> io::Result<()>) {
    let mut tries = 0u64;
    while let Err(error) = work() {
        if tries.is_multiple_of(TELL_EACH) {
            report(format_args!("bowwave: the kernel does not move pages: {error}; trying again"));
        }
        tries += 1;
        thread::sleep(PAUSE);
    }
}

/// Actions that there is memory for between steps.
pub(super) const ACTIONS_KEPT: usize = 1024;
/// Pages for stacks of threads, what they allocate for a moment, and the rings of the store; and those that wait to be given back.
/// What is allocated for a moment leaves holes between tables: in a soak of ten minutes all but the latter came to 2 MB, half of it in
/// the first.
const BESIDE: u64 = 320 + DROPS_MAX;
/// How often a thread that serves itself, and waits, looks whether it is time for something.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Times that the thread that makes room lets others run who want the lock.
const GIVE_WAY: u32 = 64;
/// How often in so many tries it is said that something does not work.
const TELL_EACH: u64 = 1000;
/// Pause before something is tried again.
const PAUSE: Duration = Duration::from_millis(1);
