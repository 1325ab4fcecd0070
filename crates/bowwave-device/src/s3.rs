//! An object store over the network: connections, time to first byte, a shared link, 503s and
//! retries.
//!
//! ```text
//! connect (once per connection) ─► request ─► first byte ─► transfer: connection's rate, within the link ─► done
//!                                    ▲ │
//!                              wait ◄───┘ 503 (too many reads per second)
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bowwave_core::slab::Slab;
use bowwave_core::{Instant, Random};

use super::chance::{between, exp, lognormal};
use super::parameters::{DeviceError, Parameters};
use super::{Device, Direction, Done, Request, RequestId, Service};
use crate::DeviceLimits;

/// Parameters; times in nanoseconds, rates in bytes per nanosecond.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct S3Parameters {
    slots: usize,
    first_byte_ns: f64,
    first_byte_sigma: f64,
    put_first_byte_ns: f64,
    tail_share: f64,
    tail_ns: (f64, f64),
    bandwidth: f64,
    bandwidth_sigma: f64,
    bandwidth_max: f64,
    /// Infinite if unlimited.
    total: f64,
    /// The link of writes, if they do not share that of reads.
    put_total: Option<f64>,
    connect_ns: (f64, f64),
    /// Reads per nanosecond; infinite if unlimited.
    reads: f64,
    reject_ns: u64,
    retry_ns: f64,
    flush_ns: u64,
    request_bytes_max: u64,
}

impl S3Parameters {
    /// Upper bounds for every read pattern; one TTFB in 10^9 exceeds them.
    pub(super) fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            bytes_per_ns: self.total.min(self.slots as f64 * self.bandwidth_max),
            medium_bytes_per_ns: f64::INFINITY,
            request_bytes_max: self.request_bytes_max,
            // At most 65536.
            depth: self.slots as u32,
            request_ns_min: (self.first_byte_ns * exp(-6.0 * self.first_byte_sigma)) as u64,
        }
    }

    pub(super) fn read(p: &mut Parameters) -> Result<Self, DeviceError> {
        let bound = |number: f64| if number == 0.0 { f64::INFINITY } else { number };
        let put_total = p.optional("put_total_mb_s", f64::NAN, (0.0, 1e6), false)?;
        let parameters = Self {
            slots: p.count("slots", 1, 65_536)? as usize,
            first_byte_ns: p.number("first_byte_ms", 0.0, DAY_MS)? * 1e6,
            first_byte_sigma: p.number("first_byte_sigma", 0.0, 5.0)?,
            put_first_byte_ns: p.number("put_first_byte_ms", 0.0, DAY_MS)? * 1e6,
            tail_share: p.number("tail_share", 0.0, 1.0)?,
            tail_ns: p.span("tail_ms_min", "tail_ms_max", DAY_MS, 1e6)?,
            bandwidth: p.number("bandwidth_mb_s", 0.001, 1e6)? / 1e3,
            bandwidth_sigma: p.number("bandwidth_sigma", 0.0, 5.0)?,
            bandwidth_max: p.number("bandwidth_mb_s_max", 0.001, 1e6)? / 1e3,
            total: bound(p.number("total_mb_s", 0.0, 1e6)?) / 1e3,
            put_total: (!put_total.is_nan()).then(|| bound(put_total) / 1e3),
            connect_ns: p.span("connect_ms_min", "connect_ms_max", 1e6, 1e6)?,
            reads: bound(p.number("reads_per_s_max", 0.0, 1e9)?) / 1e9,
            reject_ns: (p.number("reject_ms", 0.0, 1e6)? * 1e6) as u64,
            retry_ns: p.number("retry_ms", 0.1, 1e6)? * 1e6,
            flush_ns: (p.optional("flush_ms", 0.0, (0.0, DAY_MS), false)? * 1e6) as u64,
            request_bytes_max: p.count("request_kb_max", 4, 1 << 20)? << 10,
        };
        if parameters.bandwidth > parameters.bandwidth_max {
            let most = parameters.bandwidth_max * 1e3;
            return Err(p.wrong("bandwidth_mb_s", &format!("must be at most bandwidth_mb_s_max, {most}")));
        }
        Ok(parameters)
    }

    /// Median time to first byte of a read in nanoseconds, and bytes per nanosecond of a
    /// connection.
    pub(super) fn typical_read(&self) -> (f64, f64) {
        (self.first_byte_ns, self.bandwidth.min(self.total))
    }

    /// Reads the store accepts at once after a pause: one second's worth.
    fn reads_at_once(&self) -> f64 {
        (self.reads * 1e9).max(1.0)
    }
}

