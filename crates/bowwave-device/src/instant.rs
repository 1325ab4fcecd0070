//! A device that takes no time, to measure the cache alone.

use bowwave_core::Instant;

use super::{Device, Done, Request, Service};

/// Completes every request at submission, at any depth and size.
#[derive(Debug, Default)]
pub struct InstantDevice {
    ended: Vec<Done>,
    service: Service,
}

impl Device for InstantDevice {
    fn depth(&self) -> usize {
        usize::MAX
    }

    fn request_bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn capacity_bytes(&self) -> Option<u64> {
        None
    }

    fn submit(&mut self, now: Instant, request: &Request) {
        self.service.requests += 1;
        self.service.bytes += request.bytes;
        self.ended.push(Done { id: request.id, started: now, ended: now, left: 0 });
    }

    fn next_event(&self) -> Option<Instant> {
        self.ended.first().map(|done| done.ended)
    }

    fn advance(&mut self, _now: Instant, ended: &mut Vec<Done>) {
        ended.append(&mut self.ended);
    }

    fn service(&self) -> Service {
        self.service
    }
}
