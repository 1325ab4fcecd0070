//! Devices over memory: the contract, and that time is kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_device::Direction;

use super::driver::Driver;
use super::*;
use crate::conformance::{self, Fixture};
use crate::{
    Heard, MemoryBackend, Namespace as _, OpenWrite, PatternBackend, ReadBuf, Write as _, WriteBuf, pattern,
    read_end, start_read,
};

struct Emulated(MemoryBackend, Device);

impl Fixture for Emulated {
    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.insert(path, bytes);
    }

    fn store(&self) -> Arc<dyn Backend> {
        emulate(Arc::new(self.0.clone()), self.1.clone()).expect("a thread can be started")
    }
}

fn device(profile: &str, parameters: &[(&str, &str)]) -> Device {
    let mut device = Device::named(profile).unwrap();
    for (key, value) in parameters {
        device.set(key, value).unwrap();
    }
    device
}

#[test]
fn emulated_devices_conform() {
    let quick = [("latency", "1ms"), ("metadata", "0"), ("jitter", "0.5"), ("seed", "7")];
    conformance::run(&Emulated(MemoryBackend::new(), device("s3", &quick)));
    conformance::run(&Emulated(MemoryBackend::new(), device("nvme", &[])));
    conformance::run(&Emulated(MemoryBackend::new(), device("lustre", &[])));
    conformance::run(&Emulated(MemoryBackend::new(), device("hdd", &[("rpm", "100000"), ("seek", "0")])));
}

#[test]
fn bytes_come_no_earlier_than_the_device_could_send_them() {
    let inner = Arc::new(PatternBackend::new("8MiB").unwrap());
    let store = emulate(inner, device("s3", &[("metadata", "0")])).unwrap();
    let object = store.open("".as_ref()).unwrap();
    let begun = Instant::now();
    let heard = start_read(&*object, 0, ReadBuf::zeroed(8 << 20));
    let mut steps = Vec::new();
    let buf = loop {
        match heard.recv_timeout(Duration::from_secs(20)).expect("goes on") {
            Heard::Progress(bytes) => steps.push((begun.elapsed(), bytes)),
            Heard::Done(buf, result) => {
                steps.push((begun.elapsed(), result.expect("no faults")));
                break buf;
            }
            Heard::Dropped => panic!("no end"),
        }
    };
    let mut before = 0;
    for (time, bytes) in steps {
        let earliest = Duration::from_millis(30) + Duration::from_secs_f64(bytes as f64 / 90e6);
        assert!(time >= earliest, "{bytes} bytes after {time:?}, the device sends them at {earliest:?}");
        // Steps that fell due together while this machine was busy come as one.
        assert!((bytes - before) % (256 << 10) == 0, "steps of 256 KiB");
        before = bytes;
    }
    let mut wanted = vec![0; 8 << 20];
    pattern::fill(pattern::seed("8MiB".as_ref()), 0, &mut wanted);
    assert!(buf.to_vec() == wanted);
}

#[test]
fn the_best_request_is_ten_times_latency_times_bandwidth() {
    let best = |profile| {
        let store = emulate(Arc::new(MemoryBackend::new()), device(profile, &[])).unwrap();
        (store.profile().kind, store.profile().request_bytes_best)
    };
    assert_eq!(best("s3"), ("emulate:s3".to_owned(), 32 << 20));
    assert_eq!(best("lustre"), ("emulate:lustre".to_owned(), 1 << 20));
    assert_eq!(best("nvme"), ("emulate:nvme".to_owned(), 2 << 20));
    assert_eq!(best("hdd"), ("emulate:hdd".to_owned(), 8 << 20));
}

/// A device that costs nothing and is written as a whole, over a directory.
struct Uploading(tempfile::TempDir);

impl Fixture for Uploading {
    fn put(&self, path: &str, bytes: &[u8]) {
        let place = self.0.path().join(path);
        std::fs::create_dir_all(place.parent().expect("below the root")).unwrap();
        let before = std::fs::metadata(&place).and_then(|metadata| metadata.modified()).ok();
        std::fs::write(&place, bytes).unwrap();
        if let Some(before) = before {
            let file = std::fs::File::options().write(true).open(&place).unwrap();
            file.set_modified(before + Duration::from_nanos(1)).unwrap();
        }
    }

    fn store(&self) -> Arc<dyn Backend> {
        let mut device = Device::free("whole").unwrap();
        device.part = Some(64 << 10);
        let inner = crate::FileBackend::open(self.0.path(), crate::FileIo::Auto, true, None).unwrap();
        emulate(Arc::new(inner), device).unwrap()
    }
}

#[test]
fn a_directory_behind_an_emulated_object_store_conforms() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    conformance::run(&Uploading(directory));
}

#[test]
fn what_is_written_to_an_emulated_disk_lies_in_the_directory_when_the_write_has_ended() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let url =
        format!("emulate:hdd,rpm=100000,seek=0,overhead=0,write_cache=2MiB:{}", directory.path().display());
    let store = crate::open_url(&url, &crate::Options::default()).unwrap();
    let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    let object = store.open_write("file".as_ref(), &create).unwrap();
    crate::write_exact(&*object, 100, b"on the disk", Duration::from_secs(20)).unwrap();
    assert_eq!(std::fs::read(directory.path().join("file")).unwrap()[100..], *b"on the disk");
    object.sync(true).unwrap();
    store.rename("file".as_ref(), "other".as_ref(), crate::Rename::Replace).unwrap();
    assert!(directory.path().join("other").exists());
}