/// The model.
#[derive(Debug)]
pub(super) struct S3 {
    p: S3Parameters,
    random: Random,
    /// Rates of open, idle connections. The one used last is used next.
    idle: Vec<f64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_count: u64,
    in_flight: Slab<InFlight>,
    reads: Flows,
    /// Writes, if they have a link of their own.
    writes: Flows,
    /// Reads the store would accept now, as of a time.
    allowance: (f64, u64),
    rejected: u64,
    service: Service,
}

/// A request on its connection.
#[derive(Clone, Debug)]
struct InFlight {
    id: RequestId,
    direction: Direction,
    /// Where its parts end, last one first; and the bytes received.
    ends: Vec<u64>,
    received: u64,
    started: Instant,
    connection: f64,
    refusals: u32,
}

impl InFlight {
    /// Bytes not yet received.
    fn left(&self) -> u64 {
        self.ends.first().map_or(0, |end| end - self.received)
    }

    /// Bytes to the end of the next part.
    fn next_part(&self) -> Option<u64> {
        self.ends.last().map(|end| end - self.received)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(u32),
    FirstByte(u32),
}

impl S3 {
    pub(super) fn new(p: &S3Parameters, seed: u64) -> Self {
        Self {
            p: p.clone(),
            random: Random::from_state(seed),
            idle: Vec::new(),
            events: BinaryHeap::new(),
            events_count: 0,
            in_flight: Slab::default(),
            reads: Flows { total: p.total, now: 0.0, running: Vec::new() },
            writes: Flows { total: p.put_total.unwrap_or(p.total), now: 0.0, running: Vec::new() },
            allowance: (p.reads_at_once(), 0),
            rejected: 0,
            service: Service::default(),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events_count += 1;
        self.events.push(Reverse((time, self.events_count, event)));
    }

    /// Whether the store accepts a read now.
    fn allowed(&mut self, now: u64) -> bool {
        if self.p.reads.is_infinite() {
            return true;
        }
        let (left, since) = self.allowance;
        let left = (left + (now - since) as f64 * self.p.reads).min(self.p.reads_at_once());
        let taken = left >= 1.0;
        self.allowance = (if taken { left - 1.0 } else { left }, now);
        taken
    }

    fn ask(&mut self, now: u64, index: u32) {
        let InFlight { direction, refusals, .. } = self.in_flight[index];
        if direction == Direction::Read && !self.allowed(now) {
            let wait = self.p.retry_ns * f64::from(1 << refusals.min(RETRY_DOUBLINGS_MAX));
            let wait = self.p.reject_ns + between(&mut self.random, wait / 2.0, wait) as u64;
            self.in_flight[index].refusals += 1;
            self.rejected += 1;
            self.service.wait_ns += wait;
            self.at(now + wait, Event::Ask(index));
            return;
        }
        let median =
            if direction == Direction::Read { self.p.first_byte_ns } else { self.p.put_first_byte_ns };
        let mut wait = lognormal(&mut self.random, median, self.p.first_byte_sigma);
        if self.random.unit() < self.p.tail_share {
            wait += between(&mut self.random, self.p.tail_ns.0, self.p.tail_ns.1);
        }
        self.service.media_ns += wait as u64;
        self.at(now + wait as u64, Event::FirstByte(index));
    }

    /// Starts the transfer of the next part.
    fn transfer(&mut self, index: u32) {
        let request = &self.in_flight[index];
        let Some(bytes) = request.next_part() else { return };
        let own_link = request.direction == Direction::Write && self.p.put_total.is_some();
        let flows = if own_link { &mut self.writes } else { &mut self.reads };
        flows.begin(index, bytes as f64, request.connection);
    }

    fn connection(&mut self) -> (f64, u64) {
        if let Some(rate) = self.idle.pop() {
            return (rate, 0);
        }
        let rate =
            lognormal(&mut self.random, self.p.bandwidth, self.p.bandwidth_sigma).min(self.p.bandwidth_max);
        let connect = between(&mut self.random, self.p.connect_ns.0, self.p.connect_ns.1) as u64;
        self.service.overhead_ns += connect;
        (rate, connect)
    }
}

impl Device for S3 {
    fn depth(&self) -> usize {
        self.p.slots
    }

    fn request_bytes_max(&self) -> u64 {
        self.p.request_bytes_max
    }

