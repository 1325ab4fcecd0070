//! Faults from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Ending, Layer, Wrapped, WrappedObject, WrappedWriteObject, backend_by_field};
use crate::emulate::{Device, Station};
use crate::{
    Backend, Error, ErrorKind, Identity, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink, chance,
    generate,
};

/// Faults of requests and their probabilities, as shares of requests; the sum is at most 1.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Decides each request's fault by its number: the same seed gives the same faults.
    pub seed: u64,
    /// Errors in place of a response.
    pub errors: Vec<(ErrorKind, f64)>,
    /// Short reads without an error.
    pub short: f64,
    /// Responses that end with [`ErrorKind::Truncated`] after some bytes.
    pub truncated: f64,
    /// Responses that are `stall` late.
    pub stalled: f64,
    /// How late.
    pub stall: Duration,
    /// Faults of writes.
    pub writes: WriteFaults,
}

/// Faults of writes and syncs. Probabilities are shares of requests; those of writes sum to at most
/// 1.
#[derive(Debug, Clone, Default)]
pub struct WriteFaults {
    /// Errors in place of a write, which then writes no byte. `Io` and `NoSpace` have a disk's
    /// error number.
    pub errors: Vec<(ErrorKind, f64)>,
    /// Short writes without an error.
    pub short: f64,
    /// Writes that end [`Faults::stall`] late.
    pub stalled: f64,
    /// Errors in place of [`WriteObject::sync`], which then does nothing.
    pub sync: Vec<(ErrorKind, f64)>,
    /// Errors in place of [`WriteObject::finish`], which then does nothing.
    pub finish: Vec<(ErrorKind, f64)>,
}

/// A store with faults. `stat`, `list`, `open` and name changes have none.
#[derive(Debug)]
pub struct Fault {
    store: Wrapped<Mischief>,
}

impl Fault {
    /// Adds `faults` to the requests of `inner`.
    ///
    /// # Errors
    /// `Io` if the timer thread for stalls cannot be started.
    pub fn new(inner: Arc<dyn Backend>, faults: Faults) -> Result<Self> {
        let mut device = Device::free("stall")?.with_latency(faults.stall)?;
        device.slots = u32::MAX;
        let stall = Station::start(&device)?;
        let name = format!("fault:{}", faults.seed);
        let layer = Mischief { faults, stall, reads: 0.into(), writes: 0.into(), befallen: 0.into() };
        Ok(Self { store: Wrapped::new(&name, inner, layer) })
    }

    /// Requests so far that met a fault.
    pub fn faults(&self) -> u64 {
        self.store.layer.befallen.load(Ordering::Relaxed)
    }

    /// Requests so far: reads, writes, syncs and finishes.
    pub fn requests(&self) -> u64 {
        let Mischief { reads, writes, .. } = &*self.store.layer;
        reads.load(Ordering::Relaxed) + writes.load(Ordering::Relaxed)
    }
}

backend_by_field!(Fault);

#[derive(Debug)]
struct Mischief {
    faults: Faults,
    stall: Station,
    reads: AtomicU64,
    /// Counted separately, so that the faults of reads do not depend on writes.
    writes: AtomicU64,
    befallen: AtomicU64,
}

