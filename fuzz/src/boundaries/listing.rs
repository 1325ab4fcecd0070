//! Listings of each dialect, and part tables of objects.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowwave_backend::fuzzing::{Dialect, Entry, Page, is_path, list, parts};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use super::response::http_date;

/// A correct page, its style, and mutations of its bytes.
#[derive(Arbitrary, Debug)]
pub struct Input {
    dialect: Kind,
    items: Vec<Item>,
    truncated: Option<bool>,
    next: Option<String>,
    style: Style,
    /// Mutations of the document; without any, it must parse as the page.
    edits: Vec<Edit>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Kind {
    S3,
    Azure,
    Uploads,
    Parts { tag_differs: bool, size_differs: bool },
}

#[derive(Arbitrary, Debug)]
enum Item {
    Entry { key: String, size: u32, tag: u16, time: Option<u32>, directory: bool },
    Prefix(String),
    Unknown(String),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Style {
    mark: bool,
    declaration: bool,
    namespace: bool,
    prefixed: bool,
    text: Text,
    spaced: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Text {
    Escaped,
    Numbers,
    Sections,
}

/// A mutation at an offset, modulo the document's length.
#[derive(Arbitrary, Debug)]
enum Edit {
    Set(u16, u8),
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
    Repeat(u16, u8, u8),
    Cut(u16),
}

/// Maximum bytes of a document: far below a page's limit, to keep inputs fast.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Writes, mutates and parses the page. Returns whether it was accepted.
pub fn run(input: Input) -> bool {
    let (mut document, page) = input.write();
    let right = input.edits.is_empty();
    for edit in &input.edits {
        edit.apply(&mut document);
        document.truncate(DOCUMENT_BYTES_MAX);
    }
    let dialect = match input.dialect {
        Kind::S3 => Dialect::S3,
        Kind::Azure => Dialect::Azure,
        Kind::Uploads => Dialect::Uploads,
        Kind::Parts { tag_differs, size_differs } => {
            return read_parts(&document, &page, right, tag_differs, size_differs);
        }
    };
    let found = list(dialect, &document);
    if right {
        assert_eq!(found.as_ref(), Ok(&page), "{}", String::from_utf8_lossy(&document));
    }
    let Ok(found) = found else { return false };
    let bytes: usize = found.entries.iter().map(|entry| entry.key.len()).sum();
    assert!(bytes <= document.len() && found.entries.len() + found.prefixes.len() <= document.len() / 4);
    for entry in &found.entries {
        assert!(dialect == Dialect::Uploads || entry.size.is_some_and(|size| i64::try_from(size).is_ok()));
        if is_path(&entry.key) {
            let bare = entry.key.strip_suffix('/').unwrap_or(&entry.key);
            assert!(bare.split('/').all(|part| !["", ".", ".."].contains(&part)), "{bare:?}");
        }
    }
    // An accepted page parses as itself again.
    let again = Style {
        mark: false,
        declaration: false,
        namespace: false,
        prefixed: false,
        text: Text::Escaped,
        spaced: false,
    };
    let (document, _) = write_page(input.dialect, again, &found);
    assert_eq!(list(dialect, &document).as_ref(), Ok(&found), "{}", String::from_utf8_lossy(&document));
    true
}

/// A part table: valid ranges in order up to the object's end, or none.
fn read_parts(document: &[u8], page: &Page, right: bool, tag_differs: bool, size_differs: bool) -> bool {
    let size: u64 = page.entries.iter().filter_map(|entry| entry.size).sum();
    let tag = if tag_differs { "other-2" } else { "tag-2" };
    let found = parts(document, tag, size + u64::from(size_differs));
    if right {
        let is_table = page.entries.iter().all(|entry| entry.size != Some(0));
        assert_eq!(found.is_some(), is_table && !tag_differs && !size_differs);
        assert!(found.as_ref().is_none_or(|ranges| ranges.len() == page.entries.len()));
    }
    let Some(ranges) = found else { return false };
    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size + 1));
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
    true
}

impl Edit {
    fn apply(&self, document: &mut Vec<u8>) {
        let at = |place: &u16| usize::from(*place) % (document.len() + 1);
        match self {
            Self::Set(place, byte) => {
                let at = at(place);
                if let Some(found) = document.get_mut(at) {
                    *found = *byte;
                }
            }
            Self::Insert(place, bytes) => {
                let at = at(place);
                document.splice(at..at, bytes.iter().copied());
            }
            Self::Remove(place, count) => {
                let at = at(place);
                document.drain(at..(at + usize::from(*count)).min(document.len()));
            }
            Self::Repeat(place, count, times) => {
                let at = at(place);
                let part =
                    document[at..(at + usize::from(*count)).min(document.len())].repeat((*times).into());
                document.splice(at..at, part);
            }
            Self::Cut(place) => document.truncate(at(place)),
        }
    }
}

impl Input {
    /// The document, and the page that it stands for.
    fn write(&self) -> (Vec<u8>, Page) {
        let mut page = Page { truncated: self.truncated, ..Page::default() };
        let mut unknown = String::new();
        for item in &self.items {
            match item {
                Item::Entry { key, size, tag, time, directory } => {
                    let time = time.map(|time| UNIX_EPOCH + Duration::from_secs(time.into()));
                    let tag =
                        if self.dialect == Kind::Uploads { format!("id{tag}") } else { format!("\"{tag}\"") };
                    let size = (self.dialect != Kind::Uploads).then_some(u64::from(*size));
                    if *directory && self.dialect == Kind::Azure {
                        continue;
                    }
                    page.entries.push(Entry { key: text_of(key), tag: Some(tag), size, time });
                }
                Item::Prefix(prefix) if matches!(self.dialect, Kind::S3 | Kind::Azure) => {
                    page.prefixes.push(text_of(prefix));
                }
                Item::Prefix(_) => {}
                Item::Unknown(text) => unknown = text_of(text),
            }
        }
        let next = self.next.as_deref().map(text_of).filter(|next| !next.is_empty());
        page.next = match self.dialect {
            Kind::Uploads => next.map(|next| (next, "id".to_owned())),
            Kind::S3 | Kind::Azure => next.map(|next| (next, String::new())),
            Kind::Parts { .. } => None,
        };
        if !matches!(self.dialect, Kind::S3 | Kind::Uploads) {
            page.truncated = None;
        }
        let (mut document, root) = write_page(self.dialect, self.style, &page);
        if !unknown.is_empty() {
            // An unknown element before the end of the root element.
            let mut element = String::from("<Unknown><Deep>");
            self.style.text.write(&mut element, &unknown);
            element.push_str("</Deep></Unknown>");
            let at = document.len() - root;
            document.splice(at..at, element.into_bytes());
        }
        (document, page)
    }
}

/// A document of a page, and the length of its last tag.
fn write_page(dialect: Kind, style: Style, page: &Page) -> (Vec<u8>, usize) {
    let mut writer = Writer { style, text: String::new() };
    if style.mark {
        writer.text.push('\u{feff}');
    }
    if style.declaration {
        writer.text.push_str("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
    }
    let root = match dialect {
        Kind::S3 => "ListBucketResult",
        Kind::Azure => "EnumerationResults",
        Kind::Uploads => "ListMultipartUploadsResult",
        Kind::Parts { .. } => "GetObjectAttributesResponse",
    };
    let name = if style.prefixed { format!("x:{root}") } else { root.to_owned() };
    let space = if style.namespace { " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"" } else { "" };
    let _ = write!(writer.text, "<{name}{space}>");
    match dialect {
        Kind::Azure => {
            writer.text.push_str("<Blobs>");
            page.entries.iter().for_each(|entry| writer.blob(entry));
            for prefix in &page.prefixes {
                writer.within("BlobPrefix", |writer| writer.element("Name", prefix));
            }
            writer.text.push_str("</Blobs>");
        }
        Kind::S3 => {
            page.entries.iter().for_each(|entry| writer.contents(entry));
            for prefix in &page.prefixes {
                writer.within("CommonPrefixes", |writer| writer.element("Prefix", prefix));
            }
        }
        Kind::Uploads => page.entries.iter().for_each(|entry| writer.upload(entry)),
        Kind::Parts { .. } => {
            writer.element("ETag", "tag-2");
            writer.within("ObjectParts", |writer| {
                for entry in &page.entries {
                    writer.within("Part", |writer| {
                        writer.element("ChecksumCRC32C", "4waSgw==");
                        writer.element("Size", &entry.size.unwrap_or(0).to_string());
                    });
                }
            });
        }
    }
    if let Some(truncated) = page.truncated {
        writer.element("IsTruncated", if truncated { "true" } else { "false" });
    }
    if let Some((next, id)) = &page.next {
        match dialect {
            Kind::Azure => writer.element("NextMarker", next),
            Kind::Uploads => {
                writer.element("NextKeyMarker", next);
                writer.element("NextUploadIdMarker", id);
            }
            _ => writer.element("NextContinuationToken", next),
        }
    }
    let end = format!("</{name}>");
    writer.text.push_str(&end);
    (writer.text.into_bytes(), end.len())
}

struct Writer {
    style: Style,
    text: String,
}

impl Writer {
    fn element(&mut self, name: &str, text: &str) {
        let _ = write!(self.text, "<{name}>");
        self.style.text.write(&mut self.text, text);
        let _ = write!(self.text, "</{name}>");
        if self.style.spaced {
            self.text.push_str("\n  ");
        }
    }

    fn within(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        let _ = write!(self.text, "<{name}>");
        inside(self);
        let _ = write!(self.text, "</{name}>");
    }

    fn contents(&mut self, entry: &Entry) {
        self.within("Contents", |writer| {
            writer.element("Key", &entry.key);
            writer.element("Size", &entry.size.unwrap_or(0).to_string());
            if let Some(tag) = &entry.tag {
                writer.element("ETag", tag);
            }
            if let Some(time) = entry.time {
                writer.element("LastModified", &list_time(time));
            }
        });
    }

    fn blob(&mut self, entry: &Entry) {
        self.within("Blob", |writer| {
            writer.element("Name", &entry.key);
            writer.within("Properties", |writer| {
                writer.element("Content-Length", &entry.size.unwrap_or(0).to_string());
                if let Some(tag) = &entry.tag {
                    writer.element("Etag", tag);
                }
                if let Some(time) = entry.time {
                    writer.element("Last-Modified", &http_date(seconds(time)));
                }
            });
        });
    }

    fn upload(&mut self, entry: &Entry) {
        self.within("Upload", |writer| {
            writer.element("Key", &entry.key);
            writer.element("UploadId", entry.tag.as_deref().unwrap_or_default());
            if let Some(time) = entry.time {
                writer.element("Initiated", &list_time(time));
            }
        });
    }
}

impl Text {
    fn write(self, document: &mut String, text: &str) {
        match self {
            Self::Escaped => document.push_str(&escaped(text)),
            Self::Numbers => text.chars().for_each(|c| {
                let _ = if c.is_ascii_alphanumeric() {
                    write!(document, "{c}")
                } else {
                    write!(document, "&#x{:X};", u32::from(c))
                };
            }),
            // A CDATA section ends at `]]>`, which is then split over two.
            Self::Sections => {
                let _ = write!(document, "<![CDATA[{}]]>", text.replace("]]>", "]]]]><![CDATA[>"));
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// XML characters: no control characters, and no carriage returns, which parsers may convert.
fn text_of(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A time as S3 lists it.
fn list_time(time: SystemTime) -> String {
    let text = http_date(seconds(time));
    let parts: Vec<&str> = text.split(' ').collect();
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.find(parts[2]).unwrap_or(0) / 3 + 1;
    format!("{}-{month:02}-{}T{}.000Z", parts[3], parts[1], parts[4])
}
