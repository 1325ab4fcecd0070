//! Files that are read alike.

use bowwave_engine::SiblingTrails;
use bowwave_engine::backend::sync::Mutex;
use pyo3::prelude::*;

/// The reads of the last files. Any number of threads may use it. Callers number the opens.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Trails {
    /// A panic under the lock may leave wrong counts: they affect readahead, never the bytes read.
    trails: Mutex<SiblingTrails>,
}

/// A file, and the offset and length of bytes to fetch of it.
type Fetch = (u64, u64, u64);

#[pymethods]
impl Trails {
    #[new]
    fn new() -> Self {
        Self { trails: Mutex::new(SiblingTrails::new(u64::MAX)) }
    }

    /// A program opens a file of `size` bytes. Returns a number for `closed`.
    fn opened(&self, file: u64, size: u64) -> u64 {
        self.trails.lock().opened(file, size)
    }

    /// A program closes a file that was opened with this number.
    fn closed(&self, file: u64, number: u64) {
        self.trails.lock().closed(file, number);
    }

    /// A program reads a file. Returns what to fetch.
    fn read(&self, file: u64, offset: u64, length: u64) -> Vec<Fetch> {
        let mut found = Vec::new();
        self.trails.lock().read(file, offset, length, &mut found);
        let fetch = |bytes: std::ops::Range<u64>| (bytes.start, bytes.end - bytes.start);
        found
            .into_iter()
            .map(|found| (found.file, fetch(found.bytes)))
            .map(|(file, (at, len))| (file, at, len))
            .collect()
    }

    /// Whether the file is read as others were.
    fn follows(&self, file: u64) -> bool {
        self.trails.lock().follows(file)
    }

    /// A file is opened ahead of the program. Returns offsets and lengths of at most `most` bytes
    /// to fetch.
    fn ahead(&self, file: u64, size: u64, most: u64) -> Vec<(u64, u64)> {
        let found = self.trails.lock().ahead(file, size, most);
        found.into_iter().map(|bytes| (bytes.start, bytes.end - bytes.start)).collect()
    }

    /// A file that was opened ahead is closed.
    fn dropped(&self, file: u64) {
        self.trails.lock().dropped(file);
    }
}
