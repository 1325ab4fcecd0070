//! A folder to be mounted and a place to mount it.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// `store` and `at`, two empty folders, removed at the end unless the test has failed.
pub(crate) struct Place(PathBuf);

impl Place {
    /// In the temporary folder, for the test called `name`.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bowwave-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("store")).expect("the temporary directory is writable");
        fs::create_dir_all(path.join("at")).expect("writable");
        Self(path.canonicalize().expect("just made"))
    }

    /// What holds both.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// What is mounted.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Where.
    pub(crate) fn at(&self) -> PathBuf {
        self.0.join("at")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _best_effort = fs::remove_dir_all(&self.0);
        }
    }
}
