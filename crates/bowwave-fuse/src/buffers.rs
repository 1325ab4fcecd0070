//! Reply buffers, kept for the next request.

use std::sync::{Mutex, PoisonError};

/// A small stack of buffers. The last one back is the first one out: it is still in the processor's cache, while
/// a buffer for each thread would be cold, for the kernel wakes waiting threads by turns.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Lends a buffer of `len` bytes, of any content, to `body`.
    pub(crate) fn lend<R>(&self, len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.lock().pop().unwrap_or_default();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let result = body(&mut buffer[..len]);
        let mut kept = self.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // A stack of buffers is sound whatever a panicking holder did.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buffers kept while idle: 8 MiB at most, since a request is 1 MiB at most.
const KEPT_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_length_asked_for_and_few_are_kept() {
        let buffers = Buffers::default();
        fn nest(buffers: &Buffers, depth: usize) {
            buffers.lend(depth * 100 + 1, |buffer| {
                assert_eq!(buffer.len(), depth * 100 + 1);
                if depth < 20 {
                    nest(buffers, depth + 1);
                }
            });
        }
        nest(&buffers, 0);
        assert_eq!(buffers.lock().len(), KEPT_MAX);
        buffers.lend(3, |buffer| assert_eq!(buffer.len(), 3));
    }
}
