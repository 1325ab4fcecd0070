//! Results of the demo: rows, a table, a sentence.

use serde::Serialize;

use crate::commands::read;
use crate::table::{Align, Keep, Table};

/// Results of a job with one kind of readahead.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) job: &'static str,
    /// The emulated device.
    pub(super) device: String,
    /// `mount` or `process`.
    pub(super) through: &'static str,
    /// `off`, `kernel` or `on`.
    pub(super) readahead: &'static str,
    pub(super) policy: &'static str,
    /// Pages.
    pub(super) ra_pages: u32,
    pub(super) seconds: f64,
    pub(super) requests: u64,
    pub(super) bytes_fetched: u64,
    pub(super) bytes_wanted: u64,
    /// Bytes fetched per byte requested.
    pub(super) amplification: f64,
    /// Bytes read and verified.
    pub(super) bytes_checked: u64,
    /// Time without readahead over time with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) speedup: Option<f64>,
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        ("what is read", Align::Left, Keep::Always),
        ("from", Align::Left, Keep::Always),
        ("readahead", Align::Left, Keep::Always),
        ("seconds", Align::Right, Keep::Always),
        ("throughput", Align::Right, Keep::Always),
        ("speed-up", Align::Right, Keep::Always),
        ("requests", Align::Right, Keep::Rank(2)),
        ("fetched/wanted", Align::Right, Keep::Rank(1)),
    ]);
    for row in rows {
        table.row([
            row.job.to_owned(),
            row.device.clone(),
            row.readahead.to_owned(),
            format!("{:.2}", row.seconds),
            read::rate(row.bytes_wanted as f64 / row.seconds),
            row.speedup.map_or_else(String::new, |factor| format!("{factor:.1}x")),
            row.requests.to_string(),
            format!("{:.2}", row.amplification),
        ]);
    }
    table
}

/// A sentence with the rows' figures.
pub(super) fn sentence(rows: &[Row]) -> Option<String> {
    let speedups = |kind: &str| -> Vec<(&Row, f64)> {
        let rows = rows.iter().filter(|row| row.readahead == kind);
        rows.filter_map(|row| Some((row, row.speedup?))).collect()
    };
    let on = speedups("on");
    let [(_, one), (_, several), (random, small)] = on.as_slice() else { return None };
    let kernel = match speedups("kernel").as_slice() {
        [(_, kernel_one), (_, kernel_several), _] => {
            format!(" (the kernel's own readahead: {kernel_one:.1} and {kernel_several:.1} times)")
        }
        _ => String::new(),
    };
    Some(format!(
        "Readahead made one sequential reader {one:.1} times as fast and eight at once {several:.1} times{kernel}; \
         small random reads took {:.2} times as long and fetched {:.1} bytes per byte wanted. Every byte was checked.",
        1.0 / small,
        random.amplification
    ))
}
