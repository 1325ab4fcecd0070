//! The thrashing experiment of 000 with `stream`: the throughput that is left, and whether it holds.

use bowwave_core::Policy;

use super::super::thrashing;
use super::{Bar, Figure, Outcome, Pair, ReproduceError};

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let place = ("beyond", "thrashing");
    let [on_demand, stream] = [Policy::OnDemand, Policy::Stream].map(thrashing::pressed);
    let (on_demand, stream) = (on_demand?, stream?);
    let speeds = Pair::new(on_demand.peak / 1e6, stream.peak / 1e6);
    let bar = Bar::GainFrom(1.3, f64::INFINITY);
    outcome.figures.push(Figure::new(place, "max throughput", "MB/s", Pair::default(), speeds, bar));
    let speeds = Pair::new(on_demand.last / 1e6, stream.last / 1e6);
    let bar = Bar::GainFrom(1.3, f64::INFINITY);
    let row = "throughput of the last 20 s, 200 streams";
    outcome.figures.push(Figure::new(place, row, "MB/s", Pair::default(), speeds, bar));
    let lost = Pair::new(on_demand.lost * 100.0, stream.lost * 100.0);
    let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, 2.0));
    let row = "pages evicted unread, of those read";
    outcome.figures.push(Figure::new(place, row, "%", Pair::default(), lost, bar));
    let swing = Pair::new(on_demand.swing, stream.swing);
    let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, 0.1));
    let row = "swing of the last 20 s: deviation over mean";
    outcome.figures.push(Figure::new(place, row, "", Pair::default(), swing, bar));
    let size = Pair::new(on_demand.io_kb, stream.io_kb);
    outcome.notes.push(format!(
        "thrashing: average request of the last 20 s {:.0} KB with ondemand, {:.0} KB with stream",
        size.baseline.unwrap_or(0.0),
        size.improved.unwrap_or(0.0)
    ));
    Ok(())
}
