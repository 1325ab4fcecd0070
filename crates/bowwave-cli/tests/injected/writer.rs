//! Writes and reads a file in a store that occasionally fails, and tracks its content.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use crate::common::cells::{CELL, cells, version_of};
use crate::common::close::close;
use crate::common::rng::Rng;

/// Cells of a file: 512 KiB. Sixteen such files are several times the cache.
const CELLS: u64 = 1024;

/// Errors that a store with faults may return.
const EXPECTED: [i32; 2] = [libc::EIO, libc::ENOSPC];

/// Results reported to a writer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Told {
    /// Errors of write(2), fsync(2) and friends, and close(2).
    pub(crate) write: u32,
    pub(crate) sync: u32,
    pub(crate) close: u32,
    /// Successful syncs or closes that were compared with the underlying directory.
    pub(crate) compared: u32,
}

/// A writer with its file above and below the mount.
pub(crate) struct Writer {
    above: PathBuf,
    below: PathBuf,
    file: Option<File>,
    id: u64,
    rng: Rng,
    version: u64,
    /// The version of each cell that a reader of the mount must find.
    model: Vec<u64>,
    pub(crate) told: Told,
}

impl Writer {
    /// Creates the file, retrying on injected faults.
    pub(crate) fn new(above: PathBuf, below: PathBuf, seed: u64) -> Result<Self, String> {
        let (rng, told) = (Rng(seed), Told::default());
        let model = vec![0; CELLS as usize];
        let mut writer = Self { above, below, file: None, id: seed, rng, version: 0, model, told };
        writer.open(true)?;
        let all = cells(seed, 0, CELLS, 0);
        for (index, piece) in all.chunks(64 * CELL).enumerate() {
            let at = (index * 64 * CELL) as u64;
            while let Err(error) = writer.file().write_all_at(piece, at) {
                writer.told.write += 1;
                writer.is_expected("the first write", error)?;
            }
        }
        Ok(writer)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("open between steps")
    }

    fn open(&mut self, create: bool) -> Result<(), String> {
        let mut options = File::options();
        options.read(true).write(true).create(create);
        if self.rng.chance(10) {
            options.custom_flags(libc::O_DSYNC);
        }
        self.file = Some(options.open(&self.above).map_err(|error| self.fault("open", &error))?);
        Ok(())
    }

    fn fault(&self, what: &str, error: &dyn std::fmt::Display) -> String {
        format!("{}: {what}: {error}", self.below.display())
    }

    /// Accepts only errors of the store.
    fn is_expected(&self, what: &str, error: io::Error) -> Result<(), String> {
        let fine = error.raw_os_error().is_some_and(|number| EXPECTED.contains(&number));
        if fine { Ok(()) } else { Err(self.fault(what, &error)) }
    }

    /// Performs one operation and checks its result.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..55 => self.write(),
            55..85 => self.read(),
            85..95 => self.sync().map(drop),
            _ => self.reopen(),
        }
    }

    fn write(&mut self) -> Result<(), String> {
        let len = 1 + self.rng.below(48);
        let from = self.rng.below(CELLS - len);
        self.version += 1;
        let bytes = cells(self.id, from, from + len, self.version);
        let range = from as usize..(from + len) as usize;
        let written = self.file().write_at(&bytes, from * CELL as u64);
        match written {
            Ok(count) if count == bytes.len() => self.model[range].fill(self.version),
            other => {
                if let Err(error) = other {
                    self.told.write += 1;
                    self.is_expected("write", error)?;
                }
                // Each cell is the old one or the new one; reading it tells which.
                for index in range {
                    let found = self.version_above(index as u64)?;
                    if found != Some(self.version) && found != Some(self.model[index]) {
                        let has = self.model[index];
                        return Err(self.fault(
                            "after a failed write",
                            &format!("cell {index} is {found:?}, not {has} or {}", self.version),
                        ));
                    }
                    self.model[index] = found.unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    fn version_above(&self, index: u64) -> Result<Option<u64>, String> {
        let mut bytes = [0; CELL];
        let read = self.file().read_exact_at(&mut bytes, index * CELL as u64);
        read.map_err(|error| self.fault("read", &error))?;
        Ok(version_of(&bytes, self.id, index))
    }

    fn read(&mut self) -> Result<(), String> {
        let len = 1 + self.rng.below(64);
        let from = self.rng.below(CELLS - len);
        let mut bytes = vec![0; len as usize * CELL];
        let read = self.file().read_exact_at(&mut bytes, from * CELL as u64);
        read.map_err(|error| self.fault("read", &error))?;
        self.compare(from, &bytes).map_err(|what| self.fault("read from the mount", &what))
    }

    fn compare(&self, from: u64, bytes: &[u8]) -> Result<(), String> {
        for (index, cell) in (from..).zip(bytes.chunks(CELL)) {
            let (found, must) = (version_of(cell, self.id, index), self.model[index as usize]);
            if found != Some(must) {
                return Err(format!("cell {index} has version {found:?}, not {must}"));
            }
        }
        Ok(())
    }

    /// Checks that everything is stored, after the mount reported success.
    pub(crate) fn compare_below(&mut self) -> Result<(), String> {
        self.told.compared += 1;
        let bytes = fs::read(&self.below).map_err(|error| self.fault("below", &error))?;
        if bytes.len() != CELLS as usize * CELL {
            return Err(self.fault("below", &format!("{} bytes", bytes.len())));
        }
        self.compare(0, &bytes).map_err(|what| self.fault("below, after all was well", &what))
    }

    /// Returns whether the sync succeeded.
    pub(crate) fn sync(&mut self) -> Result<bool, String> {
        let synced = if self.rng.chance(50) { self.file().sync_all() } else { self.file().sync_data() };
        match synced {
            Ok(()) => self.compare_below().map(|()| true),
            Err(error) => {
                self.told.sync += 1;
                self.is_expected("sync", error).map(|()| false)
            }
        }
    }

    /// Closes and reopens. A failed close may lose data, so the model is read again.
    fn reopen(&mut self) -> Result<(), String> {
        let file = self.file.take().expect("open between steps");
        match close(file) {
            Ok(()) => self.compare_below()?,
            Err(error) => {
                self.told.close += 1;
                self.is_expected("close", error)?;
                self.open(false)?;
                for index in 0..CELLS {
                    let found = self.version_above(index)?;
                    self.model[index as usize] =
                        found.ok_or_else(|| self.fault("after a failed close", &format!("cell {index}")))?;
                }
                return Ok(());
            }
        }
        self.open(false)
    }

    /// Syncs until it succeeds, as the store fails only occasionally.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        for _ in 0..100 {
            if self.sync()? {
                return Ok(());
            }
        }
        Err(self.fault("sync", &"100 of 100 failed"))
    }
}
