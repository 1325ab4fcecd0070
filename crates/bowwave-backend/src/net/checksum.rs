//! Checksums that S3 keeps of objects and of their parts: what was received is compared with them.
//!
//! A store sends the checksum of an object with all of it, and those of parts in a table of their own. A composite checksum is
//! one over the checksums of the parts, so each part is verified by its own.

use std::collections::VecDeque;
use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use http::Method;
use http::header::{HeaderMap, HeaderName};
use ring::digest;
use tokio::sync::OnceCell;

use super::ranged::{Source, Version};
use super::validator::text;
use super::wire::Outgoing;
use super::xml;

/// Asks for checksums, if `ENABLED`.
pub(super) const MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
/// Which attributes of an object are asked for.
const ATTRIBUTES: HeaderName = HeaderName::from_static("x-amz-object-attributes");
/// How many parts at most.
const PARTS_MAX: HeaderName = HeaderName::from_static("x-amz-max-parts");
/// Smallest part of S3 but for the last: smaller reads hold no whole part.
const PART_BYTES_MIN: u64 = 5 << 20;

/// A way to sum up bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// The quickest first: a store may have several.
    const ALL: [Self; 5] = [Self::Crc64Nvme, Self::Crc32c, Self::Crc32, Self::Sha256, Self::Sha1];

    /// As headers and documents name it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Crc32 => ("x-amz-checksum-crc32", "ChecksumCRC32"),
            Self::Crc32c => ("x-amz-checksum-crc32c", "ChecksumCRC32C"),
            Self::Crc64Nvme => ("x-amz-checksum-crc64nvme", "ChecksumCRC64NVME"),
            Self::Sha1 => ("x-amz-checksum-sha1", "ChecksumSHA1"),
            Self::Sha256 => ("x-amz-checksum-sha256", "ChecksumSHA256"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn begin(self) -> Sum {
        match self {
            Self::Crc32 => Sum::Crc(Digest::new(CrcAlgorithm::Crc32IsoHdlc), 4),
            Self::Crc32c => Sum::Crc(Digest::new(CrcAlgorithm::Crc32Iscsi), 4),
            Self::Crc64Nvme => Sum::Crc(Digest::new(CrcAlgorithm::Crc64Nvme), 8),
            Self::Sha1 => Sum::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Self::Sha256 => Sum::Sha(digest::Context::new(&digest::SHA256)),
        }
    }
}

/// A sum in progress.
enum Sum {
    /// And its bytes.
    Crc(Digest, usize),
    Sha(digest::Context),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest, _) => digest.update(bytes),
            Self::Sha(context) => context.update(bytes),
        }
    }

    /// In the order that headers have it.
    fn end(self) -> Vec<u8> {
        match self {
            Self::Crc(digest, bytes) => digest.finalize().to_be_bytes()[8 - bytes..].to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
        }
    }
}

/// The checksum that a store has of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
    /// Over the checksums of so many parts, not over the bytes.
    parts: Option<u32>,
}

impl Checksum {
    /// As a store writes it: Base64, and of a composite one a dash and the number of parts.
    fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let (text, parts) = match text.trim().split_once('-') {
            Some((sum, parts)) => (sum, Some(parts.parse().ok()?)),
            None => (text.trim(), None),
        };
        let value = BASE64_STANDARD.decode(text).ok()?;
        (value.len() == algorithm.bytes()).then_some(Self { algorithm, value, parts })
    }

    /// Whether bytes of this sum are those that the store has; `None` if that cannot be told without the parts.
    fn is_of(&self, sum: Vec<u8>) -> Option<bool> {
        match self.parts {
            None => Some(sum == self.value),
            Some(1) => {
                let mut over = self.algorithm.begin();
                over.add(&sum);
                Some(over.end() == self.value)
            }
            Some(_) => None,
        }
    }
}

/// Verifies a body while it comes.
#[derive(Default)]
pub(super) struct Verifier {
    /// Ranges of the body that have a checksum, in order.
    spans: VecDeque<(Range<u64>, Checksum)>,
    sum: Option<Sum>,
    at: u64,
}

impl Verifier {
    /// For all of an object, by the headers that came with it.
    pub(super) fn of_object(headers: &HeaderMap, size: u64) -> Self {
        let of = |algorithm: Algorithm| {
            let name = HeaderName::from_static(algorithm.names().0);
            Checksum::parse(algorithm, &text(headers, name)?)
        };
        let known =
            Algorithm::ALL.into_iter().filter_map(of).find(|sum| sum.parts.is_none_or(|parts| parts == 1));
        Self { spans: known.map(|sum| (0..size, sum)).into_iter().collect(), sum: None, at: 0 }
    }

