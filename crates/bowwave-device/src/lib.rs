#![doc = include_str!("../README.md")]
//!
//! A device holds up to [`depth`](Device::depth) requests, orders them itself, and reports when each
//! ended. A queue with a [`QueueConfig`](queue::QueueConfig) stands before it and never exceeds the depth.
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
pub mod validate;

use std::fmt::Debug;

use bowwave_core::{Instant, Urgency};

pub use instant::InstantDevice;
pub use parameters::DeviceError;
pub use spec::DeviceSpec;

/// A device model: state that requests and time change.
///
/// The caller's part: times never go back; no more than `depth` requests are held; every time that
/// [`next_event`](Self::next_event) names is visited by [`advance`](Self::advance) before a later `submit`.
pub trait Device: Debug + Send {
    /// Most requests that it holds at once, begun or not. At least 1.
    fn depth(&self) -> usize;

    /// Most bytes of one request; longer ones are split before they come here. At least 1.
    fn request_bytes_max(&self) -> u64;

    /// Bytes that it stores, if that is limited. Addresses past it wrap around.
    fn capacity_bytes(&self) -> Option<u64>;

    /// Takes a request.
    fn submit(&mut self, now: Instant, request: &Request);

    /// Takes a request that was merged, whose parts end after so many bytes each, the last with the request. A device that hands
    /// over bytes as they come tells of each part, as [`Done`] with what is `left`; others of the whole.
    fn submit_parts(&mut self, now: Instant, request: &Request, ends: &[u64]) {
        let _ = ends;
        self.submit(now, request);
    }

    /// When something ends or begins inside, so that [`advance`](Self::advance) must be called.
    fn next_event(&self) -> Option<Instant>;

    /// Lets happen what is due by `now` and adds the requests that ended by then, in order of their ends.
    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>);

    /// When a flush ends that is sent now: all writes that have ended are on the medium then.
    fn flush_end(&self, now: Instant) -> Instant {
        now
    }

    /// Where its time went so far.
    fn service(&self) -> Service;
}

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name, unique among the requests that have not ended.
    pub id: RequestId,
    /// Read or write.
    pub direction: Direction,
    /// First byte, as an address on the device.
    pub start: u64,
    /// Bytes; not 0.
    pub bytes: u64,
    /// Whether someone waits for it.
    pub urgency: Urgency,
    /// Who asked, for schedulers that serve owners in turn or wait for their next request.
    pub owner: u32,
    /// The file or object it belongs to: a request never spans two.
    pub object: u32,
}

/// Names a request from its submission to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// A request that a device has ended, or a part of one ([`Device::submit_parts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub id: RequestId,
    /// When the device began to work on it.
    pub started: Instant,
    /// When its last byte had moved.
    pub ended: Instant,
    /// Bytes of the request that are still to come; 0 if it has ended.
    pub left: u64,
}

/// Where the time of a device's requests went, summed over those that have begun, in nanoseconds.
///
/// Of a disk the parts add up to its busy time. Of devices that work on several requests at once they are sums over
/// requests, and can exceed the time that has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Requests begun.
    pub requests: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Requests served from the device's buffer alone: no head moved, no cell was read.
    pub buffer_hits: u64,
    /// Requests that went on where the head or the stream was, without a new access.
    pub continued: u64,
    /// Commands and other costs a request.
    pub overhead_ns: u64,
    /// Seeks.
    pub seek_ns: u64,
    /// Waiting for the sector to come round.
    pub rotation_ns: u64,
    /// Waiting inside the device: for a chip, a slot, a retry.
    pub wait_ns: u64,
    /// From the medium: tracks with their skews; cells; the first byte of a store.
    pub media_ns: u64,
    /// On the bus or the link, where that was not hidden behind the medium.
    pub bus_ns: u64,
}

/// What a device can do at best, whatever it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceLimits {
    /// Bytes a nanosecond, of all requests together; above 0.
    pub bytes_per_ns: f64,
    /// Bytes a nanosecond that come off the medium, which every byte does the first time; above 0.
    pub medium_bytes_per_ns: f64,
    /// Most bytes of one request; not 0.
    pub request_bytes_max: u64,
    /// Requests at once; not 0.
    pub depth: u32,
    /// Shortest time from the start of a request to its end, nanoseconds.
    pub request_ns_min: u64,
}

impl Request {
    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl Service {
    /// All parts together, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.overhead_ns + self.seek_ns + self.rotation_ns + self.wait_ns + self.media_ns + self.bus_ns
    }

    /// What was added since `earlier`.
    #[must_use]
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
