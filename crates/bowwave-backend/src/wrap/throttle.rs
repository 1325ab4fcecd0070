//! A limit of throughput.

use std::sync::Arc;

use crate::emulate::{Device, Emulate};
use crate::{Backend, Object, Result, Write};

/// A store whose reads have a common throughput limit, shared evenly among the reads in flight;
/// writes have the same limit.
#[derive(Debug)]
pub struct Throttle {
    inner: Arc<dyn Backend>,
    store: Emulate,
    url: String,
}

impl Throttle {
    /// Limits `inner` to `rate` (at least 1) bytes a second in each direction.
    ///
    /// # Errors
    /// `Io` if the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Backend>, rate: u64) -> Result<Self> {
        // No slots: this wrapper does not limit requests in flight.
        let device = Device {
            total: Some(rate.max(1)),
            write_total: Some(rate.max(1)),
            slots: u32::MAX,
            ..Device::free("throttle")
        };
        let url = format!("throttle:{rate}:{}", inner.url());
        Ok(Self { store: Emulate::new(Arc::clone(&inner), device)?, inner, url })
    }
}

impl Backend for Throttle {
    fn url(&self) -> &str {
        &self.url
    }

    fn open(&self, path: &std::path::Path) -> Result<Arc<dyn Object>> {
        self.store.open(path)
    }

    fn writer(&self) -> Option<&dyn Write> {
        self.store.writer()
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}
