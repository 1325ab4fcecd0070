//! Whole files of web servers without range requests, in memory during reads.
//!
//! A file is requested once for all of its reads, while its bytes stay in memory. They are dropped
//! when the file is closed, or when another file needs the memory and no read copies from them. The
//! next read then requests the file again, and fails if its version has changed.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};

use crate::sync::Mutex;
use crate::{Error, ErrorKind, Result};

/// Memory for whole files of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct WholeFiles {
    /// Size of the largest file that is read whole, in bytes.
    pub(super) file_bytes_max: u64,
    /// A permit is [`UNIT`] bytes.
    memory: Arc<Semaphore>,
    retained: Arc<Mutex<Retained>>,
}

#[derive(Debug, Default)]
struct Retained {
    /// Least recently read first.
    files: VecDeque<Arc<WholeFile>>,
    /// Files that wait for memory: while there are some, no file is retained.
    waiting: usize,
}

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct WholeFile {
    pub(super) bytes: Bytes,
    _memory: OwnedSemaphorePermit,
}

impl WholeFiles {
    /// Memory for two files of `file_bytes_max` bytes: one is read while another one arrives.
    pub(super) fn new(file_bytes_max: u64) -> Self {
        let units = usize::try_from(file_bytes_max.div_ceil(UNIT)).unwrap_or(usize::MAX);
        let memory = Semaphore::new(units.saturating_mul(2).min(u32::MAX as usize));
        Self { file_bytes_max, memory: Arc::new(memory), retained: Arc::default() }
    }

    /// Memory for a file of `bytes` bytes; drops other files if needed.
    async fn reserve(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::new(ErrorKind::Io, "the memory for whole files is closed");
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let waiting = {
            let mut retained = self.retained.lock();
            loop {
                if let Ok(memory) = Arc::clone(&self.memory).try_acquire_many_owned(units) {
                    return Ok(memory);
                }
                if retained.files.pop_front().is_none() {
                    retained.waiting += 1;
                    break Waiting(self);
                }
            }
        };
        let memory = Arc::clone(&self.memory).acquire_many_owned(units).await.map_err(closed);
        drop(waiting);
        memory
    }

    /// Keeps a file that was just read.
    fn keep(&self, whole: &Arc<WholeFile>) {
        let mut retained = self.retained.lock();
        retained.files.retain(|other| !Arc::ptr_eq(other, whole));
        if retained.waiting == 0 {
            retained.files.push_back(Arc::clone(whole));
        }
    }

    fn forget(&self, whole: &Weak<WholeFile>) {
        self.retained.lock().files.retain(|other| Arc::as_ptr(other) != whole.as_ptr());
    }
}

/// Counts as waiting until it is dropped.
struct Waiting<'a>(&'a WholeFiles);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.retained.lock().waiting -= 1;
    }
}

/// How an open file of a web server is read without range requests.
#[derive(Debug)]
pub(super) struct Unranged {
    pub(super) wholes: WholeFiles,
    /// The server responded with the whole file to a range request.
    lacks_ranges: AtomicBool,
    bytes: Mutex<Weak<WholeFile>>,
    /// Held during the request, so that the file is requested once for all of its readers.
    turn: AsyncMutex<()>,
}

impl Unranged {
    pub(super) fn new(wholes: WholeFiles) -> Self {
        let (lacks_ranges, bytes, turn) = (AtomicBool::new(false), Mutex::default(), AsyncMutex::default());
        Self { wholes, lacks_ranges, bytes, turn }
    }

    pub(super) fn lacks_ranges(&self) -> bool {
        self.lacks_ranges.load(Ordering::Relaxed)
    }

    pub(super) fn set_lacks_ranges(&self) {
        self.lacks_ranges.store(true, Ordering::Relaxed);
    }

    /// The bytes of the file, of `size` bytes; `request` reads them if they are not in memory.
    pub(super) async fn whole<F>(&self, size: u64, request: impl FnOnce() -> F) -> Result<Arc<WholeFile>>
    where
        F: Future<Output = Result<Bytes>>,
    {
        let _turn = self.turn.lock().await;
        let found = self.bytes.lock().upgrade();
        let whole = match found {
            Some(whole) => whole,
            None => {
                let memory = self.wholes.reserve(size).await?;
                let whole = Arc::new(WholeFile { bytes: request().await?, _memory: memory });
                *self.bytes.lock() = Arc::downgrade(&whole);
                whole
            }
        };
        self.wholes.keep(&whole);
        Ok(whole)
    }
}

impl Drop for Unranged {
    fn drop(&mut self) {
        self.wholes.forget(&self.bytes.lock());
    }
}

/// Bytes of a permit: few enough for small files, many enough for permits to be counted in 32 bits.
const UNIT: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn read(file: &Unranged, size: usize) -> (Arc<WholeFile>, bool) {
        let requested = AtomicBool::new(false);
        let request = || async {
            requested.store(true, Ordering::Relaxed);
            Ok(Bytes::from(vec![1; size]))
        };
        let whole = file.whole(size as u64, request).await.unwrap();
        (whole, requested.into_inner())
    }

    #[test]
    fn a_file_is_requested_once_until_others_need_its_memory() {
        block_on(async {
            let wholes = WholeFiles::new(100_000);
            let files: Vec<_> = (0..3).map(|_| Unranged::new(wholes.clone())).collect();
            assert!(read(&files[0], 100_000).await.1);
            assert!(!read(&files[0], 100_000).await.1);
            assert!(read(&files[1], 100_000).await.1);
            assert!(!read(&files[0], 100_000).await.1);
            assert!(read(&files[2], 1).await.1);
            assert!(!read(&files[0], 100_000).await.1, "it was read last");
            assert!(read(&files[1], 100_000).await.1, "it was read first");
        });
    }

    #[test]
    fn a_closed_file_leaves_no_bytes() {
        block_on(async {
            let wholes = WholeFiles::new(100_000);
            let free = wholes.memory.available_permits();
            let file = Unranged::new(wholes.clone());
            let (whole, _) = read(&file, 100_000).await;
            drop(file);
            assert!(wholes.memory.available_permits() < free, "a read still has them");
            drop(whole);
            assert_eq!(wholes.memory.available_permits(), free);
        });
    }

    #[test]
    fn a_file_waits_for_memory_that_reads_still_use() {
        block_on(async {
            let wholes = WholeFiles::new(100_000);
            let files: Vec<_> = (0..3).map(|_| Unranged::new(wholes.clone())).collect();
            let (first, second) = (read(&files[0], 100_000).await.0, read(&files[1], 100_000).await.0);
            let third = read(&files[2], 100_000);
            let mut third = std::pin::pin!(third);
            assert!(futures_util::poll!(third.as_mut()).is_pending());
            drop(second);
            assert!(third.await.1);
            drop(first);
        });
    }

    #[test]
    fn a_request_that_fails_or_is_dropped_gives_its_memory_back() {
        block_on(async {
            let wholes = WholeFiles::new(100_000);
            let free = wholes.memory.available_permits();
            let file = Unranged::new(wholes.clone());
            let failed = || async { Err(Error::new(ErrorKind::Truncated, "x")) };
            file.whole(100_000, failed).await.unwrap_err();
            {
                let mut dropped = std::pin::pin!(file.whole(100_000, std::future::pending));
                assert!(futures_util::poll!(dropped.as_mut()).is_pending());
            }
            assert_eq!(wholes.memory.available_permits(), free);
            assert!(read(&file, 100_000).await.1);
        });
    }
}