#[test]
fn a_write_takes_what_the_device_takes_and_so_does_a_flush() {
    let slow = [("write_latency", "20ms"), ("write_total", "10MB/s"), ("flush", "15ms"), ("latency", "0")];
    let store = emulate(Arc::new(MemoryBackend::new()), device("nvme", &slow)).unwrap();
    let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    let object = store.open_write("file".as_ref(), &create).unwrap();
    let begun = Instant::now();
    let writes: Vec<_> = (0..2u64)
        .map(|index| {
            let bytes = vec![index as u8; 100_000];
            crate::start_write(&*object, index * 100_000, WriteBuf::from_vec(bytes))
        })
        .collect();
    for write in writes {
        write.recv_timeout(Duration::from_secs(20)).unwrap().1.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_millis(20 + 20), "{:?}", begun.elapsed());
    let begun = Instant::now();
    object.sync(true).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(15), "{:?}", begun.elapsed());
}

/// Requests of a model in order of service: number, start, time of the report, remaining bytes.
type Served = Vec<(u64, u64, u64, u64)>;

/// Reads from an emulated device in real time: what the model served, and the same model driven by
/// an agenda in virtual time with the same arrivals.
fn in_real_and_in_virtual_time(device: &Device, reads: &[(u64, usize)]) -> (Served, Served) {
    use bowwave_core::{Instant, Urgency};
    use bowwave_device::{Done, Request, RequestId};

    let slow = slow(Arc::new(PatternBackend::new("4GiB").unwrap()), device.clone()).unwrap();
    let object = slow.open("".as_ref()).unwrap();
    let heard: Vec<_> =
        reads.iter().map(|&(offset, len)| start_read(&*object, offset, ReadBuf::zeroed(len))).collect();
    for reads in heard {
        while let Heard::Progress(_) = reads.recv_timeout(Duration::from_secs(20)).expect("goes on") {}
    }
    let log = slow.layer.station.log();

    let mut model = device.model().unwrap();
    let (mut served, mut held) = (Vec::<Done>::new(), 0);
    // First requests of reads, and further ones: they take turns.
    let (mut first, mut further, mut was_first) = (VecDeque::new(), VecDeque::new(), false);
    let mut arrivals = log.arrivals.iter().peekable();
    let mut id = 0;
    loop {
        let event = model.next_event().map(|next| next.0);
        let arrival = arrivals.peek().map(|(time, ..)| *time);
        let Some(now) = event.into_iter().chain(arrival).min() else { break };
        // Events of the device come before arrivals of the same time.
        if event == Some(now) {
            let before = served.len();
            model.advance(Instant(now), &mut served);
            held -= served[before..].iter().filter(|done| done.left == 0).count();
        } else if let Some(&(_, direction, address, len)) = arrivals.next() {
            let size = model.request_bytes_max();
            for offset in (0..len).step_by(usize::try_from(size).unwrap()) {
                let (start, bytes) = (address + offset, size.min(len - offset));
                let (urgency, owner, object) = (Urgency::Demand, 0, 0);
                let request = Request { id: RequestId(id), direction, start, bytes, urgency, owner, object };
                if offset == 0 {
                    first.push_back(request)
                } else {
                    further.push_back(request)
                }
                id += 1;
            }
        }
        while held < model.depth() && first.len() + further.len() > 0 {
            was_first = further.is_empty() || !was_first && !first.is_empty();
            let request = if was_first { first.pop_front() } else { further.pop_front() }.unwrap();
            held += 1;
            let step = usize::try_from(log.step_bytes).unwrap();
            let ends: Vec<_> =
                (0..request.bytes).step_by(step).map(|at| request.bytes.min(at + log.step_bytes)).collect();
            model.submit_parts(Instant(now), &request, &ends);
        }
    }
    let plain = |served: &[Done]| {
        served.iter().map(|done| (done.id.0, done.started.0, done.ended.0, done.left)).collect::<Vec<_>>()
    };
    (plain(&log.served), plain(&served))
}

/// Reads of several places, near and far, some longer than a request of the device.
const READS: [(u64, usize); 12] = [
    (0, 4096),
    (3 << 30, 64 << 10),
    (1 << 30, 1 << 20),
    ((1 << 30) + (1 << 20), 1 << 20),
    (2 << 30, 4096),
    (4096, 4096),
    (8192, 128 << 10),
    ((2 << 30) + 4096, 700),
    (1 << 20, 3 << 20),
    (3 << 30, 64 << 10),
    (123, 45_678),
    ((4 << 30) - 4096, 4096),
];

