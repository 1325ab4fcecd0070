//! A directory to mount and a mount point.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// `store` and `at`, two empty directories, removed at the end unless the test failed.
pub(crate) struct Place(PathBuf);

impl Place {
    /// Creates them in the temporary directory for the test `name`.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bowwave-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("store")).expect("the temporary directory is writable");
        fs::create_dir_all(path.join("at")).expect("writable");
        Self(path.canonicalize().expect("just made"))
    }

    /// Their parent directory.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// The mounted directory.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// The mount point.
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
