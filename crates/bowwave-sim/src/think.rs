//! The think times of a trace: which read began how long after the end of which other one.
//!
//! A program reads on after it has got bytes. So a read is taken to begin after the end of the read
//! that ended last before it, of any process: a thread that waits for the work of another one
//! begins after that thread's read. A read that began while all before it were in flight, such as
//! one of the kernel's readahead, begins after the same end as those.

use std::collections::HashMap;

use bowwave_trace::binary::{Row, Trace};
use bowwave_trace::{Error, Op};

use crate::machine::{Link, Links};

/// The links of a trace's rows by number; none if it has no row `done`.
///
/// # Errors
/// An invalid row, or more than 2^32 rows.
pub(crate) fn links(trace: &Trace) -> Result<Links, Error> {
    let mut of: Vec<Link> = Vec::new();
    let mut in_flight: HashMap<(u32, u64, u64), Vec<u32>> = HashMap::new();
    let mut last: Option<(u32, u64)> = None;
    let mut first_ns = None;
    let mut has_ends = false;
    for row in trace.rows() {
        let row = row.map_err(|bad| trace.error(bad))?;
        let Ok(number) = u32::try_from(of.len()) else {
            return Err(Error::unfit(trace.name(), "more than 2^32 rows".to_owned()));
        };
        of.push(link(&row, last, *first_ns.get_or_insert(row.time_ns)));
        let key = (row.stream, row.offset, row.length);
        match row.op {
            Op::Read | Op::Load => in_flight.entry(key).or_default().push(number),
            Op::Done => {
                has_ends = true;
                if let Some(ended) = in_flight.get_mut(&key).and_then(Vec::pop) {
                    last = Some((ended, row.time_ns));
                }
            }
            _ => {}
        }
    }
    Ok(if has_ends { Links { of } } else { Links::default() })
}

fn link(row: &Row, last: Option<(u32, u64)>, first_ns: u64) -> Link {
    let since = last.map_or(first_ns, |(_, ended)| ended);
    Link { after: last.map(|(number, _)| number), think_ns: row.time_ns.saturating_sub(since) }
}
