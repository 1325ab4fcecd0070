//! Numbered lines of foreign logs, bounded in size.

use std::io::BufRead;

use crate::bytes::{LineError, append_line, without_end};

/// Maximum bytes of a line in a foreign log: `strace -s` may print large buffers, and a binary file
/// has no line ends.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Reads lines of at most [`LINE_BYTES_MAX`] bytes, one at a time, and reuses their memory.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Lines read so far.
    count: u64,
    /// Whether the last line read had a line end.
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::with_capacity(256), count: 0, ended: true }
    }

    /// The number of the last line read, from 1.
    pub(super) fn number(&self) -> u64 {
        self.count
    }

    /// Whether the last line read had a line end; only a file's last line may lack it.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// The next line without its end, or `None` at the end of the input.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, LineError> {
        self.line.clear();
        let read = append_line(&mut self.input, &mut self.line, LINE_BYTES_MAX);
        self.count += u64::from(read.is_err() || !self.line.is_empty());
        self.ended = read?;
        if self.line.is_empty() {
            return Ok(None);
        }
        let mut line = self.line.as_slice();
        if self.count == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        Ok(Some(without_end(line)))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn both_line_ends_and_a_missing_one_are_accepted() {
        let mut lines = Lines::new("\u{feff}a\r\n\nb".as_bytes());
        assert_eq!(lines.next_line().unwrap(), Some(&b"a"[..]));
        assert_eq!(lines.next_line().unwrap(), Some(&b""[..]));
        assert!(lines.ended());
        assert_eq!(lines.next_line().unwrap(), Some(&b"b"[..]));
        assert!(!lines.ended() && lines.number() == 3);
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn an_endless_line_is_rejected_at_the_limit() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(0)));
        assert!(matches!(lines.next_line(), Err(LineError::TooLong)));
        assert_eq!(lines.number(), 1);
    }
}