/// Fault of one request.
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
        self.count(Self::draw(*seed, number, errors, [*short, *truncated, *stalled]))
    }

    fn write_fate(&self, number: u64) -> Fate {
        let WriteFaults { errors, short, stalled, .. } = &self.faults.writes;
        self.count(Self::draw(self.write_seed(), number, errors, [*short, 0.0, *stalled]))
    }

    /// The error of a sync or a finish, if it gets one.
    fn end_fate(&self, what: &str, errors: &[(ErrorKind, f64)]) -> Result<()> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.count(Self::draw(self.write_seed(), number, errors, [0.0; 3])) {
            Fate::Error(kind) => Err(self.error(kind, what, number)),
            _ => Ok(()),
        }
    }

    fn write_seed(&self) -> u64 {
        self.faults.seed.rotate_left(32) ^ 0x5772_6974_6573
    }

    fn error(&self, kind: ErrorKind, what: &str, number: u64) -> Error {
        let message = format!("fault {what} {number} of seed {}: {kind:?}", self.faults.seed);
        // A mount's response must not depend on whether the error is real.
        let errno = match kind {
            ErrorKind::Io => libc::EIO,
            ErrorKind::NoSpace => libc::ENOSPC,
            _ => return Error::new(kind, message),
        };
        Error::from_os("", &std::io::Error::from_raw_os_error(errno)).with_message(message)
    }

    fn count(&self, fate: Fate) -> Fate {
        if !matches!(fate, Fate::None) {
            self.befallen.fetch_add(1, Ordering::Relaxed);
        }
        fate
    }

    fn draw(seed: u64, number: u64, errors: &[(ErrorKind, f64)], others: [f64; 3]) -> Fate {
        let [short, truncated, stalled] = others;
        let mut left = chance::unit(seed, number);
        let mut falls = |probability: f64| {
            let falls = left < probability;
            left -= probability;
            falls
        };
        if let Some((kind, _)) = errors.iter().find(|(_, probability)| falls(*probability)) {
            Fate::Error(*kind)
        } else if falls(short) {
            Fate::Short
        } else if falls(truncated) {
            Fate::Truncated
        } else if falls(stalled) {
            Fate::Stalled
        } else {
            Fate::None
        }
    }
}

impl Layer for Mischief {
    fn read(&self, object: &WrappedObject<Self>, offset: u64, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let fate = self.fate(number);
        let len = generate::within(object.inner.size(), offset, buf.len());
        match fate {
            Fate::Error(kind) => sink.done(buf, Err(self.error(kind, "read", number))),
            Fate::Stalled if len > 0 => self.stall.read(object, offset, buf, sink),
            // A one-byte read cannot be short without being empty, which is another fault.
            Fate::Short | Fate::Truncated if len > 1 => {
                let keep = 1 + (chance::draw(!self.faults.seed, number) % (len as u64 - 1)) as usize;
                let tail = buf.split_off(keep);
                let truncated = matches!(fate, Fate::Truncated);
                let end = move |mut sink: Box<dyn ReadSink>, mut buf: ReadBuf, result| {
                    buf.unsplit(tail);
                    let result = match result {
                        Ok(count) if truncated => {
                            sink.progress(count);
                            let message = format!("a fault cut the answer after {count} bytes");
                            Err(Error::new(ErrorKind::Truncated, message))
                        }
                        result => result,
                    };
                    sink.done(buf, result);
                };
                object.inner.read(offset, buf, Box::new(Ending { sink, end }));
            }
            _ => object.inner.read(offset, buf, sink),
        }
    }

    fn write(
        &self,
        object: &WrappedWriteObject<Self>,
        offset: u64,
        mut buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    ) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let len = buf.len();
        match self.write_fate(number) {
            Fate::Error(kind) => sink.done(buf, Err(self.error(kind, "write", number))),
            Fate::Stalled if len > 0 => self.stall.write(object, offset, buf, sink),
            Fate::Short if len > 1 => {
                let keep = 1 + (chance::draw(!self.write_seed(), number) % (len as u64 - 1)) as usize;
                let tail = buf.split_off(keep);
                let end = move |sink: Box<dyn WriteSink>, mut buf: WriteBuf, result| {
                    buf.unsplit(tail);
                    sink.done(buf, result);
                };
                object.inner.write(offset, buf, Box::new(Ending { sink, end }));
            }
            _ => object.inner.write(offset, buf, sink),
        }
    }

    fn sync(&self, inner: &dyn WriteObject, data_only: bool) -> Result<()> {
        self.end_fate("sync", &self.faults.writes.sync)?;
        inner.sync(data_only)
    }

    fn finish(&self, inner: &dyn WriteObject) -> Result<Identity> {
        self.end_fate("finish", &self.faults.writes.finish)?;
        inner.finish()
    }
}
