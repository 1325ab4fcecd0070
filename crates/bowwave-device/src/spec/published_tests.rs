//! Compares each model with published figures. Distributions are compared by the demerit figure.
//!
//! The demerit figure (Ruemmler and Wilkes, IEEE Computer, March 1994) is the root mean square of
//! the horizontal distance between two cumulative distributions of service time, here as a share of
//! the reference's mean. `cargo test -p bowwave-device published -- --nocapture` prints all.

use bowwave_core::schedule::Algorithm;
use bowwave_core::{Instant, Random, Urgency};

use super::{DeviceSpec, Model};
use crate::chance::{exp, quantile_normal};
use crate::hdd::HddParameters;
use crate::{Device, Direction, Done, Request, RequestId};

/// Prints a figure of a model, and asserts that it deviates from the reference by at most `bound`,
/// a share of the reference.
#[expect(clippy::print_stdout, reason = "the figures of a model are read by people, too")]
fn check(what: &str, unit: &str, reference: f64, ours: f64, bound: f64, source: &str) {
    let off = if reference == 0.0 { ours } else { ours / reference - 1.0 };
    let bound_percent = bound * 100.0;
    let line = format!("{what:<46} {reference:>10.4} {ours:>10.4}  {unit:<8} {bound_percent:>5.1}% {source}");
    println!("{line}");
    assert!(off.abs() <= bound, "{line}");
}

/// As [`check`], of a demerit and its maximum.
fn check_demerit(what: &str, sorted: &[f64], quantile: impl Fn(f64) -> f64, bound: f64, source: &str) {
    check(what, "of mean", 0.0, demerit(sorted, quantile), bound, source);
}

/// Demerit of sorted service times against a reference's quantiles.
fn demerit(sorted: &[f64], quantile: impl Fn(f64) -> f64) -> f64 {
    let (mut squares, mut sum) = (0.0, 0.0);
    for (index, ours) in sorted.iter().enumerate() {
        let reference = quantile((index as f64 + 0.5) / sorted.len() as f64);
        squares += (ours - reference) * (ours - reference);
        sum += reference;
    }
    (squares / sorted.len() as f64).sqrt() / (sum / sorted.len() as f64)
}

/// A device and a clock: requests one at a time, or several at once.
struct Bench {
    device: Box<dyn Device>,
    now: u64,
    count: u64,
}

impl Bench {
    fn open(text: &str) -> Self {
        Self { device: DeviceSpec::open(text, &Algorithm::ALL).unwrap().build(1), now: 0, count: 0 }
    }

    fn submit(&mut self, direction: Direction, start: u64, bytes: u64) {
        self.count += 1;
        let (id, urgency) = (RequestId(self.count), Urgency::Demand);
        let request = Request { id, direction, start, bytes, urgency, owner: 0, object: 0 };
        self.device.submit(Instant(self.now), &request);
    }

    /// Waits for the next completions.
    fn wait(&mut self, ended: &mut Vec<Done>) {
        let before = ended.len();
        while ended.len() == before
            && let Some(next) = self.device.next_event()
        {
            self.now = next.0;
            self.device.advance(next, ended);
        }
    }

    /// Serves requests, `depth` at once, with a pause after each; returns service times in ns, in
    /// order of completion.
    fn run(
        &mut self,
        direction: Direction,
        depth: usize,
        think: u64,
        requests: impl IntoIterator<Item = (u64, u64)>,
    ) -> Vec<f64> {
        let mut requests = requests.into_iter().peekable();
        let (mut ended, mut held) = (Vec::new(), 0);
        loop {
            while held < depth
                && let Some((start, bytes)) = requests.next()
            {
                self.submit(direction, start, bytes);
                held += 1;
            }
            if held == 0 {
                return ended.iter().map(|done: &Done| (done.ended.0 - done.started.0) as f64).collect();
            }
            let before = ended.len();
            self.wait(&mut ended);
            held -= ended.len() - before;
            self.now += think;
        }
    }

    /// As [`run`](Self::run), but returns the throughput in MB/s.
    fn rate(&mut self, depth: usize, think: u64, requests: impl IntoIterator<Item = (u64, u64)>) -> f64 {
        let (start, before) = (self.now, self.device.service().bytes);
        self.run(Direction::Read, depth, think, requests);
        (self.device.service().bytes - before) as f64 / (self.now - start) as f64 * 1e3
    }
}

