//! The swap of this process and the program's allocations in it.
//!
//! The lock protects only tables: swapped memory is never accessed under it.
#![allow(unsafe_code, reason = "provides memory")]

mod large;
mod spans;

use std::ffi::c_void;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowwave_control::{Program, Quiet, Server};
use bowwave_interpose::{Inside, no_unwind, say};
use bowwave_region::engine::DecisionLog;
use bowwave_region::{RegionAdvice, Swap, SwapOptions, SwapRegion, SwapReport};

use crate::libc_heap::PAGE;
use crate::report;
use crate::setup::setup;
use large::{Large, Larges};
use spans::{Freed, PIECE_MAX, SPAN, Spans};

pub(crate) use large::Part;

/// Minimum size of served allocations in bytes; initially none are served.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Addresses of the swap.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the ancestors' swaps, unusable here: start and end of each.
static PARENTS: [AtomicUsize; 2 * PARENTS_MAX] = [const { AtomicUsize::new(0) }; 2 * PARENTS_MAX];
/// Number of allocations and maps so far, and their bytes.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

static HEAP: Mutex<State> = Mutex::new(State::Absent);

/// The state under the lock.
pub(crate) enum State {
    /// Not created yet.
    Absent,
    Ready(Box<Heap>),
    /// Could not be created; the reason was printed.
    Failed,
}

/// The swap and its allocations.
pub(crate) struct Heap {
    swap: Swap,
    /// Memory of the spans.
    arena: SwapRegion,
    /// Address of the first span.
    first_span: usize,
    spans: Spans,
    larges: Larges,
    decisions: Option<DecisionLog>,
    /// For `bowwave ctl`. `None` without a place for its socket: the program needs none.
    server: Option<Server>,
}

/// The heap's lock, held during a fork.
pub(crate) type Held = MutexGuard<'static, State>;

/// Counters of the heap.
pub(crate) struct Counters {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Current large allocations and maps.
    pub(crate) regions: u64,
    pub(crate) swap: SwapReport,
}

/// Serves allocations of `bytes` bytes or more from now on.
pub(crate) fn serve_from(bytes: usize) {
    FROM.store(bytes, Ordering::Relaxed);
}

/// Whether this thread's allocation of `size` bytes is served.
pub(crate) fn serves(size: usize) -> bool {
    size >= FROM.load(Ordering::Relaxed) && !Inside::is()
}

/// Whether maps are served.
pub(crate) fn is_on() -> bool {
    FROM.load(Ordering::Relaxed) != usize::MAX && !Inside::is()
}

/// Whether an address is in the swap. Needs no synchronisation: the address itself was obtained
/// after the swap was created.
pub(crate) fn has(at: *const c_void) -> bool {
    let at = at as usize;
    START.load(Ordering::Relaxed) <= at && at < END.load(Ordering::Relaxed)
}

/// Whether an address was in the swap of an ancestor.
pub(crate) fn was_parents(at: *const c_void) -> bool {
    let at = at as usize;
    PARENTS[0].load(Ordering::Relaxed) != 0
        && PARENTS
            .chunks_exact(2)
            .any(|ends| (ends[0].load(Ordering::Relaxed)..ends[1].load(Ordering::Relaxed)).contains(&at))
}

