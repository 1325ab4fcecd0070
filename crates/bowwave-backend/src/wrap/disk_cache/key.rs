//! The key of a version of an object: its location, and its version.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::segment::PAGE;
use crate::Identity;

/// A version of an object in the cache.
///
/// A strong entity tag distinguishes any two versions. A weak one (`W/"…"`) promises no equal
/// bytes, and text without quotes is no entity tag; both count as absent. Then the time of
/// modification is used, once it is [`SETTLED`].
#[derive(Clone, Debug)]
pub(super) struct Key {
    text: String,
    /// Bytes of the object.
    size: u64,
    /// The time that distinguishes versions, without a strong entity tag.
    modified: Option<SystemTime>,
}

/// Age at which a version can be distinguished from the next one by its time.
pub(super) const SETTLED: Duration = Duration::from_secs(2);
/// Most bytes of the text: with a segment's number and a header, it fits in a page.
const TEXT_MAX: usize = PAGE as usize - 16 - 24;

impl Key {
    /// The key of the object at `path` of `source`; `None` if its version is unknown, or the names
    /// are too long.
    pub(super) fn new(source: &str, path: &Path, identity: &Identity) -> Option<Self> {
        let modified = match strong(identity.etag.as_deref()) {
            Some(_) => None,
            None => Some(modified(identity)?),
        };
        let text = format!(
            "{source}\n{path:?}\n{:?} {:?} {:?} {:?} {}",
            identity.etag, identity.modified_ns, identity.device, identity.inode, identity.size
        );
        (text.len() <= TEXT_MAX).then_some(Self { text, size: identity.size, modified })
    }

    /// Whether this version can be distinguished from one written now.
    pub(super) fn is_settled(&self) -> bool {
        self.modified.is_none_or(|modified| modified.elapsed().is_ok_and(|age| age > SETTLED))
    }

    /// The text that identifies a segment of the object, and the names of its subdirectory and
    /// file.
    pub(super) fn place(&self, segment: u64) -> (String, String, String) {
        let text = format!("{}\n{segment}", self.text);
        let mut name = digest(&text);
        let file = name.split_off(2);
        (text, name, file)
    }

    /// The `len` bytes at `offset` as whole pages; the end of the object also ends a page.
    pub(super) fn pages(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(len as u64)?.min(self.size);
        let whole = offset.is_multiple_of(PAGE) && (end.is_multiple_of(PAGE) || end == self.size);
        (whole && offset < end).then_some(offset..end)
    }
}

/// Identity of a store in keys: its shown URL, and a digest of the hidden parts except the
/// password.
///
/// Stores show their URL without user, password and query, and without an endpoint that replaces
/// the cloud's own. Objects of stores that differ only in these may have equal names and entity
/// tags.
pub(super) fn source(shown: &str, opened: &str, endpoint: Option<&str>) -> String {
    let rest = opened.split_once("://").map_or("", |(_, rest)| rest);
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(host);
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user.split(':').next().unwrap_or(user));
    let query = path.split_once('?').map_or("", |(_, query)| query);
    match (user, query, endpoint) {
        ("", "", None) => shown.to_owned(),
        hidden => format!("{shown}\n{}", digest(&format!("{hidden:?}"))),
    }
}

/// The first 128 bits of the SHA-256 of a text, in hexadecimal.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// An entity tag, if it is strong.
fn strong(etag: Option<&str>) -> Option<&str> {
    etag.filter(|etag| etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"'))
}

/// When a version was written, according to the store.
fn modified(identity: &Identity) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(u64::try_from(identity.modified_ns?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(etag: Option<&str>, modified_ns: Option<i128>) -> Identity {
        Identity { etag: etag.map(str::to_owned), modified_ns, ..Identity::default() }
    }

    fn key(etag: Option<&str>, modified_ns: Option<i128>) -> Option<Key> {
        Key::new("x:", Path::new("a"), &identity(etag, modified_ns))
    }

    #[test]
    fn an_object_is_kept_only_if_its_version_can_be_told() {
        assert!(key(None, None).is_none());
        assert!(key(Some("yesterday"), None).is_none(), "text that a server sent in place of a time");
        assert!(key(None, Some(-1)).is_none(), "a time that no clock of ours can compare");
        let long = Key::new("x:", Path::new(&"a".repeat(5000)), &identity(Some("\"e\""), None));
        assert!(long.is_none(), "a key that does not fit in a page");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
        let now = i128::try_from(now).expect("before 10^21");
        let settled = |etag, modified_ns| key(etag, modified_ns).expect("a version").is_settled();
        assert!(!settled(None, Some(now)), "changed just now");
        assert!(!settled(None, Some(now + 3_600_000_000_000)), "a time in the future");
        assert!(settled(None, Some(now - 3_000_000_000)));
        assert!(settled(Some("\"e\""), Some(now)), "a strong entity tag tells any two versions apart");
    }

    #[test]
    fn a_weak_entity_tag_is_no_key_without_an_old_modification_time() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
        let now = i128::try_from(now).expect("before 10^21");
        for weak in ["W/\"e\"", "w/\"e\"", "e", "\"", ""] {
            assert!(key(Some(weak), None).is_none(), "{weak}");
            assert!(!key(Some(weak), Some(now)).expect("it has a time").is_settled(), "{weak}");
            assert!(
                key(Some(weak), Some(now - 3_000_000_000)).expect("it has a time").is_settled(),
                "{weak}"
            );
        }
    }

    #[test]
    fn stores_that_differ_in_what_their_url_hides_have_different_keys_and_no_key_shows_it() {
        let of = |opened: &str, endpoint| source("shown", opened, endpoint);
        let urls =
            ["https://h/x", "https://h/x?file=a", "https://h/x?file=b", "https://me:secret@h/x?file=b"];
        let mut sources: Vec<_> = urls.iter().map(|url| of(url, None)).collect();
        sources.extend([of("s3://b/x", Some("http://one")), of("s3://b/x", Some("http://other"))]);
        for (index, one) in sources.iter().enumerate() {
            assert!(sources[..index].iter().all(|other| other != one), "{sources:?}");
            assert!(!["file", "secret", "one"].iter().any(|part| one.contains(part)), "{one}");
        }
        assert_eq!(
            of("https://me:secret@h/x", None),
            of("https://me:changed@h/x", None),
            "a password changes"
        );
        assert_eq!(of("/data/what?", None), "shown", "a path hides nothing");
    }
}
