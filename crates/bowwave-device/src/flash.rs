//! Flash drives: channels of chips of dies of planes. Pages are slow to read and slower to program.
//!
//! ```text
//! read:   controller ─► plane reads ─► channel ─► link ─► done
//! write:  controller ─► write buffer ─► done    … later: channel ─► plane programs ─► buffer space
//! ```
//!
//! Pages are spread over channels first, then chips, dies and planes. A plane serves requests in
//! order of arrival. A read waits for a running program: nothing is suspended. The model omits
//! erases and garbage collection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bowwave_core::slab::Slab;
use bowwave_core::{Instant, Random};

use super::chance::between;
use super::parameters::{DeviceError, Parameters};
use super::{Device, Direction, Done, Request, Service};
use crate::DeviceLimits;

/// Parameters; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlashParameters {
    channels: u64,
    /// Planes per channel.
    planes: u64,
    page_bytes: u64,
    read_ns: u64,
    program_ns: u64,
    channel_ns_per_byte: f64,
    link_ns_per_byte: f64,
    /// The link of writes, if they do not share the link of reads. Their bytes cross it after the
    /// time of their command.
    write_link_ns_per_byte: Option<f64>,
    command_ns: (f64, f64),
    command_gap_ns: u64,
    write_ns: (f64, f64),
    write_buffer_pages: u64,
    request_bytes_max: u64,
    depth: usize,
    flush_ns: u64,
}

impl FlashParameters {
    /// Upper bounds for every read pattern.
    pub(super) fn limits(&self) -> DeviceLimits {
        let channels = self.channels as f64 / self.channel_ns_per_byte;
        let planes = (self.channels * self.planes * self.page_bytes) as f64 / self.read_ns.max(1) as f64;
        DeviceLimits {
            bytes_per_ns: channels.min(1.0 / self.link_ns_per_byte),
            medium_bytes_per_ns: planes,
            request_bytes_max: self.request_bytes_max,
            // Cannot truncate: `read` accepts at most 65,536.
            depth: self.depth as u32,
            request_ns_min: self.read_ns + self.command_ns.0 as u64,
        }
    }

    pub(super) fn read(p: &mut Parameters) -> Result<Self, DeviceError> {
        let planes = p.count("chips_per_channel", 1, 256)?
            * p.count("dies_per_chip", 1, 64)?
            * p.count("planes_per_die", 1, 64)?;
        let page_bytes = p.count("page_kb", 1, 1024)? << 10;
        let write_link = p.optional("write_link_mb_s", f64::INFINITY, (0.001, 1e6), false)?;
        let parameters = Self {
            channels: p.count("channels", 1, 1024)?,
            planes,
            page_bytes,
            read_ns: (p.number("read_us", 0.0, 1e9)? * 1e3) as u64,
            program_ns: (p.number("program_us", 0.0, 1e6)? * 1e3) as u64,
            channel_ns_per_byte: 1e3 / p.number("channel_mb_s", 0.001, 1e6)?,
            link_ns_per_byte: 1e3 / p.number("link_mb_s", 0.001, 1e6)?,
            write_link_ns_per_byte: write_link.is_finite().then(|| 1e3 / write_link),
            command_ns: p.span("command_us_min", "command_us_max", 1e6, 1e3)?,
            command_gap_ns: (1e9 / p.number("commands_per_s_max", 1.0, 1e9)?) as u64,
            write_ns: p.span("write_us_min", "write_us_max", 1e9, 1e3)?,
            write_buffer_pages: (p.count("write_buffer_kb", 1, 1 << 30)? << 10) / page_bytes,
            request_bytes_max: p.count("request_kb_max", 4, 1 << 20)? << 10,
            depth: p.count("depth", 1, 65_536)? as usize,
            flush_ns: (p.optional("flush_us", 0.0, (0.0, 1e9), false)? * 1e3) as u64,
        };
        if parameters.channels * parameters.planes > PLANES_MAX {
            let planes = parameters.planes;
            let rule = format!("must be at most {} with {planes} planes each", PLANES_MAX / planes);
            return Err(p.wrong("channels", &rule));
        }
        if parameters.write_buffer_pages * page_bytes < parameters.request_bytes_max + page_bytes {
            let least = (parameters.request_bytes_max + page_bytes) >> 10;
            let rule = format!("must be at least {least}, a longest request and a page");
            return Err(p.wrong("write_buffer_kb", &rule));
        }
        Ok(parameters)
    }

    /// Time to first byte of a read in nanoseconds, and bytes per nanosecond of long reads.
    pub(super) fn typical_read(&self) -> (f64, f64) {
        let (low, high) = self.command_ns;
        (self.read_ns as f64 + (low + high) / 2.0, self.limits().bytes_per_ns)
    }
}

