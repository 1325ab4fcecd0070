//! The engine and its stores: created on first use of a served path, and again in a child.

use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use bowwave_control::{Program, Quiet, Server};
use bowwave_engine::backend::WillRead;
use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::{DecisionLog, Engine, Entry, EntryKind, Error, NamedFile, NamedFiles, Namespace, Store};
use bowwave_interpose::{Inside, say};

use crate::errno::{Errno, Result, of_error};
use crate::setup::{Place, setup};

/// An engine, and a store for each map.
#[derive(Debug)]
pub(crate) struct Service {
    engine: Engine,
    /// One for each map; an error number for a store that could not be opened.
    stores: Vec<std::result::Result<NamedFiles, Errno>>,
    /// For `bowwave ctl`. `None` without a place for its socket: the program needs none.
    server: Option<Server>,
}

/// Never dropped: it lives as long as the process, and a child must not touch its parent's.
static SERVICE: Mutex<Option<&'static Service>> = Mutex::new(None);

/// Locked during a fork, so that no fork happens during a start.
pub(crate) fn lock() -> MutexGuard<'static, Option<&'static Service>> {
    SERVICE.lock()
}

/// Removes the socket of `bowwave ctl` at the end of the process. If a thread holds the lock,
/// perhaps the one whose signal handler ends the process, a later client removes the socket.
pub(crate) fn leave() {
    let _inside = Inside::enter();
    if let Some(service) = SERVICE.try_lock()
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
        let count = backends.len() as u64;
        let stores = backends.into_iter().map(|backend| match backend {
            Ok(backend) => {
                // A signal handler of the program must not run on the thread that this starts.
                let _quiet = Quiet::begin();
                Ok(NamedFiles::new(engine.store_of(backend), count))
            }
            Err(error) => {
                say(&error);
                Err(of_error(error))
            }
        });
        let stores: Vec<_> = stores.collect();
        let maps = setup.maps.iter().zip(&stores).map(|(map, store)| bowwave_control::Map {
            url: match store {
                Ok(files) => files.store().url().to_owned(),
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
        Ok(self.files(map)?.store())
    }

    fn files(&self, map: usize) -> Result<&NamedFiles> {
        self.stores[map].as_ref().map_err(|&errno| errno)
    }

    /// Opens the file at a place, whose links have been resolved.
    pub(crate) fn open(&self, place: &Place) -> Result<NamedFile> {
        // What most programs read first. A store behind a network requests it with the open, in one
        // round trip.
        self.files(place.map)?.open(&place.path, WillRead::START).map_err(of_error)
    }

    /// Lists the directory at a place.
    pub(crate) fn list(&self, place: &Place) -> Result<Vec<Entry>> {
        let files = self.files(place.map)?;
        files.listed(&place.path);
        Namespace::list(files.store(), &place.path).map_err(of_error)
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

/// Maximum links in a row, as in Linux.
const LINKS_MAX: usize = 40;
