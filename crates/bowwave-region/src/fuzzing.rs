//! What fuzzers call: the reader of messages, without a userfaultfd.

use crate::uffd::{Touch, decode as messages};

/// The touches that the messages of a userfaultfd tell. Bytes behind the last whole message are ignored.
#[must_use]
pub fn decode(bytes: &[u8]) -> Vec<Touch> {
    messages(bytes).collect()
}
