//! Writing, through the cache to the store: what returns, the store has.
//!
//! The pages that a write touches are dropped when the store has its bytes, so that who reads them next asks the store.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, MutexGuard, PoisonError};

use bowwave_backend::{Error as StoreError, ErrorKind, WriteBuf, WriteObject, WriteSink};

use super::{Access, File};
use crate::error::Result;
use crate::whole::Writer;

/// Bytes of one write to the store.
const WRITE_BYTES: usize = 1 << 20;

impl File {
    /// Whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.access != Access::Read
    }

    /// Writes `buf` at `offset`, or at the end of the file if it was opened to append; returns how many bytes it took.
    /// That is all of them, unless an error came half-way; the next write then tells it.
    ///
    /// # Errors
    /// `ReadOnly` if it was not opened for writing; `TooLarge` past 2^63 bytes; as the store says.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        if let Some((whole, writer)) = self.whole() {
            return Ok(whole.write(writer, offset, buf)?.1);
        }
        let turn = self.turn_to_write()?;
        let offset = if self.access == Access::Append { self.entry.size() } else { offset };
        self.write_in_turn(&turn, offset, buf)
    }

    /// Writes `buf` at the end of the file, behind what others append at the same time; returns its offset, and how many
    /// bytes it took, as [`write_at`](Self::write_at) does.
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

    /// Whether something was written to the file that is not in the store yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entry.whole.get().is_some_and(|whole| whole.is_draft())
    }

    /// Returns when the store has what was written to the file so far, through any handle.
    ///
    /// # Errors
    /// Errors of writes that this handle was not told of.
    pub fn flush(&self) -> Result<()> {
        if let Some((whole, writer)) = self.whole() {
            return whole.flush(writer);
        }
        Ok(())
    }

    /// Returns when what was written is safe from a loss of power, as far as the store can know. With `data_only` what is
    /// not needed to read it back, such as times, may be left out.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and as the store's flush says.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if let Some((whole, writer)) = self.whole() {
            return whole.sync(writer);
        }
        self.store.sync_entry(&self.entry, data_only)
    }

    /// Waits until nobody else changes the file.
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
        if buf.is_empty() {
            return Ok(0);
        }
        let object = self.write_object()?;
        let mut done = 0;
        while done < buf.len() {
            let part = &buf[done..buf.len().min(done + WRITE_BYTES)];
            match self.write_part(&*object, offset + done as u64, part) {
                Ok(count) if count > 0 => done += count,
                Err(error) if done == 0 => return Err(error),
                _ => break,
            }
        }
        Ok(done)
    }

    fn write_part(&self, object: &dyn WriteObject, offset: u64, part: &[u8]) -> Result<usize> {
        let (sink, answer) = sync_channel(1);
        object.write(offset, WriteBuf::from_vec(part.to_vec()), Box::new(Answer(sink)));
        let dropped = || StoreError::new(ErrorKind::Io, "the store dropped a write");
        let result = answer.recv().unwrap_or_else(|_| Err(dropped()));
        // Whatever became of it: the pages may not be what the store has.
        let count = *result.as_ref().unwrap_or(&part.len()) as u64;
        let page = self.engine.page_size();
        let shard = self.engine.shard(self.entry.shard);
        let end = offset + count;
        if result.is_ok() && end > self.entry.size() {
            shard.set_pages(self.entry.file, page.count_for(end));
        }
        shard.invalidate_pages(self.entry.file, page.range_of(offset, count));
        if result.is_ok() && end > self.entry.size() {
            self.entry.set_size(end);
        }
        Ok(result?)
    }

    pub(super) fn write_object(&self) -> Result<Arc<dyn WriteObject>> {
        self.entry.write_object().ok_or_else(|| {
            let message = format!("{}: is not open for writing", self.entry.name());
            StoreError::new(ErrorKind::ReadOnly, message).into()
        })
    }
}

/// Hands the end of a write to who waits for it.
struct Answer(SyncSender<bowwave_backend::Result<usize>>);

impl WriteSink for Answer {
    fn done(self: Box<Self>, buf: WriteBuf, result: bowwave_backend::Result<usize>) {
        drop(buf);
        let _nobody_waits = self.0.send(result);
    }
}
