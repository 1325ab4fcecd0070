//! Opening files for writing, and closing them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowwave_backend::{Error as StoreError, ErrorKind, OpenWrite, Owner, Write as _, WriteObject, Writes};
use bowwave_core::SyncFor;
use bowwave_core::schedule::Priority;

use super::{Store, StoreInner, check_size};
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::{ALL, Access, File};
use crate::files::{Files, Key};

/// Options of [`Store::open_with`]. The default opens an existing file for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing and reading.
    pub write: bool,
    /// Open for writing, each write at the current end of the file.
    pub append: bool,
    /// Truncate to 0 bytes; needs `write` or `append`.
    pub truncate: bool,
    /// Create it if it does not exist; needs `write` or `append`.
    pub create: bool,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Unix permission bits of a new file; the caller applies the umask.
    pub mode: u32,
    /// Owner of a new file; `None` for this process's user.
    pub owner: Option<Owner>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            append: false,
            truncate: false,
            create: false,
            exclusive: false,
            mode: 0o666,
            owner: None,
        }
    }
}

impl Store {
    /// What kind of writes the store supports.
    pub fn writes(&self) -> Writes {
        self.inner.profile.writes
    }

    /// Opens a file for reading and writing; creates it, or truncates an existing one to 0 bytes.
    ///
    /// # Errors
    /// As the store says.
    pub fn create(&self, path: &Path, mode: u32) -> Result<File> {
        let options =
            OpenOptions { write: true, create: true, truncate: true, mode, ..OpenOptions::default() };
        self.open_with(path, &options)
    }

    /// Opens a file with `options`. All handles of a file share its pages and its size.
    ///
    /// # Errors
    /// As the store says; `Invalid` for options of writing without `write` or `append`.
    pub fn open_with(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        if !(options.write || options.append) {
            if options.create || options.truncate || options.exclusive {
                let message = format!("{}: only a file open for writing can be made or cut", path.display());
                return Err(StoreError::new(ErrorKind::Invalid, message).into());
            }
            return self.open(path);
        }
        if self.writes() == Writes::Whole {
            return self.inner.open_whole(path, options);
        }
        self.inner.open_anywhere(path, options)
    }
}

impl StoreInner {
    fn open_anywhere(self: &Arc<Self>, path: &Path, options: &OpenOptions) -> Result<File> {
        // The engine truncates: pages may be in flight to the store.
        let object = self.backend.open_write(path, &OpenWrite { truncate: false, ..how(options) })?;
        let mut files = self.files.lock();
        // With the lock held no writer of ours closes, so the file's state stays, unless other
        // programs change it.
        let identity = object.finish()?;
        check_size(path, identity.size)?;
        let known = files.get(&Key::new(path, &identity)).cloned();
        let entry = match known.filter(|entry| entry.is_written() || entry.is_still(&identity)) {
            Some(entry) => entry,
            None => {
                let entry = self.new_entry(path, identity);
                files.insert(Arc::clone(&entry), &self.engine);
                entry
            }
        };
        let file = self.open_writer(&mut files, path, entry, object, access(options));
        drop(files);
        if options.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn open_writer(
        self: &Arc<Self>,
        files: &mut Files,
        path: &Path,
        entry: Arc<FileEntry>,
        object: Arc<dyn WriteObject>,
        access: Access,
    ) -> File {
        if files.opened_writer(&entry) {
            entry.set_write_object(&object);
        }
        self.open_handle(files, path, entry, access)
    }

    /// Closes a writing handle. The last one leaves the file as the store has it.
    pub(crate) fn close_writer(&self, entry: &Arc<FileEntry>) {
        // Mostly without the lock, since it may take long.
        if entry.writing.writers.load(Ordering::Relaxed) == 1 && entry.is_kept() {
            self.write_out(entry, Priority::default(), ALL, SyncFor::Close);
        }
        let mut files = self.files.lock();
        if !files.closed_writer(entry) {
            return;
        }
        self.settle(entry);
        let Some(object) = entry.write_object() else { return };
        entry.drop_write_object();
        match object.finish() {
            Ok(identity) if identity.size == entry.size() => {
                entry.set_identity(identity);
                self.let_readers_check(entry);
            }
            // Other programs changed it.
            _ => {
                files.detach(entry, &self.engine);
                self.engine.make_stale(entry);
            }
        }
    }

    /// Readers that remain after the last writer must notice foreign changes again, which an object
    /// open for writing cannot detect.
    fn let_readers_check(&self, entry: &Arc<FileEntry>) {
        if entry.handles() <= 1 {
            return;
        }
        let Some(object) = self.opened_anew(entry, &entry.path()) else { return };
        if *object.identity() == entry.identity() {
            entry.set_object(Some(object));
        }
    }
}

fn how(options: &OpenOptions) -> OpenWrite {
    OpenWrite {
        create: options.create,
        exclusive: options.exclusive,
        truncate: options.truncate,
        mode: options.mode,
        owner: options.owner,
    }
}

fn access(options: &OpenOptions) -> Access {
    if options.append { Access::Append } else { Access::Write }
}
