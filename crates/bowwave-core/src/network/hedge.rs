//! When a late read is requested a second time.

/// A read is late, before any was measured, after this multiple of the store's typical latency.
pub const LATE_AT_FIRST: u64 = 3;
/// Stores with a lower latency, in nanoseconds, respond before a timer could fire.
const LATENCY_MIN_NS: u64 = 1_000_000;

/// Latencies of a store's reads, and the number of hedged reads.
///
/// A read is late after the mean latency plus four times its mean deviation, the retransmission
/// time-out of TCP (RFC 6298). The share of hedged reads is bounded: where all reads are late,
/// hedging only doubles the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedging {
    percent: u64,
    reads: u64,
    hedged: u64,
    mean_ns: u64,
    deviation_ns: u64,
}

impl Hedging {
    /// For a store of this typical latency, if it is high enough: at most `percent` percent of its
    /// reads are hedged.
    pub fn for_store(latency_ns: u64, percent: u32) -> Option<Self> {
        (percent > 0 && latency_ns >= LATENCY_MIN_NS).then(|| Self::new(latency_ns, percent))
    }

    /// For a store of this typical latency, whatever it is.
    pub fn new(latency_ns: u64, percent: u32) -> Self {
        let deviation_ns = latency_ns * (LATE_AT_FIRST - 1) / 4;
        Self { percent: percent.into(), reads: 0, hedged: 0, mean_ns: latency_ns, deviation_ns }
    }

    /// A read begins. Returns after how many nanoseconds it is late.
    pub fn begin(&mut self) -> u64 {
        self.reads += 1;
        self.late_ns()
    }

    /// Whether one more read may be hedged; it then counts.
    pub fn grant(&mut self) -> bool {
        let granted = (self.hedged + 1) * 100 <= self.reads.saturating_mul(self.percent);
        self.hedged += u64::from(granted);
        granted
    }

    /// A read took this long. The first of both responses counts.
    pub fn took(&mut self, ns: u64) {
        // One very late read does not represent the others.
        let ns = ns.min(self.late_ns().saturating_mul(2));
        self.deviation_ns = self.deviation_ns.saturating_mul(3).saturating_add(ns.abs_diff(self.mean_ns)) / 4;
        self.mean_ns = self.mean_ns.saturating_mul(7).saturating_add(ns) / 8;
    }

    /// Nanoseconds after which a read is late.
    pub fn late_ns(&self) -> u64 {
        self.mean_ns.saturating_add(self.deviation_ns.saturating_mul(4).max(self.mean_ns / 2))
    }
}
