//! XML of object stores, parsed event by event, within limits.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

/// Deepest nesting of elements; listings have four levels.
const DEPTH_MAX: usize = 12;

/// Parses a document whose root element is one of `roots`, names without prefixes. At the end of
/// each element, calls `end` with its path below the root, such as `Contents/Key`, and its text.
///
/// # Errors
/// Why the document is invalid, for a message.
pub(super) fn read(
    document: &[u8],
    roots: &[&str],
    mut end: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let document = std::str::from_utf8(document).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut reader = Reader::from_str(document.trim_start_matches('\u{feff}'));
    let (mut path, mut text, mut ended) = (Path::default(), String::new(), false);
    loop {
        let event = reader.read_event().map_err(|error| format!("it is no XML ({error})"))?;
        match event {
            Event::Start(element) => {
                path.enter(element.local_name().as_ref(), roots, ended)?;
                text.clear();
            }
            Event::Empty(element) => {
                path.enter(element.local_name().as_ref(), roots, ended)?;
                end(path.below_root(), "")?;
                ended = path.leave();
            }
            Event::End(_) => {
                end(path.below_root(), &text)?;
                text.clear();
                ended = path.leave();
            }
            Event::Text(part) => text.push_str(&part.decode().map_err(|error| error.to_string())?),
            Event::CData(part) => text.push_str(&part.decode().map_err(|error| error.to_string())?),
            Event::GeneralRef(reference) => text.push(character(&reference)?),
            Event::DocType(_) => {
                return Err("it has a document type definition, which no store sends".to_owned());
            }
            Event::Eof if ended => return Ok(()),
            Event::Eof => return Err("it ends early, or is empty".to_owned()),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
}

/// The text of the first element `name` in a document of any root, or nothing: for use in messages.
pub(super) fn find(document: &[u8], root: &str, name: &str) -> Option<String> {
    let mut found = None;
    // Text found before an error counts.
    let _ = read(document, &[root], |path, text| {
        let last = if path.is_empty() { root } else { path.rsplit('/').next().unwrap_or(path) };
        if last == name && found.is_none() {
            found = Some(text.to_owned());
        }
        Ok(())
    });
    found
}

/// Escapes `text` for use between tags.
pub(super) fn escaped(text: &str) -> String {
    // Quotes stay: Google's servers do not accept them escaped, and between tags they need not be.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The names of the open elements.
#[derive(Default)]
struct Path {
    /// With a slash after each; a name has none.
    names: String,
    /// Start of each name.
    starts: Vec<usize>,
}

impl Path {
    fn enter(&mut self, name: &[u8], roots: &[&str], ended: bool) -> Result<(), String> {
        let name = String::from_utf8_lossy(name);
        if self.starts.is_empty() && (ended || !roots.contains(&&*name)) {
            let name: String = name.chars().take(40).collect();
            return Err(format!("it is <{name}> in place of <{}>", roots.join("> or <")));
        }
        if self.starts.len() == DEPTH_MAX {
            return Err(format!("its elements lie more than {DEPTH_MAX} deep"));
        }
        self.starts.push(self.names.len());
        self.names.push_str(&name);
        self.names.push('/');
        Ok(())
    }

    /// Leaves the innermost element; returns whether it was the root.
    fn leave(&mut self) -> bool {
        self.names.truncate(self.starts.pop().unwrap_or(0));
        self.starts.is_empty()
    }

    fn below_root(&self) -> &str {
        let start = self.starts.get(1).copied().unwrap_or(self.names.len());
        self.names[start..].trim_end_matches('/')
    }
}

/// The character of a reference such as `&amp;` or `&#10;`. A document's own entities are rejected.
fn character(reference: &BytesRef<'_>) -> Result<char, String> {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => return Ok(character),
        // Stores write keys with characters outside of XML as references: they become keys that no
        // file can have.
        Err(_) => return Ok('\0'),
        Ok(None) => {}
    }
    let name = reference.decode().map_err(|error| error.to_string())?;
    match &*name {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err("it has an entity that XML does not define".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(document: &str) -> Result<Vec<(String, String)>, String> {
        let mut texts = Vec::new();
        read(document.as_bytes(), &["a"], |path, text| {
            texts.push((path.to_owned(), text.to_owned()));
            Ok(())
        })
        .map(|()| texts)
    }

    #[test]
    fn text_is_given_with_its_path_and_without_escapes() {
        let document = "<?xml version=\"1.0\"?>\n<a xmlns='u'><s3:b>x&amp;y&#10;&quot;&lt;<![CDATA[<]]></s3:b> <c/></a>\n";
        let pair = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let found = texts(document).unwrap();
        assert_eq!(found[..2], [pair("b", "x&y\n\"<<"), pair("c", "")]);
        assert_eq!(found[2].0, "");
        let nested = texts("<a><d><b>t</b></d><b>u</b></a>").unwrap();
        assert!([pair("d/b", "t"), pair("b", "u")].iter().all(|text| nested.contains(text)), "{nested:?}");
    }

    #[test]
    fn what_no_store_sends_is_refused() {
        let deep = format!("<a>{}", "<b>".repeat(100_000));
        for (document, why) in [
            ("", "empty"),
            ("no XML", "ends early"),
            ("<!DOCTYPE html><html><body>log in</body></html>", "document type"),
            ("<html><body>log in</body></html>", "<html> in place of <a>"),
            ("<a><b>never closed", "ends early"),
            ("<a></b></a>", "no XML"),
            ("<a></a><a></a>", "in place of"),
            ("<a>&bomb;</a>", "entity"),
            (&deep, "deep"),
        ] {
            let error = texts(document).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
        assert!(read(b"<a>\xff</a>", &["a"], |_, _| Ok(())).is_err());
    }

    #[test]
    fn escaping_is_undone_by_reading() {
        let odd = "a<b>&amp;\"'c]]>";
        let found = find(format!("<E><K>{}</K></E>", escaped(odd)).as_bytes(), "E", "K");
        assert_eq!(found.as_deref(), Some(odd));
        assert_eq!(find(b"<E><K>x</K>never closed", "E", "K").as_deref(), Some("x"));
        assert_eq!(find(b"no XML", "E", "K"), None);
    }
}
