//! Arguments and results of calls in strace's format.

use crate::import::text::{decimal, hexadecimal};

/// Maximum arguments stored; no relevant call has more.
const VALUES_MAX: usize = 8;

/// A completed call: its arguments and result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Args<'a> {
    values: [&'a [u8]; VALUES_MAX],
    /// The result; `None` if it failed or did not return.
    pub(super) outcome: Option<Outcome<'a>>,
}

/// The result of a successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome<'a> {
    pub(super) value: u64,
    /// The path of the returned descriptor, with `-y`.
    pub(super) path: Option<&'a [u8]>,
}

/// A descriptor argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor<'a> {
    /// `None` for the working directory.
    pub(super) number: Option<u32>,
    /// Its path, with `-y`.
    pub(super) path: Option<&'a [u8]>,
}

impl<'a> Args<'a> {
    /// Parses `ARGUMENTS) = RESULT`.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut args = Self::default();
        let end = args.split(text)?;
        let result = text[end + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        args.outcome = outcome(result);
        Some(args)
    }

    /// As [`Args::parse`], for an unfinished call.
    pub(super) fn unfinished(text: &'a [u8]) -> Self {
        let mut args = Self::default();
        // An unfinished call has no closing parenthesis.
        let _no_end = args.split(text);
        args
    }

    /// Replaces the first argument.
    pub(super) fn with_first(&self, first: &'a [u8]) -> Self {
        let mut moved = Self { ..*self };
        moved.values[0] = first;
        moved
    }

    /// The argument at `index`; empty if missing.
    pub(super) fn text(&self, index: usize) -> &'a [u8] {
        self.values.get(index).copied().unwrap_or_default()
    }

    /// The whole number at `index`.
    pub(super) fn number(&self, index: usize) -> Option<u64> {
        number(self.text(index))
    }

    /// The number in brackets at `index`, as in `[1000] => [3000]`: an in-out offset.
    pub(super) fn pointed(&self, index: usize) -> Option<u64> {
        let inner = self.text(index).strip_prefix(b"[")?;
        number(&inner[..inner.iter().position(|&byte| byte == b']')?])
    }

    /// Whether the flags at `index` contain `flag`.
    pub(super) fn has(&self, index: usize, flag: &str) -> bool {
        let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        self.text(index).split(|byte| !name(byte)).any(|word| word == flag.as_bytes())
    }

    /// The member `name=` of the structure at `index`.
    pub(super) fn member(&self, index: usize, name: &str) -> Option<u64> {
        let text = self.text(index);
        let at = text.windows(name.len()).position(|window| window == name.as_bytes())?;
        let value = text[at + name.len()..].strip_prefix(b"=")?;
        let end = value.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(value.len());
        number(&value[..end])
    }

    /// The descriptor at `index`.
    pub(super) fn descriptor(&self, index: usize) -> Option<Descriptor<'a>> {
        let text = self.text(index);
        let (number, rest) = match text.strip_prefix(b"AT_FDCWD") {
            Some(rest) => (None, rest),
            None => {
                let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
                (Some(u32::try_from(decimal(&text[..end])?).ok()?), &text[end..])
            }
        };
        Some(Descriptor { number, path: annotation(rest) })
    }

    /// The two descriptors in brackets at `index`, as in `[3, 4]` or
    /// `[3<pipe:[17]>, 4<pipe:[17]>]`.
    pub(super) fn descriptors(&self, index: usize) -> [Option<u32>; 2] {
        let Some(inner) = self.text(index).strip_prefix(b"[") else { return [None; 2] };
        let mut inside = Self::default();
        // Ends with a bracket, not a parenthesis.
        let _no_end = inside.split(inner);
        [0, 1].map(|index| inside.descriptor(index)?.number)
    }

    /// Appends the unescaped path at `index` to `path`; false if there is none.
    pub(super) fn path(&self, index: usize, path: &mut Vec<u8>) -> bool {
        let Some(text) = self.text(index).strip_prefix(b"\"") else { return false };
        let Some(end) = string_end(text) else { return false };
        unescape(&text[..end], path);
        true
    }

    /// Splits the arguments; returns the position of the closing parenthesis.
    fn split(&mut self, text: &'a [u8]) -> Option<usize> {
        let (mut start, mut count, mut depth, mut at) = (0, 0, 0_usize, 0);
        let mut store = |values: &mut [&'a [u8]; VALUES_MAX], start: usize, end: usize| {
            if let Some(place) = values.get_mut(count) {
                *place = text[start..end].trim_ascii();
            }
            count += 1;
        };
        while let Some(&byte) = text.get(at) {
            match byte {
                b'"' => at += 1 + string_end(&text[at + 1..])?,
                b'<' if at > 0 && text[at - 1].is_ascii_alphanumeric() => {
                    at += annotation_end(&text[at..]).unwrap_or(0);
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => {
                    store(&mut self.values, start, at);
                    return Some(at);
                }
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    store(&mut self.values, start, at);
                    start = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        store(&mut self.values, start, text.len());
        None
    }
}

/// Parses the result `3</path>`, `0x7f00`, `-1 ENOENT (…)` or `?`.
fn outcome(result: &[u8]) -> Option<Outcome<'_>> {
    let end = result.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(result.len());
    Some(Outcome { value: number(&result[..end])?, path: annotation(&result[end..]) })
}

fn number(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"0x") { hexadecimal(text) } else { decimal(text) }
}

