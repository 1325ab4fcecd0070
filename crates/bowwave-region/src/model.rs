//! The kernel in the model. Pages are mapped in the real page table, but accesses are calls, and
//! threads sleep where the model checker sees it.
#![allow(unsafe_code, reason = "maps, unmaps and reads memory")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::ptr;

use bowwave_engine::sync::{Arc, Condvar, Mutex};
use rustix::mm::{Advice, madvise, munmap};

use crate::inner::Inner;
use crate::uffd::{Modes, Partial, SYSTEM_PAGE, Touch, Uffd};

/// As in `kernel.rs`, with the same safety requirements.
#[derive(Debug)]
pub(crate) struct Kernel {
    uffd: Uffd,
    pagemap: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Faults that have not been read.
    faults: Vec<Touch>,
    /// Sleeping threads and the pages they have accessed.
    sleepers: Vec<(u32, usize)>,
    stopped: bool,
    /// Whether the mapping was removed.
    ended: bool,
}

/// Result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The byte read.
    Byte(u8),
    /// A `SIGBUS`: the page is poisoned.
    Poisoned,
    /// A `SIGSEGV`: nothing is mapped.
    Gone,
}

/// Accesses a region from model threads.
#[derive(Clone, Debug)]
pub struct Toucher {
    inner: Arc<Inner>,
}

impl Toucher {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner) }
    }

    /// Thread number `thread` accesses the byte at `offset` of the region.
    pub fn touch(&self, thread: u32, offset: u64) -> Touched {
        self.inner.kernel.touch(thread, self.inner.base + offset as usize)
    }
}

impl Kernel {
    pub(crate) fn new(uffd: Uffd) -> io::Result<Self> {
        Ok(Self {
            uffd,
            pagemap: File::open("/proc/self/pagemap")?,
            state: Mutex::default(),
            changed: Condvar::default(),
        })
    }

    pub(crate) unsafe fn watch(&self, range: Range<usize>) -> io::Result<()> {
        let modes = Modes { missing: true, minor: true, protected: false };
        // SAFETY: guaranteed by the caller.
        unsafe { self.uffd.register(range, modes) }
    }

    /// A thread accesses a byte.
    fn touch(&self, thread: u32, address: usize) -> Touched {
        let page = address & !(SYSTEM_PAGE - 1);
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return Touched::Gone;
            }
            match self.entry(address) {
                // SAFETY: the page is present, and the model switches no thread between the check
                // and the read.
                PageEntry::Present => {
                    return Touched::Byte(unsafe { ptr::read_volatile(address as *const u8) });
                }
                PageEntry::Poisoned => return Touched::Poisoned,
                PageEntry::Missing => {}
            }
            let modes = Modes { missing: true, minor: false, protected: false };
            state.faults.push(Touch { address: page, write: false, modes, thread });
            state.sleepers.push((thread, page));
            self.changed.notify_all();
            while state.sleepers.iter().any(|sleeper| sleeper.0 == thread) {
                state = self.changed.wait(state);
            }
        }
    }

    pub(crate) fn touches(&self, touches: &mut Vec<Touch>) -> bool {
        let mut state = self.state.lock();
        while state.faults.is_empty() && !state.stopped {
            state = self.changed.wait(state);
        }
        touches.append(&mut state.faults);
        !state.stopped
    }

    pub(crate) fn has_touches(&self) -> bool {
        !self.state.lock().faults.is_empty()
    }

    /// The model has no clock: a wait ends at once.
    pub(crate) fn is_stopped_within(&self, _time: std::time::Duration) -> bool {
        self.state.lock().stopped
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) unsafe fn map(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        let mapped = unsafe { self.uffd.map(range.clone(), false) };
        self.wake_done(range, mapped)
    }

    pub(crate) unsafe fn poison(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        let poisoned = unsafe { self.uffd.poison(range.clone()) };
        self.wake_done(range, poisoned)
    }

    pub(crate) fn wake(&self, range: Range<usize>) {
        self.state.lock().sleepers.retain(|sleeper| !range.contains(&sleeper.1));
        self.changed.notify_all();
    }

    pub(crate) unsafe fn unmap(&self, range: Range<usize>) {
        // SAFETY: guaranteed by the caller.
        unsafe { madvise(range.start as *mut _, range.len(), Advice::LinuxDontNeed) }
            .expect("a mapping of ours");
    }

    pub(crate) unsafe fn end(&self, range: Range<usize>) {
        {
            let mut state = self.state.lock();
            // SAFETY: guaranteed by the caller.
            unsafe { munmap(range.start as *mut _, range.len()) }.expect("a mapping of ours");
            state.ended = true;
        }
        self.wake(range);
    }

    /// As in the kernel: wakes threads that sleep on the completed range, and no others.
    fn wake_done(&self, range: Range<usize>, outcome: Result<(), Partial>) -> Result<(), Partial> {
        let done = outcome.as_ref().map_or_else(|partial| partial.done, |()| range.end - range.start);
        self.wake(range.start..range.start + done);
        outcome
    }

    /// The page table entry.
    fn entry(&self, address: usize) -> PageEntry {
        let mut entry = [0; 8];
        self.pagemap
            .read_exact_at(&mut entry, (address / SYSTEM_PAGE * size_of::<u64>()) as u64)
            .expect("a page table can be read by its own process");
        // Documentation/admin-guide/mm/pagemap.rst: bit 63 is "present"; bit 62 is "swapped", which
        // covers markers.
        match u64::from_ne_bytes(entry) >> 62 {
            0 => PageEntry::Missing,
            1 => PageEntry::Poisoned,
            _ => PageEntry::Present,
        }
    }
}

enum PageEntry {
    Missing,
    Poisoned,
    Present,
}