    fn capacity_bytes(&self) -> Option<u64> {
        None
    }

    fn submit(&mut self, now: Instant, request: &Request) {
        self.submit_parts(now, request, &[request.bytes]);
    }

    fn submit_parts(&mut self, now: Instant, request: &Request, ends: &[u64]) {
        self.service.requests += 1;
        self.service.bytes += request.bytes;
        let (connection, connect) = self.connection();
        let &Request { id, direction, .. } = request;
        // A write is visible only when it is complete.
        let ends = if direction == Direction::Read { ends } else { &ends[ends.len() - 1..] };
        let ends = ends.iter().rev().copied().collect();
        let in_flight = InFlight { id, direction, ends, received: 0, started: now, connection, refusals: 0 };
        let index = self.in_flight.insert(in_flight);
        self.at(now.0 + connect, Event::Ask(index));
    }

    fn next_event(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse((time, ..))| Instant(*time));
        let ends = [self.reads.next_end(), self.writes.next_end()].map(|end| end.map(Instant));
        event.into_iter().chain(ends.into_iter().flatten()).min()
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>) {
        while let Some(next) = self.next_event().filter(|next| *next <= now) {
            self.reads.advance(next.0);
            self.writes.advance(next.0);
            while let Some(index) = self.reads.take_ended().or_else(|| self.writes.take_ended()) {
                let request = &mut self.in_flight[index];
                let &mut InFlight { id, started, connection, .. } = request;
                request.received = request.ends.pop().expect("a flow ends at the end of a part");
                let left = request.left();
                if left == 0 {
                    self.idle.push(connection);
                    self.in_flight.release(index);
                } else {
                    self.transfer(index);
                }
                ended.push(Done { id, started, ended: next, left });
            }
            while self.events.peek().is_some_and(|Reverse((time, ..))| *time <= next.0)
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                match event {
                    Event::Ask(index) => self.ask(next.0, index),
                    Event::FirstByte(index) => {
                        let request = &self.in_flight[index];
                        self.service.bus_ns += (request.left() as f64 / request.connection) as u64;
                        self.transfer(index);
                    }
                }
            }
            self.reads.share();
            self.writes.share();
        }
    }

    fn flush_end(&self, now: Instant) -> Instant {
        Instant(now.0 + self.p.flush_ns)
    }

    fn service(&self) -> Service {
        self.service
    }
}

/// Transfers on a shared link: each capped at its own rate, the link shared max-min fairly.
#[derive(Debug)]
struct Flows {
    total: f64,
    now: f64,
    running: Vec<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    index: u32,
    left: f64,
    rate_max: f64,
    rate: f64,
}

impl Flows {
    fn begin(&mut self, index: u32, bytes: f64, rate_max: f64) {
        self.running.push(Flow { index, left: bytes, rate_max, rate: 0.0 });
    }

    /// Transfers bytes up to `now`.
    fn advance(&mut self, now: u64) {
        let passed = now as f64 - self.now;
        for flow in &mut self.running {
            flow.left -= flow.rate * passed;
        }
        self.now = now as f64;
    }

    /// Removes a completed transfer.
    fn take_ended(&mut self) -> Option<u32> {
        // Completion times round up to the next nanosecond: only rounding error is left.
        let place = self.running.iter().position(|flow| flow.left <= flow.rate * 0.5)?;
        Some(self.running.remove(place).index)
    }

    /// When the next transfer completes.
    fn next_end(&self) -> Option<u64> {
        let ends = self.running.iter().map(|flow| self.now + (flow.left / flow.rate).max(0.0));
        ends.min_by(f64::total_cmp).map(|end| end.ceil() as u64)
    }

    /// Assigns each transfer its rate.
    fn share(&mut self) {
        let mut level = self.total;
        if self.running.iter().map(|flow| flow.rate_max).sum::<f64>() > self.total {
            // A transfer that needs less than an equal share gets all it needs; the others share
            // the rest. Repeat until stable.
            let mut satisfied = usize::MAX;
            level = self.total / self.running.len() as f64;
            loop {
                let low = self.running.iter().filter(|flow| flow.rate_max <= level);
                let (count, sum) = low.fold((0, 0.0), |(count, sum), flow| (count + 1, sum + flow.rate_max));
                if count == satisfied || count == self.running.len() {
                    break;
                }
                satisfied = count;
                level = (self.total - sum) / (self.running.len() - count) as f64;
            }
        }
        for flow in &mut self.running {
            flow.rate = flow.rate_max.min(level);
        }
    }
}

