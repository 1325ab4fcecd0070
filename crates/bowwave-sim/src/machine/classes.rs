//! Requests by class and direction: latencies and maximum depth.

use bowwave_core::Instant;

use super::recorder::Latencies;
use crate::queue::{ClassDepth, Completed, QueueStats};
use crate::record::ClassRow;

/// In the order of [`ClassDepth::index`].
const NAMES: [(&str, &str); 4] = [("sync", "read"), ("async", "read"), ("sync", "write"), ("async", "write")];

/// Histograms per class, created when its first request completes.
#[derive(Debug, Default)]
pub(super) struct Classes([Option<Box<Class>>; 4]);

#[derive(Debug)]
struct Class {
    expired: u64,
    latency: Latencies,
    waited: Latencies,
}

impl Classes {
    pub(super) fn ended(&mut self, done: &Completed) {
        let class = self.0[ClassDepth::index(done.direction, done.urgency)].get_or_insert_with(|| {
            Box::new(Class { expired: 0, latency: Latencies::new(), waited: Latencies::new() })
        });
        class.expired += u64::from(done.expired);
        class.latency.record(done.ended.0 - done.queued.0);
        class.waited.record(done.started.0.saturating_sub(done.queued.0));
    }

    /// One row per class that had requests.
    pub(super) fn rows(&self, queue: &QueueStats, now: Instant) -> Vec<ClassRow> {
        let all = self.0.iter().zip(NAMES).zip(queue.classes);
        let rows = all.filter_map(|((class, (name, op)), depth)| {
            let class = class.as_ref()?;
            Some(ClassRow {
                class: name.to_owned(),
                op: op.to_owned(),
                requests: class.latency.count(),
                expired: class.expired,
                latency_ns: class.latency.percentiles(),
                waited_ns: class.waited.percentiles(),
                depth: depth.ns as f64 / now.0.max(1) as f64,
                depth_max: depth.max,
            })
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Direction, RequestId};
    use crate::record::Latency;
    use bowwave_core::Urgency;

    #[test]
    fn each_class_has_its_own_percentiles_and_depth() {
        let (mut classes, mut queue) = (Classes::default(), QueueStats::default());
        for number in 1..=100 {
            let urgency = if number <= 50 { Urgency::Demand } else { Urgency::Readahead };
            let (queued, started) = (Instant(1000), Instant(1000 + number));
            let (id, direction, expired) = (RequestId(number), Direction::Read, number > 98);
            let ended = Instant(2000 + number);
            classes.ended(&Completed { id, queued, started, ended, direction, urgency, expired });
        }
        queue.classes[1] = ClassDepth { now: 0, max: 7, ns: 5000 };
        let rows = classes.rows(&queue, Instant(10_000));
        let names: Vec<_> =
            rows.iter().map(|row| (&*row.class, &*row.op, row.requests, row.expired)).collect();
        assert_eq!(names, [("sync", "read", 50, 0), ("async", "read", 50, 2)]);
        assert_eq!(rows[0].waited_ns, Latency { p50: 25, p90: 45, p99: 50, max: 50 });
        assert_eq!((rows[1].waited_ns.p50, rows[1].latency_ns.max), (75, 1100));
        assert_eq!((rows[1].depth, rows[1].depth_max), (0.5, 7));
    }
}
