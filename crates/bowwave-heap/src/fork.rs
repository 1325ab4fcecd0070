//! A child does not have its parent's swapped memory: it has none of the threads that serve it, and a copy could take all of the
//! disk. Touching it is a segmentation fault there, freeing it does nothing, and what the child allocates from then on is its own.
#![allow(unsafe_code, reason = "asks to be told of forks")]

use std::cell::RefCell;

use bowwave_interpose::Inside;

use crate::heap::{self, Held};
use crate::report;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// From now on.
pub(crate) fn watch() {
    // SAFETY: three functions that live as long as the process.
    let watched = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    debug_assert_eq!(watched, 0, "no memory");
}

extern "C" fn before() {
    let _inside = Inside::enter();
    let held = heap::hold();
    HELD.with(|kept| *kept.borrow_mut() = Some(held));
}

extern "C" fn in_parent() {
    let _inside = Inside::enter();
    drop(HELD.with(|held| held.borrow_mut().take()));
}

extern "C" fn in_child() {
    let _inside = Inside::enter();
    report::begin_anew();
    if let Some(held) = HELD.with(|held| held.borrow_mut().take()) {
        heap::begin_anew(held);
    }
}
