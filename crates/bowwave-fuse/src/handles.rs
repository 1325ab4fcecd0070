//! Open files and folders, by the number that the kernel gives back with each request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A table of open things. As large as what programs hold open.
#[derive(Debug)]
pub(crate) struct Handles<H> {
    open: RwLock<HashMap<u64, Arc<H>>>,
    last: AtomicU64,
}

impl<H> Handles<H> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { open: RwLock::default(), last: AtomicU64::new(0) }
    }

    /// Keeps `handle` and gives its number, never used before.
    pub(crate) fn insert(&self, handle: H) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // A map of finished inserts and removals is sound whatever a panicking holder did.
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    /// The open thing of this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<H>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Closes; requests that still run keep the thing alive until they end.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<H>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }
}
