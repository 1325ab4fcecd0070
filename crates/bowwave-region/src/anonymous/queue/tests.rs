//! Retries and partial requests of a store that completes inline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bowwave_backend::{Identity, Object};

use super::super::buffers::Buffers;
use super::*;

/// A store that completes requests inline.
#[derive(Debug)]
struct Inline {
    identity: Identity,
    /// Bytes transferred by a request of a length, or its error.
    outcome: fn(usize) -> Result<usize>,
    requests: AtomicU64,
}

impl Inline {
    fn new(outcome: fn(usize) -> Result<usize>) -> Arc<Self> {
        Arc::new(Self { identity: Identity::default(), outcome, requests: AtomicU64::new(0) })
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn end(&self, len: usize) -> Result<usize> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        (self.outcome)(len)
    }
}

impl Object for Inline {
    fn size(&self) -> u64 {
        1 << 40
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, _offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let result = self.end(buf.len());
        sink.done(buf, result);
    }
}

impl WriteObject for Inline {
    fn write(&self, _offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let result = self.end(buf.len());
        sink.done(buf, result);
    }

    fn sync(&self, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<Identity> {
        Ok(self.identity.clone())
    }
}

/// Results of transfers.
#[derive(Debug, Default)]
struct Ended {
    results: Mutex<Vec<Result<()>>>,
    pauses: AtomicU64,
}

impl Ends for Ended {
    fn ended(&self, _transfer: Transfer, result: Result<()>) {
        self.results.lock().push(result);
    }

    fn paused(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }
}

impl Ended {
    fn results(&self) -> Vec<Result<()>> {
        self.results.lock().clone()
    }
}

/// A queue to the store with one transfer of `pages` pages, and its owner.
fn queue(store: Arc<dyn WriteObject>, direction: Direction, pages: usize) -> (Arc<Queue>, Arc<Ended>) {
    let queue = Queue::new(store, &Profile::read_only("inline"));
    let ended = Arc::new(Ended::default());
    let owner: Arc<dyn Ends> = Arc::clone(&ended) as _;
    queue.set_ends(Arc::downgrade(&owner));
    let buffers = Buffers::new(pages, 0).expect("memory");
    let (mut lent, mut missing) = (Vec::new(), pages);
    while missing > 0 {
        let lease = buffers.lend(missing, true).expect("the pool is as large as the transfer");
        missing -= lease.pages();
        lent.push(lease);
    }
    queue.add(Transfer::new(1, direction, Urgency::Demand, 0, lent));
    (queue, ended)
}

#[test]
fn short_inline_completions_use_a_bounded_amount_of_stack() {
    const PAGES: usize = 2048;
    let read: fn(usize) -> Result<usize> = |_| Ok(SYSTEM_PAGE);
    let short_write = |_| Ok(SYSTEM_PAGE / 4);
    for (direction, bytes, requests) in [(Direction::Read, read, 1), (Direction::Write, short_write, 4)] {
        let store = Inline::new(bytes);
        let (queue, ended) = queue(Arc::clone(&store) as _, direction, PAGES);
        let thread = thread::Builder::new().stack_size(64 << 10);
        thread.spawn(move || queue.run()).expect("a thread").join().expect("it does not panic");
        assert_eq!(store.requests(), requests * PAGES as u64);
        assert_eq!(ended.results().len(), 1);
        assert!(ended.results()[0].is_ok());
    }
}

#[test]
fn a_completion_leaves_a_second_retry_to_its_due_time() {
    for direction in [Direction::Read, Direction::Write] {
        let store = Inline::new(|_| Err(Error::new(ErrorKind::Io, "the drive is gone")));
        let (queue, ended) = queue(Arc::clone(&store) as _, direction, 1);
        queue.run();
        // The request and the retry without a pause.
        assert_eq!(store.requests(), 2, "the completion waited for the pause");
        assert!(ended.results().is_empty());
        assert_eq!(ended.pauses.load(Ordering::Relaxed), 1, "the owner has to know");
        while ended.results().is_empty() {
            thread::sleep(queue.patience().expect("it has yet to fail for good"));
            queue.run();
        }
        assert_eq!(store.requests(), u64::from(RetryLimits::LOCAL.attempts_max));
        assert!(ended.results()[0].is_err());
        assert_eq!(queue.patience(), None);
    }
}

#[test]
fn a_read_that_pauses_can_be_promoted() {
    let store = Inline::new(|_| Err(Error::new(ErrorKind::Io, "the drive is gone")));
    let (queue, _ended) = queue(Arc::clone(&store) as _, Direction::Read, 1);
    {
        let mut state = queue.state.lock();
        let id = state.names[&1];
        state.dispatcher.payload_mut(id).expect("it waits").urgency = Urgency::Readahead;
    }
    queue.run();
    queue.promote(1);
    let paused = queue.state.lock().dispatcher.paused_mut().next().map(|transfer| transfer.urgency);
    assert_eq!(paused, Some(Urgency::Demand));
    assert_eq!(store.requests(), 2, "the pause is not cut short");
}

#[test]
fn a_retry_that_pauses_does_not_stall_another_completion() {
    // Requests of one page fail, longer ones succeed.
    let store = Inline::new(|len| match len {
        SYSTEM_PAGE => Err(Error::new(ErrorKind::Io, "a bad page")),
        _ => Ok(len),
    });
    let (queue, ended) = queue(store, Direction::Read, 1);
    queue.run();
    assert!(ended.results().is_empty() && queue.patience().is_some(), "its retry pauses");
    let lease = Buffers::new(2, 0).expect("memory").lend(2, true).expect("two pages");
    queue.add(Transfer::new(2, Direction::Read, Urgency::Demand, 64, vec![lease]));
    queue.run();
    let results = ended.results();
    assert!(results.len() == 1 && results[0].is_ok(), "{results:?}");
    assert!(queue.state.lock().dispatcher.next_timer().is_some(), "the other still pauses");
}