/// The model.
#[derive(Debug)]
pub(super) struct Flash {
    p: FlashParameters,
    random: Random,
    /// When each plane is free again, in nanoseconds; below, the same for channels, links and
    /// controller.
    planes: Vec<u64>,
    channels: Vec<u64>,
    link: u64,
    write_link: u64,
    controller: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_count: u64,
    commands: Slab<Command>,
    /// Unprogrammed pages in the write buffer.
    buffered: u64,
    /// Writes that wait for buffer space.
    blocked: VecDeque<u32>,
    service: Service,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    request: Request,
    started: Instant,
    /// Pages not yet transferred to the host.
    pages_left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A plane has read `bytes` of a command, for this channel.
    Sensed { command: u32, channel: u32, bytes: u32 },
    /// The bytes have crossed the channel.
    Passed { command: u32, bytes: u32 },
    /// The controller has the command of a write.
    Arrived { command: u32 },
    /// A page is programmed.
    Programmed,
    /// The request is complete.
    Ended { command: u32 },
}

impl Flash {
    pub(super) fn new(p: &FlashParameters, seed: u64) -> Self {
        Self {
            p: p.clone(),
            random: Random::from_state(seed),
            planes: vec![0; (p.channels * p.planes) as usize],
            channels: vec![0; p.channels as usize],
            link: 0,
            write_link: 0,
            controller: 0,
            events: BinaryHeap::new(),
            events_count: 0,
            commands: Slab::default(),
            buffered: 0,
            blocked: VecDeque::new(),
            service: Service::default(),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events_count += 1;
        self.events.push(Reverse((time, self.events_count, event)));
    }

    /// The flash pages a request touches, with the bytes in each.
    fn pages(&self, request: &Request) -> impl Iterator<Item = (u64, u32)> + use<> {
        let (page_bytes, start, end) = (self.p.page_bytes, request.start, request.end());
        (start / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
            let bytes = end.min((page + 1) * page_bytes) - start.max(page * page_bytes);
            (page, bytes as u32)
        })
    }

    /// Channel and plane of a flash page.
    fn place(&self, page: u64) -> (usize, usize) {
        let channel = page % self.p.channels;
        let plane = page / self.p.channels % self.p.planes;
        (channel as usize, (channel * self.p.planes + plane) as usize)
    }

    fn sense(&mut self, now: u64, command: u32) {
        let request = self.commands[command].request;
        let pages = self.pages(&request);
        for (page, bytes) in pages {
            let (channel, plane) = self.place(page);
            let start = now.max(self.planes[plane]);
            self.planes[plane] = start + self.p.read_ns;
            self.service.wait_ns += start - now;
            self.service.media_ns += self.p.read_ns;
            self.at(start + self.p.read_ns, Event::Sensed { command, channel: channel as u32, bytes });
            self.commands[command].pages_left += 1;
        }
    }

    /// Accepts a write into the buffer if it has space.
    fn buffer(&mut self, now: u64, command: u32) -> bool {
        let request = self.commands[command].request;
        let pages = self.pages(&request);
        let count = request.end().div_ceil(self.p.page_bytes) - request.start / self.p.page_bytes;
        if self.buffered + count > self.p.write_buffer_pages {
            return false;
        }
        self.buffered += count;
        let whole = self.transfer(self.p.page_bytes);
        for (page, _) in pages {
            let (channel, plane) = self.place(page);
            let passed = now.max(self.channels[channel]) + whole;
            self.channels[channel] = passed;
            let programmed = passed.max(self.planes[plane]) + self.p.program_ns;
            self.planes[plane] = programmed;
            self.at(programmed, Event::Programmed);
        }
        let (low, high) = self.p.write_ns;
        let taken = between(&mut self.random, low, high) as u64;
        self.service.overhead_ns += taken;
        let end = if let Some(ns_per_byte) = self.p.write_link_ns_per_byte {
            self.write_link = self.write_link.max(now + taken) + (request.bytes as f64 * ns_per_byte) as u64;
            self.write_link
        } else {
            self.link = now.max(self.link) + (request.bytes as f64 * self.p.link_ns_per_byte) as u64;
            self.link.max(now + taken)
        };
        self.at(end, Event::Ended { command });
        true
    }

