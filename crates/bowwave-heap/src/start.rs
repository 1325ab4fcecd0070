//! Runs at the program's start and end.
#![allow(unsafe_code, reason = "places functions where the dynamic linker calls them")]

use crate::setup::setup;
use crate::{fork, heap, libc_heap, real, report};

bowwave_interpose::at_start_and_end!(start, leave);

fn start() {
    bowwave_interpose::look_up();
    real::look_up();
    libc_heap::look_up();
    if let Some(config) = &setup().swap {
        bowwave_region::engine::backend::descriptors::keep_low_numbers_free();
        // Here, because a swap starts with a lock that the handlers of a fork take.
        bowwave_control::prepare();
        fork::watch();
        heap::serve_from(config.from_bytes);
    }
}

fn leave() {
    report::report();
    heap::leave();
}