#[test]
fn an_emulated_device_serves_as_its_model_in_virtual_time() {
    let devices = [
        ("hdd", &[][..]),
        ("hdd", &[("slots", "1")]),
        ("hdd", &[("slots", "4"), ("write_cache", "2MiB")]),
        ("ssd", &[]),
        ("nvme", &[("slots", "3")]),
        ("lustre", &[]),
        ("s3", &[]),
        ("s3", &[("slots", "3"), ("jitter", "0.5"), ("tail", "0.2"), ("tail_latency", "40ms")]),
    ];
    for (profile, parameters) in devices {
        let (real, simulated) = in_real_and_in_virtual_time(&device(profile, parameters), &READS);
        assert_eq!(real, simulated, "{profile} {parameters:?}");
        assert!(real.len() > READS.len(), "long reads are several requests or reports");
    }
}

/// What a device reports of reads that arrive at once.
fn served(device: &Device, reads: &[(u64, u64)]) -> Vec<bowwave_device::Done> {
    let mut driver = Driver::new(device.model().unwrap(), 256 << 10);
    for (id, &(address, len)) in (0..).zip(reads) {
        assert!(driver.arrive(0, id, Direction::Read, address, len));
    }
    while let Some(next) = driver.next() {
        driver.advance(next, &mut Vec::new());
    }
    driver.log.served
}

/// Order of service of requests, by number, for reads that arrive at once.
fn order(device: &Device, reads: &[(u64, u64)]) -> Vec<u64> {
    served(device, reads).iter().map(|done| done.id.0).collect()
}

#[test]
fn latency_and_bandwidth_of_a_url_are_the_devices() {
    let end = |device: &Device, reads: &[(u64, u64)]| {
        served(device, reads).iter().map(|done| done.ended.0).max().expect("all are served")
    };
    const READ: u64 = 1 << 20;
    let four: Vec<_> = (0..4).map(|at| (at * READ, READ)).collect();
    let ns = |bytes: u64, bytes_a_second: u64| bytes * 1_000_000_000 / bytes_a_second;
    for (profile, parameters, reads, want) in [
        ("s3", &[][..], &four[..1], 30_000_000 + ns(READ, 90_000_000)),
        ("s3", &[("latency", "5ms"), ("bandwidth", "10MB/s")], &four[..1], 5_000_000 + ns(READ, 10_000_000)),
        ("s3", &[("total", "100MB/s")], &four[..], 30_000_000 + ns(4 * READ, 100_000_000)),
        ("nvme", &[("total", "1GB/s"), ("latency", "0")], &four[..], ns(4 * READ, 1_000_000_000)),
    ] {
        let got = end(&device(profile, parameters), reads);
        let off = got.abs_diff(want);
        assert!(off <= want / 50, "{profile} {parameters:?}: {got} ns, not {want}");
    }
    let lustre = |latency| end(&device("lustre", &[("latency", latency)]), &four[..1]);
    assert_eq!(lustre("3ms") - lustre("1ms"), 2_000_000);
}

#[test]
fn a_failed_read_ends_once_and_its_time_passes_as_for_the_others() {
    let faults =
        crate::Faults { errors: vec![(crate::ErrorKind::PermissionDenied, 1.0)], ..crate::Faults::default() };
    let inner = crate::Fault::new(Arc::new(PatternBackend::new("8MiB").unwrap()), faults).unwrap();
    let quick = device("s3", &[("slots", "1"), ("latency", "1ms"), ("metadata", "0")]);
    let store = emulate(Arc::new(inner), quick.clone()).unwrap();
    let object = store.open("".as_ref()).unwrap();
    let reads: Vec<_> = (0..3).map(|at| start_read(&*object, at << 20, ReadBuf::zeroed(1 << 20))).collect();
    for read in reads {
        let error = read_end(&read, Duration::from_secs(20)).expect_err("every read fails");
        assert_eq!(error.kind(), crate::ErrorKind::PermissionDenied, "that of the store");
    }
    // The device has one slot, and nothing is cut short: each next transfer ends as much later.
    let ends: Vec<_> = served(&quick, &[(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 1 << 20)])
        .iter()
        .filter(|done| done.left == 0)
        .map(|done| done.ended.0)
        .collect();
    assert_eq!(ends.len(), 3);
    assert_eq!(ends[1] - ends[0], ends[0]);
    assert_eq!(ends[2] - ends[1], ends[0]);
}

#[test]
fn a_disk_serves_queued_reads_by_distance_and_old_ones_first() {
    // A far seek takes longer than any near access.
    let reads = [(0, 4096), (110 << 30, 4096), (1 << 20, 4096)];
    assert_eq!(order(&device("hdd", &[]), &reads), [0, 2, 1], "by distance");
    assert_eq!(order(&device("hdd", &[("slots", "1")]), &reads), [0, 1, 2], "in order of arrival");
    assert_eq!(order(&device("hdd", &[("deadline", "1us")]), &reads), [0, 1, 2], "the oldest first");
}

#[test]
fn a_short_read_does_not_wait_for_long_ones_to_end() {
    // The long ones are 32 commands each.
    let reads = [(0, 16 << 20), (1 << 30, 16 << 20), (2 << 30, 4096)];
    assert_eq!(order(&device("hdd", &[("slots", "1")]), &reads)[..6], [0, 1, 32, 2, 64, 3]);
}
