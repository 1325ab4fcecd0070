//! Read plans.

use std::ops::Range;

use bowwave_core::PageRange;

use super::File;
use crate::error::{Error, Result};

impl File {
    /// Appends ranges to this handle's read plan: the bytes that will be read, in order, such as columns,
    /// tensors or known records. The engine reads them ahead from now on, many at a time, as far as
    /// readers need and memory allows, and nothing else, as long as reads follow the plan.
    /// `Some(0..u64::MAX)` reads a file to its end; `Some(start..end)` reads nothing past `end`.
    ///
    /// Reads may skip ranges or change their order; reads elsewhere work as without a plan. Planned
    /// pages that were read and not used count in
    /// [`Stats::pages_abandoned`](crate::Stats::pages_abandoned).
    ///
    /// ```
    /// use bowwave_engine::{Engine, Options};
    ///
    /// let engine = Engine::new(Options { cache_bytes: Some(8 << 20), ..Options::default() })?;
    /// let file = engine.open("pattern:/64MiB")?;
    /// let columns = [40 << 20..41 << 20, 3 << 20..5 << 20];
    /// file.plan(columns.clone())?;
    /// for column in columns {
    ///     let mut bytes = vec![0; (column.end - column.start) as usize];
    ///     file.read_at(column.start, &mut bytes)?;
    /// }
    /// # Ok::<(), bowwave_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Options` if more than 2^20 ranges wait to be read (adjacent ranges in order count once). Then
    /// no range is accepted; pass the others later.
    pub fn plan(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        let (page, size) = (self.engine.page_size(), self.entry.size());
        let pages =
            |range: Range<u64>| page.range_of(range.start, range.end.min(size).saturating_sub(range.start));
        let ranges: Vec<PageRange> =
            ranges.into_iter().map(pages).filter(|range| !range.is_empty()).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        self.engine.relieve(self.entry.shard);
        let mut effects = Vec::new();
        let shard = self.engine.shard(self.entry.shard);
        let taken = shard.set_read_plan(self.handle, ranges, self.entry.queue.is_congested(), &mut effects);
        self.engine.perform(self.entry.shard, effects);
        taken.map_err(|error| Error::Options(error.to_string()))
    }

    /// Ends the read plan: the rest is not read, and readahead in flight without waiters is
    /// cancelled.
    pub fn end_plan(&self) {
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).end_plan(self.handle, &mut effects);
        self.engine.perform(self.entry.shard, effects);
    }
}
