//! What a reader says it will read.

use std::ops::Range;

use bowwave_core::PageRange;

use super::File;
use crate::error::{Error, Result};

impl File {
    /// Says which bytes will be read through this handle, in order: parts of a file of columns, tensors, records drawn
    /// beforehand. They are fetched from now on, many at a time, as far ahead as the readers need and memory allows, and nothing
    /// beyond them for who keeps to them: `Some(0..u64::MAX)` has a file read to its end, and `Some(start..end)` nothing behind `end`. Ranges
    /// come behind those of calls before.
    ///
    /// Who leaves some out, or takes them in another order, is followed; reads elsewhere are as without a plan. What was
    /// fetched and not used shows as [`Stats::pages_given_up`](crate::Stats::pages_given_up).
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
    /// `Options` if there are more than 2^20 ranges that wait to be read (neighbours in order are one): give the others
    /// later. Then none of them are taken.
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
        let taken = shard.follow(self.handle, ranges, self.entry.queue.is_congested(), &mut effects);
        self.engine.perform(self.entry.shard, effects);
        taken.map_err(|error| Error::Options(error.to_string()))
    }

    /// Ends the plan: what is left of it will not be fetched, and what is on its way and nobody waits for is called back.
    pub fn end_plan(&self) {
        let mut effects = Vec::new();
        self.engine.shard(self.entry.shard).end_plan(self.handle, &mut effects);
        self.engine.perform(self.entry.shard, effects);
    }
}
