//! Wrappers over memory: the contract, and what each one changes.

pub(super) mod counted;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::counted::Counted;
use super::*;
use crate::conformance::{self, Fixture};
use crate::{ErrorKind, Heard, MemoryBackend, PatternBackend, pattern, read_once, start_read};

/// A wrapper over memory.
struct Over<F>(MemoryBackend, F);

impl<F: Fn(Arc<dyn Backend>) -> Arc<dyn Backend>> Fixture for Over<F> {
    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.insert(path, bytes);
    }

    fn store(&self) -> Arc<dyn Backend> {
        (self.1)(Arc::new(self.0.clone()))
    }
}

fn conforms(wrap: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend>) {
    conformance::run(&Over(MemoryBackend::new(), wrap));
}

fn pattern_store(size: &str) -> Arc<dyn Backend> {
    Arc::new(PatternBackend::new(size).unwrap())
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn wrappers_conform() {
    conforms(|inner| Arc::new(Limit::new(inner, 2)));
    conforms(|inner| Arc::new(Throttle::new(inner, 1 << 30).unwrap()));
    conforms(|inner| Arc::new(Counted::new(inner)));
    conforms(|inner| Arc::new(Fault::new(inner, Faults::default()).unwrap()));
}

#[test]
fn short_reads_and_stalls_conform() {
    let faults =
        Faults { seed: 42, short: 0.3, stalled: 0.3, stall: Duration::from_millis(2), ..Faults::default() };
    conforms(|inner| Arc::new(Fault::new(inner, faults.clone()).unwrap()));
}

#[test]
fn a_limit_holds_and_lets_all_through_in_order() {
    let throttle = Throttle::new(pattern_store("1MiB"), 500_000_000).unwrap();
    let counted = Counted::new(Arc::new(throttle));
    let counts = counted.counts();
    let store = Limit::new(Arc::new(counted), 3);
    assert_eq!(store.profile().slots, 3);
    let object = store.open("".as_ref()).unwrap();
    let reads: Vec<_> =
        (0..50u64).map(|index| start_read(&*object, index * 1000, ReadBuf::zeroed(70_000))).collect();
    for heard in reads {
        assert!(heard.iter().any(|heard| matches!(heard, Heard::Done(_, Ok(70_000)))));
    }
    let state = counts.state();
    assert_eq!((state.requests, state.in_flight, state.bytes), (50, 0, 50 * 70_000));
    assert!(state.in_flight_max <= 3, "{}", state.in_flight_max);
    assert!(state.offsets.iter().zip(0u64..).all(|(offset, index)| *offset == index * 1000), "in order");
}

#[test]
fn thousands_that_wait_for_a_store_that_answers_at_once_do_not_overflow_the_stack() {
    let store = Limit::new(pattern_store("1MiB"), 1);
    let object = store.open("".as_ref()).unwrap();
    let reads: Vec<_> = (0..4000).map(|_| start_read(&*object, 0, ReadBuf::zeroed(100))).collect();
    for heard in reads {
        assert!(heard.iter().any(|heard| matches!(heard, Heard::Done(_, Ok(100)))));
    }
}

#[test]
fn a_throttle_is_never_faster_than_its_rate() {
    let store = Throttle::new(pattern_store("8MiB"), 80_000_000).unwrap();
    let object = store.open("".as_ref()).unwrap();
    let begun = Instant::now();
    let reads: Vec<_> =
        (0..4u64).map(|index| start_read(&*object, index << 21, ReadBuf::zeroed(2 << 20))).collect();
    for heard in reads {
        assert!(heard.iter().any(|heard| matches!(heard, Heard::Done(_, Ok(_)))));
    }
    assert!(begun.elapsed() >= Duration::from_secs_f64(8.0 * 1048576.0 / 80e6), "{:?}", begun.elapsed());
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let outcomes = |seed| {
        let errors = vec![(ErrorKind::Throttled, 0.2), (ErrorKind::Io, 0.1)];
        let faults = Faults { seed, errors, short: 0.2, truncated: 0.2, ..Faults::default() };
        let store = Fault::new(pattern_store("1MiB"), faults).unwrap();
        let object = store.open("".as_ref()).unwrap();
        let outcomes: Vec<_> = (0..200u64)
            .map(|index| read_once(&*object, index * 5000, 5000, PATIENCE).map(|bytes| bytes.len()))
            .map(|outcome| outcome.map_err(|error| error.kind()))
            .collect();
        assert_eq!(store.requests(), 200);
        (outcomes, store.faults())
    };
    let (first, faults) = outcomes(7);
    assert_eq!((&first, faults), (&outcomes(7).0, outcomes(7).1));
    assert_ne!(first, outcomes(8).0);
    let count = |wanted: &dyn Fn(&std::result::Result<usize, ErrorKind>) -> bool| {
        first.iter().filter(|outcome| wanted(outcome)).count()
    };
    assert!((20..60).contains(&count(&|o| *o == Err(ErrorKind::Throttled))));
    assert!((20..60).contains(&count(&|o| *o == Err(ErrorKind::Truncated))));
    assert!((5..40).contains(&count(&|o| *o == Err(ErrorKind::Io))));
    assert!((20..60).contains(&count(&|o| o.is_ok_and(|count| count < 5000))));
    assert_eq!(count(&|o| *o != Ok(5000)) as u64, faults);
}

#[test]
fn bytes_told_before_a_truncation_are_right_and_the_buffer_comes_back_whole() {
    let faults = Faults { seed: 3, truncated: 1.0, ..Faults::default() };
    let store = Fault::new(pattern_store("1MiB"), faults).unwrap();
    let object = store.open("".as_ref()).unwrap();
    let heard = start_read(&*object, 0, ReadBuf::zeroed(1 << 20));
    let mut told = 0;
    let (buf, error) = loop {
        match heard.recv_timeout(PATIENCE).expect("goes on") {
            Heard::Progress(bytes) => told = bytes,
            Heard::Done(buf, result) => break (buf, result.unwrap_err()),
            Heard::Dropped => panic!("no end"),
        }
    };
    let mut wanted = vec![0; told];
    pattern::fill(pattern::seed("1MiB".as_ref()), 0, &mut wanted);
    assert!(error.is_retryable() && told > 0);
    assert_eq!(buf.len(), 1 << 20);
    assert!(buf.to_vec()[..told] == wanted);
}
