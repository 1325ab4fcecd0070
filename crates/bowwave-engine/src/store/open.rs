//! Opening files for writing, and what their closing leaves behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowwave_backend::{Error as StoreError, ErrorKind, OpenWrite, Owner, WriteObject, Writes};
use bowwave_core::SyncFor;

use super::{Store, StoreInner, check_size};
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::{ALL, Access, File};
use crate::files::{Files, Key};

/// How [`Store::open_with`] opens a file. The default opens what is there for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// For writing, and reading.
    pub write: bool,
    /// For writing, each write at what is then the end of the file.
    pub append: bool,
    /// Cut it to no bytes; needs `write` or `append`.
    pub truncate: bool,
    /// Make it if it is not there; needs `write` or `append`.
    pub create: bool,
    /// With `create`: fail if it is there.
    pub exclusive: bool,
    /// Unix permission bits of a new file; the umask is the caller's.
    pub mode: u32,
    /// Whose a new file is to be; `None` for whoever runs this.
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
    /// What can be written in this store.
    #[must_use]
    pub fn writes(&self) -> Writes {
        self.inner.profile.writes
    }

    /// Opens a file for reading and writing; one that is not there is made, one that is there is cut to no bytes.
    ///
    /// # Errors
    /// As the store says.
    pub fn create(&self, path: &Path, mode: u32) -> Result<File> {
        let options =
            OpenOptions { write: true, create: true, truncate: true, mode, ..OpenOptions::default() };
        self.open_with(path, &options)
    }

    /// Opens a file as `options` say. All that have it open share its pages and its size.
    ///
    /// # Errors
    /// As the store says; `Invalid` for options that go with writing without `write` or `append`.
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
        // Cutting is ours to do: pages may be on their way to the store.
        let object = self.backend.open_write(path, &OpenWrite { truncate: false, ..how(options) })?;
        let mut files = self.files();
        // With the lock held no writer of ours leaves, so what the file is now stays, unless others change it.
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

    /// A handle that writes is being closed. The last one leaves a file that is as the store has it.
    pub(crate) fn close_writer(&self, entry: &Arc<FileEntry>) {
        // Most of it not with the lock held, since it may take long.
        if entry.writing.writers.load(Ordering::Relaxed) == 1 && entry.is_kept() {
            self.write_out(entry, ALL, SyncFor::Close);
        }
        let mut files = self.files();
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
            // Others have changed it.
            _ => {
                files.detach(entry, &self.engine);
                self.engine.make_stale(entry);
            }
        }
    }

    /// Readers that are left when nobody writes any more want to know again when others change the file, which an object
    /// open for writing cannot tell.
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
