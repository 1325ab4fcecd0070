//! Devices in virtual time: how long a request takes, given what came before it.
//!
//! A model is asked once for each request, when the request starts, and answers when it will end. What a device does
//! between requests (a disk that reads on, a link that drains) it works out from the time that has passed.

use std::fmt::Debug;

use bowwave_core::{Instant, Urgency};

/// A device model: state that each request changes.
pub trait Device: Debug + Send {
    /// Most requests that it works on at once.
    fn depth(&self) -> usize;

    /// Most bytes of one request; longer ones are split before they come here.
    fn request_bytes_max(&self) -> u64;

    /// Starts a request and tells when it will end. Calls come in order of time, and no more than
    /// [`depth`](Self::depth) requests run at once.
    fn start(&mut self, now: Instant, request: &Request) -> Instant;
}

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl Request {
    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}
