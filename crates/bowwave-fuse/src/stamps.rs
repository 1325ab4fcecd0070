//! Modification times of files with dirty data.
//!
//! A store sets a file's time when it receives the bytes, later than the program's write. Until
//! then, programs see the time of the write. Once all bytes have arrived, the store gets that time,
//! so that the visible time does not change.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::backend::{Entry, EntryKind};
use rustix::time::{ClockId, clock_gettime};

/// Times by inode.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    times: Mutex<HashMap<u64, SystemTime>>,
    /// Held while a time is sent to a store. The holder reads the time again: a program may have
    /// set another meanwhile.
    pub(crate) sending: Mutex<()>,
}

impl Stamps {
    /// Records a write. Does nothing if the file is clean: then the store has set the time.
    /// `before` returns the store's time, if none is recorded. The new time is later than both;
    /// since Linux 6.13 the store's may be ahead of the coarse clock.
    pub(crate) fn stamp_if(&self, inode: u64, dirty: bool, before: impl FnOnce() -> Option<SystemTime>) {
        if !dirty {
            return;
        }
        let last = self.get(inode).or_else(before);
        let time = now();
        let time = if last.is_some_and(|last| time <= last) { SystemTime::now() } else { time };
        self.times.lock().insert(inode, time);
    }

    /// The store changed the file, for example its size. Moves a recorded time forward.
    pub(crate) fn restamp(&self, inode: u64) {
        if let Some(time) = self.times.lock().get_mut(&inode) {
            *time = now().max(*time);
        }
    }

    /// The time that the store has yet to receive.
    pub(crate) fn get(&self, inode: u64) -> Option<SystemTime> {
        self.times.lock().get(&inode).copied()
    }

    /// The store has received `time`. Keeps a later time.
    pub(crate) fn sent(&self, inode: u64, time: SystemTime) {
        let mut times = self.times.lock();
        if times.get(&inode) == Some(&time) {
            times.remove(&inode);
        }
    }

    /// Discards the recorded time: the store's own time is valid.
    pub(crate) fn drop(&self, inode: u64) {
        self.times.lock().remove(&inode);
    }

    /// Overlays the recorded time on an entry for `stat`.
    pub(crate) fn shown(&self, inode: u64, mut entry: Entry) -> Entry {
        if entry.kind != EntryKind::File {
            return entry;
        }
        let Some(time) = self.times.lock().get(&inode).copied() else { return entry };
        entry.modified = Some(time);
        if let Some(unix) = &mut entry.unix {
            unix.changed = unix.changed.max(time);
            // Blocks that are not allocated yet must not look like a hole.
            unix.blocks = unix.blocks.max(entry.size.div_ceil(512));
        }
        entry
    }
}

/// The coarse clock, with which file systems stamp. With a finer clock, a file changed after a
/// write could appear older than the written file.
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
        stamps.sent(7, old);
        assert_eq!(stamps.get(7), Some(time), "written again meanwhile");
        stamps.sent(7, time);
        assert_eq!(stamps.shown(7, entry.clone()), entry);
        let fine = SystemTime::now();
        stamps.stamp_if(7, true, || Some(fine));
        assert!(stamps.get(7) > Some(fine), "a finer clock than ours stamped it last");
    }
}
