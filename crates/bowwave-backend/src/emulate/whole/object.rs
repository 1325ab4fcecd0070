//! Objects of an emulated object store: published versions, and objects open for writing.

use std::path::Path;
use std::sync::Arc;

use super::super::Slow;
use super::draft::Draft;
use crate::sync::Mutex;
use crate::wrap::Ending;
use crate::{
    Backend, EntryKind, Error, ErrorKind, Identity, Namespace as _, Object, OpenWrite, ReadBuf, ReadSink,
    Result, WriteBuf, WriteObject, WriteSink, path,
};

/// An object open for writing: reads the published version, writes the next one.
#[derive(Debug)]
pub(super) struct WholeObject {
    slow: Arc<Slow>,
    path: Arc<Path>,
    part: u64,
    /// As of `open_write`.
    identity: Identity,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    published: Option<Arc<dyn Object>>,
    /// Publish only if nothing has the name.
    exclusive: bool,
    draft: Option<Arc<Draft>>,
}

impl WholeObject {
    pub(super) fn open(slow: &Arc<Slow>, path: &Path, how: &OpenWrite, part: u64) -> Result<Self> {
        let exclusive = how.create && how.exclusive;
        let published = match slow.stat(path) {
            Ok(_) if exclusive => {
                let message = format!("{}: is there already", path::place(slow.url(), path));
                return Err(Error::new(ErrorKind::Exists, message));
            }
            Ok(entry) if entry.kind == EntryKind::Directory => {
                return Err(path::is_a_directory(slow.url(), path));
            }
            Ok(_) if how.truncate => None,
            Ok(_) => Some(Version::open(&slow.inner, path)?),
            Err(error) if error.kind() == ErrorKind::NotFound && how.create => None,
            Err(error) => return Err(error),
        };
        let path: Arc<Path> = path.into();
        let identity = published.as_ref().map(|object| object.identity().clone()).unwrap_or_default();
        // An empty object is published even without a write.
        let draft = published.is_none().then(|| Arc::new(Draft::new(slow, &path, part, None)));
        let state = Mutex::new(State { published, exclusive, draft });
        Ok(Self { slow: Arc::clone(slow), path, part, identity, state })
    }

    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("{}: {what}", path::place(self.slow.url(), &self.path)))
    }

    /// Discards the draft, and begins an empty one if `fresh`.
    fn give_up(&self, fresh: bool) {
        let next = fresh.then(|| Arc::new(Draft::new(&self.slow, &self.path, self.part, None)));
        let draft = std::mem::replace(&mut self.state.lock().draft, next);
        if let Some(draft) = draft {
            draft.give_up();
        }
    }
}

impl Object for WholeObject {
    fn size(&self) -> u64 {
        self.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let published = self.state.lock().published.clone();
        match published {
            Some(inner) => self.slow.object(&self.path, inner, false).read(offset, buf, sink),
            None => sink.done(buf, Ok(0)),
        }
    }
}

impl WriteObject for WholeObject {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        if buf.is_empty() {
            return sink.done(buf, Ok(0));
        }
        let mut state = self.state.lock();
        let base = state.published.clone();
        let new = || Arc::new(Draft::new(&self.slow, &self.path, self.part, base));
        let draft = Arc::clone(state.draft.get_or_insert_with(new));
        drop(state);
        draft.write(offset, buf, sink);
    }

    fn sync(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let state = self.state.lock();
        let published = state.published.as_ref().map_or(0, |object| object.size());
        let size = state.draft.as_ref().map_or(published, |draft| draft.size());
        drop(state);
        if len == size {
            return Ok(());
        }
        if len > 0 {
            let what = format!(
                "cannot change the size from {size} to {len} bytes: an object can only be truncated to 0"
            );
            return Err(self.error(ErrorKind::Unsupported, &what));
        }
        self.give_up(true);
        Ok(())
    }

    fn finish(&self) -> Result<Identity> {
        let (draft, exclusive) = {
            let state = self.state.lock();
            (state.draft.clone(), state.exclusive)
        };
        if let Some(draft) = draft {
            draft.publish(exclusive)?;
            let published = Version::open(&self.slow.inner, &self.path)?;
            let mut state = self.state.lock();
            state.published = Some(published);
            state.exclusive = false;
            // A draft that was begun meanwhile stays.
            if state.draft.as_ref().is_some_and(|now| Arc::ptr_eq(now, &draft)) {
                state.draft = None;
            }
        }
        Ok(self.state.lock().published.as_ref().map(|object| object.identity().clone()).unwrap_or_default())
    }

    fn abort(&self) {
        self.give_up(false);
    }

    fn cannot(&self, what: &str) -> Error {
        self.error(ErrorKind::Unsupported, &format!("cannot {what}: this is an object store"))
    }
}

impl Drop for WholeObject {
    fn drop(&mut self) {
        self.give_up(false);
    }
}

/// A published version of an object. Reads fail when another version has its name, as in an object
/// store; a file system reads an open file even then, so each read checks the name afterwards.
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
    /// Opens the object at `path` of `store`.
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
        let name = Arc::clone(&self.name);
        let end = move |sink: Box<dyn ReadSink>, buf, result: Result<usize>| {
            let now = name.store.stat(&name.path).ok().and_then(|entry| entry.identity);
            let result = if now.is_some_and(|now| now == name.identity) {
                result
            } else {
                result.and_then(|_| Err(path::changed(&path::place(name.store.url(), &name.path))))
            };
            sink.done(buf, result);
        };
        self.inner.read(offset, buf, Box::new(Ending { sink, end }));
    }
}
