//! Headers of safetensors files: where the tensors are.
//!
//! A file begins with the length of its header in eight bytes. The header is JSON; each tensor has
//! `"data_offsets":[begin,end]` there, in bytes from the end of the header.

use std::ops::Range;

use super::Extent;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;
/// A part of fewer bytes also has the next tensor: programs read small neighbours together, and a
/// request of the kernel covers several.
const PART_MIN: u64 = 1 << 20;

/// Where the header of a file of `size` bytes is, from the first bytes of the file. `None` if it is
/// no such file.
pub(crate) fn header_range(first: &[u8], size: u64) -> Option<Range<u64>> {
    let (length, rest) = first.split_first_chunk::<8>()?;
    let end = LENGTH_BYTES.checked_add(u64::from_le_bytes(*length))?;
    (rest.first() == Some(&b'{') && end < size).then_some(LENGTH_BYTES..end)
}

/// The tensors of a header, in the order of their bytes; small neighbours are one. The bytes of all
/// are `data`. `None` if the header is damaged, or has more than `most` tensors.
pub(crate) fn tensors(header: &[u8], data: Range<u64>, most: usize) -> Option<Vec<Extent>> {
    let mut all = Vec::new();
    let mut rest = header;
    while let Some(at) = find(rest, KEY) {
        rest = &rest[at + KEY.len()..];
        let begin = number(&mut rest, b":[")?.checked_add(data.start)?;
        let end = number(&mut rest, b",")?.checked_add(data.start)?;
        if begin > end || end > data.end || all.len() == most {
            return None;
        }
        all.push(begin..end);
    }
    all.sort_unstable_by_key(|bytes| (bytes.start, bytes.end));
    let mut parts: Vec<Range<u64>> = Vec::new();
    for bytes in all {
        match parts.last_mut() {
            Some(last) if last.end - last.start < PART_MIN && bytes.start <= last.end => {
                last.end = last.end.max(bytes.end);
            }
            _ => parts.push(bytes),
        }
    }
    let numbered = parts.into_iter().filter(|bytes| !bytes.is_empty()).zip(0..);
    Some(numbered.map(|(bytes, group)| Extent { bytes, group, column: 0 }).collect())
}

const KEY: &[u8] = b"\"data_offsets\"";

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// The number behind `before`; spaces may be anywhere.
fn number(text: &mut &[u8], before: &[u8]) -> Option<u64> {
    for expected in before {
        *text = text.trim_ascii_start().strip_prefix(&[*expected])?;
    }
    *text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    *text = &text[digits..];
    Some(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The beginning of a file with these tensors; offsets are from the end of the header.
    pub(crate) fn head(tensors: &[Range<u64>]) -> Vec<u8> {
        let named = tensors.iter().enumerate().map(|(number, Range { start, end })| {
            format!(
                "\"layer{number}\":{{\"dtype\":\"U8\",\"shape\":[{}],\"data_offsets\":[{start},{end}]}}",
                end - start
            )
        });
        let header = format!(
            "{{\"__metadata__\":{{\"text\":\"a \\\"data_offsets\\\":[\"}},{}}}",
            named.collect::<Vec<_>>().join(",")
        );
        [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
    }

    #[test]
    fn tensors_are_where_the_header_says() {
        const MIB: u64 = 1 << 20;
        let head = head(&[5 * MIB..9 * MIB, 0..5 * MIB, 9 * MIB..9 * MIB + 10, 9 * MIB + 10..11 * MIB]);
        let size = head.len() as u64 + 11 * MIB;
        let header = header_range(&head, size).expect("it is one");
        assert_eq!(header, 8..head.len() as u64);
        let found = tensors(&head[8..], header.end..size, 100).expect("it is right");
        let places: Vec<_> =
            found.iter().map(|part| part.bytes.start - header.end..part.bytes.end - header.end).collect();
        assert_eq!(places, [0..5 * MIB, 5 * MIB..9 * MIB, 9 * MIB..11 * MIB]);
        assert!(found.iter().map(|part| (part.group, part.column)).eq([(0, 0), (1, 0), (2, 0)]));
        assert_eq!(tensors(&head[8..], header.end..size, 3), None, "too many");
        assert_eq!(tensors(&head[8..], header.end..size - 1, 100), None, "beyond the end");
    }

    #[test]
    fn spaces_are_allowed_and_damaged_headers_are_refused() {
        let of = |text: &str| tensors(text.as_bytes(), 10..1000, 100);
        let some = of(" {\"a\" : { \"data_offsets\" : [ 0 , 90 ] } }").expect("right");
        assert_eq!(some, [Extent { bytes: 10..100, group: 0, column: 0 }]);
        for damaged in
            ["[0]", "[9,3]", "[-1,3]", "[0,99999999999999999999]", "[0", "", "[0,18446744073709551615]"]
        {
            assert_eq!(of(&format!("{{\"a\":{{\"data_offsets\":{damaged}}}}}")), None, "{damaged}");
        }
    }

    #[test]
    fn other_files_have_no_header() {
        for first in
            [&b"PAR1"[..], &[0; 64], &[0xff; 64], &[], b"\x40\0\0\0\0\0\0\0[", b"\x40\0\0\0\0\0\0\0{"]
        {
            assert_eq!(header_range(first, 64), None);
        }
        assert_eq!(header_range(b"\x02\0\0\0\0\0\0\0{}", 64), Some(8..10));
    }
}
