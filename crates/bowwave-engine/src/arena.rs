//! Memory of frames: one range of address space for each shard, backed by memory on first use.

#![allow(unsafe_code, reason = "page frames are raw memory, shared by turns with backends and the kernel")]

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use bowwave_backend::{Error as StoreError, ErrorKind};
use bowwave_core::{FrameId, PageSize};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::copy::copy;
use crate::error::{Error, Result};

/// The frames of one shard.
#[derive(Debug)]
pub(crate) struct Arena {
    base: *mut u8,
    frames: u32,
    page_size: PageSize,
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
    /// Reserves address space for `frames` frames; memory follows on use.
    ///
    /// # Errors
    /// If there is no such range of address space.
    pub(crate) fn new(frames: u32, page_size: PageSize) -> Result<Self> {
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
        // A host that lends a virtual machine its memory on use needs up to 0.1 s for a huge page.
        // SAFETY: advice on our own mapping that changes no contents. Only a hint: if it fails,
        // other pages serve.
        let _others_do = unsafe { madvise(base, len, Advice::LinuxNoHugepage) };
        Ok(Self {
            base: base.cast(),
            frames,
            page_size,
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
