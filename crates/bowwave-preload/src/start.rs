//! Runs at the program's start and end.
#![allow(unsafe_code, reason = "places functions where the dynamic linker calls them")]

use crate::setup::setup;
use crate::{calls, fork, placeholder, report, service, table};

bowwave_interpose::at_start_and_end!(start, leave);

fn start() {
    table::own();
    if !setup().maps.is_empty() {
        bowwave_engine::backend::descriptors::keep_low_numbers_free();
        // Here, because a service starts with locks that the handlers of a fork take.
        bowwave_control::prepare();
        fork::watch();
        placeholder::adopt_inherited();
        calls::take_standard_input();
    }
}

fn leave() {
    report::report();
    service::leave();
}
