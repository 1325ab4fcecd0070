//! The thrashing experiment of the on-demand patch with `stream`: the remaining throughput, and
//! whether it is stable.
//!
//! Its 200 readers request 20 MB/s, which on-demand readahead nearly reaches, so a better policy
//! would show no gain. So it also runs with 50 % more readers.

use bowwave_core::Policy;

use super::super::thrashing::{self, Pressed, RATE, STREAMS};
use super::{Bar, Figure, Outcome, Pair, ReproduceError};

/// Readers that request more than any policy can deliver.
const MANY: u64 = 300;

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let faster = Bar::GainFrom(1.3, f64::INFINITY);
    let at_most = |most: f64| Bar::Ranges((0.0, f64::INFINITY), (0.0, most));
    for streams in [STREAMS, MANY] {
        let [on_demand, stream] =
            [Policy::OnDemand, Policy::Stream].map(|policy| thrashing::pressed(policy, streams));
        let (on_demand, stream) = (on_demand?, stream?);
        let pair = |measure: fn(&Pressed) -> f64| Pair::new(measure(&on_demand), measure(&stream));
        let mut add = |row: String, unit: &'static str, ours: Pair, bar: Bar, note: String| {
            let figure = Figure::new(("beyond", "thrashing"), row, unit, Pair::default(), ours, bar).own();
            outcome.figures.push(figure.note(note));
        };
        // Throughput is at most the requested rate.
        let wanted = (streams * RATE) as f64;
        let most = |reached: f64| format!("{:.1} times is all that the readers ask for", wanted / reached);
        let row = format!("{streams} streams: max throughput");
        add(row, "MB/s", pair(|run| run.peak / 1e6), faster, most(on_demand.peak));
        let row = format!("{streams} streams: throughput of the last 20 s");
        add(row, "MB/s", pair(|run| run.last / 1e6), faster, most(on_demand.last));
        let row = format!("{streams} streams: pages evicted unread, of those read");
        add(row, "%", pair(|run| run.lost * 100.0), at_most(2.0), String::new());
        let row = format!("{streams} streams: swing of the last 20 s, deviation over mean");
        add(row, "", pair(|run| run.swing), at_most(0.1), String::new());
        outcome.notes.push(format!(
            "thrashing, {streams} streams: average request of the last 20 s {:.0} KB with ondemand, {:.0} KB with stream",
            on_demand.io_kb, stream.io_kb
        ));
    }
    Ok(())
}
