//! Generated recordings for tests: a few readers, a growing window, one device. Plausible,
//! deterministic, small.

use bowwave_sim::record::{Decisions, Latency, Reads, Recording, Requests, Row, Run, Samples};

/// State of a page that was never requested.
const ABSENT: u64 = u64::MAX;

/// A simple readahead policy.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) policy: &'static str,
    /// Pages of the first window; 0 disables readahead.
    pub(crate) first: u64,
    /// Growth factor of windows.
    pub(crate) ramp: u64,
    pub(crate) ra_pages: u32,
}

/// A simple device: nanoseconds per non-contiguous request, and per page.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) seek_ns: u64,
    pub(crate) page_ns: u64,
}

pub(crate) const HDD: Device = Device { name: "hdd", seek_ns: 8_000_000, page_ns: 62_000 };
pub(crate) const NVME: Device = Device { name: "nvme", seek_ns: 85_000, page_ns: 1_300 };

pub(crate) const PLANS: [Plan; 4] = [
    Plan { policy: "none", first: 0, ramp: 1, ra_pages: 32 },
    Plan { policy: "legacy", first: 3, ramp: 1, ra_pages: 32 },
    Plan { policy: "ondemand", first: 4, ramp: 2, ra_pages: 32 },
    Plan { policy: "stream", first: 16, ramp: 4, ra_pages: 256 },
];

/// Every policy on every device: `reads` reads over files with these names.
pub(crate) fn recording(devices: &[Device], files: &[&str], reads: usize) -> Recording {
    let runs = devices
        .iter()
        .flat_map(|device| PLANS.iter().map(|plan| Sketch::new(*plan, *device, files).run(reads)))
        .collect();
    Recording {
        title: "three readers and a random one".into(),
        command: "bowwave replay mix.csv --policy all --device hdd,nvme --save run.json".into(),
        runs,
        ..Recording::new()
    }
}

struct Sketch {
    plan: Plan,
    device: Device,
    files: Vec<String>,
    /// By file and page: when it is cached.
    there: Vec<Vec<u64>>,
    /// By file and page: read ahead and not used yet.
    unused: Vec<Vec<bool>>,
    /// By file: start and size of the window, and its marked page.
    windows: Vec<(u64, u64, Option<u64>)>,
    free_ns: u64,
    head: (usize, u64),
    run: Run,
}

const FILE_PAGES: u64 = 1 << 14;

impl Sketch {
    fn new(plan: Plan, device: Device, files: &[&str]) -> Self {
        let count = files.len();
        Self {
            plan,
            device,
            files: files.iter().map(|name| (*name).to_owned()).collect(),
            there: vec![vec![ABSENT; FILE_PAGES as usize]; count],
            unused: vec![vec![false; FILE_PAGES as usize]; count],
            windows: vec![(0, 0, None); count],
            free_ns: 0,
            head: (0, 0),
            run: Run {
                page_bytes: 4096,
                reads_every: 1,
                decisions_every: 1,
                requests_every: 1,
                ..Run::default()
            },
        }
    }

    fn run(mut self, reads: usize) -> Run {
        let files = self.files.len();
        let mut clocks = vec![0_u64; files];
        let mut next = vec![0_u64; files];
        let mut chance = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..reads {
            let file = (0..files).min_by_key(|file| clocks[*file]).expect("there are files");
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            // The last reader reads at random; the others sequentially with occasional seeks.
            let jumps = (file + 1 == files && files > 1) || chance.is_multiple_of(400);
            if jumps || next[file] + 8 >= FILE_PAGES {
                next[file] = (chance >> 20) % (FILE_PAGES - 300);
            }
            let pages = 1 + (chance >> 40) % 4;
            let done = self.read(clocks[file], file, next[file], pages);
            next[file] += pages;
            clocks[file] = done + 150_000 + chance % 100_000;
        }
        self.finish(clocks.into_iter().max().unwrap_or(0))
    }

    /// Reads; returns the completion time.
    fn read(&mut self, now: u64, file: usize, start: u64, pages: u64) -> u64 {
        let (mut done, mut outcome) = (now + 900, 0_u8);
        for page in start..start + pages {
            let there = self.there[file][page as usize];
            if there == ABSENT {
                outcome = 2;
                self.run.row.misses += 1;
                self.miss(now, file, page, start + pages - page);
            } else {
                if there > now {
                    (outcome, self.run.row.late) = (outcome.max(1), self.run.row.late + 1);
                } else {
                    self.run.row.hits += 1;
                }
                if self.windows[file].2 == Some(page) {
                    self.mark(now, file, page);
                }
            }
            if std::mem::take(&mut self.unused[file][page as usize]) {
                self.run.row.pages_used += 1;
            }
            done = done.max(self.there[file][page as usize]);
        }
        let reads = &mut self.run.reads;
        reads.time_ns.push(now);
        reads.latency_ns.push(done - now);
        reads.file.push(file as u32);
        reads.start.push(start);
        reads.pages.push(pages as u32);
        reads.outcome.push(outcome);
        self.run.row.accesses += pages;
        done
    }

    fn miss(&mut self, now: u64, file: usize, page: u64, rest: u64) {
        if self.plan.first == 0 {
            return self.fetch(now, file, page, rest, false);
        }
        let size = self.plan.first.max(rest);
        self.decide(now, file, page, page, size, size - rest, "initial");
        self.fetch(now, file, page, size, false);
    }

