//! The buffer of a write.

#![expect(unsafe_code, reason = "frames are raw memory that the engine lends to writes")]

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use crate::{PartMemory, ReadBuf};

/// Memory lent to a write: segments, written in order as one buffer.
///
/// While a `WriteBuf` lives, its bytes do not change and may be read. The buffer moves into the
/// write and returns at its end.
pub struct WriteBuf(ReadBuf);

impl WriteBuf {
    /// A buffer that owns `bytes`.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let mut buf = ReadBuf::zeroed(bytes.len());
        buf.copy_in(0, &bytes);
        Self(buf)
    }

    /// A buffer of the bytes that a read returned, without a copy.
    pub fn from_read(bytes: ReadBuf) -> Self {
        Self(bytes)
    }

    /// A buffer over the first `len` of `bytes`, which cannot change while it lives.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn from_shared(bytes: Arc<PartMemory>, len: usize) -> Self {
        let base = bytes[..len].as_ptr();
        // SAFETY: the memory lives in the owner, and while that is shared there is no mutable
        // reference to it.
        unsafe { Self::from_raw_segments([(base, len)], bytes) }
    }

    /// A buffer over memory that `owner` keeps alive. The owner is dropped with the last piece of
    /// the buffer. If a piece is leaked, because it may still be read, the owner is never dropped.
    ///
    /// # Safety
    /// Each segment is valid for reads of its length and initialised while `owner` lives, and is
    /// not written until this `WriteBuf` and all pieces split off it are dropped.
    pub unsafe fn from_raw_segments(
        segments: impl IntoIterator<Item = (*const u8, usize)>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let segments = segments.into_iter().map(|(base, len)| (base.cast_mut(), len));
        // SAFETY: nothing here writes through the ReadBuf, which never leaves this type, so
        // readable memory suffices; it lives as long as the owner, by the caller's promise.
        Self(unsafe { ReadBuf::from_raw_segments(segments, owner) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The segments, for vectored system calls and rings. Do not write through them.
    pub fn segments(&self) -> &[libc::iovec] {
        self.0.segments()
    }

    /// The pieces of segments that make up `range`, at most 1024 of them (`IOV_MAX`). Do not write
    /// through them.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    pub fn vectors(&self, range: Range<usize>) -> Vec<libc::iovec> {
        self.0.vectors(range)
    }

    /// The bytes of one segment.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn segment(&self, index: usize) -> &[u8] {
        let segment = &self.segments()[index];
        // SAFETY: valid, initialised and unchanging while `self` lives (see `from_raw_segments`).
        unsafe { std::slice::from_raw_parts(segment.iov_base.cast::<u8>().cast_const(), segment.iov_len) }
    }

    /// The bytes, segment by segment.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.segments().len()).map(|index| self.segment(index))
    }

    /// Copies the bytes from `offset` of the buffer into `bytes`.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset <= self.len() && bytes.len() <= self.len() - offset,
            "copy_out past the end of the buffer"
        );
        let (mut skip, mut done) = (offset, 0);
        for slice in self.slices() {
            let piece = slice.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(slice.len());
            let count = piece.len().min(bytes.len() - done);
            bytes[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
    }

    /// The bytes, copied out; for tests and small writes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// Writes `range` of the buffer to `file` at `offset` with one vectored system call; returns
    /// its count.
    ///
    /// At most the first 1024 segments of the range are written (the limit of the system call).
    ///
    /// # Errors
    /// As the system call says.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    pub fn write_to(&self, file: &File, offset: u64, range: Range<usize>) -> io::Result<usize> {
        let vectors = self.vectors(range);
        let count = libc::c_int::try_from(vectors.len()).expect("vectors are cut at IOV_MAX");
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: the vectors lie in our segments, which are valid for reads; the call ends before
        // `vectors` and `self` can be dropped.
        let written = unsafe { libc::pwritev(file.as_raw_fd(), vectors.as_ptr(), count, offset) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    /// Splits off the bytes from `at` on; both halves share the owner.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self(self.0.split_off(at))
    }

    /// Rejoins what [`Self::split_off`] split from the end of this buffer.
    ///
    /// # Panics
    /// If `tail` is not part of the same memory.
    pub fn unsplit(&mut self, tail: Self) {
        self.0.unsplit(tail.0);
    }

    /// Leaks the memory: it may still be read, so the owner is never dropped. An empty buffer of
    /// the same owner remains.
    #[cfg(feature = "io-uring")]
    pub(crate) fn lose(self) -> Self {
        Self(self.0.lose())
    }
}

impl fmt::Debug for WriteBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBuf")
            .field("len", &self.len())
            .field("segments", &self.segments().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_return_to_their_owner_when_the_buffer_is_dropped() {
        let mut bytes = Arc::new(PartMemory::new(7).expect("there is memory"));
        Arc::get_mut(&mut bytes).expect("new").extend(b"abcdef");
        let buf = WriteBuf::from_shared(Arc::clone(&bytes), 4);
        assert_eq!(buf.to_vec(), b"abcd");
        assert!(Arc::get_mut(&mut bytes).is_none());
        drop(buf);
        Arc::get_mut(&mut bytes).expect("nobody else has it").extend(b"g");
    }

    #[test]
    fn bytes_are_copied_out_across_segments() {
        let owner = Arc::new([b"abcd".to_vec(), b"".to_vec(), b"efg".to_vec()]);
        let segments: Vec<_> = owner.iter().map(|part| (part.as_ptr(), part.len())).collect();
        // SAFETY: the vectors live in the owner and are not written.
        let mut buf = unsafe { WriteBuf::from_raw_segments(segments, owner) };
        let mut out = [0; 4];
        buf.copy_out(2, &mut out);
        assert_eq!((&out, buf.to_vec()), (b"cdef", b"abcdefg".to_vec()));
        let tail = buf.split_off(5);
        assert_eq!((buf.to_vec(), tail.to_vec()), (b"abcde".to_vec(), b"fg".to_vec()));
        buf.unsplit(tail);
        assert_eq!(buf.slices().collect::<Vec<_>>().concat(), b"abcdefg");
    }
}
