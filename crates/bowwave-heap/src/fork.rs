//! Fork support. A child does not have its parent's swapped memory: it lacks the handler threads,
//! and a copy could fill the disk. In the child an access is a segmentation fault, a free does
//! nothing, and new allocations use the child's own swap.
#![allow(unsafe_code, reason = "registers fork handlers")]

use std::cell::RefCell;

use bowwave_interpose::Inside;

use crate::heap::{self, Held};

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Registers the fork handlers.
pub(crate) fn watch() {
    // SAFETY: three functions with static lifetime.
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
    if let Some(held) = HELD.with(|held| held.borrow_mut().take()) {
        heap::reset(held);
    }
}
