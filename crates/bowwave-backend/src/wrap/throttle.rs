//! A bound on the bytes a second.

use std::sync::Arc;

use super::{forward_lookups, forward_tree};
use crate::emulate::{Device, Emulate};
use crate::{Backend, Object, OpenWrite, Profile, Result, WriteObject};

/// A store whose reads together bring at most so many bytes a second, shared evenly among those in flight; and its writes
/// take as many.
#[derive(Debug)]
pub struct Throttle {
    inner: Arc<dyn Backend>,
    store: Emulate,
    url: String,
}

impl Throttle {
    /// At most `rate` (at least 1) bytes a second from `inner`, and as many to it.
    ///
    /// # Errors
    /// `Io` if the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Backend>, rate: u64) -> Result<Self> {
        // No slots: how many are in flight is not this wrapper's matter.
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

impl Throttle {
    fn below(&self) -> &dyn Backend {
        &*self.inner
    }
}

impl Backend for Throttle {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        self.inner.profile()
    }

    fn network(&self) -> Option<crate::NetworkStats> {
        self.inner.network()
    }

    fn disk(&self) -> Option<crate::DiskStats> {
        self.inner.disk()
    }

    fn open(&self, path: &std::path::Path) -> Result<Arc<dyn Object>> {
        self.store.open(path)
    }

    fn open_write(&self, path: &std::path::Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.store.open_write(path, how)
    }

    forward_lookups!();
    forward_tree!();
}
