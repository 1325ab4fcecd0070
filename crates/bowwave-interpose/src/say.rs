//! What an error number cannot tell.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Inside;

/// Says something on standard error; a program that goes on and on hears a few lines only.
pub fn say(text: &dyn fmt::Display) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    let _inside = Inside::enter();
    if SAID.fetch_add(1, Ordering::Relaxed) < SAID_MAX {
        // If nobody listens there, the error number still tells.
        let _nobody_listens = writeln!(std::io::stderr(), "bowwave run: {text}");
    }
}

/// Lines that a process says at most.
const SAID_MAX: u32 = 20;
