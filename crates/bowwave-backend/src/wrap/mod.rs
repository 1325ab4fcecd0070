//! Stores over stores: each changes one thing about the one below.

mod fault;
mod limit;
mod throttle;
mod trace;
mod url;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fault::{Fault, Faults};
pub use limit::Limit;
pub use throttle::Throttle;
pub use trace::{Record, Trace, TraceLog};
pub(crate) use url::open;

use crate::{Backend, Entry, Identity, Object, Profile, ReadBuf, ReadSink, Result};

/// What a wrapper does to reads and to the profile.
trait Layer: Debug + Send + Sync + 'static {
    fn profile(&self, profile: Profile) -> Profile {
        profile
    }

    fn read(
        self: &Arc<Self>,
        inner: &Arc<dyn Object>,
        path: &Arc<Path>,
        offset: u64,
        buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    );
}

/// A store whose reads go through a layer.
#[derive(Debug)]
struct Wrapped<L> {
    inner: Arc<dyn Backend>,
    layer: Arc<L>,
    url: String,
}

impl<L: Layer> Wrapped<L> {
    fn new(name: &str, inner: Arc<dyn Backend>, layer: L) -> Self {
        let url = format!("{name}:{}", inner.url());
        Self { inner, layer: Arc::new(layer), url }
    }
}

impl<L: Layer> Backend for Wrapped<L> {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        self.layer.profile(self.inner.profile())
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.inner.stat(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.inner.list(path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.inner.read_link(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let inner = self.inner.open(path)?;
        Ok(Arc::new(WrappedObject { inner, path: path.into(), layer: Arc::clone(&self.layer) }))
    }
}

#[derive(Debug)]
struct WrappedObject<L> {
    inner: Arc<dyn Object>,
    path: Arc<Path>,
    layer: Arc<L>,
}

impl<L: Layer> Object for WrappedObject<L> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.inner.place()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.layer.read(&self.inner, &self.path, offset, buf, sink);
    }
}

/// Makes a public wrapper a `Backend` through the store in its field `store`.
macro_rules! backend_by_field {
    ($name:ident) => {
        impl crate::Backend for $name {
            fn url(&self) -> &str {
                self.store.url()
            }

            fn profile(&self) -> crate::Profile {
                self.store.profile()
            }

            fn stat(&self, path: &std::path::Path) -> crate::Result<crate::Entry> {
                self.store.stat(path)
            }

            fn list(&self, path: &std::path::Path) -> crate::Result<Vec<crate::Entry>> {
                self.store.list(path)
            }

            fn read_link(&self, path: &std::path::Path) -> crate::Result<std::path::PathBuf> {
                self.store.read_link(path)
            }

            fn open(&self, path: &std::path::Path) -> crate::Result<std::sync::Arc<dyn crate::Object>> {
                self.store.open(path)
            }
        }
    };
}
use backend_by_field;

#[cfg(test)]
mod tests;
