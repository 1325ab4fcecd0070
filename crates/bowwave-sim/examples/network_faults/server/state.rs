//! The objects of the server and their versions, and the names that it lists.

use bowwave_core::Instant;
use bowwave_core::network::Validators;

use super::{Behaviour, Fault};
use crate::counts::Counter;
use crate::run::{Context, LISTING_BYTES_MAX, Listed, Note, Precondition, SECOND};

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub(crate) etag: Option<String>,
    /// `Last-Modified`, in seconds.
    pub(crate) modified: Option<u64>,
    pub(crate) size: u64,
    pub(crate) removed: bool,
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
pub(crate) struct Object {
    pub(crate) versions: Vec<Version>,
    tags: Tags,
    dated: bool,
    shown: u32,
}

impl Object {
    pub(crate) fn draw(context: &mut Context<'_>) -> Self {
        let tags = context.pick(&[Tags::Strong, Tags::Strong, Tags::Weak, Tags::WeakLower, Tags::None]);
        let mut object = Self { versions: Vec::new(), tags, dated: context.chance(2, 3), shown: 0 };
        let size = draw_size(context);
        object.push(context, size, context.now.0 / SECOND - 100, false);
        object
    }

    /// Number of the current version.
    pub(crate) fn current(&self) -> u32 {
        self.versions.len() as u32 - 1
    }

    /// The current version.
    pub(crate) fn version(&self) -> &Version {
        &self.versions[self.current() as usize]
    }

    /// Whether the server sends validators of an earlier version.
    pub(crate) fn is_stale(&self) -> bool {
        self.shown != self.current()
    }

    /// The server sends the validators of the current version from now on.
    pub(crate) fn refresh(&mut self) {
        self.shown = self.current();
    }

    /// The validators that the server sends. The size is stale only beside a strong tag. Beside a
    /// date, a stale size would let versions of two sizes mix, undetectably.
    pub(crate) fn validators(&self) -> Validators {
        let (shown, current) = (&self.versions[self.shown as usize], self.version());
        let size = if self.tags == Tags::Strong { shown.size } else { current.size };
        Validators { etag: shown.etag.clone(), modified: shown.modified.map(date), size: Some(size) }
    }

    /// Whether the current version meets the condition of a request.
    pub(crate) fn meets(&self, precondition: Option<&Precondition>, matches_weakly: bool) -> bool {
        let version = self.version();
        match precondition {
            None => true,
            Some(Precondition::Match(tag)) => {
                let may_match = matches_weakly || self.tags == Tags::Strong;
                may_match && version.etag.as_ref() == Some(tag)
            }
            Some(Precondition::UnmodifiedSince(then)) => {
                version.modified.is_none_or(|modified| seconds(then).is_none_or(|then| modified <= then))
            }
        }
    }

