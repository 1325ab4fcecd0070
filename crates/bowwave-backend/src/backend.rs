//! Stores: objects that can be read and, in some stores, listed and written.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::write::{Seek, Write};
use crate::{Attributes, Error, ErrorKind, Identity, Namespace, Profile, ReadBuf, Result};

/// A store of objects.
///
/// ```text
///   Backend: url, open -> Object: identity, read      all that a store must have
///     namespace -> Namespace: stat, list, rename ...   if its objects lie in a tree of names
///     writer    -> Write: open_write -> WriteObject    if they can be written
/// ```
///
/// Paths are relative, `/`-separated and normal (no `.`, `..` or empty parts); the empty path is
/// the root. If the URL names a single object, the root is that object. No path leads out of the
/// store, whatever links are in it.
///
/// A wrapper names the store [`below`](Self::below) and implements only what it changes: all else
/// forwards by default.
pub trait Backend: Debug + Send + Sync {
    /// The URL this store was opened with, without credentials; for messages.
    fn url(&self) -> &str;

    /// Opens an object for reading and fixes its identity and size. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>>;

    /// As [`open`](Self::open), for a caller that knows what it reads first. A store behind a
    /// network may then send fewer requests, or the same in fewer round trips. By default as
    /// `open`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<Arc<dyn Object>> {
        let _ = will_read;
        self.open(path)
    }

    /// Properties that the engine needs to use this store well. By default those of
    /// [`Profile::read_only`].
    fn profile(&self) -> Profile {
        match self.below() {
            Some(below) => below.profile(),
            None => Profile::read_only(self.url().split(':').next().unwrap_or_default()),
        }
    }

    /// The tree of names, if the store has one. Call it anew for each operation.
    fn namespace(&self) -> Option<&dyn Namespace> {
        self.below()?.namespace()
    }

    /// Writes, if the store accepts any.
    fn writer(&self) -> Option<&dyn Write> {
        self.below()?.writer()
    }

    /// Requests the root once, with the usual retries, and fails if it cannot be read. A mount
    /// calls it first, so that a wrong URL is an error. Returns a note on the store for users, if
    /// there is one, as a sentence without a capital and a full stop. Blocks.
    ///
    /// # Errors
    /// As [`Namespace::stat`] of the root. A store without a namespace has nothing to request (the
    /// default).
    fn probe(&self) -> Result<Option<String>> {
        match (self.below(), self.namespace()) {
            (Some(below), _) => below.probe(),
            (None, Some(names)) => names.stat(Path::new("")).map(|_| None),
            (None, None) => Ok(None),
        }
    }

    /// Makes the store keep names and versions, for all its users. Returns what of this it does, if
    /// it can keep names, even if the time to live is zero. By default forwards to the store below;
    /// a store without one keeps none.
    fn keep_names(&self, how: crate::KeepNames) -> Option<crate::KeepNames> {
        self.below()?.keep_names(how)
    }

    /// Forgets the version that the store keeps of `path`, unless a HEAD of it is younger than
    /// `age`: the next lookup or open requests it.
    fn forget_name(&self, path: &Path, age: Duration) {
        if let Some(below) = self.below() {
            below.forget_name(path, age);
        }
    }

    /// Counters of a disk cache in front of the store; `None` without one (the default).
    fn disk(&self) -> Option<crate::DiskStats> {
        self.below()?.disk()
    }

    /// Counters of requests over the network, and of failures; `None` for stores without a network
    /// (the default).
    fn network(&self) -> Option<crate::NetworkStats> {
        self.below()?.network()
    }

    /// The store that a wrapper forwards to by default; `None` for other stores (the default).
    fn below(&self) -> Option<&dyn Backend> {
        None
    }
}

