//! Sums the counters left by the processes of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::table::{Align, Table};
use crate::{Failure, setup};

/// Sums over processes. Pages unless the name says otherwise.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
struct Counters {
    /// Processes that used a store or had swapped memory.
    processes: u64,
    #[serde(flatten)]
    sums: BTreeMap<String, u64>,
}

impl Counters {
    /// Parses one line per process: `pid=1 reads=2 …`.
    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let mut processes = BTreeSet::new();
        for line in text.lines() {
            // A process with maps and swapped memory writes two lines.
            processes.insert(line.split_whitespace().next());
            let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            for (name, count) in pairs.filter(|(name, _)| *name != "pid") {
                let count: u64 = count.parse().unwrap_or(0);
                let sum = all.sums.entry(name.to_owned()).or_default();
                // A page size is not summed.
                *sum = if name == "page_bytes" { count } else { *sum + count };
            }
        }
        all.processes = processes.len() as u64;
        all
    }

    fn get(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    fn table(&self) -> Table {
        let page = self.get("page_bytes");
        let mut table = Table::new([("what", Align::Left), ("count", Align::Right), ("bytes", Align::Right)]);
        table.row(["processes".to_owned(), self.processes.to_string(), String::new()]);
        let swapped = |name| Some(self.get(name) * SWAP_PAGE);
        let memory = [
            ("allocations in swapped memory", "swap_allocations", Some(self.get("swap_bytes_allocated"))),
            ("touches of pages not mapped", "swap_minor_faults", None),
            ("touches of pages swapped out", "swap_major_faults", None),
            ("pages swapped in", "swap_in", swapped("swap_in")),
            ("- read ahead", "swap_ra", swapped("swap_ra")),
            ("- - used", "swap_ra_hit", swapped("swap_ra_hit")),
            ("- - mapped before the touch", "swap_mapped_ahead", swapped("swap_mapped_ahead")),
            ("- - dropped unused", "swap_wasted", swapped("swap_wasted")),
            ("pages swapped out", "swap_out", swapped("swap_out")),
            ("pages dropped, unchanged", "swap_dropped", swapped("swap_dropped")),
            ("pages of zeros, not stored", "swap_zero_out", swapped("swap_zero_out")),
            ("requests to the spill", "swap_requests", None),
            ("pages in the spill at the end", "swap_slots_used", swapped("swap_slots_used")),
        ];
        let files = [
            ("reads", "reads", Some(self.get("bytes_read"))),
            ("faults", "faults", None),
            ("pages mapped", "pages_mapped", Some(self.get("pages_mapped") * page)),
            ("pages that could not be read", "pages_poisoned", None),
            ("pages requested", "accesses", Some(self.get("accesses") * page)),
            ("- cached", "hits", Some(self.get("hits") * page)),
            ("- in flight", "late", Some(self.get("late") * page)),
            ("- missing", "misses", Some(self.get("misses") * page)),
            ("pages read ahead", "pages_readahead", Some(self.get("pages_readahead") * page)),
            ("- used", "pages_used", Some(self.get("pages_used") * page)),
            ("- dropped unused", "pages_wasted", Some(self.get("pages_wasted") * page)),
            ("pages evicted", "pages_evicted", Some(self.get("pages_evicted") * page)),
            ("requests to the store", "requests", Some(self.get("bytes_fetched"))),
            ("- failed", "requests_failed", None),
            ("- retried", "retries", None),
        ];
        let has_files = self.sums.contains_key("page_bytes") || self.sums.is_empty();
        let has_memory = self.sums.contains_key("swap_slots");
        let rows = files.into_iter().filter(|_| has_files).chain(memory.into_iter().filter(|_| has_memory));
        for (what, name, bytes) in rows {
            table.row([
                what.to_owned(),
                self.get(name).to_string(),
                bytes.map(setup::size).unwrap_or_default(),
            ]);
        }
        table
    }
}

/// Prints the sums on standard error: standard output belongs to the program.
pub(super) fn print(report: &Path, json: bool) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| failed!("cannot read the counters: {error}");
    let counters = Counters::parse(&fs::read_to_string(report).map_err(|error| failed(&error))?);
    let text = if json {
        serde_json::to_string(&counters).map_err(|error| failed(&error))?
    } else {
        counters.table().to_string()
    };
    // A closed standard error loses nothing.
    let _nobody_listens = writeln!(io::stderr(), "{}", text.trim_end());
    Ok(())
}

/// Bytes of a page of swapped memory.
const SWAP_PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_processes_add_up_but_for_sizes() {
        let all =
            Counters::parse("pid=7 page_bytes=4096 reads=2 hits=1\npid=8 page_bytes=4096 reads=40 odd\n");
        assert_eq!(
            (all.processes, all.get("reads"), all.get("hits"), all.get("page_bytes")),
            (2, 42, 1, 4096)
        );
        assert!(!all.sums.contains_key("pid"));
        assert_eq!(Counters::parse(""), Counters::default());
        let both = Counters::parse("pid=7 page_bytes=4096 reads=2\npid=7 swap_slots=9 swap_in=3\n");
        assert_eq!((both.processes, both.get("swap_in")), (1, 3));
        let shown = both.table().to_string();
        assert!(shown.contains("pages swapped in") && shown.contains("requests to the store"), "{shown}");
        assert!(!all.table().to_string().contains("swapped"));
    }
}
