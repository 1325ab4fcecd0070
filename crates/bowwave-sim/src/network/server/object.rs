//! An object and its versions.

use bowwave_core::network::Validators;

use crate::network::context::{Context, Note, SECOND};
use crate::network::met::Met;
use crate::network::wire::Guard;

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::network) struct Version {
    pub(in crate::network) etag: Option<String>,
    /// `Last-Modified`, in seconds.
    pub(in crate::network) modified: Option<u64>,
    pub(in crate::network) size: u64,
    pub(in crate::network) removed: bool,
}

/// Which tags the versions of an object have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tags {
    Strong,
    /// Versions may share them.
    Weak,
    /// Weak, with the mark of weakness in lower case, as some servers have it.
    WeakLower,
    None,
}

/// An object: its history, and the version whose validators the server sends.
#[derive(Debug)]
pub(in crate::network) struct Object {
    pub(in crate::network) versions: Vec<Version>,
    tags: Tags,
    dated: bool,
    shown: u32,
}

impl Object {
    pub(super) fn draw(context: &mut Context<'_>) -> Self {
        let tags = context.pick(&[Tags::Strong, Tags::Strong, Tags::Weak, Tags::WeakLower, Tags::None]);
        let mut object = Self { versions: Vec::new(), tags, dated: context.chance(2, 3), shown: 0 };
        let size = draw_size(context);
        object.push(context, size, context.now.0 / SECOND - 100, false);
        object
    }

    /// Number of the current version.
    pub(in crate::network) fn current(&self) -> u32 {
        self.versions.len() as u32 - 1
    }

    /// The current version.
    pub(in crate::network) fn version(&self) -> &Version {
        &self.versions[self.current() as usize]
    }

    /// Whether the server sends validators of an earlier version.
    pub(super) fn is_stale(&self) -> bool {
        self.shown != self.current()
    }

    /// The server sends the validators of the current version from now on.
    pub(super) fn refresh(&mut self) {
        self.shown = self.current();
    }

    /// The validators that the server sends. The size is stale only beside a strong tag. Beside a date, a stale size would let
    /// versions of two sizes mix, undetectably.
    pub(super) fn validators(&self) -> Validators {
        let (shown, current) = (&self.versions[self.shown as usize], self.version());
        let size = if self.tags == Tags::Strong { shown.size } else { current.size };
        Validators { etag: shown.etag.clone(), modified: shown.modified.map(date), size: Some(size) }
    }

    /// Whether the current version meets the condition of a request.
    pub(super) fn meets(&self, guard: Option<&Guard>, matches_weakly: bool) -> bool {
        let version = self.version();
        match guard {
            None => true,
            Some(Guard::Match(tag)) => {
                let may_match = matches_weakly || self.tags == Tags::Strong;
                may_match && version.etag.as_ref() == Some(tag)
            }
            Some(Guard::UnmodifiedSince(then)) => {
                version.modified.is_none_or(|modified| seconds(then).is_none_or(|then| modified <= then))
            }
        }
    }

    /// A new version, or none. `backwards`: it may be older than the one before, as a file that was moved here.
    pub(super) fn replace(&mut self, context: &mut Context<'_>, number: u32, backwards: bool) {
        let (size, second, was_removed) = {
            let version = self.version();
            (version.size, version.modified, version.removed)
        };
        let mut now = context.now.0 / SECOND;
        if backwards && context.chance(1, 8) {
            now -= context.between(0, 20);
        }
        let new_size = if context.chance(2, 3) { size } else { draw_size(context) };
        let removed = !was_removed && backwards && context.chance(1, 12);
        self.push(context, new_size, now, removed);
        context.met(if removed { Met::Removed } else { Met::Replaced });
        if self.dated && (new_size, self.version().modified) == (size, second) && !removed {
            context.met(Met::ReplacedUnseen);
        }
        context.note(&Note::Replaced { object: number, version: self.current(), now: self.version() });
    }

    fn push(&mut self, context: &mut Context<'_>, size: u64, second: u64, removed: bool) {
        let version = self.versions.len();
        let shared = context.chance(1, 2);
        let before = self.versions.last().and_then(|before| before.etag.clone());
        let etag = match (self.tags, before) {
            (Tags::None, _) => None,
            (Tags::Strong, _) => Some(format!("\"{version}\"")),
            (_, Some(before)) if shared => Some(before),
            (Tags::Weak, _) => Some(format!("W/\"{version}\"")),
            (Tags::WeakLower, _) => Some(format!("w/\"{version}\"")),
        };
        self.versions.push(Version { etag, modified: self.dated.then_some(second), size, removed });
    }
}

/// A date, as a header has it.
pub(in crate::network) fn date(seconds: u64) -> String {
    format!("second {seconds}")
}

/// The second that a date names.
pub(in crate::network) fn seconds(date: &str) -> Option<u64> {
    date.strip_prefix("second ")?.parse().ok()
}

fn draw_size(context: &mut Context<'_>) -> u64 {
    let largest = context.pick(&[100, 64 << 10, 1 << 20, 8 << 20]);
    context.between(1, largest)
}
