//! The table of served descriptors.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLockWriteGuard};

use bowwave_engine::backend::sync::RwLock;

use crate::live::Open;

/// Open files by descriptor.
type Table = BTreeMap<c_int, Arc<Open>>;

static TABLE: RwLock<Table> = RwLock::new(BTreeMap::new());

/// One bit per descriptor, set if it is served. Calls on other descriptors take no lock; nearly all
/// calls are such.
static OURS: [AtomicU64; FDS_MAX / 64] = [const { AtomicU64::new(0) }; FDS_MAX / 64];

/// The process that owns the table. A child of `vfork` shares the memory under another ID; its
/// changes of descriptors must not affect the parent's table.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Limit of served descriptor numbers.
pub(crate) const FDS_MAX: usize = 1 << 16;

/// The open file behind a served descriptor.
pub(crate) fn get(fd: c_int) -> Option<Arc<Open>> {
    if !is_ours(fd) {
        return None;
    }
    TABLE.read().get(&fd).cloned()
}

/// Records a descriptor, unless the process does not own the table; `false` if its number is too
/// large.
pub(crate) fn put(fd: c_int, open: Arc<Open>) -> bool {
    let Some((word, bit)) = bit(fd) else { return false };
    if is_own() {
        let before = lock().insert(fd, open);
        OURS[word].fetch_or(bit, Ordering::Release);
        // Dropped outside the lock.
        drop(before);
    }
    true
}

/// Records that a descriptor is closed or about to be.
pub(crate) fn forget(fd: c_int) {
    if let Some((word, bit)) = bit(fd)
        && is_ours(fd)
        && is_own()
    {
        let mut table = lock();
        OURS[word].fetch_and(!bit, Ordering::Release);
        let before = table.remove(&fd);
        drop(table);
        drop(before);
    }
}

/// Served descriptors from `first` to `last`.
pub(crate) fn between(first: u32, last: u32) -> Vec<c_int> {
    let range = c_int::try_from(first).unwrap_or(c_int::MAX)..=c_int::try_from(last).unwrap_or(c_int::MAX);
    TABLE.read().range(range).map(|(&fd, _)| fd).collect()
}

/// Locks the table for a change.
pub(crate) fn lock() -> RwLockWriteGuard<'static, Table> {
    TABLE.write()
}

/// Makes this process the owner of the table.
pub(crate) fn own() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// Whether this process owns the table.
pub(crate) fn is_own() -> bool {
    OWNER.load(Ordering::Relaxed) == std::process::id()
}

fn is_ours(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| OURS[word].load(Ordering::Acquire) & bit != 0)
}

fn bit(fd: c_int) -> Option<(usize, u64)> {
    let fd = usize::try_from(fd).ok().filter(|&fd| fd < FDS_MAX)?;
    Some((fd / 64, 1 << (fd % 64)))
}
