//! The data of one run on the page.

use serde::Serialize;

use super::heat::Heat;
use super::map::Map;
use super::pace::Pace;
use super::sentences::RunSentences;
use super::sizes::Sizes;
use super::units;
use crate::record::{Row, Run};

/// A run as the page has it: of bounded size, however long the run was.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    name: String,
    policy: String,
    #[serde(skip)]
    pub(super) row: Row,
    #[serde(flatten)]
    figures: Figures,
    pub(super) map: Map,
    heat: Heat,
    sizes: Sizes,
    pub(super) pace: Pace,
    #[serde(skip)]
    pub(super) sentences: RunSentences,
}

/// The row's figures that pictures show.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    page_bytes: u64,
    ra_pages: u32,
    seconds: f64,
}

/// Fate of readahead pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// Used, and up to date when requested.
    pub(super) in_time: u64,
    /// Used, and still in flight when requested.
    pub(super) late: u64,
    pub(super) wasted: u64,
    pub(super) thrashed: u64,
}

impl Ledger {
    pub(super) fn of(row: &Row) -> Self {
        let late = row.late.min(row.pages_used);
        Self { in_time: row.pages_used - late, late, wasted: row.pages_wasted, thrashed: row.pages_thrashed }
    }

    pub(super) fn pages(self) -> u64 {
        self.in_time + self.late + self.wasted + self.thrashed
    }
}

/// The row with its names made visible.
pub(super) fn visible(row: &Row) -> Row {
    Row {
        policy: units::visible(&row.policy),
        device: units::visible(&row.device),
        scheduler: units::visible(&row.scheduler),
        workload: units::visible(&row.workload),
        eviction: units::visible(&row.eviction),
        ..row.clone()
    }
}

impl View {
    /// Shows `run`, with at most about `quota` reads in its map.
    pub(super) fn of(run: &Run, quota: usize) -> Self {
        let row = visible(&run.row);
        let (sizes, pace) = (Sizes::of(run), Pace::of(run));
        Self {
            name: name(&row),
            policy: row.policy.clone(),
            figures: Figures { page_bytes: run.page_bytes, ra_pages: row.ra_pages, seconds: row.seconds },
            sentences: RunSentences::of(run, &row, &sizes, &pace),
            map: Map::of(run, quota),
            heat: Heat::of(run),
            sizes,
            pace,
            row,
        }
    }

    /// Name of the run on the page.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads and decisions that are shown.
    pub(super) fn shown(&self) -> usize {
        self.map.shown()
    }

    /// Shows at most about `quota` reads and decisions.
    pub(super) fn thin(&mut self, quota: usize) {
        self.map.thin(quota);
    }
}

/// `ondemand · hdd · 64 MiB · 32 pages`, and eviction and seed if they were chosen.
fn name(row: &Row) -> String {
    let cache = row.cache_bytes.map_or_else(|| "unlimited".to_owned(), |bytes| units::bytes(bytes as f64));
    let eviction = if row.eviction.is_empty() { String::new() } else { format!(" · {}", row.eviction) };
    let seed = if row.seed == 0 { String::new() } else { format!(" · seed {}", row.seed) };
    format!(
        "{} · {} · {cache} · {}{eviction}{seed}",
        row.policy,
        row.place(),
        units::counted(row.ra_pages.into(), "page")
    )
}
