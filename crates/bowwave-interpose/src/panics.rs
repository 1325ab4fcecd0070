//! Panics: none of them leaves a function that C calls.
//!
//! A panic that reaches an `extern "C"` function ends the process (Rust 2024), which is defined but says a page. Here it says a line.
#![allow(unsafe_code, reason = "writes to standard error without locks or memory")]

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};

/// From now on a panic says one line, for which it allocates nothing.
pub fn say_panics() {
    set_hook(Box::new(say_panic));
}

/// Does what a function that C calls is for. After a panic there the tables may be wrong, and what they say would be memory
/// that is handed out twice: the process ends.
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
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len + 1) };
}

/// One line, cut where it is too long.
struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // The last place is the line's end.
            if self.len + 1 == LINE_MAX {
                return Err(fmt::Error);
            }
            self.bytes[self.len] = if byte == b'\n' { b' ' } else { byte };
            self.len += 1;
        }
        Ok(())
    }
}

/// Bytes of a line at most: small beside the smallest stack.
const LINE_MAX: usize = 512;
