//! Writes: bytes go to pages of the cache, and from there to the store: beyond the background
//! limit, by age, for a sync, and at close.

use bowwave_backend::{Error as StoreError, ErrorKind, WriteObject};
use bowwave_core::{PageIndex, PageRange, SyncFor, Write};

use super::{Access, File, with_scratch};
use crate::error::Result;
use crate::shard::Written;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, MutexGuard, PoisonError};
use crate::whole::Writer;

/// Bytes copied at a time under the shard's lock. Larger: other users of the shard wait longer.
const COPY_BYTES: usize = 256 << 10;

impl File {
    /// Whether it was opened for writing.
    #[must_use]
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
        if let Some((whole, writer)) = self.whole() {
            return Ok(whole.write(writer, offset, buf)?.1);
        }
        let turn = self.turn_to_write()?;
        let offset = if self.access == Access::Append { self.entry.size() } else { offset };
        self.write_in_turn(&turn, offset, buf)
    }

    /// Appends `buf`, atomically with other appends; returns its offset, and the bytes written as
    /// [`write_at`](Self::write_at) does.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        if let Some((whole, writer)) = self.whole() {
            return whole.write(Writer { appends: true, ..writer }, 0, buf);
        }
        let turn = self.turn_to_write()?;
        let offset = self.entry.size();
        Ok((offset, self.write_in_turn(&turn, offset, buf)?))
    }

    /// Whether the file has bytes that the store does not have yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entry.whole.get().is_some_and(|whole| whole.is_upload()) || self.store.is_dirty(&self.entry)
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
        self.hand_over(SyncFor::Close)
    }

    /// As [`flush`](Self::flush), with priority over speculative requests: for callers that sync
    /// next.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_for_sync(&self) -> Result<()> {
        self.hand_over(SyncFor::Safety)
    }

    fn hand_over(&self, why: SyncFor) -> Result<()> {
        if let Some((whole, writer)) = self.whole() {
            return whole.flush(writer);
        }
        if self.is_writable() {
            if !self.entry.is_nameless() {
                self.store.write_out(&self.entry, ALL, why);
            }
            self.tell_errors()?;
        }
        Ok(())
    }

    /// Returns when all written bytes are durable, as far as the store can know. With `data_only`,
    /// metadata that reads do not need, such as times, may be omitted.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and errors of the store's flush.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if let Some((whole, writer)) = self.whole() {
            return whole.sync(writer);
        }
        self.store.write_out(&self.entry, ALL, SyncFor::Safety);
        let synced = self.store.sync_entry(&self.entry, data_only);
        self.tell_errors()?;
        synced
    }

    /// Returns a write-out error once.
    fn tell_errors(&self) -> Result<()> {
        let (count, error) = self.entry.write_errors();
        let told = self.errors_told.swap(count, Ordering::AcqRel);
        match error {
            Some(error) if count != told => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits for exclusive access to change the file.
    pub(super) fn turn_to_write(&self) -> Result<MutexGuard<'_, ()>> {
        if !self.is_writable() {
            let message = format!("{}: was not opened for writing", self.entry.name());
            return Err(StoreError::new(ErrorKind::ReadOnly, message).into());
        }
        let turn = self.entry.writing.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_stale()?;
        Ok(turn)
    }

    fn write_in_turn(&self, _turn: &MutexGuard<'_, ()>, offset: u64, buf: &[u8]) -> Result<usize> {
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
        self.engine.perform(self.entry.shard, effects);
        Ok(written)
    }

    /// Reads a page that will be changed in part.
    fn fetch(&self, page: PageIndex) -> Result<()> {
        let offset = page.0 << self.engine.page_size().shift();
        let mut byte = [0];
        with_scratch(|scratch| self.read_chunks(offset, &mut byte, scratch)).map(drop)
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
        self.store.write_out(&self.entry, range, SyncFor::Safety);
        self.tell_errors()
    }

    /// Discards written pages that are not in the store, and waits for those in flight.
    pub(super) fn discard_pages(&self, range: PageRange) {
        self.store.discard(&self.entry, range);
    }
}

/// Every page of a file.
pub(crate) const ALL: PageRange = PageRange::new(0, u64::MAX);
