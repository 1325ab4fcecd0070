//! Wrappers and writes: what each one changes of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tests::counted::Counted;
use super::*;
use crate::{Error, ErrorKind, MemoryBackend, Options, open_url, read_once, start_write, write_once};

const PATIENCE: Duration = Duration::from_secs(20);

fn create(store: &dyn Backend, path: &str) -> Arc<dyn WriteObject> {
    let how = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    store.open_write(path.as_ref(), &how).unwrap()
}

fn faulty(writes: WriteFaults) -> (Fault, Arc<dyn WriteObject>) {
    let store =
        Fault::new(Arc::new(MemoryBackend::new()), Faults { seed: 7, writes, ..Faults::default() }).unwrap();
    let object = create(&store, "file");
    (store, object)
}

#[test]
fn faults_of_writes_follow_their_seed_and_their_shares() {
    let outcomes = || {
        let errors = vec![(ErrorKind::Io, 0.1), (ErrorKind::NoSpace, 0.1)];
        let (store, object) = faulty(WriteFaults { errors, short: 0.2, ..WriteFaults::default() });
        let outcomes: Vec<_> = (0..400u64)
            .map(|index| write_once(&*object, index * 5000, &[1; 5000], PATIENCE))
            .map(|outcome| outcome.map_err(|error| error.errno()))
            .collect();
        assert_eq!(store.faults(), outcomes.iter().filter(|outcome| **outcome != Ok(5000)).count() as u64);
        outcomes
    };
    let first = outcomes();
    assert_eq!(first, outcomes(), "seed 7");
    let count = |wanted: Option<i32>| first.iter().filter(|outcome| **outcome == Err(wanted)).count();
    assert!((20..60).contains(&count(Some(libc::EIO))));
    assert!((20..60).contains(&count(Some(libc::ENOSPC))));
    let short = first.iter().filter(|outcome| outcome.is_ok_and(|count| count < 5000)).count();
    assert!((50..110).contains(&short));
}

#[test]
fn a_write_that_fails_writes_nothing_and_a_short_one_what_it_says() {
    let errors = vec![(ErrorKind::Io, 0.3)];
    let (_store, object) = faulty(WriteFaults { errors, short: 0.5, ..WriteFaults::default() });
    for index in 0..100u64 {
        let offset = index * 1000;
        let written = write_once(&*object, offset, &[7; 1000], PATIENCE).unwrap_or(0);
        let read = read_once(&*object, offset, 1000, PATIENCE).unwrap();
        assert!(read.len() == written && read.iter().all(|&byte| byte == 7), "write {index}");
        object.set_len(offset + 1000).unwrap();
    }
}

#[test]
fn syncs_and_finishes_fail_as_often_as_they_are_told() {
    let always = vec![(ErrorKind::Io, 1.0)];
    let (_store, object) = faulty(WriteFaults { sync: always.clone(), ..WriteFaults::default() });
    let error: Error = object.sync(true).unwrap_err();
    assert_eq!((error.kind(), error.errno(), error.is_retryable()), (ErrorKind::Io, Some(libc::EIO), false));
    object.finish().unwrap();
    let (_store, object) = faulty(WriteFaults { finish: always, ..WriteFaults::default() });
    object.sync(false).unwrap();
    assert_eq!(object.finish().unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn faults_of_writes_are_set_in_urls() {
    let url = "fault:write_errors=1,seed=3:memory:";
    let object = create(&*open_url(url, &Options::default()).unwrap(), "x");
    assert_eq!(write_once(&*object, 0, b"x", PATIENCE).unwrap_err().errno(), Some(libc::EIO));
    let url = "fault:no_space=0.6,write_errors=0.5:memory:";
    let error = open_url(url, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("add up"), "{error}");
}

#[test]
fn stalled_writes_end_late_and_whole() {
    let faults = Faults {
        stall: Duration::from_millis(30),
        writes: WriteFaults { stalled: 1.0, ..WriteFaults::default() },
        ..Faults::default()
    };
    let store = Fault::new(Arc::new(MemoryBackend::new()), faults).unwrap();
    let object = create(&store, "file");
    let begun = Instant::now();
    assert_eq!(write_once(&*object, 0, &[7; 9000], PATIENCE).unwrap(), 9000);
    assert!(begun.elapsed() >= Duration::from_millis(30), "{:?}", begun.elapsed());
}

#[test]
fn a_limit_holds_for_reads_and_writes_together() {
    let throttle = Throttle::new(Arc::new(MemoryBackend::new()), 500_000_000).unwrap();
    let counted = Counted::new(Arc::new(throttle));
    let counts = counted.counts();
    let store = Limit::new(Arc::new(counted), 3);
    let object = create(&store, "file");
    object.set_len(50 * 70_000).unwrap();
    let writes: Vec<_> = (0..25u64)
        .map(|index| start_write(&*object, index * 70_000, WriteBuf::from_vec(vec![1; 70_000])))
        .collect();
    let reads: Vec<_> = (25..50u64)
        .map(|index| crate::start_read(&*object, index * 70_000, ReadBuf::zeroed(70_000)))
        .collect();
    for write in writes {
        assert_eq!(write.recv_timeout(PATIENCE).unwrap().1.unwrap(), 70_000);
    }
    for read in reads {
        assert!(read.iter().any(|heard| matches!(heard, crate::Heard::Done(_, Ok(70_000)))));
    }
    let state = counts.state();
    assert_eq!((state.requests, state.in_flight, state.bytes), (50, 0, 50 * 70_000));
    assert!(state.in_flight_max <= 3, "{}", state.in_flight_max);
}

#[test]
fn a_throttle_takes_no_more_than_its_rate() {
    let store = Throttle::new(Arc::new(MemoryBackend::new()), 80_000_000).unwrap();
    let object = create(&store, "file");
    let begun = Instant::now();
    let writes: Vec<_> = (0..4u64)
        .map(|index| start_write(&*object, index << 21, WriteBuf::from_vec(vec![1; 2 << 20])))
        .collect();
    for write in writes {
        assert_eq!(write.recv_timeout(PATIENCE).unwrap().1.unwrap(), 2 << 20);
    }
    assert!(begun.elapsed() >= Duration::from_secs_f64(8.0 * 1048576.0 / 80e6), "{:?}", begun.elapsed());
}
