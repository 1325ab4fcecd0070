//! Shared by several tests.

pub(crate) mod gate;
pub(crate) mod moody;
pub(crate) mod scripted;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use bowwave_core::fill_pattern;
use bowwave_engine::{Engine, Options, Store};
use tempfile::TempDir;

/// Waits until something has happened in another thread.
pub(crate) fn until(what: &str, happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < gate::PATIENCE, "not yet: {what}");
        thread::yield_now();
    }
}

/// A directory that is removed on drop.
#[derive(Debug)]
pub(crate) struct Directory(TempDir);

impl Directory {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory is writable"))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// The bytes of a file in it, without the cache.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// A cache much smaller than the tests' files.
pub(crate) fn small() -> Options {
    Options { cache_bytes: Some(2 << 20), ra_pages: 32, ..Options::default() }
}

/// An engine over a new directory.
pub(crate) fn directory_store(options: Options) -> (Directory, Engine, Store) {
    let directory = Directory::new();
    let engine = Engine::new(options).expect("valid options");
    let store = engine.store(&directory.url()).expect("a directory");
    (directory, engine, store)
}

/// `len` pseudo-random bytes that depend on `seed` alone.
pub(crate) fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill_pattern(seed, 0, &mut bytes);
    bytes
}
