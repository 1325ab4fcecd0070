//! How much may be on its way ahead of readers: of one engine, or of several together.

use std::fmt;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may be on their way ahead of readers at a time, queued or at a store, and that nobody has asked for. Engines
/// whose [`Options`](crate::Options) have the same budget, or clones of it, share it; [`part`](Self::part) makes a smaller one
/// within it, as for one of several mounts.
///
/// Readers' own requests need no leave. Readahead takes what it finds as far as that makes requests worth making, or does
/// without. What may stay in memory unused is another matter: the cache's size bounds that.
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
pub struct AheadBudget(Arc<Purse>);

struct Purse {
    bytes: u64,
    left: AtomicU64,
    of: Option<AheadBudget>,
}

impl AheadBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(Purse { bytes, left: AtomicU64::new(bytes), of: None }))
    }

    /// A budget of so many bytes within this one: what is on its way counts in both.
    #[must_use]
    pub fn part(&self, bytes: u64) -> Self {
        Self(Arc::new(Purse { bytes, left: AtomicU64::new(bytes), of: Some(self.clone()) }))
    }

    /// Bytes that may be on their way.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes that are, or that somebody is deciding about just now.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.0.bytes - self.0.left.load(Ordering::Relaxed)
    }

    /// Takes half of what is left, or `least` bytes if that is less than so many, or what there is.
    fn draw(&self, least: u64) -> u64 {
        let share = |left: u64| (left / 2).max(least).min(left);
        let got = self.take(share);
        match &self.0.of {
            Some(whole) if got > 0 => {
                let granted = whole.draw_up_to(got);
                self.0.left.fetch_add(got - granted, Ordering::Relaxed);
                granted
            }
            _ => got,
        }
    }

    fn draw_up_to(&self, bytes: u64) -> u64 {
        let got = self.take(|left| left.min(bytes));
        match &self.0.of {
            Some(whole) if got > 0 => {
                let granted = whole.draw_up_to(got);
                self.0.left.fetch_add(got - granted, Ordering::Relaxed);
                granted
            }
            _ => got,
        }
    }

    fn take(&self, share: impl Fn(u64) -> u64) -> u64 {
        let taken = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left - share(left))
        });
        taken.map_or(0, share)
    }

    fn give(&self, bytes: u64) {
        self.0.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.of {
            whole.give(bytes);
        }
    }
}

impl fmt::Debug for AheadBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AheadBudget").field("bytes", &self.0.bytes).field("of", &self.0.of).finish()
    }
}

/// What a shard has of a budget: as much as it has on its way, and more while it decides.
#[derive(Debug)]
pub(crate) struct Drawn {
    budget: AheadBudget,
    page_bytes: u64,
    /// What it takes for a decision, in bytes, if there is as much.
    least: u64,
    pages: u64,
}

impl Drawn {
    /// Nothing so far. Decisions of windows of so many pages are to be made.
    pub(crate) fn new(budget: AheadBudget, page_bytes: u64, ra_pages: u32) -> Self {
        Self { budget, page_bytes, least: 2 * u64::from(ra_pages) * page_bytes, pages: 0 }
    }

    /// Draws what a decision may need, or all there is if the reader has said what it wants; the pages that may be on their
    /// way now.
    pub(crate) fn draw(&mut self, all: bool) -> u64 {
        let bytes = self.budget.draw(if all { u64::MAX } else { self.least });
        self.budget.give(bytes % self.page_bytes);
        self.pages += bytes / self.page_bytes;
        self.pages
    }

    /// Gives back all but so many pages; tells whether that was anything.
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
    fn what_is_drawn_counts_in_every_budget_around_and_comes_back() {
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
