//! Flushing: sends dirty pages to the store and makes them durable.

use std::sync::Arc;

use bowwave_core::schedule::Priority;
use bowwave_core::{PageRange, SyncFor};

use super::{Store, StoreInner};
use crate::engine::Caller;
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::ALL;

impl Store {
    /// Returns when all files open for writing are durable. Continues after an error.
    ///
    /// # Errors
    /// The first error.
    pub fn sync(&self) -> Result<()> {
        let settled = self.settle_wholes();
        let written = self.inner.files.lock().written();
        let sync = |entry: &Arc<FileEntry>| {
            let (before, _) = entry.write_errors();
            self.inner.write_out(entry, Priority::default(), ALL, SyncFor::Safety);
            let (after, error) = entry.write_errors();
            let failed = error.filter(|_| after != before).map_or(Ok(()), |error| Err(error.into()));
            let synced = self.inner.sync_entry(entry, false);
            failed.and(synced)
        };
        written.iter().map(sync).fold(settled, Result::and)
    }
}

impl StoreInner {
    /// Makes the bytes written to a file durable.
    pub(crate) fn sync_entry(&self, entry: &Arc<FileEntry>, data_only: bool) -> Result<()> {
        let Some(object) = entry.write_object() else { return Ok(()) };
        Ok(object.sync(data_only)?)
    }

    /// Returns when the store has accepted or rejected all pages written so far; the entry counts
    /// rejections.
    pub(crate) fn write_out(
        &self,
        entry: &Arc<FileEntry>,
        priority: Priority,
        range: PageRange,
        why: SyncFor,
    ) {
        let mut effects = Vec::new();
        let slot = self.engine.shard(entry.shard).sync(entry.file, range, why, &mut effects);
        self.engine.perform_as(Caller { priority, drops: false }, entry.shard, effects);
        if let Some(slot) = slot {
            // The entry has recorded errors.
            let _noted = slot.wait();
        }
    }

    /// Returns when none of these pages is dirty or in flight. Their written bytes are lost.
    pub(crate) fn discard(&self, entry: &Arc<FileEntry>, range: PageRange) {
        let mut effects = Vec::new();
        let slot = self.engine.shard(entry.shard).discard(entry.file, range, &mut effects);
        self.engine.perform(entry.shard, effects);
        if let Some(slot) = slot {
            let _not_wanted = slot.wait();
        }
    }

    /// Whether the store lacks bytes of a file.
    pub(crate) fn is_dirty(&self, entry: &FileEntry) -> bool {
        self.engine.shard(entry.shard).with_cache(|cache| cache.unwritten_pages(entry.file).0 > 0)
    }

    /// The last writing handle closes, and no other can open now: writes out what the store lacks.
    /// Pages that it rejects even now are lost, and counted.
    pub(super) fn settle(&self, entry: &Arc<FileEntry>) {
        let is_kept = entry.is_kept();
        if is_kept {
            // Other threads wait meanwhile to open files.
            self.write_out(entry, Priority::default(), ALL, SyncFor::Safety);
        }
        if !self.is_dirty(entry) {
            return;
        }
        if is_kept {
            let shard = self.engine.shard(entry.shard);
            let pages = shard.with_cache(|cache| cache.unwritten_pages(entry.file).0);
            self.queue.lost(pages);
        }
        self.discard(entry, ALL);
    }
}
