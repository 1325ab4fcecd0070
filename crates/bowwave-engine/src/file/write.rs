//! Writes: bytes go to pages of the cache, and from there to the store: beyond the background
//! limit, by age, for a sync, and at close.

use bowwave_backend::{Allocate, Error as StoreError, ErrorKind, Seek, WriteObject};
use bowwave_core::{PageIndex, PageRange, SyncFor, Write};

use super::{Access, File, Scratch};
use crate::error::Result;
use crate::object_upload::{ObjectUpload, Writer};
use crate::shard::Written;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, MutexGuard};

/// The error number of a seek after which nothing follows.
const ENXIO: i32 = 6;

/// Bytes copied at a time under the shard's lock. Larger: other users of the shard wait longer.
const COPY_BYTES: usize = 256 << 10;

impl File {
    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.access != Access::Read
    }

    /// Writes `buf` at `offset`, or at the end of a file opened to append; returns the number of
    /// bytes written. That is all of them, unless an error occurs half-way; the next write then
    /// returns the error.
    ///
    /// Later reads see the bytes. The store has them after [`flush`](Self::flush), or earlier.
    /// Waits while too many bytes are dirty
    /// ([`Options::dirty_bytes`](crate::Options::dirty_bytes)).
    ///
    /// # Errors
    /// `ReadOnly` if the file was not opened for writing; `TooLarge` past 2^63 bytes. As the store
    /// says, if a partly changed page must be read first, or if the store accepts no writes.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        if let Some(Upload { upload, writer }) = self.upload() {
            return Ok(upload.write(writer, offset, buf)?.1);
        }
        let guard = self.lock_for_writing()?;
        let offset = if self.access == Access::Append { self.entry.size() } else { offset };
        self.write_locked(&guard, offset, buf)
    }

    /// Appends `buf`, atomically with other appends; returns its offset, and the bytes written as
    /// [`write_at`](Self::write_at) does.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        if let Some(Upload { upload, writer }) = self.upload() {
            return upload.write(Writer { appends: true, ..writer }, 0, buf);
        }
        let guard = self.lock_for_writing()?;
        let offset = self.entry.size();
        Ok((offset, self.write_locked(&guard, offset, buf)?))
    }

    /// Whether the file has bytes that the store does not have yet.
    pub fn is_dirty(&self) -> bool {
        self.entry.upload.get().is_some_and(|upload| upload.is_pending()) || self.store.is_dirty(&self.entry)
    }

    /// Returns when the store has all bytes written to the file so far, through any handle. Does
    /// nothing for an unlinked file; only [`sync`](Self::sync) writes it. More than one write-out
    /// runs at the priority of write-back, after syncs and reads ([`SyncFor::Close`]).
    ///
    /// # Errors
    /// As the store says, for any write-out that failed since this handle was opened or last
    /// returned an error. Rejected pages stay dirty. The next flush or sync retries them, or
    /// write-back after [`Options::dirty_expire`](crate::Options::dirty_expire).
    pub fn flush(&self) -> Result<()> {
        self.flush_for(SyncFor::Close)
    }

    /// As [`flush`](Self::flush), with priority over speculative requests: for callers that sync
    /// next.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_for_sync(&self) -> Result<()> {
        self.flush_for(SyncFor::Safety)
    }

    fn flush_for(&self, why: SyncFor) -> Result<()> {
        if let Some(Upload { upload, writer }) = self.upload() {
            return upload.flush(writer, false);
        }
        if self.is_writable() {
            if !self.entry.is_nameless() {
                self.store.write_out(&self.entry, self.priority(), ALL, why);
            }
            self.return_error()?;
        }
        Ok(())
    }

    /// Returns when all written bytes are durable, as far as the store can know. With `data_only`,
    /// metadata that reads do not need, such as times, may be omitted.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and errors of the store's flush.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if let Some(Upload { upload, writer }) = self.upload() {
            return upload.sync(writer);
        }
        self.store.write_out(&self.entry, self.priority(), ALL, SyncFor::Safety);
        let synced = self.store.sync_entry(&self.entry, data_only);
        self.return_error()?;
        synced
    }

    /// Returns a write-out error once.
    fn return_error(&self) -> Result<()> {
        let (count, error) = self.entry.write_errors();
        let returned = self.errors_returned.swap(count, Ordering::AcqRel);
        match error {
            Some(error) if count != returned => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, len: u64) -> Result<()> {
        if let Some(Upload { upload, writer }) = self.upload() {
            return upload.set_len(writer, len);
        }
        let _guard = self.lock_for_writing()?;
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
        self.set_length(len, len);
        Ok(())
    }

    /// The offset of the first data, or of the first hole, at or after `offset`, as `lseek` finds
    /// it; `None` if none follows. The end of the file is a hole. Dirty pages go first to the
    /// store, which knows the holes. In stores without holes, all is data.
    ///
    /// # Errors
    /// As the store says; `Changed` as for [`read_at`](Self::read_at).
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.check_stale()?;
        if offset >= self.size() {
            return Ok(None);
        }
        let object = self.entry.object().filter(|_| self.upload().is_none());
        if object.is_some() && self.is_dirty() {
            self.store.write_out(&self.entry, self.priority(), ALL, SyncFor::Close);
        }
        let size = self.size();
        match object.map(|object| object.seek(offset, what)) {
            Some(Ok(found)) => Ok(Some(found.min(size))),
            Some(Err(error)) if error.errno() == Some(ENXIO) => Ok(None),
            Some(Err(error)) if error.kind() != ErrorKind::Unsupported => Err(error.into()),
            _ => Ok(Some(if what == Seek::Data { offset } else { size })),
        }
    }

    /// Changes how `len` bytes at `offset` are allocated, as `fallocate` does.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). `Unsupported` where the store cannot, `NoSpace` where it
    /// does not fit, `Invalid` for no bytes.
    pub fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        if let Some(error) =
            self.refused_for_upload("room in an object cannot be reserved, nor holes be made")
        {
            return Err(error.into());
        }
        let _guard = self.lock_for_writing()?;
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
        self.set_length(size, offset.min(size));
        Ok(())
    }

    /// The store gave the file another length, or other bytes from `changed` on.
    fn set_length(&self, len: u64, changed: u64) {
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

    /// Waits for exclusive access to change the file.
    pub(super) fn lock_for_writing(&self) -> Result<MutexGuard<'_, ()>> {
        if !self.is_writable() {
            let message = format!("{}: was not opened for writing", self.entry.name());
            return Err(StoreError::new(ErrorKind::ReadOnly, message).into());
        }
        let guard = self.entry.writing.lock.lock();
        self.check_stale()?;
        Ok(guard)
    }

    fn write_locked(&self, _guard: &MutexGuard<'_, ()>, offset: u64, buf: &[u8]) -> Result<usize> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| i64::try_from(end).is_ok());
        if end.is_none() {
            let message = format!("{}: no file has bytes beyond 2^63", self.entry.name());
            return Err(StoreError::new(ErrorKind::TooLarge, message).into());
        }
        let mut done = 0;
        let mut woken = false;
        while done < buf.len() {
            let part = &buf[done..];
            match self.write_part(offset + done as u64, part, woken) {
                Ok(Written::Bytes(count)) => (done, woken) = (done + count, false),
                Ok(Written::Wait(slot)) => {
                    self.engine.relieve(self.entry.shard);
                    match slot.wait() {
                        Ok(_) => woken = true,
                        Err(_) if done > 0 => break,
                        Err(error) => return Err(self.refusal(error).into()),
                    }
                }
                Ok(Written::Read(page)) => match self.fetch(page) {
                    Err(_) if done > 0 => break,
                    read => read?,
                },
                Ok(Written::Failed(_)) if done > 0 => break,
                Ok(Written::Failed(error)) => return Err(self.refusal(error).into()),
                Err(error) => return Err(error),
            }
        }
        self.engine.watch_dirty();
        Ok(done)
    }

    /// Writes the first bytes of `part`, at most as many pages as are copied at a time.
    fn write_part(&self, offset: u64, part: &[u8], woken: bool) -> Result<Written> {
        let page = self.engine.page_size();
        let skip = (offset & (page.bytes() - 1)) as usize;
        let most = COPY_BYTES.max(page.bytes() as usize) - skip;
        let part = &part[..part.len().min(most)];
        let end = offset + part.len() as u64;
        let write = Write {
            file: self.entry.file,
            range: page.range_of(offset, part.len() as u64),
            keeps_head: skip > 0,
            keeps_tail: end & (page.bytes() - 1) > 0 && end < self.entry.size(),
            woken,
        };
        let mut effects = Vec::new();
        let written = self.engine.shard(self.entry.shard).write(&self.entry, write, skip, part, &mut effects);
        self.perform(effects);
        Ok(written)
    }

    /// Reads a page that will be changed in part.
    fn fetch(&self, page: PageIndex) -> Result<()> {
        let offset = page.0 << self.engine.page_size().shift();
        let mut byte = [0];
        self.read_chunks(offset, &mut byte, &mut Scratch::default()).map(drop)
    }

    /// Why a write found no memory.
    fn refusal(&self, error: bowwave_core::FillError) -> StoreError {
        let (_, own) = self.entry.write_errors();
        own.unwrap_or_else(|| match error {
            bowwave_core::FillError::CLOSED => self.entry.error(error),
            _ => StoreError::new(
                ErrorKind::Io,
                format!(
                    "{}: there is no room for dirty pages, because stores refuse those of other files",
                    self.entry.name()
                ),
            ),
        })
    }

    pub(super) fn write_object(&self) -> Result<Arc<dyn WriteObject>> {
        self.entry.write_object().ok_or_else(|| {
            let message = format!("{}: is not open for writing", self.entry.name());
            StoreError::new(ErrorKind::ReadOnly, message).into()
        })
    }

    /// As [`flush`](Self::flush), for some pages.
    pub(super) fn flush_pages(&self, range: PageRange) -> Result<()> {
        self.store.write_out(&self.entry, self.priority(), range, SyncFor::Safety);
        self.return_error()
    }

    /// Discards written pages that are not in the store, and waits for pages in flight.
    pub(super) fn discard_pages(&self, range: PageRange) {
        self.store.discard(&self.entry, range);
    }

    /// The upload of an object that is open for writing; `None` in stores that accept writes
    /// anywhere in a file.
    pub fn upload(&self) -> Option<Upload<'_>> {
        let upload = self.entry.upload.get()?;
        let appends = self.access == Access::Append;
        Some(Upload { upload, writer: Writer { entry: &self.entry, handle: self.handle, appends } })
    }

    /// The error for an operation that uploads do not support, if this is one.
    pub(super) fn refused_for_upload(&self, what: &str) -> Option<StoreError> {
        self.entry.upload.get().map(|upload| upload.unsupported(what))
    }
}

/// The next version of an object, as written through a [`File`]: [`flush`](File::flush),
/// [`sync`](File::sync) or closing the handle publishes it.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    pub(super) upload: &'a Arc<ObjectUpload>,
    pub(super) writer: Writer<'a>,
}

impl Upload<'_> {
    /// Whether the object has no published version yet.
    pub fn is_new(&self) -> bool {
        self.upload.is_new()
    }

    /// Publishes the version, also if nothing was written to it.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn publish(&self) -> Result<()> {
        self.upload.flush(self.writer, true)
    }

    /// Ends writing through this handle, as closing it does, and returns errors. Dropping it then
    /// has no more effect.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn end(&self) -> Result<()> {
        self.upload.end(self.writer)
    }

    /// Ends writing through this handle without publishing: the object stays as it is.
    pub fn abandon(&self) {
        self.upload.abandon(self.writer.handle);
    }
}

/// Every page of a file.
pub(crate) const ALL: PageRange = PageRange::new(0, u64::MAX);
