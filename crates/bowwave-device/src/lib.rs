#![doc = include_str!("../README.md")]
//!
//! A device holds up to [`depth`](Device::depth) requests, orders them itself, and reports
//! completions. Its driver never submits more. [`QueueConfig`](queue::QueueConfig) configures the
//! driver's queue.
#![forbid(unsafe_code)]

mod chance;
mod flash;
mod hdd;
mod instant;
mod lustre;
mod parameters;
pub mod queue;
mod s3;
mod spec;

use std::fmt::Debug;

pub use bowwave_core::schedule::Direction;
use bowwave_core::{Instant, Urgency};

pub use instant::InstantDevice;
pub use parameters::DeviceError;
pub use spec::DeviceSpec;

/// A device model: a state machine driven by requests and time.
///
/// The caller must pass times in order, hold at most `depth` requests, and call
/// [`advance`](Self::advance) for every [`next_event`](Self::next_event) before a later `submit`.
pub trait Device: Debug + Send {
    /// Maximum requests held at once, started or not. At least 1.
    fn depth(&self) -> usize;

    /// Maximum bytes of a request; the caller splits longer ones. At least 1.
    fn request_bytes_max(&self) -> u64;

    /// Capacity in bytes, if limited. Addresses past it wrap around.
    fn capacity_bytes(&self) -> Option<u64>;

    /// Submits a request.
    fn submit(&mut self, now: Instant, request: &Request);

    /// Submits a merged request. `ends` are the byte offsets where its parts end; the last is the
    /// end of the request. A streaming device reports each part as [`Done`] with the bytes `left`;
    /// others report the whole.
    fn submit_parts(&mut self, now: Instant, request: &Request, ends: &[u64]) {
        let _ = ends;
        self.submit(now, request);
    }

    /// When [`advance`](Self::advance) must next be called.
    fn next_event(&self) -> Option<Instant>;

    /// Processes events up to `now` and adds the completed requests, in order of completion.
    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>);

    /// When a flush sent at `now` ends: every write that has completed is then on the medium.
    fn flush_end(&self, now: Instant) -> Instant {
        now
    }

    /// Accumulated service time by part.
    fn service(&self) -> Service;
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique among the requests in flight.
    pub id: RequestId,
    /// Read or write.
    pub direction: Direction,
    /// First byte, as an address on the device.
    pub start: u64,
    /// Bytes; not 0.
    pub bytes: u64,
    /// Whether it is demand.
    pub urgency: Urgency,
    /// Its owner, for schedulers that serve owners in turn or wait for their next request.
    pub owner: u32,
    /// The file or object it belongs to: a request never spans two.
    pub object: u32,
}

/// Identifies a request from submission to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A completed request, or a part of one ([`Device::submit_parts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its identifier.
    pub id: RequestId,
    /// When the device started it.
    pub started: Instant,
    /// When its last byte was transferred.
    pub ended: Instant,
    /// Remaining bytes of the request; 0 if it is complete.
    pub left: u64,
}

/// Service time of the started requests by part, in nanoseconds.
///
/// For a disk the parts add up to its busy time. For devices that serve several requests at once
/// they are sums over requests, and can exceed the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Requests started.
    pub requests: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Requests served from the device's buffer alone.
    pub buffer_hits: u64,
    /// Requests that continued where the head or the stream was, without a new access.
    pub continued: u64,
    /// Fixed costs per request.
    pub overhead_ns: u64,
    /// Seeks.
    pub seek_ns: u64,
    /// Rotational latency.
    pub rotation_ns: u64,
    /// Waiting inside the device: for a chip, a slot, a retry.
    pub wait_ns: u64,
    /// Transfer from the medium: tracks with skews; cells; the time to first byte of a store.
    pub media_ns: u64,
    /// Transfer on the bus or link that the medium did not hide.
    pub bus_ns: u64,
}

/// Upper bounds of a device's performance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceLimits {
    /// Total rate in bytes per nanosecond; above 0.
    pub bytes_per_ns: f64,
    /// Rate of the medium in bytes per nanosecond; above 0. It bounds the first read of each byte:
    /// later reads of the byte may come from the device's buffer.
    pub medium_bytes_per_ns: f64,
    /// Maximum bytes of a request; not 0.
    pub request_bytes_max: u64,
    /// Requests at once; not 0.
    pub depth: u32,
    /// Minimum service time of a request, in nanoseconds.
    pub request_ns_min: u64,
}

impl Request {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl Service {
    /// Sum of all parts, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.overhead_ns + self.seek_ns + self.rotation_ns + self.wait_ns + self.media_ns + self.bus_ns
    }

    /// Difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
            buffer_hits: self.buffer_hits - earlier.buffer_hits,
            continued: self.continued - earlier.continued,
            overhead_ns: self.overhead_ns - earlier.overhead_ns,
            seek_ns: self.seek_ns - earlier.seek_ns,
            rotation_ns: self.rotation_ns - earlier.rotation_ns,
            wait_ns: self.wait_ns - earlier.wait_ns,
            media_ns: self.media_ns - earlier.media_ns,
            bus_ns: self.bus_ns - earlier.bus_ns,
        }
    }
}
