//! Host costs: calls, waits and copies.

use serde::{Deserialize, Serialize};

/// Host costs, all zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Cost of a read call in nanoseconds.
    pub call_ns: u64,
    /// Cost of each block and wake-up of a reader in nanoseconds.
    pub wait_ns: u64,
    /// Cost of copying one KiB to the reader in nanoseconds.
    pub copy_ns_a_kib: f64,
}

impl Host {
    /// A host without costs.
    pub const FREE: Self = Self { call_ns: 0, wait_ns: 0, copy_ns_a_kib: 0.0 };

    /// Processor time of a read of `bytes` that blocked `waits` times, in nanoseconds.
    pub fn read_ns(&self, bytes: u64, waits: u32) -> u64 {
        let copy = self.copy_ns_a_kib * (bytes as f64 / 1024.0);
        self.call_ns + self.wait_ns * u64::from(waits) + copy.round() as u64
    }
}