fn lock() -> Held {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies `work` to the heap; `None` without a heap. `make` creates a heap that is absent. `work`
/// is bowwave's own work: its allocations are not served.
///
/// Operations on the swap itself run in a [`Quiet`]: a signal handler of the program may access
/// swapped-out memory, and the thread that reads it back may need a lock that we hold.
fn with<T>(make: bool, work: impl FnOnce(&mut Heap) -> T) -> Option<T> {
    let _inside = Inside::enter();
    no_unwind(|| {
        let mut state = lock();
        #[cfg(test)]
        tests::panic_at(tests::Place::Work);
        if make && matches!(*state, State::Absent) {
            let _quiet = Quiet::begin();
            *state = Heap::start();
        }
        match &mut *state {
            State::Ready(heap) => Some(work(heap)),
            State::Absent | State::Failed => None,
        }
    })
}

/// Allocates `size` bytes aligned to `align`, a power of two; zeros if `zero`. NULL if they do not
/// fit into the address space, or if memory and spill together are smaller.
///
/// `None` without a swap.
pub(crate) fn allocate(size: usize, align: usize, zero: bool) -> Option<*mut c_void> {
    let (at, clear) = with(true, |heap| heap.allocate(size, align))?;
    if clear && zero && at != 0 {
        // SAFETY: just allocated. Outside the lock, because it may wait for pages.
        unsafe { (at as *mut u8).write_bytes(0, size) };
    }
    Some(at as *mut c_void)
}

/// Frees memory from [`allocate`].
pub(crate) fn free(at: *mut c_void) {
    let known = with(false, |heap| heap.free(at as usize));
    if known == Some(false) {
        // As in the C library: continuing would be worse.
        say(&format_args!("free({at:p}): nothing is allocated there"));
        std::process::abort();
    }
}

/// Usable bytes of an allocation from [`allocate`]; 0 otherwise.
pub(crate) fn usable(at: *mut c_void) -> usize {
    with(false, |heap| heap.usable(at as usize)).unwrap_or(0)
}

/// Resizes an allocation in place. Returns false if that is impossible or would waste memory.
pub(crate) fn resize(at: *mut c_void, size: usize) -> bool {
    with(false, |heap| heap.resize(at as usize, size)).unwrap_or(false)
}

/// Allocates with spare address space, so that a growing allocation seldom moves.
pub(crate) fn allocate_to_grow(size: usize) -> Option<*mut c_void> {
    with(true, |heap| heap.allocate_large(size, size.saturating_mul(2), PAGE) as *mut c_void)
}

/// Maps whole pages; NULL if they do not fit, `None` without a swap.
pub(crate) fn map(len: usize) -> Option<*mut c_void> {
    with(true, |heap| heap.allocate_large(len, len, PAGE) as *mut c_void)
}

/// Unmaps the pages of `range` in the swap. Returns the ranges outside, which the caller unmaps.
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

/// Applies advice, which may discard pages. `false` outside of large allocations, maps and spans.
pub(crate) fn advise(range: &Range<usize>, advice: RegionAdvice) -> bool {
    with(false, |heap| heap.advise(range, advice)).unwrap_or(false)
}

/// The large allocation or map around an address.
pub(crate) fn part(at: usize) -> Option<Part> {
    with(false, |heap| heap.larges.part(at)).flatten()
}

/// Counters; `None` without a swap.
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

/// Removes the socket of `bowwave ctl` at the end of the process. If a thread holds the lock,
/// perhaps the one whose signal handler ends the process, a later client removes the socket.
pub(crate) fn leave() {
    let _inside = Inside::enter();
    if let Ok(state) = HEAP.try_lock()
        && let State::Ready(heap) = &*state
        && let Some(server) = &heap.server
    {
        server.leave();
    }
}

/// The journal, if there is one.
pub(crate) fn decisions() -> Option<DecisionLog> {
    with(false, |heap| heap.decisions.clone()).flatten()
}

/// Locks the heap.
pub(crate) fn hold() -> Held {
    lock()
}

/// In a child: abandons its parent's heap.
pub(crate) fn reset(mut held: Held) {
    if let State::Ready(heap) = std::mem::replace(&mut *held, State::Absent) {
        // The parent's threads do not exist here, and locks that they held stay locked.
        std::mem::forget(heap);
        let (start, end) = (START.swap(0, Ordering::Relaxed), END.swap(0, Ordering::Relaxed));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: at unmapped addresses. Reserves them, so that new memory is not mistaken for the
        // parent's.
        unsafe { crate::real::mmap64(start as *mut c_void, end - start, libc::PROT_NONE, flags, -1, 0) };
        if let Some(ends) = PARENTS.chunks_exact(2).find(|ends| ends[1].load(Ordering::Relaxed) == 0) {
            ends[1].store(end, Ordering::Relaxed);
            ends[0].store(start, Ordering::Relaxed);
        }
        [&ALLOCATIONS, &BYTES].into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

impl Heap {
    fn start() -> State {
        // No memory has been returned yet, so the process can continue without a swap even after a
        // panic.
        let created = catch_unwind(Self::make).unwrap_or_else(|_said| Err("a defect of bowwave".to_owned()));
        match created {
            Ok(heap) => {
                let addresses = heap.swap.addresses();
                START.store(addresses.start, Ordering::Relaxed);
                END.store(addresses.end, Ordering::Relaxed);
                report::own();
                State::Ready(Box::new(heap))
            }
            Err(error) => {
                say(&format_args!(
                    "process {} continues without swapped memory: {error}",
                    std::process::id()
                ));
                FROM.store(usize::MAX, Ordering::Relaxed);
                State::Failed
            }
        }
    }

    fn make() -> Result<Self, String> {
        #[cfg(test)]
        tests::panic_at(tests::Place::Start);
        let config = setup().swap.as_ref().ok_or("no swap is set up")?;
        let journal = setup().journal.as_deref().map(DecisionLog::from_text).transpose();
        // Without a journal the program still runs as it should.
        let decisions = journal.unwrap_or_else(|error| {
            say(&error);
            None
        });
        let options = SwapOptions { decisions: decisions.clone(), ..config.options() };
        let created = Swap::new(&config.spill(), &options).and_then(|swap| {
            swap.set("swap.policy", &config.policy)?;
            // Twice the size, because spans are not always full.
            let bytes = config.capacity().saturating_mul(2).next_multiple_of(SPAN);
            let arena = swap.region(bytes)?;
            let first_span = (arena.as_ptr() as usize).next_multiple_of(SPAN);
            let spans = Spans::new(bytes / SPAN - 1);
            let program = Program { swap: Some(swap.clone()), ..Program::default() };
            let server = program.serve().ok();
            Ok(Self { swap, arena, first_span, spans, larges: Larges::default(), decisions, server })
        });
        created.map_err(|error| error.to_string())
    }

    /// The address, 0 without space, and whether it may have old content.
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

    fn allocate_large(&mut self, size: usize, space: usize, align: usize) -> usize {
        // An allocation larger than memory and spill would block forever.
        if size > setup().swap.as_ref().map_or(0, |config| config.capacity()) {
            return 0;
        }
        let _quiet = Quiet::begin();
        let region = space.checked_add(align - PAGE).and_then(|bytes| self.swap.region(bytes.max(1)).ok());
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
        match self.spans.free(offset) {
            Freed::Slot => true,
            Freed::Span(offset) => {
                let _quiet = Quiet::begin();
                let start = self.first_span + offset - self.arena.as_ptr() as usize;
                let advised = self.arena.advise(start..start + SPAN, RegionAdvice::DontNeed);
                debug_assert!(advised.is_ok(), "{advised:?}");
                true
            }
            Freed::NotAllocated => false,
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

    /// Offset from the first span, if the address is in a span.
    fn offset(&self, at: usize) -> Option<usize> {
        let end = self.arena.as_ptr() as usize + self.arena.len();
        (self.first_span..end).contains(&at).then(|| at - self.first_span)
    }
}

/// Maximum ancestors whose addresses are remembered.
const PARENTS_MAX: usize = 16;

#[cfg(test)]
mod tests;
