//! Who touches a region: each thread is a stream of its own, with a readahead state of its own.
//!
//! Threads that each work on a cluster of their own look like one that touches at random, if they are taken together. So every
//! thread has a handle of the file, up to a bound; the one that has not come for longest gives way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bowwave_engine::MappedFile;

/// The handles that touches go through.
#[derive(Debug)]
pub(crate) struct Streams {
    /// What the region itself fetches with, and every thread if there is to be one stream only.
    first: Arc<MappedFile>,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_thread: HashMap<u32, Stream>,
    /// Counts touches.
    now: u64,
}

#[derive(Debug)]
struct Stream {
    file: Arc<MappedFile>,
    last_used: u64,
}

impl Streams {
    pub(crate) fn new(first: MappedFile, most: usize) -> Self {
        Self { first: Arc::new(first), most, table: Mutex::default() }
    }

    pub(crate) fn first(&self) -> &Arc<MappedFile> {
        &self.first
    }

    /// The handle of a thread; a new one if it has none (any more).
    pub(crate) fn of(&self, thread: u32) -> Arc<MappedFile> {
        if self.most <= 1 {
            return Arc::clone(&self.first);
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.now += 1;
        let now = table.now;
        if let Some(stream) = table.by_thread.get_mut(&thread) {
            stream.last_used = now;
            return Arc::clone(&stream.file);
        }
        let gone = if table.by_thread.len() < self.most { None } else { table.remove_oldest() };
        let file = Arc::new(self.first.another());
        table.by_thread.insert(thread, Stream { file: Arc::clone(&file), last_used: now });
        drop(table);
        // Closes the handle, unless a touch still goes through it.
        drop(gone);
        file
    }

    /// How many there are, beside the first.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).by_thread.len()
    }
}

impl Table {
    fn remove_oldest(&mut self) -> Option<Stream> {
        let (&thread, _) = self.by_thread.iter().min_by_key(|(_, stream)| stream.last_used)?;
        self.by_thread.remove(&thread)
    }
}

#[cfg(test)]
mod tests {
    use bowwave_engine::{Engine, Options};

    use super::*;

    fn streams(most: usize) -> (Engine, Streams) {
        let options = Options { cache_bytes: Some(8 << 20), ..Options::default() };
        let engine = Engine::new(options).expect("a small cache");
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        let file = store.open_mapped("".as_ref()).expect("it is there");
        (engine, Streams::new(file, most))
    }

    #[test]
    fn threads_keep_their_streams_and_the_idlest_gives_way() {
        let (_engine, streams) = streams(3);
        let [a, b, _] = [1, 2, 3].map(|thread| streams.of(thread));
        assert!(!Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&a, &streams.of(1)));
        streams.of(4);
        assert_eq!(streams.count(), 3);
        assert!(Arc::ptr_eq(&a, &streams.of(1)), "it was used after the second");
        assert!(!Arc::ptr_eq(&b, &streams.of(2)));
    }

    #[test]
    fn one_stream_is_everybodys() {
        let (_engine, streams) = streams(1);
        assert!(Arc::ptr_eq(&streams.of(1), &streams.of(2)));
        assert_eq!(streams.count(), 0);
    }
}
