//! Memory of frames: one range of address space for each shard, backed by memory on first use.

#![allow(unsafe_code, reason = "page frames are raw memory, shared by turns with backends and the kernel")]

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use bowwave_backend::{Error as StoreError, ErrorKind};
use bowwave_core::{FrameId, PageSize};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};

use crate::copy::copy;
use crate::error::{Error, Result};

/// The frames of one shard.
#[derive(Debug)]
pub(crate) struct Arena {
    base: *mut u8,
    frames: u32,
    page_size: PageSize,
    /// Whether huge pages may be used.
    huge: bool,
    /// Bytes from the start for which huge pages were decided.
    settled: AtomicUsize,
    /// Bytes that use small pages after the next slow huge page.
    pause: AtomicUsize,
    /// Addresses of offset-mapped frames. Created with the first mapped file.
    places: OnceLock<Box<[AtomicPtr<u8>]>>,
    /// The next release waits for this.
    #[cfg(test)]
    pub(crate) before_release: Hook,
}

#[cfg(test)]
#[derive(Default)]
pub(crate) struct Hook(pub(crate) std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>);

#[cfg(test)]
impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

// SAFETY: the mapping is plain memory that lives as long as the arena. Pins and fills regulate
// access to frames (see `copy_out` and `segment`).
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves address space for `frames` frames; memory follows on use, in `huge` pages where the
    /// system has them available.
    ///
    /// # Errors
    /// If there is no such range of address space.
    pub(crate) fn new(frames: u32, page_size: PageSize, huge: bool) -> Result<Self> {
        let len = frames as usize * page_size.bytes() as usize;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| {
            let message = format!("cannot map {len} bytes for the cache: {error}; give a smaller cache");
            Error::Store(StoreError::new(ErrorKind::Io, message))
        })?;
        // SAFETY: advice on our own mapping that changes no contents. Only a hint: if it fails,
        // other pages serve.
        let _others_do = unsafe { madvise(base, len, Advice::LinuxNoHugepage) };
        Ok(Self {
            base: base.cast(),
            frames,
            page_size,
            huge,
            settled: AtomicUsize::new(0),
            pause: AtomicUsize::new(PAUSE),
            places: OnceLock::new(),
            #[cfg(test)]
            before_release: Hook::default(),
        })
    }

    /// Address and length of a frame, for a backend to fill.
    ///
    /// The caller ensures that the frame belongs to a fill in flight.
    pub(crate) fn segment(&self, frame: FrameId) -> (*mut u8, usize) {
        assert!(frame.0 < self.frames, "frame {} is outside the arena", frame.0);
        let bytes = self.page_size.bytes() as usize;
        if let Some(places) = self.places.get() {
            let place = places[frame.0 as usize].load(Ordering::Relaxed);
            if !place.is_null() {
                return (place, bytes);
            }
        }
        // SAFETY: below `frames`, so inside the mapping.
        (unsafe { self.base.add(frame.0 as usize * bytes) }, bytes)
    }

    /// Prepares a frame for its fill: uses a huge page, as long as huge pages are fast.
    ///
    /// The kernel clears a huge page on first use. A host that lends a virtual machine its memory
    /// on use, and takes back large free blocks, makes that ten times slower than small pages. Fast
    /// and slow memory lie side by side, so each huge page is tried. After a slow one, pages are
    /// small for a while, twice as long each time.
    pub(crate) fn settle(&self, frame: FrameId) {
        let end = (frame.0 as usize + 1) * self.page_size.bytes() as usize;
        if self.huge && end > self.settled.load(Ordering::Relaxed) {
            self.settle_up_to(end, comes_quickly);
        }
    }

    #[cold]
    fn settle_up_to(&self, end: usize, comes_quickly: impl FnOnce(*mut c_void) -> bool) {
        let len = self.frames as usize * self.page_size.bytes() as usize;
        let settled = self.settled.load(Ordering::Relaxed);
        // The huge page with the last byte, or the first one if that begins before the arena.
        let first = self.base.align_offset(HUGE_PAGE);
        let page = first + end.saturating_sub(first + 1) / HUGE_PAGE * HUGE_PAGE;
        let to = (page + HUGE_PAGE).min(len);
        // One thread decides; fills at the same time use small pages.
        let is_first =
            self.settled.compare_exchange(settled, to, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if end <= settled || !is_first || page + HUGE_PAGE > len {
            return;
        }
        // Frames are filled roughly in order: pages that were skipped lie before this one.
        let from = settled.max(page.saturating_sub(LEFT_OUT_MAX));
        let start = self.base.wrapping_add(from).cast::<c_void>();
        // SAFETY: advice on our own mapping that changes no contents. Only a hint: where it fails,
        // small pages serve.
        let advise = |advice| unsafe { madvise(start, to - from, advice) };
        if advise(Advice::LinuxHugepage).is_ok() && !comes_quickly(self.base.wrapping_add(page).cast()) {
            let _huge_ones_serve = advise(Advice::LinuxNoHugepage);
            let pause = self.pause.load(Ordering::Relaxed);
            self.pause.store(pause.saturating_mul(2), Ordering::Relaxed);
            self.settled.fetch_max(to.saturating_add(pause).min(len), Ordering::Relaxed);
        }
    }

    /// Sets the memory of a frame to `place`, or to the arena's if `place` is null.
    ///
    /// Call it under the shard's lock, while the frame is unused; later users have held the lock
    /// since.
    pub(crate) fn set_place(&self, frame: FrameId, place: *mut u8) {
        if self.places.get().is_none() && place.is_null() {
            return;
        }
        let places = self.places.get_or_init(|| (0..self.frames).map(|_| AtomicPtr::default()).collect());
        places[frame.0 as usize].store(place, Ordering::Relaxed);
    }

    /// Whether the memory of `frame` ends where the memory of `next` begins.
    fn is_next(&self, frame: FrameId, next: FrameId) -> bool {
        match self.places.get() {
            None => frame.0 + 1 == next.0,
            Some(_) => {
                let (base, len) = self.segment(frame);
                base.wrapping_add(len) == self.segment(next).0
            }
        }
    }

    /// Bytes of a frame.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_size.bytes()
    }

    /// Frames needed for `len` bytes from the start of the first.
    pub(crate) fn frames_for(&self, len: usize) -> usize {
        len.div_ceil(self.page_size.bytes() as usize)
    }

    /// Zeros the bytes of consecutive pages in `frames`, from `skip` bytes into the first.
    ///
    /// # Safety
    /// The caller has exclusive access to the frames for the whole call.
    pub(crate) unsafe fn zero_from(&self, frames: &[FrameId], skip: usize) {
        let bytes = self.page_size.bytes() as usize;
        for (index, &frame) in frames.iter().enumerate().skip(skip / bytes) {
            let (base, len) = self.segment(frame);
            let from = skip.saturating_sub(index * bytes);
            // SAFETY: `from < len`, so the range lies within the frame, to which the caller has
            // exclusive access.
            unsafe { ptr::write_bytes(base.add(from), 0, len - from) };
        }
    }

    /// Copies from consecutive pages in `frames`, from `skip` bytes into the first, until `buf` is
    /// full.
    ///
    /// # Safety
    /// The frames are up to date and stay so for the whole call (pinned, or the shard's lock is
    /// held), so they are not written.
    ///
    /// # Panics
    /// If the frames hold fewer bytes than `buf`.
    pub(crate) unsafe fn copy_out(&self, frames: &[FrameId], skip: usize, buf: &mut [u8]) {
        let bytes = self.page_size.bytes() as usize;
        assert!(skip + buf.len() <= frames.len() * bytes, "too few frames for the copy");
        let (mut rest, mut skip) = (buf, skip);
        // Adjacent frames are one range of memory.
        for run in frames.chunk_by(|&a, &b| self.is_next(a, b)) {
            if rest.is_empty() {
                break;
            }
            let (base, _) = self.segment(run[0]);
            let count = rest.len().min(run.len() * bytes - skip);
            let (head, tail) = rest.split_at_mut(count);
            // SAFETY: `skip + count` is within the run, whose frames are adjacent in a mapping. The
            // frames are not written (the caller's promise). `buf` is exclusive, so it does not
            // overlap the mapping.
            unsafe { copy(base.add(skip), head.as_mut_ptr(), count) };
            rest = tail;
            skip = 0;
        }
    }

    /// Returns the memory of empty frames to the system; they read as zeros when they are used
    /// again.
    pub(crate) fn release(&self, frames: &[FrameId]) {
        #[cfg(test)]
        if let Some(wait) = self.before_release.0.lock().expect("no panic").take() {
            wait();
        }
        let mut frames = frames.to_vec();
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (base, bytes) = self.segment(run[0]);
            self.segment(run[run.len() - 1]);
            let len = run.len() * bytes;
            // SAFETY: the frames are inside the mapping and retired, so they are not accessed. On
            // failure the memory merely stays.
            let _memory_stays = unsafe { madvise(base.cast::<c_void>(), len, Advice::LinuxDontNeed) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let len = self.frames as usize * self.page_size.bytes() as usize;
        // SAFETY: our own mapping. Requests in flight hold the arena by an `Arc`, so none is left.
        let unmapped = unsafe { munmap(self.base.cast(), len) };
        debug_assert!(unmapped.is_ok(), "unmapping a mapping of our own");
    }
}

