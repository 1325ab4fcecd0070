//! Streams of page faults: readahead tells threads apart.
//!
//! Threads that each access their own cluster look like random access when taken together. So every
//! thread has a handle of the file, up to a limit; beyond it, the least recently used handle is
//! reused.

use std::collections::HashMap;

use bowwave_engine::MappedFile;
use bowwave_engine::sync::{Arc, Mutex};

/// The file handles of faulting threads.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The region's own handle. Also the handle of every thread if there is only one stream.
    first: Arc<Stream>,
    streams_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_thread: HashMap<u32, Known>,
    /// Number of faults.
    now: u64,
}

#[derive(Debug)]
struct Known {
    stream: Arc<Stream>,
    last_used: u64,
}

/// The page faults of one thread.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) file: MappedFile,
    run: Mutex<Run>,
}

/// A sequential run. Offsets in the file, in bytes.
#[derive(Debug, Default)]
struct Run {
    /// Start of the run.
    start: u64,
    /// End of the mapped range, where the next sequential access faults.
    end: u64,
    /// Bytes mapped ahead last time.
    ahead: u64,
    /// Whether the last fault was at the end of the run.
    in_order: bool,
    /// Whether a thread is mapping ahead.
    busy: bool,
}

impl Stream {
    fn new(file: MappedFile) -> Self {
        Self { file, run: Mutex::default() }
    }

    /// Unread readahead bytes that may be mapped after a fault at `page` and count as used: as many
    /// as were accessed sequentially before, with a minimum.
    pub(crate) fn unread(&self, page: u64) -> u64 {
        let run = self.run.lock();
        if page == run.end { (page - run.start).max(UNREAD_MIN) } else { UNREAD_MIN }
    }

    /// Records that the fault at `page` mapped everything up to `end`. Returns how many more bytes
    /// the caller should map from `end` and report to [`mapped_ahead`](Self::mapped_ahead). That is
    /// twice the last amount if the fault was at the run's end, and `first`, not 0, to begin with.
    /// None before the run is longer than a cluster.
    pub(crate) fn touched(&self, page: u64, end: u64, first: u64) -> Option<u64> {
        let mut run = self.run.lock();
        if run.busy {
            // The thread that is mapping ahead will notice, sequential or not.
            return None;
        }
        run.follow(page, end);
        let goes_on = run.in_order && page - run.start >= CLUSTER_MAX;
        run.ahead = if goes_on { (2 * run.ahead).min(AHEAD_MAX).max(first) } else { 0 };
        run.busy = goes_on;
        goes_on.then_some(run.ahead)
    }

    /// Records the end of the range mapped ahead.
    pub(crate) fn mapped_ahead(&self, end: u64) {
        let mut run = self.run.lock();
        run.end = end;
        run.busy = false;
    }
}

impl Run {
    fn follow(&mut self, page: u64, end: u64) {
        self.in_order = page == self.end && page > 0;
        self.end = end;
        if !self.in_order {
            (self.start, self.ahead) = (page, 0);
        }
    }
}

/// Maximum bytes mapped before a thread accesses them. Far more than it accesses until its next
/// fault is served; small enough not to occupy memory for long if it never does.
const AHEAD_MAX: u64 = 4 << 20;
/// A longer sequential run is expected to continue; a shorter one may be a cluster. In bytes.
const CLUSTER_MAX: u64 = 1 << 20;
/// Minimum cached bytes mapped after a fault.
const UNREAD_MIN: u64 = 64 << 10;

impl Streams {
    pub(crate) fn new(first: MappedFile, streams_max: usize) -> Self {
        Self { first: Arc::new(Stream::new(first)), streams_max, table: Mutex::default() }
    }

    pub(crate) fn first(&self) -> &Arc<Stream> {
        &self.first
    }

