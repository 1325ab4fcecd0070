//! Handler threads for page faults.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::queue::{MayWait, reading_here};
use super::swap::{Shared, event, signal};
use crate::error::{Error, Result};
use crate::uffd::Touch;

/// Handler threads; stopped on drop.
#[derive(Debug)]
pub(super) struct Handlers {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<OwnedFd>,
}

impl Handlers {
    pub(super) fn start(shared: &Arc<Shared>, count: usize) -> Result<Self> {
        let stop = event()?;
        let mut handlers = Self { threads: Vec::new(), stop: Arc::new(stop) };
        // While one thread blocks on the store, the others serve new faults.
        let may_wait = if count > 1 { MayWait::Alone } else { MayWait::No };
        for number in 0..count.max(1) {
            let (shared, stop) = (Arc::clone(shared), Arc::clone(&handlers.stop));
            let thread = thread::Builder::new()
                .name(format!("bowwave-swap-{number}"))
                .spawn(move || serve(&shared, &stop, may_wait))
                .map_err(|error| Error::System { wanted: "start a thread", error, hint: "" })?;
            handlers.threads.push(thread);
        }
        Ok(handlers)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Wakes all threads: the eventfd is never read back to zero.
        signal(&self.stop);
        for thread in self.threads.drain(..) {
            // A handler's panic has printed its message.
            let _said = thread.join();
        }
    }
}

/// Serves page faults until `stop` is readable.
fn serve(shared: &Shared, stop: &OwnedFd, may_wait: MayWait) {
    let mut touches: Vec<Touch> = Vec::new();
    loop {
        let mut ready = [
            PollFd::from_borrowed_fd(shared.memory.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(shared.earlier(), PollFlags::IN),
        ];
        let patience = shared.patience().map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        });
        match poll(&mut ready, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
            Err(error) => unreachable!("polling descriptors of our own: {error}"),
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        if !ready[2].revents().is_empty() {
            shared.reset_earlier();
        }
        shared.expire();
        shared.memory.receive(&mut touches).expect("a userfaultfd is readable while it is open");
        for touch in touches.drain(..) {
            if let Some(page) = shared.memory.page_at(touch.address) {
                reading_here(may_wait, || shared.touched(page, touch.write));
            }
        }
    }
}
