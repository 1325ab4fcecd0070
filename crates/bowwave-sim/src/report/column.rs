//! Columns of whole numbers as short text: differences, in as few bytes as each needs, in base64.
//!
//! Adjacent reads differ little, so a value takes one to three bytes. The page's script has the
//! inverse.

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
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_usize, |word, byte| (word << 8) | usize::from(*byte))
            << (8 * (3 - group.len()));
        for letter in 0..4 {
            let sextet = (word >> (18 - 6 * letter)) & 63;
            text.push(if letter <= group.len() { char::from(LETTERS[sextet]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, text) in vectors {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn differences_are_encoded_in_the_fewest_bytes() {
        assert_eq!(encode(&[1, 2, 3]), base64(&[2, 2, 2]));
        assert_eq!(encode(&[5, 4]), base64(&[10, 3]));
        assert_eq!(encode(&[300]), base64(&[0xd8, 4]));
    }
}
