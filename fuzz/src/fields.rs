//! Field-wise mutation of text: changing a single byte of a trace line usually makes it invalid.

use std::ops::Range;

/// Boundary values of the parsers.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "2",
    "511",
    "512",
    "4096",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
];

/// Mutates the first `size` bytes of `data` in place, within `max_size` bytes, and returns the new
/// size. `None` if they are not text or the change does not fit. `seed` selects the change.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> Option<usize> {
    let text = std::str::from_utf8(&data[..size]).ok()?;
    let draw = |salt: u32, bound: usize| {
        let mixed = (u64::from(seed) + (u64::from(salt) << 32) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 33) as usize % bound.max(1)
    };
    let lines: Vec<Range<usize>> = split(text, |byte| byte == b'\n');
    let line = |salt: u32| lines[draw(salt, lines.len())].clone();
    let chosen = line(1);
    let fields: Vec<Range<usize>> = split(&text[chosen.clone()], |byte| b" \t,:()=+[]\"\n".contains(&byte))
        .into_iter()
        .map(|field| field.start + chosen.start..field.end + chosen.start)
        .filter(|field| !field.is_empty())
        .collect();
    let field = |salt: u32| fields.get(draw(salt, fields.len())).cloned();
    let (place, new) = match draw(2, 7) {
        0 => (field(3)?, NUMBERS[draw(4, NUMBERS.len())].to_owned()),
        1 => {
            let field = field(3)?;
            let number: u64 = text[field.clone()].parse().ok()?;
            (field, number.wrapping_add_signed([1, -1, 512, 4096, -4096][draw(4, 5)]).to_string())
        }
        // A field from another position in the line.
        2 => (field(3)?, text[field(4)?].to_owned()),
        // Duplicates, moves or deletes a line.
        3 => (chosen.end..chosen.end, format!("\n{}", &text[line(3)])),
        4 => (chosen, text[line(3)].to_owned()),
        5 => (chosen.start..(chosen.end + 1).min(size), String::new()),
        // The same field of another line.
        _ => {
            let index = draw(3, fields.len());
            let other = line(4);
            let others = split(&text[other.clone()], |byte| b" \t,:()=+[]\"\n".contains(&byte));
            let others: Vec<_> = others.into_iter().filter(|field| !field.is_empty()).collect();
            let source = others.get(index)?;
            (fields.get(index)?.clone(), text[other][source.clone()].to_owned())
        }
    };
    let tail = text[place.end..].to_owned().into_bytes();
    let total = place.start + new.len() + tail.len();
    if total > max_size.min(data.len()) {
        return None;
    }
    data[place.start..place.start + new.len()].copy_from_slice(new.as_bytes());
    data[place.start + new.len()..total].copy_from_slice(&tail);
    Some(total)
}

/// The ranges between separators.
fn split(text: &str, is_separator: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut ranges = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        if is_separator(byte) {
            ranges.push(start..at);
            start = at + 1;
        }
    }
    ranges.push(start..text.len());
    ranges
}
