//! What a queue counts.

/// Counts of a [`Queue`](super::Queue) since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Requests given to the device: reads, writes.
    pub requests: [u64; 2],
    /// Their bytes: reads, writes.
    pub bytes: [u64; 2],
    /// Submitted requests that became part of another.
    pub merged: u64,
    /// Submitted requests that found no place and had to wait outside.
    pub blocked: u64,
    /// Requests dropped before the device had them.
    pub cancelled: u64,
    /// Time that the device had something to do, in nanoseconds.
    pub busy_ns: u64,
    /// Time that reads were congested, in nanoseconds.
    pub congested_ns: u64,
    /// Requests waiting or at the device, summed over nanoseconds: divide by the time for the average depth.
    pub depth_ns: u128,
    /// Most requests at once.
    pub depth_max: usize,
}

impl QueueStats {
    /// Bytes of a read at the device on average; 0 before the first.
    #[must_use]
    pub fn read_bytes_avg(&self) -> f64 {
        if self.requests[0] == 0 { 0.0 } else { self.bytes[0] as f64 / self.requests[0] as f64 }
    }
}