    fn mark(&mut self, now: u64, file: usize, page: u64) {
        let (start, size, _) = self.windows[file];
        let larger = (size * self.plan.ramp).clamp(4, self.plan.ra_pages.into());
        self.decide(now, file, page, start + size, larger, larger, "lookahead");
        self.fetch(now, file, start + size, larger, true);
    }

    #[expect(clippy::too_many_arguments, reason = "a row of the decisions")]
    fn decide(&mut self, now: u64, file: usize, page: u64, start: u64, size: u64, ahead: u64, reason: &str) {
        let mark = (ahead > 0).then_some(start + size - ahead);
        self.windows[file] = (start, size, mark);
        let decisions: &mut Decisions = &mut self.run.decisions;
        decisions.time_ns.push(now);
        decisions.file.push(file as u32);
        decisions.page.push(page);
        decisions.reason.push(reason.into());
        decisions.start.push(start);
        decisions.size.push(size);
        decisions.async_size.push(ahead);
        decisions.mark.push(mark);
    }

    fn fetch(&mut self, now: u64, file: usize, start: u64, pages: u64, readahead: bool) {
        let pages = pages.min(FILE_PAGES.saturating_sub(start));
        if pages == 0 {
            return;
        }
        let began = now.max(self.free_ns);
        let seek = if self.head == (file, start) { 0 } else { self.device.seek_ns };
        let ended = began + seek + pages * self.device.page_ns;
        (self.free_ns, self.head) = (ended, (file, start + pages));
        for page in start..start + pages {
            self.there[file][page as usize] = ended;
            self.unused[file][page as usize] = self.plan.first > 0;
        }
        let requests: &mut Requests = &mut self.run.requests;
        requests.queued_ns.push(now);
        requests.started_ns.push(began);
        requests.ended_ns.push(ended);
        requests.file.push(file as u32);
        requests.start.push(start);
        requests.pages.push(pages as u32);
        requests.readahead.push(readahead);
    }

    fn finish(mut self, end_ns: u64) -> Run {
        let fetched: u64 = self.run.requests.pages.iter().map(|pages| u64::from(*pages)).sum();
        let samples = samples(&self.run.requests, &self.run.reads, end_ns.max(self.free_ns));
        let busy: u64 =
            self.run.requests.ended_ns.iter().zip(&self.run.requests.started_ns).map(|(e, s)| e - s).sum();
        let row = &self.run.row;
        let requests = self.run.requests.pages.len() as u64;
        self.run.row = Row {
            policy: self.plan.policy.into(),
            device: self.device.name.into(),
            cache_bytes: Some(64 << 20),
            ra_pages: self.plan.ra_pages,
            seconds: end_ns as f64 / 1e9,
            requests,
            bytes_fetched: fetched * 4096,
            bytes_wanted: row.accesses * 4096,
            amplification: fetched as f64 / row.accesses as f64,
            pages_wasted: self.unused.iter().flatten().filter(|unused| **unused).count() as u64,
            pages_thrashed: if self.plan.first > 0 { row.accesses / 500 } else { 0 },
            avg_io_bytes: (fetched * 4096) as f64 / requests.max(1) as f64,
            utilisation: (busy as f64 / end_ns.max(1) as f64).min(1.0),
            latency_ns: latency(&self.run.reads),
            ..row.clone()
        };
        Run { files: self.files, samples, ..self.run }
    }
}

fn latency(reads: &Reads) -> Latency {
    let mut sorted = reads.latency_ns.clone();
    sorted.sort_unstable();
    let at = |part: usize| sorted[(sorted.len() * part / 100).min(sorted.len() - 1)];
    Latency { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
}

fn samples(requests: &Requests, reads: &Reads, end_ns: u64) -> Samples {
    const STEPS: u64 = 240;
    let step = end_ns.div_ceil(STEPS).max(1);
    let mut samples = Samples {
        time_ns: (1..=STEPS).map(|index| index * step).collect(),
        busy: vec![0.0; STEPS as usize],
        queued: vec![0; STEPS as usize],
        bytes_fetched: vec![0; STEPS as usize],
        bytes_delivered: vec![0; STEPS as usize],
        requests: vec![0; STEPS as usize],
        thrashed: (0..STEPS).map(|step| if step > 60 { step % 5 } else { 0 }).collect(),
        queued_async: vec![0; STEPS as usize],
        expired: (0..STEPS as u32).map(|step| u32::from(step % 17 == 0)).collect(),
    };
    for index in 0..requests.pages.len() {
        let (queued, began, ended) =
            (requests.queued_ns[index], requests.started_ns[index], requests.ended_ns[index]);
        let last = ((ended - 1) / step) as usize;
        samples.bytes_fetched[last] += u64::from(requests.pages[index]) * 4096;
        samples.requests[last] += 1;
        for place in queued / step..=(ended - 1) / step {
            let (from, to) = (place * step, (place + 1) * step);
            let overlap = ended.min(to).saturating_sub(began.max(from)) as f64;
            let busy = &mut samples.busy[place as usize];
            *busy = (*busy + overlap / step as f64).min(1.0);
            samples.queued[place as usize] += u32::from(ended > to);
            samples.queued_async[place as usize] += u32::from(ended > to && requests.readahead[index]);
        }
    }
    for index in 0..reads.time_ns.len() {
        let place = ((reads.time_ns[index] + reads.latency_ns[index]) / step).min(STEPS - 1);
        samples.bytes_delivered[place as usize] += u64::from(reads.pages[index]) * 4096;
    }
    samples
}
