//! Budget of readahead in flight, for one engine or several together.

use std::fmt;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Limit of readahead in flight, in bytes, queued or at a store. Engines whose
/// [`Options`](crate::Options) have the same budget, or clones of it, share it.
/// [`part`](Self::part) creates a smaller budget within it, such as for one of several mounts.
///
/// Demand reads are not limited. Readahead beyond the budget is shortened or omitted. The cache's
/// size separately bounds unread pages in memory.
///
/// ```
/// use bowwave_engine::{AheadBudget, Engine, Options};
///
/// let all = AheadBudget::new(64 << 20);
/// let options = Options { cache_bytes: Some(8 << 20), ..Options::default() };
/// let first = Engine::new(Options { ahead_max: Some(all.part(48 << 20)), ..options.clone() })?;
/// let second = Engine::new(Options { ahead_max: Some(all.part(48 << 20)), ..options })?;
/// # Ok::<(), bowwave_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct AheadBudget(Arc<State>);

struct State {
    bytes: u64,
    left: AtomicU64,
    enclosing: Option<AheadBudget>,
}

impl AheadBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(State { bytes, left: AtomicU64::new(bytes), enclosing: None }))
    }

    /// A budget within this one: readahead in flight counts in both.
    pub fn part(&self, bytes: u64) -> Self {
        Self(Arc::new(State { bytes, left: AtomicU64::new(bytes), enclosing: Some(self.clone()) }))
    }

    /// Size of the budget in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes in flight, or reserved by a current decision.
    pub fn in_use(&self) -> u64 {
        self.0.bytes - self.0.left.load(Ordering::Relaxed)
    }

    /// Takes half of the remaining bytes, at least `least`, and at most all that remain here and in
    /// every enclosing budget.
    fn draw(&self, least: u64) -> u64 {
        self.draw_share(&|left| (left / 2).max(least).min(left))
    }

    fn draw_share(&self, share: &dyn Fn(u64) -> u64) -> u64 {
        let drawn = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left - share(left))
        });
        let drawn = drawn.map_or(0, share);
        let Some(enclosing) = self.0.enclosing.as_ref().filter(|_| drawn > 0) else { return drawn };
        let granted = enclosing.draw_share(&|left| left.min(drawn));
        self.0.left.fetch_add(drawn - granted, Ordering::Relaxed);
        granted
    }

    fn give(&self, bytes: u64) {
        self.0.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(enclosing) = &self.0.enclosing {
            enclosing.give(bytes);
        }
    }
}

impl fmt::Debug for AheadBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AheadBudget")
            .field("bytes", &self.0.bytes)
            .field("enclosing", &self.0.enclosing)
            .finish()
    }
}

/// A shard's share of a budget: its readahead in flight, and more during a decision.
#[derive(Debug)]
pub(crate) struct Drawn {
    budget: AheadBudget,
    page_bytes: u64,
    /// Bytes drawn for a decision, if available.
    least: u64,
    pages: u64,
}

impl Drawn {
    /// An empty share, for decisions about windows of `ra_pages` pages.
    pub(crate) fn new(budget: AheadBudget, page_bytes: u64, ra_pages: u32) -> Self {
        Self { budget, page_bytes, least: 2 * u64::from(ra_pages) * page_bytes, pages: 0 }
    }

    /// Draws for a decision, or all that is left if the reader announced a plan; returns the pages
    /// that may be in flight now.
    pub(crate) fn draw(&mut self, all: bool) -> u64 {
        let bytes = self.budget.draw(if all { u64::MAX } else { self.least });
        self.budget.give(bytes % self.page_bytes);
        self.pages += bytes / self.page_bytes;
        self.pages
    }

    /// Returns all but `pages` pages; returns whether that was anything.
    pub(crate) fn settle(&mut self, pages: u64) -> bool {
        let back = self.pages.saturating_sub(pages);
        self.budget.give(back * self.page_bytes);
        self.pages -= back;
        back > 0
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_counts_in_every_enclosing_budget_and_is_returned() {
        let all = AheadBudget::new(100 * 4096);
        let [small, large] = [all.part(30 * 4096), all.part(90 * 4096 + 5)];
        let mut first = Drawn::new(large.clone(), 4096, 8);
        assert_eq!(first.draw(false), 45, "half, in pages");
        let mut second = Drawn::new(small.clone(), 4096, 8);
        assert_eq!(second.draw(false), 16, "two windows");
        assert_eq!((large.in_use(), small.in_use(), all.in_use()), (45 * 4096, 16 * 4096, 61 * 4096));
        assert_eq!(second.draw(false), 30, "what is left of its own");
        assert_eq!(first.draw(false), 45 + 22);
        assert_eq!((first.draw(false), all.in_use()), (70, 100 * 4096), "what is left of all");
        assert_eq!(first.draw(false), 70);
        assert!(first.settle(3) && !first.settle(3));
        drop(second);
        assert_eq!((large.in_use(), small.in_use(), all.in_use()), (3 * 4096, 0, 3 * 4096));
        drop(first);
        assert_eq!((all.in_use(), large.in_use(), all.bytes()), (0, 0, 100 * 4096));
    }
}
