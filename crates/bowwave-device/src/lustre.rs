//! A Lustre client's RPCs under load: a fixed cost, a cost per page, and a share of slow RPCs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bowwave_core::Instant;

use super::chance::between;
use super::parameters::{DeviceError, Parameters};
use super::{Device, Direction, Done, Request, RequestId, Service};
use crate::DeviceLimits;
use bowwave_core::Random;

/// Parameters; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LustreParameters {
    rpc_ns: f64,
    write_rpc_ns: f64,
    page_bytes: u64,
    page_ns: (f64, f64),
    slow_share: f64,
    slow_factor: f64,
    slow_ns_max: f64,
    request_bytes_max: u64,
    depth: usize,
    flush_ns: u64,
}

impl LustreParameters {
    /// Upper bounds for every read pattern.
    pub(super) fn limits(&self) -> DeviceLimits {
        let rate = self.depth as f64 * self.page_bytes as f64 / self.page_ns.0.max(1e-9);
        DeviceLimits {
            bytes_per_ns: rate,
            medium_bytes_per_ns: f64::INFINITY,
            request_bytes_max: self.request_bytes_max,
            // Cannot truncate: `read` accepts at most 65,536.
            depth: self.depth as u32,
            request_ns_min: self.rpc_ns as u64,
        }
    }

    pub(super) fn read(p: &mut Parameters) -> Result<Self, DeviceError> {
        let rpc_us = p.number("rpc_us", 0.0, 1e9)?;
        Ok(Self {
            rpc_ns: rpc_us * 1e3,
            write_rpc_ns: p.optional("write_rpc_us", rpc_us, (0.0, 1e9), false)? * 1e3,
            page_bytes: p.count("page_kb", 1, 1024)? << 10,
            page_ns: p.span("page_us_min", "page_us_max", 1e6, 1e3)?,
            slow_share: p.number("slow_share", 0.0, 1.0)?,
            slow_factor: p.number("slow_factor", 1.0, 1e6)?,
            slow_ns_max: p.number("slow_ms_max", 0.0, 1e6)? * 1e6,
            request_bytes_max: p.count("request_kb_max", 4, 1 << 20)? << 10,
            depth: p.count("depth", 1, 65_536)? as usize,
            flush_ns: (p.optional("flush_us", 0.0, (0.0, 1e9), false)? * 1e3) as u64,
        })
    }

    /// Fixed cost of an RPC in nanoseconds, and the mean rate after it, in bytes per nanosecond.
    pub(super) fn typical_read(&self) -> (f64, f64) {
        let (low, high) = self.page_ns;
        (self.rpc_ns, self.page_bytes as f64 * 2.0 / (low + high))
    }
}

/// The model: up to `depth` independent RPCs.
#[derive(Debug)]
pub(super) struct Lustre {
    p: LustreParameters,
    random: Random,
    /// By completion time, then in order of submission.
    running: BinaryHeap<Reverse<(Instant, u64, RequestId, Instant)>>,
    service: Service,
}

impl Lustre {
    pub(super) fn new(p: &LustreParameters, seed: u64) -> Self {
        let running = BinaryHeap::with_capacity(p.depth);
        Self { p: p.clone(), random: Random::from_state(seed), running, service: Service::default() }
    }

    fn pages_ns(&mut self, bytes: u64) -> f64 {
        let (low, high) = self.p.page_ns;
        bytes.div_ceil(self.p.page_bytes) as f64 * between(&mut self.random, low, high)
    }
}

impl Device for Lustre {
    fn depth(&self) -> usize {
        self.p.depth
    }

    fn request_bytes_max(&self) -> u64 {
        self.p.request_bytes_max
    }

    fn capacity_bytes(&self) -> Option<u64> {
        None
    }

    fn submit(&mut self, now: Instant, request: &Request) {
        let pages_ns = self.pages_ns(request.bytes);
        let rpc_ns = match request.direction {
            Direction::Read => self.p.rpc_ns,
            Direction::Write => self.p.write_rpc_ns,
        };
        let usual = rpc_ns + pages_ns;
        let slow = self.random.unit() < self.p.slow_share;
        let taken =
            if slow { usual.max((usual * self.p.slow_factor).min(self.p.slow_ns_max)) } else { usual };
        self.service.requests += 1;
        self.service.bytes += request.bytes;
        self.service.overhead_ns += rpc_ns as u64;
        self.service.media_ns += pages_ns as u64;
        self.service.wait_ns += (taken - usual) as u64;
        let ended = Instant(now.0 + taken as u64);
        self.running.push(Reverse((ended, self.service.requests, request.id, now)));
    }

    fn next_event(&self) -> Option<Instant> {
        self.running.peek().map(|Reverse((ended, ..))| *ended)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>) {
        while self.next_event().is_some_and(|next| next <= now)
            && let Some(Reverse((end, _, id, started))) = self.running.pop()
        {
            ended.push(Done { id, started, ended: end, left: 0 });
        }
    }

    fn flush_end(&self, now: Instant) -> Instant {
        Instant(now.0 + self.p.flush_ns)
    }

    fn service(&self) -> Service {
        self.service
    }
}
