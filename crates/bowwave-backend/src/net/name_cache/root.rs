//! The root of the store, which is no name in a directory.

use std::time::{Duration, Instant};

use super::{Asked, NameCache};

/// What a request has shown of the root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    is_marked: bool,
    asked: Instant,
    took: Duration,
}

impl NameCache {
    /// Until when the listing of the root is valid. Renews it as a lookup of a name does.
    pub(in super::super) fn root_listed_until(&self, directory: &str) -> Option<Instant> {
        let until = self.complete_until(directory)?;
        self.renew(&mut self.state.lock(), directory, Instant::now());
        Some(until)
    }

    /// Whether the root has a marker, and until when that is valid, as
    /// [`learn_root`](Self::learn_root) has it: as long as [a listing](Self::lifetime).
    pub(in super::super) fn root(&self) -> Option<(bool, Instant)> {
        let root = self.state.lock().root?;
        let until = root.asked + self.ttl().max(root.took * 2);
        (self.is_on() && until > Instant::now()).then_some((root.is_marked, until))
    }

    /// The root is a directory, by the response to a request at `asked`. It is learned before names
    /// are kept, too: a probe comes before that.
    pub(in super::super) fn learn_root(&self, is_marked: bool, asked: Asked) {
        let (asked, since) = (asked.at, asked.changes);
        let mut state = self.state.lock();
        if since == state.changes {
            state.root = Some(Root { is_marked, asked, took: asked.elapsed() });
        }
    }
}
