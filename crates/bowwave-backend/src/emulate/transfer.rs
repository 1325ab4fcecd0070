//! A read on its way through an emulated device: bytes must have come and be let through.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{ReadBuf, ReadSink, Result};

/// Joins what the inner store delivers with what the schedule lets through.
#[derive(Debug)]
pub(super) struct Transfer {
    state: Mutex<State>,
}

struct State {
    /// Gone once the read has ended.
    sink: Option<Box<dyn ReadSink>>,
    arrived: usize,
    released: usize,
    told: usize,
    over: bool,
    ended: Option<(ReadBuf, Result<usize>)>,
}

impl Transfer {
    pub(super) fn new(sink: Box<dyn ReadSink>) -> Arc<Self> {
        let state = State { sink: Some(sink), arrived: 0, released: 0, told: 0, over: false, ended: None };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Lets the first `bytes` through, all of them if `over`. Says whether the rest of the schedule is moot, because the
    /// inner store has failed or has no more.
    pub(super) fn release(&self, bytes: u64, over: bool) -> bool {
        let mut state = self.lock();
        state.released = usize::try_from(bytes).unwrap_or(usize::MAX);
        state.over |= over;
        let moot = match &state.ended {
            Some((_, Ok(count))) => state.released >= *count,
            Some((_, Err(_))) => true,
            None => false,
        };
        state.over |= moot;
        Self::flush(state);
        moot && !over
    }

    /// Ends the read with an error before the inner store has been asked.
    pub(super) fn refuse(&self, buf: ReadBuf, error: crate::Error) {
        let mut state = self.lock();
        state.ended = Some((buf, Err(error)));
        state.over = true;
        Self::flush(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(mut state: MutexGuard<'_, State>) {
        let count = state.arrived.min(state.released);
        if state.over && state.ended.is_some() {
            let (sink, ended) = (state.sink.take(), state.ended.take());
            // The end may start the next read, which must not find this one locked.
            drop(state);
            if let (Some(sink), Some((buf, result))) = (sink, ended) {
                sink.done(buf, result);
            }
        } else if count > state.told {
            state.told = count;
            if let Some(sink) = &mut state.sink {
                sink.progress(count);
            }
        }
    }
}

/// The inner store's side of a transfer.
pub(super) struct Arrival(pub(super) Arc<Transfer>);

impl ReadSink for Arrival {
    fn progress(&mut self, bytes: usize) {
        let mut state = self.0.lock();
        state.arrived = bytes;
        Transfer::flush(state);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let mut state = self.0.lock();
        if let Ok(count) = result {
            state.arrived = count;
        }
        state.ended = Some((buf, result));
        Transfer::flush(state);
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("arrived", &self.arrived).field("released", &self.released).finish()
    }
}
