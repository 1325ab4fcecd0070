//! Whether a listing that comes in pages makes progress.

use alloc::collections::BTreeSet;

use crate::Instant;

/// Bounds of one listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingLimits {
    /// Most consecutive pages without a new entry. Stores return such pages while they skip deleted
    /// keys.
    pub idle_pages_max: u32,
    /// Most entries. Each takes some hundred bytes of memory.
    pub entries_max: u64,
    /// Most bytes of all pages together.
    pub bytes_max: u64,
    /// When the listing must have ended.
    pub deadline: Instant,
}

/// One page as the store sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Entries that no earlier page had.
    pub new_entries: u64,
    /// Bytes of the page.
    pub bytes: u64,
    /// Whether the store announces more entries; `None` where it does not say (Azure).
    pub truncated: Option<bool>,
    /// The token of the next page.
    pub next: Option<&'a str>,
}

/// Why a listing is given up. A partial listing is never returned: programs take missing names for
/// removed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingEnd {
    /// The store sent the token of an earlier page again.
    Repeated,
    /// Too many consecutive pages brought no new entry.
    Idle {
        /// Number of such pages.
        pages: u32,
    },
    /// The store announces more entries, but sends no token.
    NoToken,
    /// There are more entries than the bound.
    Entries(u64),
    /// The pages are larger than the bound.
    Bytes(u64),
    /// It took longer than the bound.
    Time,
}

/// The pages of one listing so far.
#[derive(Clone, Debug)]
pub struct Listing {
    limits: ListingLimits,
    /// Hashes of the tokens. Two tokens that share one end the listing with an error, once in 10^13
    /// listings of 1000 pages.
    tokens: BTreeSet<u64>,
    idle: u32,
    entries: u64,
    bytes: u64,
}

impl Listing {
    /// A listing without pages.
    pub fn new(limits: ListingLimits) -> Self {
        Self { limits, tokens: BTreeSet::new(), idle: 0, entries: 0, bytes: 0 }
    }

    /// Adds a page. Returns whether to request the next one.
    ///
    /// # Errors
    /// If the listing must be given up.
    pub fn page(&mut self, now: Instant, page: Page<'_>) -> Result<bool, ListingEnd> {
        self.entries = self.entries.saturating_add(page.new_entries);
        self.bytes = self.bytes.saturating_add(page.bytes);
        if self.entries > self.limits.entries_max {
            return Err(ListingEnd::Entries(self.limits.entries_max));
        }
        if self.bytes > self.limits.bytes_max {
            return Err(ListingEnd::Bytes(self.limits.bytes_max));
        }
        let next = page.next.filter(|token| !token.is_empty());
        let token = match (page.truncated, next) {
            // The store's statement decides, even if it also sends a token.
            (Some(false), _) | (None, None) => return Ok(false),
            (Some(true), None) => return Err(ListingEnd::NoToken),
            (_, Some(token)) => token,
        };
        if !self.tokens.insert(hash(token)) {
            return Err(ListingEnd::Repeated);
        }
        self.idle = if page.new_entries > 0 { 0 } else { self.idle + 1 };
        if self.idle > self.limits.idle_pages_max {
            return Err(ListingEnd::Idle { pages: self.idle });
        }
        if now >= self.limits.deadline {
            return Err(ListingEnd::Time);
        }
        Ok(true)
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
