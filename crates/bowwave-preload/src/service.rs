//! The engine and its stores: created on first use of a served path, and again in a child.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bowwave_control::{Program, Quiet, Server};
use bowwave_engine::backend::{Backend, KeepNames, SMALL_BYTES, WillRead};
use bowwave_engine::{
    DecisionLog, Engine, Entry, EntryKind, Error, ErrorKind, File, Namespace as _, SiblingFile,
    SiblingReadahead, SiblingTree, Store,
};
use bowwave_interpose::{Inside, say};

use crate::errno::{Errno, Result, of_error};
use crate::setup::{Place, setup};

/// An engine, and a store for each map.
#[derive(Debug)]
pub(crate) struct Service {
    engine: Engine,
    /// One for each map; an error number for a store that could not be opened.
    stores: Vec<std::result::Result<Served, Errno>>,
    /// For `bowwave ctl`. `None` without a place for its socket: the program needs none.
    server: Option<Server>,
}

/// The store of a map.
#[derive(Debug)]
struct Served {
    store: Arc<Store>,
    /// Files that the program will open next. `None` where each open asks the store.
    siblings: Option<SiblingReadahead>,
}

impl Served {
    fn new(engine: &Engine, backend: Arc<dyn Backend>) -> Self {
        let keeps_names = backend.keep_names(NAMES);
        let store = Arc::new(engine.store_of(backend));
        let siblings = keeps_names.then(|| SiblingReadahead::new(&store, 0));
        if let Some(siblings) = &siblings {
            let tree = Arc::downgrade(&store) as Weak<dyn SiblingTree>;
            // Without threads nothing is read ahead, and the program runs as it should.
            let _ = siblings.start(tree);
        }
        Self { store, siblings }
    }

    /// Opens a file. A small one whose version the store has not just confirmed is read, which
    /// compares the version.
    fn open(&self, path: &Path) -> std::result::Result<File, Error> {
        let mut is_first = true;
        loop {
            let file = self.store.open_to_read(path, FIRST)?;
            let must_read = !file.is_confirmed() && (1..=SMALL_BYTES).contains(&file.size());
            if let Some(siblings) = &self.siblings {
                if must_read {
                    siblings.request(path, &file);
                }
                // Behind the requests for this file.
                siblings.opened(&*self.store, path, &file);
            }
            let read = if must_read { file.read_at(0, &mut [0]) } else { Ok(0) };
            match read {
                Err(error) if is_first && is_other_version(&error) => {
                    self.store.backend().forget_name(path, Duration::ZERO);
                    is_first = false;
                }
                // Other errors are for the first read.
                _ => return Ok(file),
            }
        }
    }
}

/// Never dropped: it lives as long as the process, and a child must not touch its parent's.
static SERVICE: Mutex<Option<&'static Service>> = Mutex::new(None);

/// Locked during a fork, so that no fork happens during a start.
pub(crate) fn lock() -> MutexGuard<'static, Option<&'static Service>> {
    SERVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the socket of `bowwave ctl` at the end of the process. If a thread holds the lock,
/// perhaps the one whose signal handler ends the process, a later client removes the socket.
pub(crate) fn leave() {
    let _inside = Inside::enter();
    if let Ok(service) = SERVICE.try_lock()
        && let Some(server) = service.and_then(|service| service.server.as_ref())
    {
        server.leave();
    }
}

/// The service of this process.
pub(crate) fn service() -> Result<&'static Service> {
    let mut service = lock();
    if let Some(service) = *service {
        return Ok(service);
    }
    let created = Service::start().map_err(|error| {
        say(&error);
        Errno(libc::EIO)
    })?;
    Ok(service.insert(Box::leak(Box::new(created))))
}

