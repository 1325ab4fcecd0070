//! Devices over memory: the contract, and that time is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::conformance::{self, Fixture};
use crate::{
    Heard, MemoryBackend, Namespace as _, OpenWrite, PatternBackend, ReadBuf, Write as _, pattern, start_read,
};

struct Emulated(MemoryBackend, Device);

impl Fixture for Emulated {
    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.insert(path, bytes);
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(Emulate::new(Arc::new(self.0.clone()), self.1.clone()).expect("a thread can be started"))
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
    let store = Emulate::new(inner, device("s3", &[("metadata", "0")])).unwrap();
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
        let store = Emulate::new(Arc::new(MemoryBackend::new()), device(profile, &[])).unwrap();
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
        let device = Device { part: Some(64 << 10), ..Device::free("whole") };
        let inner = crate::FileBackend::open(self.0.path(), crate::FileIo::Auto, true, None).unwrap();
        Arc::new(Emulate::new(Arc::new(inner), device).unwrap())
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
    let store: &dyn Backend = &Emulate::new(Arc::new(MemoryBackend::new()), device("nvme", &slow)).unwrap();
    let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    let object = store.open_write("file".as_ref(), &create).unwrap();
    let begun = Instant::now();
    let writes: Vec<_> = (0..2u64)
        .map(|index| {
            let bytes = vec![index as u8; 100_000];
            crate::start_write(&*object, index * 100_000, crate::WriteBuf::from_vec(bytes))
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

/// I/O requests of a model, in order of service, with their times.
type Served = Vec<(u64, u64, u64)>;

/// Reads from an emulated device in real time: what the model served, and the same model driven by an agenda in
/// virtual time with the same arrivals.
fn in_real_and_in_virtual_time(device: &Device, reads: &[(u64, usize)]) -> (Served, Served) {
    use bowwave_core::{Instant, Urgency};
    use bowwave_device::{Done, Request, RequestId};

    let slow = Slow::new(Arc::new(PatternBackend::new("4GiB").unwrap()), device.clone()).unwrap();
    let object = slow.open("".as_ref()).unwrap();
    let heard: Vec<_> =
        reads.iter().map(|&(offset, len)| start_read(&*object, offset, ReadBuf::zeroed(len))).collect();
    for reads in heard {
        while let Heard::Progress(_) = reads.recv_timeout(Duration::from_secs(20)).expect("goes on") {}
    }
    let log = slow.log();

    let mut model = device.model().unwrap().unwrap();
    let (mut served, mut waiting, mut held) = (Vec::<Done>::new(), std::collections::VecDeque::new(), 0);
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
                waiting.push_back(Request {
                    id: RequestId(id),
                    direction,
                    start,
                    bytes,
                    urgency,
                    owner,
                    object,
                });
                id += 1;
            }
        }
        while held < model.depth()
            && let Some(request) = waiting.pop_front()
        {
            held += 1;
            model.submit(Instant(now), &request);
        }
    }
    let plain = |served: &[Done]| {
        served.iter().map(|done| (done.id.0, done.started.0, done.ended.0)).collect::<Vec<_>>()
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
fn an_emulated_disk_serves_as_its_model_in_virtual_time() {
    for parameters in [&[][..], &[("slots", "1")][..], &[("slots", "4"), ("write_cache", "2MiB")][..]] {
        let (real, simulated) = in_real_and_in_virtual_time(&device("hdd", parameters), &READS);
        assert_eq!(real, simulated, "{parameters:?}");
        assert!(real.len() > READS.len(), "long reads are several requests");
    }
}
