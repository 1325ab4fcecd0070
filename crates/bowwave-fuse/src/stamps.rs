//! When files were written whose bytes have not all reached their store.
//!
//! A store stamps a file when it is handed the bytes, which is later than when the program wrote them. What a program sees
//! is the time of its write, and once all bytes are there, the store is told that time: so the time that a program has seen
//! does not move.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{Entry, EntryKind};
use rustix::time::{ClockId, clock_gettime};

/// Times by inode.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    times: Mutex<HashMap<u64, SystemTime>>,
    /// Held while a store is told a time.
    telling: Mutex<()>,
}

impl Stamps {
    /// A file was written just now. If the store has it all already, it has stamped it, too. Of one that was not behind so
    /// far, `before` asks for the store's time of its last modification: since Linux 6.13 that may be finer than the tick
    /// that is still going on, and a later write shows a later time.
    pub(crate) fn stamp_if(&self, inode: u64, dirty: bool, before: impl FnOnce() -> Option<SystemTime>) {
        if !dirty {
            return;
        }
        let last = self.get(inode).or_else(before);
        let time = now();
        let time = if last.is_some_and(|last| time <= last) { SystemTime::now() } else { time };
        self.lock().insert(inode, time);
    }

    /// A file was changed just now, and the store has stamped that: if there is an older time to tell it, that is now.
    pub(crate) fn restamp(&self, inode: u64) {
        if let Some(time) = self.lock().get_mut(&inode) {
            *time = now().max(*time);
        }
    }

    /// Waits until nobody else tells a store a time. Who does looks again at what it is to be told: a program may have set
    /// another meanwhile.
    pub(crate) fn turn_to_tell(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that the store is to be told.
    pub(crate) fn get(&self, inode: u64) -> Option<SystemTime> {
        self.lock().get(&inode).copied()
    }

    /// The store has been told a time; there may be a later one.
    pub(crate) fn told(&self, inode: u64, time: SystemTime) {
        let mut times = self.lock();
        if times.get(&inode) == Some(&time) {
            times.remove(&inode);
        }
    }

    /// The store's time is another from now on.
    pub(crate) fn drop(&self, inode: u64) {
        self.lock().remove(&inode);
    }

    /// What `stat` shows of a file.
    pub(crate) fn shown(&self, inode: u64, mut entry: Entry) -> Entry {
        if entry.kind != EntryKind::File {
            return entry;
        }
        let Some(time) = self.lock().get(&inode).copied() else { return entry };
        entry.modified = Some(time);
        if let Some(unix) = &mut entry.unix {
            unix.changed = unix.changed.max(time);
            // Nobody is to take for a hole what only has not been given room yet.
            unix.blocks = unix.blocks.max(entry.size.div_ceil(512));
        }
        entry
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, SystemTime>> {
        // A map of finished inserts and removals is sound whatever a panicking holder did.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock that file systems stamp with, which moves in ticks: with a finer one a file changed after a write could seem
/// changed before it.
fn now() -> SystemTime {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    SystemTime::UNIX_EPOCH + Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_engine::backend::Unix;

    #[test]
    fn a_written_file_shows_the_time_of_the_write_until_the_store_is_told() {
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let unix = Unix {
            device: 1,
            inode: 2,
            links: 1,
            uid: 0,
            gid: 0,
            special_device: 0,
            accessed: old,
            changed: old,
            blocks: 8,
        };
        let entry =
            Entry { size: 10_000, modified: Some(old), unix: Some(unix), ..Entry::new("x", EntryKind::File) };
        let stamps = Stamps::default();
        stamps.restamp(7);
        assert_eq!(stamps.shown(7, entry.clone()), entry, "nothing is behind");
        stamps.stamp_if(7, false, || None);
        assert_eq!(stamps.shown(7, entry.clone()), entry);
        stamps.stamp_if(7, true, || Some(old));
        let shown = stamps.shown(7, entry.clone());
        let time = shown.modified.expect("known");
        assert!(time > old);
        assert_eq!(shown.unix.map(|unix| (unix.changed, unix.accessed, unix.blocks)), Some((time, old, 20)));
        assert_eq!(stamps.shown(8, entry.clone()), entry);
        assert_eq!(stamps.get(7), Some(time));
        stamps.told(7, old);
        assert_eq!(stamps.get(7), Some(time), "written again meanwhile");
        stamps.told(7, time);
        assert_eq!(stamps.shown(7, entry.clone()), entry);
        let fine = SystemTime::now();
        stamps.stamp_if(7, true, || Some(fine));
        assert!(stamps.get(7) > Some(fine), "a finer clock than ours stamped it last");
    }
}