impl Service {
    fn start() -> std::result::Result<Self, Error> {
        let setup = setup();
        let backends: Vec<_> = setup.maps.iter().map(|map| setup.settings.backend(&map.url)).collect();
        let profiles: Vec<_> = backends.iter().flatten().map(|backend| backend.profile()).collect();
        let journal = {
            // A signal handler of the program must not run on the journal's thread.
            let _quiet = Quiet::begin();
            setup.journal.as_deref().map(DecisionLog::from_text).transpose()
        };
        // Without a journal the program still runs as it should.
        let decisions = journal.unwrap_or_else(|error| {
            say(&error);
            None
        });
        let mut settings = setup.settings.clone();
        settings.options.decisions = decisions;
        let engine = settings.engine(&profiles)?;
        let stores = {
            // Nor on threads that read ahead.
            let _quiet = Quiet::begin();
            let stores = backends.into_iter().map(|backend| match backend {
                Ok(backend) => Ok(Served::new(&engine, backend)),
                Err(error) => {
                    say(&error);
                    Err(of_error(error))
                }
            });
            stores.collect::<Vec<_>>()
        };
        let maps = setup.maps.iter().zip(&stores).map(|(map, store)| bowwave_control::Map {
            url: match store {
                Ok(served) => served.store.url().to_owned(),
                Err(_) => bowwave_engine::backend::redacted(&map.url),
            },
            path: String::from_utf8_lossy(&map.prefix).into_owned(),
        });
        let program = Program { engine: Some(engine.clone()), swap: None, maps: maps.collect() };
        Ok(Self { server: program.serve().ok(), stores, engine })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The store of a map.
    pub(crate) fn store(&self, map: usize) -> Result<&Store> {
        Ok(&self.served(map)?.store)
    }

    fn served(&self, map: usize) -> Result<&Served> {
        self.stores[map].as_ref().map_err(|&errno| errno)
    }

    /// Opens the file at a place, whose links have been resolved.
    pub(crate) fn open(&self, place: &Place) -> Result<File> {
        self.served(place.map)?.open(&place.path).map_err(of_error)
    }

    /// Reports a read to readahead of the next files.
    pub(crate) fn note_read(&self, map: usize, file: SiblingFile, offset: u64, bytes: u64) {
        if let Ok(Served { siblings: Some(siblings), .. }) = self.served(map) {
            siblings.read(file, offset, bytes);
        }
    }

    /// Reports the close of a file to readahead of the next files.
    pub(crate) fn note_close(&self, map: usize, file: SiblingFile) {
        if let Ok(Served { siblings: Some(siblings), .. }) = self.served(map) {
            siblings.closed(file);
        }
    }

    /// Returns the attributes at a place. With `follow`, resolves links and returns the target's
    /// place.
    pub(crate) fn lookup(&self, place: &Place, follow: bool) -> Result<(Place, Entry)> {
        let store = self.store(place.map)?;
        let mut place = place.clone();
        for _ in 0..LINKS_MAX {
            let entry = store.stat(&place.path).map_err(of_error)?;
            if entry.kind != EntryKind::Link || !follow {
                return Ok((place, entry));
            }
            let target = store.read_link(&place.path).map_err(of_error)?;
            place.path = beside(&place.path, &target).ok_or(Errno(libc::ENOENT))?;
        }
        Err(Errno(libc::ELOOP))
    }
}

impl Service {
    /// Resolves links in the path of a place.
    pub(crate) fn without_links(&self, place: &Place) -> Result<Place> {
        let mut whole = Place { map: place.map, path: PathBuf::new() };
        for part in &place.path {
            whole.path.push(part);
            (whole, _) = self.lookup(&whole, true)?;
        }
        Ok(whole)
    }
}

/// Whether the store no longer has the version that was opened.
fn is_other_version(error: &Error) -> bool {
    matches!(error.kind(), Some(ErrorKind::Changed | ErrorKind::NotFound))
}

/// The target of a link at `path`; `None` if it is outside the store.
fn beside(path: &Path, target: &Path) -> Option<PathBuf> {
    let mut parts: Vec<_> = path.parent()?.components().collect();
    for part in target.components() {
        match part {
            std::path::Component::Normal(_) => parts.push(part),
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => drop(parts.pop()?),
            std::path::Component::RootDir | std::path::Component::Prefix(_) => return None,
        }
    }
    Some(parts.into_iter().collect())
}

/// As in a mount.
const NAMES: KeepNames = KeepNames { ttl: Duration::from_secs(1), opens: true, assumes_plain: true };
/// What most programs read first. A store behind a network requests it with the open, in one round
/// trip.
const FIRST: WillRead = WillRead::First { start: 0, end: SMALL_BYTES };
/// Maximum links in a row, as in Linux.
const LINKS_MAX: usize = 40;