/// Longest latency, in milliseconds: a day.
const DAY_MS: f64 = 86_400_000.0;
/// Retry waits grow to 64 times the first.
const RETRY_DOUBLINGS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use bowwave_core::schedule::Algorithm;

    use super::*;

    use bowwave_core::Urgency;

    use crate::DeviceSpec;

    /// Completion times of `count` reads in milliseconds, `slots` at once, in order.
    fn ends(device: &str, count: u64, bytes: u64) -> Vec<f64> {
        let mut device = DeviceSpec::open(device, &Algorithm::ALL).unwrap().build(3);
        let (mut ended, mut sent, mut now) = (Vec::new(), 0, Instant(0));
        while (ended.len() as u64) < count {
            while sent < count && sent - (ended.len() as u64) < device.depth() as u64 {
                let (id, direction, urgency) = (RequestId(sent), Direction::Read, Urgency::Demand);
                device.submit(now, &Request { id, direction, start: 0, bytes, urgency, owner: 0, object: 0 });
                sent += 1;
            }
            now = device.next_event().unwrap();
            device.advance(now, &mut ended);
        }
        ended.iter().map(|done| done.ended.0 as f64 / 1e6).collect()
    }

    #[test]
    fn a_connection_is_made_once_and_used_again() {
        let ended = ends("s3-steady:slots=1,connect_ms_min=20,connect_ms_max=20", 3, 90_000);
        // 20 ms once; then 30 ms and one millisecond of transfer each.
        let expected = [51.0, 82.0, 113.0];
        assert!(
            ended.iter().zip(expected).all(|(ours, expected)| (ours - expected).abs() < 0.001),
            "{ended:?}"
        );
    }

    #[test]
    fn reads_past_the_stores_limit_are_refused_and_come_later() {
        let limited = "s3-steady:slots=500,reads_per_s_max=1000";
        let ended = ends(limited, 3000, 1);
        assert!(ended[999] < 70.0, "a second's worth comes at once: {}", ended[999]);
        assert!(ended[2999] > 2000.0, "and 1000 a second from then on: {}", ended[2999]);
        assert!(
            ended[2999] < 2000.0 * 3.0,
            "but retries do not lose the store's time for long: {}",
            ended[2999]
        );
        assert!(ends("s3-steady:slots=500", 3000, 1)[2999] < 200.0);
    }

    #[test]
    fn bytes_that_were_asked_for_together_come_one_part_after_the_other() {
        let done = |direction| {
            let mut device = DeviceSpec::open("s3-steady:total_mb_s=180", &Algorithm::ALL).unwrap().build(3);
            let request = |id, bytes| Request {
                id: RequestId(id),
                direction,
                start: 0,
                bytes,
                urgency: Urgency::Demand,
                owner: 0,
                object: 0,
            };
            device.submit_parts(Instant(0), &request(7, 270_000), &[90_000, 180_000, 270_000]);
            device.submit(Instant(0), &request(8, 90_000));
            let mut ended = Vec::new();
            while let Some(now) = device.next_event() {
                device.advance(now, &mut ended);
            }
            assert_eq!((device.service().requests, device.service().bytes), (2, 360_000));
            ended.iter().map(|done| (done.id.0, done.ended.0 / 1_000_000, done.left)).collect::<Vec<_>>()
        };
        assert_eq!(done(Direction::Read), [(7, 31, 180_000), (8, 31, 0), (7, 32, 90_000), (7, 33, 0)]);
        assert_eq!(done(Direction::Write), [(8, 31, 0), (7, 33, 0)], "an object is there when all of it is");
    }

    #[test]
    fn a_link_is_shared_evenly_but_nobody_gets_more_than_it_can_take() {
        let mut flows = Flows { total: 10.0, now: 0.0, running: Vec::new() };
        for (index, rate_max) in [(0, 1.0), (1, 8.0), (2, 8.0), (3, 3.5)] {
            flows.begin(index, 100.0, rate_max);
        }
        flows.share();
        let rates: Vec<_> = flows.running.iter().map(|flow| flow.rate).collect();
        assert_eq!(rates, [1.0, 3.0, 3.0, 3.0]);
        assert_eq!(flows.next_end(), Some(34));
        flows.total = 100.0;
        flows.share();
        assert!(flows.running.iter().all(|flow| flow.rate == flow.rate_max));
    }
}
