//! A published version of an object, which no other replaces unnoticed.

use std::path::Path;
use std::sync::Arc;

use crate::{Backend, Identity, Namespace as _, Object, ReadBuf, ReadSink, Result, path};

/// An object open for reading. An object store gives it out as long as it is the one that the name stands for; a file
/// system would for ever, so that is looked at after each read.
#[derive(Debug)]
pub(super) struct Version {
    inner: Arc<dyn Object>,
    name: Arc<Name>,
}

#[derive(Debug)]
struct Name {
    store: Arc<dyn Backend>,
    path: Arc<Path>,
    identity: Identity,
}

impl Version {
    /// Opens what stands at `path` of `store`.
    pub(super) fn open(store: &Arc<dyn Backend>, path: &Path) -> Result<Arc<dyn Object>> {
        let inner = store.open(path)?;
        let identity = inner.identity().clone();
        let name = Arc::new(Name { store: Arc::clone(store), path: path.into(), identity });
        Ok(Arc::new(Self { inner, name }))
    }
}

impl Object for Version {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.inner.read(offset, buf, Box::new(Checking { sink, name: Arc::clone(&self.name) }));
    }
}

struct Checking {
    sink: Box<dyn ReadSink>,
    name: Arc<Name>,
}

impl ReadSink for Checking {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        let Self { sink, name } = *self;
        let now = name.store.stat(&name.path).ok().and_then(|entry| entry.identity);
        let result = if now.is_some_and(|now| now == name.identity) {
            result
        } else {
            result.and_then(|_| Err(path::changed(&path::place(name.store.url(), &name.path))))
        };
        sink.done(buf, result);
    }
}
