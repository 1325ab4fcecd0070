//! The buffer that a read fills.

#![expect(unsafe_code, reason = "frames are raw memory shared by turns between the engine and the kernel")]

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

/// Memory lent to a read: segments, filled in order as if they were one.
///
/// Whoever holds the `ReadBuf` is the only one to touch its memory; it moves into the read and comes back with
/// its end.
pub struct ReadBuf {
    segments: Vec<libc::iovec>,
    len: usize,
    /// Keeps the memory alive.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is exclusively this buffer's until it is dropped (condition of `from_raw_segments`), and the
// owner that keeps it alive is itself `Send + Sync`.
unsafe impl Send for ReadBuf {}
// SAFETY: as above; `&ReadBuf` gives no access to the bytes but through raw pointers.
unsafe impl Sync for ReadBuf {}

impl ReadBuf {
    /// A buffer of `len` zero bytes of its own.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut memory = vec![0u8; len].into_boxed_slice();
        let base = memory.as_mut_ptr();
        // SAFETY: the allocation lives in `owner`; a Box's heap memory does not move when the Box does; nobody
        // else has a way to it.
        unsafe { Self::from_raw_segments([(base, len)], Arc::new(Owned(memory))) }
    }

    /// A buffer over memory that `owner` keeps alive. The owner is dropped with the last piece of the buffer; if a piece
    /// is lost, because something may still write to it, the owner stays for ever.
    ///
    /// # Safety
    /// Each segment is valid for reads and writes of its length while `owner` lives, segments do not overlap, and
    /// nobody else reads or writes them until this `ReadBuf` is dropped.
    #[must_use]
    pub unsafe fn from_raw_segments(
        segments: impl IntoIterator<Item = (*mut u8, usize)>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let segments: Vec<_> = segments
            .into_iter()
            .map(|(base, len)| libc::iovec { iov_base: base.cast(), iov_len: len })
            .collect();
        let len = segments.iter().map(|segment| segment.iov_len).sum();
        Self { segments, len, owner }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no room at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments, for vectored system calls and rings.
    #[must_use]
    pub fn segments(&self) -> &[libc::iovec] {
        &self.segments
    }

    /// Writes `bytes` at `offset` of the buffer.
    ///
    /// # Panics
    /// If they do not fit: the caller clips what a server sends.
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset, "copy_in past the end of the buffer");
        let (mut skip, mut rest) = (offset, bytes);
        for segment in &self.segments {
            if rest.is_empty() {
                break;
            }
            if skip >= segment.iov_len {
                skip -= segment.iov_len;
                continue;
            }
            let count = rest.len().min(segment.iov_len - skip);
            // SAFETY: `skip + count <= iov_len`, the segment is valid and ours alone (see `from_raw_segments`), and
            // a `&[u8]` cannot overlap memory that nobody else may read.
            unsafe {
                std::ptr::copy_nonoverlapping(rest.as_ptr(), segment.iov_base.cast::<u8>().add(skip), count);
            }
            rest = &rest[count..];
            skip = 0;
        }
    }

    /// Calls `fill` for each contiguous piece of `range`, in order, with the piece's offset in the buffer.
    ///
    /// For bytes that are made rather than copied: they are written once, where they belong.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    pub fn fill_with(&mut self, range: Range<usize>, mut fill: impl FnMut(usize, &mut [u8])) {
        assert!(range.start <= range.end && range.end <= self.len, "fill_with past the end of the buffer");
        for (position, piece) in self.pieces(range) {
            // SAFETY: `pieces` stays inside segments that are valid and ours alone (see `from_raw_segments`), `&mut
            // self` makes this the only reference, and the memory is initialised: frames are mapped zeroed.
            let bytes = unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast::<u8>(), piece.iov_len) };
            fill(position, bytes);
        }
    }

    /// Reads from `file` at `offset` into `range` of the buffer with one vectored system call; returns its count.
    ///
    /// At most the first 1024 segments of the range are read (the limit of the system call).
    ///
    /// # Errors
    /// As the system call says.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    pub fn read_from(&mut self, file: &File, offset: u64, range: Range<usize>) -> io::Result<usize> {
        let vectors = self.vectors(range);
        let count = libc::c_int::try_from(vectors.len()).expect("vectors are cut at IOV_MAX");
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the vectors lie in our segments, which are valid for writes and ours alone; the call ends before
        // `vectors` and `self` can go away.
        let read = unsafe { libc::preadv(file.as_raw_fd(), vectors.as_ptr(), count, offset) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// The pieces of segments that make up `range`, at most 1024 of them (`IOV_MAX`).
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    #[must_use]
    pub fn vectors(&self, range: Range<usize>) -> Vec<libc::iovec> {
        assert!(range.start <= range.end && range.end <= self.len, "vectors past the end of the buffer");
        self.pieces(range).take(IOV_MAX).map(|(_, piece)| piece).collect()
    }

    /// Whether every segment starts and ends at a multiple of `alignment` bytes (a power of two), as direct I/O needs.
    #[must_use]
    pub fn is_aligned(&self, alignment: usize) -> bool {
        let mask = alignment - 1;
        self.segments.iter().all(|segment| (segment.iov_base.addr() | segment.iov_len) & mask == 0)
    }

    /// The pieces of segments that make up `range`, each with its offset in the buffer.
    fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (usize, libc::iovec)> {
        let mut start = 0;
        self.segments.iter().filter_map(move |segment| {
            let (from, to) = (start.max(range.start), (start + segment.iov_len).min(range.end));
            let skip = from.saturating_sub(start);
            start += segment.iov_len;
            // Wrapping, because only a piece that is kept has `skip` within its segment.
            let base = segment.iov_base.cast::<u8>().wrapping_add(skip).cast();
            (from < to).then(|| (from, libc::iovec { iov_base: base, iov_len: to - from }))
        })
    }

    /// The bytes, copied out; for tests and small reads.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        for segment in &self.segments {
            // SAFETY: valid for `iov_len` bytes and ours alone, and initialised: frames are mapped zeroed.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(segment.iov_base.cast::<u8>(), segment.iov_len)
            });
        }
        bytes
    }

    /// Splits off the bytes from `at` on; both halves share the owner.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split past the end of the buffer");
        let (mut head, mut tail, mut left) = (Vec::new(), Vec::new(), at);
        for segment in self.segments.drain(..) {
            let count = left.min(segment.iov_len);
            if count > 0 {
                head.push(libc::iovec { iov_base: segment.iov_base, iov_len: count });
            }
            if count < segment.iov_len {
                // SAFETY: `count < iov_len`, so the pointer stays inside the segment.
                let base = unsafe { segment.iov_base.cast::<u8>().add(count) };
                tail.push(libc::iovec { iov_base: base.cast(), iov_len: segment.iov_len - count });
            }
            left -= count;
        }
        let tail_len = self.len - at;
        self.segments = head;
        self.len = at;
        Self { segments: tail, len: tail_len, owner: Arc::clone(&self.owner) }
    }

    /// Gives the memory up for good: whoever still writes to it may do so for ever, because the owner is never dropped.
    /// What is left is an empty buffer of the same owner.
    #[cfg(feature = "io-uring")]
    pub(crate) fn lose(self) -> Self {
        std::mem::forget(Arc::clone(&self.owner));
        Self { segments: Vec::new(), len: 0, owner: self.owner }
    }

    /// Puts back what [`Self::split_off`] took from the end of this buffer.
    ///
    /// # Panics
    /// If `tail` is no part of the same memory.
    pub fn unsplit(&mut self, tail: Self) {
        assert!(Arc::ptr_eq(&self.owner, &tail.owner), "unsplit of two buffers");
        self.len += tail.len;
        self.segments.extend(tail.segments);
    }
}

impl fmt::Debug for ReadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuf").field("len", &self.len).field("segments", &self.segments.len()).finish()
    }
}

/// Most segments that one vectored system call takes.
const IOV_MAX: usize = 1024;

/// Keeps an allocation alive without giving access to it.
struct Owned(
    #[expect(dead_code, reason = "held for its memory, which only the ReadBuf may touch")] Box<[u8]>,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_and_copy_cross_segments() {
        let mut buf = ReadBuf::zeroed(10);
        let mut tail = buf.split_off(4);
        tail.copy_in(1, b"xyz");
        buf.copy_in(0, b"abcd");
        assert_eq!((buf.to_vec(), tail.to_vec()), (b"abcd".to_vec(), b"\0xyz\0\0".to_vec()));
        buf.unsplit(tail);
        assert_eq!((buf.len(), buf.to_vec()), (10, b"abcd\0xyz\0\0".to_vec()));
    }
}
