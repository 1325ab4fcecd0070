//! The buffer that a read fills.

#![allow(unsafe_code, reason = "frames are raw memory shared by turns between the engine and the kernel")]

use std::any::Any;
use std::fmt;
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

    /// A buffer over memory that `owner` keeps alive.
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
}

impl fmt::Debug for ReadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuf").field("len", &self.len).field("segments", &self.segments.len()).finish()
    }
}

/// Keeps an allocation alive without giving access to it.
struct Owned(#[expect(dead_code, reason = "held for its memory, which only the ReadBuf may touch")] Box<[u8]>);

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
    }
}