    fn transfer(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.p.channel_ns_per_byte) as u64
    }

    fn handle(&mut self, now: u64, event: Event, ended: &mut Vec<Done>) {
        match event {
            Event::Sensed { command, channel, bytes } => {
                let transfer = self.transfer(bytes.into());
                let free = &mut self.channels[channel as usize];
                self.service.wait_ns += free.saturating_sub(now);
                *free = now.max(*free) + transfer;
                let passed = *free;
                self.at(passed, Event::Passed { command, bytes });
            }
            Event::Passed { command, bytes } => {
                let transfer = (f64::from(bytes) * self.p.link_ns_per_byte) as u64;
                self.link = now.max(self.link) + transfer;
                self.service.bus_ns += self.transfer(bytes.into()) + transfer;
                let left = &mut self.commands[command].pages_left;
                *left -= 1;
                if *left == 0 {
                    let (low, high) = self.p.command_ns;
                    let taken = between(&mut self.random, low, high) as u64;
                    self.service.overhead_ns += taken;
                    self.at(self.link + taken, Event::Ended { command });
                }
            }
            Event::Arrived { command } => {
                if !self.blocked.is_empty() || !self.buffer(now, command) {
                    self.blocked.push_back(command);
                }
            }
            Event::Programmed => {
                self.buffered -= 1;
                while let Some(&command) = self.blocked.front()
                    && self.buffer(now, command)
                {
                    self.blocked.pop_front();
                }
            }
            Event::Ended { command } => {
                let Command { request: Request { id, .. }, started, .. } = self.commands[command];
                self.commands.release(command);
                ended.push(Done { id, started, ended: Instant(now), left: 0 });
            }
        }
    }
}

impl Device for Flash {
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
        self.service.requests += 1;
        self.service.bytes += request.bytes;
        let taken = now.0.max(self.controller);
        self.controller = taken + self.p.command_gap_ns;
        let command = self.commands.insert(Command { request: *request, started: now, pages_left: 0 });
        match request.direction {
            // Planes serve in order of these times, which is the order of submission: no event is
            // needed.
            Direction::Read => self.sense(taken, command),
            Direction::Write => self.at(taken, Event::Arrived { command }),
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse((time, ..))| Instant(*time))
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>) {
        while self.next_event().is_some_and(|next| next <= now)
            && let Some(Reverse((time, _, event))) = self.events.pop()
        {
            self.handle(time, event, ended);
        }
    }

    fn flush_end(&self, now: Instant) -> Instant {
        Instant(now.0 + self.p.flush_ns)
    }

    fn service(&self) -> Service {
        self.service
    }
}

/// Planes: far more than any drive has. Bounds memory if a device file has a typo.
const PLANES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use bowwave_core::Urgency;

    use bowwave_core::schedule::Algorithm;

    use super::*;
    use crate::{DeviceSpec, RequestId};

    /// Completion times in microseconds, by number, of requests submitted at once.
    fn ends(device: &str, requests: &[(Direction, u64, u64)]) -> Vec<u64> {
        let mut device = DeviceSpec::open(device, &Algorithm::ALL).unwrap().build(1);
        for (id, &(direction, start, bytes)) in (0..).zip(requests) {
            let (id, urgency) = (RequestId(id), Urgency::Demand);
            device.submit(Instant(0), &Request { id, direction, start, bytes, urgency, owner: 0, object: 0 });
        }
        let mut ended = Vec::new();
        while let Some(next) = device.next_event() {
            device.advance(next, &mut ended);
        }
        assert_eq!(ended.len(), requests.len());
        ended.sort_unstable_by_key(|done: &Done| done.id);
        ended.iter().map(|done| done.ended.0 / 1000).collect()
    }

    const READ: Direction = Direction::Read;
    const WRITE: Direction = Direction::Write;
    /// Distance between pages of the same plane, in bytes.
    const SAME_PLANE: u64 = 8 * 16 * 8192;

    #[test]
    fn planes_read_side_by_side_and_one_plane_one_after_the_other() {
        let apart = ends("nvme", &[(READ, 0, 4096), (READ, 8192, 4096)]);
        assert!(apart[1] < 105, "{apart:?}");
        let together = ends("nvme", &[(READ, 0, 4096), (READ, SAME_PLANE, 4096)]);
        assert!((165..180).contains(&together[1]), "{together:?}");
    }

    #[test]
    fn a_long_read_is_spread_over_the_channels() {
        // 128 pages, 16 per channel: one cell read, then 16 transfers of 24.6 us.
        let long = ends("nvme", &[(READ, 0, 1 << 20)]);
        assert!((470..500).contains(&long[0]), "{long:?}");
    }

    #[test]
    fn writes_end_in_the_buffer_until_it_is_full_and_hold_up_reads_of_their_planes() {
        let tiny = "nvme:request_kb_max=8,write_buffer_kb=16";
        let writes: Vec<_> = (0..4).map(|page| (WRITE, page * SAME_PLANE, 8192)).collect();
        let ended = ends(tiny, &writes);
        assert!(ended[0] <= 20 && ended[1] <= 25, "{ended:?}");
        assert!(ended[2] >= 770 && ended[3] >= 1500, "they wait until a page is programmed: {ended:?}");
        let held_up = ends("nvme", &[(WRITE, 0, 8192), (READ, SAME_PLANE, 4096)]);
        assert!(held_up[0] <= 20, "{held_up:?}");
    }
}
