//! Requests through an io_uring: one ring, one thread that submits and reaps.
//!
//! ```text
//!   add() --queue--> +--------------+ --SQE--> kernel
//!         --eventfd->| ring thread  | <--CQE--
//!                    +--------------+ --progress, done--> sinks
//! ```
//!
//! The thread sleeps in the kernel until a request completes, or the eventfd, which is read through
//! the ring as well, reports a new request.

#![expect(unsafe_code, reason = "the kernel writes into lent buffers while a submission is in flight")]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, RawFd};
use std::sync::Arc;
use std::thread;

use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};

use super::request::{After, Request, Work};
use crate::descriptors::{creating, own};
use crate::sync::Mutex;
use crate::{Error, ErrorKind};

/// The sending side. Dropping it lets requests in flight finish, then ends the thread.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
}

impl Ring {
    /// Sets up a ring for `slots` reads in flight and starts its thread.
    pub(super) fn start(slots: u32) -> io::Result<Self> {
        let slots = slots.clamp(1, SLOTS_MAX);
        // One more entry, for the eventfd.
        let ring = creating(|| moved(IoUring::builder().build(slots + 1)?))?;
        let eventfd = File::from(own(|| eventfd(0, EventfdFlags::CLOEXEC))?);
        let shared = Arc::new(Shared { queue: Mutex::default(), eventfd });
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("bowwave-ring".to_owned())
            .spawn(move || RingThread::new(ring, theirs, slots).run())?;
        Ok(Self { shared })
    }