    /// Whether nothing is verified.
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many of the first `taken` bytes are known to be right, or have no checksum.
    pub(super) fn known(&self, taken: usize) -> usize {
        match self.spans.front() {
            Some((span, _)) => taken.min(usize::try_from(span.start).unwrap_or(usize::MAX)),
            None => taken,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// What is wrong, if they are not what the store has.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some((span, checksum)) = self.spans.front() {
            let skipped = span.start.saturating_sub(self.at).min(bytes.len() as u64);
            let wanted = (span.end - self.at - skipped).min(bytes.len() as u64 - skipped);
            let (skipped, wanted) = (skipped as usize, wanted as usize);
            if self.at + (skipped as u64) < span.start {
                break;
            }
            let sum = self.sum.get_or_insert_with(|| checksum.algorithm.begin());
            sum.add(&bytes[skipped..skipped + wanted]);
            self.at += (skipped + wanted) as u64;
            bytes = &bytes[skipped + wanted..];
            if self.at < span.end {
                return Ok(());
            }
            let found = self.sum.take().map(Sum::end).unwrap_or_default();
            if checksum.is_of(found) == Some(false) {
                let name = checksum.algorithm.names().0;
                return Err(format!(
                    "the bytes do not match the store's checksum ({name}): damaged on the way"
                ));
            }
            self.spans.pop_front();
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// The checksums of an object's parts, asked for when they are first of use.
#[derive(Debug, Default)]
pub(super) struct Parts {
    table: OnceCell<Vec<(Range<u64>, Checksum)>>,
}

impl Parts {
    /// For a range that is not all of the object.
    pub(super) async fn verifier(&self, version: &Version, range: &Range<u64>) -> Verifier {
        // S3 gives objects of several parts a tag that ends in their number.
        let tag = version.validators.strong().unwrap_or_default().trim_matches('"');
        let in_parts =
            tag.rsplit_once('-').is_some_and(|(_, parts)| parts.parse::<u32>().is_ok_and(|parts| parts > 1));
        if !in_parts || range.end - range.start < PART_BYTES_MIN {
            return Verifier::default();
        }
        // Without a table nothing is verified, as without checksums.
        let table = self.table.get_or_init(|| async { table(version, tag).await.unwrap_or_default() }).await;
        let inside = |part: &Range<u64>| range.start <= part.start && part.end <= range.end;
        let spans = table.iter().filter(|(part, _)| inside(part));
        let spans = spans.map(|(part, sum)| (part.start - range.start..part.end - range.start, sum.clone()));
        Verifier { spans: spans.collect(), sum: None, at: 0 }
    }
}

/// Asks for the parts of a version whose tag is `tag`, without its quotes.
async fn table(version: &Version, tag: &str) -> Option<Vec<(Range<u64>, Checksum)>> {
    let Source::Bucket(cloud, key) = &version.source else { return None };
    let headers = [(ATTRIBUTES, "ETag,ObjectParts".to_owned()), (PARTS_MAX, "10000".to_owned())];
    let query = [("attributes", "")];
    let request = Outgoing { query: &query, headers: &headers, ..Outgoing::new(Method::GET, key.as_ref()) };
    let document = cloud.wire.xml(request, cloud.wire.client.limits.timeout).await.ok()?;
    parts(&document, tag, version.size())
}

/// The parts in a document of attributes, if they are those of the version.
fn parts(document: &[u8], tag: &str, size: u64) -> Option<Vec<(Range<u64>, Checksum)>> {
    let (mut found, mut bytes, mut sum, mut end, mut is_version) = (Vec::new(), None, None, 0u64, false);
    let read =
        xml::read(document, &["GetObjectAttributesResponse", "GetObjectAttributesOutput"], |path, text| {
            let names: [&str; 3] = [1, 2, 3].map(|depth| path.get(depth).map_or("", String::as_str));
            match names {
                ["ETag", "", ""] => is_version = text.trim().trim_matches('"') == tag,
                ["ObjectParts", "Part", "Size"] => bytes = text.trim().parse::<u64>().ok(),
                ["ObjectParts", "Part", ""] => {
                    let bytes = bytes.take().filter(|bytes| *bytes > 0).ok_or("a part has no size")?;
                    let start = end;
                    end = start.checked_add(bytes).ok_or("parts are larger than any object")?;
                    found.extend(sum.take().map(|sum| (start..end, sum)));
                }
                ["ObjectParts", "Part", name] => {
                    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.names().1 == name);
                    sum = algorithm
                        .and_then(|algorithm| Checksum::parse(algorithm, text))
                        .or_else(|| sum.take());
                }
                _ => {}
            }
            Ok(())
        });
    // A table with gaps, or of another version, would refuse right bytes.
    (read.is_ok() && is_version && end == size).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of "123456789", the check value of each algorithm's catalogue entry.
    const SUMS: [(Algorithm, &str); 5] = [
        (Algorithm::Crc32, "y/Q5Jg=="),
        (Algorithm::Crc32c, "4waSgw=="),
        (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
        (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
        (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];

    fn verifier(spans: &[(Range<u64>, &str)]) -> Verifier {
        let sum = |text: &str| Checksum::parse(Algorithm::Crc32c, text).expect("a sum");
        Verifier {
            spans: spans.iter().map(|(span, text)| (span.clone(), sum(text))).collect(),
            sum: None,
            at: 0,
        }
    }

    #[test]
    fn sums_are_those_of_the_catalogues() {
        for (algorithm, text) in SUMS {
            let mut sum = algorithm.begin();
            sum.add(b"1234");
            sum.add(b"56789");
            assert_eq!(Checksum::parse(algorithm, text).unwrap().value, sum.end(), "{algorithm:?}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_the_body_is_cut() {
        let sum = "4waSgw==";
        for cut in 0..=9 {
            let mut right = verifier(&[(0..9, sum)]);
            let body = b"123456789";
            assert_eq!(right.known(5), 0, "nothing is known before the end");
            assert!(right.take(&body[..cut]).and_then(|()| right.take(&body[cut..])).is_ok());
            assert_eq!(right.known(9), 9);
            let mut wrong = verifier(&[(0..9, sum)]);
            let body = b"123456788";
            assert!(
                wrong.take(&body[..cut]).and_then(|()| wrong.take(&body[cut..])).is_err(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn parts_within_a_read_are_verified_one_by_one() {
        let sum = "4waSgw==";
        let body = b"xx123456789123456789yy";
        for step in 1..body.len() {
            let mut right = verifier(&[(2..11, sum), (11..20, sum)]);
            assert!(body.chunks(step).try_for_each(|bytes| right.take(bytes)).is_ok(), "by {step}");
            assert!(right.is_empty());
        }
        let mut wrong = verifier(&[(2..11, sum), (11..20, sum)]);
        assert!(wrong.take(&body[..11]).is_ok());
        assert_eq!(wrong.known(15), 11);
        assert!(wrong.take(b"123456798").is_err());
    }

    #[test]
    fn a_composite_sum_of_one_part_is_a_sum_of_its_sum() {
        let mut inner = Algorithm::Crc32.begin();
        inner.add(b"123456789");
        let mut outer = Algorithm::Crc32.begin();
        outer.add(&inner.end());
        let value = outer.end();
        let composite = Checksum { algorithm: Algorithm::Crc32, value, parts: Some(1) };
        let sum = |bytes: &[u8]| {
            let mut sum = Algorithm::Crc32.begin();
            sum.add(bytes);
            sum.end()
        };
        assert_eq!(composite.is_of(sum(b"123456789")), Some(true));
        assert_eq!(composite.is_of(sum(b"123456788")), Some(false));
        assert_eq!(Checksum { parts: Some(2), ..composite }.is_of(sum(b"1")), None);
    }

    #[test]
    fn a_table_of_parts_counts_only_if_it_is_of_the_version_and_whole() {
        let part = |n: u32, size: u64| {
            format!(
                "<Part><PartNumber>{n}</PartNumber><ChecksumCRC32C>4waSgw==</ChecksumCRC32C><Size>{size}</Size></Part>"
            )
        };
        let document = |parts: &str| {
            format!(
                "<GetObjectAttributesResponse><ETag>tag-2</ETag><ObjectParts>{parts}</ObjectParts></GetObjectAttributesResponse>"
            )
        };
        let both = document(&(part(1, 9) + &part(2, 4)));
        let found = parts(both.as_bytes(), "tag-2", 13).expect("a table");
        assert_eq!(found.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>(), [0..9, 9..13]);
        assert!(parts(both.as_bytes(), "other-2", 13).is_none());
        assert!(parts(both.as_bytes(), "tag-2", 14).is_none());
        assert!(parts(document(&part(1, u64::MAX)).as_bytes(), "tag-2", 13).is_none());
        assert!(parts(b"<html></html>", "tag-2", 13).is_none());
    }

    #[test]
    fn what_is_no_sum_is_none() {
        for text in ["", "Z!==", "Zm9v", "y/Q5Jg==-x", "y/Q5Jg==-"] {
            assert_eq!(Checksum::parse(Algorithm::Crc32, text), None, "{text}");
        }
    }
}
