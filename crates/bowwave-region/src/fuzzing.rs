//! Entry point for fuzzers: the parser of userfaultfd messages.

use crate::uffd::{Touch, decode as messages};

/// The page faults in the messages of a userfaultfd. Ignores bytes after the last complete message.
pub fn decode(bytes: &[u8]) -> Vec<Touch> {
    messages(bytes).collect()
}
