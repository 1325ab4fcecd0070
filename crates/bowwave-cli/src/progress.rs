//! A progress bar on standard error, for work longer than a second on a terminal.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress of the work. Prints nothing without a terminal; cleared on drop.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// Work of `total` bytes; `None` if unknown.
    pub(crate) fn bytes(what: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{msg} {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
            None => "{msg} {spinner} {bytes} {binary_bytes_per_sec}",
        };
        Self::new(what, total, template)
    }

    /// Work of `total` rows.
    pub(crate) fn rows(what: &'static str, total: u64) -> Self {
        Self::new(what, Some(total), "{msg} {bar:30} {human_pos}/{human_len} rows {per_sec} {eta}")
    }

    /// Runs `work`, which counts its rows in `done`.
    pub(crate) fn counting<T>(
        what: &'static str,
        total: u64,
        done: &AtomicU64,
        work: impl FnOnce() -> T,
    ) -> T {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut progress = Self::rows(what, total);
                while !ended.load(Ordering::Relaxed) {
                    progress.at(done.load(Ordering::Relaxed));
                    thread::park_timeout(Duration::from_millis(50));
                }
            });
            // Also on a panic: the scope waits for the thread above.
            let _ended = Ended(&ended);
            work()
        })
    }

    /// Work of another process, without a position.
    pub(crate) fn waiting(what: &'static str) -> Self {
        Self::new(what, None, "{msg} {elapsed}")
    }

    fn new(what: &'static str, total: Option<u64>, template: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template(template).expect("the template is a constant of valid form");
            ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden())
                .with_style(style)
                .with_message(what)
        });
        Self { bar, started: Instant::now(), shown: false }
    }

    /// Sets the total once it is known.
    pub(crate) fn total(&mut self, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// Whether there is a terminal for a bar.
    pub(crate) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Reports `position` of the total. Not free: call it every few hundred steps.
    pub(crate) fn at(&mut self, position: u64) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(position);
        if !self.shown && self.started.elapsed() >= PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Sets a flag on drop.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
