//! A bounded pool of reply buffers.
//!
//! A read is at most 1 MiB, and 64 or more are served concurrently. With one allocation per read, a
//! mount under 64 readers used 125 MiB: half in flight, half fragmented in the allocator. So each
//! size class has a fixed maximum of buffers, and buffers are never freed.

use bowwave_engine::backend::sync::{Condvar, Mutex};

/// Stacks of free buffers. Last in, first out reuses a buffer that is still in the CPU cache. The
/// kernel wakes waiting threads in turn, so a buffer per thread would be cold.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    classes: [Class; CLASSES.len()],
}

#[derive(Debug, Default)]
struct Class {
    state: Mutex<State>,
    back: Condvar,
}

/// Invariant: `free.len() <= created`.
#[derive(Debug, Default)]
struct State {
    free: Vec<Vec<u8>>,
    created: usize,
}

impl Buffers {
    /// Lends a buffer of `len` bytes with arbitrary content to `body`. Blocks while all buffers of
    /// the size class are lent.
    pub(crate) fn lend<R>(&self, len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
        let Some(index) = CLASSES.iter().position(|&(bytes, _)| len <= bytes) else {
            // The kernel never exceeds the negotiated size. Serve a larger request anyway.
            return body(&mut vec![0; len]);
        };
        let mut lent = self.classes[index].take(CLASSES[index]);
        body(&mut lent.buffer[..len])
    }
}

/// Returns its buffer to the class on drop, even after a panic.
struct Lent<'a> {
    class: &'a Class,
    buffer: Vec<u8>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.class.state.lock().free.push(std::mem::take(&mut self.buffer));
        self.class.back.notify_one();
    }
}

impl Class {
    fn take(&self, (bytes, count_max): (usize, usize)) -> Lent<'_> {
        let mut state = self.state.lock();
        loop {
            if let Some(buffer) = state.free.pop() {
                return Lent { class: self, buffer };
            }
            if state.created < count_max {
                state.created += 1;
                drop(state);
                return Lent { class: self, buffer: vec![0; bytes] };
            }
            state = self.back.wait(state);
        }
    }
}

/// Size of each class in bytes, and its maximum number of buffers. The two bounded classes use at
/// most 32 MiB, half of a mount's memory outside the cache. One small read per thread may wait for
/// a slow store; fewer large reads keep it busy.
const CLASSES: [(usize, usize); 3] = [(16 << 10, usize::MAX), (256 << 10, 64), (1 << 20, 16)];

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::thread;

    #[test]
    fn buffers_have_the_requested_length_and_are_reused() {
        let buffers = Buffers::default();
        for len in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, (1 << 20) + 1] {
            for _ in 0..100 {
                buffers.lend(len, |buffer| assert_eq!(buffer.len(), len));
            }
        }
        let created = buffers.classes.each_ref().map(|class| class.state.lock().created);
        assert_eq!(created, [1; 3], "one was enough for each class");
    }

    #[test]
    fn large_buffers_are_limited() {
        let (bytes, count_max) = CLASSES[2];
        let buffers = Buffers::default();
        let (send, received) = sync_channel(count_max + 1);
        thread::scope(|scope| {
            let gates: Vec<_> = (0..=count_max)
                .map(|_| {
                    let (open, gate) = sync_channel::<()>(1);
                    let (send, buffers) = (send.clone(), &buffers);
                    scope.spawn(move || {
                        buffers.lend(bytes, |_| {
                            send.send(()).expect("the test waits");
                            gate.recv().expect("opened below");
                        });
                    });
                    open
                })
                .collect();
            (0..count_max).for_each(|_| received.recv().expect("as many as there are"));
            // All buffers are lent, so the last reader has sent nothing.
            assert!(received.try_recv().is_err());
            gates.iter().for_each(|open| open.send(()).expect("it waits, or will"));
            received.recv().expect("one came back");
        });
        assert_eq!(buffers.classes[2].state.lock().created, count_max);
    }
}
