//! Whether the objects of a bucket have stored attributes, judged by those that were looked up.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::meta::Stored;

/// Attributes of a file that are stored in the metadata of its object, as far as they are known: no
/// listing has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Kept {
    #[default]
    Unknown,
    None,
    Some(Box<Stored>),
}

impl Kept {
    pub(super) fn new(stored: Stored) -> Self {
        if stored == Stored::default() { Self::None } else { Self::Some(Box::new(stored)) }
    }

    /// The attributes, if they are known.
    pub(super) fn stored(&self) -> Option<Stored> {
        match self {
            Self::Unknown => None,
            Self::None => Some(Stored::default()),
            Self::Some(stored) => Some(**stored),
        }
    }
}

/// What responses have shown so far.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// [`KeepNames::assumes_plain`](crate::KeepNames::assumes_plain).
    assumes: AtomicBool,
    /// Responses of objects without stored attributes.
    without: AtomicU32,
    /// An object or a directory has stored attributes.
    is_described: AtomicBool,
}

impl Plain {
    /// Whether the bucket may be taken to have no stored attributes.
    pub(super) fn assume(&self, may: bool) {
        self.assumes.store(may, Ordering::Relaxed);
    }

    /// Whether names whose attributes are unknown are taken to have none.
    pub(super) fn is_plain(&self) -> bool {
        self.assumes.load(Ordering::Relaxed)
            && self.without.load(Ordering::Relaxed) >= WITHOUT_MIN
            && !self.is_described.load(Ordering::Relaxed)
    }

    /// A response shows what is stored with an object.
    pub(super) fn note(&self, kept: &Kept) {
        match kept {
            Kept::Unknown => {}
            Kept::None => {
                self.without.fetch_add(1, Ordering::Relaxed);
            }
            Kept::Some(_) => self.note_described(),
        }
    }

    /// Something has stored attributes.
    pub(super) fn note_described(&self) {
        self.is_described.store(true, Ordering::Relaxed);
    }
}

/// Objects without stored attributes after which the others are taken to have none. More: more
/// requests for `ls -l`. Fewer: a bucket of which some objects have attributes shows them late.
const WITHOUT_MIN: u32 = 8;
