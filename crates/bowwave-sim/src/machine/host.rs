//! What the host itself costs: calls, waits and copies.

use serde::{Deserialize, Serialize};

/// Costs of the host, all zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Nanoseconds of a read call.
    pub call_ns: u64,
    /// Nanoseconds each time that a reader blocks and is woken.
    pub wait_ns: u64,
    /// Nanoseconds to copy a KiB to the reader.
    pub copy_ns_a_kib: f64,
}

impl Host {
    /// A host that costs nothing.
    pub const FREE: Self = Self { call_ns: 0, wait_ns: 0, copy_ns_a_kib: 0.0 };

    /// Nanoseconds of processor time of a read of `bytes` that blocked `waits` times.
    #[must_use]
    pub fn read_ns(&self, bytes: u64, waits: u32) -> u64 {
        let copy = self.copy_ns_a_kib * (bytes as f64 / 1024.0);
        self.call_ns + self.wait_ns * u64::from(waits) + copy.round() as u64
    }
}