/// What a caller reads first of an object that it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WillRead {
    /// Not known.
    #[default]
    Any,
    /// Nothing of the version that the store keeps ([`Backend::keep_names`]): the caller has its
    /// bytes. So the store need not compare that version.
    Nothing,
    /// The bytes `start..end`, as far as the object has them. The store may request them together
    /// with size and identity. Each of these bytes then belongs to one read, in order; other reads,
    /// also repeated ones, are requests of their own. Bytes that no read takes are dropped.
    First {
        /// First byte.
        start: u64,
        /// End of the range; `u64::MAX` for the end of the object.
        end: u64,
    },
    /// As `First`, the last bytes of the object.
    Last {
        /// How many.
        bytes: u64,
    },
}

impl WillRead {
    /// All of the object.
    pub const WHOLE: Self = Self::First { start: 0, end: u64::MAX };
    /// Its beginning: all of a small object, and the first reads of a larger one.
    pub const START: Self = Self::First { start: 0, end: crate::SMALL_BYTES };
}

/// An open object: bytes of a known size and identity.
pub trait Object: Debug + Send + Sync {
    /// Identity of this version of the object, as of `open`, with its size.
    fn identity(&self) -> &Identity;

    /// Size in bytes, as of `open`.
    fn size(&self) -> u64 {
        self.identity().size
    }

    /// Whether the store has just confirmed this version. If not, it is known from a listing or an
    /// earlier lookup, and the first read compares it. By default it has.
    fn is_confirmed(&self) -> bool {
        true
    }

    /// Starts reading `buf.len()` bytes at `offset` and returns without waiting for the store.
    ///
    /// The response comes through `sink`, on a thread of the backend, possibly before this call
    /// returns: any number of [`ReadSink::progress`] calls, then [`ReadSink::done`] exactly once,
    /// in every case. `done` returns the buffer; until then only the store accesses it. A read past
    /// the end of the object returns the bytes up to the end. `Ok(n)` with a smaller `n` is a short
    /// read: the store stopped early, and the caller requests the rest.
    ///
    /// If the object is no longer the version that was opened, the read fails with
    /// [`ErrorKind::Changed`]; one read never returns bytes of two versions.
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>);

    /// As [`read`](Self::read), for a caller that waits for the bytes in any case. The store may
    /// block this thread, where that saves thread switches. By default it does not.
    fn read_here(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.read(offset, buf, sink);
    }

    /// Passes bytes of this version that an earlier process has read, so that checksums of larger
    /// ranges can be verified when the rest is read. By default nothing is verified. May block.
    ///
    /// # Errors
    /// `Corrupt` if the store's checksums show that they are not the store's bytes.
    fn recall(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// The first data or hole at or after `offset`. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without holes (the default): then all is data. The errno `ENXIO` if
    /// none follows.
    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let _ = (offset, what);
        Err(Error::new(ErrorKind::Unsupported, "cannot look for holes: this store has none"))
    }

    /// Offset of the object on its device, in bytes, for stores with
    /// [`Profile::seeks`](crate::Profile::seeks). Used only to order requests, so a guess suffices,
    /// and objects may appear to overlap.
    fn place(&self) -> u64 {
        0
    }

    /// Reopens the object for reading, with its current identity and size, whatever its names are
    /// now; `None` where objects are found only by name (the default). Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        None
    }

    /// The file's attributes through the open handle, where the store is a file system.
    fn attributes(&self) -> Option<&dyn Attributes> {
        None
    }
}

/// Receives the progress of a read. Called on the backend's threads: be quick and never block.
///
/// Bytes that `progress` reported as final belong to the reader: the store must not access them
/// again. A sink that is dropped without `done` counts as a failed read. Memory that may still be
/// written after the end of the read is not returned: it is leaked to the store until the last
/// piece of the buffer is dropped.
pub trait ReadSink: Send {
    /// The first `bytes` bytes of the buffer are final. Grows from call to call.
    fn progress(&mut self, bytes: usize);

    /// The read ended: the first `n` bytes are final, or it failed. Returns the buffer.
    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>);

    /// When the read must have ended: a store behind a network then fails it as
    /// [`ErrorKind::TimedOut`]. Called when the read begins and at least once in each of the
    /// store's time-outs, since a speculative read may get a deadline later. None by default.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Becomes true when the read is no longer needed, if that can happen: then a store may drop
    /// it, with the sink. Called once, when the read begins.
    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}
