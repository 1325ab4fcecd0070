//! The swap of this process, and what the program has of it.
//!
//! One lock, around tables alone: nobody touches swapped memory with it.
#![allow(unsafe_code, reason = "is memory")]

mod large;
mod spans;

use std::ffi::c_void;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowwave_interpose::{Inside, no_unwind, say};
use bowwave_region::{RegionAdvice, Swap, SwapRegion, SwapReport};

use crate::libc_heap::PAGE;
use crate::quiet::Quiet;
use crate::report;
use crate::setup::setup;
use large::{Large, Larges};
use spans::{Given, PIECE_MAX, SPAN, Spans};

pub(crate) use large::Part;

/// Allocations from so many bytes on are served; none at first.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Addresses of the swap.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Those of this process's parents, which are nobody's here: starts and ends.
static PAST: [AtomicUsize; 2 * PARENTS_MAX] = [const { AtomicUsize::new(0) }; 2 * PARENTS_MAX];
/// Allocations and maps, and their bytes.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

static HEAP: Mutex<State> = Mutex::new(State::Unmade);

/// What the lock is around.
pub(crate) enum State {
    /// Nothing was wanted yet.
    Unmade,
    Made(Box<Heap>),
    /// It cannot be had, which was said.
    Refused,
}

/// The swap and what is had of it.
pub(crate) struct Heap {
    swap: Swap,
    /// Where spans are.
    arena: SwapRegion,
    /// Address of the first span.
    first_span: usize,
    spans: Spans,
    larges: Larges,
}

/// The heap, while a process forks.
pub(crate) type Held = MutexGuard<'static, State>;

/// What the heap has done.
pub(crate) struct Counters {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Large pieces and maps that there are.
    pub(crate) regions: u64,
    pub(crate) swap: SwapReport,
}

/// From now on.
pub(crate) fn serve_from(bytes: usize) {
    FROM.store(bytes, Ordering::Relaxed);
}

/// Whether an allocation of `size` bytes by this thread is served.
pub(crate) fn is_wanted(size: usize) -> bool {
    size >= FROM.load(Ordering::Relaxed) && !Inside::is()
}

/// Whether maps are.
pub(crate) fn is_on() -> bool {
    FROM.load(Ordering::Relaxed) != usize::MAX && !Inside::is()
}

/// Whether an address is of the swap. Unsynchronised: whoever has an address has it from who made the swap.
pub(crate) fn has(at: *const c_void) -> bool {
    let at = at as usize;
    START.load(Ordering::Relaxed) <= at && at < END.load(Ordering::Relaxed)
}

/// Whether an address was of a parent's swap.
pub(crate) fn had(at: *const c_void) -> bool {
    let at = at as usize;
    PAST[0].load(Ordering::Relaxed) != 0
        && PAST
            .chunks_exact(2)
            .any(|ends| (ends[0].load(Ordering::Relaxed)..ends[1].load(Ordering::Relaxed)).contains(&at))
}

