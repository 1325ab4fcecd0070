//! The timer thread of an emulated device: lets bytes through when the device's model says so.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_device::Direction;

use super::Device;
use super::driver::{Driver, Release};
use super::transfer::{Arrival, Side, Transfer};
use crate::sync::{Condvar, Mutex};
use crate::wrap::{Layer, WrappedObject, WrappedWriteObject};
use crate::{Error, ErrorKind, ReadBuf, ReadSink, Result, WriteBuf, WriteSink, generate};

/// The sending side. Dropping it lets the transfers in flight end, then ends the thread.
#[derive(Debug)]
pub(crate) struct Station {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    quantum: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    driver: Driver,
    transfers: BTreeMap<u64, Arc<Transfer>>,
    /// Transfers so far: the next one's number.
    count: u64,
    /// What the thread sleeps until; `u64::MAX` for "until called", `None` while it is awake.
    wake_at: Option<u64>,
    stopping: bool,
}

impl Station {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Io` if it cannot be started, and as the device's model says.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        // Steps of about 3 ms where the rate is low, so that slow devices trickle too.
        let step_bytes = (device.rate_of_one() / 333).clamp(4 << 10, 256 << 10);
        let driver = Driver::new(device.model()?, step_bytes);
        // Bytes are let through in batches this far apart at most: far below the device's latency.
        let quantum = (device.first_byte() / 64).min(QUANTUM_MAX);
        let state = State { driver, transfers: BTreeMap::new(), count: 0, wake_at: None, stopping: false };
        let shared =
            Shared { epoch: Instant::now(), quantum, state: Mutex::new(state), wake: Condvar::new() };
        let station = Self { shared: Arc::new(shared) };
        let shared = Arc::clone(&station.shared);
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("cannot start the timer of a device: {error}"))
        };
        thread::Builder::new()
            .name("bowwave-emulate".to_owned())
            .spawn(move || shared.run())
            .map_err(failed)?;
        Ok(station)
    }

    /// Reads `object` as late as the device says.
    pub(crate) fn read<L: Layer>(
        &self,
        object: &WrappedObject<L>,
        offset: u64,
        buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    ) {
        let inner = &object.inner;
        let len = if object.grows { buf.len() } else { generate::within(inner.size(), offset, buf.len()) };
        if len == 0 {
            // Nothing for the device to do.
            return inner.read(offset, buf, sink);
        }
        let transfer = Transfer::new(Side::Read(sink, None));
        let arrival = Box::new(Arrival(Arc::clone(&transfer)));
        if self.add(Direction::Read, object.place.wrapping_add(offset), len as u64, &transfer) {
            inner.read(offset, buf, arrival);
        } else {
            transfer.release(0, true);
            ReadSink::done(arrival, buf, Err(too_many()));
        }
    }

    /// Writes `object` as late as the device says. A write without bytes is a request, too.
    pub(crate) fn write<L: Layer>(
        &self,
        object: &WrappedWriteObject<L>,
        offset: u64,
        buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    ) {
        let transfer = Transfer::new(Side::Write(sink, None));
        let arrival = Box::new(Arrival(Arc::clone(&transfer)));
        let len = buf.len().max(1) as u64;
        if self.add(Direction::Write, object.read.place.wrapping_add(offset), len, &transfer) {
            object.inner.write(offset, buf, arrival);
        } else {
            transfer.release(0, true);
            WriteSink::done(arrival, buf, Err(too_many()));
        }
    }

    /// Calls `flush`, and returns when the device's own flush has ended.
    pub(super) fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let end = self.shared.state.lock().driver.flush_end(self.shared.now());
        let result = flush();
        thread::sleep(Duration::from_nanos(end.saturating_sub(self.shared.now())));
        result
    }

    /// Puts a transfer of `len > 0` bytes at `address` on the schedule; `false` if too many wait.
    fn add(&self, direction: Direction, address: u64, len: u64, transfer: &Arc<Transfer>) -> bool {
        let mut state = self.shared.state.lock();
        let (id, now) = (state.count, self.shared.now());
        if !state.driver.arrive(now, id, direction, address, len) {
            return false;
        }
        state.count += 1;
        state.transfers.insert(id, Arc::clone(transfer));
        if state.wake_at.is_some_and(|wake_at| state.driver.next().is_some_and(|next| next < wake_at)) {
            self.shared.wake.notify_one();
        }
        true
    }

    /// What the device model was sent, and when it served it.
    #[cfg(test)]
    pub(super) fn log(&self) -> super::driver::Log {
        self.shared.state.lock().driver.log.clone()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(&self) {
        sharpen_timer();
        let (mut releases, mut due) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        loop {
            let now = self.now();
            state.driver.advance(now, &mut releases);
            for Release { id, bytes, ended } in releases.drain(..) {
                let transfer =
                    if ended { state.transfers.remove(&id) } else { state.transfers.get(&id).cloned() };
                due.extend(transfer.map(|transfer| (id, transfer, bytes, ended)));
            }
            if due.is_empty() {
                if state.stopping && state.transfers.is_empty() {
                    return;
                }
                state = self.sleep(state, now);
                continue;
            }
            drop(state);
            // The device carries on with a transfer that ends early; its bytes go nowhere.
            due.retain(|(_, transfer, bytes, ended)| transfer.release(*bytes, *ended));
            state = self.state.lock();
            for (id, ..) in due.drain(..) {
                state.transfers.remove(&id);
            }
            state = self.pause(state, now);
        }
    }

    /// Sleeps until the next event or a call.
    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, now: u64) -> MutexGuard<'a, State> {
        let next = state.driver.next();
        state.wake_at = Some(next.unwrap_or(u64::MAX));
        let mut state = match next {
            Some(next) => {
                // Events inside the device may be nanoseconds apart; most end no request.
                let time = Duration::from_nanos(next.saturating_sub(now)).max(PAUSE_MIN);
                self.wake.wait_timeout(state, time)
            }
            None => self.wake.wait(state),
        };
        state.wake_at = None;
        state
    }

    /// Waits one quantum since `now`, so that events close together cost one wake-up.
    fn pause<'a>(&'a self, state: MutexGuard<'a, State>, now: u64) -> MutexGuard<'a, State> {
        let since = Duration::from_nanos(self.now().saturating_sub(now));
        match self.quantum.checked_sub(since) {
            Some(rest) if rest > PAUSE_MIN => {
                drop(state);
                thread::sleep(rest);
                self.state.lock()
            }
            _ => state,
        }
    }
}

/// Asks the kernel to wake this thread to the microsecond instead of 50 µs, where permitted.
fn sharpen_timer() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_ref().and_then(|path| path.file_name()?.to_str()) {
        std::fs::write(format!("/proc/{id}/timerslack_ns"), "1").ok();
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::Throttled, "too many requests wait for the emulated device")
}

/// Longest delay that batching adds.
const QUANTUM_MAX: Duration = Duration::from_micros(250);
/// A shorter pause costs more than the wake-up that it saves.
const PAUSE_MIN: Duration = Duration::from_micros(10);