    /// A new version, or none. `backwards`: it may be older than the one before, as a file that was
    /// moved here.
    pub(crate) fn replace(&mut self, context: &mut Context<'_>, number: u32, backwards: bool) {
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
        context.count(if removed { Counter::Removed } else { Counter::Replaced });
        if self.dated && (new_size, self.version().modified) == (size, second) && !removed {
            context.count(Counter::ReplacedUnseen);
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
pub(crate) fn date(seconds: u64) -> String {
    format!("second {seconds}")
}

/// The second that a date names.
pub(crate) fn seconds(date: &str) -> Option<u64> {
    date.strip_prefix("second ")?.parse().ok()
}

fn draw_size(context: &mut Context<'_>) -> u64 {
    let largest = context.pick(&[100, 64 << 10, 1 << 20, 8 << 20]);
    context.between(1, largest)
}

/// Most names.
const NAMES_MAX: u32 = 40;
/// Names from here on are made up by a server that floods.
const FLOOD: u32 = 1 << 16;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 120;

/// Which names there are, and which there were.
#[derive(Debug)]
pub(crate) struct Names {
    present: Vec<bool>,
    /// When a name came or went.
    changes: Vec<(Instant, u32)>,
    /// Makes tokens differ.
    nonce: u32,
}

impl Names {
    pub(crate) fn draw(context: &mut Context<'_>) -> Self {
        let names = context.random.below(u64::from(NAMES_MAX) + 1);
        let present = (0..NAMES_MAX).map(|name| u64::from(name) < names || context.chance(1, 4)).collect();
        Self { present, changes: Vec::new(), nonce: 0 }
    }

    /// A name comes or goes.
    pub(crate) fn change(&mut self, context: &mut Context<'_>) {
        let name = context.random.below(u64::from(NAMES_MAX)) as u32;
        self.present[name as usize] ^= true;
        self.changes.push((context.now, name));
    }

    /// Names that were there all the time since `begun`, and those that were at any time.
    pub(crate) fn between(&self, begun: Instant) -> (Vec<u32>, Vec<u32>) {
        let (mut always, mut ever) = (self.present.clone(), self.present.clone());
        for &(_, name) in self.changes.iter().filter(|(at, _)| *at >= begun) {
            (always[name as usize], ever[name as usize]) = (false, true);
        }
        let names =
            |there: &[bool]| (0..NAMES_MAX).filter(|&name| there[name as usize]).collect::<Vec<u32>>();
        (names(&always), names(&ever))
    }

    /// The page of `token`. A token says where the page starts, and whether the server is stuck
    /// there.
    pub(crate) fn page(
        &mut self,
        context: &mut Context<'_>,
        behaviour: &Behaviour,
        token: Option<&str>,
        fault: Option<Fault>,
    ) -> Listed {
        self.nonce += 1;
        let nonce = self.nonce;
        let (kind, from) = token.map_or((None, 0), parse);
        let kind = match fault {
            Some(Fault::NewTokens) => Some('e'),
            Some(Fault::Flood) => Some('f'),
            _ => kind,
        };
        if let Some(kind) = kind {
            let first = FLOOD + nonce * behaviour.page_entries;
            let names =
                if kind == 'f' { (first..first + behaviour.page_entries).collect() } else { Vec::new() };
            let truncated = behaviour.says_truncated.then_some(true);
            let bytes = names.len() as u64 * ENTRY_BYTES + 100;
            let next = Some(format!("{kind}{from}#{nonce}"));
            return Listed { names, bytes, truncated, next, omits: false };
        }
        self.honest(context, behaviour, token, from, fault)
    }

    fn honest(
        &self,
        context: &mut Context<'_>,
        behaviour: &Behaviour,
        token: Option<&str>,
        from: u32,
        fault: Option<Fault>,
    ) -> Listed {
        let nonce = self.nonce;
        let most = if fault == Some(Fault::EmptyPage) { 0 } else { behaviour.page_entries as usize };
        let there = (from..NAMES_MAX).filter(|&name| self.present[name as usize]);
        let mut names: Vec<u32> = there.take(most).collect();
        let mut place = names.last().map_or(from, |last| last + 1);
        let mut more = (place..NAMES_MAX).any(|name| self.present[name as usize]);
        let mut omits = false;
        let mut bytes = names.len() as u64 * ENTRY_BYTES + 100;
        match fault {
            Some(Fault::Omission) => omits = names.pop().is_some(),
            Some(Fault::LargePage) => bytes += LISTING_BYTES_MAX,
            Some(Fault::Overlap) if more => place = place.saturating_sub(context.between(1, 2) as u32),
            Some(Fault::FalseEnd) => (omits, more) = (more, false),
            _ => {}
        }
        // Azure has an empty element on the last page.
        let end = context.chance(1, 2).then(String::new);
        let next = if more { Some(format!("k{place}#{nonce}")) } else { end };
        let says = |truncated| behaviour.says_truncated.then_some(truncated);
        let (truncated, next) = match fault {
            Some(Fault::RepeatedToken) => {
                (says(true), Some(token.map_or_else(|| "k0#0".to_owned(), ToOwned::to_owned)))
            }
            Some(Fault::NoToken) => (Some(true), None),
            // Without the flag, a token means that more follows.
            Some(Fault::FalseToken | Fault::FalseEnd) if !more => {
                (says(false), behaviour.says_truncated.then(|| format!("k{place}#{nonce}")))
            }
            _ => (says(more), next),
        };
        Listed { names, bytes, truncated, next, omits }
    }
}

/// What kind of page a token leads to, and where it starts.
fn parse(token: &str) -> (Option<char>, u32) {
    let (kind, rest) = token.split_at(1);
    let from = rest.split('#').next().and_then(|from| from.parse().ok()).unwrap_or_default();
    (kind.chars().next().filter(|&kind| kind != 'k'), from)
}
