//! Panics never leave a function called by C.
//!
//! A panic that reaches an `extern "C"` function aborts the process (Rust 2024) with a page of
//! output. This module prints one line instead.
#![allow(unsafe_code, reason = "writes to standard error without locks or memory")]

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};

/// Installs a panic hook that prints one line without allocating.
pub fn say_panics() {
    set_hook(Box::new(say_panic));
}

/// Runs the body of a function called by C. After a panic the tables may be inconsistent and could
/// hand out memory twice, so the process aborts.
pub fn no_unwind<T>(work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_said| std::process::abort())
}

fn say_panic(info: &PanicHookInfo<'_>) {
    let mut line = Line { bytes: [0; LINE_MAX], len: 0 };
    let text = info.payload_as_str().unwrap_or("no message");
    let _cut_short = write!(line, "bowwave run: a defect of bowwave, please report it: {text}");
    if let Some(place) = info.location() {
        let _cut_short = write!(line, " ({place})");
    }
    line.bytes[line.len] = b'\n';
    // SAFETY: writes the initialised bytes.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len + 1) };
}

/// One line, truncated if too long.
struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // Reserve the last byte for the newline.
            if self.len + 1 == LINE_MAX {
                return Err(fmt::Error);
            }
            self.bytes[self.len] = if byte == b'\n' { b' ' } else { byte };
            self.len += 1;
        }
        Ok(())
    }
}

/// Maximum line length in bytes: small compared with the smallest stack.
const LINE_MAX: usize = 512;
