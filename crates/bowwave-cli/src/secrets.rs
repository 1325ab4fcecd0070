//! Credentials in this process's memory: no other process of the user reads them there, and no core dump holds them.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on the kernel writes no core dump of this process, and only root may trace it or read its memory and environment.
/// Ends with `exec`, so that a program that `bowwave run` starts is as any other. Nothing is done where
/// `BOWWAVE_DUMPABLE` is set, for debuggers.
pub(crate) fn protect() {
    if std::env::var_os(DUMPABLE).is_none_or(|value| value.is_empty()) {
        let protected = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        debug_assert!(protected.is_ok(), "{protected:?}");
    }
}

/// Leaves the process open to debuggers.
const DUMPABLE: &str = "BOWWAVE_DUMPABLE";
