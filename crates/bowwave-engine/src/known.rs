//! An object of a known version, opened at its first read: opening it sends no request.

use std::path::{Path, PathBuf};

use bowwave_backend::{
    Backend, Error as StoreError, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result, WillRead,
};

use crate::sync::{Arc, Mutex, thread};

/// An object whose version is known from another process.
#[derive(Debug)]
pub(crate) struct KnownObject {
    identity: Identity,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    path: PathBuf,
    state: Mutex<State>,
}

enum State {
    Unopened,
    /// A thread opens the object; these reads wait for it.
    Opening(Vec<Waiting>),
    Open(Arc<dyn Object>),
}

/// A read: offset, memory and sink.
type Waiting = (u64, ReadBuf, Box<dyn ReadSink>);

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unopened => f.write_str("Unopened"),
            Self::Opening(waiting) => write!(f, "Opening({} reads)", waiting.len()),
            Self::Open(object) => f.debug_tuple("Open").field(object).finish(),
        }
    }
}

impl KnownObject {
    pub(crate) fn new(backend: Arc<dyn Backend>, path: &Path, identity: Identity) -> Self {
        let state = Mutex::new(State::Unopened);
        Self { identity, shared: Arc::new(Shared { backend, path: path.to_owned(), state }) }
    }
}

impl Object for KnownObject {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_confirmed(&self) -> bool {
        matches!(*self.shared.state.lock(), State::Open(_))
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let mut state = self.shared.state.lock();
        match &mut *state {
            State::Open(object) => {
                let object = Arc::clone(object);
                drop(state);
                object.read(offset, buf, sink);
            }
            State::Opening(waiting) => waiting.push((offset, buf, sink)),
            State::Unopened => {
                *state = State::Opening(vec![(offset, buf, sink)]);
                drop(state);
                let (shared, identity) = (Arc::clone(&self.shared), self.identity.clone());
                // Opening blocks; `read` must not.
                let thread = thread::Builder::new().name("bowwave-open".into());
                if let Err(error) = thread.spawn(move || shared.open(&identity)) {
                    let message = format!("cannot start a thread: {error}; raise the limit (ulimit -u)");
                    self.shared.opened(Err(StoreError::new(ErrorKind::Unavailable, message)));
                }
            }
        }
    }

    fn place(&self) -> u64 {
        match &*self.shared.state.lock() {
            State::Open(object) => object.place(),
            _ => 0,
        }
    }
}

impl Shared {
    fn open(&self, identity: &Identity) {
        let object = self.backend.open_to_read(&self.path, WillRead::Any).and_then(|object| {
            if object.identity() == identity {
                return Ok(object);
            }
            let place = bowwave_backend::place(self.backend.url(), &self.path);
            let message = format!("{place}: the object has changed since it was opened; open it again");
            Err(StoreError::new(ErrorKind::Changed, message))
        });
        self.opened(object);
    }

    /// Starts the waiting reads, or fails them. After a failure, the next read opens it again.
    fn opened(&self, object: Result<Arc<dyn Object>>) {
        let mut state = self.state.lock();
        let next = object.as_ref().map_or(State::Unopened, |object| State::Open(Arc::clone(object)));
        let State::Opening(waiting) = std::mem::replace(&mut *state, next) else { return };
        drop(state);
        for (offset, buf, sink) in waiting {
            match &object {
                Ok(object) => object.read(offset, buf, sink),
                Err(error) => sink.done(buf, Err(error.clone())),
            }
        }
    }
}
