//! Which version of an object a response is of.

use alloc::string::String;

/// What tells one version of an object from another (RFC 9110, section 8.8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Validators {
    /// Entity tag as the server sent it, with its quotes and the mark of weakness.
    pub etag: Option<String>,
    /// `Last-Modified` as the server sent it.
    pub modified: Option<String>,
    /// Size in bytes.
    pub size: Option<u64>,
}

/// The condition that makes a server refuse a request for another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// `If-Match` with a strong tag.
    IfMatch(&'a str),
    /// `If-Unmodified-Since` with the second after this time.
    ///
    /// The header has whole seconds. A server that compares the fraction of a second of its file
    /// system with it would refuse the very version that has this `Last-Modified`.
    IfUnmodifiedSinceNext(&'a str),
}

/// How well versions can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Not at all, except by size: bytes of two versions of one size may mix unnoticed.
    None,
    /// By the time of modification, in whole seconds: two versions of one size and one second may
    /// mix.
    Dated,
    /// By a strong entity tag: bytes of two versions never mix.
    Strong,
}

/// Why a response is not of the version that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is of another version.
    Changed,
    /// It lacks the validators that the version was opened with, so nothing shows which version it
    /// is of.
    Missing,
}

impl Validators {
    /// The condition to send with a request for this version.
    pub fn condition(&self) -> Option<Condition<'_>> {
        match (self.strong(), &self.modified) {
            (Some(etag), _) => Some(Condition::IfMatch(etag)),
            // A weak tag never matches: it does not promise equal bytes.
            (None, Some(modified)) => Some(Condition::IfUnmodifiedSinceNext(modified)),
            (None, None) => None,
        }
    }

    /// How well this version can be told from others.
    pub fn strength(&self) -> Strength {
        match (self.strong(), &self.modified) {
            (Some(_), _) => Strength::Strong,
            (None, Some(_)) => Strength::Dated,
            (None, None) => Strength::None,
        }
    }

    /// Checks that a response with these `found` validators is of this version: servers may ignore
    /// conditions. All validators that both have must agree, and the one that identifies this
    /// version must be there.
    ///
    /// # Errors
    /// [`Difference`] says which of the two does not hold.
    pub fn check(&self, found: &Self) -> Result<(), Difference> {
        let differs =
            |then: &Option<String>, now: &Option<String>| matches!((then, now), (Some(a), Some(b)) if a != b);
        let sizes_differ = matches!((self.size, found.size), (Some(then), Some(now)) if then != now);
        if sizes_differ || differs(&self.etag, &found.etag) || differs(&self.modified, &found.modified) {
            return Err(Difference::Changed);
        }
        let proven = match self.strength() {
            Strength::Strong => found.etag.is_some(),
            Strength::Dated => found.modified.is_some(),
            Strength::None => true,
        };
        if proven { Ok(()) } else { Err(Difference::Missing) }
    }

    /// The tag, if it is strong.
    pub fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !is_weak(etag))
    }
}

/// Whether an entity tag is weak, in the spelling of any server: `W/` is case-sensitive, but
/// servers are not.
fn is_weak(etag: &str) -> bool {
    etag.trim_start().get(..2).is_some_and(|start| start.eq_ignore_ascii_case("w/"))
}
