//! A request on its way through an emulated device: it must have been carried out below, and be let through.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, ReadBuf, ReadSink, Result, WriteBuf, WriteSink};

/// Joins what the inner store does with what the schedule lets through.
#[derive(Debug)]
pub(super) struct Transfer {
    state: Mutex<State>,
}

struct State {
    /// Gone once the request has ended.
    listener: Option<Listener>,
    arrived: usize,
    released: usize,
    told: usize,
    over: bool,
    ended: Option<Ended>,
}

/// Who hears of the end.
pub(super) enum Listener {
    /// A read.
    Read(Box<dyn ReadSink>),
    /// A write.
    Write(Box<dyn WriteSink>),
    /// A thread that waits for a flush.
    Flush(SyncSender<Result<()>>),
}

/// How the inner store has ended a request.
enum Ended {
    Read(ReadBuf, Result<usize>),
    Write(WriteBuf, Result<usize>),
    Flush(Result<()>),
}

impl Transfer {
    pub(super) fn new(listener: Listener) -> Arc<Self> {
        let state =
            State { listener: Some(listener), arrived: 0, released: 0, told: 0, over: false, ended: None };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Lets the first `bytes` through, all of them if `over`. Says whether the rest of the schedule is moot, because the
    /// inner store has failed or has no more.
    pub(super) fn release(&self, bytes: u64, over: bool) -> bool {
        let mut state = self.lock();
        state.released = usize::try_from(bytes).unwrap_or(usize::MAX);
        state.over |= over;
        let moot = match &state.ended {
            Some(Ended::Read(_, Ok(count))) => state.released >= *count,
            Some(Ended::Read(_, Err(_)) | Ended::Write(_, Err(_)) | Ended::Flush(Err(_))) => true,
            // What was written in part took the device its time for that part; the difference does not matter.
            _ => false,
        };
        state.over |= moot;
        Self::tell(state);
        moot && !over
    }

    /// Ends the read with an error before the inner store has been asked.
    pub(super) fn refuse_read(&self, buf: ReadBuf, error: Error) {
        self.refuse(Ended::Read(buf, Err(error)));
    }

    /// Ends the write with an error before the inner store has been asked.
    pub(super) fn refuse_write(&self, buf: WriteBuf, error: Error) {
        self.refuse(Ended::Write(buf, Err(error)));
    }

    /// Ends the flush with an error before the inner store has been asked.
    pub(super) fn refuse_flush(&self, error: Error) {
        self.refuse(Ended::Flush(Err(error)));
    }

    /// The inner store has flushed.
    pub(super) fn flushed(&self, result: Result<()>) {
        let mut state = self.lock();
        state.ended = Some(Ended::Flush(result));
        Self::tell(state);
    }

    fn refuse(&self, ended: Ended) {
        let mut state = self.lock();
        state.ended = Some(ended);
        state.over = true;
        Self::tell(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(mut state: MutexGuard<'_, State>) {
        let count = state.arrived.min(state.released);
        if state.over && state.ended.is_some() {
            let (listener, ended) = (state.listener.take(), state.ended.take());
            // The end may start the next request, which must not find this one locked.
            drop(state);
            match (listener, ended) {
                (Some(Listener::Read(sink)), Some(Ended::Read(buf, result))) => sink.done(buf, result),
                (Some(Listener::Write(sink)), Some(Ended::Write(buf, result))) => sink.done(buf, result),
                // Nobody waits any more: then nobody misses it.
                (Some(Listener::Flush(sender)), Some(Ended::Flush(result))) => {
                    sender.try_send(result).ok();
                }
                _ => {}
            }
        } else if count > state.told {
            state.told = count;
            if let Some(Listener::Read(sink)) = &mut state.listener {
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
        Transfer::tell(state);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let mut state = self.0.lock();
        if let Ok(count) = result {
            state.arrived = count;
        }
        state.ended = Some(Ended::Read(buf, result));
        Transfer::tell(state);
    }
}

impl WriteSink for Arrival {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        let mut state = self.0.lock();
        state.ended = Some(Ended::Write(buf, result));
        Transfer::tell(state);
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("arrived", &self.arrived).field("released", &self.released).finish()
    }
}
