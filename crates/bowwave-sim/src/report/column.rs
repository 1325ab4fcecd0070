//! Columns of whole numbers as short text: differences, in as few bytes as each needs, in base64.
//!
//! Adjacent reads differ little, so a value takes one to three bytes. The page's script has the
//! inverse.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde::{Serialize, Serializer};

/// A column that is serialised as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Column(pub(super) Vec<u64>);

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

/// The text of `values`, each below 2^53.
fn encode(values: &[u64]) -> String {
    let mut bytes = Vec::with_capacity(values.len() * 2);
    let mut last = 0;
    for &value in values {
        // Even for up, odd for down.
        let mut rest = if value >= last { (value - last) << 1 } else { ((last - value) << 1) | 1 };
        last = value;
        while rest >= 0x80 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    STANDARD.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_encoded_in_the_fewest_bytes() {
        assert_eq!(encode(&[1, 2, 3]), STANDARD.encode([2, 2, 2]));
        assert_eq!(encode(&[5, 4]), STANDARD.encode([10, 3]));
        assert_eq!(encode(&[300]), STANDARD.encode([0xd8, 4]));
    }
}
