//! Listings: pages until the server says that none follows; and what their entries must be.

use std::collections::BTreeSet;

use bowwave_core::network::{ListingLimits, Page};

use super::*;
use crate::run::{ENTRIES_MAX, LISTING_BYTES_MAX};

/// A listing that took too long.
pub(crate) const TOO_SLOW: &str = "too slow";

/// A listing.
#[derive(Debug)]
pub(crate) struct Entries {
    listing: Listing,
    deadline: Instant,
    names: BTreeSet<u32>,
    /// What is returned, in the order of the pages.
    returned: Vec<u32>,
    /// Pages in a row without a new entry.
    idle: u32,
    /// Bytes of all pages.
    bytes: u64,
    /// Tokens that were sent.
    tokens: BTreeSet<String>,
    /// The server has left out entries: no client can see it.
    omits: bool,
}

impl Entries {
    pub(crate) fn new(settings: &Settings, defect: Option<Defect>, now: Instant) -> Self {
        let deadline = Instant(now.0 + settings.listing_ns);
        let unbounded = defect == Some(Defect::IdleUnbounded);
        let limits = ListingLimits {
            idle_pages_max: if unbounded { u32::MAX } else { settings.idle_pages_max },
            entries_max: ENTRIES_MAX,
            bytes_max: LISTING_BYTES_MAX,
            deadline,
        };
        Self {
            listing: Listing::new(limits),
            deadline,
            names: BTreeSet::new(),
            returned: Vec::new(),
            idle: 0,
            bytes: 0,
            tokens: BTreeSet::new(),
            omits: false,
        }
    }
}

impl Client {
    /// Requests a page. Its budget ends with the listing's.
    pub(crate) fn next_page(&mut self, net: &mut Net<'_>, call: u32, token: Option<String>) {
        let Kind::List(entries) = &self.calls[call as usize].kind else { return };
        let left = entries.deadline.0.saturating_sub(net.context.now.0);
        let budget_ns = self.settings.retry.budget_ns.min(left);
        let limits = RetryLimits { budget_ns, ..self.settings.retry };
        self.task(net, call, Goal::Page { token }, limits);
    }

    /// A page has arrived.
    pub(crate) fn page(&mut self, net: &mut Net<'_>, call: u32, page: &Listed) {
        let (twice, partial) = (self.has(Defect::ListedTwice), self.has(Defect::PartialListing));
        let idle_max = self.settings.idle_pages_max;
        let Kind::List(entries) = &mut self.calls[call as usize].kind else { return };
        let mut new_entries = 0;
        for &name in &page.names {
            let is_new = entries.names.insert(name);
            new_entries += u64::from(is_new);
            if is_new || twice {
                entries.returned.push(name);
            }
        }
        entries.omits |= page.omits;
        entries.idle = if new_entries > 0 { 0 } else { entries.idle + 1 };
        let Listed { bytes, truncated, ref next, .. } = *page;
        let step = entries
            .listing
            .page(net.context.now, Page { new_entries, bytes, truncated, next: next.as_deref() });
        entries.bytes += bytes;
        let too_many = entries.names.len() as u64 > ENTRIES_MAX || entries.bytes > LISTING_BYTES_MAX;
        if step.is_ok() && too_many {
            let names = entries.names.len();
            net.context.violated(|| format!("call {call}: {names} entries, {} bytes", entries.bytes));
        }
        match step {
            Ok(true) => {
                if truncated == Some(false) {
                    net.context.violated(|| format!("call {call}: continues behind the last page"));
                }
                if !entries.tokens.insert(next.clone().unwrap_or_default()) {
                    net.context.violated(|| format!("call {call}: sends token {next:?} again"));
                }
                if entries.idle > idle_max {
                    net.context
                        .violated(|| format!("call {call}: continues after {} empty pages", entries.idle));
                }
                self.next_page(net, call, next.clone());
            }
            Ok(false) => self.over(net, call, Ok(())),
            Err(_) if partial => self.over(net, call, Ok(())),
            Err(end) => self.over(net, call, Err(Error::Listing(name(end)))),
        }
    }

    /// A listing that succeeds has each name once: all that were there throughout, and none that
    /// never was.
    pub(crate) fn check_listing(&self, net: &mut Net<'_>, number: u32) {
        let call = &self.calls[number as usize];
        let Kind::List(entries) = &call.kind else { return };
        let (always, ever) = net.server.listed(call.begun);
        if entries.returned.len() != entries.names.len() {
            net.context.violated(|| format!("call {number}: entries more than once: {:?}", entries.returned));
        }
        if let Some(name) = entries.names.iter().find(|name| !ever.contains(name)) {
            net.context.violated(|| format!("call {number}: there never was entry {name}"));
        }
        if let Some(name) = always.iter().find(|name| !entries.names.contains(name))
            && !entries.omits
        {
            net.context.violated(|| format!("call {number}: entry {name} is missing"));
        }
    }

    /// When a listing must have ended.
    pub(crate) fn listing_end(&self, call: u32) -> Option<Instant> {
        match &self.calls[call as usize].kind {
            Kind::List(entries) => Some(entries.deadline),
            _ => None,
        }
    }
}

fn name(end: ListingEnd) -> &'static str {
    match end {
        ListingEnd::Repeated => "repeated token",
        ListingEnd::Idle { .. } => "no progress",
        ListingEnd::NoToken => "no token",
        ListingEnd::Entries(_) => "too many entries",
        ListingEnd::Bytes(_) => "too many bytes",
        ListingEnd::Time => TOO_SLOW,
    }
}
