//! The names of the server, and its pages.

use bowwave_core::Instant;

use super::fault::Fault;
use super::{Character, Context};
use crate::network::settings::LISTING_BYTES_MAX;
use crate::network::wire::Listed;

/// Most names.
const NAMES_MAX: u32 = 40;
/// Names from here on are made up by a server that floods.
const FLOOD: u32 = 1 << 16;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 120;

/// Which names there are, and which there were.
#[derive(Debug)]
pub(in crate::network) struct Names {
    present: Vec<bool>,
    /// When a name came or went.
    changes: Vec<(Instant, u32)>,
    /// Makes tokens differ.
    nonce: u32,
}

impl Names {
    pub(super) fn draw(context: &mut Context<'_>) -> Self {
        let names = context.random.below(u64::from(NAMES_MAX) + 1);
        let present = (0..NAMES_MAX).map(|name| u64::from(name) < names || context.chance(1, 4)).collect();
        Self { present, changes: Vec::new(), nonce: 0 }
    }

    /// A name comes or goes.
    pub(super) fn change(&mut self, context: &mut Context<'_>) {
        let name = context.random.below(u64::from(NAMES_MAX)) as u32;
        self.present[name as usize] ^= true;
        self.changes.push((context.now, name));
    }

    /// Names that were there all the time since `begun`, and those that were at any time.
    pub(super) fn between(&self, begun: Instant) -> (Vec<u32>, Vec<u32>) {
        let (mut always, mut ever) = (self.present.clone(), self.present.clone());
        for &(_, name) in self.changes.iter().filter(|(at, _)| *at >= begun) {
            (always[name as usize], ever[name as usize]) = (false, true);
        }
        let names =
            |there: &[bool]| (0..NAMES_MAX).filter(|&name| there[name as usize]).collect::<Vec<u32>>();
        (names(&always), names(&ever))
    }

    /// The page of `token`. A token says where the page starts, and whether the server is stuck there.
    pub(super) fn page(
        &mut self,
        context: &mut Context<'_>,
        character: &Character,
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
            let first = FLOOD + nonce * character.page_entries;
            let names =
                if kind == 'f' { (first..first + character.page_entries).collect() } else { Vec::new() };
            let truncated = character.says_truncated.then_some(true);
            let bytes = names.len() as u64 * ENTRY_BYTES + 100;
            let next = Some(format!("{kind}{from}#{nonce}"));
            return Listed { names, bytes, truncated, next, omits: false };
        }
        self.honest(context, character, token, from, fault)
    }

    fn honest(
        &self,
        context: &mut Context<'_>,
        character: &Character,
        token: Option<&str>,
        from: u32,
        fault: Option<Fault>,
    ) -> Listed {
        let nonce = self.nonce;
        let most = if fault == Some(Fault::EmptyPage) { 0 } else { character.page_entries as usize };
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
        let says = |truncated| character.says_truncated.then_some(truncated);
        let (truncated, next) = match fault {
            Some(Fault::RepeatedToken) => {
                (says(true), Some(token.map_or_else(|| "k0#0".to_owned(), ToOwned::to_owned)))
            }
            Some(Fault::NoToken) => (Some(true), None),
            // Without the flag, a token means that more follows.
            Some(Fault::FalseToken | Fault::FalseEnd) if !more => {
                (says(false), character.says_truncated.then(|| format!("k{place}#{nonce}")))
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
