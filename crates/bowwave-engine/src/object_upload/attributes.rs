//! Attributes of an object during its upload: the next version is published with them.

use std::ffi::OsStr;
use std::time::SystemTime;

use bowwave_backend::{Entry, EntryKind, SetAttributes, SetTime};

use super::{ObjectUpload, State};
use crate::error::Result;

impl ObjectUpload {
    /// Changes attributes of the version being written.
    pub(crate) fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        if !self.is_pending() {
            let what = "has no unpublished writes: set its attributes by path, not through this handle";
            return Err(self.unsupported(what).into());
        }
        let mut state = self.state.lock();
        let set = |time: SetTime| match time {
            SetTime::Now => SetTime::At(SystemTime::now()),
            at @ SetTime::At(_) => at,
        };
        let before = state.attributes;
        let attributes = SetAttributes {
            mode: changes.mode.or(before.mode),
            uid: changes.uid.or(before.uid),
            gid: changes.gid.or(before.gid),
            accessed: None,
            modified: changes.modified.map(set).or(before.modified),
        };
        self.object.set_next_attributes(&attributes)?;
        state.attributes = attributes;
        Ok(())
    }

    /// Describes the version being written.
    pub(crate) fn describe(&self, name: &OsStr) -> Entry {
        let state = self.state.lock();
        let modified = match state.attributes.modified {
            Some(SetTime::At(time)) => Some(time),
            _ => state.written_at,
        };
        let SetAttributes { mode, uid, gid, .. } = state.attributes;
        Entry { size: state.end, modified, mode, uid, gid, ..Entry::new(name, EntryKind::File) }
    }

    /// The bytes change, so a time set earlier is no longer the time of the last change.
    pub(super) fn forget_time(&self, state: &mut State) {
        state.written_at = Some(SystemTime::now());
        if state.attributes.modified.take().is_some() {
            // The object accepted a time, so it also accepts none.
            self.object.set_next_attributes(&state.attributes).ok();
        }
    }
}
