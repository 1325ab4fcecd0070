//! Writing: objects open for writing, and types for changes of a store.
//!
//! ```text
//!   engine --write(offset, WriteBuf, WriteSink)--> WriteObject --done(WriteBuf, result)--> engine
//!          --sync: make bytes durable; finish: publish them-->
//! ```
//!
//! Two kinds of stores accept writes. File systems accept bytes [`Anywhere`](Writes::Anywhere), at
//! once. Object stores accept [`Whole`](Writes::Whole) objects in parts, which are visible only
//! after [`WriteObject::finish`].

use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::{Backend, Entry, Error, ErrorKind, Identity, Object, Result, WriteBuf, namespace};

/// Writes that a store supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Writes {
    /// None.
    #[default]
    No,
    /// Whole objects, in parts of [`Profile::write_part_bytes`](crate::Profile::write_part_bytes),
    /// in any order. `finish` publishes them atomically.
    Whole,
    /// Any bytes of any file.
    Anywhere,
}

/// Writes of a store: the optional part of a [`Backend`] that changes the bytes of objects. `dyn
/// Backend` implements this trait by its part; without one, opening fails as `ReadOnly` or
/// `Unsupported`, as [`Profile::writes`](crate::Profile::writes) says.
pub trait Write: Debug + Send + Sync {
    /// Opens an object for writing. Does not follow a link at the end of `path`. Blocks.
    ///
    /// # Errors
    /// `NotFound` without `create`, `Exists` with `exclusive`, `IsADirectory`, and as the store
    /// says.
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>>;

    /// Unfinished uploads of any program, neither finished nor aborted; none for stores without
    /// uploads (the default). Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        Ok(Vec::new())
    }

    /// Aborts an upload that [`stray_uploads`](Self::stray_uploads) listed. Blocks.
    ///
    /// # Errors
    /// As the store says. One that no longer exists is `NotFound` in some stores, and aborted in
    /// others.
    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        let message = format!("{}: this store has no uploads", upload.path.display());
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

impl Write for dyn Backend + '_ {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let writer = self.writer().ok_or_else(|| namespace::refused(self, path, "open for writing"))?;
        writer.open_write(path, how)
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.writer().map_or_else(|| Ok(Vec::new()), Write::stray_uploads)
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        let refused = || Err(namespace::refused(self, &upload.path, "abort an upload"));
        self.writer().map_or_else(refused, |writer| writer.abort_upload(upload))
    }
}

/// Options for opening an object for writing. The default opens an existing object and changes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpenWrite {
    /// Create the object if it does not exist.
    pub create: bool,
    /// With `create`: fail if it exists, even as a dangling link.
    pub exclusive: bool,
    /// Truncate it to 0 bytes.
    pub truncate: bool,
    /// Unix permission bits of a new object; the caller, not the store, applies the umask.
    pub mode: u32,
    /// Owner of a new object; `None` for the store's own user.
    pub owner: Option<Owner>,
}

/// Creator of an entry. In a directory with the set-group-id bit, the file system uses the
/// directory's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// An object open for writing, and for reading its bytes.
///
/// As an [`Object`], its `size` and `identity` are those of `open_write`; [`Attributes::stat`]
/// returns the current size. Its reads extend to the current size, and never fail as changed
/// because of writes through this store. Reads that begin after a write has ended see its bytes. In
/// [`Writes::Whole`] stores, reads return the published version.
///
/// Dropping it keeps accepted writes of [`Writes::Anywhere`] stores; for [`Writes::Whole`] it is an
/// [`abort`](Self::abort).
pub trait WriteObject: Object {
    /// Starts writing `buf` at `offset` and returns without waiting for the store.
    ///
    /// The response comes through `sink`, on a thread of the backend, possibly before this call
    /// returns. The bytes do not change until then. In [`Anywhere`](Writes::Anywhere) stores, a
    /// write past the end extends the file, and the gap reads as zeros. Overlapping writes in
    /// flight take effect in any order.
    ///
    /// [`Whole`](Writes::Whole) stores accept parts: `offset` is a multiple of the part's size, and
    /// `buf` is one part, except for the last one of the object. Writing a part again replaces it.
    /// A write after `finish` begins a new version that starts as a copy of the published one.
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>);

    /// Returns when all completed writes are durable, as far as the store can know. With
    /// `data_only`, metadata that reads do not need, such as times, may be omitted. Blocks.
    ///
    /// For [`Whole`](Writes::Whole) stores it does nothing: only finished objects are durable.
    ///
    /// # Errors
    /// As the store says; includes failures of writes that it had accepted before.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// Truncates the object to `len` bytes or extends it with zeros. Blocks.
    ///
    /// # Errors
    /// As the store says; `Unsupported` for [`Whole`](Writes::Whole) stores, except truncation to
    /// 0.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Changes how `len` bytes at `offset` are allocated. Blocks.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot (the default); `NoSpace` where it does not fit.
    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (offset, len, how);
        Err(self.cannot("allocate"))
    }

    /// Publishes the written bytes atomically, and returns the current identity. Without writes
    /// since the last `finish` it only returns the identity. Blocks. An object that was opened with
    /// `create` or `truncate` and is finished without a write is published empty.
    ///
    /// [`Anywhere`](Writes::Anywhere) stores publish each write when it ends; they only return the
    /// identity.
    ///
    /// # Errors
    /// As the store says. A [`Whole`](Writes::Whole) object is then unchanged, and may be finished
    /// again if the error is retryable. `Invalid` if parts are missing between the first and the
    /// last.
    fn finish(&self) -> Result<Identity>;

    /// Discards writes since the last `finish`, where that is still possible. Blocks.
    fn abort(&self) {}

    /// Continues another process's upload instead of a new one. The store passes each of its ranges
    /// to `fits` with the MD5 sum of its bytes; `fits` returns whether these are the bytes to be
    /// written. Returns the matching ranges, which need not be written; without any, the upload is
    /// unchanged. Call it before the first write. Blocks.
    ///
    /// # Errors
    /// As the store says. Stores without uploads have no ranges (the default).
    fn continue_upload(
        &self,
        upload: &Upload,
        fits: &mut dyn FnMut(Range<u64>, [u8; 16]) -> bool,
    ) -> Result<Vec<Range<u64>>> {
        let _ = (upload, fits);
        Ok(Vec::new())
    }

    /// Keeps the upload for [`continue_upload`](Self::continue_upload), instead of an
    /// [`abort`](Self::abort). Returns whether the store has anything of it. Blocks.
    fn leave_upload(&self) -> bool {
        self.abort();
        false
    }

    /// The attributes of the next version, in [`Whole`](Writes::Whole) stores with attributes; none
    /// by default.
    fn next_attributes(&self) -> SetAttributes {
        SetAttributes::default()
    }

    /// Sets the attributes of the next version, in place of all others.
    ///
    /// # Errors
    /// `Unsupported` where the store has no attributes (the default).
    fn set_next_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(self.cannot("store attributes"))
    }

    /// The error for unsupported operations.
    #[doc(hidden)]
    fn cannot(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unsupported, format!("cannot {what}: this store does not support it"))
    }
}