fn lock() -> Held {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the heap as bowwave's own work; none if there is no heap.
///
/// What the swap itself is wanted for is done in a [`Quiet`]: what it locks its threads need, too.
fn with<T>(make: bool, work: impl FnOnce(&mut Heap) -> T) -> Option<T> {
    let _inside = Inside::enter();
    no_unwind(|| {
        let mut state = lock();
        #[cfg(test)]
        tests::panic_at(tests::Place::Work);
        if make && matches!(*state, State::Unmade) {
            let _quiet = Quiet::begin();
            *state = Heap::start();
        }
        match &mut *state {
            State::Made(heap) => Some(work(heap)),
            State::Unmade | State::Refused => None,
        }
    })
}

/// `size` bytes aligned to `align`, a power of two, zeros if `zero`; NULL if there is no address space.
///
/// None if there is no swap.
pub(crate) fn allocate(size: usize, align: usize, zero: bool) -> Option<*mut c_void> {
    let (at, clear) = with(true, |heap| heap.allocate(size, align))?;
    if clear && zero && at != 0 {
        // SAFETY: taken just now. Without the lock: it may wait for pages.
        unsafe { (at as *mut u8).write_bytes(0, size) };
    }
    Some(at as *mut c_void)
}

/// Gives back what [`allocate`] gave.
pub(crate) fn free(at: *mut c_void) {
    let known = with(false, |heap| heap.free(at as usize));
    if known == Some(false) {
        // As the C library: to go on would be worse.
        say(&format_args!("free({at:p}): nothing is allocated there"));
        std::process::abort();
    }
}

/// Bytes that may be used of what [`allocate`] gave; 0 for what it did not.
pub(crate) fn usable(at: *mut c_void) -> usize {
    with(false, |heap| heap.usable(at as usize)).unwrap_or(0)
}

/// Has what is at `at` be `size` bytes without moving; whether that can be.
pub(crate) fn resize(at: *mut c_void, size: usize) -> bool {
    with(false, |heap| heap.resize(at as usize, size)).unwrap_or(false)
}

/// Address space for more than `size` bytes, so that what grows seldom moves.
pub(crate) fn allocate_to_grow(size: usize) -> Option<*mut c_void> {
    with(true, |heap| heap.allocate_large(size, size.saturating_mul(2), PAGE) as *mut c_void)
}

/// Memory of whole pages; NULL if there is no address space, none without a swap.
pub(crate) fn map(len: usize) -> Option<*mut c_void> {
    with(true, |heap| heap.allocate_large(len, len, PAGE) as *mut c_void)
}

/// Pages `range` are not the program's any more; those outside of the swap, which are for others to unmap.
pub(crate) fn unmap(range: &Range<usize>) -> Vec<Range<usize>> {
    let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    let inner = range.start.max(start)..range.end.min(end);
    with(false, |heap| {
        let _quiet = Quiet::begin();
        heap.larges.unmap(&inner);
    });
    [range.start..range.end.min(start), range.start.max(end)..range.end]
        .into_iter()
        .filter(|part| part.start < part.end)
        .collect()
}

/// Says how pages of the swap will be used, or gives up what they hold. `false` if nobody has them.
pub(crate) fn advise(range: &Range<usize>, advice: RegionAdvice) -> bool {
    with(false, |heap| heap.advise(range, advice)).unwrap_or(false)
}

/// The large piece or map around an address.
pub(crate) fn part(at: usize) -> Option<Part> {
    with(false, |heap| heap.larges.part(at)).flatten()
}

/// What has been done; none without a swap.
pub(crate) fn counters() -> Option<Counters> {
    with(false, |heap| {
        let _quiet = Quiet::begin();
        Counters {
            allocations: ALLOCATIONS.load(Ordering::Relaxed),
            bytes: BYTES.load(Ordering::Relaxed),
            regions: heap.larges.len() as u64,
            swap: heap.swap.report(),
        }
    })
}

/// Nobody changes it meanwhile.
pub(crate) fn hold() -> Held {
    lock()
}

/// In a child: what its parent had is left alone.
pub(crate) fn begin_anew(mut held: Held) {
    if let State::Made(heap) = std::mem::replace(&mut *held, State::Unmade) {
        // Its threads are not here, and what they had locked will stay so.
        std::mem::forget(heap);
        let (start, end) = (START.swap(0, Ordering::Relaxed), END.swap(0, Ordering::Relaxed));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: where nothing is. So that nothing comes to be there whose address would be taken for the parent's.
        unsafe { crate::real::mmap64(start as *mut c_void, end - start, libc::PROT_NONE, flags, -1, 0) };
        if let Some(ends) = PAST.chunks_exact(2).find(|ends| ends[1].load(Ordering::Relaxed) == 0) {
            ends[1].store(end, Ordering::Relaxed);
            ends[0].store(start, Ordering::Relaxed);
        }
        [&ALLOCATIONS, &BYTES].into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

impl Heap {
    fn start() -> State {
        // Nothing is handed out yet, so the process can go on without a swap even after a panic.
        let made = catch_unwind(Self::make).unwrap_or_else(|_said| Err("a defect of bowwave".to_owned()));
        match made {
            Ok(heap) => {
                let addresses = heap.swap.addresses();
                START.store(addresses.start, Ordering::Relaxed);
                END.store(addresses.end, Ordering::Relaxed);
                report::own();
                State::Made(Box::new(heap))
            }
            Err(error) => {
                say(&format_args!(
                    "process {} goes on with the memory that there is: {error}",
                    std::process::id()
                ));
                FROM.store(usize::MAX, Ordering::Relaxed);
                State::Refused
            }
        }
    }

    fn make() -> Result<Self, String> {
        #[cfg(test)]
        tests::panic_at(tests::Place::Start);
        let wanted = setup().swap.as_ref().ok_or("no swap is set up")?;
        let made = Swap::new(&wanted.spill(), &wanted.options()).and_then(|swap| {
            // Twice, for spans that are not full.
            let bytes = wanted.room().saturating_mul(2).next_multiple_of(SPAN);
            let arena = swap.region(bytes)?;
            let first_span = (arena.as_ptr() as usize).next_multiple_of(SPAN);
            let spans = Spans::new(bytes / SPAN - 1);
            Ok(Self { swap, arena, first_span, spans, larges: Larges::default() })
        });
        made.map_err(|error| error.to_string())
    }

    /// The address, 0 if there is no room, and whether it may hold what was there before.
    fn allocate(&mut self, size: usize, align: usize) -> (usize, bool) {
        if size.max(align) <= PIECE_MAX
            && let Some(piece) = self.spans.take(size, align)
        {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(size as u64, Ordering::Relaxed);
            return (self.first_span + piece.offset, !piece.is_zero);
        }
        (self.allocate_large(size, size, align.max(PAGE)), false)
    }

    fn allocate_large(&mut self, size: usize, room: usize, align: usize) -> usize {
        // What can never be held would be waited for without end.
        if size > setup().swap.as_ref().map_or(0, |wanted| wanted.room()) {
            return 0;
        }
        let _quiet = Quiet::begin();
        let region = room.checked_add(align - PAGE).and_then(|bytes| self.swap.region(bytes.max(1)).ok());
        let region = region.or_else(|| self.swap.region(size.checked_add(align - PAGE)?.max(1)).ok());
        let Some(region) = region else { return 0 };
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size as u64, Ordering::Relaxed);
        self.larges.put(Large::new(region, align, size))
    }

    fn free(&mut self, at: usize) -> bool {
        let Some(offset) = self.offset(at) else {
            let _quiet = Quiet::begin();
            return self.larges.remove(at);
        };
        match self.spans.give(offset) {
            Given::Back => true,
            Given::Span(offset) => {
                let _quiet = Quiet::begin();
                let start = self.first_span + offset - self.arena.as_ptr() as usize;
                let advised = self.arena.advise(start..start + SPAN, RegionAdvice::DontNeed);
                debug_assert!(advised.is_ok(), "{advised:?}");
                true
            }
            Given::Twice => false,
        }
    }

    fn usable(&self, at: usize) -> usize {
        match self.offset(at) {
            Some(offset) => self.spans.bytes(offset),
            None => self.larges.usable(at),
        }
        .unwrap_or(0)
    }

    fn resize(&mut self, at: usize, size: usize) -> bool {
        match self.offset(at) {
            Some(offset) => self.spans.bytes(offset).is_some_and(|bytes| size <= bytes && size > bytes / 2),
            None => {
                let _quiet = Quiet::begin();
                size > PIECE_MAX && self.larges.resize(at, size)
            }
        }
    }

    fn advise(&mut self, range: &Range<usize>, advice: RegionAdvice) -> bool {
        let _quiet = Quiet::begin();
        if self.larges.advise(range, advice) {
            return true;
        }
        let start = self.arena.as_ptr() as usize;
        let Some(inner) = range.start.checked_sub(start).map(|first| first..range.end - start) else {
            return false;
        };
        self.arena.advise(inner, advice).is_ok()
    }

    /// From the first span, if an address is in one.
    fn offset(&self, at: usize) -> Option<usize> {
        let end = self.arena.as_ptr() as usize + self.arena.len();
        (self.first_span..end).contains(&at).then(|| at - self.first_span)
    }
}

/// Generations whose addresses are kept in mind.
const PARENTS_MAX: usize = 16;

#[cfg(test)]
mod tests;