/// The annotation of `-y` in angle brackets after a descriptor.
fn annotation(text: &[u8]) -> Option<&[u8]> {
    let path = &text.strip_prefix(b"<")?[..annotation_end(text)? - 1];
    Some(path.strip_suffix(b" (deleted)").unwrap_or(path))
}

/// The end of the angle bracket at the start of `text`. Names escape theirs, but `-yy` nests them,
/// `</dev/null<char 1:3>>`, and prints arrows: `<TCP:[127.0.0.1:1->127.0.0.1:2]>`.
fn annotation_end(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && text[at - 1] == b'-' && !is_after_annotation(text.get(at + 1)) => {}
            b'>' if depth == 1 => return (at > 0).then_some(at),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn is_after_annotation(next: Option<&u8>) -> bool {
    next.is_none_or(|next| matches!(next, b',' | b')' | b' ' | b']' | b'}' | b'>' | b'('))
}

/// The end of the string whose opening quote precedes `text`.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Appends the unescaped `text` to `path`: `\n`, `\"`, `\303`, `\xc3`.
pub(super) fn unescape(text: &[u8], path: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            path.push(byte);
            continue;
        }
        let Some((&escaped, after)) = rest.split_first() else { return };
        let (byte, used) = match escaped {
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'r' => (b'\r', 1),
            b'v' => (0x0b, 1),
            b'f' => (0x0c, 1),
            b'x' => (digits(after, 16, 2), 1 + digit_count(after, 16, 2)),
            b'0'..=b'7' => (digits(rest, 8, 3), digit_count(rest, 8, 3)),
            other => (other, 1),
        };
        path.push(byte);
        rest = &rest[used.min(rest.len())..];
    }
}

/// Number of leading digits of `base`, at most `max`.
fn digit_count(text: &[u8], base: u32, max: usize) -> usize {
    text.iter().take(max).take_while(|&&byte| char::from(byte).is_digit(base)).count()
}

/// The value of the leading digits; wraps at a byte, as in C.
fn digits(text: &[u8], base: u32, max: usize) -> u8 {
    let digits = text[..digit_count(text, base, max)].iter();
    let value = digits.fold(0, |value, &byte| value * base + char::from(byte).to_digit(base).unwrap_or(0));
    (value % 256) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Args<'_> {
        Args::parse(text.as_bytes()).expect("a call")
    }

    #[test]
    fn arguments_are_split_at_top_level_commas() {
        let args = parse(r#"3, [{iov_base="a,)\"", iov_len=2}, {iov_base="", iov_len=9}], 2, 4096) = 11"#);
        assert_eq!((args.number(0), args.number(2), args.number(3)), (Some(3), Some(2), Some(4096)));
        assert_eq!(args.outcome, Some(Outcome { value: 11, path: None }));
    }

    #[test]
    fn failed_and_lost_calls_have_no_outcome() {
        for text in ["3) = -1 EBADF (Bad file descriptor)", "0) = ?", "3) = ? ERESTARTSYS (To be restarted)"]
        {
            assert_eq!(parse(text).outcome, None, "{text}");
        }
        assert_eq!(Args::parse(b"3"), None);
        assert_eq!(Args::parse(b"3)"), None);
        assert_eq!(Args::parse(b"\"3) = 0"), None);
    }

    #[test]
    fn descriptor_paths_may_contain_special_characters() {
        let args = parse(r#"3</a, b) = 1>, "x", 1) = 4</c>(deleted) <0.000010>"#);
        assert_eq!(args.descriptor(0), Some(Descriptor { number: Some(3), path: Some(b"/a, b) = 1") }));
        assert_eq!(args.outcome, Some(Outcome { value: 4, path: Some(b"/c") }));
        let args = parse("AT_FDCWD</tmp>, 1</dev/null<char 1:3>>, 5<TCP:[1.1.1.1:1->2.2.2.2:2]>, -1) = 0");
        assert_eq!(args.descriptor(0), Some(Descriptor { number: None, path: Some(b"/tmp") }));
        assert_eq!(args.descriptor(1).unwrap().path, Some(&b"/dev/null<char 1:3>"[..]));
        assert_eq!(args.descriptor(2).unwrap().path, Some(&b"TCP:[1.1.1.1:1->2.2.2.2:2]"[..]));
        assert_eq!(args.descriptor(3), None);
    }

    #[test]
    fn escapes_in_names_are_decoded() {
        let mut path = Vec::new();
        assert!(parse(r#""/a\n\"\\\303\244\x41\0\76"..., 5) = 0"#).path(0, &mut path));
        assert_eq!(path, b"/a\n\"\\\xc3\xa4A\0>");
        path.clear();
        unescape(br"\x\", &mut path);
        assert_eq!(path, b"\0");
    }

    #[test]
    fn flags_members_and_in_out_numbers_are_parsed() {
        let args = parse("O_RDONLY|O_CLOEXEC, {st_mode=S_IFREG|0644, st_size=300000, ...}, [7] => [9]) = 0");
        assert!(args.has(0, "O_CLOEXEC") && !args.has(0, "O_CLO"));
        assert_eq!((args.member(1, "st_size"), args.member(1, "st_ino")), (Some(300_000), None));
        assert_eq!(args.pointed(2), Some(7));
        let args = parse("[3<pipe:[17]>, 4<pipe:[17]>], [5, 6], NULL) = 0");
        assert_eq!(
            [0, 1, 2].map(|index| args.descriptors(index)),
            [[Some(3), Some(4)], [Some(5), Some(6)], [None, None]]
        );
    }
}