/// Receives the result of a write. Called on the backend's threads: be quick and never block.
///
/// A sink that is dropped without `done` counts as a failed write.
pub trait WriteSink: Send {
    /// The write ended: the first `n` bytes are written, or it failed and any bytes may be written.
    /// Returns the buffer. A smaller `n` than the buffer is a short write: the caller writes the
    /// rest again.
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>);
}

/// Attributes of an open file, linked or not, that only file systems have.
pub trait Attributes: Debug + Send + Sync {
    /// Describes the file as it is now; the name is empty. Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn stat(&self) -> Result<Entry>;

    /// Changes attributes. Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn set(&self, attributes: &SetAttributes) -> Result<()>;
}

/// How [`WriteObject::allocate`] changes a range, as `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocate {
    /// Reserve space, so that writes there cannot fail for a full device. Extends the file unless
    /// `keep_size`.
    Reserve {
        /// Do not change the size.
        keep_size: bool,
    },
    /// Release the space; the range then reads as zeros. Never changes the size.
    Punch,
    /// Make the range read as zeros and keep its space. Extends the file unless `keep_size`.
    Zero {
        /// Do not change the size.
        keep_size: bool,
    },
    /// Remove the range; later bytes move up. The range is of whole blocks and lies before the end.
    Collapse,
    /// Insert the range; later bytes move down. The range is of whole blocks and lies before the
    /// end.
    Insert,
}

/// Target of [`Object::seek`](crate::Object::seek).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// A hole, or the end.
    Hole,
}

/// What [`Namespace::rename`](crate::Namespace::rename) does with an existing entry of the new
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Rename {
    /// Replace it, atomically where the store is a file system.
    #[default]
    Replace,
    /// Fail as [`Exists`](crate::ErrorKind::Exists).
    NoReplace,
    /// Exchange the two; both must exist.
    Exchange,
}

/// Attributes to change; `None` leaves one unchanged. With none at all, the change time is updated
/// and the set-user-id bit cleared, as by a change to the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub accessed: Option<SetTime>,
    /// Time of the last modification.
    pub modified: Option<SetTime>,
}

impl SetAttributes {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The store's clock at the time of the call.
    Now,
    /// This time, as precisely as the store supports.
    At(SystemTime),
}

/// How [`Namespace::set_xattr`](crate::Namespace::set_xattr) treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SetXattr {
    /// Replace it.
    #[default]
    Any,
    /// Fail as [`Exists`](crate::ErrorKind::Exists).
    Create,
    /// Fail as [`NoAttribute`](crate::ErrorKind::NoAttribute) if there is none.
    Replace,
}

/// Space in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatFs {
    /// Size in bytes of a block, the unit of the counts here.
    pub block_bytes: u64,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks available to the store's user.
    pub blocks_available: u64,
    /// Most files.
    pub files: u64,
    /// Files that can still be created.
    pub files_free: u64,
    /// Longest name of an entry in bytes.
    pub name_bytes_max: u32,
}

/// An unfinished upload of a [`Writes::Whole`] store, neither finished nor aborted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upload {
    /// The object that it would create.
    pub path: PathBuf,
    /// The store's identifier of the upload.
    pub id: String,
    /// When it was begun, where the store says.
    pub begun: Option<SystemTime>,
}
