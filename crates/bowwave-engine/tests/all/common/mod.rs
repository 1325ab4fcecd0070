//! Shared by several tests.

pub(crate) mod gate;
pub(crate) mod moody;
pub(crate) mod scripted;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use bowwave_core::{MIX_STEP, mix};
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

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(MIX_STEP);
        mix(self.0) % bound.max(1)
    }

    /// This many bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let seed = self.below(u64::MAX);
        (0..len as u64)
            .map(|i| (seed.wrapping_add(i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
            .collect()
    }
}
