//! A transfer through an emulated device: the inner store moves the bytes, and the device decides
//! when they count as moved: it *lets them through*.

use std::sync::{Arc, MutexGuard};

use crate::sync::Mutex;
use crate::{ReadBuf, ReadSink, Result, WriteBuf, WriteSink};

/// Joins the progress of the inner store and of the device.
#[derive(Debug)]
pub(super) struct Transfer {
    state: Mutex<State>,
}

struct State {
    /// `None` once the transfer has ended.
    side: Option<Side>,
    /// Bytes that the inner store has read, that the device has let through, and that were reported
    /// to the sink.
    arrived: usize,
    released: usize,
    reported: usize,
    /// The device has let all bytes through, or the inner store has failed or has no more.
    ended: bool,
    /// Result of the inner store.
    result: Option<Result<usize>>,
}

/// The caller's sink, and its buffer when the inner store has returned it.
pub(super) enum Side {
    Read(Box<dyn ReadSink>, Option<ReadBuf>),
    Write(Box<dyn WriteSink>, Option<WriteBuf>),
}

impl Transfer {
    pub(super) fn new(side: Side) -> Arc<Self> {
        let state =
            State { side: Some(side), arrived: 0, released: 0, reported: 0, ended: false, result: None };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Lets the first `bytes` through; with `ended`, the device has let all of them through.
    /// Returns whether the transfer ends earlier than the device, because the inner store has
    /// failed or has no more bytes.
    pub(super) fn release(&self, bytes: u64, ended: bool) -> bool {
        let mut state = self.state.lock();
        state.released = usize::try_from(bytes).unwrap_or(usize::MAX);
        let early = match (&state.side, &state.result) {
            (Some(Side::Read(..)), Some(Ok(count))) => state.released >= *count,
            (_, Some(Err(_))) => true,
            // A short write takes the time of all its bytes.
            _ => false,
        };
        state.ended |= ended || early;
        Self::tell(state);
        early && !ended
    }

    fn tell(mut state: MutexGuard<'_, State>) {
        if state.ended && state.result.is_some() {
            let (side, result) = (state.side.take(), state.result.take());
            // `done` may start the next request, which must not find this one locked.
            drop(state);
            match (side, result) {
                (Some(Side::Read(sink, Some(buf))), Some(result)) => sink.done(buf, result),
                (Some(Side::Write(sink, Some(buf))), Some(result)) => sink.done(buf, result),
                _ => {}
            }
            return;
        }
        let count = state.arrived.min(state.released);
        if count > state.reported {
            state.reported = count;
            if let Some(Side::Read(sink, _)) = &mut state.side {
                sink.progress(count);
            }
        }
    }
}

/// The inner store's side of a transfer.
pub(super) struct Arrival(pub(super) Arc<Transfer>);

impl ReadSink for Arrival {
    fn progress(&mut self, bytes: usize) {
        let mut state = self.0.state.lock();
        state.arrived = bytes;
        Transfer::tell(state);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let mut state = self.0.state.lock();
        if let Some(Side::Read(_, place)) = &mut state.side {
            *place = Some(buf);
        }
        if let Ok(count) = result {
            state.arrived = count;
        }
        state.result = Some(result);
        Transfer::tell(state);
    }
}

impl WriteSink for Arrival {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        let mut state = self.0.state.lock();
        if let Some(Side::Write(_, place)) = &mut state.side {
            *place = Some(buf);
        }
        state.result = Some(result);
        Transfer::tell(state);
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("arrived", &self.arrived).field("released", &self.released).finish()
    }
}
