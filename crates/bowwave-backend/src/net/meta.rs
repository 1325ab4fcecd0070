//! What a store tells of one object.

use std::time::SystemTime;

use bowwave_core::network::Validators;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use object_store::path::Path as Key;

use super::attributes::Stored;
use super::checksum::Checksums;
use super::validator::{identity, rfc1123, text, validators};
use crate::{EntryKind, Identity};

/// An object of a cloud, as a HEAD, a listing or our own upload has it.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) key: Key,
    pub(super) size: u64,
    /// With the size.
    pub(super) version: Validators,
    /// Time of modification, for programs.
    pub(super) modified: Option<SystemTime>,
    /// `Content-Encoding`, which of object stores is a label: the bytes are as they were stored.
    pub(super) coding: Option<String>,
    pub(super) checksums: Checksums,
    /// All headers of a HEAD, where attributes of files are stored in them.
    pub(super) headers: HeaderMap,
}

impl Meta {
    /// What the headers of a response to HEAD say; `None` without a size.
    pub(super) fn of(key: Key, headers: &HeaderMap) -> Option<Self> {
        let size = text(headers, CONTENT_LENGTH)?.trim().parse().ok()?;
        let version = Validators { size: Some(size), ..validators(headers) };
        let modified = version.modified.as_deref().and_then(rfc1123);
        let (coding, checksums) = (text(headers, CONTENT_ENCODING), Checksums::of(headers));
        Some(Self { key, size, version, modified, coding, checksums, headers: HeaderMap::new() })
    }

    /// The attributes that are stored with the object.
    pub(super) fn stored(&self) -> Stored {
        Stored::of(&self.headers, EntryKind::File)
    }

    pub(super) fn identity(&self) -> Identity {
        identity(&self.version, self.modified)
    }
}
