//! Pages that could not be fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bowwave_engine::Around;
use bowwave_engine::sync::{Arc, thread};

use super::Inner;
use crate::error::{Error, Result, report};
use crate::streams::Stream;
use crate::task;

/// Failures by the page's offset in the file.
#[derive(Debug, Default)]
pub(super) struct Failed {
    pages: BTreeMap<u64, Failure>,
    /// Pages whose fetch a thread already repeats. One thread per page is enough, although a signal
    /// handler makes a waiting access fault again.
    repeated: BTreeSet<u64>,
}

#[derive(Debug)]
struct Failure {
    cause: String,
    /// Whether an access has failed: then the page stays unreadable.
    is_poisoned: bool,
}

/// Time before the first repetition; each further pause is twice as long. Shorter: load on a store
/// that has just failed after its own retries; longer: an access waits although the store is back.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl Failed {
    /// Why an access to the page has failed, if one has.
    pub(super) fn poisoned(&self, page: u64) -> Option<&str> {
        self.pages.get(&page).filter(|failure| failure.is_poisoned).map(|failure| failure.cause.as_str())
    }

    /// Records a failure.
    fn note(&mut self, page: u64, error: &Error, is_poisoned: bool) {
        self.pages.insert(page, Failure { cause: error.to_string(), is_poisoned });
    }

    /// Whether the page is poisoned; `None` if it has not failed.
    pub(super) fn state(&self, page: u64) -> Option<bool> {
        self.pages.get(&page).map(|failure| failure.is_poisoned)
    }

    /// Records that the page could be fetched. An access that has failed stays recorded.
    ///
    /// Callers do this before they map the page, so that a later failure repeats the fetch again.
    pub(super) fn forget(&mut self, page: u64) {
        self.repeated.remove(&page);
        if self.pages.get(&page).is_some_and(|failure| !failure.is_poisoned) {
            self.pages.remove(&page);
        }
    }
}

impl Inner {
    /// Causes of failed fetches, by offset in the file.
    pub(crate) fn failures(&self) -> Vec<(u64, String)> {
        self.failed.lock().pages.iter().map(|(&page, failure)| (page, failure.cause.clone())).collect()
    }

    /// Records that the page of `offset` could not be fetched. Another call or access tries again.
    pub(crate) fn note_failed(&self, offset: u64, error: &Error) {
        let page = self.page_of(offset);
        let mut failed = self.failed.lock();
        if failed.poisoned(page).is_none() {
            failed.note(page, error, false);
        }
    }

    /// Repeats the fetch of an accessed page in a thread of its own, which ends the access.
    pub(super) fn fetch_again_elsewhere(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        offset: u64,
        around: Around,
        error: Error,
    ) {
        let page = self.page_of(offset);
        if !self.may_repeat(&error) {
            self.give_up(page, &error);
            return;
        }
        if !self.failed.lock().repeated.insert(page) {
            return;
        }
        let (inner, stream, cause) = (Arc::clone(self), Arc::clone(stream), error.to_string());
        let repeat = move || match inner.fetch_again_here(&stream, offset, &around, error) {
            Ok(end) => inner.map_ahead(&stream, offset, end),
            Err(_) => drop(inner.failed.lock().repeated.remove(&page)),
        };
        if thread::Builder::new().name("bowwave-retry".to_owned()).spawn(repeat).is_err() {
            self.give_up(page, &Error::Range(cause));
        }
    }

    /// Repeats the fetch of an accessed page until it succeeds. If it cannot succeed, or
    /// `retry_for` has passed, the access ends in `SIGBUS`.
    pub(super) fn fetch_again_here(
        &self,
        stream: &Stream,
        offset: u64,
        around: &Around,
        mut error: Error,
    ) -> Result<u64> {
        let (page, begun, mut pause) = (self.page_of(offset), Instant::now(), PAUSE_MIN);
        let mut is_reported = false;
        while self.may_repeat(&error) {
            let Some(left) = self.retry_for.checked_sub(begun.elapsed()) else { break };
            self.note_failed(offset, &error);
            if !std::mem::replace(&mut is_reported, true) {
                let (name, time) = (&self.name, self.retry_for);
                report(format_args!(
                    "bowwave: cannot read a page of a mapped file at offset {page} of {name}: {error}; its reader waits while \
                     the read is repeated, for {time:?}"
                ));
            }
            if self.kernel.is_stopped_within(pause.min(left)) {
                return Err(error);
            }
            pause = (2 * pause).min(PAUSE_MAX);
            match task::block_on(self.fetch(&stream.file, offset, around.clone())) {
                Ok(end) => return Ok(end),
                Err(next) => error = next,
            }
        }
        self.give_up(page, &error);
        Err(error)
    }

    /// Whether a fetch may succeed after this error, and should be repeated.
    fn may_repeat(&self, error: &Error) -> bool {
        let transient = |error: &bowwave_engine::Error| matches!(error, bowwave_engine::Error::Store(error) if error.is_retryable());
        !self.retry_for.is_zero() && matches!(error, Error::Engine(error) if transient(error))
    }

    /// Ends the accesses to a page that cannot be fetched: records and reports why, and poisons the
    /// page.
    fn give_up(&self, page: u64, error: &Error) {
        let is_new = {
            let mut failed = self.failed.lock();
            failed.repeated.remove(&page);
            let is_new = failed.state(page) != Some(true);
            if is_new {
                failed.note(page, error, true);
            }
            is_new
        };
        if is_new {
            report(format_args!(
                "bowwave: cannot read a page of a mapped file at offset {page} of {}: {error}; its reader gets SIGBUS. A call \
                 that fetches or copies the range, before it is touched, returns this error instead",
                self.name
            ));
        }
        self.poison(page);
    }

    pub(super) fn page_of(&self, offset: u64) -> u64 {
        let page = self.file().page_bytes();
        offset / page * page
    }
}
