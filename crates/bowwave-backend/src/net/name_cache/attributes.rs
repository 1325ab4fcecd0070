//! Attributes of objects that a new listing leaves as they are known.

use std::time::{Duration, SystemTime};

use super::super::plain::Kept;
use super::Known;

/// A listing shows the version whose attributes are known. Two versions with one tag and one time
/// have other attributes only if both were stored within a second; so not if that has just passed.
pub(super) fn keep_attributes(old: &Known, new: &mut Known) {
    let (Known::Object(old), Known::Object(new)) = (old, new) else { return };
    let is_settled = |time: SystemTime| time.elapsed().is_ok_and(|age| age > JUST_STORED);
    if (&old.etag, old.modified) == (&new.etag, new.modified) && old.modified.is_some_and(is_settled) {
        if new.kept == Kept::Unknown {
            new.kept = old.kept.clone();
        }
        if new.head.is_none() {
            new.head = old.head.clone();
        }
    }
}

/// Age at which the time of an object tells its versions apart.
const JUST_STORED: Duration = Duration::from_secs(3);
