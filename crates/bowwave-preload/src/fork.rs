//! Fork support. A child has none of its parent's threads. It creates its own engine on first use,
//! reopens files when it reads them, and recreates its parent's maps before `fork` returns.
#![allow(unsafe_code, reason = "registers fork handlers")]

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

use bowwave_engine::backend::descriptors;

use crate::live::Open;
use crate::maps::{self, Mapped};
use crate::service::{self, Service};
use crate::{calls, report, table};

/// Locks held during a fork, so that the child finds consistent state. In locking order.
struct Held {
    service: MutexGuard<'static, Option<&'static Service>>,
    table: RwLockWriteGuard<'static, BTreeMap<i32, Arc<Open>>>,
    maps: MutexGuard<'static, BTreeMap<usize, Mapped>>,
    saved: Vec<maps::Saved>,
    calls: calls::Held,
    /// So that a child inherits no descriptor under a number that bowwave gives up at once.
    descriptors: Option<descriptors::Held>,
}

bowwave_interpose::fork_handlers!(Held, hold, reset);

fn hold() -> Held {
    let (service, table, maps, calls) = (service::lock(), table::lock(), maps::lock(), calls::hold());
    let saved = maps::save(&maps);
    let descriptors = descriptors::hold();
    Held { service, table, maps, saved, calls, descriptors }
}

fn reset(held: Held) {
    let Held { mut service, mut table, mut maps, saved, calls, descriptors: held } = held;
    maps::keep_addresses(&maps);
    bowwave_engine::backend::forked();
    table::own();
    report::reset();
    // The parent's engine: threads that do not exist here may hold its locks, so it is never
    // touched again.
    *service = None;
    let mut copies: Vec<(*const Open, Arc<Open>)> = Vec::new();
    for open in table.values_mut() {
        let known = copies.iter().find(|(old, _)| std::ptr::eq(*old, Arc::as_ptr(open)));
        let new = known.map_or_else(|| Arc::new(open.for_child()), |(_, new)| Arc::clone(new));
        let old = std::mem::replace(open, Arc::clone(&new));
        copies.push((Arc::as_ptr(&old), new));
        std::mem::forget(old);
    }
    let mapped = std::mem::take(&mut *maps);
    drop((service, table, maps, calls, held));
    descriptors::forked();
    maps::remap(mapped, saved);
}
