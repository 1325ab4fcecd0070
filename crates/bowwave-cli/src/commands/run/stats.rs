//! What the processes of a run have left: lines of counters, added up.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::table::{Align, Table};
use crate::{Failure, setup};

/// Sums over processes. Pages unless the name says otherwise.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
struct Counters {
    /// That used a store.
    processes: u64,
    #[serde(flatten)]
    sums: BTreeMap<String, u64>,
}

impl Counters {
    /// A line a process: `pid=1 reads=2 …`.
    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            all.processes += 1;
            let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            for (name, count) in pairs.filter(|(name, _)| *name != "pid") {
                let count: u64 = count.parse().unwrap_or(0);
                let sum = all.sums.entry(name.to_owned()).or_default();
                // Of a size there is no sum.
                *sum = if name == "page_bytes" { count } else { *sum + count };
            }
        }
        all
    }

    fn get(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    fn table(&self) -> Table {
        let page = self.get("page_bytes");
        let mut table = Table::new([("what", Align::Left), ("count", Align::Right), ("bytes", Align::Right)]);
        table.row(["processes".to_owned(), self.processes.to_string(), String::new()]);
        for (what, name, bytes) in [
            ("reads", "reads", Some(self.get("bytes_read"))),
            ("faults", "faults", None),
            ("pages mapped", "pages_mapped", Some(self.get("pages_mapped") * page)),
            ("pages that could not be had", "pages_poisoned", None),
            ("pages wanted", "accesses", Some(self.get("accesses") * page)),
            ("- there", "hits", Some(self.get("hits") * page)),
            ("- on their way", "late", Some(self.get("late") * page)),
            ("- missing", "misses", Some(self.get("misses") * page)),
            ("pages read ahead", "pages_readahead", Some(self.get("pages_readahead") * page)),
            ("- used", "pages_used", Some(self.get("pages_used") * page)),
            ("- dropped unused", "pages_wasted", Some(self.get("pages_wasted") * page)),
            ("pages evicted", "pages_evicted", Some(self.get("pages_evicted") * page)),
            ("requests to the store", "requests", Some(self.get("bytes_fetched"))),
            ("- failed", "requests_failed", None),
            ("- tried again", "retries", None),
        ] {
            table.row([
                what.to_owned(),
                self.get(name).to_string(),
                bytes.map(setup::size).unwrap_or_default(),
            ]);
        }
        table
    }
}

/// Prints the sums on standard error: standard output is the program's.
pub(super) fn print(report: &Path, json: bool) -> Result<(), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format_args!("cannot read the counters: {error}"));
    let counters = Counters::parse(&fs::read_to_string(report).map_err(|error| failed(&error))?);
    let text = if json {
        serde_json::to_string(&counters).map_err(|error| failed(&error))?
    } else {
        counters.table().to_string()
    };
    // If nobody listens there, nothing is lost.
    let _nobody_listens = writeln!(io::stderr(), "{}", text.trim_end());
    Ok(())
}

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
    }
}