    /// Adds a request; rejects it if too many wait.
    pub(super) fn add(&self, request: Request) {
        if request.is_empty() {
            return request.end_empty();
        }
        let mut queue = self.shared.queue.lock();
        if queue.broken || queue.added.len() >= WAITING_MAX {
            let broken = queue.broken;
            drop(queue);
            let message = if broken { "io_uring has failed" } else { "too many requests are waiting" };
            let kind = if broken { ErrorKind::Io } else { ErrorKind::Throttled };
            request.end(Err(Error::new(kind, message)));
            return;
        }
        let first = queue.added.is_empty();
        queue.added.push_back(request);
        drop(queue);
        if first {
            self.shared.wake();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.wake();
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    eventfd: File,
}

#[derive(Default)]
struct Queue {
    added: VecDeque<Request>,
    stopping: bool,
    /// The kernel rejected the ring itself; all requests fail.
    broken: bool,
    /// The next check of the ring with a read in flight finds it broken.
    #[cfg(test)]
    fail_next: bool,
}

impl Shared {
    fn wake(&self) {
        // Can fail only by overflow, after 2^64 unread wake-ups; then a wake-up is pending anyway.
        (&self.eventfd).write_all(&1u64.to_ne_bytes()).ok();
    }
}

/// A request that the kernel is working on.
struct Flight {
    request: Request,
    direct: bool,
    /// Read by the kernel at submission at the latest; kept until completion, to be safe with every
    /// kernel.
    vectors: Vec<libc::iovec>,
}

struct RingThread {
    ring: IoUring,
    shared: Arc<Shared>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    waiting: VecDeque<Request>,
    /// Target of the eventfd's count; boxed, so that it does not move.
    wake_count: Box<u64>,
}

impl RingThread {
    fn new(ring: IoUring, shared: Arc<Shared>, slots: u32) -> Self {
        Self {
            ring,
            shared,
            flights: (0..slots).map(|_| None).collect(),
            free: (0..slots as usize).rev().collect(),
            waiting: VecDeque::new(),
            wake_count: Box::new(0),
        }
    }

    fn run(mut self) {
        if let Err(error) = self.serve() {
            self.fail(&error);
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        self.listen()?;
        loop {
            let stopping = self.take_added();
            while let Some(slot) = self.free.pop() {
                let Some(request) = self.waiting.pop_front() else {
                    self.free.push(slot);
                    break;
                };
                self.submit(slot, request)?;
            }
            if stopping && self.free.len() == self.flights.len() {
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                #[cfg(test)]
                Ok(_) if self.shared.queue.lock().fail_next && self.free.len() < self.flights.len() => {
                    return Err(io::Error::from_raw_os_error(libc::EBADF));
                }
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            self.reap()?;
        }
    }

    /// Moves added requests to this thread's own queue; returns whether the sending side was
    /// dropped.
    fn take_added(&mut self) -> bool {
        let mut queue = self.shared.queue.lock();
        // Bounded: `added` is, and it is only emptied when at most as many wait here.
        if self.waiting.len() < WAITING_MAX {
            self.waiting.append(&mut queue.added);
        }
        queue.stopping && queue.added.is_empty() && self.waiting.is_empty()
    }

    fn reap(&mut self) -> io::Result<()> {
        // Collected first, because ending a request runs foreign code that submits more.
        let ended: Vec<_> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (token, result) in ended {
            if token == WAKE {
                self.listen()?;
                continue;
            }
            let slot = usize::try_from(token).expect("tokens are indices of flights");
            let flight = self.flights[slot].take().expect("the kernel completes what was submitted, once");
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            match flight.request.advance(result, flight.direct) {
                After::More(request) => self.submit(slot, request)?,
                After::Ended => self.free.push(slot),
            }
        }
        Ok(())
    }

    fn submit(&mut self, slot: usize, request: Request) -> io::Result<()> {
        let offset = request.position();
        let (descriptor, direct) = request.descriptor();
        let descriptor = types::Fd(descriptor.as_raw_fd());
        let vectors = request.vectors();
        let count = u32::try_from(vectors.len()).expect("vectors are cut at IOV_MAX");
        let entry = match &request.work {
            Work::Read { .. } => {
                opcode::Readv::new(descriptor, vectors.as_ptr(), count).offset(offset).build()
            }
            Work::Write { .. } => {
                opcode::Writev::new(descriptor, vectors.as_ptr(), count).offset(offset).build()
            }
        };
        self.flights[slot] = Some(Flight { request, direct, vectors });
        // SAFETY: until its completion is reaped the flight stays in `flights`, and with it the
        // descriptor (through the request's file), the vectors (their heap memory does not move)
        // and the buffer, which is exclusively ours or, for a write, does not change.
        unsafe { self.push(&entry.user_data(slot as u64)) }
    }

    /// Submits a read of the eventfd.
    fn listen(&mut self) -> io::Result<()> {
        let fd: RawFd = self.shared.eventfd.as_raw_fd();
        let count: *mut u64 = &mut *self.wake_count;
        let entry = opcode::Read::new(types::Fd(fd), count.cast(), 8).build().user_data(WAKE);
        // SAFETY: `wake_count` is boxed and, like the eventfd, lives until the ring is closed (see
        // `Drop`). At most one such read is in flight, and nothing else accesses the count.
        unsafe { self.push(&entry) }
    }

    /// # Safety
    /// The memory that the entry refers to must stay valid until its completion has been reaped.
    unsafe fn push(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        // Full: the kernel takes the entries, which makes room.
        self.ring.submit()?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }.map_err(|full| io::Error::other(full.to_string()))
    }

    /// Ends all requests with the error that broke the ring. The kernel may still use the buffers
    /// of requests in flight, so these are leaked: their sinks get the error with an empty buffer.
    fn fail(&mut self, error: &io::Error) {
        let error = Error::new(ErrorKind::Io, format!("io_uring: {error}"));
        let mut queue = self.shared.queue.lock();
        queue.broken = true;
        self.waiting.append(&mut queue.added);
        drop(queue);
        for request in self.waiting.drain(..) {
            request.end(Err(error.clone()));
        }
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            let Flight { request, vectors, .. } = flight;
            let Request { work, file, .. } = request;
            std::mem::forget((vectors, file));
            match work {
                Work::Read { buf, sink } => sink.done(buf.lose(), Err(error.clone())),
                Work::Write { buf, sink } => sink.done(buf.lose(), Err(error.clone())),
            }
        }
    }
}

impl Drop for RingThread {
    fn drop(&mut self) {
        // The eventfd's read is still in flight. Wake and reap it, so that the kernel is done with
        // `wake_count`.
        self.shared.wake();
        let answered = self.ring.submit_and_wait(1).is_ok()
            && self.ring.completion().any(|entry| entry.user_data() == WAKE);
        if !answered {
            // Leaks eight bytes, so that the kernel cannot write to memory that was freed.
            Box::leak(std::mem::take(&mut self.wake_count));
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("added", &self.added.len()).field("stopping", &self.stopping).finish()
    }
}

/// The same ring by a descriptor that a program does not replace.
fn moved(ring: IoUring) -> io::Result<IoUring> {
    let params = ring.params().clone();
    // SAFETY: `ring` lives until this function returns.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    let own = own(|| rustix::io::fcntl_dupfd_cloexec(fd, 0))?;
    // SAFETY: a new descriptor of the ring that `params` describe; nothing has used the ring yet.
    unsafe { IoUring::from_fd(own.into_raw_fd(), params) }
}

/// Token of the eventfd's read.
const WAKE: u64 = u64::MAX;
/// Most reads in flight at once.
const SLOTS_MAX: u32 = 1024;
/// Most requests that may wait for a slot; only a caller that ignores the profile reaches it.
const WAITING_MAX: usize = 4096;

/// Whether this process may use io_uring; without it, threads read local files.
///
/// # Errors
/// As the kernel says.
pub fn io_uring() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Weak;
    use std::time::{Duration, Instant};

    use super::super::attributes::identity;
    use super::super::open::OpenFile;
    use super::*;
    use crate::wait::{Heard, start_read};
    use crate::{Identity, Object, ReadBuf, ReadSink};

    /// An object whose reads never end: a pipe without a writer.
    #[derive(Debug)]
    struct Endless {
        file: Arc<OpenFile>,
        ring: Arc<Ring>,
    }

    impl Object for Endless {
        fn identity(&self) -> &Identity {
            &self.file.identity
        }
        fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
            self.ring.add(Request::read(Arc::clone(&self.file), offset, buf, sink));
        }
    }

    fn endless() -> (Endless, io::PipeWriter) {
        let (reader, writer) = io::pipe().expect("descriptors are left");
        let buffered = File::from(OwnedFd::from(reader));
        let mut identity = identity(&rustix::fs::fstat(&buffered).expect("it is open"));
        identity.size = 1 << 20;
        let file = OpenFile {
            place: "pipe".into(),
            identity,
            buffered,
            direct: None,
            direct_refused: false.into(),
            direct_writes_from: 0,
            writable: false,
        };
        (
            Endless { file: Arc::new(file), ring: Arc::new(Ring::start(4).expect("the kernel has rings")) },
            writer,
        )
    }

    /// Regression: the failed ring returned an empty buffer of another owner and released memory to
    /// which the kernel could still write; wrappers that had split the buffer panicked on the
    /// ring's thread.
    #[test]
    fn buffers_of_a_failed_ring_are_never_freed() {
        if IoUring::new(2).is_err() {
            return;
        }
        let (object, _writer) = endless();
        let memory: Arc<Vec<u8>> = Arc::new(vec![0; 8192]);
        let weak: Weak<Vec<u8>> = Arc::downgrade(&memory);
        let base = memory.as_ptr().cast_mut();
        // SAFETY: the vector lives as long as the owner, and its bytes are not accessed otherwise.
        // (They are not written either: the pipe is empty.)
        let mut buf = unsafe { ReadBuf::from_raw_segments([(base, 8192)], memory) };
        // As a wrapper that passes on part of a read.
        let tail = buf.split_off(4096);
        let heard = start_read(&object, 0, buf);
        object.ring.shared.queue.lock().fail_next = true;
        let patience = Instant::now() + Duration::from_secs(20);
        let (mut buf, result) = loop {
            // Repeated: the first wake-up may come before the read is in flight.
            object.ring.shared.wake();
            match heard.recv_timeout(Duration::from_millis(10)) {
                Ok(Heard::Done(buf, result)) => break (buf, result),
                Ok(Heard::Dropped) => panic!("no end"),
                _ => assert!(Instant::now() < patience, "the sink gets no error"),
            }
        };
        assert!(result.expect_err("the ring is broken").to_string().contains("io_uring"));
        assert_eq!(buf.len(), 0, "memory that the kernel may write to is not returned");
        buf.unsplit(tail);
        drop((buf, heard));
        assert!(weak.upgrade().is_some(), "the owner is leaked with the memory");
        let later = start_read(&object, 0, ReadBuf::zeroed(10));
        let Ok(Heard::Done(buf, Err(_))) = later.recv_timeout(Duration::from_secs(20)) else {
            panic!("a broken ring refuses")
        };
        assert_eq!(buf.len(), 10, "a buffer that was not submitted is returned");
    }
}