fn sequential(start: u64, bytes: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..count).map(move |index| (start + index * bytes, bytes))
}

fn random(space: u64, bytes: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut random = Random::from_state(7);
    (0..count).map(move |_| (random.below(space / bytes) * bytes, bytes))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn hdd() -> HddParameters {
    match DeviceSpec::open("hdd", &Algorithm::ALL).unwrap().model {
        Model::Hdd(parameters) => *parameters,
        model => panic!("{model:?}"),
    }
}

#[test]
fn the_disk_has_published_rates_and_times() {
    let open = || Bench::open("hdd");
    let space = open().device.capacity_bytes().unwrap();
    let outer = open().rate(1, 0, sequential(0, 512 * KB, 2000));
    let inner = open().rate(1, 0, sequential(space - 1024 * MB, 512 * KB, 2000));
    let maker = "Deskstar 7K500 specification, same maker and generation";
    check("sequential, zone 0", "MB/s", 64.8, outer, 0.03, maker);
    check("sequential, last zone", "MB/s", 31.0, inner, 0.05, maker);
    let (by_cylinder, by_sector) = hdd().seek_averages_ns();
    check("seek, average over cylinders", "ms", 8.5, by_cylinder / 1e6, 0.04, maker);
    let random_ns = |bytes| open().run(Direction::Read, 1, 0, random(space, bytes, 20_000));
    let mut draws = Random::from_state(9);
    let disk = hdd();
    let parts = sorted((0..200_000).map(|_| disk.random_read_ns(&mut draws, 8)).collect());
    let source = "drawn part by part: command, seek, turn, transfer";
    let part = |p: f64| parts[(p * parts.len() as f64) as usize];
    check_demerit("demerit of random 4 KiB", &sorted(random_ns(4 * KB)), part, 0.02, source);
    // Command, seek, half a revolution, transfer at the mean rate.
    let expected =
        |bytes: u64| 0.665 + by_sector / 1e6 + 60e3 / 7200.0 / 2.0 + bytes as f64 / ((64.8e3 + 31.0e3) / 2.0);
    let sum = "sum of command, integral of the seek curve, half a turn, transfer";
    for (what, bytes, bound) in [("random 4 KiB", 4 * KB, 0.01), ("random 64 KiB", 64 * KB, 0.02)] {
        check(what, "ms", expected(bytes), mean(&random_ns(bytes)) / 1e6, bound, sum);
    }
    let prototype = "50 MB/s published, with 46 % from the page cache";
    check("backward 64 KiB", "MB/s", 27.5, backward("hdd"), 0.05, prototype);
    let prototype = "16.6 MB/s with 46 % from the page cache (prototype)";
    let ours = backward("hdd:read_on_arrival_kb=0");
    check("the same, no read on arrival", "MB/s", 8.9, ours, 0.05, prototype);
}

/// Throughput of 64 KiB records read backwards, at 9.6 % of the disk, in MB/s.
fn backward(device: &str) -> f64 {
    let mut bench = Bench::open(device);
    let top = bench.device.capacity_bytes().unwrap() / 1000 * 96 / (64 * KB) * (64 * KB);
    let records = (1..8000).map(|index| (top - index * 64 * KB, 64 * KB));
    bench.rate(1, RECORD_THINK_NS, records)
}

#[test]
fn flash_has_published_rates_and_times() {
    let open = || Bench::open("nvme");
    let one = sorted(open().run(Direction::Read, 1, 0, random(SPACE, 4 * KB, 20_000)));
    let source = "measured, 85 to 100 us evenly";
    check_demerit("demerit of random 4 KiB, one at once", &one, |p| 85e3 + 15e3 * p, 0.1, source);
    let rate = open().rate(512, 0, random(SPACE, 4 * KB, 200_000)) * 1e3 / 4.096;
    check("random 4 KiB, 512 at once", "1/s", 450_000.0, rate, 0.03, "controller's limit");
    let rate = open().rate(64, 0, sequential(0, 128 * KB, 20_000));
    let source = "8 channels of 333 MB/s";
    check("sequential, 64 of 128 KiB at once", "MB/s", 8.0 * 333.0, rate, 0.03, source);
    let written = sorted(open().run(Direction::Write, 1, 0, random(SPACE, 4 * KB, 2_000)));
    let what = "demerit of 4 KiB writes that the buffer takes";
    check_demerit(what, &written, |p| 12e3 + 8e3 * p, 0.02, "12 to 20 us evenly");
}

#[test]
fn stores_have_published_rates_and_times() {
    let read = |device: &str| Bench::open(device).run(Direction::Read, 1, 0, random(SPACE, 1, 20_000));
    let firsts = sorted(read("s3:tail_share=0,connect_ms_min=0,connect_ms_max=0"));
    let first = |p| 30e6 * exp(0.55 * quantile_normal(p));
    check_demerit("demerit of the first byte", &firsts, first, 0.03, "lognormal, 30 ms, 0.55");
    let tails = Bench::open("s3").run(Direction::Read, 1, 0, random(SPACE, 1, 200_000));
    // The lognormal part exceeds 320 ms in one of 10^5 requests, so later ones belong to the tail.
    let late = tails.iter().filter(|&&time| time > 320e6).count() as f64 / tails.len() as f64;
    // A slow request takes about 35 ms plus a uniform 0.2 to 1 s: 89 % of them take over 320 ms.
    let share = 0.003 * (1.0 - (0.320 - 0.200 - 0.035) / 0.8);
    check("share over 320 ms", "of all", share, late, 0.1, "0.3 %, 0.2 to 1 s");
    let wide = "s3:slots=4000,first_byte_sigma=0,tail_share=0,total_mb_s=0,connect_ms_min=0,connect_ms_max=0";
    let flows = sorted(Bench::open(wide).run(Direction::Read, 4000, 0, sequential(0, 8 * MB, 4000)));
    let flow = |p: f64| 30e6 + 8.0 * MB as f64 / (60.0 * exp(0.3 * quantile_normal(1.0 - p))).min(95.0) * 1e3;
    let source = "30 ms, then lognormal 60 MB/s, 0.3, at most 95";
    check_demerit("demerit of 8 MiB on 4000 connections", &flows, flow, 0.03, source);
    let steady = Bench::open("s3-steady").run(Direction::Read, 1, 0, sequential(0, 9_000_000 / 8, 8));
    check("1.125 MB", "ms", 42.5, mean(&steady) / 1e6, 0.001, "30 ms + 1.125 MB at 90 MB/s");
    let mut whole = Bench::open("s3-steady:total_mb_s=1250,first_byte_sigma=0.55");
    let rate = whole.rate(64, 0, sequential(0, 8 * MB, 2000));
    check("64 connections on a link of 1.25 GB/s", "MB/s", 1250.0, rate, 0.03, "the link");
}

#[test]
fn lustre_has_the_published_distribution() {
    let times = sorted(Bench::open("lustre").run(Direction::Read, 8, 0, sequential(0, MB, 50_000)));
    // The share of 256-page RPCs that take at most `t`.
    let usual = |t: f64| (((t - 450e3) / 256.0 - 8e3) / 27e3).clamp(0.0, 1.0);
    let share = |t: f64| 0.98 * usual(t) + 0.02 * if t < 37e6 { usual(t / 5.0) } else { 1.0 };
    let quantile = |p: f64| {
        let (mut low, mut high) = (0.0, 37e6);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            *(if share(middle) < p { &mut low } else { &mut high }) = middle;
        }
        high
    };
    let source = "450 us + 256 pages of 8 to 35 us, 2 % five times as long, at most 37 ms";
    check_demerit("demerit of 1 MiB RPCs", &times, quantile, 0.02, source);
}

#[test]
fn the_demerit_is_the_rms_of_the_distance() {
    assert_eq!(demerit(&[1.0, 3.0], |_| 2.0), 0.5);
    assert_eq!(demerit(&[0.25, 0.75], |p| p), 0.0);
}

/// Per 64 KiB record: the host's 85 us for a miss and a copy at 1.2 GB/s.
const RECORD_THINK_NS: u64 = 85_000 + 54_600;
/// Address space for flash and stores, in bytes.
const SPACE: u64 = 100 << 30;
const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
