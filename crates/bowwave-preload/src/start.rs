//! Runs at the program's start and end.
#![allow(unsafe_code, reason = "places functions where the dynamic linker calls them")]

use bowwave_interpose::{Inside, at_end, say_panics};

use crate::setup::setup;
use crate::{calls, fork, placeholder, report, service, table};

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
    table::own();
    if !setup().maps.is_empty() {
        // Here, because a service starts with locks that the handlers of a fork take.
        bowwave_control::prepare();
        fork::watch();
        placeholder::adopt_inherited();
        calls::take_standard_input();
    }
}

extern "C" fn end() {
    leave();
}

fn leave() {
    report::report();
    service::leave();
}
