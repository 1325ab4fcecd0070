//! Truncation, extension and holes.

use bowwave_backend::{Allocate, Error as StoreError, ErrorKind};
use bowwave_core::{PageIndex, PageRange};

use super::File;
use super::write::ALL;
use crate::error::Result;

impl File {
    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, len: u64) -> Result<()> {
        if let Some((whole, writer)) = self.whole() {
            return whole.set_len(writer, len);
        }
        let _turn = self.turn_to_write()?;
        if i64::try_from(len).is_err() {
            let message = format!("{}: no file has {len} bytes", self.entry.name());
            return Err(StoreError::new(ErrorKind::TooLarge, message).into());
        }
        let object = self.write_object()?;
        let page = self.engine.page_size();
        self.discard_pages(PageRange { start: PageIndex(page.count_for(len).0), end: ALL.end });
        if len < self.entry.size() {
            // The truncated page is read again.
            self.flush_pages(page.range_of(len, 1))?;
        }
        object.set_len(len)?;
        self.entry.set_stored(len);
        self.has_length(len, len);
        Ok(())
    }

    /// Changes how `len` bytes at `offset` are allocated, as `fallocate` does.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). `Unsupported` where the store cannot, `NoSpace` where it
    /// does not fit, `Invalid` for no bytes.
    pub fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        if let Some(error) = self.refused_for_whole("room in an object cannot be reserved, nor holes be made")
        {
            return Err(error.into());
        }
        let _turn = self.turn_to_write()?;
        let end = offset.checked_add(len).filter(|&end| i64::try_from(end).is_ok());
        let Some(end) = end.filter(|_| len > 0) else {
            let (kind, what) = match len {
                0 => (ErrorKind::Invalid, "no bytes"),
                _ => (ErrorKind::TooLarge, "bytes beyond 2^63"),
            };
            return Err(StoreError::new(kind, format!("{}: {what} to allocate", self.entry.name())).into());
        };
        self.flush_pages(ALL)?;
        self.write_object()?.allocate(offset, len, how)?;
        let size = self.entry.size();
        let size = match how {
            Allocate::Reserve { keep_size: false } | Allocate::Zero { keep_size: false } => size.max(end),
            Allocate::Reserve { .. } | Allocate::Zero { .. } | Allocate::Punch => size,
            Allocate::Collapse => size.saturating_sub(len),
            Allocate::Insert => size + len,
        };
        self.entry.set_stored(size);
        self.has_length(size, offset.min(size));
        Ok(())
    }

    /// The store gave the file another length, or other bytes from `changed` on.
    fn has_length(&self, len: u64, changed: u64) {
        let page = self.engine.page_size();
        let shard = self.engine.shard(self.entry.shard);
        let from = page.index_of(changed.min(self.entry.size()));
        let is_longer = len > self.entry.size();
        if is_longer {
            shard.set_pages(self.entry.file, page.count_for(len));
        } else {
            self.entry.set_size(len);
        }
        shard.invalidate_pages(self.entry.file, PageRange { start: from, end: PageIndex(u64::MAX) });
        if is_longer {
            self.entry.set_size(len);
        } else {
            shard.set_pages(self.entry.file, page.count_for(len));
        }
    }
}
