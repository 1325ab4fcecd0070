//! Hostile listings.

use std::fmt::Write as _;
use std::io;

use super::Dialect;
use super::answer::Answer;
use super::line::{Line, Next};
use super::listing::{DECLARATION, Entry, Page, entry_xml};
use super::mode::ListFault;
use super::request::Request;

pub(super) fn respond(line: &Line, request: &Request, fault: ListFault) -> io::Result<Next> {
    let dialect = line.shared.dialect;
    // Tokens of hostile pages are ignored: each page is derived from the first one.
    let unpaged = ["prefix", "delimiter"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), request.query(name)?.to_owned())));
    let page =
        Page::of(&line.shared.inner().bucket, &Request { query: unpaged.collect(), ..Request::default() });
    if fault == ListFault::Endless {
        let answer = Answer::xml(String::new());
        line.send(answer.head_with("HTTP/1.1", "Connection: close\r\n").as_bytes())?;
        line.send(page.opening(dialect).as_bytes())?;
        let mut index = 0u64;
        loop {
            let mut block = String::new();
            for _ in 0..100 {
                index += 1;
                block.push_str(&entry_xml(&Entry::object(&format!("{}n{index}", page.prefix), 1), dialect));
            }
            line.send(block.as_bytes())?;
            line.nap()?;
        }
    }
    let answer = match fault {
        ListFault::WrongType => {
            let mut answer = Answer::xml(page.xml(dialect));
            answer.set("Content-Type", Some("image/png".to_owned()));
            answer
        }
        ListFault::NotUtf8 => {
            let mut page = page;
            page.entries.push(Entry::object(&format!("{}NOT-UTF8", page.prefix), 1));
            let xml = page.xml(dialect);
            let (before, after) = xml.split_once("NOT-UTF8").unwrap_or((&xml, ""));
            let body = [before.as_bytes(), b"\xff\xfe\x80", after.as_bytes()].concat();
            Answer::xml(String::new()).body(body)
        }
        ListFault::Nested => {
            let nested = [vec!["<a>"; 100_000], vec!["</a>"; 100_000]].concat().concat();
            Answer::xml(format!(
                "{}{}{nested}{}",
                page.opening(dialect),
                page.entries(dialect),
                page.closing(dialect)
            ))
        }
        ListFault::Attributes => Answer::xml(attributes(&page.xml(dialect))),
        ListFault::CutOff => {
            let xml = page.xml(dialect);
            Answer::xml(xml[..xml.len() * 2 / 3].to_owned())
        }
        ListFault::WrongRoot => Answer::xml(format!("{DECLARATION}<Buckets><Name>data</Name></Buckets>")),
        ListFault::Laughs => entities(page, &laughs(), "&lol9;", dialect),
        ListFault::ExternalEntity => {
            entities(page, "<!ENTITY secret SYSTEM \"file:///etc/passwd\">", "x&secret;", dialect)
        }
        _ => Answer::xml(changed(page, request, fault).xml(dialect)),
    };
    line.answer(request, &answer)
}

/// The page with changed entries or another end.
fn changed(mut page: Page, request: &Request, fault: ListFault) -> Page {
    let prefix = page.prefix.clone();
    let asked = request.query("continuation-token").or_else(|| request.query("marker")).unwrap_or("0");
    let next = (asked.parse::<u64>().unwrap_or(0) + 1).to_string();
    let mut more = |token: String| {
        page.truncated = true;
        page.token = Some(token);
    };
    match fault {
        ListFault::RepeatedToken => {
            more("again".to_owned());
            page.entries.truncate(page.entries.len().div_ceil(2));
        }
        ListFault::EmptyPages => {
            more(next);
            page.entries.clear();
        }
        ListFault::RepeatedPages => more(next),
        ListFault::TokenAtTheEnd => page.token = Some("at-the-end".to_owned()),
        ListFault::TruncatedWithoutToken => {
            page.truncated = true;
            page.entries.truncate(page.entries.len() / 2);
        }
        ListFault::Page10000 => {
            page.entries
                .extend((0..ADDED).map(|index| Entry::object(&format!("{prefix}added-{index:05}"), 1)));
        }
        ListFault::HostileKeys => {
            let long = "n".repeat(10_000);
            let keys = [
                "../out",
                "a//b",
                "/absolute",
                "x/../../out",
                "",
                ".",
                "..",
                "nul\0nul",
                "line\nfeed",
                &long,
            ];
            page.entries.extend(keys.iter().map(|key| Entry::object(&format!("{prefix}{key}"), 3)));
            page.entries.extend(["../", "/", "./"].map(|key| Entry::Prefix(format!("{prefix}{key}"))));
        }
        ListFault::NegativeSize => page.entries.push(Entry::object(&format!("{prefix}negative"), -1)),
        ListFault::OverflowingSize => {
            page.entries.push(Entry::object(&format!("{prefix}large"), "99999999999999999999999"));
        }
        ListFault::DuplicateKeys => {
            let twice = page.entries.iter().flat_map(|entry| [entry.clone(), entry.clone()]);
            page.entries = twice.collect();
        }
        _ => {}
    }
    page
}

/// The page with a document type that declares `declared` entities; one entry is named by `name`.
fn entities(mut page: Page, declared: &str, name: &str, dialect: Dialect) -> Answer {
    page.entries.push(Entry::object(&format!("{}ENTITY", page.prefix), 1));
    let xml = page.xml(dialect).replace("ENTITY", name);
    let document = format!("{DECLARATION}<!DOCTYPE data [{declared}]>");
    Answer::xml(xml.replacen(DECLARATION, &document, 1))
}

/// Ten entities, each ten times the previous one.
fn laughs() -> String {
    let mut declared = "<!ENTITY lol0 \"lol\">".to_owned();
    for level in 1..10 {
        let ten = format!("&lol{};", level - 1).repeat(10);
        // Writing into a string cannot fail.
        let _ = write!(declared, "<!ENTITY lol{level} \"{ten}\">");
    }
    declared
}

/// The document with a million attributes on its root.
fn attributes(xml: &str) -> String {
    let mut text = String::with_capacity(14_000_000);
    for index in 0..1_000_000 {
        // Writing into a string cannot fail.
        let _ = write!(text, " a{index}=\"\"");
    }
    let root = if xml.contains("<ListBucketResult") { "<ListBucketResult" } else { "<EnumerationResults" };
    xml.replacen(root, &format!("{root}{text}"), 1)
}

/// Entries that `list-10000` adds.
pub(super) const ADDED: usize = 10_000;