/// Populates a huge page, which keeps its contents; returns whether that was fast.
fn comes_quickly(page: *mut c_void) -> bool {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let begin = now();
    // SAFETY: in our own mapping, as the caller ensures; no contents change. Kernels before 5.14
    // refuse; then the kernel decides.
    let populated = unsafe { madvise(page, HUGE_PAGE, Advice::LinuxPopulateWrite) };
    populated.is_err() || now().saturating_sub(begin) < QUICK
}

const HUGE_PAGE: usize = 2 << 20;
/// Bytes that use small pages after the first slow huge page.
const PAUSE: usize = 64 << 20;
/// Bytes before a fast huge page for which huge pages are enabled, too.
const LEFT_OUT_MAX: usize = 64 << 20;
/// CPU time of this thread: memory is cleared at 10 GB/s if it is available, at 1 GB/s or less if
/// not.
const QUICK: Duration = Duration::from_micros(700);

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    /// The kernel's flags of the mapping at an address, from `/proc/self/smaps`.
    fn flags(base: *const u8) -> Vec<String> {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("there is one");
        let mut mappings = smaps.split_inclusive('\n').skip_while(|line| {
            let (start, end) =
                line.split_once(' ').and_then(|(range, _)| range.split_once('-')).unwrap_or_default();
            let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).unwrap_or(0));
            !(start..end).contains(&base.addr())
        });
        let flags = mappings.find_map(|line| line.strip_prefix("VmFlags:")).expect("it is mapped");
        flags.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn memory_uses_huge_pages_if_requested_and_available() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return bowwave_testkit::skipped("this kernel has no transparent huge pages");
        }
        let arena = |huge| {
            let frames = u32::try_from(8 * PAUSE / 4096).expect("few");
            Arena::new(frames, PageSize::new(4096).expect("a power of two"), huge).expect("addresses")
        };
        let is_huge = |arena: &Arena, at: usize| {
            let flags = flags(arena.base.wrapping_add(at));
            assert!(flags.iter().any(|flag| flag == "hg" || flag == "nh"), "{flags:?}");
            flags.iter().any(|flag| flag == "hg")
        };
        let arena_of_huge = arena(true);
        let first = arena_of_huge.base.align_offset(HUGE_PAGE);
        let page = |at: usize| first + at * HUGE_PAGE;
        // Whether the huge page of the frame at an offset was tried.
        let tries = |at: usize, quick: bool| {
            let mut tried = None;
            arena_of_huge.settle_up_to(at + 4096, |page| {
                tried = Some(page.addr() - arena_of_huge.base.addr());
                quick
            });
            tried
        };
        assert!(!is_huge(&arena_of_huge, page(0)), "nothing is used");
        assert_eq!(tries(page(0), true), Some(page(0)));
        assert_eq!(tries(page(0) + 4096, true), None, "that is settled");
        assert!(is_huge(&arena_of_huge, page(0)) && !is_huge(&arena_of_huge, page(1)));
        assert_eq!(tries(page(3) + 4096, true), Some(page(3)), "frames are filled in about their order");
        assert!(
            is_huge(&arena_of_huge, page(1))
                && is_huge(&arena_of_huge, page(3))
                && !is_huge(&arena_of_huge, page(4))
        );
        // Slow huge pages are followed by small pages, longer each time.
        assert_eq!(tries(page(4), false), Some(page(4)));
        assert!(is_huge(&arena_of_huge, page(3)) && !is_huge(&arena_of_huge, page(4)));
        let after = |at: usize, pause: usize| at + 1 + pause / HUGE_PAGE;
        let again = after(4, PAUSE);
        assert_eq!(tries(page(again) - 4096, true), None);
        assert_eq!(tries(page(again), false), Some(page(again)));
        let later = after(again, 2 * PAUSE);
        assert_eq!(tries(page(later) - 4096, true), None);
        assert_eq!(tries(page(later), true), Some(page(later)));
        assert!(is_huge(&arena_of_huge, page(later)) && !is_huge(&arena_of_huge, page(later) - 4096));
        // A page that extends past the end does not count.
        assert_eq!(tries(8 * PAUSE - 4096, true).is_some(), first == 0);
        let small = arena(false);
        small.settle(FrameId(0));
        assert!(!is_huge(&small, page(0)));
        // Trying a page keeps its contents.
        let real = arena(true);
        let (base, len) = real.segment(FrameId(600));
        // SAFETY: a frame of our own arena, unused elsewhere.
        unsafe { ptr::write_bytes(base, 7, len) };
        real.settle(FrameId(600));
        // SAFETY: as above.
        assert!((0..len).all(|at| unsafe { base.add(at).read() } == 7));
    }
}
