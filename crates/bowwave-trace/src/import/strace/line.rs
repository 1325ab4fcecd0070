//! Parses one line of a log: process, time, call.

use crate::import::text::{decimal, seconds_ns};

/// Times from here on, in seconds, are since 1970 (`-ttt`); smaller ones are since the previous
/// line (`-r`).
const ABSOLUTE_FROM_S: u64 = 1_000_000_000;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// `None` in the log of a single process.
    pub(super) pid: Option<u64>,
    pub(super) stamp: Stamp,
    pub(super) body: Body<'a>,
}

/// Time stamp, by strace option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stamp {
    /// No option: unknown.
    #[default]
    None,
    /// `-t`, `-tt`: nanoseconds since midnight.
    OfDay(u64),
    /// `-ttt`: nanoseconds since 1970.
    Absolute(u64),
    /// `-r`: nanoseconds since the previous line.
    Since(u64),
}

/// Content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// `NAME(ARGUMENTS) = RESULT`; the text after the opening parenthesis.
    Call { name: &'a [u8], text: &'a [u8] },
    /// `NAME(ARGUMENTS <unfinished ...>`; the text between the parenthesis and the marker.
    Unfinished { name: &'a [u8], text: &'a [u8] },
    /// `<... NAME resumed>ARGUMENTS) = RESULT`; the text after the bracket.
    Resumed { text: &'a [u8] },
    /// The process has ended.
    Ended,
    /// A thread ran another program and continues under this line's ID; `by` is its previous ID.
    Superseded { by: u64 },
    /// A signal, or a message of strace itself.
    Other,
}

/// Parses `line`; `None` if it is not part of a log.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line.trim_ascii();
    if rest.starts_with(b"strace: ") {
        return Some(Line { pid: None, stamp: Stamp::None, body: Body::Other });
    }
    let pid = take_pid(&mut rest);
    let mut stamp = Stamp::None;
    while let Some(next) = take_stamp(&mut rest) {
        // With `-r` and one of `-t`, use the absolute time.
        if !matches!((stamp, next), (Stamp::OfDay(_) | Stamp::Absolute(_), Stamp::Since(_))) {
            stamp = next;
        }
    }
    // Skip the call number (-n) and the instruction pointer (-i).
    while rest.first() == Some(&b'[') {
        let end = rest.iter().position(|&byte| byte == b']')?;
        rest = rest[end + 1..].trim_ascii_start();
    }
    Some(Line { pid, stamp, body: body(rest)? })
}

fn body(rest: &[u8]) -> Option<Body<'_>> {
    if let Some(end) = rest.strip_prefix(b"+++ ") {
        return match end.strip_prefix(b"superseded by execve in pid ") {
            Some(by) => decimal(by.split(|&byte| byte == b' ').next()?).map(|by| Body::Superseded { by }),
            None => (end.starts_with(b"exited") || end.starts_with(b"killed")).then_some(Body::Ended),
        };
    }
    if rest.starts_with(b"--- ") {
        return Some(Body::Other);
    }
    if let Some(resumed) = rest.strip_prefix(b"<... ") {
        let end = resumed.iter().position(|&byte| byte == b'>')?;
        resumed[..end].strip_suffix(b" resumed")?;
        return Some(Body::Resumed { text: &resumed[end + 1..] });
    }
    let open = rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))?;
    let (name, text) = rest.split_at(open);
    let text = text.strip_prefix(b"(")?;
    if name.is_empty() || name[0].is_ascii_digit() {
        return None;
    }
    match text.strip_suffix(b"<unfinished ...>") {
        Some(text) => Some(Body::Unfinished { name, text }),
        None => Some(Body::Call { name, text }),
    }
}

/// Parses `[pid 1234] ` or `1234 `, with or without `<comm>` after the number.
fn take_pid(rest: &mut &[u8]) -> Option<u64> {
    if let Some(bracket) = rest.strip_prefix(b"[pid ") {
        let text = bracket.trim_ascii_start();
        let digits = count_digits(text);
        let pid = decimal(&text[..digits])?;
        let end = text.iter().position(|&byte| byte == b']')?;
        *rest = text[end + 1..].trim_ascii_start();
        return Some(pid);
    }
    let digits = count_digits(rest);
    let pid = decimal(&rest[..digits])?;
    let after = match rest[digits..].strip_prefix(b"<") {
        Some(comm) => &comm[comm.iter().position(|&byte| byte == b'>')? + 1..],
        None => &rest[digits..],
    };
    if after.first() != Some(&b' ') {
        return None;
    }
    *rest = after.trim_ascii_start();
    Some(pid)
}

