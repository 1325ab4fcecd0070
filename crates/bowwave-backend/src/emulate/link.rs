//! The schedule of a device with latency, bandwidth and slots: a state machine in nanoseconds, without a clock.
//!
//! ```text
//!   arrival   slot free           first byte      steps of at most 256 KiB                 end
//!     |--wait----|------latency-------|==bandwidth==|==bandwidth==| … |==|
//!                                      `- each step also waits its turn in the pipe that all share
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::station::Kind;
use super::{Device, Release};
use crate::chance;

/// Requests at the device and when their next bytes come.
#[derive(Debug)]
pub(super) struct Link {
    device: Device,
    latency_ns: u64,
    write_latency_ns: u64,
    flush_ns: u64,
    step_bytes: u64,
    slots_free: u32,
    waiting: VecDeque<Waiting>,
    running: BTreeMap<u64, Running>,
    /// (time, request): unique, so that equal times keep the order of arrival.
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    /// When the pipe that all reads share is free again.
    pipe_free: u64,
    /// The same for writes: the two directions do not wait for each other.
    write_pipe_free: u64,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    kind: Kind,
    arrival: u64,
    len: u64,
}

#[derive(Debug)]
struct Running {
    kind: Kind,
    len: u64,
    released: u64,
    /// Bytes that the next time on the agenda releases.
    step: u64,
}

impl Link {
    pub(super) fn new(device: &Device) -> Self {
        // Steps of about 3 ms where the bandwidth is low, so that slow devices trickle too.
        let by_time = device.rate_of_one() / 333;
        Self {
            latency_ns: nanos(device.latency),
            write_latency_ns: nanos(device.write_latency),
            flush_ns: nanos(device.flush),
            step_bytes: by_time.clamp(4 << 10, 256 << 10),
            slots_free: device.slots,
            device: device.clone(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            pipe_free: 0,
            write_pipe_free: 0,
        }
    }

    /// Takes a request of `len` bytes, none of them only for a flush; `false` if too many wait.
    pub(super) fn arrive(&mut self, now: u64, id: u64, kind: Kind, len: u64) -> bool {
        if self.slots_free > 0 {
            self.slots_free -= 1;
            self.start(now, id, kind, len);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(Waiting { id, kind, arrival: now, len });
        } else {
            return false;
        }
        true
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<u64> {
        self.agenda.peek().map(|Reverse((time, _))| *time)
    }

    /// Lets everything happen that is due by `now`, each at its own time.
    pub(super) fn advance(&mut self, now: u64, out: &mut Vec<Release>) {
        while let Some(&Reverse((time, id))) = self.agenda.peek()
            && time <= now
        {
            self.agenda.pop();
            // Requests that were cut short are on the agenda still.
            let Some(request) = self.running.get_mut(&id) else { continue };
            request.released += request.step;
            let over = request.released == request.len;
            out.push(Release { id, bytes: request.released, over });
            if over {
                self.end(time, id);
                continue;
            }
            request.step = self.step_bytes.min(request.len - request.released);
            let (step, mut end) = (request.step, time);
            if let Some(rate) = self.device.bandwidth {
                end = time + duration(step, rate);
            }
            let (total, free) = match request.kind {
                Kind::Write => (self.device.write_total, &mut self.write_pipe_free),
                Kind::Read | Kind::Flush => (self.device.total, &mut self.pipe_free),
            };
            if let Some(rate) = total {
                *free = (*free).max(time) + duration(step, rate);
                end = end.max(*free);
            }
            self.agenda.push(Reverse((end, id)));
        }
    }

    /// Ends a request early: the device has nothing more to send.
    pub(super) fn cut(&mut self, now: u64, id: u64) {
        if self.running.contains_key(&id) {
            self.end(now, id);
        } else {
            self.waiting.retain(|waiting| waiting.id != id);
        }
    }

    fn end(&mut self, time: u64, id: u64) {
        self.running.remove(&id);
        match self.waiting.pop_front() {
            Some(next) => self.start(time.max(next.arrival), next.id, next.kind, next.len),
            None => self.slots_free += 1,
        }
    }

    fn start(&mut self, time: u64, id: u64, kind: Kind, len: u64) {
        self.running.insert(id, Running { kind, len, released: 0, step: 0 });
        self.agenda.push(Reverse((time + self.first_byte(id, kind), id)));
    }

    fn first_byte(&self, id: u64, kind: Kind) -> u64 {
        let Device { jitter, tail, seed, .. } = self.device;
        let mut latency = match kind {
            Kind::Read => self.latency_ns,
            Kind::Write => self.write_latency_ns,
            Kind::Flush => self.flush_ns,
        };
        if jitter > 0.0 {
            latency = (latency as f64 * (jitter * chance::normal(seed, id)).exp()) as u64;
        }
        if tail > 0.0 && chance::unit(!seed, id) < tail {
            latency += nanos(self.device.tail_latency);
        }
        latency
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

fn duration(bytes: u64, rate: u64) -> u64 {
    // Steps are at most 256 KiB, so the product fits.
    bytes * 1_000_000_000 / rate.max(1)
}

/// Most requests that may wait for a slot; only a caller that ignores the profile meets it.
const WAITING_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(link: &mut Link) -> Vec<(u64, Release)> {
        let mut log = Vec::new();
        while let Some(time) = link.next() {
            let mut out = Vec::new();
            link.advance(time, &mut out);
            log.extend(out.into_iter().map(|release| (time, release)));
        }
        log
    }

    #[test]
    fn bytes_come_after_the_latency_at_the_bandwidth_of_a_request() {
        let mut link = Link::new(&Device::named("s3").unwrap());
        assert!(link.arrive(1_000, 0, Kind::Read, 1 << 20));
        let log = run(&mut link);
        assert_eq!(log[0], (30_001_000, Release { id: 0, bytes: 0, over: false }));
        let step = (256u64 << 10) * 1_000_000_000 / 90_000_000;
        assert_eq!(log[1], (30_001_000 + step, Release { id: 0, bytes: 256 << 10, over: false }));
        assert_eq!(log[4], (30_001_000 + 4 * step, Release { id: 0, bytes: 1 << 20, over: true }));
    }

    #[test]
    fn requests_beyond_the_slots_wait_in_order_and_a_cut_gives_its_slot_on() {
        let mut device = Device::named("s3").unwrap();
        device.slots = 1;
        let mut link = Link::new(&device);
        for id in 0..3 {
            assert!(link.arrive(0, id, Kind::Read, 9));
        }
        link.cut(5, 0);
        let over: Vec<_> = run(&mut link).into_iter().filter(|(_, release)| release.over).collect();
        assert_eq!(
            over.iter().map(|(time, release)| (*time, release.id)).collect::<Vec<_>>(),
            [(30_000_105, 1), (60_000_205, 2)]
        );
    }

    #[test]
    fn the_shared_pipe_is_divided_evenly() {
        let mut device = Device::named("nvme").unwrap();
        device.total = Some(1_000_000_000);
        let mut link = Link::new(&device);
        for id in 0..4 {
            assert!(link.arrive(0, id, Kind::Read, 1 << 20));
        }
        let over: Vec<_> = run(&mut link).into_iter().filter(|(_, release)| release.over).collect();
        let all = 80_000 + (4u64 << 20);
        assert_eq!(over.last().unwrap().0, all);
        assert!(over.iter().all(|(time, _)| *time >= all - (1 << 20)), "all end within one round");
    }
}
