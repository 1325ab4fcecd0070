//! Faults from a seed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Layer, Wrapped, backend_by_field};
use crate::emulate::{Device, Stall};
use crate::{Backend, Error, ErrorKind, Object, ReadBuf, ReadSink, Result, chance, generate};

/// Which faults befall reads, and how often. Probabilities are shares of requests; their sum is at most 1.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Decides, with the number of the request, what befalls it: the same seed gives the same faults.
    pub seed: u64,
    /// Errors in place of an answer.
    pub errors: Vec<(ErrorKind, f64)>,
    /// Answers with fewer bytes than asked for and no error.
    pub short: f64,
    /// Answers that break off with [`ErrorKind::Truncated`] after some bytes.
    pub truncated: f64,
    /// Answers that come `stall` late.
    pub stalled: f64,
    /// How late.
    pub stall: Duration,
}

/// A store with faults. `stat`, `list` and `open` have none.
#[derive(Debug)]
pub struct Fault {
    store: Wrapped<Mischief>,
}

impl Fault {
    /// Adds `faults` to the reads of `inner`.
    ///
    /// # Errors
    /// `Io` if the timer thread for stalls cannot be started.
    pub fn new(inner: Arc<dyn Backend>, faults: Faults) -> Result<Self> {
        let stall = Stall::new(&Device { latency: faults.stall, slots: u32::MAX, ..Device::free("stall") })?;
        let name = format!("fault:{}", faults.seed);
        let layer = Mischief { faults, stall, requests: AtomicU64::new(0), befallen: AtomicU64::new(0) };
        Ok(Self { store: Wrapped::new(&name, inner, layer) })
    }

    /// Requests so far that met a fault.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.store.layer.befallen.load(Ordering::Relaxed)
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.store.layer.requests.load(Ordering::Relaxed)
    }
}

backend_by_field!(Fault);

#[derive(Debug)]
struct Mischief {
    faults: Faults,
    stall: Stall,
    requests: AtomicU64,
    befallen: AtomicU64,
}

/// What befalls one request.
enum Fate {
    None,
    Error(ErrorKind),
    Short,
    Truncated,
    Stalled,
}

impl Mischief {
    fn fate(&self, number: u64) -> Fate {
        let Faults { seed, errors, short, truncated, stalled, .. } = &self.faults;
        let mut left = chance::unit(*seed, number);
        let mut falls = |probability: f64| {
            let falls = left < probability;
            left -= probability;
            falls
        };
        if let Some((kind, _)) = errors.iter().find(|(_, probability)| falls(*probability)) {
            Fate::Error(*kind)
        } else if falls(*short) {
            Fate::Short
        } else if falls(*truncated) {
            Fate::Truncated
        } else if falls(*stalled) {
            Fate::Stalled
        } else {
            Fate::None
        }
    }
}

impl Layer for Mischief {
    fn read(
        self: &Arc<Self>,
        inner: &Arc<dyn Object>,
        _: &Arc<Path>,
        offset: u64,
        mut buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    ) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fate = self.fate(number);
        if !matches!(fate, Fate::None) {
            self.befallen.fetch_add(1, Ordering::Relaxed);
        }
        let len = generate::within(inner.size(), offset, buf.len());
        match fate {
            Fate::Error(kind) => {
                let message = format!("fault {} of seed {}: {kind:?}", number, self.faults.seed);
                sink.done(buf, Err(Error::new(kind, message)));
            }
            Fate::Stalled if len > 0 => self.stall.read(inner, offset, buf, len, sink),
            // Of one byte nothing can be left off but all, and no answer at all is another fault.
            Fate::Short | Fate::Truncated if len > 1 => {
                let keep = 1 + (chance::draw(!self.faults.seed, number) % (len as u64 - 1)) as usize;
                let tail = buf.split_off(keep);
                let truncated = matches!(fate, Fate::Truncated);
                inner.read(offset, buf, Box::new(Cut { sink, tail, truncated }));
            }
            _ => inner.read(offset, buf, sink),
        }
    }
}

/// Puts the buffer together again and, if wanted, an error in place of the end.
struct Cut {
    sink: Box<dyn ReadSink>,
    tail: ReadBuf,
    truncated: bool,
}

impl ReadSink for Cut {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, mut buf: ReadBuf, result: Result<usize>) {
        let Self { mut sink, tail, truncated } = *self;
        buf.unsplit(tail);
        let result = match result {
            Ok(count) if truncated => {
                sink.progress(count);
                Err(Error::new(ErrorKind::Truncated, format!("a fault cut the answer after {count} bytes")))
            }
            result => result,
        };
        sink.done(buf, result);
    }
}
