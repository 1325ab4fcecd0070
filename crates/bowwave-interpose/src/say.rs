//! Messages that an error number cannot express.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Inside;

/// Prints a message on standard error, at most 20 per process.
pub fn say(text: &dyn fmt::Display) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    let _inside = Inside::enter();
    if SAID.fetch_add(1, Ordering::Relaxed) < SAID_MAX {
        // If writing fails, the error number still reports the error.
        let _nobody_listens = writeln!(std::io::stderr(), "bowwave run: {text}");
    }
}

/// Maximum messages per process.
const SAID_MAX: u32 = 20;