/// Parses a time: `12:34:56`, `12:34:56.789012`, `1700000000.123456`, `0.000123`, or `(+ 0.000123)`
/// after another.
fn take_stamp(rest: &mut &[u8]) -> Option<Stamp> {
    if let Some(bracket) = rest.strip_prefix(b"(+") {
        let end = bracket.iter().position(|&byte| byte == b')')?;
        let since = seconds_ns(bracket[..end].trim_ascii())?;
        *rest = bracket[end + 1..].trim_ascii_start();
        return Some(Stamp::Since(since));
    }
    let end = rest.iter().position(|&byte| byte == b' ')?;
    let word = &rest[..end];
    let stamp = if word.contains(&b':') {
        let mut parts = word.splitn(3, |&byte| byte == b':');
        let (hours, minutes) = (decimal(parts.next()?)?, decimal(parts.next()?)?);
        let seconds = seconds_ns(parts.next()?)?;
        if hours > 23 || minutes > 59 {
            return None;
        }
        Stamp::OfDay(((hours * 60 + minutes) * 60).checked_mul(1_000_000_000)?.checked_add(seconds)?)
    } else if word.contains(&b'.') {
        let ns = seconds_ns(word)?;
        if ns / 1_000_000_000 >= ABSOLUTE_FROM_S { Stamp::Absolute(ns) } else { Stamp::Since(ns) }
    } else {
        return None;
    };
    *rest = rest[end..].trim_ascii_start();
    Some(stamp)
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (Option<u64>, Stamp, Option<Body<'_>>) {
        parse(line.as_bytes())
            .map_or((None, Stamp::None, None), |line| (line.pid, line.stamp, Some(line.body)))
    }

    #[test]
    fn line_prefixes_of_every_option_are_parsed() {
        let close = || Some(Body::Call { name: b"close", text: b"3) = 0" });
        for (line, pid, stamp) in [
            ("close(3) = 0", None, Stamp::None),
            ("[pid    77] close(3) = 0", Some(77), Stamp::None),
            ("[pid 77<sh>] close(3) = 0", Some(77), Stamp::None),
            ("77<sh> close(3) = 0", Some(77), Stamp::None),
            ("77  00:00:02 close(3) = 0", Some(77), Stamp::OfDay(2_000_000_000)),
            ("77 23:59:59.000001 close(3) = 0", Some(77), Stamp::OfDay(86_399_000_001_000)),
            ("77 1700000000.5 close(3) = 0", Some(77), Stamp::Absolute(1_700_000_000_500_000_000)),
            ("77      0.000123 close(3) = 0", Some(77), Stamp::Since(123_000)),
            ("1700000000.5 (+     0.000123) close(3) = 0", None, Stamp::Absolute(1_700_000_000_500_000_000)),
            ("77 [00007f12ab] [   3] close(3) = 0", Some(77), Stamp::None),
        ] {
            assert_eq!(parts(line), (pid, stamp, close()), "{line}");
        }
    }

    #[test]
    fn bodies_of_every_kind_are_parsed() {
        for (line, body) in [
            ("5 read(3,  <unfinished ...>", Some(Body::Unfinished { name: b"read", text: b"3,  " })),
            ("5 <... read resumed>\"\", 1) = 0", Some(Body::Resumed { text: b"\"\", 1) = 0" })),
            ("5 +++ exited with 0 +++", Some(Body::Ended)),
            ("5 +++ killed by SIGKILL +++", Some(Body::Ended)),
            ("5 +++ superseded by execve in pid 9 +++", Some(Body::Superseded { by: 9 })),
            ("5 --- SIGCHLD {si_signo=SIGCHLD} ---", Some(Body::Other)),
            ("strace: Process 9 attached", Some(Body::Other)),
            ("hello world", None),
            ("5", None),
            ("", None),
            ("3(4) = 5", None),
        ] {
            assert_eq!(parts(line).2, body, "{line}");
        }
    }
}
