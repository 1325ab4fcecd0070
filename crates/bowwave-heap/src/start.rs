//! Runs at the program's start and end.
#![allow(unsafe_code, reason = "places functions where the dynamic linker calls them")]

use bowwave_interpose::{Inside, at_end, say_panics};

use crate::setup::setup;
use crate::{fork, heap, libc_heap, real, report};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    let _inside = Inside::enter();
    say_panics();
    at_end(leave);
    bowwave_interpose::look_up();
    real::look_up();
    libc_heap::look_up();
    if let Some(config) = &setup().swap {
        // Here, because a swap starts with a lock that the handlers of a fork take.
        bowwave_control::prepare();
        fork::watch();
        heap::serve_from(config.from_bytes);
    }
}

extern "C" fn end() {
    leave();
}

fn leave() {
    report::report();
    heap::leave();
}
