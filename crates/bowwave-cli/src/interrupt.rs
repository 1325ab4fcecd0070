//! Ctrl-C as a flag that loops check, so that they can still print results and clean up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Failure;

/// Whether a signal asked the process to stop.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

/// Effect of a second signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// Ends the process at once: for work that leaves nothing behind.
    Kills,
    /// No effect: for work that must clean up.
    Waits,
}

impl Interrupt {
    /// Handles Ctrl-C, SIGTERM and SIGHUP from now on.
    pub(crate) fn watch(second: Second) -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Handlers run in this order: the first signal finds the flag clear, the second finds
            // it set.
            if second == Second::Kills {
                flag::register_conditional_default(signal, Arc::clone(&asked)).map_err(refused)?;
            }
            flag::register(signal, Arc::clone(&asked)).map_err(refused)?;
        }
        Ok(Self { asked })
    }

    /// Whether to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Exit code of a command that Ctrl-C, SIGTERM or SIGHUP ended, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

fn refused(error: std::io::Error) -> Failure {
    failed!("cannot listen for signals: {error}")
}