    /// The handle of a thread; a new one if it has none or lost it.
    pub(crate) fn of(&self, thread: u32) -> Arc<Stream> {
        if self.streams_max <= 1 {
            return Arc::clone(&self.first);
        }
        let mut table = self.table.lock();
        table.now += 1;
        let now = table.now;
        if let Some(known) = table.by_thread.get_mut(&thread) {
            known.last_used = now;
            return Arc::clone(&known.stream);
        }
        let removed = if table.by_thread.len() < self.streams_max { None } else { table.remove_oldest() };
        let stream = Arc::new(Stream::new(self.first.file.another()));
        table.by_thread.insert(thread, Known { stream: Arc::clone(&stream), last_used: now });
        drop(table);
        // Closes the handle, unless a fault still uses it.
        drop(removed);
        stream
    }

    /// Number of handles besides the first.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.table.lock().by_thread.len()
    }
}

impl Table {
    fn remove_oldest(&mut self) -> Option<Known> {
        let (&thread, _) = self.by_thread.iter().min_by_key(|(_, known)| known.last_used)?;
        self.by_thread.remove(&thread)
    }
}

#[cfg(test)]
mod tests {
    use bowwave_engine::{Engine, Options};

    use super::*;

    fn streams(streams_max: usize) -> (Engine, Streams) {
        let options = Options { cache_bytes: Some(8 << 20), ..Options::default() };
        let engine = Engine::new(options).expect("a small cache");
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        let file = store.open_mapped("".as_ref()).expect("it is there");
        (engine, Streams::new(file, streams_max))
    }

    #[test]
    fn threads_keep_their_streams_and_the_least_recent_is_replaced() {
        let (_engine, streams) = streams(3);
        let [a, b, _] = [1, 2, 3].map(|thread| streams.of(thread));
        assert!(!Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&a, &streams.of(1)));
        streams.of(4);
        assert_eq!(streams.count(), 3);
        assert!(Arc::ptr_eq(&a, &streams.of(1)), "it was used after the second");
        assert!(!Arc::ptr_eq(&b, &streams.of(2)));
    }

    #[test]
    fn mapping_ahead_grows_for_sequential_faults_only() {
        const MIB: u64 = 1 << 20;
        let (_engine, streams) = streams(1);
        let stream = streams.first();
        assert_eq!(stream.touched(0, 100, 64), None, "who knows what comes");
        assert_eq!(stream.touched(100, MIB, 64), None, "it may be a cluster");
        assert_eq!(stream.touched(MIB, MIB + 100, 64), Some(64));
        assert_eq!(stream.touched(MIB + 150, MIB + 200, 64), None, "that is being done");
        stream.mapped_ahead(MIB + 164);
        assert_eq!(stream.touched(MIB + 164, MIB + 200, 64), Some(128));
        stream.mapped_ahead(MIB + 200);
        assert_eq!(stream.touched(7 * MIB, 8 * MIB, 64), None);
        assert_eq!(stream.touched(8 * MIB, 8 * MIB + 100, 64), Some(64), "from the start");
        stream.mapped_ahead(8 * MIB + 100);
        for turn in 100..140 {
            let ahead = stream.touched(8 * MIB + turn, 8 * MIB + turn + 1, 64).expect("in order");
            assert!(ahead <= AHEAD_MAX);
            stream.mapped_ahead(8 * MIB + turn + 1);
        }
    }

    #[test]
    fn unread_readahead_mapped_after_a_fault_is_limited_by_the_run() {
        let (_engine, streams) = streams(1);
        let stream = streams.first();
        assert_eq!(stream.unread(5 << 20), UNREAD_MIN);
        stream.touched(5 << 20, (5 << 20) + UNREAD_MIN, 64);
        assert_eq!(stream.unread((5 << 20) + UNREAD_MIN), UNREAD_MIN);
        stream.touched((5 << 20) + UNREAD_MIN, (5 << 20) + 3 * UNREAD_MIN, 64);
        assert_eq!(stream.unread((5 << 20) + 3 * UNREAD_MIN), 3 * UNREAD_MIN);
        assert_eq!(stream.unread((5 << 20) + 2 * UNREAD_MIN), UNREAD_MIN, "it was not there that it ended");
        assert_eq!(stream.unread(0), UNREAD_MIN);
    }

    #[test]
    fn one_stream_is_shared_by_all_threads() {
        let (_engine, streams) = streams(1);
        assert!(Arc::ptr_eq(&streams.of(1), &streams.of(2)));
        assert_eq!(streams.count(), 0);
    }
}
