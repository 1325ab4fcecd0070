//! Lends a buffer to a request: bytes are not copied, and the buffer returns when all references
//! are dropped.

use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayload;
use tokio::sync::oneshot;

use crate::WriteBuf;

/// The bytes of `buf` for a request, and the channel that returns `buf` when all of them are
/// dropped.
pub(super) fn lend(buf: WriteBuf) -> (PutPayload, oneshot::Receiver<WriteBuf>) {
    let (back, returned) = oneshot::channel();
    let segments = buf.segments().len();
    let lent = Arc::new(Lent { buf: Some(buf), back: Some(back) });
    let pieces = (0..segments).map(|segment| Bytes::from_owner(Piece { lent: Arc::clone(&lent), segment }));
    (pieces.collect(), returned)
}

struct Lent {
    /// Until it goes back.
    buf: Option<WriteBuf>,
    back: Option<oneshot::Sender<WriteBuf>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(buf), Some(back)) = (self.buf.take(), self.back.take()) {
            // Without a receiver the buffer is dropped here.
            back.send(buf).ok();
        }
    }
}

struct Piece {
    lent: Arc<Lent>,
    segment: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.lent.buf.as_ref().map_or(&[], |buf| buf.segment(self.segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_its_last_piece_is_dropped() {
        let mut buf = WriteBuf::from_vec(b"abcdef".to_vec());
        let tail = buf.split_off(2);
        buf.unsplit(tail);
        let (payload, mut returned) = lend(buf);
        let kept = payload.as_ref()[1].clone();
        assert_eq!(Bytes::from(payload), "abcdef");
        assert!(returned.try_recv().is_err(), "a piece is still read");
        assert_eq!(kept, "cdef");
        drop(kept);
        assert_eq!(returned.try_recv().expect("all pieces are gone").to_vec(), b"abcdef");
    }
}
