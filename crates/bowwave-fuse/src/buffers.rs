//! Reply buffers: few, and kept for the next request.
//!
//! A read is at most 1 MiB, and 64 and more may be served at once. A buffer each, from the allocator, made 125 MiB
//! of a mount under 64 readers: what is in flight, and as much again that the allocator keeps in pieces. So a size
//! class has so many buffers and no more, and none is ever freed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Stacks of buffers. The last one back is the first one out: it is still in the processor's cache, while a buffer
/// for each thread would be cold, for the kernel wakes waiting threads by turns.
#[derive(Debug)]
pub(crate) struct Buffers {
    classes: [Class; CLASSES.len()],
}

#[derive(Debug, Default)]
struct Class {
    state: Mutex<State>,
    back: Condvar,
}

/// `free.len() <= made`.
#[derive(Debug, Default)]
struct State {
    free: Vec<Vec<u8>>,
    made: usize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Class::default()) }
    }
}

impl Buffers {
    /// Lends a buffer of `len` bytes, of any content, to `body`. Waits while all of that size are lent.
    pub(crate) fn lend<R>(&self, len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
        let Some(index) = CLASSES.iter().position(|&(bytes, _)| len <= bytes) else {
            // The kernel asks for no more than it was told to; should it, memory is not the first worry.
            return body(&mut vec![0; len]);
        };
        let mut lent = self.classes[index].take(CLASSES[index]);
        body(&mut lent.buffer[..len])
    }
}

/// A buffer that goes back whatever becomes of its reader.
struct Lent<'a> {
    class: &'a Class,
    buffer: Vec<u8>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.class.lock().free.push(std::mem::take(&mut self.buffer));
        self.class.back.notify_one();
    }
}

impl Class {
    fn take(&self, (bytes, count_max): (usize, usize)) -> Lent<'_> {
        let mut state = self.lock();
        loop {
            if let Some(buffer) = state.free.pop() {
                return Lent { class: self, buffer };
            }
            if state.made < count_max {
                state.made += 1;
                drop(state);
                return Lent { class: self, buffer: vec![0; bytes] };
            }
            state = self.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A stack of buffers is sound whatever a panicking holder did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a buffer and how many there are: 32 MiB of those that matter, half of what a mount may use besides its
/// cache. As many small reads as there are threads may wait for a slow store at once, but large ones keep it busy with
/// fewer.
const CLASSES: [(usize, usize); 3] = [(16 << 10, usize::MAX), (256 << 10, 64), (1 << 20, 16)];

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::thread;

    #[test]
    fn buffers_have_the_length_asked_for_and_come_back() {
        let buffers = Buffers::default();
        for len in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, (1 << 20) + 1] {
            for _ in 0..100 {
                buffers.lend(len, |buffer| assert_eq!(buffer.len(), len));
            }
        }
        let made = buffers.classes.each_ref().map(|class| class.lock().made);
        assert_eq!(made, [1; 3], "one was enough for each class");
    }

    #[test]
    fn no_more_large_buffers_than_there_may_be_are_out_at_once() {
        let (bytes, count_max) = CLASSES[2];
        let buffers = Buffers::default();
        let (tell, told) = sync_channel(count_max + 1);
        thread::scope(|scope| {
            let gates: Vec<_> = (0..=count_max)
                .map(|_| {
                    let (open, gate) = sync_channel::<()>(1);
                    let (tell, buffers) = (tell.clone(), &buffers);
                    scope.spawn(move || {
                        buffers.lend(bytes, |_| {
                            tell.send(()).expect("the test waits");
                            gate.recv().expect("opened below");
                        });
                    });
                    open
                })
                .collect();
            (0..count_max).for_each(|_| told.recv().expect("as many as there are"));
            // All are lent, so the last has told nothing.
            assert!(told.try_recv().is_err());
            gates.iter().for_each(|open| open.send(()).expect("it waits, or will"));
            told.recv().expect("one came back");
        });
        assert_eq!(buffers.classes[2].lock().made, count_max);
    }
}
