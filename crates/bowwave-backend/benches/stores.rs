//! Throughput and latency of stores, and accuracy of emulated devices: `cargo bench -p
//! bowwave-backend`.
//!
//! Each case prints the bound by its parameters, the measured value and the processor time.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowwave_backend::{Object, Options, ReadBuf, ReadSink, Result, open_url, read_once};
use bowwave_testkit::HttpServer;

fn main() {
    println!("{:44} {:>10} {:>10} {:>7} {:>6}", "case", "bound", "reached", "share", "cpu s");
    let gb = 1e9;
    // A lane requests again when its request has ended, so each request pays the TTFB.
    let s3 = |depth: f64, len: f64| Some(depth * len / (0.030 + len / 90e6));
    let mib = 1048576.0;
    throughput("emulate:s3,total=none/8GiB", 64, 16 << 20, 4 << 30, s3(64.0, 16.0 * mib));
    throughput("emulate:s3,total=none/8GiB", 64, 2 << 20, 2 << 30, s3(64.0, 2.0 * mib));
    throughput("emulate:s3,total=none,slots=16/4GiB", 16, 16 << 20, 2 << 30, s3(16.0, 16.0 * mib));
    throughput("emulate:s3,total=1GB/s/4GiB", 64, 8 << 20, 2 << 30, Some(gb));
    throughput("emulate:nvme/8GiB", 32, 1 << 20, 4 << 30, Some(3.2 * gb));
    throughput("emulate:lustre/4GiB", 8, 1 << 20, 1 << 30, Some(8.0 * mib / (450e-6 + mib / 256e6)));
    throughput("emulate:hdd/1GiB", 4, 1 << 20, 64 << 20, Some(1240.0 * 512.0 * 120.0));
    throughput("pattern:/8GiB", 16, 4 << 20, 8 << 30, None);
    latency("emulate:nvme/1GiB", 4096, 2000);
    latency("emulate:lustre/1GiB", 4096, 500);
    latency("emulate:s3/1GiB", 4096, 30);
    latency("emulate:hdd/1GiB", 4096, 100);
    files();
}

/// Local files: beside the binary, which is on a disk.
fn files() {
    let place = std::env::current_exe().expect("a program knows its file").with_extension("bench-data");
    let bytes = vec![7u8; 64 << 20];
    let mut file = fs::File::create(&place).expect("the build directory can be written");
    for _ in 0..8 {
        std::io::Write::write_all(&mut file, &bytes).expect("512 MiB are free");
    }
    file.sync_all().expect("can be written");
    let url = format!("file://{}", place.display());
    throughput(&url, 16, 1 << 20, 512 << 20, None);
    latency(&url, 4096, 1000);
    network(&place);
    fs::remove_file(&place).expect("was made above");
}

/// The same file over loopback, server and client on the same cores.
fn network(file: &Path) {
    let directory = file.parent().expect("a file is in a directory");
    let name = file.file_name().and_then(OsStr::to_str).expect("a binary's name is plain");
    let server = HttpServer::start(directory).expect("loopback is there");
    throughput(&format!("{}{name}", server.url()), 8, 4 << 20, 512 << 20, None);
    latency(&format!("{}{name}", server.url()), 4096, 500);
}

/// Reads `total` bytes in requests of `len`, `depth` in flight.
fn throughput(url: &str, depth: u64, len: u64, total: u64, bound: Option<f64>) {
    let store = open_url(url, &Options::default()).expect("a known URL");
    let object = store.open("".as_ref()).expect("is there");
    let (ended, all) = sync_channel(depth as usize);
    let plan = Arc::new(Plan { object, next: AtomicU64::new(0), len, total, ended: Mutex::new(ended) });
    let bufs: Vec<_> = (0..depth).map(|_| aligned(len as usize)).collect();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for buf in bufs {
        plan.go_on(buf);
    }
    for _ in 0..depth {
        all.recv().expect("each lane ends");
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let bound_text = bound.map_or_else(|| "-".to_owned(), |bound| format!("{:.0}", bound / 1e6));
    let share = bound.map_or_else(|| "-".to_owned(), |bound| format!("{:.1}%", rate / bound * 100.0));
    let name = format!("{} {depth}x{}K MB/s", short(url), len >> 10);
    println!("{name:44} {bound_text:>10} {:>10.0} {share:>7} {:>6.2}", rate / 1e6, cpu_seconds() - cpu);
}

/// Times single reads of `len` bytes at random offsets.
fn latency(url: &str, len: usize, count: usize) {
    let store = open_url(url, &Options::default()).expect("a known URL");
    let object = store.open("".as_ref()).expect("is there");
    let pages = object.size() / 4096;
    let mut times: Vec<_> = (0..count as u64)
        .map(|index| {
            let offset = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * 4096;
            let begun = Instant::now();
            read_once(&*object, offset, len, Duration::from_secs(20)).expect("readable");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
    let typical = store.profile().latency.as_secs_f64() * 1e6;
    let name = format!("{} {len} B, us: typical, p50, p99", short(url));
    println!("{name:44} {typical:>10.0} {:>10.0} {:>7.0}", at(50), at(99));
}

struct Plan {
    object: Arc<dyn Object>,
    next: AtomicU64,
    len: u64,
    total: u64,
    ended: Mutex<SyncSender<()>>,
}

impl Plan {
    fn go_on(self: &Arc<Self>, buf: ReadBuf) {
        let at = self.next.fetch_add(self.len, Ordering::Relaxed);
        if at >= self.total {
            self.ended.lock().expect("nobody panics").send(()).expect("main waits");
            return;
        }
        self.object.read(at % self.object.size(), buf, Box::new(Lane(Arc::clone(self))));
    }
}

struct Lane(Arc<Plan>);

impl ReadSink for Lane {
    fn progress(&mut self, _: usize) {}

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        assert_eq!(result.expect("readable") as u64, self.0.len);
        self.0.go_on(buf);
    }
}

fn aligned(len: usize) -> ReadBuf {
    let mut buf = ReadBuf::zeroed(len + 4096);
    let base = buf.segments()[0].iov_base.addr();
    let mut inner = buf.split_off(base.next_multiple_of(4096) - base);
    drop(inner.split_off(len));
    // Touched before the clock runs: page faults are not the store's.
    inner.fill_with(0..len, |_, bytes| bytes.fill(1));
    inner
}

fn short(url: &str) -> &str {
    match url.split_once(':') {
        Some((scheme @ ("file" | "http"), _)) => scheme,
        _ => url,
    }
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat.rsplit(')').next().unwrap_or("").split(' ').flat_map(str::parse).collect();
    // Fields 14 and 15 in ticks of 10 ms: the 11th and 12th number after the name and the state.
    fields.get(10..12).map_or(0.0, |ticks| ticks.iter().sum::<f64>() / 100.0)
}
