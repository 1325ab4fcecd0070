//! Index pages of web servers: the names in a directory.
//!
//! Supported are the pages of nginx, Apache, caddy, lighttpd and Python's `http.server`, and the
//! JSON of nginx and caddy. Only names and kinds are used: pages round sizes and times, and HEAD
//! returns them exactly.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use url::Url;

use crate::{Entry, EntryKind};

/// Why a page is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is no index page, for this reason.
    NoIndex(String),
    /// It has more entries than are allowed.
    TooMany,
}

/// Parses a page of the media type `kind`: the entries of the directory at `url`, by name, at most
/// `entries_max`.
///
/// A link is an entry if it leads one level down from `url`. Ignored are links to the parent and to
/// other hosts, links with queries (which sort columns), and invalid names.
///
/// # Errors
/// [`Refused`] if the page is no index, or too large.
pub(super) fn read(kind: &str, page: &[u8], url: &Url, entries_max: u64) -> Result<Vec<Entry>, Refused> {
    let mut found = Found { names: BTreeMap::new(), entries_max };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/html" | "application/xhtml+xml" => html(page, url, &mut found)?,
        "application/json" => json(page, &mut found)?,
        _ => return Err(Refused::NoIndex(format!("it is of the type `{}`", kind.escape_debug()))),
    }
    Ok(found.names.into_iter().map(|(name, kind)| Entry::new(name, kind)).collect())
}

struct Found {
    names: BTreeMap<OsString, EntryKind>,
    entries_max: u64,
}

impl Found {
    /// Adds an entry; a directory's name may end in a slash.
    fn add(&mut self, name: &[u8], is_directory: bool) -> Result<(), Refused> {
        let bare = name.strip_suffix(b"/").unwrap_or(name);
        if matches!(bare, b"" | b"." | b"..") || bare.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Ok(());
        }
        let is_directory = is_directory || bare.len() < name.len();
        let kind = if is_directory { EntryKind::Directory } else { EntryKind::File };
        self.names.entry(OsString::from_vec(bare.to_vec())).or_insert(kind);
        if self.names.len() as u64 > self.entries_max { Err(Refused::TooMany) } else { Ok(()) }
    }
}

fn html(page: &[u8], url: &Url, found: &mut Found) -> Result<(), Refused> {
    let directory: Vec<u8> = percent_decode_str(url.path()).collect();
    let mut emitter = DefaultEmitter::<()>::default();
    // Scripts and style sheets contain no elements.
    emitter.naively_switch_states(true);
    // Text of the open title or heading.
    let mut heading: Option<Vec<u8>> = None;
    let (mut title, mut is_index) = (String::new(), false);
    for Ok(token) in Tokenizer::new_with_emitter(page, emitter) {
        match token {
            Token::StartTag(tag) => match tag.name.as_slice() {
                b"title" | b"h1" => heading = Some(Vec::new()),
                b"a" => {
                    if let Some((name, is_directory)) = child(&tag, url, &directory) {
                        found.add(&name, is_directory)?;
                    }
                }
                _ => {}
            },
            Token::EndTag(tag) if matches!(tag.name.as_slice(), b"title" | b"h1") => {
                let Some(text) = heading.take() else { continue };
                is_index |= is_heading(&text, &directory);
                if title.is_empty() {
                    title = String::from_utf8_lossy(&text).trim().chars().take(60).collect();
                }
            }
            Token::String(text) => {
                if let Some(heading) = &mut heading
                    && heading.len() < HEADING_BYTES_MAX
                {
                    heading.extend_from_slice(&text);
                }
            }
            _ => {}
        }
    }
    match is_index {
        true => Ok(()),
        false => Err(Refused::NoIndex(format!("its title is `{}`", title.escape_debug()))),
    }
}

/// Whether a title or heading is that of the index of `directory`.
fn is_heading(text: &[u8], directory: &[u8]) -> bool {
    let text = text.trim_ascii();
    let begins = |known: &&str| {
        text.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    // The title of caddy's page is the path.
    HEADINGS.iter().any(begins) || text == directory || Some(text) == directory.strip_suffix(b"/")
}

/// The name of the entry that a link leads to, and whether it ends in a slash.
fn child(tag: &StartTag<()>, url: &Url, directory: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (_, href) = tag.attributes.iter().find(|(name, _)| name.as_slice() == b"href")?;
    let href = std::str::from_utf8(href.value.as_slice()).ok()?;
    let to = url.join(href).ok()?;
    if to.origin() != url.origin() || to.query().is_some() || to.fragment().is_some() {
        return None;
    }
    // An escaped slash counts as a slash: no file has one in its name.
    let name = percent_decode_str(to.path()).collect::<Vec<u8>>().strip_prefix(directory)?.to_vec();
    let is_directory = name.ends_with(b"/");
    Some((name, is_directory))
}

fn json(page: &[u8], found: &mut Found) -> Result<(), Refused> {
    let mut refused = None;
    let mut reader = serde_json::Deserializer::from_slice(page);
    let read = reader.deserialize_seq(Items { found, refused: &mut refused }).and_then(|()| reader.end());
    match (refused, read) {
        (Some(refused), _) => Err(refused),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(Refused::NoIndex(format!("it is no list of files ({error})"))),
    }
}

/// An entry as nginx (`type`) and caddy (`is_dir`) write it.
#[derive(Deserialize)]
struct Item {
    name: String,
    r#type: Option<String>,
    is_dir: Option<bool>,
}

/// Adds items one by one, so that memory is bounded by the names.
struct Items<'a> {
    found: &'a mut Found,
    refused: &'a mut Option<Refused>,
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Item>()? {
            let is_directory = match (item.r#type.as_deref(), item.is_dir) {
                (Some("directory"), _) | (None, Some(true)) => true,
                (Some("file"), _) | (None, Some(false)) => false,
                // Sockets and the like.
                (Some(_), _) => continue,
                (None, None) => return Err(A::Error::custom("an entry has no type")),
            };
            if let Err(refused) = self.found.add(item.name.as_bytes(), is_directory) {
                *self.refused = Some(refused);
                return Err(A::Error::custom("too many"));
            }
        }
        Ok(())
    }
}

/// Prefixes of titles and headings of index pages.
const HEADINGS: [&str; 3] = ["Index of", "Directory listing for", "Directory: "];
/// Most bytes of a title that are kept; Linux paths have at most 4096.
const HEADING_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
