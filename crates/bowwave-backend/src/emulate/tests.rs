//! Devices over memory: the contract, and that time is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::conformance::{self, Fixture};
use crate::{Heard, MemoryBackend, PatternBackend, pattern, start_read};

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
    conformance::run(&Emulated(MemoryBackend::new(), device("hdd", &[("rpm", "720000"), ("seek", "0")])));
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
